import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special
from scipy.integrate import solve_ivp
from scipy.stats import norm

from graphuq.models import GinzburgLandau, LevelSet, Probit, double_well, relaxed_sign
from graphuq.models.probit import log_normal_cdf

NODES, Y = np.array([4, 1, 7]), np.array([1.0, -1.0, 1.0])


def test_probit_phi_is_minus_the_log_of_the_cdf():
    u = np.array([0.3, 0.2, -0.4])
    expected = -norm.logcdf(Y * u, scale=0.7).sum()
    assert float(Probit(NODES, Y, gamma=0.7).phi(jnp.asarray(u))) == pytest.approx(expected, rel=1e-6)


def test_probit_phi_is_finite_and_right_far_in_the_tail():
    """log(cdf) would be minus infinity here: log Psi(-t) = -t^2/2 - log(t sqrt(2 pi)) + O(t^-2)."""
    model = Probit([0, 1], [1.0, -1.0], gamma=1e-3)
    with jax.enable_x64(True):
        phi, slope = jax.value_and_grad(model.phi)(jnp.asarray([-1.0, -1.0]))
    t = 1000.0
    assert float(phi) == pytest.approx(t**2 / 2 + np.log(t * np.sqrt(2 * np.pi)), rel=1e-9)
    assert float(slope[0]) == pytest.approx(-t * 1000, rel=1e-5)


def test_level_set_counts_labels_on_the_wrong_side_and_zero_is_positive():
    model = LevelSet(NODES, Y, gamma=0.5)
    assert float(model.phi(jnp.asarray([0.0, -1.0, 2.0]))) == 0.0
    assert float(model.phi(jnp.asarray([-0.1, 0.0, 2.0]))) == pytest.approx(2 * 2 / 0.5**2)


def test_ginzburg_landau_phi_sums_the_well_over_all_nodes_and_the_misfit_over_labeled_ones():
    v = np.linspace(-1.5, 1.5, 9)
    expected = ((v**2 - 1) ** 2 / (4 * 2.0)).sum() + ((Y - v[NODES]) ** 2).sum() / (2 * 0.6**2)
    model = GinzburgLandau(NODES, Y, gamma=0.6, epsilon=2.0)
    assert float(model.phi(jnp.asarray(v))) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("model", [Probit(NODES, Y, gamma=0.3), GinzburgLandau(NODES, Y)])
def test_gradients_match_finite_differences(model):
    u = np.random.default_rng(0).normal(size=9 if isinstance(model, GinzburgLandau) else 3)
    with jax.enable_x64(True):
        slope = np.asarray(jax.grad(model.phi)(jnp.asarray(u)))
        for i, step in enumerate(1e-6 * np.eye(len(u))):
            numeric = (float(model.phi(jnp.asarray(u + step))) - float(model.phi(jnp.asarray(u - step)))) / 2e-6
            assert slope[i] == pytest.approx(numeric, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("start", [-1.7, -0.2, 0.05, 0.9, 2.0])
def test_relaxed_sign_is_the_gradient_flow_at_time_one(start):
    epsilon = 0.8
    with jax.enable_x64(True):
        slope = jax.grad(lambda v: double_well(v, epsilon))
        flow = solve_ivp(lambda _, v: [-float(slope(v[0]))], (0, 1), [start], rtol=1e-10, atol=1e-12)
        value = float(relaxed_sign(jnp.asarray(start), epsilon))
    assert value == pytest.approx(flow.y[0, -1], abs=1e-8)


def test_relaxed_sign_tends_to_the_sign():
    assert np.allclose(relaxed_sign(jnp.asarray([-0.3, 0.01, 2.0]), 0.05), [-1, 1, 1], atol=1e-5)


@pytest.mark.parametrize("model", [Probit, LevelSet, GinzburgLandau])
@pytest.mark.parametrize(
    ("nodes", "y", "message"),
    [
        ([], [], "No labels"),
        ([1, 2], [1, 0], "must be -1 or \\+1, got 0"),
        ([1, 2, 1], [1, -1, -1], "Node 1 is given both labels"),
        ([-1, 2], [1, -1], "from 0"),
        ([1, 2], [1], "one length"),
        ([1.5, 2.0], [1, -1], "integers"),
        ([1, 2], [1, np.nan], "must be -1 or \\+1"),
    ],
)
def test_bad_labels_are_refused(model, nodes, y, message):
    with pytest.raises((ValueError, TypeError), match=message):
        model(np.array(nodes, dtype=float if 1.5 in nodes else int), y)


def test_a_repeated_label_counts_once():
    model = Probit([3, 5, 3], [1, -1, 1])
    assert model.nodes.tolist() == [3, 5]
    assert model.y.tolist() == [1, -1]


@pytest.mark.parametrize("gamma", [0.0, -1.0, np.nan, np.inf])
def test_gamma_and_epsilon_must_be_positive(gamma):
    with pytest.raises(ValueError, match="gamma must be a finite number above 0"):
        Probit([0, 1], [1, -1], gamma=gamma)
    with pytest.raises(ValueError, match="epsilon must be a finite number above 0"):
        GinzburgLandau([0, 1], [1, -1], epsilon=gamma)


def test_one_class_only_is_allowed_with_a_warning():
    with pytest.warns(UserWarning, match="one class only"):
        LevelSet([0, 1], [1, 1])


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
