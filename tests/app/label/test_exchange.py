import csv
import gzip
import json
import re

import pytest

from graphuq.app.label import exchange
from tests.app.label.conftest import N
from tests.decay import attempt, decayed

GIVEN = {0: "ant", 1: "bee", 2: "cat"}


@pytest.fixture
def session(make):
    found = make(GIVEN)
    found.store.do("a", "me", "answer", 5, "cat")
    found.store.do("b", "me", "unsure", 6)
    found.store.do("c", "me", "skip", 7)
    found.adviser.tell()
    return found


def test_csv_there_and_back(session, make, tmp_path):
    target = tmp_path / "labels.csv"
    assert exchange.export(session, target, label="kind") == f"4 labels of {N} rows: {target}"
    with target.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [lines[row]["kind"] for row in (0, 5, 6, 7, 8)] == ["ant", "cat", "", "", ""]
    assert [lines[row]["status"] for row in (0, 5, 6, 7, 8)] == [
        "in the table",
        "answered",
        "not sure",
        "skipped",
        "",
    ]
    p = session.adviser.now.classifier.label_distributions_
    assert float(lines[9]["probability"]) == pytest.approx(p[9].max())
    assert float(lines[9]["uncertainty"]) == pytest.approx(1.5 * (1 - (p[9] ** 2).sum()))
    (tmp_path / "out.answers").rename(tmp_path / "before.answers")
    other = make({0: "ant"})
    told = exchange.take(other, target, label="kind", row_id=None)
    assert told == (
        "3 answers taken from labels.csv; new among the classes: 'bee' and 'cat'; rows that had a class already, and keep it: 1"
    )
    assert other.labels() == {**GIVEN, 5: "cat"}


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            ["row 9,ant", "row 9,bee"],
            "labels.csv has two classes for the row 'row 9', 'ant' and 'bee': choose one.",
        ),
        (["row 9,ant", "row 8,Ant"], "labels.csv, row 'row 8': 'Ant' differs from 'ant' only in capitals"),
    ],
)
def test_an_import_is_refused_with_the_place(session, tmp_path, lines, told):
    source = tmp_path / "labels.csv"
    source.write_text("\n".join(["row,kind", *lines]))
    with pytest.raises(ValueError, match=re.escape(told)):
        exchange.take(session, source, label="kind", row_id=None)


@pytest.mark.parametrize(
    ("label", "row_id", "head"),
    [
        ("class", "status", "status,class,status (graphuq),class (graphuq)"),
        ("class", "class (graphuq)", "class (graphuq),class,status,class (graphuq) (graphuq)"),
        ("status", "status (graphuq)", "status (graphuq),status,status (graphuq) (graphuq),class"),
        ("row", None, "row (graphuq),row,status,class"),
        ("kind", "=cmd", "'=cmd,kind,status,class"),
        ("'=cmd", "=cmd", "'=cmd,''=cmd,status,class"),
        ("@kind", None, "row,'@kind,status,class"),
        (" kind", " id", " id, kind,status,class"),  # an NPZ file may have such names
    ],
)
@pytest.mark.parametrize("name", ["labels.csv", "tasks.json"])
def test_whatever_columns_are_called_what_is_exported_can_be_imported(
    session, make, tmp_path, label, row_id, head, name
):
    target = tmp_path / name
    exchange.export(session, target, label=label, row_id=row_id)
    assert name == "tasks.json" or target.read_text().splitlines()[0] == f"{head},probability,uncertainty"
    (tmp_path / "out.answers").rename(tmp_path / "before.answers")
    other = make({0: "ant"})
    exchange.take(other, target, label=label, row_id=row_id)
    assert other.labels() == {**GIVEN, 5: "cat"}


@pytest.mark.parametrize("name", ["labels.csv", "tasks.json"])
def test_rows_and_classes_that_could_be_formulas_come_back_as_they_were(make, tmp_path, name):
    named = {0: "=1+1", 1: "'=1+1", 2: "-5", 3: "@x"}
    given = {0: "=a", 1: "'=a", 2: "+b", 3: "b"}

    def session(labels):
        found = make(labels)
        found.look.names[: len(named)] = named.values()
        return found

    exchange.export(session(given), tmp_path / name, label="kind")
    (tmp_path / "out.answers").unlink()
    other = session({})
    exchange.take(other, tmp_path / name, label="kind", row_id=None)
    assert other.labels() == given


