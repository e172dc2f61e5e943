import numpy as np
import pytest
from scipy.stats import norm

from graphuq.inference.pcn import PCN
from graphuq.inference.run import sample
from graphuq.models import GinzburgLandau, LevelSet, Probit
from graphuq.posterior import Posterior, watched_nodes
from graphuq.prior import GaussianPrior
from tests.oracles import four_priors, random_spectrum

PRIORS = four_priors(random_spectrum(seed=2))
NODES, Y = np.array([21, 4, 9]), np.array([1.0, 1.0, -1.0])
MODELS = {"probit": Probit(NODES, Y, gamma=0.5), "ginzburg_landau": GinzburgLandau(NODES, Y)}
EVERY = np.arange(30)


@pytest.fixture(scope="module", params=MODELS)
def posterior(request):
    return sample(PRIORS["full"], MODELS[request.param], PCN(), n_steps=4000, thin=10, n_warmup=500, n_chains=16)


def test_label_statistics_match_draws_of_u(posterior):
    """Averages of closed forms against averages of the signs, or values, of simulated u."""
    u = posterior.latent(EVERY, seed=1).astype(float)
    found = posterior.labels()
    label = u if isinstance(posterior.model, GinzburgLandau) else np.where(u >= 0, 1.0, -1.0)
    error = label.std(axis=(0, 1)) / np.sqrt(label[..., 0].size) + 1e-9
    assert np.abs((found.mean - label.mean(axis=(0, 1))) / error).max() < 5
    np.testing.assert_allclose(found.variance, label.var(axis=(0, 1)), atol=0.05)
    assert posterior.mean_label_variance() == pytest.approx(found.variance.mean())
    if not isinstance(posterior.model, GinzburgLandau):
        np.testing.assert_allclose(found.variance, 1 - found.mean**2, atol=1e-12)
        np.testing.assert_allclose(posterior.probability(), (1 + found.mean) / 2)
    else:
        assert np.abs(posterior.probability() - (u >= 0).mean(axis=(0, 1))).max() < 1e-6


def test_closed_form_at_one_draw():
    """With one stored z the label mean is the mean sign of the conditional Gaussian, by hand."""
    base = sample(PRIORS["full"], MODELS["probit"], PCN(), n_steps=1000, n_chains=8)
    one = Posterior(base.whitening, base.model, base.z[:1, :1], base.acceptance[:1, :1], base.work[:1, :1], {})
    u_seen = base.whitening.mean(base.z[0, :1].astype(float), NODES)[0]
    covariance = PRIORS["full"].covariance(EVERY, EVERY)
    gain = covariance[:, NODES] @ np.linalg.inv(covariance[np.ix_(NODES, NODES)])
    spread = np.sqrt(np.maximum(np.diag(covariance) - (gain * covariance[:, NODES]).sum(1), 0))
    others = np.setdiff1d(EVERY, NODES)
    expected = 2 * norm.cdf((gain @ u_seen)[others] / spread[others]) - 1
    np.testing.assert_allclose(one.label_mean(others), expected, atol=1e-4)
    assert np.isnan(one.labels(others).error).all()


def test_ranking(posterior):
    mean = np.abs(posterior.label_mean())
    worst = posterior.most_uncertain(5)
    assert not np.isin(worst, NODES).any()
    unlabeled = np.setdiff1d(EVERY, NODES)
    assert set(worst) == set(unlabeled[np.argsort(mean[unlabeled])[:5]])
    best = posterior.least_uncertain(3, include_labeled=True)
    assert set(best) == set(np.argsort(-mean)[:3])


