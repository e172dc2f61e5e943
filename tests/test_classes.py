import enum
import warnings
from datetime import UTC, date, datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.datasets import load_diabetes

from graphuq.classes import Labels, names_listed, read_labels, relabel

COLUMNS = {
    "integers": np.array([0, -1, 1, -1]),
    "floats with NaN": np.array([0.0, np.nan, 1.0, np.nan]),
    "floats with -1": np.array([0.0, -1.0, 1.0, -1.0]),
    "masked integers": np.ma.masked_array([0, 5, 1, 5], mask=[0, 1, 0, 1]),
    "text": np.array(["a", "", "b", ""]),
    "text beside -1": np.array(["a", -1, "b", -1]),
    "text beside NaN": np.array(["a", np.nan, "b", np.nan]),
    "text of any length": np.array(["a", np.nan, "b", ""], dtype=np.dtypes.StringDType()),
    "text of any length with None": np.array(["a", None, "b", None], dtype=np.dtypes.StringDType(na_object=None)),
    "masked text": np.ma.masked_array(["a", "a", "b", "a"], mask=[0, 1, 0, 1]),
    "objects with None": np.array(["a", None, "b", None], dtype=object),
    "objects with NaN": np.array(["a", np.nan, "b", np.nan], dtype=object),
    "objects with NaT": np.array(["a", pd.NaT, "b", pd.NaT], dtype=object),
    "objects with -1": np.array(["a", -1, "b", -1], dtype=object),
    "a list": ["a", None, "b", None],
    "pandas integers with NA": pd.Series([0, pd.NA, 1, pd.NA], dtype="Int64"),
    "pandas text": pd.Series(["a", None, "b", None]),
    "pandas categories": pd.Series(["a", None, "b", None], dtype="category"),
    "polars integers": pl.Series([0, None, 1, None]),
    "polars text": pl.Series(["a", None, "b", None]),
    "polars categories": pl.Series(["a", None, "b", None], dtype=pl.Categorical),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_every_way_to_mark_an_unlabeled_row(name):
    labels = read_labels(COLUMNS[name])
    assert labels.nodes.tolist() == [0, 2]
    assert labels.y.tolist() == [0, 1]
    assert [str(each)[0] for each in labels.classes] in (["a", "b"], ["0", "1"])


def test_a_day_may_be_a_class_and_no_day_is_none():
    days = np.array(["2020-01-02", "NaT", "2020-01-01", "2020-01-02"], dtype="datetime64[D]")
    labels = read_labels(days)
    assert labels.classes.tolist() == sorted(set(days[[0, 2]].tolist()))
    assert (labels.nodes.tolist(), labels.y.tolist()) == ([0, 2, 3], [1, 0, 1])


@pytest.mark.parametrize(
    "y", [np.array([-1, 1, 1]), np.array([-1.0, 1.0, np.nan]), np.array([-1, 1, None], dtype=object)]
)
def test_a_class_called_minus_one_is_refused_with_advice(y):
    with pytest.raises(ValueError, match="no class can be called -1: rename it"):
        read_labels(y)


def test_any_number_of_classes_but_none_and_one():
    with pytest.raises(ValueError, match=r"Only one class, 7, is labeled"):
        read_labels(np.array([7, 7, 7]))
    with pytest.raises(ValueError, match="No row is labeled: give at least one row of each of two classes"):
        read_labels(np.array([-1, -1]))
    with pytest.raises(ValueError, match="No row is labeled"):
        read_labels([])
    labels = read_labels(np.array(["c", "", "a", "b", "a"]))
    assert labels.classes.tolist() == ["a", "b", "c"]
    assert (labels.n_classes, labels.y.tolist(), labels.counts().tolist()) == (3, [2, 0, 1, 0], [2, 1, 1])
    many = np.random.default_rng(0).permutation(np.repeat(np.arange(1000), 2))
    assert np.array_equal(read_labels(many).y, many)
    with pytest.warns(UserWarning, match=r"21 different numbers in 21 labels.*cut them into ranges"):
        read_labels(np.arange(21))
    with pytest.warns(UserWarning, match="214 different numbers in 442 labels"):
        read_labels(load_diabetes().target)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_labels([f"species {i}" for i in range(30)]).n_classes == 30  # names are no amounts


def test_classes_keep_their_kind():
    assert read_labels(np.array([2.0, np.nan, 5.0])).classes.tolist() == [2.0, 5.0]
    assert read_labels(np.array([True, False])).classes.dtype == bool
    assert read_labels(np.array([0, 255], dtype=np.uint8)).classes.tolist() == [0, 255]
    assert read_labels(np.array([-2, 3, -1])).classes.tolist() == [-2, 3]


def test_gaps_leave_whole_numbers_what_they_are():
    """NumPy makes floats of them, in which these two are the same."""
    pandas, polars, pyarrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    y = [2**60 + 1, None, 2**60 + 2]
    arrow = pyarrow.array(y), pyarrow.chunked_array([y]), pyarrow.array(y).dictionary_encode()
    for column in (
        pandas.Series(y, dtype="Int64"),
        pandas.Series(pandas.Categorical(y)),
        polars.Series(y),
        *arrow,
    ):
        labels = read_labels(column)
        assert (labels.classes.tolist(), labels.nodes.tolist()) == ([2**60 + 1, 2**60 + 2], [0, 2])
    assert read_labels(polars.Series([1.0, None, 2.0])).classes.dtype == float
    assert read_labels(polars.Series([True, None, False])).classes.dtype == bool


def test_numbers_and_text_do_not_mix():
    with pytest.raises(ValueError, match="text in some rows and numbers in others"):
        read_labels(np.array(["a", 1, None], dtype=object))


def test_amounts_are_no_classes():
    with pytest.raises(ValueError, match="continuous"):
        read_labels(np.array([0.3, 0.7, np.nan]))
    with pytest.raises(ValueError, match="infinity"):
        read_labels(np.array([0.0, np.inf]))
    with pytest.raises(ValueError, match="should be a 1d array"):
        read_labels(np.zeros((3, 2)))
    with pytest.raises(TypeError, match="bytes: decode them"):
        read_labels(np.array([b"a", b"b"]))
    with pytest.raises(TypeError, match="text or whole numbers, got complex numbers"):
        read_labels(np.array([1j, 2j]))
    with pytest.raises(TypeError, match="text or whole numbers, one a row, got object"):
        read_labels(np.array([object(), object()]))
    with pytest.raises(TypeError, match="one class a row, got several"):
        read_labels(np.array([{1}, {2, 3}]))


def test_zeros_that_may_stand_for_unlabeled_are_no_secret():
    """-1 marks unlabeled rows here; who meant the classes -1 and 1, and 0 for unknown, is told."""
    meant_otherwise = np.array([1, -1, *[0] * 10])
    with pytest.warns(UserWarning, match=r"0 in 10 of 12 rows.*If 0 marks the unlabeled rows instead"):
        labels = read_labels(meant_otherwise)
    assert labels.classes.tolist() == [0, 1]
    for text in (str, object):  # as of a table
        with pytest.warns(UserWarning, match=r"0 in 10 of 12 rows"):
            read_labels(meant_otherwise.astype(str).astype(text))
    with pytest.warns(UserWarning, match=r"0 in 5 of 13 rows.*if all three are classes"):
        read_labels(np.repeat([-1, 0, 1], (3, 5, 5)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_labels(np.array([1, 0, *[-1] * 10]))
        read_labels(np.array([1, 2, *[0] * 10, -1]))
        read_labels(np.array([1, *[0] * 10]))


def test_one_class_written_in_two_ways_is_told():
    y = np.array(["yes", "Yes", "YES", "no", "n o", "no ", "maybe"])
    with pytest.warns(UserWarning, match="differ only") as told:
        assert read_labels(y).n_classes == 7
    assert [str(each.message) for each in told] == [
        "Classes 'YES', 'Yes' and 'yes' differ only in capitals or spaces: if they are one, write them alike.",
        "Classes 'n o', 'no' and 'no ' differ only in capitals or spaces: if they are one, write them alike.",
    ]


def test_names_that_look_alike_are_told_however_they_are_encoded():
    y = ["\u00e9mu", "e\u0301mu", "emu", "em\u200bu", "ant"]
    with pytest.warns(UserWarning, match="how letters are encoded") as told:
        assert read_labels(y).n_classes == 5
    assert [str(each.message) for each in told] == [
        f"Classes {pair} differ only in capitals, spaces or how letters are encoded: if they are one, write them alike."
        for pair in ("'emu' and 'em\\u200bu'", "'e\u0301mu' and '\u00e9mu'")
    ]


class Kind(str, enum.Enum):  # noqa: UP042 - as programs of older versions have them
    ANT = "ant"
    ANTEATER = "anteater"
    APE = "ape"


@pytest.mark.parametrize("as_column", [list, tuple, np.array, lambda y: np.array(y, dtype=object)])
def test_members_of_an_enum_that_are_text_are_that_text(as_column):
    """str() of them is their name, which NumPy cuts to the length of the text: two become one."""
    found = read_labels(as_column([Kind.ANT, None, Kind.APE, Kind.ANTEATER, Kind.ANT]))
    assert found.classes.tolist() == ["ant", "anteater", "ape"]
    assert (found.nodes.tolist(), found.y.tolist()) == ([0, 2, 3, 4], [0, 2, 1, 0])
    whole = read_labels([Kind.ANT, Kind.APE, Kind.ANTEATER])  # without a gap NumPy makes text of it at once
    assert whole.classes.tolist() == ["ant", "anteater", "ape"]
    assert read_labels([Kind.APE], classes=found.classes).y.tolist() == [2]


def test_known_classes():
    known = np.array(["a", "b"])
    assert read_labels(["b", None], classes=known).y.tolist() == [1]
    assert read_labels([None, None], classes=known).nodes.size == 0
    with pytest.raises(ValueError, match="of fit, 'a' and 'b': fit with a labeled row of it first"):
        read_labels(["c"], classes=known)
    with pytest.warns(
        UserWarning, match=r"'c' is none of the classes of fit, 'a' and 'b': no answer can be right"
    ):
        assert read_labels(["c", "b"], classes=known, others=True).y.tolist() == [-1, 1]


@pytest.mark.parametrize(
    ("values", "dtype", "classes"),
    [
        ([True, None, False], "boolean", [False, True]),
        ([3, None, 5], "Int64", [3, 5]),
        (["a", None, "b"], "string", ["a", "b"]),
        (["a", None, "b"], "category", ["a", "b"]),
    ],
)
def test_pandas_columns_with_gaps_keep_their_classes(values, dtype, classes):
    found = read_labels(pd.Series(values, dtype=dtype))
    assert found.classes.tolist() == classes
    assert found.nodes.tolist() == [0, 2]


THREE = Labels(np.array(["a", "b", "c"]), np.array([2, 5, 7]), np.array([0, 2, 1]))


def test_labels_are_replaced_added_and_taken_away():
    found = relabel(THREE, [5, 0, 7], ["a", "b", None], n_rows=9)
    assert (found.nodes.tolist(), found.y.tolist()) == ([0, 2, 5], [1, 0, 0])
    assert found.classes is THREE.classes
    assert found.counts().tolist() == [2, 1, 0]  # a class may be left without a label
    assert relabel(THREE, 0, "c", n_rows=9).nodes.tolist() == [0, 2, 5, 7]
    assert (THREE.nodes.tolist(), THREE.y.tolist()) == ([2, 5, 7], [0, 2, 1])


@pytest.mark.parametrize(
    ("nodes", "y", "message"),
    [
        ([9], ["a"], "nodes must lie between 0 and 8, got 9"),
        ([-1], ["a"], "nodes must lie between 0 and 8, got -1"),
        ([1.5], ["a"], "nodes must be a list of node numbers"),
        ([], [], "one or more row numbers"),
        ([1, 1], ["a", "b"], "must differ"),
        ([1, 2], ["a"], "2 nodes and 1 classes"),
        ([1], ["d"], "'d' is none of the classes of fit, 'a', 'b' and 'c'"),
        ([5, 7], [None, None], "Only one class would stay labeled"),
    ],
)
def test_wrong_replacements(nodes, y, message):
    with pytest.raises(ValueError, match=message):
        relabel(THREE, nodes, y, n_rows=9)


@pytest.mark.parametrize(
    ("classes", "y", "told"),
    [
        (np.arange(12), ["10"], "The classes given are text, such as '10', and those of fit are numbers: 0, 1, 2"),
        (
            np.array(["1", "2"]),
            [1, 2],
            "The classes given are numbers, such as 1, and those of fit are text: '1' and '2'",
        ),
        (np.arange(2), np.array(["2020-01-01"], dtype="datetime64[D]"), "The classes given are times, such as"),
    ],
)
def test_labels_of_another_kind_than_the_classes_are_refused(classes, y, told):
    """Compared as text, "10" would be sought between "1" and "2"."""
    for others in (False, True):
        with pytest.raises(ValueError, match=told):
            read_labels(y, classes=classes, others=others)


def test_half_a_letter_is_no_class():
    with pytest.raises(ValueError, match=r"holds '\\ud800', half a letter"):
        read_labels(["a", "b\ud800", "", ""])


def test_classes_in_a_sentence():
    assert names_listed(np.array(["a", "b"])) == "'a' and 'b'"
    assert names_listed(np.arange(3)) == "0, 1 and 2"
    assert names_listed(np.arange(100)) == "0, 1, 2, 3, 4, 5, 6, 7 and 92 more"


def test_dates_and_times_one_at_a_time():
    first, second = datetime(2020, 1, 1), datetime(2020, 1, 2, 3)
    labels = read_labels([first, None, second, first])
    assert labels.classes.dtype.kind == "M"
    assert labels.y.tolist() == [0, 1, 0]
    days = read_labels(np.array(["2020-01-01", "NaT", "2020-01-02"], dtype="datetime64[ns]"))
    for day in (date(2020, 1, 2), datetime(2020, 1, 2), pd.Timestamp("2020-01-02")):
        assert relabel(days, [1], day, n_rows=3).y.tolist() == [0, 1, 1]
    with pytest.raises(TypeError, match="text or whole numbers"):
        read_labels([first.replace(tzinfo=UTC), second.replace(tzinfo=UTC)])


def test_whole_numbers_that_floats_would_merge_beside_minus_one():
    labels = read_labels([2**63 + 1, -1, 2**63 + 2])
    assert labels.classes.tolist() == [2**63 + 1, 2**63 + 2]
    assert labels.nodes.tolist() == [0, 2]
