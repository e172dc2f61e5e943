"""The command line as a person meets it: exit codes, files, one sentence for what is wrong."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris
from typer.testing import CliRunner

from graphuq import datasets
from graphuq.app.cli import _fit_in_words, _found, app
from graphuq.app.tables.read import read_table

VOTES = datasets.voting_records()
KNOWN = (2, 7, 103, 0, 1)
# A fixed prior and noise: the answer comes without learning or compiling.
PLAIN = ["--prior", "matern", "--gamma", "0.5", "--draws", "200"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
COMMANDS = ("demo", "fit", "predict", "report", "data", "reproduce")


def run(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


def write_votes(path, *, rows=435, cell=str, party=None):
    """The voting records as a CSV file, five members with a party."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["member", "party", "truth", *VOTES.feature_names])
        for row in range(rows):
            truth = VOTES.class_names[int(VOTES.y[row])]
            label = (truth if row in KNOWN else "") if party is None else party(row, truth)
            writer.writerow([f"m{row}", label, truth, *(cell(int(vote)) for vote in VOTES.X[row])])
    return path


def fit_votes(table, out, *more):
    return run("fit", table, "--label", "party", "--id", "member", "--drop", "truth", "--out", out, *PLAIN, *more)


@pytest.fixture(scope="module")
def votes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("votes")
    table = write_votes(folder / "votes.csv")
    asked = ["--label", "party", "--id", "member", "--truth", "truth", "--out", folder / "out", "--json"]
    done = run("fit", table, *asked, *PLAIN)
    assert done.exit_code == 0, done.output
    return folder, json.loads(done.stdout)


