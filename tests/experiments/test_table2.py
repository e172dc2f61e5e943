"""Table 2: the paper's rule by hand, and one small cell from end to end."""

import numpy as np
import pytest
from experiments import running_times, table2

from graphuq import PCN, prior, sample, spectrum
from graphuq.laplacian import normalized
from graphuq.models import GinzburgLandau, LevelSet, Probit

SMALL = table2.Config(n_steps=15_000, n_draws=200, n_steps_numpy=5, time_limit=60.0)


@pytest.fixture(scope="module")
def ring():
    weights = np.eye(12, k=1) + np.eye(12, k=-1) + np.eye(12, k=11) + np.eye(12, k=-11)
    return prior.full(spectrum.dense(normalized(weights)))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_moves_are_those_of_the_running_mean(ring):
    posterior = sample(ring, GinzburgLandau([0, 6], [1, -1]), PCN(), n_steps=40, n_warmup=0, n_chains=1)
    u = posterior.latent(np.arange(12))[0]  # every node is seen: nothing is left to chance
    means = [u[:end].mean(axis=0) for end in (10, 20, 30, 40)]
    expected = np.linalg.norm(np.diff(means, axis=0), axis=1)
    np.testing.assert_allclose(running_times.moves(posterior, 10), expected, rtol=1e-4)


@pytest.mark.parametrize("model", [Probit, LevelSet, GinzburgLandau])
def test_the_numpy_peer_runs_every_model(ring, model):
    assert running_times.numpy_step(ring, model([0, 6], [1, -1]), 0.3, 3) > 0


def test_a_cell_is_reproducible_but_for_its_seconds():
    first, again = (table2.run(SMALL, {"data": "voting", "model": "probit"}) for _ in range(2))
    assert first["rule"]["met"] == again["rule"]["met"]
    assert first["rule"]["acceptance"] == again["rule"]["acceptance"]
    assert first["effective"]["ess"] == again["effective"]["ess"] >= 400
    assert first["effective"]["stopped_by"] == "EffectiveSize"


def cell(data, model, stopped_by="EffectiveSize"):
    rule = {"seconds": 2.0, "n_steps": 20_000, "acceptance": 0.5, "r_hat": 1.0}
    rule["met"] = {"over_nodes": None, "per_node": 10_000}
    effective = {"sampler": "Orthant", "seconds": 3.0, "n_draws": 800, "ess": 410.0, "r_hat": 1.0}
    effective["stopped_by"] = stopped_by
    parts = {"rule": rule, "effective": effective, "numpy_step": 0.01, "preprocessing": 1.0}
    return {"data": data, "model": model, "machine": "here", "n_nodes": 100, **parts}


def test_claims_say_what_was_not_reached():
    cells = [cell(data, model) for data in table2.CASES for model in table2.MODELS]
    cells[1] = cell("voting", "level_set", "TimeLimit")
    lines = running_times.claims(cells)
    assert "not converged" in lines[1].ours
    assert "not converged" not in lines[0].ours
    assert "in NumPy 100 s" in lines[0].ours  # 10,000 draws at 0.01 s
    assert "over 20,000" in lines[0].note
    assert running_times.draw(cells, 400.0).axes
