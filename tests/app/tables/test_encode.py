import csv
import re
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

from graphuq.app.tables.doubts import filled_in
from graphuq.app.tables.encode import Encoding, fit_encoding, scaling_in_words
from graphuq.app.tables.read import Table, read_table
from graphuq.app.tables.write import beside, guarded, unguarded, write_csv

TABLE = Table(
    Path("t.csv"),
    {
        "x": np.array([1.0, 2.0, np.nan, 5.0]),
        "z": np.array([0.0, 2.0, 4.0, 6.0]),
        "kind": np.array(["a", "b", "b", ""], dtype=object),
        "pixels": np.arange(16.0).reshape(4, 2, 2),
    },
)


def test_numbers_stay_and_categories_become_columns():
    encoding = fit_encoding(TABLE, ["z", "kind", "x"], categories=["kind"], impute="median")
    X = encoding.encode(TABLE)
    assert X.shape == (4, 4)
    assert X[:, 0].tolist() == [0, 2, 4, 6]
    assert X[:, 1:3].tolist() == [[1, 0], [0, 1], [0, 1], [0, 1]]  # the gap gets the most frequent value
    assert X[:, 3].tolist() == [1, 2, 2, 5]  # the gap gets the median of the others
    again = Encoding.from_json(encoding.to_json())
    assert again == encoding


def test_pixels_become_columns_side_by_side():
    assert fit_encoding(TABLE, ["pixels"]).encode(TABLE)[1].tolist() == [4, 5, 6, 7]


def test_gaps_are_refused_unless_imputed():
    with pytest.raises(ValueError, match="'x' has missing values, the first in row 3"):
        fit_encoding(TABLE, ["x"]).encode(TABLE)
    with pytest.raises(ValueError, match="'kind' has missing values, the first in row 4"):
        fit_encoding(TABLE, ["kind"], categories=["kind"]).encode(TABLE)
    mean = fit_encoding(TABLE, ["x"], impute="mean").encode(TABLE)
    assert mean[2, 0] == pytest.approx(8 / 3)


def test_text_that_is_no_category_is_refused():
    with pytest.raises(
        ValueError, match=r"^Column 'kind' holds text \('a'\)\. This would work: --category kind\.$"
    ):
        fit_encoding(TABLE, ["kind"])


@pytest.mark.parametrize(
    ("cell", "what"),
    [
        ("{} kg", "numbers with a unit, or with marks between digits ('7 kg'): write plain numbers"),
        ("-{}km/h", "numbers with a unit, or with marks between digits ('-7km/h'): write plain numbers"),
        ("1\u202f{:03}", "numbers with a unit, or with marks between digits ('1\\u202f007'): write plain numbers"),
        ("1\u2019{:03}", "numbers with a unit, or with marks between digits ('1\u2019007'): write plain numbers"),
        ("{}x{}", "a different text in every row ('7x7'), as names (--id) do. This would work: --id x."),
        ("house {}", "a different text in every row ('house 7'), as names (--id) do. This would work: --id x."),
    ],
)
def test_numbers_in_another_dress_are_no_names(cell, what):
    table = Table(Path("t.csv"), {"x": np.array([cell.format(k, k) for k in range(7, 32)], dtype=object)})
    with pytest.raises(ValueError, match=re.escape(f"Column 'x' holds {what}")):
        fit_encoding(table, ["x"])


@pytest.mark.parametrize(("n_values", "what"), [(8, "numbers with a unit"), (3, "text ('0 °C')")])
def test_measurements_that_come_again_are_no_categories_if_there_are_many(n_values, what):
    cells = np.array([f"{k % n_values} °C" for k in range(60)], dtype=object)
    with pytest.raises(ValueError, match=re.escape(f"Column 'x' holds {what}")):
        fit_encoding(Table(Path("t.csv"), {"x": cells}), ["x"])


def test_a_column_of_names_is_for_the_rows_if_each_is_once_and_they_have_none():
    house, street = ([f"{what} {k}" for k in range(20)] for what in ("house", "street"))
    columns = {"house": house, "street": street, "twice": [*house[:-1], house[0]]}
    table = Table(Path("t.csv"), {name: np.array(cells, dtype=object) for name, cells in columns.items()})
    with pytest.raises(ValueError, match=r"This would work: --id house --drop street --drop twice\.$"):
        fit_encoding(table, list(columns))
    with pytest.raises(ValueError, match=r"This would work: --drop house --drop street --drop twice\.$"):
        fit_encoding(table, list(columns), named=True)


def test_no_column_that_the_fit_has_is_suggested_for_another():
    numbers = {name: np.arange(20) / 7 for name in ("sepal length", "petal length")}
    encoding = fit_encoding(Table(Path("t.csv"), numbers), list(numbers))
    for given, told in (
        ("width", "there are 'petal length' and 'width'"),
        ("Sepal_Length", "did you mean 'Sepal_L"),
    ):
        new = Table(Path("u.csv"), {"petal length": np.ones(2), given: np.ones(2)})
        with pytest.raises(ValueError, match=f"u.csv has no column 'sepal length': {told}"):
            encoding.encode(new)


