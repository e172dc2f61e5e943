"""What draws alone have: chains, their errors, ArviZ, and models of one's own."""

import pickle
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_ndtr
from scipy.stats import norm

from graphuq.inference.orthant import Orthant
from graphuq.inference.pcn import PCN
from graphuq.inference.run import sample, sample_enough
from graphuq.models import GinzburgLandau, LevelSet, Model, Probit
from graphuq.posterior import Draws, GaussianPosterior, Mixture, load
from graphuq.posterior.draws import _sides
from graphuq.prior import GaussianPrior
from tests.inference.chains import draws
from tests.oracles import four_priors, random_spectrum

PRIORS = four_priors(random_spectrum(seed=2))
NODES, Y = np.array([21, 4, 9]), np.array([1, 1, 0])
MODELS = {
    "probit": Probit(NODES, Y, gamma=0.5),
    "ginzburg_landau": GinzburgLandau(NODES, Y),
    "level_set_3": LevelSet(NODES, [1, 2, 0], gamma=0.8),
    "ginzburg_landau_3": GinzburgLandau(NODES, [1, 2, 0]),
}
EVERY = np.arange(30)


@pytest.fixture(scope="module", params=MODELS)
def posterior(request):
    return draws(PRIORS["project"], MODELS[request.param], PCN(beta=0.4), 500, 2000, n_chains=8)


def test_class_probabilities_match_draws_of_u(posterior):
    """Averages of closed forms against averages of the classes, or values, of simulated u."""
    u = posterior.latent(EVERY, seed=1).astype(float)
    chosen = (u >= 0).astype(int) if posterior.n_fields == 1 else u.argmax(axis=3)
    share = (chosen[..., None] == np.arange(posterior.n_classes)).mean(axis=(0, 1))
    np.testing.assert_allclose(posterior.classes(noise=False).probability, share, atol=0.02)
    found = posterior.labels()
    if isinstance(posterior.model, GinzburgLandau) and posterior.n_fields == 1:  # labels are v itself
        np.testing.assert_allclose(found.mean, u.mean(axis=(0, 1)), atol=0.02)
        np.testing.assert_allclose(found.variance, u.var(axis=(0, 1)), rtol=0.05)
        assert posterior.mean_label_variance() == pytest.approx(found.variance.mean())
    else:
        p = posterior.classes(noise=False).probability
        np.testing.assert_allclose(found.mean, p if posterior.n_classes > 2 else p[:, 1] - p[:, 0], atol=1e-12)
    mean, variance = posterior.moments()
    flat = u.reshape(-1, 30, posterior.n_fields)
    np.testing.assert_allclose(mean, flat.mean(axis=0), atol=0.03)
    np.testing.assert_allclose(variance, flat.var(axis=0), rtol=0.1, atol=0.01)


def test_closed_form_at_one_draw():
    """With one stored z the label mean is the mean sign of the conditional Gaussian, by hand."""
    base = draws(PRIORS["full"], MODELS["probit"], Orthant(), 20, 20, n_chains=2)
    one = Draws(base.whitening, base.model, base.z[:1, :1], base.acceptance[:1, :1], base.work[:1, :1], {})
    u_seen = base.whitening.mean(base.z[0, :1].astype(float), NODES)[0]
    covariance = PRIORS["full"].covariance(EVERY, EVERY)
    gain = covariance[:, NODES] @ np.linalg.inv(covariance[np.ix_(NODES, NODES)])
    spread = np.sqrt(np.maximum(np.diag(covariance) - (gain * covariance[:, NODES]).sum(1), 0))
    others = np.setdiff1d(EVERY, NODES)
    mean = (gain @ u_seen)[others]
    np.testing.assert_allclose(one.label_mean(others), 2 * norm.cdf(mean / spread[others]) - 1, atol=1e-4)
    expected = norm.cdf(mean / np.hypot(spread[others], 0.5))
    np.testing.assert_allclose(one.probability(others)[:, 1], expected, atol=1e-4)
    assert np.isnan(one.labels(others).error).all()


def test_one_compilation_serves_any_few_rows():
    base = draws(PRIORS["full"], MODELS["probit"], Orthant(), 20, 100, n_chains=2)
    every, compiled = base.classes(), _sides._cache_size()
    for n_rows in (1, 2, 3, 5, 7, 29):
        found = base.classes(EVERY[:n_rows])
        np.testing.assert_allclose(found.probability, every.probability[:n_rows], rtol=1e-5)
        np.testing.assert_allclose(found.error, every.error[:n_rows], rtol=1e-3)
    assert _sides._cache_size() == compiled
    assert base.classes(EVERY[:0]).probability.shape == (0, 2)


