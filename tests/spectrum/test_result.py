import tracemalloc

import numpy as np
import pytest
from scipy.sparse import csr_array

from graphuq import archive, graph, laplacian, spectrum
from graphuq.spectrum import Spectrum
from graphuq.spectrum.result import null_space, signs

from .problems import complete, points, ring, side_by_side


@pytest.fixture
def found():
    return spectrum.dense(laplacian.normalized(graph.gaussian(points(20), tau=1.0)), n_modes=6)


def test_a_file_gives_back_what_was_saved(found, tmp_path):
    kinds = (found, spectrum.low_rank(graph.cosine(np.abs(points(20)))))
    for each in kinds:
        each.save(tmp_path / "modes.npz")
        back = Spectrum.load(tmp_path / "modes.npz")
        for name in ("values", "vectors", "residuals", "degrees"):
            assert np.array_equal(getattr(back, name), getattr(each, name))
        for name in ("n_components", "normalized", "method", "rest"):
            assert getattr(back, name) == getattr(each, name)
            assert type(getattr(back, name)) is type(getattr(each, name))
    assert [path.name for path in tmp_path.iterdir()] == ["modes.npz"]


def test_a_failed_save_leaves_the_old_file_and_nothing_else(found, tmp_path, monkeypatch):
    path = tmp_path / "modes.npz"
    found.save(path)
    before = path.read_bytes()

    def disk_full(file, **arrays):
        file.write(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", disk_full)
    with pytest.raises(OSError, match="No space"):
        found.truncate(2).save(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["modes.npz"]


def _truncated(data):
    return data[: len(data) // 2]


def _flipped(data):
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :]


@pytest.mark.parametrize("damage", [_truncated, _flipped, lambda data: b"", lambda data: b"text"])
def test_a_damaged_file_is_refused(found, tmp_path, damage):
    path = tmp_path / "modes.npz"
    found.save(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"modes.npz is not a spectrum of graphuq, or is damaged"):
        Spectrum.load(path)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "other.npz"
    np.savez(path, values=np.ones(3))
    with pytest.raises(ValueError, match="is not a spectrum of graphuq"):
        Spectrum.load(path)
    archive.write(path, "graphuq spectrum 99", {}, {})
    with pytest.raises(ValueError, match="holds the format 'graphuq spectrum 99', and this version reads"):
        Spectrum.load(path)
    np.savez(path, format=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="is not a spectrum of graphuq"):
        Spectrum.load(path)
    np.save(tmp_path / "other.npy", np.ones(3))
    with pytest.raises(ValueError, match="is not a spectrum of graphuq"):
        Spectrum.load(tmp_path / "other.npy")
    with pytest.raises(FileNotFoundError):
        Spectrum.load(tmp_path / "absent.npz")


def test_truncate(found):
    low_rank = spectrum.low_rank(graph.cosine(np.abs(points(20))))
    assert low_rank.truncate(low_rank.n_modes).rest == 1.0
    cut = low_rank.truncate(2)
    assert (cut.n_modes, cut.n_nodes, cut.rest) == (2, 20, None)
    np.testing.assert_array_equal(cut.vectors, low_rank.vectors[:, :2])
    for n_modes in (0, 7):
        with pytest.raises(ValueError, match=f"between 1 and 6, the modes of this spectrum, got {n_modes}"):
            found.truncate(n_modes)


def test_the_largest_entry_is_positive():
    vectors = np.array([[1.0, -3.0, 0.0], [-2.0, 1.0, -1.0]])
    vectors *= signs(vectors)
    np.testing.assert_array_equal(vectors, [[-1.0, 3.0, 0.0], [2.0, -1.0, 1.0]])


@pytest.mark.parametrize("noise", [0.0, 1e-15, -1e-15])
def test_among_equals_the_first_decides_whatever_the_rounding(noise):
    vectors = np.array([[0.1], [-1.0], [1.0 + noise]])
    vectors *= signs(vectors)
    assert vectors[1] > 0 > vectors[2]


def test_null_space_of_interleaved_components():
    """Nodes of two components in turn: each vector lives on one, in the order of the first nodes."""
    A = side_by_side(complete(5), ring(4)).toarray()
    order = [5, 0, 6, 1, 7, 2, 8, 3, 4]
    Z = null_space(laplacian.normalized(A[np.ix_(order, order)]))
    np.testing.assert_array_equal(Z[:, 0] > 0, [1, 0, 1, 0, 1, 0, 1, 0, 0])
    np.testing.assert_array_equal(Z[:, 1] > 0, [0, 1, 0, 1, 0, 1, 0, 1, 1])
    np.testing.assert_allclose(np.linalg.norm(Z, axis=0), 1, atol=1e-15)
    np.testing.assert_array_equal(null_space(laplacian.normalized(A[np.ix_(order, order)]), 1), Z[:, :1])


def test_a_few_modes_of_many_components_take_no_room_for_all():
    """10,000 pairs of nodes, of whose null space, 1.6 GB, three vectors are wanted."""
    pairs = csr_array((np.ones(20_000), np.arange(20_000) ^ 1, np.arange(20_001)), shape=(20_000, 20_000))
    L = laplacian.normalized(pairs)
    tracemalloc.start()
    found = spectrum.leading(L, n_modes=3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    expected = np.zeros((20_000, 3))
    expected[np.arange(6), np.arange(6) // 2] = np.sqrt(0.5)
    np.testing.assert_allclose(found.vectors, expected, atol=1e-12)
    assert peak < 2e7
