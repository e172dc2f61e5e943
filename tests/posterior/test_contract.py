"""What every posterior has in common: draws, Gaussians, and mixtures of either, of two classes and of three."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from graphuq import prior as priors
from graphuq import uncertainty
from graphuq.calibration import apply_temperature
from graphuq.inference.fields import drawn_fields
from graphuq.inference.whiten import OnLabels, OnModes, OnModesAndLabels, whiten
from graphuq.models import Probit
from graphuq.new_rows import NewRows
from graphuq.posterior import Draws, GaussianPosterior, Mixture, gaussian, load
from graphuq.queries.joint import covariance, cross_covariance
from tests.oracles import dense_covariance, signed_cdf, simulated_classes
from tests.posterior.problems import KINDS, LEAVES, NODES, PRIORS, SPECTRUM, WEIGHTS, Y, model, posterior

every_leaf = pytest.mark.parametrize("leaf", LEAVES, ids=["-".join(map(str, leaf)) for leaf in LEAVES])
OTHERS = np.setdiff1d(np.arange(30), NODES)
ROWS = {"all": None, "some": np.array([3, 21, 8]), "mask": np.isin(np.arange(30), [3, 8, 21]), "none": []}


def test_every_kind_of_whitening_is_among_them():
    kinds = {type(whiten(prior, NODES)) for prior in PRIORS.values()}
    assert kinds == {OnLabels, OnModes, OnModesAndLabels}


def new_rows(prior, nodes):
    return NewRows(PRIORS[prior].vectors[nodes])


@every_leaf
def test_shapes(leaf):
    found, n_classes = posterior(*leaf), leaf[1]
    n_fields = 1 if n_classes == 2 else n_classes
    assert (found.n_nodes, found.n_classes) == (30, n_classes)
    assert found.prior is PRIORS[leaf[2]]
    for where, n_rows in (*((ROWS[name], n) for name, n in (("all", 30), ("some", 3), ("mask", 3), ("none", 0))),
                          (new_rows(leaf[2], [1, 6]), 2)):  # fmt: skip
        classes = found.classes(where)
        assert classes.probability.shape == classes.error.shape == (n_rows, n_classes)
        labels = found.labels(where)
        assert labels.mean.shape == labels.error.shape == ((n_rows,) if n_classes == 2 else (n_rows, n_classes))
        assert labels.variance.shape == (n_rows,)
        assert [each.shape for each in found.moments(where)] == [(n_rows, n_fields)] * 2
        draws = found.latent(np.arange(30) if where is None else where)
        assert draws.shape[2:] == ((n_rows,) if n_classes == 2 else (n_rows, n_fields))
    assert found.left_out().shape == (5, n_classes)
    assert isinstance(found.diagnostics().converged, bool)
    assert str(found.diagnostics())


@every_leaf
@pytest.mark.parametrize("noise", [True, False])
def test_rows_are_probabilities(leaf, noise):
    for where in (None, new_rows(leaf[2], [1, 6])):
        p = posterior(*leaf).classes(where, noise=noise).probability
        np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-9)
        assert p.min() >= 0
        assert p.max() <= 1
    np.testing.assert_allclose(posterior(*leaf).left_out().sum(axis=1), 1, atol=1e-9)


@pytest.mark.parametrize("gamma", [1e-3, 0.4])
@every_leaf
def test_with_noise_nothing_is_certain(leaf, gamma):
    p = posterior(*leaf, gamma).probability()
    assert p.min() > 0
    assert p.max() < 1


@every_leaf
def test_noise_lowers_confidence(leaf):
    found = posterior(*leaf)
    with_noise, without = (
        uncertainty.confidence(found.classes(noise=noise).probability) for noise in (True, False)
    )
    assert with_noise.mean() < without.mean()
    np.testing.assert_array_equal(found.probability(), found.classes().probability)


@every_leaf
def test_labels_are_those_of_u_without_noise(leaf):
    found = posterior(*leaf)
    p = found.classes(noise=False).probability
    labels = found.labels()
    np.testing.assert_allclose(labels.mean, p[:, 1] - p[:, 0] if leaf[1] == 2 else p, atol=1e-12)
    np.testing.assert_allclose(labels.variance, uncertainty.label_variance(p), atol=1e-12)
    np.testing.assert_array_equal(found.label_mean(), labels.mean)
    np.testing.assert_array_equal(found.label_variance([3, 8]), labels.variance[[3, 8]])
    assert found.mean_label_variance() == pytest.approx(labels.variance.mean())


@every_leaf
def test_the_components_together_are_the_posterior(leaf):
    found = posterior(*leaf)
    assert len(found.components) == len(found.weights)
    assert found.weights.sum() == pytest.approx(1)
    alone = [each.probability() for each in found.components]
    np.testing.assert_allclose(found.mixed(alone), found.probability(), rtol=1e-12)


@every_leaf
def test_ranking(leaf):
    found = posterior(*leaf)
    order = uncertainty.ranked(found.classes(noise=False).probability)
    unlabeled = order[~np.isin(order, NODES)]
    np.testing.assert_array_equal(found.most_uncertain(4), unlabeled[:4])
    np.testing.assert_array_equal(found.most_uncertain(30), unlabeled)


@every_leaf
def test_a_new_row_where_a_node_is_gets_its_answer(leaf):
    found, rows = posterior(*leaf), new_rows(leaf[2], OTHERS)
    for noise in (True, False):
        new, old = (found.classes(where, noise=noise) for where in (rows, OTHERS))
        np.testing.assert_allclose(new.probability, old.probability, atol=2e-6)
        np.testing.assert_allclose(new.error, old.error, atol=2e-6)
    for one, other in zip(found.moments(rows), found.moments(OTHERS), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@every_leaf
def test_blocks_do_not_matter(leaf, monkeypatch):
    found = posterior(*leaf)
    rows = new_rows(leaf[2], np.arange(30))
    whole = [found.classes(), found.classes(noise=False), found.classes(rows)], found.moments()
    monkeypatch.setattr("graphuq.posterior.draws.BLOCK_NUMBERS", 7 * 800 * 3)
    monkeypatch.setattr("graphuq.posterior.gaussian.BLOCK_NUMBERS", 7 * 5)
    pieces = [found.classes(), found.classes(noise=False), found.classes(rows)], found.moments()
    for one, other in zip(whole[0], pieces[0], strict=True):
        np.testing.assert_allclose(other.probability, one.probability, atol=1e-6)
        np.testing.assert_allclose(other.error, one.error, atol=1e-6)
    for one, other in zip(whole[1], pieces[1], strict=True):
        np.testing.assert_allclose(other, one, atol=1e-6)


def permuted(found, order):
    """The same posterior of a graph whose node k was node order[k]."""
    if isinstance(found, Mixture):
        return replace(found, components=tuple(permuted(each, order) for each in found.components))
    prior = replace(found.prior, vectors=found.prior.vectors[order])
    renamed = replace(found.model, nodes=np.argsort(order)[found.model.nodes])
    if isinstance(found, GaussianPosterior):
        return GaussianPosterior.of(prior, renamed)
    return replace(found, whitening=whiten(prior, renamed.nodes), model=renamed)


@every_leaf
def test_permuted_nodes_permute_the_answer(leaf):
    found, order = posterior(*leaf), np.random.default_rng(0).permutation(30)
    other = permuted(found, order)
    for noise in (True, False):
        expected = found.classes(noise=noise).probability[order]
        np.testing.assert_allclose(other.classes(noise=noise).probability, expected, atol=1e-5)
    np.testing.assert_allclose(other.left_out(), found.left_out(), atol=1e-6)


@every_leaf
def test_nodes_are_numbers_or_a_mask(leaf):
    found = posterior(*leaf)
    np.testing.assert_array_equal(found.probability(ROWS["mask"]), found.probability([3, 8, 21]))
    np.testing.assert_array_equal(found.probability([21, 3]), found.probability([3, 21])[::-1])
    for wrong, why in (
        ([30], "between 0 and 29"),
        ([-1], "between 0 and 29"),
        ([True], "one entry for each"),
        ([0.5], "float64"),
        ([[1, 2]], "shape"),
    ):
        with pytest.raises(ValueError, match=why):
            found.classes(wrong)
    with pytest.raises(ValueError, match=f"need {found.prior.n_modes} columns"):
        found.classes(NewRows(np.ones((2, 3))))


@every_leaf
def test_draws_of_the_latent_fields_have_the_moments_told(leaf):
    found = posterior(*leaf)
    u = found.latent(OTHERS, seed=3).astype(float)
    u = u.reshape(-1, len(OTHERS), u.shape[3] if u.ndim == 4 else 1)
    mean, variance = found.moments(OTHERS)
    # A chain of 200 has fewer effective draws than draws; of a mixture 1,000 are drawn from those.
    n_effective = {"gaussian": 1000, "mixture of gaussians": 1000}.get(leaf[0], 150)
    assert np.abs((u.mean(axis=0) - mean) / np.sqrt(variance / n_effective)).max() < 5
    np.testing.assert_allclose(u.var(axis=0), variance, rtol=0.35)
    np.testing.assert_array_equal(found.latent([3], seed=1), found.latent([3], seed=1))
    if leaf[0] != "draws" or leaf[2] != "project":  # there z leaves nothing open
        assert not np.array_equal(found.latent([3], seed=1), found.latent([3], seed=2))


@pytest.mark.parametrize("temperature", [0.4, 2.0])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_error_of_tempered_answers_is_tempered_too(n_classes, temperature):
    """Of two classes exactly, by a finite difference; of three it bounds what any errors of that size can do."""
    bare = posterior("mixture of draws", n_classes, "full")
    p, told = bare.classes(OTHERS), replace(bare, temperature=temperature).classes(OTHERS)
    rng, worst, h = np.random.default_rng(0), 0.0, 1e-3
    for _ in range(300):
        move = rng.choice([-1.0, 1.0], p.error.shape) * p.error
        if n_classes == 2:
            move = p.error * [1, -1]
        up, down = (apply_temperature(p.probability + sign * h * move, temperature) for sign in (1, -1))
        worst = np.maximum(worst, np.abs(up - down) / (2 * h))
    np.testing.assert_allclose(told.error, worst, rtol=1e-3)
    if temperature == 0.4:
        assert np.abs(told.error / p.error - 1).max() > 0.3


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_gaussian_draws_of_rows_and_fields_are_joint(n_classes, prior, monkeypatch):
    """Against the dense covariance, and the classes in closed form; fields drawn each for itself would fail."""
    monkeypatch.setattr(gaussian, "N_LATENT_DRAWS", 20_000)
    found = posterior("gaussian", n_classes, prior, 0.05)
    rows = np.append(OTHERS, OTHERS[:1])  # one of them twice
    u = found.latent(rows, seed=5)[0].reshape(20_000, -1)
    exact = (covariance if n_classes == 2 else cross_covariance)(found, rows, rows).reshape(u.shape[1], -1)
    deviation = np.sqrt(np.diagonal(exact))
    scale = np.sqrt((np.square(exact) + np.outer(deviation, deviation) ** 2) / len(u))
    assert np.abs((np.cov(u.T) - exact) / scale).max() < 5
    fields = u.reshape(20_000, len(rows), -1)
    assert np.corrcoef(fields[:, 0, 0], fields[:, -1, 0])[0, 1] > 0.999
    if n_classes == 3:
        told = found.classes(rows, noise=False).probability
        alone = np.random.default_rng(0).standard_normal(fields.shape) * deviation.reshape(-1, 3)
        drawn = {"together": fields, "alone": found.moments(rows)[0] + alone}
        shares = {name: np.mean(each.argmax(2)[..., None] == np.arange(3), 0) for name, each in drawn.items()}
        z = {name: np.abs(each - told).max() / np.sqrt(0.25 / 20_000) for name, each in shares.items()}
        assert z["together"] < 5
        assert z["alone"] > 5 or prior != "project"  # where few modes carry all labels


@pytest.mark.parametrize("form", ["nodes", "new rows"])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("prior", ["full", "approximate"])
def test_what_draws_leave_open_is_common_to_rows(prior, n_classes, form):
    """Against the dense covariance given z; rows drawn each for itself would fail."""
    found = posterior("draws", n_classes, prior)
    rows = OTHERS if form == "nodes" else new_rows(prior, OTHERS)
    mean = drawn_fields(found.whitening, found.z, rows, found.n_fields).reshape(800, len(OTHERS), -1)
    seeds = range(10)
    together = np.concatenate([found.latent(rows, seed=seed).reshape(mean.shape) - mean for seed in seeds])
    at, deviation = found.whitening.matrix(rows), found.whitening.std(rows)
    common = dense_covariance(found.prior)[np.ix_(OTHERS, OTHERS)] - at @ at.T
    if form == "new rows":  # each has a tail of its own
        excess = found.prior.variances - found.prior.tail_variance
        common = (found.prior.vectors[OTHERS] * excess) @ found.prior.vectors[OTHERS].T - at @ at.T
        np.fill_diagonal(common, deviation**2)
    alone = deviation[:, None] * np.random.default_rng(0).standard_normal(together.shape)
    scale = np.sqrt((np.square(common) + np.outer(deviation, deviation) ** 2) / len(together))
    z = {}
    for name, open_ in (("together", together), ("alone", alone)):
        z[name] = max(
            np.abs((each.T @ each / len(together) - common) / scale).max() for each in np.moveaxis(open_, 2, 0)
        )
    assert z["together"] < 5
    assert z["alone"] > 7
    if form == "nodes":
        np.testing.assert_array_equal(found.to_arviz(OTHERS).posterior["u"].values, found.latent(OTHERS))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@every_leaf
def test_every_posterior_goes_to_arviz(leaf):
    found = posterior(*leaf)
    data = found.to_arviz([3, 8])
    np.testing.assert_array_equal(data.posterior["u"].values, found.latent([3, 8]))
    assert data.posterior["node"].values.tolist() == [3, 8]
    # A Gaussian has draws on the wrong side of a label.
    assert hasattr(data, "log_likelihood") == ("draws" in leaf[0])
    assert set(NODES) <= set(found.to_arviz().posterior["node"].values)


@every_leaf
def test_a_posterior_is_told_in_a_line(leaf):
    kind, n_classes, _ = leaf
    found = posterior(*leaf)
    more = {"draws": ", 4 chains of 200 draws", "gaussian": ""}.get(kind, ", 2 components")
    assert repr(found) == f"{type(found).__name__}(30 nodes, {n_classes} classes, 5 labels{more})"
    assert repr(found.prior) == f"GaussianPrior(30 nodes, {found.prior.n_modes} modes, {found.prior.name})"


def test_gaussian_draws_at_new_rows_are_joint(monkeypatch):
    """A node given as a new row has the law of the node."""
    monkeypatch.setattr(gaussian, "N_LATENT_DRAWS", 20_000)
    found = posterior("gaussian", 2, "full")
    one, other = (np.cov(found.latent(each, seed=5)[0].T) for each in (OTHERS[:6], new_rows("full", OTHERS[:6])))
    np.testing.assert_allclose(one, other, atol=1e-6)


@every_leaf
def test_what_holds_arrays_is_compared_and_hashed_by_identity(leaf):
    found = posterior(*leaf)
    part = found.components[0] if isinstance(found, Mixture) else found
    held = [part.prior, part.whitening, part.model, found.classes([3]), found.labels([3])]
    held += [part.fit, part.fit.sites] if isinstance(part, GaussianPosterior) else []
    for each in held:
        assert each == each
        assert each != replace(each)
        assert len({each, replace(each)}) == 2


@every_leaf
def test_save_and_load(leaf, tmp_path):
    found, path = posterior(*leaf), tmp_path / "posterior.npz"
    found.save(path)
    loaded = load(path)
    assert type(loaded) is type(found)
    assert [each.name for each in tmp_path.iterdir()] == ["posterior.npz"]
    for noise, where in product((True, False), (None, new_rows(leaf[2], [1, 6]))):
        one, other = (each.classes(where, noise=noise) for each in (found, loaded))
        np.testing.assert_allclose(other.probability, one.probability, atol=1e-9)
        np.testing.assert_allclose(other.error, one.error, atol=1e-9)
    np.testing.assert_allclose(loaded.left_out(), found.left_out(), atol=1e-8)
    for one, other in zip(found.moments(), loaded.moments(), strict=True):
        np.testing.assert_allclose(other, one, atol=1e-8)
    np.testing.assert_array_equal(loaded.model.nodes, found.model.nodes)
    assert loaded.model.gamma == found.model.gamma
    assert loaded.prior.name == found.prior.name
    if isinstance(found, Draws):
        np.testing.assert_array_equal(loaded.z, found.z)
        assert loaded.settings == found.settings


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_refused_with_a_sentence(kind, tmp_path):
    """A byte changed anywhere, one more at the end, or some missing there."""
    path = tmp_path / "posterior.npz"
    posterior(kind, 3, "project").save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(100):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= int(rng.integers(1, 256))
        path.write_bytes(bytes(damaged))
        with pytest.raises(ValueError, match=r"damaged|this version reads") as refused:
            load(path)
        assert str(path) in str(refused.value)
    path.write_bytes(whole + b"0")
    with pytest.raises(ValueError, match="damaged"):
        load(path)
    for length in rng.integers(0, len(whole), 20):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="is not a posterior of graphuq, or is damaged"):
            load(path)


def test_files_that_are_not_posteriors_are_refused(tmp_path):
    (tmp_path / "other.npz").write_text("hello")
    with pytest.raises(ValueError, match="not a posterior"):
        load(tmp_path / "other.npz")
    np.savez(tmp_path / "arrays.npz", z=np.ones(3))
    with pytest.raises(ValueError, match="not a posterior"):
        load(tmp_path / "arrays.npz")
    from tests.oracles import random_spectrum

    random_spectrum().save(tmp_path / "spectrum.npz")
    with pytest.raises(ValueError, match="holds the format"):
        load(tmp_path / "spectrum.npz")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.npz")


# Left out: of a few labels in closed form or by simulation, of more by leaving each out in turn.


def without(labels, j):
    kept = np.arange(len(labels.nodes)) != j
    return labels.nodes[kept], labels.y[kept]


@pytest.mark.parametrize("kind", ["draws", "gaussian"])
@pytest.mark.parametrize("n_labels", [2, 3])
@pytest.mark.parametrize("delta", [0.0, 0.1])
def test_left_out_of_two_classes_is_a_ratio_of_orthants(kind, n_labels, delta):
    """P(g_j >= 0 | the other labels), where a label is the sign of g but for mistakes."""
    labels = replace(model(2, nodes=NODES[[0, 2, 3]][:n_labels], y=Y[2][[0, 2, 3]][:n_labels]), delta=delta)
    found = GaussianPosterior.of(PRIORS["full"], labels)
    if kind == "draws":
        whitening, z = found.whitening, np.zeros((2, 8, n_labels))
        found = Draws(whitening, labels, z, z[..., 0], z[..., 0], {})
    block = dense_covariance(PRIORS["full"])[np.ix_(labels.nodes, labels.nodes)] + labels.gamma**2 * np.eye(
        n_labels
    )
    signs, up = 2 * labels.y - 1, []
    for j in range(n_labels):
        mass = np.zeros(2)
        for sides in product((1, -1), repeat=n_labels):
            mistakes = sum(side != sign for i, (side, sign) in enumerate(zip(sides, signs, strict=True)) if i != j)
            mass[(sides[j] + 1) // 2] += (delta / (1 - delta)) ** mistakes * signed_cdf(sides, block)
        up.append(mass[1] / mass.sum())
    np.testing.assert_allclose(found.left_out()[:, 1], up, atol=0.005)


@pytest.mark.parametrize(("prior", "tolerance"), [("full", 0.001), ("project", 0.045)])
@pytest.mark.parametrize("delta", [0.0, 0.1])
def test_left_out_of_three_classes_is_that_of_a_simulation(delta, prior, tolerance):
    """On three modes a label says much about the next one, and what its site became of it stays a little."""
    labels = replace(model(3, nodes=NODES[:3], y=Y[3][:3]), delta=delta)
    posterior = GaussianPosterior.of(PRIORS[prior], labels)
    for j, node in enumerate(labels.nodes):
        nodes, y = without(labels, j)
        _, (expected, error) = simulated_classes(PRIORS[prior], replace(labels, nodes=nodes, y=y), [node], seed=j)
        off = np.abs(posterior.left_out()[j] - expected[0])
        assert off.max() < tolerance + 5 * error.max()
        if prior == "project":  # as far as the label itself would move it
            assert np.abs(posterior.probability([node])[0] - expected[0]).max() > 3 * tolerance


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("tail", [False, True])
def test_left_out_is_what_a_fit_without_the_label_says(n_classes, tail):
    """The other sites would move a little if the label were gone: that much it may differ."""
    prior = priors.matern(SPECTRUM, tau=0.3, alpha=2, n_modes=8, tail=tail)
    nodes = np.random.default_rng(4).choice(30, 12, replace=False)
    u = prior.sample(seed=3)[0][nodes]
    y = np.digitize(u, np.quantile(u, [0.5] if n_classes == 2 else [0.3, 0.7]))
    components = tuple(GaussianPosterior.of(prior, model(n_classes, g, nodes, y)) for g in (0.4, 1.0))
    mixture = Mixture(components, WEIGHTS)
    for found in (components[0], mixture):
        refitted = np.array(
            [found.with_labels(*without(found.model, j)).probability([node])[0] for j, node in enumerate(nodes)]
        )
        off = np.abs(found.left_out() - refitted)
        assert off.max() < 0.05
        assert off.mean() < 0.015
        assert np.abs(found.left_out() - found.probability(nodes)).max() > 0.1


@pytest.mark.parametrize("n_classes", [2, 3])
def test_other_labels_give_what_a_fresh_fit_gives(n_classes):
    """Labels added, taken away and changed; of a mixture the weights follow the evidence."""
    old = posterior("mixture of gaussians", n_classes, "full")
    nodes, y = np.append(NODES[1:], [7, 28]), np.append(Y[n_classes][1:], [0, 1])
    y[1] = (y[1] + 1) % n_classes
    fresh = [
        GaussianPosterior.of(PRIORS["full"], replace(each.model, nodes=nodes, y=y)) for each in old.components
    ]
    moved = old.components[0].with_labels(nodes, y)
    np.testing.assert_allclose(moved.probability(), fresh[0].probability(), atol=1e-6)
    gains = [new.fit.log_evidence - each.fit.log_evidence for new, each in zip(fresh, old.components, strict=True)]
    weights = WEIGHTS * np.exp(gains)
    mixture = old.with_labels(nodes, y)
    expected = np.tensordot(weights / weights.sum(), [each.probability() for each in fresh], 1)
    np.testing.assert_allclose(mixture.probability(), expected, atol=1e-6)
    assert (np.diff(mixture.weights) <= 0).all()
    assert mixture.weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("inner", ["draws", "gaussian"])
def test_a_mixture_is_the_weighted_average(inner, n_classes):
    found = posterior(f"mixture of {inner}".replace("gaussian", "gaussians"), n_classes, "full")
    parts = [each.classes() for each in found.components]
    np.testing.assert_allclose(found.probability(), np.tensordot(WEIGHTS, [p.probability for p in parts], 1))
    error = np.sqrt(np.tensordot(WEIGHTS**2, [p.error**2 for p in parts], 1))
    np.testing.assert_allclose(found.classes().error, error, atol=1e-12)
    first, second = (np.array([each.moments()[i] for each in found.components]) for i in (0, 1))
    mean = np.tensordot(WEIGHTS, first, 1)
    square = np.tensordot(WEIGHTS, second + first**2, 1)
    np.testing.assert_allclose(found.moments()[0], mean)
    np.testing.assert_allclose(found.moments()[1], square - mean**2)


@pytest.mark.parametrize("prior", PRIORS)
def test_two_classes_of_the_model_of_many_are_the_two_class_model(prior):
    """Two fields of half the variance and noise; with more than 20 labels answers at other rows are Gaussian."""
    made = PRIORS[prior]
    half = replace(made, variances=made.variances / 2, tail_variance=made.tail_variance / 2)
    nodes = np.random.default_rng(4).choice(30, 24, replace=False)
    y = (made.sample(seed=3)[0][nodes] >= 0).astype(int)
    for delta in (0.0, 0.1):
        one = GaussianPosterior.of(made, Probit(nodes, y, gamma=0.5, delta=delta))
        two = GaussianPosterior.of(half, Probit(nodes, y, gamma=0.5 / np.sqrt(2), delta=delta, n_fields=2))
        assert two.fit.log_evidence == pytest.approx(one.fit.log_evidence, abs=1e-6)
        others = np.setdiff1d(np.arange(30), nodes)
        for noise in (True, False):
            p_two, p_one = (each.classes(others, noise=noise).probability for each in (two, one))
            np.testing.assert_allclose(p_two, p_one, atol=1e-6)
        np.testing.assert_allclose(two.left_out(), one.left_out(), atol=1e-6)
        new = NewRows(made.vectors[others] * 0.7)
        np.testing.assert_allclose(two.probability(new), one.probability(new), atol=1e-6)
        (mean, _), (means, _) = one.moments(), two.moments()
        np.testing.assert_allclose(means[:, 1] - means[:, 0], mean[:, 0], atol=1e-6)
