"""What every model has in common: Phi by its definition, symmetries, what it offers, and the labels it takes."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr

from graphuq import models
from graphuq.inference.gradient import NUTS
from graphuq.inference.map import find_mode
from graphuq.inference.orthant import Orthant
from graphuq.inference.reference import Referenced
from graphuq.inference.sampler import Sampler
from graphuq.inference.target import Linear, Target
from graphuq.learning import learn
from graphuq.models import GinzburgLandau, LevelSet, Probit
from graphuq.models.base import labeled, labels_of, warned_before
from tests.oracles import four_priors, random_spectrum, simplex_corners

NODES, N_SEEN = np.array([4, 1, 7]), 9
KINDS = {
    "probit": lambda **labels: Probit(NODES, gamma=0.7, **labels),
    "probit_with_mistakes": lambda **labels: Probit(NODES, gamma=0.7, delta=0.05, **labels),
    "level_set": lambda **labels: LevelSet(NODES, gamma=0.8, **labels),
    "ginzburg_landau": lambda **labels: GinzburgLandau(NODES, gamma=0.6, epsilon=2.0, **labels),
}
SIZES = {
    "one_field": {"y": [1, 0, 1]},
    "two_fields": {"y": [1, 0, 1], "n_fields": 2},
    "three_classes": {"y": [2, 0, 1]},
}
MODELS = {(kind, size): make(**labels) for kind, make in KINDS.items() for size, labels in SIZES.items()}
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=["-".join(each) for each in MODELS])
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
PRIOR = four_priors(random_spectrum(seed=2))["full"]


def fields(model, seed=0, scale=1.0):
    """u at the nodes that the model sees."""
    n_seen = N_SEEN if model.sees_all_nodes else len(NODES)
    u = scale * np.random.default_rng(seed).normal(size=(n_seen, model.n_fields))
    return u[:, 0] if model.n_fields == 1 else u


def at_labels(model, u):
    return u[NODES] if model.sees_all_nodes else u


def call(model, name, u, dtype="float64"):
    """A function of u that a model has, or the gradient or the Hessian of Phi."""
    with jax.enable_x64(dtype == "float64"):
        return np.asarray(_compiled(name, model, jnp.asarray(u, dtype)))


@partial(jax.jit, static_argnums=0)
def _compiled(name, model, u):
    if name == "hessian":
        return jax.hessian(lambda x: model.phi(x.reshape(u.shape)))(u.ravel())
    return jax.grad(model.phi)(u) if name == "gradient" else getattr(model, name)(u)


def plain_probability(model, u, label):
    """P(label | u) at one node up to a constant, from the definition in each docstring."""
    if isinstance(model, GinzburgLandau):
        if model.n_fields == 1:
            return np.exp(-((2 * label - 1 - u) ** 2) / (2 * model.gamma**2))
        w = u - u.mean()
        return np.exp(-np.square(w - simplex_corners(len(u))[label]).sum() / model.gamma**2)
    if isinstance(model, LevelSet):
        if model.n_fields == 1:
            return np.exp(-((2 * label - 1 - (1 if u >= 0 else -1)) ** 2) / (2 * model.gamma**2))
        corners = np.eye(len(u))
        return np.exp(-np.square(corners[label] - corners[u.argmax()]).sum() / (2 * model.gamma**2))
    ratio = model.delta / (1 - model.delta)
    if model.n_fields == 1:
        right = ndtr((2 * label - 1) * u / model.gamma)
        return model.delta + (1 - 2 * model.delta) * right
    others = np.delete(u, label)

    def integrand(x):
        """Given g of the label's own field, every other one is above it by itself, and costs a rank."""
        below = ndtr((x - others) / model.gamma)
        density = np.exp(-(((x - u[label]) / model.gamma) ** 2) / 2) / (model.gamma * np.sqrt(2 * np.pi))
        return density * np.prod(below + ratio * (1 - below))

    middle = [u[label], *others]
    value = quad(integrand, min(middle) - 8, max(middle) + 8, points=middle, epsrel=1e-11, limit=400)[0]
    return value / sum(ratio**m for m in range(len(u)))


def plain_phi(model, u):
    misfit = -sum(
        math.log(plain_probability(model, each, label))
        for each, label in zip(at_labels(model, u), model.y, strict=True)
    )
    return misfit + plain_wells(model, u)


