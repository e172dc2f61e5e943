"""Constants moved one at a time, on blobs: what is moved makes a difference, and is put back."""

from dataclasses import asdict

import numpy as np
import pytest
from experiments import choose, table_data
from experiments.experiment import Record
from experiments.runner import plain

from graphuq import feature_piece
from graphuq.learning import Hyperprior
from graphuq.posterior import mixture

SMALL = choose.Config(
    tables=("titanic",),
    separable=(),
    many=("vehicle",),
    overlapping=("tae",),
    settings=((12, 0.1),),
    per_class=(1, 2),
    of_overlapping=(12,),
    n_draws=1,
)


@pytest.fixture
def blobs(monkeypatch):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 20)
    X = rng.normal(size=(60, 2)) + 2 * np.eye(3)[y][:, :2]
    data = {"titanic": (X[:40], y[:40]), "vehicle": (X, y), "tae": (X, y)}
    monkeypatch.setattr(choose, "load", data.__getitem__)
    for name in ("MOVED", "LEFT_OUT"):
        monkeypatch.setattr(choose, name, ("mistakes",))
    monkeypatch.setattr(choose, "BENT_SHARES", (0.2,))
    monkeypatch.setattr(choose, "BENDINGS", (3.0,))
    monkeypatch.setattr(choose, "NEIGHBORS", (7,))
    monkeypatch.setattr(choose, "ENOUGH_MODES", (4e-3,))


def test_data_for_choosing_are_not_reported():
    chosen_on = {*choose.FULL.tables, *choose.FULL.many, *choose.FULL.overlapping}
    assert not chosen_on & {*table_data.REPORTING, *table_data.MANY, *table_data.OVERLAPPING, "vehicle1"}


def test_hyperpriors_differ_from_the_default_in_one_number():
    default = Hyperprior()
    found = choose.hyperpriors()
    assert len(found) == 2 * len(choose.MOVED) + len(choose.LEFT_OUT) + len(choose.shares())
    for name, each in found.items():
        changed = [key for key, value in vars(default).items() if getattr(each, key) != value]
        assert changed == [name.removeprefix("no ").split()[0]]


def test_a_record_tells_what_every_change_does_and_leaves_constants_alone(blobs):
    before = feature_piece.BENDING, mixture.TEMPERATURE, mixture.EXPONENT_OF_SINGLES
    results = plain([choose.run(SMALL, trial) for trial in choose.trials(SMALL)])
    assert before == (feature_piece.BENDING, mixture.TEMPERATURE, mixture.EXPONENT_OF_SINGLES)
    values = plain(choose.summarize(SMALL, results))
    assert set(values) == {
        "many classes",
        "tables, one label a class",
        "tables, many classes",
        "tables, a tenth wrong",
    }
    two, many = values["tables, a tenth wrong"]["changes"], values["many classes"]["changes"]
    assert {"no mistakes", "BENDING 3", "bent 0.2", "n_neighbors 7", "CARRIED 0.004"} <= set(two)
    assert two["BENDING 3"][0] != 0
    assert two["bent 0.2"][0] != 0
    singles = next(r["losses"] for r in results if r.get("per_class") == 1)
    assert singles["EXPONENT_OF_SINGLES 1.0"] != singles[choose.DEFAULT]
    assert len(many) == len(choose.TEMPERATURES) + len(choose.OF_SINGLES) + 1 + len(choose.shares())
    assert len(values["tables, many classes"]["changes"]) == len(choose.TEMPERATURES) + 1 + len(choose.shares())
    record = Record("choose", "quick", plain(asdict(SMALL)), values, 1.0, "0", "a machine")
    assert len(choose.claims(record)) == 4
    assert choose.draw(record).axes