def test_draws_are_diagnosed_once(monkeypatch):
    """Not again by `sample` after a look at whether to stop, by `sample_enough`, nor by a report; others are anew."""
    asked = []
    monkeypatch.setattr("graphuq.posterior.draws.missed", lambda *run: asked.append(run[2].shape[1]) or (0.0, -1))
    found = sample_enough(PRIORS["project"], LevelSet(NODES, Y, gamma=0.5), n_steps=200, n_chains=4)
    assert found.diagnostics() is found.diagnostics()
    assert asked[-1] == found.n_draws
    assert len(set(asked)) == len(asked)
    fewer = replace(found, z=found.z[:, ::2])
    assert fewer.diagnostics().ess_bulk[0] != found.diagnostics().ess_bulk[0]
    again = pickle.loads(pickle.dumps(found))  # noqa: S301
    assert vars(again).keys() == vars(fewer).keys() - {"_diagnostics"}
    assert str(again.diagnostics()) == str(found.diagnostics())


def test_draws_that_all_agree_still_have_an_error():
    posterior = draws(PRIORS["full"], LevelSet([0, 1], [1, 0], gamma=0.1), Orthant(), 20, 100, n_chains=8)
    found = posterior.labels([0])
    assert found.mean[0] == 1
    assert found.error[0] == 2 / (posterior.n_chains * posterior.n_draws)
    assert 0 < posterior.probability([0])[0, 0] < 1e-9  # with noise nothing is told as certain


@pytest.mark.filterwarnings("ignore:Not converged")
def test_a_model_of_ones_own_must_be_given_again(tmp_path):
    class Own(Model):
        nodes = NODES

        def phi(self, u):
            return (u**2).sum()

    saved = sample(PRIORS["full"], Own(), PCN(), n_steps=20, n_warmup=20, n_chains=2)
    saved.save(tmp_path / "own.npz")
    with pytest.raises(TypeError, match="model of your own, Own"):
        load(tmp_path / "own.npz")
    loaded = load(tmp_path / "own.npz", model=Own())
    np.testing.assert_array_equal(loaded.probability(), saved.probability())
    assert loaded.settings == saved.settings
    assert "log_likelihood" not in groups(saved.to_arviz())
    with pytest.raises(
        TypeError, match="Own offers no sites: expectation propagation, its evidence and left-out labels"
    ):
        saved.left_out()


class Mine(Probit):
    """A model of one's own that learning changes."""


def test_a_model_of_ones_own_named_like_a_built_in_one_is_not_taken_for_it(tmp_path):
    own = type("Probit", (Probit,), {"noise": property(lambda model: 3 * model.gamma)})
    y = np.arange(len(NODES)) % 2
    saved = GaussianPosterior.of(PRIORS["project"], own(NODES, y, gamma=0.5))
    saved.save(tmp_path / "own.npz")
    with pytest.raises(TypeError, match=r"model of your own, .*\.Probit: give it"):
        load(tmp_path / "own.npz")
    loaded = load(tmp_path / "own.npz", model=own(NODES, y))
    np.testing.assert_allclose(loaded.probability(), saved.probability(), atol=1e-9)
    assert type(loaded.model) is own


