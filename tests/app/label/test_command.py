"""`graphuq label` at a shell: what it refuses, and what it leaves behind."""

import csv
import os
import re
import socket
import sys
import threading

import pytest
from typer.testing import CliRunner

from graphuq import GraphClassifier
from graphuq.app import folder
from graphuq.app.cli import app
from graphuq.app.label import adviser, run
from graphuq.app.label.run import leave, opened
from graphuq.app.options import Showing
from graphuq.app.question import Question
from tests.app.label.conftest import NAMES, blobs


@pytest.fixture
def table(tmp_path):
    X, y = blobs(60)
    lines = [",".join([f"r{i}", *(f"{x:.3f}" for x in X[i]), NAMES[y[i]] if i < 6 else ""]) for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["name,a,b,c,d,kind", *lines]) + "\n")
    return tmp_path / "t.csv"


def label(table, *words):
    usual = {"--out": table.parent / "out", "--label": "kind", "--id": "name", "--modes": "20"}
    where = [word for option, value in usual.items() if option not in words for word in (option, value)]
    found = CliRunner().invoke(app, [str(word) for word in ("label", table, *where, *words)])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, " ".join(found.stderr.split())


def test_answers_there_and_back_and_another_session_goes_on(table):
    answers = table.parent / "a.csv"
    answers.write_text("name,kind\nr10,bee\nr11,cat\n")
    code, told = label(table, "--import", answers)
    assert (code, "2 answers taken" in told) == (0, True)
    code, told = label(table, "--export", table.parent / "b.csv")
    assert code == 0
    assert "Going on with 2 answers in out.answers" in told
    with (table.parent / "b.csv").open(newline="") as file:
        found = {line["name"]: line for line in csv.DictReader(file)}
    assert (found["r10"]["kind"], found["r10"]["status"]) == ("bee", "answered")
    assert not (table.parent / "out").exists()  # results are written at the end of a session


def test_an_import_builds_no_graph(table):
    answers = table.parent / "a.csv"
    answers.write_text("name,kind\nr10,bee\nr11,dog\n")
    code, told = label(table, "--import", answers)
    assert (code, told) == (0, "Reading t.csv 2 answers taken from a.csv; new among the classes: 'dog'")
    assert "Finding the graph" in label(table, "--export", table.parent / "b.csv")[1]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--import", "none.csv"], "There is no file none.csv."),
        (["--import", "t.txt"], "t.txt must end in .csv or .csv.gz, or in .json for Label Studio."),
        (["--export", "a.txt"], "a.txt must end in .csv, or in .json for Label Studio."),
        (["--class", " ", "--export", "a.csv"], "A class needs a name."),
    ],
)
def test_files_and_classes_are_looked_at_before_any_work(table, monkeypatch, words, told):
    monkeypatch.chdir(table.parent)
    (table.parent / "t.txt").write_text("")
    assert label(table, *words) == (2, f"graphuq: {told}")


@pytest.mark.parametrize("words", [(), ("--column", "a", "--column", "b")])
def test_the_column_of_picture_files_may_name_the_rows(table, words):
    pictures = ("--pictures", table.parent, "--picture-column", "name")
    target = table.parent / "b.csv"
    assert label(table, *pictures, *words, "--export", target)[0] == 0
    assert target.read_text().splitlines()[1].startswith("r0,ant")
    # said before the table is read, whose text would else be refused first
    told = label(table, "--pictures", table.parent, "--id", "a", "--export", table.parent / "c.csv")[1]
    assert told.startswith("graphuq: --pictures and --picture-column go together")


def test_an_address_that_there_is_not(table):
    told = label(table, "--host", "256.1.1.1", "--no-open")[1]
    assert "256.1.1.1 cannot be listened on" in told
    assert "choose another --host, or leave it out" in told


def test_a_table_that_changed_is_refused_with_what_changed(table):
    answers = table.parent / "a.csv"
    answers.write_text("name,kind\nr10,bee\n")
    assert label(table, "--import", answers)[0] == 0
    before = table.read_text()
    table.write_text(before.replace("r20,", "r99,"))
    code, told = label(table, "--export", table.parent / "b.csv")
    assert code == 2
    assert "t.csv is not the table that out.answers has answers for: cells of 'name' changed." in told
    table.write_text("\n".join(before.splitlines()[:-3]) + "\n")
    assert "it had 60 rows and has 57" in label(table, "--export", table.parent / "b.csv")[1]
    table.write_text(before)
    assert label(table, "--export", table.parent / "b.csv")[0] == 0


def test_a_port_that_is_taken(table):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, told = label(table, "--port", port, "--no-open")
    assert code == 2
    assert f"Port {port} at 127.0.0.1 cannot be listened on" in told
    assert not list(table.parent.glob("out*"))  # nothing is left


