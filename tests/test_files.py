"""Files and folders appear whole or not at all: a process is killed before each of its file operations in turn."""

import json
import multiprocessing
import os
import subprocess
import sys

import pytest

from graphuq.files import InUseError, held_folder, lock, made_folder, recover, whole_file, whole_folder

OLD, NEW = {"a": "old a", "b": "old b", "gone": "old"}, {"a": "new a", "b": "new b"}

# Runs a function with a SIGKILL before its n-th file operation, for n = 0, 1, ... until it is through; after each the
# state of the folder is printed, and then what the next run makes of it. Nothing but graphuq.files is imported.
DRIVER = """
import json, os, shutil, signal, sys
from pathlib import Path
from graphuq.files import recover, whole_file, whole_folder

OPERATIONS = ("open", "os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.truncate", "fcntl.flock")

def killed_before(n, work):
    child = os.fork()
    if child == 0:
        count = iter(range(10**6))
        def hook(event, arguments):
            if event in OPERATIONS and next(count) == n:
                os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(hook)
        work()
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0

def contents(path):
    if path.is_file():
        return path.read_text()
    return {each.name: contents(each) for each in sorted(path.iterdir())}

def fill(folder, texts):
    for name, text in texts.items():
        (folder / name).write_text(text)

home, task = Path(sys.argv[1]), sys.argv[2]
old, new = json.loads(sys.argv[3]), json.loads(sys.argv[4])

def work():
    if task == "file":
        with whole_file(home / "out") as part:
            part.write_text(new["a"])
    else:
        with whole_folder(home / "out", replace=task == "replace") as part:
            fill(part, new)

n, dead, found = 0, True, []
while dead:
    shutil.rmtree(home)
    home.mkdir()
    if task == "file":
        (home / "out").write_text(old["a"])
    if task == "replace":
        (home / "out").mkdir()
        fill(home / "out", old)
    dead = killed_before(n, work)
    after = contents(home)
    if task != "file":
        recover(home / "out")
    recovered = contents(home)
    if task != "new" or "out" not in recovered:
        work()
    found.append((after, recovered, contents(home)))
    n += 1
print(json.dumps(found))
"""


@pytest.mark.parametrize("task", ["file", "new", "replace"])
def test_a_kill_before_any_file_operation_loses_nothing(tmp_path, task):
    words = [sys.executable, "-c", DRIVER, str(tmp_path / "home"), task, json.dumps(OLD), json.dumps(NEW)]
    (tmp_path / "home").mkdir()
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    states = json.loads(done.stdout)
    assert len(states) > {"file": 3, "new": 6, "replace": 8}[task]
    before = {"file": OLD["a"], "new": None, "replace": OLD}[task]
    whole = NEW["a"] if task == "file" else NEW
    for after, recovered, next_run in states:
        if "out" in after:
            assert after["out"] in (before, whole)
        else:
            assert task == "new" or after[".out.part"]["old"] == OLD
        if task != "file":
            assert recovered in ([{}, {"out": whole}] if task == "new" else [{"out": before}, {"out": whole}])
        assert next_run == {"out": whole}
    assert any(after.get("out") == before for after, _, _ in states)
    if task == "replace":
        assert any("out" not in after for after, _, _ in states)  # the moment between the renames was met


def foreign(folder):
    return next((path.name for path in folder.iterdir() if path.name == "thesis"), None)


@pytest.mark.parametrize("kind", ["file", "folder", "empty folder"])
@pytest.mark.parametrize("replace", [False, True])
def test_what_appears_meanwhile_is_kept(tmp_path, kind, replace):
    out = tmp_path / "out"
    with (
        pytest.raises(ValueError, match=r"out appeared .*, so it is kept: the result is in .*out-2\.")
        if kind != "empty folder" or not replace
        else whole_folder(tmp_path / "other"),
        whole_folder(out, replace=replace, foreign=foreign) as part,
    ):
        (part / "a").write_text("new")
        if kind == "file":
            out.write_text("mine")
        else:
            out.mkdir()
        if kind == "folder":
            (out / "thesis").write_text("mine")
    if kind == "empty folder" and replace:
        assert (out / "a").read_text() == "new"
        return
    assert (tmp_path / "out-2" / "a").read_text() == "new"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out", "out-2"]
    if kind == "file":
        assert out.read_text() == "mine"
    else:
        assert [each.read_text() for each in out.iterdir()] == ["mine"] * (kind == "folder")


def test_an_old_folder_whose_place_is_taken_gets_another_name(tmp_path):
    """Killed between the renames; then someone makes a folder of that name."""
    work = tmp_path / ".out.part"
    for name in ("old", "new"):
        (work / name).mkdir(parents=True)
        (work / name / "a").write_text(name)
    (tmp_path / "out").mkdir()
    recover(tmp_path / "out")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out", "out-2"]
    assert (tmp_path / "out-2" / "a").read_text() == "old"


def test_two_at_once(tmp_path):
    """The second process is told; the first is not disturbed, nor is what it writes taken for a leftover."""
    out = tmp_path / "out"
    with whole_folder(out) as part, whole_file(tmp_path / "file") as file:
        (part / "a").write_text("first")
        file.write_text("first")
        with pytest.raises(ValueError, match=r"Another process is writing .*out: wait for it"), whole_folder(out):
            raise AssertionError
        recover(out)
        with whole_file(tmp_path / "file") as other:
            other.write_text("second")
        assert (tmp_path / "file").read_text() == "second"
        with pytest.raises(InUseError, match="in use by another process"):
            lock(tmp_path / ".out.part" / "lock")
    assert (out / "a").read_text() == "first"
    assert (tmp_path / "file").read_text() == "first"  # the last one stays
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "out"]


def _write_often(path, text):
    for _ in range(200):
        with whole_file(path) as part:
            part.write_text(text)


def test_many_writers_of_one_file(tmp_path):
    """Each tidies up after the dead while the others live."""
    spawn = multiprocessing.get_context("spawn")
    texts = [letter * 1000 for letter in "abc"]
    writers = [spawn.Process(target=_write_often, args=(tmp_path / "file", text)) for text in texts]
    for each in writers:
        each.start()
    for each in writers:
        each.join(60)
    assert [each.exitcode for each in writers] == [0, 0, 0]
    assert (tmp_path / "file").read_text() in texts
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_parents_are_made_when_all_went_well(tmp_path):
    with pytest.raises(TypeError), whole_folder(tmp_path / "b" / "out") as part:
        (part / "a").write_text(None)
    assert list(tmp_path.iterdir()) == []
    with whole_folder(tmp_path / "b" / "out") as part:
        (part / "a").write_text("whole")
    assert (tmp_path / "b" / "out" / "a").read_text() == "whole"
    assert [each.name for each in tmp_path.iterdir()] == ["b"]


@pytest.mark.parametrize("make", [made_folder, held_folder])
@pytest.mark.parametrize("there", [".", "a", "a/b", "a/b/c"])
def test_only_folders_that_were_not_there_are_removed(tmp_path, make, there):
    (tmp_path / there).mkdir(parents=True, exist_ok=True)
    before = sorted(tmp_path.rglob("*"))
    with make(tmp_path / "a/b/c"):
        assert (tmp_path / "a/b/c").is_dir()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="root may write anywhere")
def test_where_nothing_may_be_written(tmp_path):
    tmp_path.chmod(0o500)
    with (
        pytest.raises(ValueError, match="could not be written, and nothing was: Permission denied"),
        whole_folder(tmp_path / "out"),
    ):
        raise AssertionError
    tmp_path.chmod(0o700)
