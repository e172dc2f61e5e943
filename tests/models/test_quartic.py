"""The polynomial is Ginzburg-Landau's Phi at every node, and is used where it is quicker."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from graphuq.inference.pcn import PCN
from graphuq.inference.reference import Referenced
from graphuq.inference.run import _block, _init
from graphuq.inference.target import Linear, LinearWithTail, Target
from graphuq.inference.tempering import Tempered
from graphuq.models import GinzburgLandau
from graphuq.models.quartic import MOST_LATENT, pays, quartic

N_NODES, N_LATENT = 5000, 6
RNG = np.random.default_rng(0)
B = RNG.standard_normal((N_NODES, N_LATENT)) / np.arange(1, N_LATENT + 1)
NODES = np.array([3, 4700, 17, 64, 2999])
MODEL = GinzburgLandau(NODES, [0, 1, 1, 0, 1], gamma=0.4, epsilon=0.7)
Z = RNG.standard_normal((7, N_LATENT))


def at_nodes(matrix, z):
    """The formula of Sec. 3.3, written out."""
    v, y = matrix @ z, np.where(np.asarray(MODEL.y) == 1, 1, -1)
    return np.sum((v**2 - 1) ** 2) / (4 * 0.7) + np.sum((y - v[NODES]) ** 2) / (2 * 0.4**2)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-6)])
def test_it_is_phi_at_every_node(dtype, tolerance):
    with jax.enable_x64(dtype == "float64"):
        target = Target.of(Linear(B), MODEL, dtype)
        assert target.reduced is not None
        z = jnp.asarray(Z, dtype)
        found, gradient = jax.vmap(jax.value_and_grad(target.potential))(z)
        over_nodes = jax.vmap(jax.grad(lambda z: target.phi(target.field(z))))(z)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, [at_nodes(B, each) for each in Z], rtol=tolerance)
    atol = 100 * tolerance * np.asarray(found).max()
    np.testing.assert_allclose(gradient, over_nodes, rtol=100 * tolerance, atol=atol)


def test_nodes_that_are_alike_leave_it_singular_and_right():
    few = B[RNG.integers(0, 4, N_NODES)]
    found = quartic(few, NODES, np.array([-1.0, 1, 1, -1, 1]), 0.4, 0.7)
    np.testing.assert_allclose(
        [found(jnp.asarray(each, "float32")) for each in Z], [at_nodes(few, each) for each in Z], rtol=1e-5
    )


def test_the_last_block_of_nodes_may_be_shorter(monkeypatch):
    monkeypatch.setattr("graphuq.models.quartic._BLOCK", 999)
    found = quartic(B, NODES, np.array([-1.0, 1, 1, -1, 1]), 0.4, 0.7)
    np.testing.assert_allclose(
        [found(jnp.asarray(each, "float32")) for each in Z], [at_nodes(B, each) for each in Z], rtol=1e-5
    )


def test_it_is_used_where_it_is_quicker():
    assert pays(286_720, 50)
    assert not pays(286_720, MOST_LATENT + 1)
    assert not pays(4_000, 50)
    assert Target.of(Linear(B[:100]), GinzburgLandau([3, 4], [0, 1])).reduced is None
    assert Target.of(Linear(B), GinzburgLandau([3, 4, 5], [0, 1, 2])).reduced is None
    tail = LinearWithTail(B, np.zeros(N_NODES), np.ones(()), np.ones(()))
    assert Target.of(tail, MODEL).reduced is None


def test_seen_from_a_reference_it_is_the_same():
    target = Target.of(Linear(B), MODEL)
    over_nodes = Target(target.field, target.phi)
    zeta = jnp.asarray(Z, "float32")
    found, expected = (
        jax.vmap(Referenced(Tempered()).prepare(each).inner.potential)(zeta) for each in (target, over_nodes)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_chains_take_the_same_steps():
    with jax.enable_x64(True):
        target = Target.of(Linear(B), MODEL, "float64")
        seeds, ends = np.arange(14, dtype=np.uint32).reshape(7, 2), []
        for each in (target, Target(target.field, target.phi)):
            state = _init(PCN(0.05), seeds, jnp.asarray(Z), each)
            ends.append(_block(PCN(0.05), 1, 200, False, seeds, state, each)[0].z)
    assert not np.allclose(ends[0], Z)
    np.testing.assert_allclose(*ends, rtol=1e-8)
