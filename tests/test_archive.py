"""A file for which there is no memory is not called damaged, and one that is damaged does not ask for memory."""

import errno
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from graphuq import archive
from graphuq.app.shell import sentence
from graphuq.app.tables.read import read_table
from graphuq.tall import tall


@pytest.fixture
def path(tmp_path):
    archive.write(tmp_path / "x.npz", "x 1", {}, {"x": np.arange(1e5)})
    return tmp_path / "x.npz"


def short(*given, **settings):
    raise OSError(errno.ENOMEM, "Cannot allocate memory")


@pytest.mark.parametrize("read", [lambda path: archive.read(path, "x 1", "an x"), read_table])
def test_what_will_not_fit_is_told_with_its_size(path, monkeypatch, read):
    monkeypatch.setattr("graphuq.memory.room", lambda: 5e5)
    with pytest.raises(
        MemoryError, match=r"^x\.npz, unpacked, takes 0\.8 MB, but 0\.5 MB are free\. Free some\.$"
    ):
        read(path)


def test_a_file_replaced_while_it_is_read_is_not_mixed_with_the_next(path, monkeypatch):
    archive.write(next_one := path.with_name("next.npz"), "x 1", {}, {"x": np.ones(100_000)})
    read_header = archive._read_header

    def replaced(*given):
        if next_one.exists():
            next_one.replace(path)
        return read_header(*given)

    monkeypatch.setattr(archive, "_read_header", replaced)
    x = archive.read(path, "x 1", "an x", mapped=("x",))[1]["x"]
    assert x.filename == str(path)
    np.testing.assert_array_equal(x, np.arange(1e5))


def test_objects_in_a_model_are_told_as_such(tmp_path):
    np.savez(tmp_path / "x.npz", facts=np.array([{}], object))
    with pytest.raises(
        ValueError, match="is not an x of graphuq, or is damaged: pickled objects in 'facts', which"
    ):
        archive.read(tmp_path / "x.npz", "x 1", "an x")


def test_a_file_that_cannot_be_mapped_is_told_with_its_size(path, monkeypatch):
    monkeypatch.setattr(np, "memmap", short)
    told = rf"^{path}, a file of 0\.8 MB, takes more memory than there is: .*Cannot allocate memory\.$"
    with pytest.raises(MemoryError, match=told):
        archive.read(path, "x 1", "an x", mapped=("x",))
    np.save(path.with_suffix(".npy"), np.ones((10, 2)))
    with pytest.raises(MemoryError, match=r"x\.npy, a file of 0\.0 MB, takes more memory than there is"):
        tall(path.with_suffix(".npy"))


def test_memory_that_ends_while_a_table_is_read(path, monkeypatch):
    def ended(*given, **settings):
        raise MemoryError

    monkeypatch.setattr(np.lib.format, "read_array", ended)
    with pytest.raises(MemoryError, match=r"a file of 0\.8 MB, takes more memory than there is: MemoryError"):
        read_table(path)
    assert sentence(MemoryError()) == "there is not enough memory."


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_size_that_no_file_holds_is_damage(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("graphuq.memory.room", lambda: 1e9)
    path = Path(tmp_path / "x.npz")
    (np.savez if kind == zipfile.ZIP_STORED else np.savez_compressed)(path, x=np.arange(1000.0))
    content = path.read_bytes()
    heading = content.rindex(b"PK\1\2") + 24  # of the size unpacked, in the list at its end
    path.write_bytes(content[:heading] + (2**32 - 2).to_bytes(4, "little") + content[heading + 4 :])
    with pytest.raises(ValueError, match=re.escape("is damaged: it promises more than it holds: 'x.npy'")):
        read_table(path)