def test_fit_writes_every_row_and_a_model(votes):
    folder, summary = votes
    assert sorted(path.name for path in (folder / "out").iterdir()) == [
        "model.npz", "predictions.csv", "report.html", "run.json",
    ]  # fmt: skip
    assert summary["accuracy"] > 0.8
    assert len(summary["least_certain"]) == 10
    with (folder / "out" / "predictions.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["member"] for row in rows] == [f"m{k}" for k in range(435)]
    assert sum(row["labeled"] == "yes" for row in rows) == 5
    assert sorted(int(row["uncertainty rank"]) for row in rows) == list(range(1, 436))
    democrat = np.array([float(row["probability of Democrat"]) for row in rows])
    republican = np.array([float(row["probability of Republican"]) for row in rows])
    np.testing.assert_allclose(democrat + republican, 1, atol=1e-5)
    likelier = np.where(republican > 0.5, "Republican", "Democrat")
    assert np.array_equal(likelier, [row["class"] for row in rows])
    first = min(rows, key=lambda row: int(row["uncertainty rank"]))
    assert abs(float(first["probability of Democrat"]) - 0.5) == np.abs(democrat - 0.5).min()
    record = json.loads((folder / "out" / "run.json").read_text())
    assert record["diagnostics"]["converged"]
    assert {"numpy", "jax", "python"} <= set(record["versions"])


def write_blobs(path, *, names=("a", "b"), row=str):
    """Three groups of twelve rows, too far apart to touch; a row of the first and of the second has a class."""
    points = np.random.default_rng(0).standard_normal((36, 2)) + np.repeat([[0, 0], [99, 0], [0, 99]], 12, axis=0)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "x", "y", "kind", "truth"])
        for k, point in enumerate(points):
            label = names[k // 12] if k in (0, 12) else ""
            writer.writerow([row(k), *point, label, names[k > 11]])
    return path


def fit_blobs(table, out, *more):
    asked = ["--label", "kind", "--truth", "truth", "--id", "name", "--neighbors", "5"]
    return run("fit", table, "--out", out, *asked, *PLAIN, *more)


def test_of_a_tie_the_class_is_the_same_everywhere(tmp_path):
    """No label reaches the third group, so its probabilities are 0.5: the first class, as argmax says; and a note."""
    out = tmp_path / "out"
    summary = json.loads(fit_blobs(write_blobs(tmp_path / "blobs.csv"), out, "--json").stdout)
    with (out / "predictions.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["labeled"] == "no"]
    ties = [row for row in rows if row["probability of b"] == "0.5"]
    assert [row["name"] for row in ties] == [str(k) for k in range(24, 36)]
    assert {row["class"] for row in ties} == {"a"}
    assert summary["found"] == {"a": 23, "b": 11}
    assert [row["class"] for row in rows].count("a") == 23
    assert summary["accuracy"] == 22 / 34  # in truth the third group is b
    assert {each["class"] for each in summary["least_certain"]} == {"a"}
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "23 are more likely “<bdi>a</bdi>” and 11 are more likely “<bdi>b</bdi>”" in page
    assert "which is known of 34 rows without a label" in summary["truth_check"]
    assert ": 64.7% are classified right where " in summary["truth_check"]
    assert f"<p class='lead'>{summary['truth_check']}</p>" in page
    told = _fit_in_words(summary, out)
    assert summary["truth_check"] in told
    assert summary["self_check"] not in told
    without = {**summary, "truth_check": None}
    assert summary["self_check"] in _fit_in_words(without, out)
    data = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    assert [sum(counts) for counts in data["confidence"]["counts"]] == [23, 11]
    assert [node["class"] for node in data["nodes"] if node["confidence"] == 0.5] == [0] * 12
    table = re.search(r"<table[^>]* aria-label='Least certain'>.*?</table>", page, re.S)[0]
    answers = re.findall(r"</td><td class='text'><span class='class'>.*?<bdi>(.)</bdi>", table)
    assert answers[:12] == ["a"] * 12
    assert "<li><bdi>12 rows lie in parts of the graph that have no label" in page
    assert run("report", out, "--out", tmp_path / "again.html").exit_code == 0
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == page


def test_the_same_seed_gives_the_same_file(votes, tmp_path):
    folder, _ = votes
    for seed, same in ((0, True), (1, False)):
        out = tmp_path / str(seed)
        done = run(
            "fit", folder / "votes.csv", "--label", "party", "--id", "member", "--truth", "truth", "--out", out,
            "--seed", seed, "--quiet", *PLAIN,
        )  # fmt: skip
        assert (done.exit_code, done.output) == (0, "")
        before = (folder / "out" / "predictions.csv").read_text()
        assert ((out / "predictions.csv").read_text() == before) is same


def test_predict_gives_rows_of_fit_their_own_answers(votes, tmp_path):
    folder, _ = votes
    done = run("predict", folder / "out", folder / "votes.csv")
    assert done.exit_code == 0
    found = list(csv.DictReader(done.stdout.splitlines()))
    with (folder / "out" / "predictions.csv").open(encoding="utf-8") as file:
        expected = list(csv.DictReader(file))
    _, first = np.unique(VOTES.X, axis=0, return_index=True)  # of members who voted alike, the first answers
    for row in first:
        for name in ("member", "class", "probability of Democrat", "label variance", "Monte-Carlo error"):
            assert found[row][name] == expected[row][name]
    out = tmp_path / "new.csv"
    assert run("predict", folder / "out", folder / "votes.csv", "--out", out, "--quiet").output == ""
    assert out.read_text() == done.stdout
    again = run("predict", folder / "out", folder / "votes.csv", "--out", out)
    assert again.exit_code == 2
    assert "exists already" in again.stderr
    records = json.loads(run("predict", folder / "out", folder / "votes.csv", "--json").stdout)
    assert records[3]["member"] == "m3"


def test_answers_keep_the_names_of_the_table(tmp_path):
    """An id column that is called as one of ours keeps its name; rows that are counted are called row."""
    table, out, plain = tmp_path / "blobs.csv", tmp_path / "out", tmp_path / "plain"
    write_blobs(table)
    table.write_text(table.read_text().replace("name", "class", 1))
    asked = ["fit", table, "--label", "kind", "--drop", "truth", "--neighbors", "5", *PLAIN, "--quiet"]
    assert run(*asked, "--id", "class", "--out", out).exit_code == 0
    assert run(*asked, "--drop", "class", "--out", plain).exit_code == 0
    for folder, named in ((out, ["class", "class (graphuq)"]), (plain, ["row", "class"])):
        heads = [(folder / "predictions.csv").read_text(), run("predict", folder, table).stdout]
        assert [head.split(",")[:2] for head in heads] == [named, named]


def test_names_that_look_like_numbers_are_those_of_the_table(tmp_path):
    """3.1 and 3.10 are two classes, 1.50 is a known category without an x beside it, and 1.10 names a row."""
    rng, names = np.random.default_rng(0), ["3.1", "3.2", "3.10"]
    X = 4 * rng.normal(size=(3, 2))[np.arange(60) % 3] + rng.normal(size=(60, 2))
    lines = [f"1.{k}0,{x},{y},{('1.50', 'x', '2')[k % 3]},{names[k % 3] * (k < 30)}" for k, (x, y) in enumerate(X)]
    table, out, new = tmp_path / "t.csv", tmp_path / "out", tmp_path / "new.csv"
    table.write_text("\n".join(["id,x,y,code,version", *lines]))
    asked = ["--label", "version", "--id", "id", "--category", "code", "--out", out]
    done = run("fit", table, *asked, "--json", *PLAIN)
    assert done.exit_code == 0, done.output
    assert sorted(json.loads(done.stdout)["found"]) == ["3.1", "3.10", "3.2"]
    with (out / "predictions.csv").open() as file:
        assert [row["id"] for row in csv.DictReader(file)] == [f"1.{k}0" for k in range(60)]
    for code in ("1.50", "2.0"):
        new.write_text(f"id,x,y,code\n1.10,0,1,{code}\n1.1,1,0,{code}\n")
        done = run("predict", out, new)
        assert done.exit_code == 0, done.output
        assert [line.split(",")[0] for line in done.stdout.splitlines()] == ["id", "1.10", "1.1"]
    new.write_text("id,x,y,code\n1,0,1,1.5\n")
    assert "Column 'code' holds '1.5'" in run("predict", out, new).stderr


def test_predict_says_what_it_fills_in(tmp_path):
    table, out, new = write_blobs(tmp_path / "blobs.csv"), tmp_path / "out", tmp_path / "new.csv"
    head, *lines = table.read_text().splitlines()
    assert fit_blobs(table, out, "--impute", "median").exit_code == 0
    assert "filled in" not in run("predict", out, table).stderr
    gaps = [re.sub(r"^(\d+),[^,]*", r"\1,", line) if k < 3 else line for k, line in enumerate(lines)]
    gaps[0] = re.sub(r"^(\d+,),[^,]*", r"\1,", gaps[0])
    new.write_text("\n".join([head, *gaps]))
    told = (
        "Note: Missing values are filled in and then treated as known: 4, in 3 of the rows and 2 of the columns.\n"
    )
    assert run("predict", out, new).stderr == told
    assert run("predict", out, new, "--quiet").stderr == ""


def test_report_again(votes, tmp_path):
    folder, _ = votes
    before = (folder / "out" / "report.html").read_text(encoding="utf-8")
    assert run("report", folder / "out").exit_code == 0
    assert (folder / "out" / "report.html").read_text(encoding="utf-8") == before
    assert run("predict", folder / "out", folder / "votes.csv", "--quiet").exit_code == 0
    other = tmp_path / "page.html"
    assert run("report", folder / "out", "--out", other).exit_code == 0
    assert other.read_text(encoding="utf-8") == before


def test_an_existing_folder_is_kept_without_force(votes, tmp_path):
    folder, _ = votes
    done = fit_votes(folder / "votes.csv", folder / "out")
    assert done.exit_code == 2
    assert "exists already" in done.stderr
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    done = fit_votes(folder / "votes.csv", mine, "--force")
    assert done.exit_code == 2
    assert "did not write" in done.stderr
    assert (mine / "thesis.txt").read_text() == "years of work"
    out = tmp_path / "out"
    assert fit_votes(folder / "votes.csv", out, "--seed", "1").exit_code == 0
    first = (out / "predictions.csv").read_text()
    assert fit_votes(folder / "votes.csv", out, "--force").exit_code == 0
    assert (out / "predictions.csv").read_text() != first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "out"]


def test_categories_and_numbers_give_text_a_place(tmp_path):
    words = {1: "y", -1: "n", 0: "?"}
    table = write_votes(tmp_path / "votes.csv", rows=120, cell=words.get)
    done = fit_votes(table, tmp_path / "out")
    assert done.exit_code == 2
    assert "holds text ('n')" in done.stderr
    assert "16 columns in all. This would work: --category all." in done.stderr
    assert not (tmp_path / "out").exists()
    done = fit_votes(table, tmp_path / "out", "--category", "all")
    assert done.exit_code == 0, done.output
    assert "16 columns of categories" in done.stdout


def test_the_class_under_another_name_is_no_category(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [f"{k},{'ab'[k % 2] if k < 6 else ''},{'ab'[k % 2]},{'rs'[k % 3 == 0]}" for k in range(12)]
    Path("t.csv").write_text("\n".join(["x,kind,is,color", *lines]))
    told = "Column 'is' holds the class of every labeled row; column 'color' holds text ('s'). This would work: "
    assert told + "--truth is --category color." in run("fit", "t.csv", "--label", "kind", "--out", "out").stderr
    words = ("label", "t.csv", "--label", "kind", "--out", "out", "--export", "answers.csv")
    assert told + "--drop is --category color." in run(*words).stderr
    every = run("fit", "t.csv", "--label", "kind", "--out", "out", "--category", "all")
    assert "Column 'is' holds the class of every labeled row. This would work: --truth is." in every.stderr
    words = (
        "fit",
        "t.csv",
        "--label",
        "kind",
        "--out",
        "out",
        "--truth",
        "is",
        "--category",
        "color",
        "--json",
        *PLAIN,
    )
    assert json.loads(run(*words).stdout)["accuracy"] is not None


def test_a_truth_of_few_rows_proves_little(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 2)) + 4 * np.arange(60)[:, None] % 12
    lines = [
        f"{x},{y},{'abc'[k % 3] if k < 12 else ''},{'abc'[k % 3] if k % 3 == 0 else ''}"
        for k, (x, y) in enumerate(X)
    ]
    table = tmp_path / "t.csv"
    table.write_text("\n".join(["x,y,kind,truth", *lines]))
    done = run("fit", table, "--label", "kind", "--truth", "truth", "--out", tmp_path / "out")
    few = "As far as the truth, which is known of 16 rows without a label, can tell, the probabilities are"
    assert few in done.stdout
    assert "So few rows prove little." in done.stdout


def test_angles_are_between_rows_as_they_are(tmp_path):
    """Numbers above zero less their mean would be at more than a right angle."""
    X = np.random.default_rng(0).uniform(size=(60, 3)) + 3 * np.eye(3)[np.arange(60) % 3]
    lines = [",".join([*map(str, row), "abc"[k % 3] if k < 12 else ""]) for k, row in enumerate(X)]
    table = tmp_path / "t.csv"
    table.write_text("\n".join(["x,y,z,kind", *lines]))
    done = run("fit", table, "--label", "kind", "--out", tmp_path / "out", "--graph", "cosine", "--json")
    assert json.loads(done.stdout)["scaling"] == "3 columns of numbers compared as they are"
    with (tmp_path / "out/predictions.csv").open() as file:
        assert [row["class"] for row in csv.DictReader(file)] == ["abc"[k % 3] for k in range(60)]


def test_new_rows_are_read_as_those_of_the_fit(tmp_path):
    """Points between thousands, which 950.000 alone does not tell from decimals: rows of the fit get its answers again."""
    people = [1000 * (50 + 45 * k) for k in range(40)]
    lines = [
        f"{n:,}".replace(",", ".") + f",{('small', 'large')[n > 900_000] if k % 3 else ''}"
        for k, n in enumerate(people)
    ]
    table, new = tmp_path / "t.csv", tmp_path / "new.csv"
    table.write_text("\n".join(["people,size", *lines]))
    new.write_text("people\n" + "\n".join(line.split(",")[0] for line in lines[:20]))
    done = run("fit", table, "--label", "size", "--out", tmp_path / "out", *PLAIN)
    assert done.exit_code == 0, done.output
    assert "are taken to separate thousands" in done.output
    done = run("predict", tmp_path / "out", new, "--out", tmp_path / "answers.csv")
    assert done.exit_code == 0, done.output
    before, after = (read_table(tmp_path / each) for each in ("out/predictions.csv", "answers.csv"))
    probability = "probability of small"
    np.testing.assert_allclose(after.column(probability), before.column(probability)[:20], atol=1e-6)


def test_a_table_as_a_spreadsheet_writes_it_in_germany(tmp_path):
    """Semicolons, decimal commas, Windows-1252; then new rows with a town that the fit had not."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2)) + np.repeat([[0], [4]], 20, axis=0)
    lines = [
        f"{k + 1};{'Köln' if k % 3 else 'Düren'};{x:.2f};{y:.2f};{('ja' if k < 20 else 'nein') if k % 4 == 0 else ''}"
        for k, (x, y) in enumerate(X)
    ]
    table = tmp_path / "t.csv"
    table.write_bytes("\n".join(["Nr;Stadt;Größe;Gewicht;Antwort", *lines]).replace(".", ",").encode("cp1252"))
    asked = ["fit", table, "--label", "Antwort", "--out", tmp_path / "out", *PLAIN]
    done = run(*asked)
    refused(done, "Column 'Stadt' holds text ('Düren'). This would work: --category Stadt.", tmp_path, ["t.csv"])
    done = run(*asked, "--category", "Stadt")
    assert done.exit_code == 0, done.output
    for note in (
        "read as Windows-1252",
        "between semicolons",
        "have a decimal comma",
        "Column 'Nr' counts the rows",
    ):
        assert note in done.stderr
    assert "3 columns of numbers compared in robust units" in done.stdout
    new = tmp_path / "new.csv"
    new.write_text("Nr;Stadt;Größe;Gewicht\n1;Bonn;0,1;0,2\n2;Köln;4,1;4,2\n")
    done = run("predict", tmp_path / "out", new)
    assert (done.exit_code, done.stdout) == (2, "")
    assert (
        "Column 'Stadt' holds 'Bonn', a new category, in row 1, which it did not in the fit. This would"
        in done.stderr
    )
    assert "This would work: --unknown ignore." in done.stderr
    done = run("predict", tmp_path / "out", new, "--unknown", "ignore")
    assert done.exit_code == 0, done.output
    assert "Note: Column 'stadt' holds" not in done.stderr
    assert "Note: Column 'Stadt' holds 'Bonn', a new category, in row 1: ignored." in done.stderr
    assert [line.split(";")[1] for line in done.stdout.splitlines()] == ["class", "ja", "nein"]
    answers = tmp_path / "out" / "predictions.csv"
    heading, first = answers.read_text(encoding="utf-8").splitlines()[:2]
    assert heading.startswith(
        "\ufeffrow;class;probability of ja;"
    )  # Excel would take what has no mark for Windows-1252
    assert re.match(r"1;ja;0,\d+;0,\d+;", first)
    back = read_table(answers)
    p = np.column_stack([back.column(f"probability of {name}") for name in ("ja", "nein")])
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=2e-6)
    assert back.marks[:3] == read_table(table).marks[:3] == (";", ",", "\ufeff")


def test_rows_are_called_by_their_names_in_errors(tmp_path):
    lines = [f"p{k},{'' if k == 3 else k * 1.5},{'ab'[k > 5] if k % 4 == 0 else ''}" for k in range(12)]
    (tmp_path / "t.csv").write_text("\n".join(["who,x,k", *lines]))
    asked = ["fit", tmp_path / "t.csv", "--label", "k", "--id", "who", "--out", tmp_path / "out"]
    refused(run(*asked), "'x' has missing values, the first in row p3. This would work", tmp_path, ["t.csv"])


def test_digits_as_pictures(tmp_path):
    from sklearn.datasets import load_digits

    digits = load_digits()
    pair = np.isin(digits.target, (3, 8))
    truth, y = digits.target[pair], np.full(pair.sum(), -1)
    for digit in (3, 8):
        y[np.flatnonzero(truth == digit)[:10]] = digit
    np.savez(tmp_path / "digits.npz", image=digits.images[pair], digit=y, truth=truth)
    asked = ["--label", "digit", "--truth", "truth", "--out", tmp_path / "out", "--json"]
    done = run("fit", tmp_path / "digits.npz", *asked, *PLAIN)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["accuracy"] > 0.9
    assert "canvas class='picture'" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


FLOWERS = load_iris()


def write_flowers(path, rows, *, known=(), names=("Setosa", "setosa", "=cmd")):
    """Irises, of which some have a species; the names differ in case, and look like a formula."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["name", *FLOWERS.feature_names, "species", "truth"])
        for row in rows:
            truth = names[FLOWERS.target[row]]
            writer.writerow([f"f{row}", *FLOWERS.data[row], truth if row in known else "", truth])
    return path


def test_three_classes_with_a_learned_prior(tmp_path):
    """Five labels a class: predictions, a report, and the same answers for old rows and good ones for new."""
    rows = np.random.default_rng(1).permutation(150)
    old, new = rows[:120], rows[120:]
    known = [row for k in range(3) for row in old[FLOWERS.target[old] == k][:5]]
    table = write_flowers(tmp_path / "flowers.csv", old, known=known)
    out = tmp_path / "out"
    asked = ["--label", "species", "--id", "name", "--truth", "truth"]
    done = run("fit", table, *asked, "--out", out, "--json")
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert summary["accuracy"] > 0.85
    assert list(summary["found"]) == ["=cmd", "Setosa", "setosa"]
    assert sum(summary["found"].values()) == 105
    assert (summary["converged"], summary["r_hat"], summary["effective_draws"]) == (True, None, None)
    assert "choices of hyper-parameters" in summary["verdict"]
    assert isinstance(summary["suspicious_labels"], int)
    with (out / "predictions.csv").open(encoding="utf-8") as file:
        answers = list(csv.DictReader(file))
    assert list(answers[0]) == [
        "name", "class", "probability of =cmd", "probability of Setosa", "probability of setosa", "label variance",
        "uncertainty rank", "Monte-Carlo error", "labeled", "label",
    ]  # fmt: skip
    assert all((each["labeled"] == "yes") == (each["label"] != "") for each in answers)
    p = np.array([[float(each[name]) for name in list(each)[2:5]] for each in answers])
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=3e-6)
    names = np.array(["'=cmd", "Setosa", "setosa"])
    assert [each["class"] for each in answers] == names[p.argmax(axis=1)].tolist()
    np.testing.assert_allclose(
        [float(each["label variance"]) for each in answers], 1.5 * (1 - np.square(p).sum(axis=1)), atol=1e-5
    )
    order = np.argsort([int(each["uncertainty rank"]) for each in answers])
    assert (np.diff(p.max(axis=1)[order]) >= -1e-6).all()
    assert [each["row"] for each in summary["least_certain"]] == [
        answers[i]["name"] for i in order if answers[i]["labeled"] == "no"
    ][:10]
    right = [
        each["class"] == names[[1, 2, 0]][FLOWERS.target[row]] for each, row in zip(answers, old, strict=True)
    ]
    unlabeled = np.array([each["labeled"] == "no" for each in answers])
    assert summary["accuracy"] == pytest.approx(np.mean(np.array(right)[unlabeled]))
    page = (out / "report.html").read_text(encoding="utf-8")
    assert run("report", out).exit_code == 0
    assert (out / "report.html").read_text(encoding="utf-8") == page
    again = list(csv.DictReader(run("predict", out, table).stdout.splitlines()))
    duplicates = {"f101", "f142"}  # alike in every feature
    for first, second in zip(answers, again, strict=True):
        if first["name"] not in duplicates:
            assert list(first.values())[:6] == list(second.values())[:6]
    fresh = write_flowers(tmp_path / "new.csv", new)
    found = list(csv.DictReader(run("predict", out, fresh).stdout.splitlines()))
    hits = [each["class"] == names[[1, 2, 0]][FLOWERS.target[row]] for each, row in zip(found, new, strict=True)]
    assert np.mean(hits) > 0.8


