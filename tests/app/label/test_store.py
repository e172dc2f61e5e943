import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import threading

import pytest

from graphuq.app.label import store as stores
from graphuq.app.label.store import Refused, open_store
from tests.decay import attempt, decayed


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out.answers"


@pytest.fixture
def store(path):
    opened = open_store(path)
    yield opened
    opened.close()


def reopened(store):
    store.close()
    return open_store(store.path)


def test_what_was_said_is_there_when_opened_again(store):
    store.do("a", "me", "add", name="cat")
    store.do("b", "me", "answer", 3, "cat")
    store.do("c", "me", "skip", 4)
    store.do("d", "me", "unsure", 5)
    again = reopened(store)
    assert again.tally.answers == {3: "cat"}
    assert (list(again.tally.skipped), again.tally.unsure, again.tally.added) == ([4], {5}, ["cat"])
    again.close()


def test_the_file_is_for_its_owner_alone(store):
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


def test_an_answer_sent_twice_counts_once(store):
    first = store.do("same", "me", "answer", 3, "cat")
    assert store.do("same", "me", "answer", 3, "cat") == first
    assert len(store.events()) == 1


def test_a_row_is_answered_once(store):
    store.do("a", "me", "answer", 3, "cat")
    with pytest.raises(Refused, match="answered this row meanwhile"):
        store.do("b", "you", "answer", 3, "dog")
    assert store.tally.answers[3] == "cat"
    store.do("c", "you", "answer", 3, "dog", again=True)
    assert store.tally.answers[3] == "dog"


def test_undo_takes_back_what_this_tab_did_last(store):
    store.do("a", "me", "answer", 3, "cat")
    store.do("b", "you", "answer", 4, "dog")
    undone = store.do("c", "me", "undo")
    assert undone.row == 3
    assert set(store.tally.answers) == {4}
    assert store.do("c", "me", "undo") == undone  # sent twice
    assert store.reserve("me", [7]) == 3  # and is asked again
    with pytest.raises(Refused, match="nothing to undo"):
        store.do("d", "me", "undo")


def test_undo_of_a_second_answer_brings_back_the_first(store):
    store.do("a", "me", "answer", 3, "cat")
    store.do("b", "me", "answer", 3, "dog", again=True)
    store.do("c", "me", "undo")
    assert store.tally.answers[3] == "cat"


def test_a_class_removed_takes_its_answers_with_it(store):
    store.do("a", "me", "add", name="cat")
    store.do("b", "me", "answer", 3, "cat")
    store.do("c", "me", "answer", 4, "dog")
    store.do("d", "me", "remove", name="cat")
    assert (set(store.tally.answers), store.tally.added) == ({4}, [])
    with pytest.raises(Refused, match="was not added here"):
        store.do("e", "me", "remove", name="dog")
    again = reopened(store)
    assert set(again.tally.answers) == {4}
    again.close()


def test_two_tabs_are_never_asked_the_same_row(store):
    asked = [store.reserve(tab, range(10)) for tab in ("me", "you", "them")]
    assert asked == [0, 1, 2]
    assert store.reserve("me", range(10)) == 0  # a page that is loaded again is asked the same
    again = reopened(store)
    assert again.reserve("you", range(10)) == 1  # after a crash too
    assert again.reserve("new", range(10)) == 3
    with pytest.raises(Refused, match="being asked"):
        again.do("a", "new", "answer", 0, "cat")
    again.close()


@pytest.mark.parametrize("jump", [stores.SILENT + 1, -86_400], ids=["silent", "the clock was set back"])
def test_a_silent_tab_gives_its_row_back(store, monkeypatch, jump):
    assert [store.reserve(f"gone {row}", [row]) for row in (5, 6)] == [5, 6]
    assert store.reserve("me", [5, 6]) is None
    now = stores.time.time()
    monkeypatch.setattr(stores.time, "time", lambda: now + jump)
    store.do("a", "me", "answer", 6, "cat")
    assert store.reserve("me", [5, 6]) == 5


def test_many_threads_share_out_the_rows(store):
    taken, errors = [], []

    def work(tab):
        try:
            while (row := store.reserve(tab, range(60))) is not None:
                store.do(f"{tab} {row}", tab, "answer", row, "cat")
                taken.append(row)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(f"tab {k}",)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert sorted(taken) == list(range(60))


