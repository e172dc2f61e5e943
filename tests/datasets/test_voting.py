import hashlib
from importlib.resources import files

import numpy as np

from graphuq.datasets import few_labels, voting_records


def test_the_bundled_file_is_the_canonical_one():
    content = files("graphuq.datasets").joinpath("house-votes-84.data").read_bytes()
    expected = "c87c14110a5ba91d4a1e313ec7392824458152bf071fa5f5452340488337936e"
    assert hashlib.sha256(content).hexdigest() == expected


def test_votes_and_parties():
    votes = voting_records()
    assert votes.X.shape == (435, 16)
    assert votes.X.dtype == np.float64
    assert (np.sum(votes.y == 1), np.sum(votes.y == -1)) == (267, 168)
    # UCI's description of the table counts 392 absent votes.
    assert np.sum(votes.X == 0) == 392
    # The first line: republican,n,y,n,y,y,y,n,n,n,y,?,y,y,y,n,y
    assert votes.y[0] == -1
    assert votes.X[0].tolist() == [-1, 1, -1, 1, 1, 1, -1, -1, -1, 1, 0, 1, 1, 1, -1, 1]
    assert votes.class_names == {1: "Democrat", -1: "Republican"}


def test_the_feature_names_are_in_the_order_of_the_columns():
    votes = voting_records()
    assert votes.feature_names is not None
    # The fee freeze split the House by party: 163 Republicans for, 2 against; Democrats 14 and 245.
    freeze = votes.X[:, votes.feature_names.index("physician fee freeze")]
    counts = [np.sum((votes.y == party) & (freeze == vote)) for party in (-1, 1) for vote in (1, -1)]
    assert counts == [163, 2, 14, 245]


def test_few_labels():
    y = voting_records().y
    nodes, labels = few_labels(y, {1: 3, -1: 2}, seed=4)
    assert labels.tolist() == [1, 1, 1, -1, -1]
    assert np.array_equal(y[nodes], labels)
    assert len(set(nodes)) == 5