def test_classes_that_cannot_be_known(tmp_path):
    """A true class without a label is refused by name; one with a single label is noted."""
    names = ("a", "b", "c")
    table = write_flowers(tmp_path / "two.csv", range(150), known=(0, 1, 60, 61), names=names)
    asked = ["--label", "species", "--id", "name", "--out", tmp_path / "out", *PLAIN]
    done = run("fit", table, *asked, "--truth", "truth")
    refused(done, "Column 'truth' holds 'c', and no row has that class in 'species'", tmp_path, ["two.csv"])
    table = write_flowers(tmp_path / "two.csv", range(150), known=(0, 1, 60), names=names)
    done = run("fit", table, *asked, "--drop", "truth")
    assert done.exit_code == 0, done.output
    assert "Note: Class 'b' has a single label" in done.stderr


def test_no_probability_is_told_as_certain(tmp_path):
    """Two groups far apart and hardly any noise."""
    points = np.concatenate([np.linspace(0, 1, 30), np.linspace(99, 100, 30)])
    label = np.full(60, -1)
    label[[0, 10, 20, 30, 40, 50]] = [0, 0, 0, 1, 1, 1]
    np.savez(tmp_path / "far.npz", x=points, kind=label)
    asked = ["--label", "kind", "--prior", "matern", "--tau", "0.01", "--gamma", "1e-9"]
    for more in (["--inference", "ep"], ["--model", "level_set", "--draws", "50"]):
        out = tmp_path / more[1]
        assert run("fit", tmp_path / "far.npz", *asked, *more, "--out", out, "--quiet").exit_code == 0
        with (out / "predictions.csv").open(encoding="utf-8") as file:
            told = [float(each[f"probability of {k}"]) for each in csv.DictReader(file) for k in (0, 1)]
        assert min(told) == pytest.approx(1e-12)
        assert 1 > max(told) > 1 - 1e-10