def test_all_that_is_wrong_is_told_at_once_with_what_would_work():
    n = 20
    columns = {
        "my city": ["Bonn", "Köln"] * (n // 2),
        "name": [f"person {k}" for k in range(n)],
        "age": ["?", *map(str, range(n - 1))],
        "gone": [""] * n,
    }
    table = Table(
        Path("t.csv"),
        {name: np.array(cells, dtype=object) for name, cells in columns.items()}
        | {"gap": np.array([np.nan, *range(n - 1)]), "huge": np.full(n, 1e200), "fine": np.arange(n) * 1.5},
    )
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        fit_encoding(table, list(table.columns))
    assert str(caught.value) == (
        "Column 'my city' holds text ('Bonn'); column 'name' holds a different text in every row ('person 0'), as names (--id) do; "
        "column 'age' holds numbers, and text ('?') in 1 of 20 cells: empty those; column 'gone' is empty; column 'gap' "
        "has missing values, the first in row 1; column 'huge' holds the number 1e+200, too large to compute with (the "
        "limit is 1e+100): correct it. This would work: --category 'my city' --id name --drop age --drop gone --impute median."
    )
    kept = ["my city", "gap", "fine"]
    assert fit_encoding(table, kept, categories=["my city"], impute="median").encode(table).shape == (n, 4)
    many = Table(Path("t.csv"), {f"c{k}": np.array(["a", "b"], dtype=object) for k in range(12)})
    with pytest.raises(
        ValueError, match=r"'c7' .*; and so on, 12 columns in all\. This would work: --category all\.$"
    ):
        fit_encoding(many, list(many.columns))


def test_a_stray_text_among_decimal_commas_is_named():
    cells = [f"{k},5" for k in range(99)]
    table = Table(Path("t.csv"), {"x": np.array([*cells, "n.d."], dtype=object)})
    message = r"Column 'x' holds numbers, and text \('n.d.'\) in 1 of 100 cells: empty those"
    with pytest.raises(ValueError, match=message):
        fit_encoding(table, ["x"])
    encoding = fit_encoding(Table(Path("t.csv"), {"x": np.arange(3.0)}), ["x"])
    with pytest.raises(ValueError, match=r"Column 'x' holds text \('n.d.'\), and held numbers in the fit"):
        encoding.encode(table)


def test_new_tables_must_look_the_same():
    encoding = fit_encoding(TABLE, ["kind", "pixels"], categories=["kind"], impute="median")
    strange = Table(Path("u.csv"), {"kind": np.array(["c"], dtype=object), "pixels": np.ones((1, 2, 2))})
    with pytest.raises(
        ValueError, match=r"'kind' holds 'c', a new category, in row 1, .*This would work: --unknown ignore"
    ):
        encoding.encode(strange)
    assert encoding.encode(strange, ignore_unknown=True)[0].tolist() == [0, 0, 1, 1, 1, 1]
    assert encoding.unknown(strange) == ["Column 'kind' holds 'c', a new category, in row 1: ignored."]
    stranger = Table(
        Path("u.csv"), {"kind": np.array(["c", "a", "d"], dtype=object), "pixels": np.ones((3, 2, 2))}
    )
    assert encoding.unknown(stranger) == ["Column 'kind' holds 'c' or other new categories in rows 1, 3: ignored."]
    assert encoding.unknown(TABLE) == []
    wide = Table(Path("u.csv"), {"kind": np.array(["a"], dtype=object), "pixels": np.ones((1, 3))})
    with pytest.raises(ValueError, match="3 numbers a row, and had 4 in the fit"):
        encoding.encode(wide)


def test_numbers_too_large_to_square():
    table = Table(Path("t.csv"), {"x": np.array([1.0, 1e200, 2.0])})
    with pytest.raises(ValueError, match=r"Column 'x' holds the number 1e\+200, too large"):
        fit_encoding(table, ["x"]).encode(table)


def test_what_is_said_of_new_tables_can_be_done_there():
    """Neither --impute nor --category is an option where a model is only applied."""
    table = Table(Path("t.csv"), {"x": np.array([1.0, 2.0, 5.0])})
    encoding = fit_encoding(table, ["x"])
    with pytest.raises(
        ValueError, match=r"'x' has missing values, the first in row 3, .* or fit again with --impute"
    ):
        encoding.encode(TABLE)
    with pytest.raises(ValueError, match=r"'x' holds text \('a'\), and held numbers in the fit\.$"):
        encoding.encode(Table(Path("u.csv"), {"x": np.array(["a"], dtype=object)}))


def test_infinite_and_empty_columns():
    table = Table(Path("t.csv"), {"x": np.array([1.0, np.inf]), "gone": np.array([np.nan, np.nan])})
    with pytest.raises(ValueError, match="infinite"):
        fit_encoding(table, ["x"]).encode(table)
    with pytest.raises(ValueError, match="'gone' is empty"):
        fit_encoding(table, ["gone"], impute="mean")


def test_no_cell_of_a_csv_is_a_formula(tmp_path):
    path = tmp_path / "t.csv"
    with path.open("w", newline="") as file:
        write_csv(file, {"=bad": ["=1+1", "@x", "-5", "ok"], "n": [-0.5, 1 / 3, 2, 3]})
    assert path.read_text().splitlines() == ["'=bad,n", "'=1+1,-0.5", "'@x,0.333333", "-5,2", "ok,3"]


@pytest.mark.parametrize(
    "before", ["", "\r", "\n", "\t", " ", "\u200b", "\ufeff", "\u202e\u2066", "\x00", "\xa0", "\u00ad\r"]
)
@pytest.mark.parametrize("formula", ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "＝1+1"])
def test_nothing_unseen_hides_a_formula(before, formula):
    file = StringIO()
    write_csv(file, {"row": [before + formula], "name": ["-1.5e3"]})
    [_, row] = csv.reader(StringIO(file.getvalue(), newline=""))
    assert row == [f"'{before}{formula}", "-1.5e3"]


