"""What to ask next, against expectation propagation fitted anew with every possible answer."""

from copy import copy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from sklearn.datasets import make_circles
from threadpoolctl import threadpool_info, threadpool_limits

from graphuq import (
    GraphClassifier,
    datasets,
    graph,
    laplacian,
    models,
    prior,
    queries,
    sample,
    spectrum,
    uncertainty,
)
from graphuq.posterior import Draws, GaussianPosterior, Mixture
from graphuq.queries import choosing
from graphuq.queries.choosing import N_SPREAD, expected_loss
from graphuq.queries.joint import Joint, _averaged, _of_draws, covariance, cross_covariance, heaviest, joint
from graphuq.queries.spreading import most_telling


def blobs(n_classes, n=60, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    return 1.6 * rng.standard_normal((n_classes, 4))[y] + spread * rng.standard_normal((n, 4)), y


@cache
def problem(n_classes, seed=0, tau=0.4, delta=0.0, tail=False, n=60):
    """A posterior by expectation propagation: two labels of each class."""
    X, y = blobs(n_classes, n, seed=seed)
    modes = spectrum.dense(laplacian.normalized(graph.knn(X, n_neighbors=8)))
    nodes = np.concatenate([np.flatnonzero(y == k)[:2] for k in range(n_classes)])
    mu0 = prior.matern(modes, tau=tau, alpha=2.0, n_modes=30, tail=tail)
    model = models.Probit(nodes, y[nodes], gamma=0.3, n_classes=n_classes, delta=delta)
    return GaussianPosterior.of(mu0, model)


def open_rows(posterior):
    return np.setdiff1d(np.arange(posterior.n_nodes), posterior.model.nodes)


def losses(p, rows, known):
    """Expected error, label variance and log-loss summed over rows, those whose class is known counted as 0."""
    n_classes, p = p.shape[1], p[~np.isin(rows, known)]
    variance = n_classes / (n_classes - 1) * (1 - (p**2).sum(axis=1))
    return np.array([(1 - p.max(axis=1)).sum(), variance.sum(), -(p * np.log(p)).sum()])


def answered(posterior, c, a):
    """At the temperature that there was."""
    found = posterior.with_labels(np.append(posterior.model.nodes, c), np.append(posterior.model.y, a))
    return replace(found, temperature=posterior.temperature) if isinstance(found, Mixture) else found


def brute_force(posterior, rows, asked):
    """The same after each answer, fitted anew, weighed by its probability; shape (n_asked, 3)."""
    found = []
    for c in asked:
        given = posterior.left_out() if c in posterior.model.nodes else posterior.probability([c])
        chance = _answers(posterior, given[0])
        each = [losses(answered(posterior, c, a).probability(rows), rows, [c]) for a in range(len(chance))]
        found.append(chance @ np.array(each))
    return np.array(found)


def _answers(posterior, p):
    """Of two classes an answer may be a mistake."""
    delta = posterior.model.delta
    return delta + (1 - 2 * delta) * p if posterior.n_classes == 2 else p


def gains(posterior, rows, asked, **settings):
    """What each answer is expected to take off the three losses, shape (n_asked, 3)."""
    found = joint(posterior, rows, asked, **settings)
    same = rows[:, None] == asked
    taken = []
    for strategy in ("error", "variance", "log_loss"):
        before, gain = expected_loss(found, np.ones(len(rows)), strategy)
        taken.append(np.where(same, before[:, None], gain).sum(axis=0))
    return np.array(taken).T


@pytest.mark.parametrize("settings", [{}, {"seed": 1}, {"delta": 0.1}, {"tail": True}], ids=str)
def test_two_classes_against_every_answer_fitted_anew(settings):
    posterior = problem(2, **settings)
    rows = open_rows(posterior)
    asked = rows[::4]
    now = losses(posterior.probability(rows), rows, [])
    exact, found = now - brute_force(posterior, rows, asked), gains(posterior, rows, asked)
    for j in range(3):
        assert np.corrcoef(exact[:, j], found[:, j])[0, 1] > 0.96
        np.testing.assert_allclose(found[:, j], exact[:, j], atol=0.15 * exact[:, j].max())
        assert exact[found[:, j].argmax(), j] > 0.97 * exact[:, j].max()


@pytest.mark.parametrize(("n_classes", "temperature"), [(3, 1.0), (5, 0.6)])
def test_many_classes_against_every_answer_fitted_anew(n_classes, temperature):
    posterior = Mixture((problem(n_classes),), np.ones(1), temperature)
    rows = open_rows(posterior)
    asked = rows[::6]
    now = losses(posterior.probability(rows), rows, [])
    exact = now - brute_force(posterior, rows, asked)
    found = gains(posterior, rows, asked)
    for j in range(3):
        assert np.corrcoef(exact[:, j], found[:, j])[0, 1] > 0.96
        assert found[:, j].mean() / exact[:, j].mean() == pytest.approx(1, abs=0.15)
        assert exact[found[:, j].argmax(), j] > 0.93 * exact[:, j].max()


@pytest.mark.parametrize("delta", [0.0, 0.3])
def test_two_fields_answer_as_one_does(delta):
    """Two fields of half the variance and noise are the same model, and so are mistakes in what is answered."""
    one = problem(2, delta=delta)
    half = replace(one.prior, variances=one.prior.variances / 2)
    two = GaussianPosterior.of(half, replace(one.model, gamma=0.3 / np.sqrt(2), n_fields=2))
    rows = open_rows(one)
    expected, found = (joint(each, rows, rows[::4]) for each in (one, two))
    np.testing.assert_allclose(found.answer, expected.answer, atol=1e-4)
    assert np.abs(found.covariance - expected.covariance).max() < 0.15 * np.abs(expected.covariance).max()


def test_answers_may_be_mistakes_for_draws_too():
    exact = problem(2, delta=0.3)
    drawn = sample(exact.prior, exact.model, n_steps=300, n_chains=4, seed=0, progress=False)
    rows = open_rows(exact)
    expected, found = (joint(each, rows, rows[::4]) for each in (exact, drawn))
    np.testing.assert_allclose(found.answer, expected.answer, atol=0.03)
    slope = np.sum(found.covariance * expected.covariance) / np.sum(expected.covariance**2)
    assert slope == pytest.approx(1, abs=0.15)  # 2.5 if the answer were the class


def test_the_loss_is_shares_of_error_and_log_loss():
    posterior = problem(2)
    rows = open_rows(posterior)
    found, weights = joint(posterior, rows, rows[::4]), np.arange(1.0, len(rows) + 1)
    parts = [expected_loss(found, weights, each) for each in ("error", "log_loss")]
    before, gain = expected_loss(found, weights, "loss")
    assert weights @ before == pytest.approx(2)
    expected = sum(each / (weights @ now) for now, each in parts)
    np.testing.assert_allclose(gain, expected)


def test_draws_that_have_nothing_in_common_gain_nothing():
    """What few draws make up is taken off: without that, 64 of them see gains of rows that are independent."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), (64, 40))
    found = _of_draws(p, 20)
    _, gain = expected_loss(found, np.ones(20), "error")
    _, raw = expected_loss(found._replace(spurious=None), np.ones(20), "error")
    assert raw.mean() > 0.005
    assert abs(gain.mean()) < raw.mean() / 4


@pytest.mark.parametrize("tail", [False, True])
def test_the_covariance_is_that_of_the_dense_posterior(tail):
    posterior = problem(2, tail=tail)
    everything = np.arange(posterior.n_nodes)
    C = posterior.prior.covariance(everything, everything)
    lab, tau = posterior.model.nodes, posterior.fit.precision
    dense = C - C[:, lab] @ np.linalg.solve(np.diag(1 / tau) + C[np.ix_(lab, lab)], C[lab])
    np.testing.assert_allclose(covariance(posterior, everything, everything[::3]), dense[:, ::3], atol=1e-8)


@pytest.mark.parametrize("tail", [False, True])
def test_the_covariance_of_several_fields_is_that_of_the_dense_posterior(tail):
    posterior = problem(3, tail=tail)
    n, fit, lab = posterior.n_nodes, posterior.fit, posterior.model.nodes
    everything = np.arange(n)
    C = np.kron(np.eye(3), posterior.prior.covariance(everything, everything))
    # a site of precision tau on g_c - g_k = u_c - u_k + eta_c - eta_k, the noise of all fields a part of the covariance
    arms, tau = [], []
    for j, (node, label) in enumerate(zip(lab, posterior.model.y, strict=True)):
        for k in range(3):
            if k != label:
                arm = np.zeros((3, n))
                arm[label, node], arm[k, node] = 1, -1
                arms.append(arm.ravel())
                tau.append(fit.precision[j, k])
    A = np.array(arms)
    block = A @ (C + posterior.model.gamma**2 * np.eye(3 * n)) @ A.T + np.diag(1 / np.array(tau))
    dense = (C - C @ A.T @ np.linalg.solve(block, A @ C)).reshape(3, n, 3, n).transpose(1, 0, 3, 2)
    found = cross_covariance(posterior, everything, everything[::3])
    np.testing.assert_allclose(found, dense[:, :, ::3], atol=2e-5)


def test_the_small_systems_of_many_classes_have_one_thread(monkeypatch):
    """There threads of BLAS only wait for each other, thirty times as long as the work takes."""
    asked, exact = [], np.linalg.eigh

    def watched(matrices):
        if matrices.ndim > 2:
            asked.extend(each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas")
        return exact(matrices)

    monkeypatch.setattr(np.linalg, "eigh", watched)
    posterior = problem(3)
    with threadpool_limits(3, "blas"):
        joint(posterior, open_rows(posterior), open_rows(posterior)[:4])
    assert asked
    assert set(asked) == {1}


def test_a_mixture_is_the_average_of_its_components():
    parts, weights = (problem(2), problem(2, tau=1.5)), np.array([0.7, 0.3])
    rows, asked = np.arange(20, 40), np.arange(40, 50)
    whole = joint(Mixture(parts, weights), rows, asked)
    each = [joint(part, rows, asked) for part in parts]
    together = [one.covariance + np.multiply.outer(one.probability, one.answer) for one in each]
    np.testing.assert_allclose(
        whole.covariance + np.multiply.outer(whole.probability, whole.answer),
        0.7 * together[0] + 0.3 * together[1],
        atol=1e-12,
    )
    np.testing.assert_allclose(whole.covariance.sum(axis=1), 0, atol=1e-12)  # some class it is
    np.testing.assert_allclose(whole.covariance.sum(axis=3), 0, atol=1e-12)  # some answer there is


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n_classes", "temperature"), [(2, 0.5), (3, 0.5), (4, 1.5)])
def test_temperature_and_class_weights_are_those_of_the_average(n_classes, temperature, weighted):
    """Against every answer fitted anew, less what all answers change alike."""
    parts = problem(n_classes), problem(n_classes, tau=1.5)
    weights = np.linspace(0.7, 1.4, n_classes) if weighted else None
    posterior = Mixture(parts, np.array([0.6, 0.4]), temperature, class_weights=weights)
    rows = open_rows(posterior)
    asked = rows[::6]
    p, q = posterior.probability(rows), posterior.probability(asked)
    given = [[answered(posterior, c, a).probability(rows) for a in range(n_classes)] for c in asked]
    change = q[:, :, None, None] * (np.array(given) - p)
    change -= change.sum(axis=1, keepdims=True) * q[:, :, None, None]
    found = joint(posterior, rows, asked)
    np.testing.assert_allclose(found.probability, p, atol=5e-3)
    np.testing.assert_allclose(found.answer, q, atol=5e-3)
    assert np.corrcoef(found.covariance.ravel(), change.transpose(2, 3, 0, 1).ravel())[0, 1] > 0.99


def test_of_a_mixture_the_heaviest_components_are_asked():
    parts = tuple(problem(2, tau=tau) for tau in (0.4, 0.8, 1.5, 2.0, 3.0))
    used, weights = heaviest(Mixture(parts, np.array([0.5, 0.41, 0.05, 0.02, 0.02])))
    assert used == parts[:2]
    np.testing.assert_allclose(weights, [50 / 91, 41 / 91])
    assert len(heaviest(Mixture(parts, np.full(5, 0.2)))[0]) == 4


def drawn(exact, n_draws=2000):
    """Independent draws of a Gaussian posterior, as of a sampler."""
    z = exact.fit.draw(n_draws, np.random.default_rng(0)).reshape(1, n_draws, -1)
    return Draws(exact.whitening, exact.model, z, np.ones((1, n_draws)), np.ones((1, n_draws)), {})


def test_draws_of_a_sampler_are_asked_too():
    exact = problem(2)
    draws = sample(exact.prior, exact.model, n_steps=400, n_chains=2, seed=0)
    rows = open_rows(exact)
    asked = rows[::4]
    a, b = (gains(each, rows, asked)[:, 0] for each in (exact, draws))
    assert np.corrcoef(a, b)[0, 1] > 0.9
    assert queries.next_queries(draws, 3).size == 3


@pytest.mark.parametrize("n_classes", [2, 3])
def test_draws_and_gaussians_are_asked_together(n_classes):
    """As two Gaussians are, one of which was drawn from."""
    exact = problem(n_classes), problem(n_classes, tau=1.5)
    rows, weights = open_rows(exact[0]), np.array([0.6, 0.4])
    asked = rows[::4]
    expected = gains(Mixture(exact, weights), rows, asked)
    for parts in ((drawn(exact[0]), exact[1]), (exact[0], drawn(exact[1]))):
        mixture = Mixture(parts, weights)
        found = gains(mixture, rows, asked, n_draws=4000)
        for j in range(3):
            assert np.corrcoef(expected[:, j], found[:, j])[0, 1] > 0.97
            assert found[:, j].mean() / expected[:, j].mean() == pytest.approx(1, abs=0.1)
        assert queries.next_queries(mixture, 3).size == 3


def test_a_component_of_few_draws_keeps_its_weight():
    exact = problem(2), problem(2, tau=1.5)
    rows, weights = open_rows(exact[0]), np.array([0.8, 0.2])
    parts = drawn(exact[0], 100), drawn(exact[1])
    found = joint(Mixture(parts, weights), rows, rows[::4])
    each = [joint(part, rows, rows[::4], n_draws=n).probability for part, n in zip(parts, (614, 154), strict=True)]
    np.testing.assert_allclose(found.probability, 0.8 * each[0] + 0.2 * each[1], atol=1e-6)
    np.testing.assert_allclose(found.covariance.sum(axis=3), 0, atol=1e-6)


def test_draws_of_different_laws_tell_which_holds():
    """What an answer says of the components is no chance: of two sure and opposed ones it decides all rows."""
    sure = np.array([[[0.99, 0.01]], [[0.01, 0.99]]])
    each = [_of_draws(np.tile(p, (64, 4, 1)), 2) for p in sure]
    found = _averaged(each, np.array([0.5, 0.5]))
    _, gain = expected_loss(found, np.ones(2), "error")
    np.testing.assert_allclose(gain, 0.98**2 / 2, atol=1e-6)


def test_draws_of_a_mixture_are_asked_at_its_temperature():
    """As the Gaussian is that they are drawn from; at another temperature they would tell of other gains."""
    exact = problem(3)
    rows, draws = open_rows(exact), drawn(exact)
    asked = rows[::6]
    by_ep, by_draws = (Mixture((each,), np.ones(1), 0.4) for each in (exact, draws))
    found = joint(by_draws, rows, asked, n_draws=2000)
    told = by_draws.probability(rows)
    np.testing.assert_allclose(found.probability, told, atol=0.06)  # what z leaves open is drawn: 5 deviations
    np.testing.assert_allclose(found.covariance.sum(axis=3), 0, atol=1e-5)
    a, b = gains(by_ep, rows, asked), gains(by_draws, rows, asked, n_draws=2000)
    untempered = gains(draws, rows, asked, n_draws=2000)
    for j in range(3):
        assert np.corrcoef(a[:, j], b[:, j])[0, 1] > 0.9
        assert b[:, j].mean() / a[:, j].mean() == pytest.approx(1, abs=0.25)
    assert np.abs(draws.probability(rows) - told).max() > 0.15
    assert np.abs(untempered - a)[:, 2].max() > 2 * np.abs(b - a)[:, 2].max()


@pytest.mark.parametrize("summed", [False, True])
def test_the_most_telling_rows_against_a_dense_covariance(summed):
    posterior = problem(2)
    mu0, known = posterior.prior, posterior.model.nodes
    everything = np.arange(mu0.n_nodes)
    C = mu0.covariance(everything, everything)
    noise, candidates, left = 0.3, open_rows(posterior), list(open_rows(posterior))

    def given(rows):
        block = C[np.ix_(rows, rows)] + noise**2 * np.eye(len(rows))
        return C - C[:, rows] @ np.linalg.solve(block, C[rows])

    expected_rows = []
    for _ in range(3):
        S = given(np.append(known, expected_rows).astype(int))
        size = S.sum(axis=0) ** 2 if summed else (S**2).sum(axis=0)
        score = (size / (np.diag(S) + noise**2))[left]
        expected_rows.append(left.pop(int(score.argmax())))
    found = most_telling(mu0, noise, candidates, 3, known=known, summed=summed)
    assert found.tolist() == expected_rows


@pytest.mark.parametrize("strategy", [name for name in queries.STRATEGIES if name != "random"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_batch_has_no_near_duplicates(n_classes, strategy):
    """Every row is there twice: no batch holds a row and its twin."""
    X, y = blobs(n_classes, n=30, spread=0.8)
    X, y = np.repeat(X, 2, axis=0) + 1e-6 * np.arange(60)[:, None], np.repeat(y, 2)
    modes = spectrum.dense(laplacian.normalized(graph.knn(X, n_neighbors=6)))
    nodes = np.array([np.flatnonzero(y == k)[0] for k in range(n_classes)])
    model = models.Probit(nodes, y[nodes], gamma=0.05, n_classes=n_classes)
    posterior = GaussianPosterior.of(prior.matern(modes, tau=0.5, alpha=2.0, n_modes=20), model)
    found = queries.next_queries(posterior, 4, strategy=strategy)
    assert len(set(found // 2)) == 4
    alone = queries.next_queries(posterior, 1, strategy=strategy)
    assert found[0] // 2 == alone[0] // 2


def test_what_is_known_of_a_long_batch_never_grows(monkeypatch):
    """Covariances are rough where a class is nearly ruled out: taking answers away must not blow that up."""
    sizes = []

    def known(found, *at):
        left = taken(found, *at)
        sizes.append(float(np.abs(left.covariance).max()))
        return left

    taken = choosing._known
    monkeypatch.setattr(choosing, "_known", known)
    posterior = problem(6, n=150)
    found = queries.next_queries(posterior, 60)
    assert len(set(found)) == 60
    assert (np.diff(sizes) < 0.01).all()
    assert sizes[-1] < sizes[0]


def test_after_the_first_of_very_many_questions_the_least_sure_rows_follow(monkeypatch):
    posterior = problem(3)
    p, rows = posterior.probability(), open_rows(posterior)
    few = queries.next_queries(posterior, 5)
    monkeypatch.setattr(choosing, "N_WEIGHED", 5)
    found = queries.next_queries(posterior, 1000)
    assert found[:5].tolist() == few.tolist()
    assert sorted(found) == rows.tolist()
    assert (np.diff(p.max(axis=1)[found[5:]]) >= 0).all()
    assert queries.next_queries(posterior, 8).tolist() == found[:8].tolist()


def test_taking_an_answer_away_is_conditioning():
    """Where what rows and answers have in common is exact, the rest is that of a Gaussian, answer after answer."""
    q = np.random.default_rng(0).dirichlet([2.0, 2.0, 2.0], size=3)  # three rows, targets and asked as well
    alone = np.stack([np.diag(each) - np.outer(each, each) for each in q])
    values, vectors = np.linalg.eigh(alone)
    roots = (vectors * np.sqrt(np.maximum(values, 0))[:, None]) @ vectors.swapaxes(1, 2)
    alike = 0.8 * np.array([[1, 0.5, 0.2], [0.5, 1, 0.4], [0.2, 0.4, 1]])
    shared = np.einsum("jd,jab,dbc->jadc", alike, roots, roots)
    found = Joint(np.tile(q, (2, 1)), q, np.concatenate([shared, shared]))
    for c in (1, 0):
        found = choosing._known(found, c, 3)
        shared = shared - np.einsum("jax,xy,efy->jaef", shared[:, :, c], np.linalg.pinv(alone[c]), shared[:, :, c])
        assert np.allclose(found.covariance[:3], shared, atol=1e-12)


def test_random_rows_are_repeatable_and_move_on():
    posterior = problem(2)
    first = queries.next_queries(posterior, 5, strategy="random", seed=3)
    assert np.array_equal(first, queries.next_queries(posterior, 5, strategy="random", seed=3))
    after = answered(posterior, first[0], 1)
    assert not np.array_equal(first[1:], queries.next_queries(after, 4, strategy="random", seed=3))


@pytest.mark.parametrize("strategy", queries.STRATEGIES)
def test_rows_asked_are_open_and_among_the_candidates(strategy):
    posterior = problem(3)
    known = posterior.model.nodes
    found = queries.next_queries(posterior, 100, strategy=strategy, candidates=[*known, 30, 31, 32])
    assert sorted(found) == [30, 31, 32]
    assert queries.next_queries(posterior, 2, strategy=strategy, candidates=known).size == 0


def test_bad_questions_are_refused():
    posterior = problem(2)
    with pytest.raises(ValueError, match=r"strategy must be 'loss', .* or 'random', got 'best'"):
        queries.next_queries(posterior, strategy="best")
    for n in (0, 1.5, "two"):
        with pytest.raises((ValueError, TypeError), match=r"n must be a whole number"):
            queries.next_queries(posterior, n)
        with pytest.raises((ValueError, TypeError), match=r"n must be a whole number"):
            queries.expected_gain(posterior, n)
    with pytest.raises(ValueError, match="n must be a whole number between 1 and 100, got 101"):
        queries.expected_gain(posterior, 101)
    with pytest.raises(ValueError, match="between 0 and"):
        queries.next_queries(posterior, candidates=[999])


def test_few_labels_are_spread_and_then_the_loss_decides():
    modes = spectrum.dense(laplacian.normalized(graph.knn(blobs(2)[0], n_neighbors=8)))
    few, among = problem(2), np.arange(0, 60, 2)
    found = queries.next_queries(few, 4, candidates=among, spectrum=modes)
    assert np.array_equal(found, queries.spread(modes, 4, taken=few.model.nodes, among=among))
    assert set(found) <= set(among) - set(few.model.nodes)
    assert not np.array_equal(found, queries.next_queries(few, 4, candidates=among))
    more = problem(4)
    assert len(few.model.nodes) < N_SPREAD == len(more.model.nodes)
    asked = [queries.next_queries(more, 4, spectrum=each) for each in (modes, None)]
    assert np.array_equal(*asked)


# When to stop


def test_candidates_of_one_field_need_no_corrected_marginals():
    """With few labels those take most of the time of a choice; which rows are candidates hardly depends on them."""
    posterior, several = problem(2, n=400), problem(3)
    mixture = Mixture((posterior, problem(2, n=400, tau=0.6)), np.array([0.7, 0.3]))
    for each in (posterior, mixture, replace(mixture, class_weights=np.array([2.0, 0.5]))):
        np.testing.assert_allclose(choosing._roughly(each, None), each.probability(), atol=0.05)
        chosen = queries.next_queries(each, 3, probability=lambda: pytest.fail("not needed"))
        assert len(set(chosen)) == 3
    np.testing.assert_array_equal(choosing._roughly(several, several.probability), several.probability())
    with pytest.raises(pytest.fail.Exception):
        queries.next_queries(posterior, strategy="margin", probability=lambda: pytest.fail("needed"))


def test_rows_after_the_first_hundred_are_the_least_certain_of_the_others():
    posterior = problem(2, n=400)
    chosen = queries.next_queries(posterior, 300)
    rest = np.setdiff1d(np.arange(400), np.append(chosen[:100], posterior.model.nodes))
    np.testing.assert_array_equal(chosen[100:], uncertainty.ranked(posterior.probability(), rest)[:200])


@pytest.mark.parametrize("n_classes", [2, 3, 8])
def test_the_expected_gain_against_answers_fitted_anew(n_classes):
    """Of the best two rows: every pair of answers, each with its probability."""
    posterior = problem(n_classes)
    rows = open_rows(posterior)
    first, second = queries.next_queries(posterior, 2, strategy="error")
    exact = np.zeros(3)
    exact[0] = losses(posterior.probability(rows), rows, [])[0]
    for a, chance in enumerate(posterior.probability([first])[0]):
        one = answered(posterior, first, a)
        exact[1] += chance * losses(one.probability(rows), rows, [first])[0]
        for b, other in enumerate(one.probability([second])[0]):
            after = answered(one, second, b).probability(rows)
            exact[2] += chance * other * losses(after, rows, [first, second])[0]
    for n in (1, 2):
        found = queries.expected_gain(posterior, n)
        assert found.n_answers == n
        assert found.errors[0] == pytest.approx(exact[0] / posterior.n_nodes)
        gain = exact[0] - exact[n]
        assert found.n_wrong[0] - found.n_wrong[-1] == pytest.approx(gain, rel=0.25)


def test_the_gain_in_words():
    def words(*wrong, n_rows=4000):
        return str(queries.ExpectedGain(n_rows, tuple(each / n_rows for each in wrong)))

    assert words(120, 116, *range(112, 79, -4)) == (
        "About 120 of 4,000 rows are expected to be wrong now, 116 after one more answer and 80 after 10 more. Go on."
    )
    # Not enough to go on for, but what stays wrong is told.
    assert words(18, 17.9, *[17] * 9, n_rows=150) == (
        "About 18 of 150 rows are expected to be wrong now, 18 after one more answer and 17 after 10 more. More answers "
        "correct few of them: stop if about 17 wrong rows will do."
    )
    assert words(4.0, 3.9, *[2.0] * 9, n_rows=150).endswith(
        "3.9 after one more answer and 2.0 after 10 more. Go on."
    )
    assert "stop when that is not worth it" in words(120, 119, *[110] * 9)
    assert "wrong now, 200 after one more answer. More answers correct" in words(200, 199.9)
    assert words(0.4, 0.4) == "Hardly any of 4,000 rows is expected to be wrong: you can stop."


def test_nothing_is_left_to_gain_where_all_is_labeled():
    posterior = problem(2)
    whole = posterior.with_labels(np.arange(posterior.n_nodes), np.arange(posterior.n_nodes) % 2)
    found = queries.expected_gain(whole, 5)
    assert set(found.errors) == {0}


# Without labels


@pytest.mark.parametrize("apart", [3.0, 100.0], ids=["connected", "in pieces"])
def test_the_first_rows_are_spread_over_the_clusters(apart):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [40, 25, 15])
    X = apart * np.eye(3)[y] + 0.5 * rng.standard_normal((80, 3))
    found = graph.knn(X, n_neighbors=6)
    rows = queries.spread(found, 3)
    assert sorted(y[rows]) == [0, 1, 2]
    modes = spectrum.leading(laplacian.normalized(found), n_modes=60)
    assert np.array_equal(rows, queries.spread(modes, 3))
    later = queries.spread(modes, 2, taken=rows[:1])
    assert sorted(y[[rows[0], *later]]) == [0, 1, 2]
    assert len(set(queries.spread(modes, 200))) == 80
    assert queries.spread(modes, 3, taken=np.arange(80)).size == 0


# The classifier

X, TRUTH = (lambda moons: (moons.X, (moons.y > 0).astype(int)))(datasets.two_moons(120, noise=0.15, seed=0))
GIVEN = np.where(np.isin(np.arange(120), [3, 40, 80, 110]), TRUTH, -1)


@pytest.fixture(scope="module")
def fitted():
    return GraphClassifier().fit(X, GIVEN)


def test_a_classifier_asks_and_says_when_to_stop(fitted):
    for strategy in queries.STRATEGIES:
        rows = fitted.next_queries(3, strategy=strategy)
        assert len(set(rows)) == 3
        assert not np.isin(rows, fitted.labels_.nodes).any()
    assert fitted.next_queries(candidates=[5, 6]).item() in (5, 6)
    found = fitted.expected_gain(10)
    assert len(found.errors) == 11
    assert 0 < found.errors[10] < found.errors[1] < found.errors[0]
    assert fitted.expected_gain().errors == pytest.approx(found.errors[:2])
    assert str(found).startswith("About ")


def test_answers_teach_more_where_they_are_asked_for():
    """Twelve answers by the default leave fewer rows wrong than as many at random, on average over four tables."""
    right = {"loss": 0.0, "random": 0.0}
    for seed in range(4):
        rows, truth = make_circles(200, noise=0.1, factor=0.5, random_state=seed)
        known = np.concatenate([np.flatnonzero(truth == k)[:2] for k in range(2)])
        start = GraphClassifier(random_state=seed).fit(rows, np.where(np.isin(np.arange(200), known), truth, -1))
        for strategy in right:
            classifier = copy(start)
            for _ in range(12):
                row = classifier.next_queries(1, strategy=strategy)
                classifier.partial_fit_labels(row, truth[row])
            right[strategy] += classifier.score(rows, truth) / 4
    assert right["loss"] > right["random"] + 0.03


def test_learning_again_is_a_fit_with_all_labels(fitted):
    classifier = copy(fitted)
    later = np.setdiff1d(np.arange(0, 120, 10), fitted.labels_.nodes)
    classifier.partial_fit_labels(later, TRUTH[later])
    before = classifier.label_distributions_
    assert classifier.relearn() is classifier
    anew = GraphClassifier().fit(X, np.where(np.isin(np.arange(120), classifier.labels_.nodes), TRUTH, -1))
    np.testing.assert_allclose(classifier.label_distributions_, anew.label_distributions_, atol=1e-8)
    assert classifier.hyperparameters_ == pytest.approx(anew.hyperparameters_)
    assert np.abs(before - anew.label_distributions_).max() > 1e-4
    assert classifier.spectrum_ is fitted.spectrum_
    assert fitted.labels_.nodes.size == 4  # the copy learned, not this one


def test_a_label_of_many_sites_is_taken_in_by_the_heaviest_components(monkeypatch):
    parts = tuple(problem(3, tau=tau) for tau in (0.4, 0.8, 1.5, 2.0, 3.0))
    mixture = Mixture(parts, np.array([0.3, 0.25, 0.2, 0.15, 0.1]))
    nodes, y = np.append(parts[0].model.nodes, 30), np.append(parts[0].model.y, 0)
    whole = mixture.with_labels(nodes, y)
    assert len(whole.components) == 5
    monkeypatch.setattr("graphuq.posterior.mixture.MOST_SITES", 10)
    few = mixture.with_labels(nodes, y)
    kept = [each.prior for each in few.components]
    assert len(kept) == 3
    assert all(any(each is part.prior for part in parts[:3]) for each in kept)
    np.testing.assert_allclose(few.weights.sum(), 1)
    same = replace(whole, components=whole.components)
    assert np.abs(few.probability() - same.probability()).max() < 0.1
