import numpy as np
import pandas as pd
import polars as pl
import pytest

from graphuq.classes import read_labels

COLUMNS = {
    "integers": np.array([0, -1, 1, -1]),
    "floats with NaN": np.array([0.0, np.nan, 1.0, np.nan]),
    "floats with -1": np.array([0.0, -1.0, 1.0, -1.0]),
    "text": np.array(["a", "", "b", ""]),
    "text beside -1": np.array(["a", -1, "b", -1]),
    "text beside NaN": np.array(["a", np.nan, "b", np.nan]),
    "objects with None": np.array(["a", None, "b", None], dtype=object),
    "objects with NaN": np.array(["a", np.nan, "b", np.nan], dtype=object),
    "objects with -1": np.array(["a", -1, "b", -1], dtype=object),
    "a list": ["a", None, "b", None],
    "pandas integers with NA": pd.Series([0, pd.NA, 1, pd.NA], dtype="Int64"),
    "pandas text": pd.Series(["a", None, "b", None]),
    "pandas categories": pd.Series(["a", None, "b", None], dtype="category"),
    "polars integers": pl.Series([0, None, 1, None]),
    "polars text": pl.Series(["a", None, "b", None]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_every_way_to_mark_an_unlabeled_row(name):
    labels = read_labels(COLUMNS[name])
    assert labels.nodes.tolist() == [0, 2]
    assert labels.y.tolist() == [-1, 1]
    assert [str(each)[0] for each in labels.classes] in (["a", "b"], ["0", "1"])


@pytest.mark.parametrize(
    "y", [np.array([-1, 1, 1]), np.array([-1.0, 1.0, np.nan]), np.array([-1, 1, None], dtype=object)]
)
def test_a_class_called_minus_one_is_refused_with_advice(y):
    with pytest.raises(ValueError, match="no class can be called -1: rename it"):
        read_labels(y)


def test_one_class_three_classes_and_none():
    with pytest.raises(ValueError, match="Only one class, 7"):
        read_labels(np.array([7, 7, 7]))
    with pytest.raises(ValueError, match=r"Only binary classification is supported.*3 classes"):
        read_labels(np.array([0, 1, 2]))
    with pytest.raises(ValueError, match="No row is labeled"):
        read_labels(np.array([-1, -1]))


def test_numbers_and_text_do_not_mix():
    with pytest.raises(ValueError, match="text in some rows and numbers in others"):
        read_labels(np.array(["a", 1, None], dtype=object))


def test_amounts_are_no_classes():
    with pytest.raises(ValueError, match="continuous"):
        read_labels(np.array([0.3, 0.7, np.nan]))
    with pytest.raises(ValueError, match="infinity"):
        read_labels(np.array([0.0, np.inf]))


def test_known_classes():
    known = np.array(["a", "b"])
    assert read_labels(["b", None], classes=known).y.tolist() == [1]
    assert read_labels([None, None], classes=known).nodes.size == 0
    with pytest.raises(ValueError, match="'c' is none of the classes of fit, 'a' and 'b'"):
        read_labels(["c"], classes=known)


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