def test_many_classes_are_told_in_short():
    assert _found({"a": 1, "b": 2}) == "1 of class a and 2 of class b"
    assert _found({"bad": 1, "bad, big": 2}) == "1 of class bad and 2 of class 'bad, big'"
    counts = {f"k{k}": k for k in range(10)}
    assert _found(counts) == ", ".join(f"{k} of class k{k}" for k in range(9, 1, -1)) + " and 1 of 2 more"


BAD = {
    "no such column": ("--label partty", "no column 'partty': did you mean 'party'?"),
    "no such id": ("--label party --id membre", "did you mean 'member'?"),
    "no such feature": ("--label party --column crme", "did you mean 'crime'?"),
    "no features": ("--label party --column member", "holds a different text"),
    "gaussian without width": (
        "--label party --drop member --graph gaussian",
        "--width must be given for gaussian weights",
    ),
    "a feature that is dropped": ("--label party --column crime --drop crime", "as --drop"),
    "a label that is dropped": ("--label party --drop party", "'party' is given as --label and as --drop"),
    "a drop without effect": ("--label party --column crime --drop truth", "--drop truth changes"),
    "no such mark": ("--label party --unlabeled ?", "No row holds '?' in column 'party'"),
    "bad setting": ("--label party --modes 1", "--modes must be a whole number of at least 2, got 1"),
    "the label as a feature": ("--label party --column party", "as --label and again as --column"),
    "the id as a feature": ("--label party --id member --column member", "as --id and again"),
    "the truth as a feature": ("--label party --truth truth --column truth", "as --truth and again"),
    "one feature twice": ("--label party --column crime --column crime", "again as --column"),
    "a category that is no feature": (
        "--label party --drop member --category truth",
        "'truth' is given as --category, and it is not one of the features",
    ),
    "tau without matern": ("--label party --tau 1", "--tau is for --prior matern"),
    "epsilon without wells": ("--label party --epsilon 1", "--epsilon is for --model ginzburg_landau"),
    "width without gaussian": ("--label party --width 1", "--width is for --graph gaussian"),
    "neighbors with gaussian": (
        "--label party --graph gaussian --width 1 --neighbors 10",
        "--neighbors is for --graph knn and self_tuning",
    ),
    "neighbors with cosine": ("--label party --graph cosine --neighbors 10", "--neighbors is for"),
    "components with cosine": ("--label party --graph cosine --components 3", "--components is"),
    "modes with cosine": ("--label party --graph cosine --modes 300", "--modes is for"),
    "modes with full": ("--label party --prior full --modes 300", "--modes is for"),
    "draws without drawing": ("--label party --draws 99", "--draws is for --inference sample, and for"),
    "draws of a learned level-set": (
        "--label party --drop member --model level_set --draws 99",
        "--draws makes no difference here, with 2 classes",
    ),
    "no draws of a learned prior": (
        "--label party --time-limit 9 --inference ep --prior matern",
        "--time-limit is for --inference auto",
    ),
    "a model without sites": (
        "--label party --drop member --inference ep --model ginzburg_landau",
        "GinzburgLandau offers no sites",
    ),
    "an argument's name": ("--label party --drop member --components 99", "--components must lie"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_settings(name, votes, tmp_path):
    words, message = BAD[name]
    folder, _ = votes
    truth = [] if "--column" in words or "--truth" in words else ["--drop", "truth"]
    done = run("fit", folder / "votes.csv", "--out", tmp_path / "out", *truth, *words.split())
    refused(done, message, tmp_path)


def refused(done, message, folder, left=()):
    """One sentence on standard error, exit code 2, no traceback, nothing written."""
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert len([line for line in done.stderr.splitlines() if not line.endswith(" ...")]) == 1  # stages are told so
    assert "Traceback" not in done.output
    assert done.stdout == ""
    assert sorted(path.name for path in folder.iterdir()) == sorted(left)


LABELS = {
    "all labeled": (lambda row, truth: truth, "so there is nothing to find out"),
    "unknown in words": (
        lambda row, truth: truth if row in KNOWN else "unknown",
        "or say what stands for it: --unlabeled unknown",
    ),
    "none labeled": (lambda row, truth: "", "No row is labeled"),
    "one class": (lambda row, truth: "Democrat" if row < 5 else "", "Only one class, Democrat"),
    "a class called -1": (lambda row, truth: ["-1", "1"][row % 2], "no class can be called -1: rename it"),
}


@pytest.mark.parametrize("name", LABELS)
def test_bad_labels(name, tmp_path):
    party, message = LABELS[name]
    table = write_votes(tmp_path / "votes.csv", rows=40, party=party)
    refused(fit_votes(table, tmp_path / "out"), message, tmp_path, ["votes.csv"])


def test_a_column_of_numbers_is_no_class(tmp_path):
    table = write_votes(tmp_path / "votes.csv", rows=40, party=lambda row, truth: f"{row}.5" if row < 25 else "")
    done = fit_votes(table, tmp_path / "out")
    refused(done, "something different in each of 25 rows: those are not classes", tmp_path, ["votes.csv"])


def test_zeros_that_may_stand_for_unlabeled_are_noted(tmp_path):
    table = write_votes(
        tmp_path / "votes.csv", rows=40, party=lambda row, truth: ["-1", "1"][row % 2] if row < 10 else "0"
    )
    done = fit_votes(table, tmp_path / "out")
    assert done.exit_code == 0
    assert "Note: y holds -1, 0 and 1, and 0 in 30 of 40 rows." in done.stderr


def test_a_class_written_in_two_ways_is_noted_once(tmp_path):
    lines = [f"{k},{['yes', 'Yes', 'no', ''][min(k, 3)]}" for k in range(12)]
    (tmp_path / "t.csv").write_text("\n".join(["x,k", *lines]))
    done = run("fit", tmp_path / "t.csv", "--label", "k", "--out", tmp_path / "out", *PLAIN)
    assert done.stderr.count("Classes 'Yes' and 'yes' differ only in capitals or spaces") == 1


def test_minus_one_beside_another_mark_is_not_dropped_in_silence(tmp_path):
    table = write_votes(tmp_path / "votes.csv", rows=40, party=lambda row, truth: ["-1", "1", "?"][row % 3])
    done = fit_votes(table, tmp_path / "out", "--unlabeled", "?")
    refused(done, "no class can be called -1: rename it", tmp_path, ["votes.csv"])


TABLES = {
    "empty": (b"", "is empty"),
    "ragged": (b"member,party,truth,x\na,b,c,1\nd,e\n", "ragged: line 3"),
    "encoding": (b"member,party,truth,x\nM\x81ller,b,c,1\n", "neither UTF-8 (byte 0x81 is not) nor Windows-1252"),
    "two columns of one name": (b"member,party,truth,party\na,b,c,1\n", "more than one column 'party'"),
    "a gap": (
        b"member,party,truth,x,w\na,A,,1,1\nb,B,,,2\nc,,,3,3\n",
        "'x' has missing values, the first in row b",
    ),
    "a number too large": (
        b"member,party,truth,x\na,A,,1\nb,B,,1e200\nc,,,3\n",
        "Column 'x' holds the number 1e+200",
    ),
    "a repeated id": (b"member,party,truth,x\na,A,,1\nb,B,,2\na,,,3\n", "The row id 'a' repeats"),
}


@pytest.mark.parametrize("name", TABLES)
def test_bad_tables(name, tmp_path):
    content, message = TABLES[name]
    (tmp_path / "t.csv").write_bytes(content)
    refused(fit_votes(tmp_path / "t.csv", tmp_path / "out"), message, tmp_path, ["t.csv"])


def test_a_missing_file_and_a_pickled_one(tmp_path):
    refused(fit_votes(tmp_path / "none.csv", tmp_path / "out"), "There is no file", tmp_path)
    np.savez(tmp_path / "p.npz", party=np.array([{}], dtype=object))
    refused(fit_votes(tmp_path / "p.npz", tmp_path / "out"), "pickled objects", tmp_path, ["p.npz"])


def test_a_folder_that_cannot_be_written(tmp_path):
    table = write_votes(tmp_path / "votes.csv", rows=40)
    done = fit_votes(table, table / "out")
    refused(done, "could not be written", tmp_path, ["votes.csv"])


def test_a_disk_that_is_full(tmp_path):
    """No file may grow beyond 100 kB, so that the model cannot be written: nothing is left."""
    write_votes(tmp_path / "votes.csv")
    asked = ["fit", "votes.csv", "--label", "party", "--id", "member", "--drop", "truth", "--out", "out", *PLAIN]
    limited = ["bash", "-c", 'ulimit -f 100 && exec "$0" "$@"', sys.executable, "-m", "graphuq.app.cli", *asked]
    done = subprocess.run(limited, cwd=tmp_path, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert done.returncode == 2, done.stderr
    assert "could not be written, and nothing was" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["votes.csv"]


def flipped(data, where):
    return data[:where] + bytes([data[where] ^ 1]) + data[where + 1 :]


def test_changed_folders_are_refused(votes, tmp_path):
    """A byte anywhere, half a file, none at all: one sentence that names the file, or the same page."""
    folder, _ = votes
    copy = tmp_path / "copy"
    shutil.copytree(folder / "out", copy)
    whole, page = (copy / "model.npz").read_bytes(), (copy / "report.html").read_bytes()
    places = np.linspace(0, len(whole) - 1, 20).astype(int)
    for damaged in [*(flipped(whole, place) for place in places), whole[: len(whole) // 2], b""]:
        (copy / "model.npz").write_bytes(damaged)
        done = run("report", copy)
        assert (copy / "report.html").read_bytes() == page
        if done.exit_code:
            assert (done.exit_code, done.stdout) == (2, "")
            assert re.fullmatch(r"graphuq: .*model\.npz (was changed|is not a model of graphuq).*\n", done.stderr)
    (copy / "model.npz").unlink()
    assert "has no model.npz" in run("report", copy).stderr


def test_a_model_of_another_version_is_refused(votes, tmp_path, monkeypatch):
    folder, _ = votes
    monkeypatch.setattr("graphuq.app.folder.__version__", "9.9.9")
    done = run("predict", folder / "out", folder / "votes.csv")
    assert done.exit_code == 2
    assert "this is 9.9.9" in done.stderr
    monkeypatch.undo()
    (tmp_path / "empty").mkdir()
    assert "holds no model" in run("predict", tmp_path / "empty", folder / "votes.csv").stderr
    assert "There is no folder" in run("predict", tmp_path / "none", folder / "votes.csv").stderr


def test_new_rows_with_other_columns_are_refused(votes, tmp_path):
    folder, _ = votes
    (tmp_path / "new.csv").write_text("member,crme\na,1\n")
    done = run("predict", folder / "out", tmp_path / "new.csv")
    assert done.exit_code == 2
    assert "has no column" in done.stderr


def test_data():
    assert "435 rows of 16 features" in run("data", "voting").stdout
    assert json.loads(run("data", "voting", "--json").stdout)["rows"] == 435
    done = run("data", "irises")
    assert done.exit_code == 2
    assert "choose one of" in done.stderr


def test_what_comes_with_the_repository_needs_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("reproduce", "--all")
    assert done.exit_code == 2
    assert "repository" in done.stderr


@pytest.mark.parametrize(
    ("word", "status", "told"), [("--help", 0, "usage: python -m benchmarks"), ("sped", 2, "no benchmark sped")]
)
def test_benchmarks_know_what_words_they_take(word, status, told):
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-m", "benchmarks", word], cwd=root, capture_output=True, text=True)
    assert done.returncode == status
    assert told in done.stdout + done.stderr


def test_reproduce_hands_its_words_on(tmp_path, monkeypatch):
    """A stand-in for the package, since the real one takes minutes: it prints what it was asked and exits with 3."""
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "__init__.py").touch()  # else a package of this name on the path goes first
    program = "import sys, pathlib; pathlib.Path('asked').write_text(' '.join(sys.argv[1:])); sys.exit(3)"
    (tmp_path / "experiments" / "__main__.py").write_text(program)
    monkeypatch.chdir(tmp_path)
    assert run("reproduce", "fig5", "table1", "--full", "--jobs", "2", "--out", "here").exit_code == 3
    assert (tmp_path / "asked").read_text() == "fig5 table1 --full --jobs 2 --out here"


def test_stages_are_told_where_output_is_piped(votes, tmp_path):
    folder, _ = votes
    asked = ["fit", folder / "votes.csv", "--label", "party", "--id", "member", "--drop", "truth", *PLAIN]
    told = [line for line in run(*asked, "--out", tmp_path / "a").stderr.splitlines() if line.endswith(" ...")]
    assert told[:5] == [
        "reading votes.csv ...",
        "graph of 435 rows, 16 features ...",
        "eigenvectors of the graph ...",
        "posterior, from 5 labels of 2 classes ...",
        "draws of 8 chains ...",
    ]
    assert told[5].startswith("report and files, after ")
    assert run(*asked, "--out", tmp_path / "b", "--quiet").output == ""


def test_help_names_every_command():
    done = run("--help")
    assert done.exit_code == 0
    assert all(name in done.stdout for name in COMMANDS)
    assert run("--version").stdout.startswith("graphuq ")
    assert run("fit").exit_code == 2


def test_help_imports_nothing_heavy():
    """What makes help slow is imports; which ones there are can be said exactly, seconds cannot."""
    code = (
        "import sys, graphuq.app.cli; print([m for m in ('numpy', 'scipy', 'jax', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("option", ["--unlabeled", "--id", "--neighbors", "--out"])
def test_an_option_given_twice_where_one_value_counts_is_refused(option, tmp_path):
    (tmp_path / "t.csv").write_text("a,b,kind\n1,2,x\n2,1,y\n3,3,\n")
    value = "3" if option == "--neighbors" else "b"
    done = run("fit", tmp_path / "t.csv", "--label", "kind", "--out", tmp_path / "o", option, value, option, value)
    assert done.exit_code == 2
    assert f"{option} takes one value, and is given {3 if option == '--out' else 2} times" in " ".join(
        done.stderr.split()
    )
    assert not (tmp_path / "o").exists()


def test_a_mark_of_unlabeled_rows_that_is_taken_as_a_class_is_told_with_its_option(tmp_path):
    rows = [f"{k % 7},{k % 5},{'xy'[k % 2] if k < 8 else '?' if k < 20 else ''}" for k in range(30)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,kind", *rows]))
    done = run("fit", tmp_path / "t.csv", "--label", "kind", "--out", tmp_path / "o")
    assert done.exit_code == 0
    assert "Note: '?' is taken as a class, in 12 rows." in done.stderr
    assert "--unlabeled '?'" in done.stderr