@pytest.mark.parametrize(
    ("kind", "name", "by", "left"),
    [("undo", None, "_sum", {2}), ("remove", "dog", "after", {1, 2}), ("remove", "cat", "after", {2})],
)
def test_an_answer_that_comes_while_events_are_summed_is_not_lost(store, monkeypatch, kind, name, by, left):
    """Nor one of a class that is being removed: what comes after is told from what was there before."""
    for each in ("cat", "dog"):
        store.do(each, "me", "add", name=each)
    store.do("b", "me", "answer", 1, "cat")
    owner = store if by == "_sum" else stores.Tally
    summed, told = store._sum, getattr(owner, by)
    other = threading.Thread(target=store.do, args=("d", "you", "answer", 2, "cat"))

    def slow(*given):
        found = told(*given)
        if other.ident is None:
            other.start()
            other.join(0.2)  # it may have to wait for this very call
        return found

    monkeypatch.setattr(owner, by, slow)
    store.do("c", "me", kind, name=name)
    other.join()
    assert set(store.tally.answers) == left
    assert store.tally == summed()


class Failing:
    """A connection that cannot commit."""

    def __init__(self, connection):
        self.connection = connection

    def execute(self, query, *more):
        if query == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")
        return self.connection.execute(query, *more)

    in_transaction = property(lambda self: self.connection.in_transaction)


@pytest.mark.parametrize(
    "act",
    [
        lambda s: s.do("c", "me", "answer", 2, "cat"),
        lambda s: s.do("c", "me", "undo"),
        lambda s: s.do("c", "me", "add", name="x"),
    ],
)
def test_what_is_not_on_disk_does_not_hold(store, act):
    store.do("a", "me", "answer", 1, "cat")
    before, connection = store.tally, store._connection
    store._connection = Failing(connection)
    with pytest.raises(OSError, match="disk I/O error"):
        act(store)
    store._connection = connection
    assert store.tally == before == store._sum()
    act(store)
    assert store.tally == store._sum() != before


def test_one_process_at_a_time(store):
    with pytest.raises(ValueError, match=r"in use by another graphuq label: .*Write results"):
        open_store(store.path)


def test_files_of_others_are_refused(tmp_path):
    text = tmp_path / "text.answers"
    text.write_text("something else " * 100)
    with pytest.raises(ValueError, match=r"damaged, or not a file of answers"):
        open_store(text)
    assert text.read_text().startswith("something else")
    other = tmp_path / "other.answers"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE mine(x)")
    connection.close()
    with pytest.raises(ValueError, match="choose another --out"):
        open_store(other)


def test_a_file_that_decayed_is_refused_or_says_the_same(path, store):
    store.keep("table", {"rows": 60})
    store.do("added", "me", "add", name="cat")
    for row in range(30):
        store.do(f"key {row}", "me", "answer", row, "dog" if row % 2 else "cat")
    store.do("last", "me", "skip", 40)
    store.do("undo", "me", "undo")
    store.note_progress(10, 0.5, 0.3)
    store.close()

    def read(path):
        opened = open_store(path)
        try:
            return opened.events(), opened.fact("table"), opened.progress(), str(opened.tally)
        finally:
            opened.close()

    whole, content, refused = read(path), path.read_bytes(), 0
    for each in decayed(content):
        for left in path.parent.iterdir():
            left.unlink()
        path.write_bytes(each)
        found, told = attempt(read, path)
        refused += found is None
        assert found == whole if found else ("damaged" in told or "holds" in told) and "\n" not in told
    assert refused > 40


def test_a_folder_that_cannot_be_written_is_refused():
    with pytest.raises(OSError, match=r"/proc|No such file|Permission"):
        open_store(stores.Path("/proc/out.answers"))


# What a page does that is never told whether it was heard: it sends everything again until it is.
_WRITER = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("store", sys.argv[1])
sys.modules["store"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from pathlib import Path
store = module.open_store(Path(sys.argv[2]))
for row in range(int(sys.argv[3]), 10_000):
    assert store.reserve("me", [row]) in (row, None)  # none where it was answered, and nobody heard
    store.do(f"key {row}", "me", "answer", row, f"class {row % 3}")
    print(row, flush=True)
"""


def test_nothing_is_lost_or_doubled_when_killed_at_any_moment(path):
    rng, heard = random.Random(0), -1
    for _ in range(10):
        command = [sys.executable, "-c", _WRITER, stores.__file__, str(path), str(heard + 1)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for _ in range(rng.randrange(1, 12)):
            heard = int(process.stdout.readline())
        for _ in range(rng.randrange(2000)):  # some moment within the next answer
            pass
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read().split()
        heard = int(rest[-1]) if rest else heard
        process.wait()
        process.stdout.close()
        store = open_store(path)
        rows = [event.row for event in store.events()]
        # The one that was under way may be there unheard: it is sent again, and counts once.
        assert rows in (list(range(heard + 1)), list(range(heard + 2)))
        store.close()
    assert heard >= 10