def plain_wells(model, u):
    if not isinstance(model, GinzburgLandau):
        return 0.0
    if model.n_fields == 1:
        return np.square(u**2 - 1).sum() / (4 * model.epsilon)
    w = u - u.mean(axis=1, keepdims=True)
    squared = np.square(w[:, None] - simplex_corners(u.shape[1])).sum(axis=2)
    return 4 / model.epsilon * np.prod(squared / 2, axis=1).sum()


@every_model
@pytest.mark.parametrize("scale", [0.1, 1.0, 4.0])
def test_phi_is_its_definition(model, scale):
    u = fields(model, scale=scale)
    assert call(model, "phi", u) == pytest.approx(plain_phi(model, u), rel=1e-7, abs=1e-9)
    assert float(call(model, "phi", u, "float32")) == pytest.approx(plain_phi(model, u), rel=1e-5, abs=1e-5)


def total_probability(model, u):
    """What `plain_probability` adds up to over labels: the integral over real ones, in units in which two are 2 apart."""
    if isinstance(model, GinzburgLandau):
        grid = np.linspace(-9, 9, 181)
        if model.n_fields == 1:
            return np.exp(-((grid - u) ** 2) / (2 * model.gamma**2)).sum() * 0.1
        t = np.stack(np.meshgrid(*[grid] * (len(u) - 1)), axis=-1).reshape(-1, len(u) - 1)
        labels = t @ np.linalg.svd(simplex_corners(len(u)))[2][:-1] / np.sqrt(2)  # in the plane of the corners
        misfit = np.square(u - u.mean() - labels).sum(axis=1)
        return np.exp(-misfit / model.gamma**2).sum() * 0.1 ** (len(u) - 1)
    return sum(plain_probability(model, u, label) for label in range(model.n_classes))


