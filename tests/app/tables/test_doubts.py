"""What a person may have overlooked is noted, and what is as it should be is not."""

from pathlib import Path

import numpy as np
import pytest

from graphuq.app.tables import encode
from graphuq.app.tables.doubts import notes_on
from graphuq.app.tables.read import Table
from graphuq.classes import read_labels

N = 40
RNG = np.random.default_rng(0)
CLASS = np.array(["no", "yes"], dtype=object)[np.arange(N) % 2]


def notes(columns, *, n_labeled=20, classes=CLASS, categories=(), named=False):
    table = Table(Path("t.csv"), {name: np.asarray(column) for name, column in columns.items()})
    labels = read_labels(np.where(np.arange(N) < n_labeled, classes, ""))
    return notes_on(table, list(columns), categories, labels, named=named)


def test_columns_that_count_rows():
    [note] = notes({"id": RNG.permutation(N) + 100.0})
    told = "Column 'id' counts the rows, which says nothing about them: "
    assert note == f"{told}let it name them (--id id), or leave it out (--drop id)."
    [note] = notes({"id": RNG.permutation(N) + 100.0}, named=True)
    assert note == f"{told}leave it out (--drop id)."
    assert notes({"x": RNG.normal(size=N), "age": RNG.integers(0, 90, N) * 1.0}) == []


@pytest.mark.parametrize(
    ("column", "n_labeled", "gives_away"),
    [
        (CLASS, 4, True),  # the same names: a copy
        (np.arange(N) % 2 * 1.0, 20, True),
        (np.arange(N) % 2 * 1.0, 4, False),  # by chance, with so few labels
        (np.where(CLASS == "yes", "j", "n").astype(object), 20, True),
        (
            np.arange(N) % 2 + RNG.normal(size=N) * 0.01,
            20,
            False,
        ),  # a number that tells classes apart is a good feature
        (RNG.integers(0, 2, N) * 1.0, 20, False),
        (np.zeros(N), 20, False),
    ],
)
def test_columns_that_give_the_answer_away(column, n_labeled, gives_away):
    found = notes({"made later": column}, n_labeled=n_labeled)
    assert bool(found) is gives_away
    if found:
        assert "tells the class of every labeled row by itself" in found[0]
        assert "(--drop 'made later')" in found[0]


def test_one_category_written_in_two_ways():
    towns = np.array(["Bonn", "bonn ", "Ulm", "Kiel"], dtype=object)[np.arange(N) % 4]
    [found] = notes({"town": towns}, categories=["town"])
    assert found.startswith("Categories of column 'town', 'Bonn' and 'bonn ' differ only")


def test_categories_that_are_names():
    [note] = notes({"who": np.array([f"p{k}" for k in range(N)], dtype=object)}, categories=["who"])
    assert note == "Column 'who' has 40 categories in 40 rows: names, or numbers with a unit?"


def test_very_many_categories(monkeypatch):
    """More than a fifth of the rows, but not so few as categories may be."""
    half = {"who": np.array([f"p{k // 2}" for k in range(N)], dtype=object)}
    assert notes(half, categories=["who"]) == []
    monkeypatch.setattr(encode, "MANY_LEVELS", 10)
    assert "has 20 categories in 40 rows" in notes(half, categories=["who"])[0]
