import hashlib
import os
from pathlib import Path

import pytest

from graphuq.datasets import DatasetUnavailable, data_folder
from graphuq.datasets.cache import Source, load_files

FILES = {"a": b"first file", "b": b"second file"}
SHA256 = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}


def unreachable():
    raise TimeoutError("no answer")


def must_not_be_asked():
    raise AssertionError("a source was asked in vain")


GOOD = Source("good", lambda: dict(FILES))
DOWN = Source("down", unreachable)
IDLE = Source("idle", must_not_be_asked)
CORRUPT = Source("corrupt", lambda: {**FILES, "b": b"sEcond file"})
TRUNCATED = Source("truncated", lambda: {**FILES, "b": FILES["b"][:-1]})
INCOMPLETE = Source("incomplete", lambda: {"a": FILES["a"]})


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_first_use_fetches_and_keeps_later_use_reads(tmp_path):
    folder = tmp_path / "new" / "set"
    assert load_files(folder, SHA256, [GOOD, IDLE]) == FILES
    assert contents(folder) == FILES
    assert load_files(folder, SHA256, [IDLE]) == FILES


@pytest.mark.parametrize("bad", [DOWN, CORRUPT, TRUNCATED, INCOMPLETE], ids=lambda source: source.name)
def test_a_bad_source_leaves_nothing_and_the_next_is_tried(tmp_path, bad):
    with pytest.raises(DatasetUnavailable):
        load_files(tmp_path, SHA256, [bad])
    assert contents(tmp_path) == {}
    assert load_files(tmp_path, SHA256, [bad, GOOD]) == FILES


@pytest.mark.parametrize("damaged", [b"", b"sEcond file", b"second fil"])
def test_a_damaged_cached_file_is_deleted_and_fetched_again(tmp_path, damaged):
    load_files(tmp_path, SHA256, [GOOD])
    (tmp_path / "b").write_bytes(damaged)
    with pytest.raises(DatasetUnavailable):
        load_files(tmp_path, SHA256, [DOWN])
    assert contents(tmp_path) == {"a": FILES["a"]}
    (tmp_path / "b").write_bytes(damaged)
    assert load_files(tmp_path, SHA256, [GOOD]) == FILES
    assert contents(tmp_path) == FILES


def test_only_the_named_files_of_a_source_are_kept(tmp_path):
    generous = Source("generous", lambda: {**FILES, "../outside": b"x", "c": b"x"})
    assert load_files(tmp_path / "set", SHA256, [generous]) == FILES
    assert contents(tmp_path / "set") == FILES
    assert not (tmp_path / "outside").exists()


def test_the_error_says_what_was_tried_why_it_failed_and_what_to_do(tmp_path):
    folder = tmp_path / "digits"
    with pytest.raises(DatasetUnavailable) as caught:
        load_files(folder, SHA256, [DOWN, CORRUPT, INCOMPLETE])
    message = str(caught.value)
    assert isinstance(caught.value, OSError)
    assert f"Not in {folder}: a, b" in message
    assert "down: TimeoutError: no answer" in message
    assert f"corrupt: ValueError: the sha256 of b is {hashlib.sha256(b'sEcond file').hexdigest()[:8]}" in message
    assert "incomplete: ValueError: it has no b" in message
    assert "GRAPHUQ_DATA" in message


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    def fail(source, target):
        raise OSError("disk full")

    monkeypatch.setattr("graphuq.files.os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        load_files(tmp_path, SHA256, [GOOD])
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("folder", ["file/set", "file"])
def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_fetched(tmp_path, folder):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DatasetUnavailable, match="set GRAPHUQ_DATA"):
        load_files(tmp_path / folder, SHA256, [IDLE])


def test_the_data_folder_can_be_moved(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHUQ_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    monkeypatch.setenv("GRAPHUQ_DATA", os.path.join("~", "here"))
    assert data_folder() == Path.home() / "here"
    monkeypatch.delenv("GRAPHUQ_DATA")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_folder() == tmp_path / "graphuq"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_folder() == Path.home() / ".cache" / "graphuq"
    monkeypatch.setattr("sys.platform", "darwin")
    assert data_folder() == Path.home() / "Library" / "Caches" / "graphuq"
