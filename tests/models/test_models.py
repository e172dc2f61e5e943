"""The functions that models are made of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special
from scipy.integrate import solve_ivp

from graphuq.models import GinzburgLandau, LevelSet, Probit, double_well, relaxed_sign, simplex_wells
from graphuq.models.probit import log_normal_cdf
from tests.oracles import simplex_corners


def test_probit_phi_is_finite_and_right_far_in_the_tail():
    """log(cdf) would be minus infinity here: log Psi(-t) = -t^2/2 - log(t sqrt(2 pi)) + O(t^-2)."""
    model = Probit([0, 1], [1, 0], gamma=1e-3)
    with jax.enable_x64(True):
        phi, slope = jax.value_and_grad(model.phi)(jnp.asarray([-1.0, -1.0]))
    t = 1000.0
    assert float(phi) == pytest.approx(t**2 / 2 + np.log(t * np.sqrt(2 * np.pi)), rel=1e-9)
    assert float(slope[0]) == pytest.approx(-t * 1000, rel=1e-5)


def test_level_set_counts_labels_on_the_wrong_side_and_zero_is_positive():
    model = LevelSet([4, 1, 7], [1, 0, 1], gamma=0.5)
    assert float(model.phi(jnp.asarray([0.0, -1.0, 2.0]))) == 0.0
    assert float(model.phi(jnp.asarray([-0.1, 0.0, 2.0]))) == pytest.approx(2 * 2 / 0.5**2)


@pytest.mark.parametrize("start", [-1.7, -0.2, 0.05, 0.9, 2.0])
def test_relaxed_sign_is_the_gradient_flow_at_time_one(start):
    epsilon = 0.8
    with jax.enable_x64(True):
        slope = jax.jit(jax.grad(lambda v: double_well(v, epsilon)))
        flow = solve_ivp(lambda _, v: [-float(slope(v[0]))], (0, 1), [start], rtol=1e-10, atol=1e-12)
        value = float(relaxed_sign(jnp.asarray(start), epsilon))
    assert value == pytest.approx(flow.y[0, -1], abs=1e-8)


def test_relaxed_sign_tends_to_the_sign():
    assert np.allclose(relaxed_sign(jnp.asarray([-0.3, 0.01, 2.0]), 0.05), [-1, 1, 1], atol=1e-5)


def test_two_wells_of_a_simplex_are_the_double_well_of_the_difference():
    v = np.random.default_rng(0).normal(size=(20, 2))
    np.testing.assert_allclose(simplex_wells(v, 0.7), double_well(v[:, 1] - v[:, 0], 0.7), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_wells_lie_at_the_corners_and_are_as_narrow_for_any_number_of_classes(n_classes):
    """There the potential is 0, and its curvature towards any other corner that of the double well: 2 / epsilon."""
    epsilon, corners = 0.3, simplex_corners(n_classes)
    with jax.enable_x64(True):
        np.testing.assert_allclose(simplex_wells(jnp.asarray(corners + 5.0), epsilon), 0, atol=1e-10)
        way = corners[1] - corners[0]
        hessian = jax.jit(jax.hessian(lambda v: simplex_wells(v, epsilon)))(jnp.asarray(corners[0]))
    along = way @ np.asarray(hessian) @ way / 4  # v_1 - v_0 moves by 2 along the way
    assert along == pytest.approx(2 / epsilon, rel=1e-8)


def test_log_normal_cdf_in_single_precision_and_its_gradient():
    x = np.concatenate([np.linspace(-1e4, -10, 101), np.linspace(-10, 10, 4001), [0.0, 30.0, 1e4]]).astype(
        np.float32
    )
    expected = special.log_ndtr(x.astype(float))
    found = np.asarray(log_normal_cdf(jnp.asarray(x)), dtype=float)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    slope = np.exp(-(x.astype(float) ** 2) / 2 - expected) / np.sqrt(2 * np.pi)
    found = np.asarray(jax.vmap(jax.grad(log_normal_cdf))(jnp.asarray(x)), dtype=float)
    np.testing.assert_allclose(found, slope, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "value"), [("gamma", 1e-10), ("epsilon", 1e-30)])
def test_wells_and_labels_sharper_than_doubles_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} of Ginzburg-Landau must be at least"):
        GinzburgLandau([0, 1], [0, 1], **{name: value})


def test_walls_are_no_higher_than_single_precision_can_square():
    """Chains that begin on the wrong side fall off them; at gamma = 1e-9 one ended in no number at all."""
    nodes, y = np.arange(4), np.array([0, 0, 1, 1])
    assert LevelSet(nodes, y, gamma=1e-9).walls().height == 1e4
    assert LevelSet(nodes, y, gamma=0.1).walls().height == pytest.approx(200)
    assert LevelSet(nodes, y, gamma=0.1, n_fields=2).walls().height == pytest.approx(100)