@pytest.mark.parametrize("kind", [Probit, Mine])
def test_a_model_that_contradicts_the_file_is_refused(tmp_path, kind):
    y = np.arange(len(NODES)) % 2
    GaussianPosterior.of(PRIORS["project"], kind(NODES, y, gamma=0.5)).save(tmp_path / "p.npz")
    other = {Probit: Mine, Mine: Probit}[kind]
    for model, message in (
        (kind(NODES, 1 - y, gamma=0.5), "other classes of the labels than the one in the file"),
        (kind(NODES[::-1], y, gamma=0.5), "other labeled nodes than the one in the file"),
        (
            other(NODES, y, gamma=0.5),
            "holds .*, and the model given is .*Probit|holds .*Probit, .* given is .*Mine",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            load(tmp_path / "p.npz", model=model)
    if kind is Probit:  # of one's own, the numbers are those in the file
        with pytest.raises(ValueError, match=r"with gamma = 0\.5, and the one given has 5\.0"):
            load(tmp_path / "p.npz", model=Probit(NODES, y, gamma=5.0))
    assert load(tmp_path / "p.npz", model=kind(NODES, y, gamma=0.5)).model.gamma == 0.5


def test_labels_of_before_of_a_model_of_ones_own_are_loaded(tmp_path):
    y = np.arange(len(NODES)) % 2
    before = Mixture((GaussianPosterior.of(PRIORS["project"], Mine(NODES, y, gamma=0.5)),), np.ones(1))
    changed = before.with_labels(NODES[1:], y[1:])
    changed.save(tmp_path / "p.npz")
    found = load(tmp_path / "p.npz", model=Mine(NODES[1:], y[1:])).with_labels(NODES, y)
    np.testing.assert_allclose(found.probability(), before.probability(), atol=1e-9)


class Plain(Model):
    """One that nothing can change."""

    def __init__(self, gamma):
        self.inner = Probit(NODES, np.arange(len(NODES)) % 2, gamma=gamma)
        self.nodes, self.noise = NODES, gamma

    def phi(self, u):
        return self.inner.phi(u)

    def sites(self):
        return self.inner.sites()


def test_each_component_of_a_mixture_keeps_its_own_noise(tmp_path):
    y = np.arange(len(NODES)) % 2
    noises = ((0.1, 0.01), (0.7, 0.2))
    parts = [GaussianPosterior.of(PRIORS["project"], Mine(NODES, y, gamma=g, delta=d)) for g, d in noises]
    saved = Mixture(tuple(parts), np.array([0.5, 0.5]))
    saved.save(tmp_path / "own.npz")
    loaded = load(tmp_path / "own.npz", model=Mine(NODES, y))
    assert [(each.model.gamma, each.model.delta) for each in loaded.components] == list(noises)
    np.testing.assert_allclose(loaded.probability(), saved.probability(), atol=1e-9)
    parts = [GaussianPosterior.of(PRIORS["project"], Plain(gamma)) for gamma in (0.1, 0.7)]
    Mixture(tuple(parts), np.array([0.5, 0.5])).save(tmp_path / "plain.npz")
    with pytest.raises(ValueError, match=r"holds a model with noise = 0\.7, and the one given has 0\.1"):
        load(tmp_path / "plain.npz", model=Plain(0.1))
    parts[0].save(tmp_path / "plain.npz")
    assert load(tmp_path / "plain.npz", model=Plain(0.1)).model.noise == 0.1


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_saved(name, tmp_path):
    saved = draws(PRIORS["project"], MODELS[name], PCN(beta=0.4), 500, 2000, n_chains=8)
    saved.save(tmp_path / "posterior.npz")
    loaded = load(tmp_path / "posterior.npz")
    assert type(loaded.model) is type(saved.model)
    for each in ("gamma", "n_classes", "n_fields"):
        assert getattr(loaded.model, each) == getattr(saved.model, each)
    np.testing.assert_array_equal(loaded.probability(), saved.probability())


def groups(data):
    """Names of the groups of an ArviZ object before 1.0 or after."""
    return list(data.children) if hasattr(data, "children") else data.groups()


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_to_arviz(posterior):
    data = posterior.to_arviz([3, 8])
    shape = (8, 2000, 2) if posterior.n_fields == 1 else (8, 2000, 2, 3)
    assert data.posterior["u"].shape == shape
    assert data.posterior["node"].values.tolist() == [3, 8]
    assert data.sample_stats["acceptance_rate"].shape == (8, 2000)
    assert data.log_likelihood["y"].shape == (8, 2000, 3)
    assert data.log_likelihood["label"].values.tolist() == NODES.tolist()
    u = posterior.latent(EVERY if isinstance(posterior.model, GinzburgLandau) else NODES)[2, 100]
    expected = np.asarray(posterior.model.log_likelihood(jnp.asarray(u, "float32")))
    np.testing.assert_allclose(data.log_likelihood["y"].values[2, 100], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("y", [[1, 0, 1, 0, 1, 1, 0, 1], [1, 0, 2, 0, 1, 2, 0, 1]], ids=["two", "three"])
def test_arviz_leaves_labels_out_and_compares_models(y):
    """Leave-one-out by weights against that of expectation propagation; the better noise comes first."""
    import arviz as az

    nodes = np.array([0, 3, 8, 11, 15, 19, 22, 28])
    made = {
        gamma: draws(PRIORS["project"], Probit(nodes, y, gamma=gamma), Orthant(), 50, 300) for gamma in (1.0, 10.0)
    }
    data = {f"gamma {gamma}": each.to_arviz() for gamma, each in made.items()}
    for gamma, each in made.items():
        found = az.loo(data[f"gamma {gamma}"], pointwise=True)
        expected = np.log(each.left_out()[np.arange(8), y])
        pointwise = getattr(found, "elpd_i", getattr(found, "loo_i", None))
        np.testing.assert_allclose(np.asarray(pointwise), expected, atol=0.05)
    ranked = az.compare(data)
    best = max(made, key=lambda gamma: np.log(made[gamma].left_out()[np.arange(8), y]).sum())
    assert ranked.index[0] == f"gamma {best}"


@pytest.mark.filterwarnings("ignore")
def test_arviz_does_not_prefer_a_level_set_that_ignores_the_labels():
    """Of labels that follow the graph: against leave-one-out by expectation propagation."""
    import arviz as az

    nodes = np.arange(0, 30, 2)
    y = (PRIORS["project"].vectors[nodes, 1] > 0).astype(int)
    made = {
        gamma: draws(PRIORS["project"], LevelSet(nodes, y, gamma=gamma), Orthant(), 50, 500)
        for gamma in (0.7, 30.0)
    }
    expected = {gamma: np.log(each.left_out()[np.arange(15), y]).sum() for gamma, each in made.items()}
    found = {gamma: az.loo(each.to_arviz()) for gamma, each in made.items()}
    elpd = {
        gamma: float(getattr(each, "elpd", getattr(each, "elpd_loo", np.nan))) for gamma, each in found.items()
    }
    assert expected[0.7] > expected[30.0] + 2
    assert elpd == pytest.approx(expected, abs=0.7)


def test_log_likelihood_in_double_precision():
    base = draws(PRIORS["full"], MODELS["probit"], Orthant(), 20, 20, n_chains=2)
    double = replace(base, z=base.z.astype(float))
    u = double.latent(NODES)
    expected = log_ndtr((2 * Y - 1) * u / 0.5)
    np.testing.assert_allclose(double.to_arviz().log_likelihood["y"].values, expected, atol=1e-12)


def test_nodes_no_label_reaches_do_not_speak_of_convergence():
    """A component without a label is independent of the draws: its u has no chain."""
    vectors = np.zeros((8, 4))
    vectors[:4, :2], vectors[4:, 2:] = np.linalg.qr(np.random.default_rng(0).normal(size=(2, 4, 2)))[0]
    prior = GaussianPrior(vectors, np.ones(4), 0.0, "two pieces")
    posterior = draws(prior, Probit([0, 1], [1, 0], gamma=1.0), Orthant(), 20, 200, n_chains=8)
    found = posterior.diagnostics()
    assert found.converged
    watched = [node for name, node in zip(found.names, found.nodes, strict=True) if name.startswith("u")]
    assert watched == [0, 1, 2, 3]
    np.testing.assert_allclose(posterior.label_mean(np.arange(4, 8)), 0, atol=1e-6)


@dataclass(frozen=True)
class Steep(Model):
    """A logistic model, one of whose fields is no noise."""

    nodes: np.ndarray | None = None
    y: np.ndarray | None = None
    steepness: float = 1.0
    cap: float = np.inf  # no number that a file could hold

    def phi(self, u):
        return jnp.sum(jnp.log1p(jnp.exp(-self.steepness * (2.0 * jnp.asarray(self.y) - 1) * u)))


def test_a_model_of_ones_own_with_other_numbers_is_not_that_of_the_file(tmp_path):
    posterior = draws(PRIORS["project"], Steep(NODES, Y, steepness=2.0), PCN(), 20, 40, n_chains=2)
    posterior.save(tmp_path / "p.npz")
    assert load(tmp_path / "p.npz", model=Steep(NODES, Y, steepness=2.0)).model.steepness == 2.0
    with pytest.raises(ValueError, match=r"a model with steepness = 2\.0, and the one given has 9\.0"):
        load(tmp_path / "p.npz", model=Steep(NODES, Y, steepness=9.0))