def test_blocks_do_not_matter(posterior, monkeypatch):
    whole = posterior.labels()
    monkeypatch.setattr("graphuq.posterior.BLOCK_NUMBERS", 7 * 16 * 400)
    pieces = posterior.labels()
    np.testing.assert_allclose(pieces.mean, whole.mean, atol=1e-6)
    np.testing.assert_allclose(pieces.error, whole.error, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Not converged")
@pytest.mark.parametrize("prior", PRIORS)
def test_save_and_load(tmp_path, prior):
    model = LevelSet(NODES, Y, gamma=0.8)
    saved = sample(PRIORS[prior], model, PCN(), n_steps=200, n_chains=8)
    saved.save(tmp_path / "posterior.nc")
    loaded = Posterior.load(tmp_path / "posterior.nc")
    assert np.array_equal(loaded.z, saved.z)
    assert loaded.settings == saved.settings
    assert loaded.model.gamma == 0.8
    np.testing.assert_allclose(loaded.label_mean(), saved.label_mean(), atol=1e-7)
    assert [path.name for path in tmp_path.iterdir()] == ["posterior.nc"]


def test_files_that_are_not_posteriors_are_refused(tmp_path):
    (tmp_path / "other.nc").write_text("hello")
    with pytest.raises(ValueError, match="not a posterior"):
        Posterior.load(tmp_path / "other.nc")
    with pytest.raises(FileNotFoundError):
        Posterior.load(tmp_path / "none.nc")


def test_new_nodes_are_not_saved(posterior, tmp_path):
    larger = posterior.extended(posterior.whitening.prior.vectors[:1])
    with pytest.raises(ValueError, match="posterior with new nodes cannot be saved"):
        larger.save(tmp_path / "larger.nc")


def test_a_byte_that_was_changed_is_noticed(posterior, tmp_path):
    path = tmp_path / "posterior.nc"
    posterior.save(path)
    whole = path.read_bytes()
    at = whole.index(np.ascontiguousarray(posterior.z[0, :4]).tobytes())
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(ValueError, match="changed or damaged"):
        Posterior.load(path)


def test_a_model_of_ones_own_must_be_given_again(tmp_path):
    class Own:
        nodes = NODES

        def phi(self, u):
            return (u**2).sum()

    saved = sample(PRIORS["full"], Own(), PCN(), n_steps=200, n_chains=8)
    saved.save(tmp_path / "own.nc")
    with pytest.raises(TypeError, match="model of your own, Own"):
        Posterior.load(tmp_path / "own.nc")
    loaded = Posterior.load(tmp_path / "own.nc", model=Own())
    np.testing.assert_allclose(loaded.label_mean(), saved.label_mean(), atol=1e-7)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_to_arviz(posterior):
    data = posterior.to_arviz([3, 8])
    assert data.posterior["u"].shape == (16, 400, 2)
    assert data.posterior["node"].values.tolist() == [3, 8]
    assert data.sample_stats["acceptance_rate"].shape == (16, 400)


def test_diagnostics_and_watched_nodes(posterior):
    found = posterior.diagnostics()
    assert found.converged
    assert "Converged" in str(found)
    assert np.isin(NODES, found.nodes).all()
    assert len(watched_nodes(np.arange(30), 30)) == 10
    assert posterior.diagnostics([2]).r_hat.shape == (1,)


def test_nodes_no_label_reaches_do_not_speak_of_convergence():
    """A component without a label is independent of the draws: its u has no chain."""
    vectors = np.zeros((8, 4))
    vectors[:4, :2], vectors[4:, 2:] = np.linalg.qr(np.random.default_rng(0).normal(size=(2, 4, 2)))[0]
    model = Probit([0, 1], [1, -1], gamma=1.0)
    posterior = sample(GaussianPrior(vectors, np.ones(4), 0.0, "two pieces"), model, n_steps=200)
    found = posterior.diagnostics()
    assert found.converged
    assert found.nodes.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(posterior.label_mean(np.arange(4, 8)), 0, atol=1e-6)


def test_draws_that_all_agree_still_have_an_error():
    posterior = sample(PRIORS["full"], LevelSet([0, 1], [1, -1], gamma=0.1), n_steps=100)
    found = posterior.labels([0])
    assert found.mean[0] == 1
    assert found.error[0] == 2 / (posterior.n_chains * posterior.n_draws)


def test_nodes_are_numbers_or_a_mask(posterior):
    mask = np.zeros(30, dtype=bool)
    mask[[2, 7]] = True
    np.testing.assert_array_equal(posterior.label_mean(mask), posterior.label_mean([2, 7]))
    assert posterior.label_mean([]).shape == posterior.probability([]).shape == (0,)
    for wrong, why in (([30], "between 0 and 29"), ([True], "one entry for each"), ([0.5], "float64")):
        with pytest.raises(ValueError, match=why):
            posterior.label_mean(wrong)
    with pytest.raises(ValueError, match="shape"):
        posterior.label_mean([[1, 2]])