def test_folders_that_cannot_be_written(table):
    code, told = label(table, "--out", "/proc/out", "--no-open")
    assert code == 2
    assert re.search(r"graphuq: /proc/out\.answers.*: (No such file|Permission|Operation not)", told)
    code, told = label(table, "--out", table.parent / "none" / "out")
    assert (code, "There is no folder" in told) == (2, True)
    (table.parent / "out").mkdir()
    assert "exists already" in label(table, "--no-open")[1]


def test_without_the_server_the_extra_is_named(table, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, told = label(table, "--no-open")
    assert (code, told) == (
        2,
        "graphuq: The page needs uvicorn, which is not installed: pip install 'graphuq[label]'.",
    )


def test_results_are_what_fit_makes(table):
    question, out = Question(table=table, label="kind", row_id="name"), table.parent / "out"
    said = []
    with opened(question, GraphClassifier(n_modes=20), said.append, out=out, showing=Showing()) as running:
        for row in (20, 21, 22):
            running.session.do(str(row), "me", "answer", row, NAMES[row % 3])
        leave(running, said.append)
    assert said[-1] == f"3 answers, and the results: {out}"
    assert sorted(path.name for path in out.iterdir()) == [
        "model.npz",
        "predictions.csv",
        "report.html",
        "run.json",
    ]
    classifier, rows, _ = folder.read(out)
    assert len(classifier.labels_.nodes) == 9
    assert list(rows.names)[:2] == ["r0", "r1"]
    labeled = table.parent / "labeled.csv"
    lines = table.read_text().splitlines()
    for row in (20, 21, 22):
        lines[row + 1] += NAMES[row % 3]
    labeled.write_text("\n".join(lines) + "\n")
    words = ["fit", labeled, "--label", "kind", "--id", "name", "--out", table.parent / "fit", "--modes", "20"]
    assert CliRunner().invoke(app, list(map(str, words))).exit_code == 0
    assert (out / "predictions.csv").read_text() == (table.parent / "fit" / "predictions.csv").read_text()


def test_results_that_cannot_be_written_are_no_success(table, monkeypatch):
    """Exit code 2, as of `fit`; the name of a table that is no text is shown as far as it is."""
    odd = table.rename(table.with_name(os.fsdecode(b"\xff.csv")))
    titles = []

    def answered(running, *_, **more):
        running.session.do("1", "me", "answer", 20, NAMES[0])
        titles.append(running.session.state()["title"])
        (table.parent / "out").mkdir()
        (table.parent / "out" / "thesis.txt").write_text("years of work")

    monkeypatch.setattr(run, "serve", answered)
    code, told = label(odd, "--no-open")
    assert (code, titles) == (2, ["kind of each row in ?.csv"])
    assert "graphuq: " in told
    assert "holds something that graphuq did not write, thesis.txt" in told


def test_no_results_before_two_classes(table):
    question, out = Question(table=table, label="new", row_id="name", drop=("kind",)), table.parent / "out"
    said, asked = [], {"out": out, "showing": Showing(), "classes": ["one"], "at": ("127.0.0.1", 0)}
    with opened(question, GraphClassifier(n_modes=20), said.append, **asked) as running:
        assert said[1].startswith("Columns of --drop are not shown on the page")
        leave(running, said.append)
        assert said[-1].startswith("No answers, so nothing is written")
        running.session.do("1", "me", "answer", 1, "one")
        leave(running, said.append)
    assert "no results before two classes" in said[-1]
    assert not out.exists()


def test_a_class_that_was_removed_stays_removed(table):
    question, where = Question(table=table, label="kind", row_id="name"), {"out": table.parent / "out"}

    def begin(*classes, at=("127.0.0.1", 0)):
        classifier = GraphClassifier(n_modes=20)
        return opened(question, classifier, lambda line: None, showing=Showing(), classes=classes, at=at, **where)

    with begin("dog") as running:
        assert running.session.classes() == [*NAMES, "dog"]
        running.session.do("remove", "me", "remove", name="dog")
    with begin("dog", at=None) as running:
        assert running.session.classes() == list(NAMES)
    with begin("dog") as running:
        assert running.session.classes() == list(NAMES)
        running.session.do("again", "me", "add", name="Dog")
    with begin("dog") as running:
        assert running.session.classes() == [*NAMES, "Dog"]


def test_a_model_that_still_learns_is_waited_for_and_said(table, monkeypatch):
    question, said, go_on = Question(table=table, label="kind", row_id="name"), [], threading.Event()
    monkeypatch.setattr(run, "LONG", 0.01)
    begun = threading.Event()

    def slow(*given):
        begun.set()
        assert go_on.wait(60)
        raise OSError("nothing is learned any more")

    monkeypatch.setattr(adviser, "learned", slow)
    with opened(question, GraphClassifier(n_modes=20), said.append, out=table.parent / "out", showing=Showing()):
        assert begun.wait(60)
        threading.Timer(0.5, go_on.set).start()
    assert "Waiting for the model" in said[-1]