@every_model
def test_log_likelihood_is_that_of_each_label(model):
    u = fields(model)
    found = call(model, "log_likelihood", u)
    assert found.shape == NODES.shape
    expected = [
        math.log(plain_probability(model, each, label) / total_probability(model, each))
        for each, label in zip(at_labels(model, u), model.y, strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)
    small = fields(model, seed=1, scale=0.5)  # and Phi is the sum over labels and wells, up to a constant
    change = call(model, "phi", u) - call(model, "phi", small)
    of_labels = (call(model, "log_likelihood", small) - found).sum()
    assert change == pytest.approx(plain_wells(model, u) - plain_wells(model, small) + of_labels, rel=1e-9)


@pytest.mark.parametrize("delta", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("n_classes", [2, 3, 10])
@pytest.mark.parametrize("scale", [0.3, 3.0, 30.0])
def test_probabilities_of_all_labels_of_probit_add_to_one(scale, n_classes, delta):
    rng = np.random.default_rng(1)
    settings = {"gamma": 0.5, "delta": delta, "n_classes": n_classes}
    for n_fields in {1, 2} if n_classes == 2 else {n_classes}:
        u = scale * rng.normal(size=(20, n_fields))
        u = u[:, 0] if n_fields == 1 else u
        with pytest.warns(UserWarning, match="one class only"):
            each = [Probit(np.arange(20), np.full(20, c), n_fields=n_fields, **settings) for c in range(n_classes)]
        total = sum(np.exp(call(model, "log_likelihood", u)) for model in each)
        np.testing.assert_allclose(total, 1, atol=1e-7)


def exact_log_likelihood(lead, delta):
    """By a fine sum over the noise of the label's own field, which has to make up for what it lacks."""
    from scipy.special import log_ndtr, logsumexp

    x = np.linspace(-12, 120, 40_001)
    ahead = log_ndtr(x[:, None] + lead)
    ratio = delta / (1 - delta)
    if ratio:
        ahead = np.logaddexp(ahead, math.log(ratio) + log_ndtr(-x[:, None] - lead))
    log_integral = logsumexp(ahead.sum(axis=1) - x**2 / 2) + np.log((x[1] - x[0]) / np.sqrt(2 * np.pi))
    return log_integral - math.log(sum(ratio**m for m in range(len(lead) + 1)))


@pytest.mark.parametrize("delta", [0.0, 1e-4, 0.05])
@pytest.mark.parametrize("n_classes", [3, 10])
def test_probit_is_right_where_the_label_lies_far_behind(n_classes, delta):
    """One rival far ahead, some, or all of them; a mistake then explains the label better than the noise."""
    lead = np.full((12, n_classes - 1), 3.0)
    for i, lag in enumerate((2.0, 10.0, 20.0, 60.0)):
        lead[3 * i : 3 * i + 3, 0] = -lag
        lead[3 * i + 1, : n_classes // 2] = -np.linspace(lag / 2, lag, n_classes // 2)
        lead[3 * i + 2] = -lag
    u = np.insert(-lead, 0, 0.0, axis=1)
    with pytest.warns(UserWarning, match="one class only"):
        model = Probit(np.arange(12), np.zeros(12), gamma=1.0, delta=delta, n_classes=n_classes)
    expected = np.array([exact_log_likelihood(each, delta) for each in lead])
    np.testing.assert_allclose(call(model, "log_likelihood", u), expected, atol=1e-6)
    single = call(model, "log_likelihood", u, "float32")
    np.testing.assert_allclose(single, expected, rtol=1e-5, atol=1e-5)


@every_model
def test_renamed_classes_rename_the_fields(model):
    u = fields(model)
    if model.n_fields == 1:
        other, moved = replace(model, y=1 - model.y), -u
    else:
        order = np.random.default_rng(3).permutation(model.n_fields)
        other, moved = replace(model, y=order[model.y]), u[:, np.argsort(order)]
    np.testing.assert_allclose(call(other, "phi", moved), call(model, "phi", u), rtol=1e-12)


@every_model
def test_permuted_labels_are_the_same_model(model):
    order = np.array([2, 0, 1])
    other = replace(model, nodes=NODES[order], y=model.y[order])
    u = fields(model)
    moved = u if model.sees_all_nodes else u[order]
    np.testing.assert_allclose(call(other, "phi", moved), call(model, "phi", u), rtol=1e-12)


@every_model
def test_only_differences_between_fields_matter(model):
    u = fields(model)
    if model.n_fields > 1:
        shifted = u + np.random.default_rng(2).normal(size=(len(u), 1))
        np.testing.assert_allclose(call(model, "phi", shifted), call(model, "phi", u), rtol=1e-7)


@every_model
@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_gradients_match_finite_differences(model, scale):
    u = fields(model, scale=scale)
    slope = call(model, "gradient", u)
    if isinstance(model, LevelSet):
        assert not slope.any()
        return
    numeric = np.empty_like(u)
    for index in np.ndindex(u.shape):
        step = np.zeros_like(u)
        step[index] = 1e-5
        numeric[index] = (call(model, "phi", u + step) - call(model, "phi", u - step)) / 2e-5
    np.testing.assert_allclose(slope, numeric, rtol=1e-6, atol=1e-6)


@every_model
def test_the_curvature_is_bounded_as_the_model_says(model):
    """On [-1, 1], or between the corners of the simplex; that of probit is convex."""
    if isinstance(model, LevelSet):
        assert model.curvature().bound == np.inf
        return
    said = model.curvature()
    for seed in range(5):
        rng = np.random.default_rng(seed)
        n_seen = len(fields(model))
        u = (
            rng.uniform(-1, 1, n_seen)
            if model.n_fields == 1
            else rng.dirichlet(np.full(model.n_fields, 0.3), n_seen)
        )
        values = np.linalg.eigvalsh(call(model, "hessian", u))
        assert values.max() <= said.bound * (1 + 1e-9)
        assert not said.convex or values.min() >= -1e-9
    assert said.convex == (isinstance(model, Probit) and not model.delta)


@every_kind
def test_two_fields_are_the_model_of_their_difference(make):
    """Of u_1 - u_0, whose prior is twice as wide: with sqrt(2) times the noise, or a wall half as high."""
    one, two = make(**SIZES["one_field"]), make(**SIZES["two_fields"])
    if isinstance(one, Probit):
        one = replace(one, gamma=one.gamma * math.sqrt(2))
    if isinstance(one, LevelSet):  # 1 / gamma^2 for another corner, 2 / gamma^2 for another sign
        two = replace(two, gamma=two.gamma / math.sqrt(2))
    for seed in range(4):
        u = fields(two, seed=seed)
        found, expected = call(two, "log_likelihood", u), call(one, "log_likelihood", u[:, 1] - u[:, 0])
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(call(two, "phi", u), call(one, "phi", u[:, 1] - u[:, 0]), rtol=1e-7)


@every_model
def test_what_a_model_is(model):
    assert model.n_classes == (3 if model.n_fields == 3 else 2)
    assert model.noise == (0.7 if isinstance(model, Probit) else 0.0)
    is_real = isinstance(model, GinzburgLandau)
    assert model.sees_all_nodes == model.labels_are_real == is_real
    assert isinstance(model.y, np.ndarray)
    assert model.y.dtype == model.nodes.dtype == np.int64
    sampler: Sampler = model.default_sampler()
    assert isinstance(sampler, Referenced if is_real else Orthant)


def asked(model, name):
    """What a model says when it is asked for this."""
    return labels_of(model) if name == "y" else getattr(model, name)(*([np.eye(3)] if name == "reference" else []))


def use_of(name, model):
    """What asks a model for this."""
    target = Target.of(Linear(jnp.eye(3)), model)
    return {
        "sites": lambda: learn(random_spectrum(seed=2), model),
        "walls": lambda: Orthant().prepare(target),
        "reference": lambda: Referenced().prepare(target),
        "hyperprior": model.hyperprior,
    }[name]


LACKS = {
    ("ginzburg_landau", "one_field"): {"sites", "walls", "hyperprior"},
    ("ginzburg_landau", "two_fields"): {"sites", "walls", "hyperprior"},
    ("ginzburg_landau", "three_classes"): {"sites", "walls", "hyperprior"},
    ("level_set", "two_fields"): {"sites", "reference"},
    ("level_set", "three_classes"): {"sites", "reference"},
}


@pytest.mark.parametrize("key", MODELS, ids=["-".join(each) for each in MODELS])
def test_what_a_model_does_not_offer_is_one_type_error(key):
    model = MODELS[key]
    for name in ("sites", "walls", "reference", "hyperprior"):
        if name in LACKS.get(key, set()):
            assert not model.offers(name)
            with pytest.raises(TypeError, match=f"^{type(model).__name__} offers no "):
                asked(model, name)
            with pytest.raises(TypeError, match=f"^{type(model).__name__} offers no "):
                use_of(name, model)()
        elif name != "reference":  # that of sites stands in for it
            assert model.offers(name)
            assert asked(model, name) is not None


class Nothing(models.Model):
    """A model of one's own that says nothing of itself."""

    nodes = np.arange(3)

    def phi(self, u):
        return jnp.sum(u**2)


def test_a_model_that_says_nothing():
    model = Nothing()
    assert (model.n_classes, model.n_fields, model.noise, model.mistake_rate, model.numbers) == (2, 1, 0, 0, ())
    assert not model.sees_all_nodes
    assert not model.labels_are_real
    assert model.curvature() == (1.0, False)
    for name in ("y", "sites", "walls", "reference", "hyperprior"):
        assert not model.offers(name)
        with pytest.raises(TypeError, match=r"^Nothing "):
            asked(model, name)
    assert model.reduced(np.eye(3)) is None
    assert isinstance(model.default_sampler(), NUTS)
    assert NUTS().prepare(Target.of(Linear(jnp.eye(3)), model)) is not None
    assert find_mode(PRIOR, model).converged


def test_a_model_must_inherit():
    class Duck:
        def __init__(self, nodes, y):
            self.nodes = nodes

        phi = Nothing.phi

    message = r"^Duck must inherit from graphuq\.models\.Model: write class Duck\(graphuq\.models\.Model\)\.$"
    with pytest.raises(TypeError, match=message):
        find_mode(PRIOR, Duck(NODES, None))
    with pytest.raises(TypeError, match=message):
        labeled(Duck, NODES, np.array([1, 0, 1]), 2)
    with pytest.raises(TypeError, match=r"abstract method '?phi"):
        type("Mute", (models.Model,), {"nodes": NODES})()


def test_fields_of_a_dataclass_stand_for_what_is_inherited():
    @dataclass(frozen=True)
    class Own(models.Model):
        nodes: np.ndarray
        y: np.ndarray
        weights: np.ndarray  # no default is inherited before it
        n_fields: int = 2
        noise: float = 0.5

        def phi(self, u):
            return jnp.sum(self.weights * u**2)

    own = Own(NODES, np.array([1, 0, 1]), np.ones(3))
    assert (own.n_fields, own.noise, own.n_classes) == (2, 0.5, 2)
    assert own.offers("y")
    assert not own.offers("y", "sites")
    np.testing.assert_array_equal(labels_of(own), [1, 0, 1])


@every_kind
def test_a_model_without_labels_waits_for_them(make):
    template = replace(make(**SIZES["one_field"]), nodes=None, y=None, n_classes=None, n_fields=None)
    assert template.nodes is None
    two = labeled(template, NODES, np.array([1, 0, 1]), 2)
    three = labeled(template, NODES, np.array([1, 0, 1]), 3)  # no label of the third class yet
    assert (two.n_classes, two.n_fields, three.n_classes, three.n_fields) == (2, 1, 3, 3)
    assert two.gamma == template.gamma
    by_class = labeled(type(template), NODES, np.array([2, 0, 1]), 3)
    assert by_class.gamma == type(template)().gamma
    np.testing.assert_array_equal(by_class.y, [2, 0, 1])


@every_kind
def test_signs_stand_for_the_first_two_classes(make):
    np.testing.assert_array_equal(make(y=[1.0, -1.0, 1.0]).y, [1, 0, 1])
    assert make(y=[1.0, -1.0, 1.0]).n_fields == 1


@pytest.mark.parametrize("model", [Probit, LevelSet, GinzburgLandau])
@pytest.mark.parametrize(
    ("nodes", "y", "message"),
    [
        ([], [], "No labels"),
        ([1, 2], [-1, 0], "got -1 and 0 together"),
        ([1, 2], [1, 0.5], "classes 0, 1, ..., or -1 and \\+1, got 0.5"),
        ([1, 2], [-2, 1], "got -2"),
        ([1, 2], [1, np.nan], "got nan"),
        ([1, 2], [1, np.inf], "got inf"),
        ([1, 2, 1], [1, 2, 0], "Node 1 is given two different labels"),
        ([-1, 2], [1, 0], "from 0"),
        ([1, 2], [1], "one length"),
        ([[1, 2]], [[1, 0]], "one length"),
        ([1.5, 2.0], [1, 0], "integers"),
    ],
)
def test_bad_labels_are_refused(model, nodes, y, message):
    with pytest.raises((ValueError, TypeError), match=message):
        model(np.array(nodes, dtype=float if 1.5 in nodes else int), y)


@pytest.mark.parametrize("model", [Probit, LevelSet, GinzburgLandau])
@pytest.mark.parametrize(
    ("y", "settings", "message"),
    [
        ([0, 3], {"n_classes": 3}, "A label is 3, and with n_classes = 3 they go up to 2"),
        ([0, 1], {"n_classes": 1}, "n_classes = 1"),
        ([0, 2], {"n_fields": 1}, "n_fields must be 3"),
        ([0, 2], {"n_fields": 2}, "n_fields must be 3"),
        ([0, 1], {"n_fields": 3}, "n_fields must be 2"),
    ],
)
def test_bad_numbers_of_classes_are_refused(model, y, settings, message):
    with pytest.raises(ValueError, match=message):
        model([0, 1], y, **settings)


@every_kind
def test_a_repeated_label_counts_once(make):
    model = replace(make(**SIZES["three_classes"]), nodes=[3, 5, 3, 4], y=[2, 0, 2, 1])
    assert model.nodes.tolist() == [3, 5, 4]
    assert model.y.tolist() == [2, 0, 1]


@every_kind
@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_scales_must_be_positive(make, value):
    model = make(**SIZES["one_field"])
    for name in ("gamma", "epsilon") if isinstance(model, GinzburgLandau) else ("gamma",):
        with pytest.raises(ValueError, match=f"{name} must be a finite number above 0"):
            replace(model, **{name: value})


@pytest.mark.parametrize("delta", [-0.1, 0.5, 1.0, np.nan])
def test_delta_must_be_a_probability_below_one_half(delta):
    with pytest.raises(ValueError, match="delta, the probability of a wrong label"):
        Probit(NODES, [1, 0, 1], delta=delta)


@every_kind
def test_one_class_only_is_allowed_with_a_warning(make):
    with pytest.warns(UserWarning, match="Every label is class 1: with one class only"):
        make(y=[1, 1, 1])


@pytest.mark.filterwarnings("error")  # whatever the command line says
def test_a_model_made_again_warns_no_one_and_mutes_no_other_thread():
    with warned_before(), ThreadPoolExecutor(1) as pool:
        again = Probit([0, 3], [1, 1])
        assert Probit([0, 3], [2, 0]).n_classes == 3
        with pytest.raises(UserWarning, match="Every label is class 1"):
            pool.submit(Probit, [0, 3], [1, 1]).result()
    with pytest.warns(UserWarning, match="Every label is class 1"):
        replace(again, gamma=0.2)


@every_model
def test_phi_has_a_derivative_with_respect_to_the_numbers_of_a_model(model):
    """By finite differences; the model is made anew inside, of labels that are known or traced too."""
    with jax.enable_x64(True):
        u = jnp.asarray(fields(model))

        def phi(gamma, other=model):
            return replace(other, gamma=gamma).phi(u)

        h = 1e-6
        expected = (phi(model.gamma + h) - phi(model.gamma - h)) / (2 * h)
        assert float(jax.grad(phi)(model.gamma)) == pytest.approx(float(expected), rel=1e-6)
        assert float(jax.jit(jax.grad(phi))(model.gamma, model)) == pytest.approx(float(expected), rel=1e-6)
    assert replace(model, gamma=jnp.asarray(0.5)).gamma == 0.5  # as an optimizer of JAX returns it
    with pytest.raises(ValueError, match="gamma must be a finite number above 0"):
        replace(model, gamma=jnp.asarray(-0.5))
    with pytest.raises(TypeError, match="gamma must be a finite number above 0"):
        replace(model, gamma=jnp.ones(3))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_one_compilation_serves_all_rates_of_mistakes(n_classes):
    """And the derivative by the rate is that of finite differences; without mistakes there are no terms for them."""
    traced = []

    @jax.jit
    def phi(model, u):
        traced.append(model.has_mistakes)
        return model.phi(u)

    u = np.array([0.3, -0.8, 1.1]) if n_classes == 2 else np.random.default_rng(0).standard_normal((3, 3))
    with jax.enable_x64(True):
        model = Probit(NODES, [0, 1, 1], delta=0.1, gamma=0.7, n_classes=n_classes)
        for delta in (0.1, 0.01, 0.3, 0.0):
            other = replace(model, delta=delta)
            assert float(phi(other, u)) == pytest.approx(float(other.phi(u)), rel=1e-12)
        assert traced == [True, False]
        found = jax.grad(lambda delta: replace(model, delta=delta).phi(u))(0.1)
        low, high = (float(replace(model, delta=0.1 + h).phi(u)) for h in (-1e-5, 1e-5))
        assert float(found) == pytest.approx((high - low) / 2e-5, rel=1e-6)


def test_labels_that_are_traced_need_a_number_of_classes():
    with pytest.raises(TypeError, match="y must be real numbers, got a DynamicJaxprTracer"):
        jax.jit(lambda y: Probit(NODES, y).phi(jnp.ones(3)))(np.array([0, 1, 1]))


@every_model
def test_a_model_equals_itself_alone(model):
    assert model == model
    assert model != replace(model)
    assert len({model, replace(model)}) == 2


def test_a_model_of_ones_own_is_compiled_once_for_all_its_values():
    """Decorated as the models here are."""
    traced = []

    @models.pytree
    class Own(models.Model):
        nodes: np.ndarray
        width: float
        power: int = models.static(default=2)

        def phi(self, u):
            traced.append(self.power)
            return jnp.sum(jnp.abs(u / self.width) ** self.power)

    phi = jax.jit(lambda model, u: model.phi(u))
    for width, power in ((1.0, 2), (3.0, 2), (1.0, 4)):
        found = phi(Own(NODES, width, power), jnp.full(3, 2.0))
        assert float(found) == pytest.approx(3 * (2 / width) ** power)
    assert traced == [2, 4]
