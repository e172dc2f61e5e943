"""A question about a table: in which units its columns are compared, and how much of it is shown."""

import numpy as np
import pytest
from openpyxl import Workbook

from graphuq import GraphClassifier
from graphuq.app.options import Scale
from graphuq.app.question import Question, read_data

ROWS = np.random.default_rng(0).normal(size=(40, 30))


@pytest.fixture
def table(tmp_path):
    lines = [",".join([*map(str, row), "ab"[k % 2] if k < 20 else ""]) for k, row in enumerate(ROWS)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join([",".join([*(f"c{k}" for k in range(30)), "kind"]), *lines]))
    return path


@pytest.mark.parametrize(
    ("scale", "graph", "found"),
    [
        ("auto", "knn", "robust"),
        ("auto", "gaussian", "robust"),
        ("auto", "cosine", "auto"),  # which takes angles
        ("robust", "knn", "robust"),
        ("robust", "gaussian", "robust"),
        ("none", "self_tuning", "none"),
    ],
)
def test_units_of_the_columns(scale, graph, found, table):
    classifier, data = GraphClassifier(graph=graph), read_data(Question(table, "kind", scale=Scale(scale)))
    data.rescale(classifier)
    assert classifier.scale == found
    np.testing.assert_array_equal(data.X, ROWS)


def test_units_that_nothing_is_compared_in_are_refused(table):
    data = read_data(Question(table, "kind", scale=Scale.none))
    with pytest.raises(ValueError, match="--scale is for distances, which --graph cosine does not take"):
        data.rescale(GraphClassifier(graph="cosine"))


def test_an_error_about_labels_is_followed_by_what_concerns_them_alone(tmp_path):
    (tmp_path / "t.csv").write_text("x;kind\n1,5;a\n2,5;NA\n")
    with pytest.raises(
        ValueError, match=r"Only one class, a, .* two are needed\. Column 'kind' holds 'NA' .* another name\.$"
    ):
        read_data(Question(tmp_path / "t.csv", "kind"))


def test_all_columns_are_shown(table, monkeypatch):
    rows = read_data(Question(table, "kind")).rows
    assert (len(rows.columns), len(rows.cells[0]), rows.n_left_out) == (30, 30, 0)
    monkeypatch.setattr("graphuq.app.report.content.MAX_COLUMNS", 20)
    rows = read_data(Question(table, "kind")).rows
    assert (len(rows.columns), len(rows.cells[0]), rows.n_left_out) == (20, 20, 10)


def test_classes_categories_and_names_that_look_like_numbers(tmp_path):
    rows = [(f"1.{k}0", f"{k % 4}.5", f"1.{10 * (k % 3)}", f"3.{(1, 2, 10)[k % 3]}") for k in range(30)]
    lines = [
        f"{name},{x},{kind},{label if k < 15 else ''},{label}" for k, (name, x, kind, label) in enumerate(rows)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["name,x,kind,version,truth", *lines]))
    question = Question(tmp_path / "t.csv", "version", truth="truth", row_id="name", categories=["kind"])
    data = read_data(question)
    assert data.y.tolist() == [label for *_, label in rows[:15]] + [""] * 15
    assert data.rows.names == [name for name, *_ in rows]
    assert data.encoding.features[1].levels == ("1.0", "1.10", "1.20")
    np.testing.assert_array_equal(data.rows.truth, [(0, 2, 1)[k % 3] for k in range(30)])  # 3.1, 3.10, 3.2


def test_whole_numbers_are_classes_however_they_are_written(tmp_path):
    """As pandas writes them in a column with gaps; 3.1 is never taken for 3.10."""
    for cells, unlabeled in ((("1.0", "2.0"), "2"), (("1", "x"), "x"), (("1.0", "2.5"), "")):
        lines = [
            f"{k},{cells[k % 2] if k < 6 else '3' if k == 6 else ''},{'1' if k % 2 else '1.0'}" for k in range(9)
        ]
        (tmp_path / "t.csv").write_text("\n".join(["x,kind,truth", *lines]))
        data = read_data(Question(tmp_path / "t.csv", "kind", truth="truth", unlabeled=unlabeled))
        assert (data.rows.truth == 0).all()
        assert "" in data.y
    lines = [f"{k},{('3.10', '3.2', '')[k % 3]},{'3.1' if k == 8 else ''}" for k in range(9)]
    (tmp_path / "t.csv").write_text("\n".join(["x,kind,truth", *lines]))
    with pytest.raises(ValueError, match=r"'truth' holds '3\.1', and no row has that class"):
        read_data(Question(tmp_path / "t.csv", "kind", truth="truth"))


def test_a_table_of_one_row_is_refused_in_our_words(tmp_path):
    (tmp_path / "t.csv").write_text("a,kind\n1,x\n")
    for any_labels in (False, True):
        with pytest.raises(ValueError, match=r"^t\.csv has one row, and a graph needs two\.$"):
            read_data(Question(tmp_path / "t.csv", "kind"), any_labels=any_labels)


@pytest.mark.parametrize("cover", [[], [["Report 2024"]], [["Report 2024"], ["by Eva"]]])
def test_a_cover_sheet_too_short_for_a_table_is_said_to_be_one_of_several(tmp_path, cover):
    book = Workbook()
    for line in cover:
        book.active.append(line)
    book.create_sheet("data")
    book.save(tmp_path / "t.xlsx")
    with pytest.raises(ValueError, match=r"2 sheets, and the first, 'Sheet', was read: --sheet names another\.$"):
        read_data(Question(tmp_path / "t.xlsx", "kind"))