def test_rows_and_classes_that_look_like_numbers_come_back_as_they_were(make, tmp_path):
    given = {0: "3.1", 1: "3.10", 2: "4.0"}

    def session(labels):
        found = make(labels)
        found.look.names[:] = [f"1.{row}0" for row in range(N)]
        return found

    exchange.export(session(given), tmp_path / "labels.csv", label="kind")
    (tmp_path / "out.answers").unlink()
    other = session({})
    exchange.take(other, tmp_path / "labels.csv", label="kind", row_id=None)
    assert other.labels() == given
    (tmp_path / "more.csv").write_text("row,kind\n1.30,4\n1.40,4.0\n")
    exchange.take(other, tmp_path / "more.csv", label="kind", row_id=None)
    assert other.labels() == {**given, 3: "4.0", 4: "4.0"}


def test_an_apostrophe_of_the_table_itself_stays(make, tmp_path):
    session = make({0: "'=a", 1: "b"})
    session.look.names[3] = "'=x"
    source = tmp_path / "mine.csv"
    source.write_text("row,kind\n'=x,'=a\n")
    exchange.take(session, source, label="kind", row_id=None)
    assert session.labels()[3] == "'=a"


def test_a_class_may_be_called_as_its_row_is_numbered(session, tmp_path):
    (tmp_path / "a.csv").write_text("row,kind\nrow 30,30\nrow 31,30\nrow 31,30\nrow 0,ant\n")
    told = exchange.take(session, tmp_path / "a.csv", label="kind", row_id=None)
    assert told.startswith(
        "2 answers taken from a.csv; new among the classes: '30'; rows that had a class already"
    )
    assert told.endswith(" 1")  # row 0, while row 31 only says the same twice
    assert (session.labels()[30], session.labels()[31]) == ("30", "30")


def test_a_class_that_was_removed_comes_back_with_its_answers(session, tmp_path):
    (tmp_path / "a.csv").write_text("row,kind\nrow 30,dog\n")
    for k in range(2):
        exchange.take(session, tmp_path / "a.csv", label="kind", row_id=None)
        assert session.labels()[30] == "dog"
        session.do(f"remove {k}", "me", "remove", name="dog")
        assert "dog" not in session.classes()


def test_rows_that_were_asked_about_or_set_aside_are_taken_too(session, tmp_path):
    for tab, row in (("gone", 9), ("here", 10)):
        session.store.reserve(tab, [row])
    source = tmp_path / "more.csv"
    source.write_text("row,kind\nrow 6,ant\nrow 7,ant\nrow 9,bee\nrow 10,cat\n")
    exchange.take(session, source, label="kind", row_id=None)
    assert session.labels() == {**GIVEN, 5: "cat", 6: "ant", 7: "ant", 9: "bee", 10: "cat"}
    assert not session.store.tally.unsure
    assert session.store.reserve("here", [11]) == 11


def test_too_many_classes_are_refused_before_one_answer_is_taken(session, tmp_path, monkeypatch):
    monkeypatch.setattr(exchange, "MAX_CLASSES", 4)
    source = tmp_path / "more.csv"
    source.write_text("row,kind\nrow 5,ape\nrow 8,bat\nrow 9,cow\n")  # row 5 has a class, and keeps it
    before = session.labels()
    with pytest.raises(ValueError, match="there are 5 classes, and at most 4"):
        exchange.take(session, source, label="kind", row_id=None)
    assert session.labels() == before


def test_label_studio_there_and_back(session, make, tmp_path):
    target = tmp_path / "tasks.json"
    session.look.columns.update({f"x{k}": session.look.columns["x"] for k in range(50)})
    exchange.export(session, target, label="kind")
    tasks = json.loads(target.read_text())
    assert len(tasks[0]["data"]["cells"]) == 51
    assert [task["data"]["row"] for task in tasks[:2]] == ["row 0", "row 1"]
    answer = tasks[5]["annotations"][0]["result"][0]
    assert (answer["from_name"], answer["type"], answer["value"]) == ("kind", "choices", {"choices": ["cat"]})
    assert tasks[6]["annotations"][0]["was_cancelled"]
    believed = tasks[9]["predictions"][0]
    p = session.adviser.now.classifier.label_distributions_[9]
    assert believed["score"] == pytest.approx(p.max())
    assert tasks[9]["data"]["uncertainty"] == believed["uncertainty"] == pytest.approx(1.5 * (1 - (p**2).sum()))
    (tmp_path / "out.answers").rename(tmp_path / "before.answers")
    other = make()
    exchange.take(other, target, label="kind", row_id=None)
    assert other.labels() == {**GIVEN, 5: "cat"}


def annotated(*choices, name="kind", **more):
    result = [{"from_name": name, "to_name": "row", "type": "choices", "value": {"choices": list(choices)}}]
    return {"result": result, "was_cancelled": False, **more}


