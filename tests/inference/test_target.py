"""The potential of z is Phi of the field, however it is computed."""

import jax
import numpy as np
import pytest

from graphuq.inference.target import Linear, LinearWithTail, Target
from graphuq.models import GinzburgLandau


@pytest.mark.parametrize("n_fields", [1, 3])
def test_few_labels_are_looked_at_apart(n_fields):
    rng = np.random.default_rng(0)
    B, nodes = rng.standard_normal((80, 6)), np.array([3, 50, 7, 64])
    z = rng.standard_normal((5, 6 * n_fields))
    model = GinzburgLandau(nodes, [0, 1, n_fields > 1 and 2, 1], gamma=0.4)
    assert model.n_fields == n_fields
    for some, apart in (
        (model, True),
        (GinzburgLandau(np.arange(80), np.arange(80) % (n_fields if n_fields > 1 else 2)), False),
    ):
        with jax.enable_x64(True):
            target = Target.of(Linear(B), some, "float64")
            found = jax.vmap(target.potential)(z)
        assert (target.labeled is not None) == apart
        u = np.einsum("nr,cfr->cnf", B, z.reshape(5, n_fields, 6))
        with jax.enable_x64(True):
            expected = [some.phi(each[:, 0] if n_fields == 1 else each) for each in u]
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_where_each_node_has_its_own_share_labels_are_looked_up():
    field = LinearWithTail(np.ones((40, 2)), np.zeros(40), np.ones(()))
    assert Target.of(field, GinzburgLandau([3, 4], [1, 0])).labeled is None
