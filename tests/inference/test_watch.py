"""Convergence is judged by what is reported: chains stuck on different sides of labels must not pass for converged."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from graphuq.inference.pcn import PCN
from graphuq.inference.run import sample
from graphuq.inference.watch import N_EACH, quantities, watched_nodes
from graphuq.inference.whiten import OnModes
from graphuq.models import LevelSet, Probit
from graphuq.posterior import Draws
from graphuq.prior import GaussianPrior

N_CHAINS, N_DRAWS = 8, 400


def white(n_nodes):
    """Every node its own mode: z is u."""
    return GaussianPrior(np.eye(n_nodes), np.ones(n_nodes), 0.0, "white")


def made_of(u, model):
    """Draws that hold u at all nodes, shape (chains, draws, nodes) or (..., fields)."""
    whitening = OnModes(white(u.shape[2]), model.nodes)
    z = (u if u.ndim == 3 else np.moveaxis(u, 3, 2)).reshape(*u.shape[:2], -1).astype(np.float32)
    return Draws(whitening, model, z, np.ones(z.shape[:2]), np.ones(z.shape[:2]), {})


def normals(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal((N_CHAINS, N_DRAWS, *shape))


def r_hat_of(found, beginning):
    return np.array([r for r, name in zip(found.r_hat, found.names, strict=True) if name.startswith(beginning)])


def test_chains_that_moved_alike_have_converged():
    found = made_of(normals(6), LevelSet([0, 1, 2], [1, 0, 1], gamma=1.0)).diagnostics()
    assert found.converged
    assert found.names[-1] == "Phi"
    assert found.nodes[-1] == -1
    assert len(found.names) == len(found.nodes) == len(found.r_hat) == len(found.ess_bulk) == len(found.ess_tail)
    assert [name for name in found.names if name.startswith("class")] != []


def test_patterns_of_signs_that_chains_do_not_leave_show_in_phi_where_u_and_its_signs_look_fine():
    """Labels that contradict each other: half of the chains keep both values on one side, the others on two."""
    u = normals(4)
    together = np.arange(N_CHAINS)[:, None] < N_CHAINS // 2
    u[:, :, 1] = np.abs(u[:, :, 1]) * np.where(together, 1, -1) * np.sign(u[:, :, 0])
    found = made_of(u, LevelSet([0, 1], [1, 0], gamma=0.2)).diagnostics()
    assert r_hat_of(found, "u ").max() < 1.02
    assert r_hat_of(found, "class").max() < 1.02
    assert r_hat_of(found, "Phi") > 1.05
    assert not found.converged
    assert "Not converged" in str(found)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_label_that_chains_disagree_about_is_found_among_many(n_classes):
    """One label of sixty, not among the watched ones: half of the chains never have it right."""
    n_labels, stuck = 60, 31
    y = np.arange(n_labels) % n_classes
    model = LevelSet(np.arange(n_labels), y, gamma=1.0)
    u = normals(n_labels + 5) if n_classes == 2 else normals(n_labels + 5, n_classes)
    right = np.arange(N_CHAINS)[:, None] < N_CHAINS // 2
    assert made_of(u, model).diagnostics().converged
    if n_classes == 2:
        u[:, :, stuck] = np.abs(u[:, :, stuck]) * np.where(right, 1, -1) * (2 * y[stuck] - 1)
    else:
        other = (y[stuck] + 1) % 3
        high, low = np.sort(u[:, :, stuck][..., [y[stuck], other]], axis=2)[..., ::-1].transpose(2, 0, 1)
        u[:, :, stuck, y[stuck]], u[:, :, stuck, other] = np.where(right, high, low), np.where(right, low, high)
    posterior = made_of(u, model)
    assert stuck not in watched_nodes(posterior.whitening, model)
    found = posterior.diagnostics()
    assert r_hat_of(found, "u").max() < 1.05
    assert r_hat_of(found, f"class at {stuck}") > 1.1
    assert not found.converged


def test_what_is_constant_in_all_chains_does_not_count():
    """Every label right at every draw: neither the sides nor Phi vary, and u alone is left to judge."""
    u, y = normals(5), np.array([1, 0, 1])
    u[:, :, :3] = np.abs(u[:, :, :3]) * (2 * y - 1)
    found = made_of(u, LevelSet([0, 1, 2], y, gamma=0.1)).diagnostics()
    assert all(name.startswith("u at") for name in found.names)
    assert np.isfinite(found.r_hat).all()
    assert np.isfinite(found.ess_tail).all()
    assert found.converged
    frozen = made_of(np.broadcast_to(u[:1, :1], u.shape), LevelSet([0, 1, 2], y, gamma=0.1)).diagnostics()
    assert not frozen.converged
    assert "has not moved" in str(frozen)


class NeverCrosses(PCN):
    """Rejects what would change the side of a label: every chain stays in the pattern of signs it started in."""

    def step(self, key, state, problem, warm):
        new, info = super().step(key, state, problem, warm)
        crossed = jnp.any((problem.field(new.z) >= 0) != (problem.field(state.z) >= 0))
        return new._replace(
            z=jnp.where(crossed, state.z, new.z), potential=jnp.where(crossed, state.potential, new.potential)
        ), info


def two_cliques(n_each=6, apart=1e-3):
    """Two groups whose nodes all but share one value."""
    rng = np.random.default_rng(0)
    of_group = np.kron(np.eye(2), np.ones((n_each, 1)))
    vectors = np.concatenate([of_group, apart * rng.standard_normal((2 * n_each, 4))], axis=1)
    return GaussianPrior(vectors, np.ones(6), 0.0, "two cliques")


@pytest.mark.parametrize("seed", [0, 1])
def test_chains_that_cannot_cross_labels_that_contradict_each_other(seed):
    prior = two_cliques()
    model = LevelSet([0, 1, 6, 7], [1, 0, 1, 0], gamma=0.3)
    with pytest.warns(ConvergenceWarning, match="Not converged"):
        posterior = sample(prior, model, NeverCrosses(), n_steps=400, n_warmup=100, seed=seed, dtype="float32")
    assert posterior.z.dtype == np.float32
    assert not posterior.diagnostics().converged


def test_quantities_have_names_nodes_and_one_shape():
    model = Probit([0, 1, 2], [0, 1, 2], gamma=0.5)
    whitening, z = OnModes(white(25), model.nodes), normals(3 * 25).astype(np.float32)
    values, names, nodes = quantities(whitening, model, z)
    watched = watched_nodes(whitening, model)
    assert len(watched) == 3 + N_EACH
    assert values.shape == (N_CHAINS, N_DRAWS, len(names))
    assert names[: 3 * len(watched)] == [f"u{k} at {node}" for k in range(3) for node in watched]
    assert names[-1] == "Phi"
    assert (nodes >= 0)[:-1].all()
    # Only differences between the fields matter: what is common to them is left out.
    fields = values[..., : 3 * len(watched)].reshape(N_CHAINS, N_DRAWS, 3, -1)
    np.testing.assert_allclose(fields.sum(axis=2), 0, atol=1e-5)
    assert quantities(whitening, model, z, with_phi=False)[1][-1] != "Phi"


def test_phi_that_is_watched_is_that_of_the_model():
    model = Probit([0, 1, 2], [0, 1, 2], gamma=0.5)
    whitening, z = OnModes(white(3), model.nodes), normals(9).astype(np.float32)
    phi = quantities(whitening, model, z)[0][..., -1]
    for chain, draw in ((0, 0), (3, 17), (7, 399)):
        expected = float(model.phi(jnp.asarray(z[chain, draw].reshape(3, 3).T)))
        assert phi[chain, draw] == pytest.approx(expected, rel=1e-4)