def test_people_who_agree_in_label_studio_are_one_answer_and_others_are_told(make, tmp_path):
    source, session = tmp_path / "tasks.json", make()

    def take(*annotations):
        source.write_text(json.dumps([{"data": {"row": "row 3"}, "annotations": annotations}]))
        return exchange.take(session, source, label="kind", row_id=None)

    two = "two classes for the row 'row 3', 'ant' and 'bee': choose one"
    with pytest.raises(ValueError, match=two):
        take(annotated("ant"), annotated("bee"))
    with pytest.raises(ValueError, match=two):
        take(annotated("ant", "bee"))
    urgency = annotated("high", name="urgency")["result"]
    kind = annotated("ant")
    both = kind | {"result": [*urgency, *kind["result"]]}
    assert take(annotated("bee", was_cancelled=True), both, kind) == "1 answer taken from tasks.json"
    assert session.labels() == {3: "ant"}


@pytest.mark.parametrize("name", ["labels.csv", "tasks.json"])
def test_a_file_that_decayed_is_read_or_refused_in_one_sentence(session, tmp_path, name):
    """Nothing tells that a letter of a text has changed; but nothing worse than a sentence comes of it."""
    path = tmp_path / name
    exchange.export(session, path, label="kind")
    refused = 0
    for each in decayed(path.read_bytes()):
        path.write_bytes(each)
        found, told = attempt(lambda path: exchange.read_answers(path, "kind", None), path)
        refused += found is None
        assert found is not None or (name in told and "\n" not in told)
    assert refused > 10


def test_the_short_json_of_label_studio_is_read(make, tmp_path):
    source = tmp_path / "min.json"
    tasks = [{"row": "row 3", "kind": "ant"}, {"row": "row 4", "kind": "bee", "id": 7}, {"row": "row 5"}]
    source.write_text(json.dumps(tasks))
    session = make()
    assert exchange.take(session, source, label="kind", row_id=None) == "2 answers taken from min.json"
    assert session.labels() == {3: "ant", 4: "bee"}


def test_a_packed_file_is_read_too(session, make, tmp_path):
    exchange.export(session, tmp_path / "labels.csv", label="kind")
    source = tmp_path / "labels.csv.gz"
    source.write_bytes(gzip.compress((tmp_path / "labels.csv").read_bytes()))
    (tmp_path / "out.answers").rename(tmp_path / "before.answers")
    other = make()
    assert exchange.take(other, source, label="kind", row_id=None) == "4 answers taken from labels.csv.gz"
    assert other.labels() == {**GIVEN, 5: "cat"}


def test_a_csv_file_is_read_as_tables_are(make, tmp_path):
    source = tmp_path / "excel.csv"
    source.write_bytes("row;kind;note\nrow 3;käfer;x\nrow 4;NA;\nrow 5;-1;\n".encode("cp1252"))
    session = make()
    assert exchange.take(session, source, label="kind", row_id=None) == "1 answer taken from excel.csv"
    assert session.labels() == {3: "käfer"}


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.csv", "row,other\nrow 1,ant\n", "needs the columns 'row' and 'kind'"),
        ("a.csv", "", "is empty"),
        ("a.csv", "row,kind\nrow 99,ant\n", "the row 'row 99', which the table does not have"),
        ("a.csv", f"row,kind\nrow 1,ant\nrow 2,{'x' * 300}\n", "200 letters at most"),
        ("a.csv", b"row,kind\nrow 1,\x81\n", "neither UTF-8"),
        ("a.json", "{}", "not an export of Label Studio"),
        ("a.json", "[1]", "not an export of Label Studio"),
        ("a.json", "[{", "cannot be read"),
        ("a.json", '[{"data": {"text": "hello"}}]', "has no field 'row'"),
        ("a.txt", "", "must end in .csv"),
        ("a.json.gz", b"", "must end in .csv"),
        ("a.csv.gz", b"row,kind\n", "is not a gzip file"),
    ],
)
def test_what_cannot_be_taken_takes_nothing(make, tmp_path, name, text, why):
    session, source = make(GIVEN), tmp_path / name
    source.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=why):
        exchange.take(session, source, label="kind", row_id=None)
    assert session.store.events() == []


def test_targets_are_checked(session, tmp_path):
    (tmp_path / "a.csv").write_text("mine")
    with pytest.raises(ValueError, match="exists already"):
        exchange.export(session, tmp_path / "a.csv", label="kind")
    with pytest.raises(ValueError, match=r"must end in \.csv"):
        exchange.export(session, tmp_path / "a.xml", label="kind")
    with pytest.raises(ValueError, match="There is no file"):
        exchange.take(session, tmp_path / "none.csv", label="kind", row_id=None)