def test_what_is_guarded_is_known_again_and_no_two_texts_are_guarded_alike():
    texts = ["=x", "'=x", "''=x", "'", "''", "'x", "x", "-5", "'-5", "' -5+1", " -5+1", "'\t", "\t", "", "it's =x"]
    cells = [guarded(each) for each in texts]
    assert [unguarded(each) for each in cells] == texts
    assert len(set(cells)) == len(texts)
    assert cells[:3] == ["'=x", "''=x", "'''=x"]


def test_columns_of_ours_never_take_the_name_of_another():
    own = {"class": [1], "class (graphuq)": [2], "row": [3]}
    assert beside(own, {"class": [4], "row": [5], "row (graphuq)": [6], "rank": [7]}) == {
        **own, "class (graphuq) (graphuq)": [4], "row (graphuq) (graphuq)": [5], "row (graphuq)": [6], "rank": [7],
    }  # fmt: skip


@pytest.mark.parametrize(("robust", "told"), [(True, "in robust units"), (False, "as they are")])
def test_a_constant_column_is_called_so(robust, told):
    columns = {"same": np.full(3, 0.1), "x": np.arange(3.0), "kind": np.array(["a", "a", "b"], dtype=object)}
    columns |= {"one": np.array(["a"] * 3, dtype=object), "pixels": np.arange(3600.0).reshape(3, 30, 40)}
    table = Table(Path("t.npz"), columns)
    encoding = fit_encoding(table, list(table.columns), categories=["kind", "one"])
    assert scaling_in_words(encoding, encoding.encode(table), robust=robust) == (
        f"2 columns constant, of no use to tell rows apart; 1,201 columns of numbers compared {told}; "
        "1 column of categories turned into 0 and 1"
    )


def test_what_was_made_up_is_counted():
    columns = {
        "x": np.array([1.0, np.nan, np.nan]),
        "kind": np.array(["a", "", "b"], dtype=object),
        "z": np.ones(3),
    }
    table = Table(Path("t.csv"), columns)
    told = "Missing values are filled in and then treated as known: 3, in 2 of the rows and 2 of the columns."
    assert filled_in(table, ["x", "kind", "z"]) == [told]
    assert filled_in(table, ["z"]) == []
    points = np.array([[np.nan, 1.0, np.nan], [np.nan, 1.0, 2.0], [1.0, 2.0, 3.0]])
    assert filled_in(Table(Path("t.npz"), {"points": points, "z": np.ones(3)}), ["points", "z"]) == [told]


def test_rows_of_nothing_at_the_end_are_not_there(tmp_path):
    """As spreadsheets leave them."""
    rows = [f"{k},{k % 3}" for k in range(12)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b", *rows, ",", ","]))
    table = read_table(tmp_path / "t.csv")
    assert table.n_rows == 12
    assert table.notes == ["The last 2 rows hold nothing: left out."]


def test_too_many_texts_are_not_proposed_as_categories(tmp_path):
    """Of a column that would be asked about as categories, both ways are named."""
    rows = [f"{k},note {k % 130}" for k in range(160)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b", *rows]))
    with pytest.raises(
        ValueError, match=r"130 different texts in 160 rows .* \(--category b\), or to be left out.* --drop b\."
    ):
        fit_encoding(read_table(tmp_path / "t.csv"), ["a", "b"])


def test_all_columns_that_new_rows_lack_are_named():
    columns = {name: np.arange(20) / 7 for name in ("a", "b", "c")}
    encoding = fit_encoding(Table(Path("t.csv"), columns), list(columns))
    with pytest.raises(ValueError, match=r"u.csv has no columns 'a' and 'c': there are 'b' and 'x'\."):
        encoding.encode(Table(Path("u.csv"), {"b": np.ones(2), "x": np.ones(2)}))
