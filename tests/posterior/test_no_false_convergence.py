"""No posterior may say that it has converged and be wrong: small posteriors with known answers, adversarial ones among them.

`python -m benchmarks.small_posteriors` is the same at full length.
"""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks import small_posteriors
from benchmarks.exact_answers import importance
from benchmarks.small_posteriors import LENGTH, TOLERANCE, claim, judge, samplers
from benchmarks.small_problems import on_labels, problems
from experiments.experiment import Record

from graphuq import Orthant, sample
from graphuq.inference import contradictions
from graphuq.inference.contradictions import missed, needs_double_precision
from graphuq.inference.whiten import whiten
from graphuq.models import GinzburgLandau, LevelSet, Probit
from graphuq.posterior import GaussianPosterior, draws
from graphuq.prior import GaussianPrior

PROBLEMS = {f"{problem.kind}: {problem.name}": problem for problem in problems()}
# Kinds that share their compiled chains, and among them what is hardest: slabs that hold nothing, some, and all.
CHOSEN = [
    "LevelSet, modes: two cliques 1e-06 wide, gamma 0.37",
    "LevelSet, modes: two cliques 1e-08 wide, gamma 0.35",
    "LevelSet, modes: a knot 1e-07 wide, gamma 0.3",
    "LevelSet, labels: near twins 0.0001, gamma 0.4",
]
STUCK = "LevelSet, modes: two cliques 1e-06 wide, gamma 0.37"


def test_there_are_enough_problems_and_each_has_a_name_of_its_own():
    assert len(PROBLEMS) == len(problems()) >= 30


def test_false_claims_are_counted_for_each_sampler():
    right, wrong = ({"converged": True, "off": off, "false": off > TOLERANCE} for off in (0.01, 0.4))
    silent = {"converged": False, "off": 0.6, "false": False}
    trial = {"kind": "a kind", "problem": "a problem", "answer_error": 0.001}
    results = [
        {**trial, "sampler": "PCN", "claims": [right, wrong, silent]},
        {**trial, "sampler": "Orthant", "claims": [right, right]},
        {"kind": "a kind", "problem": "another", "sampler": "NUTS", "refused": "Phi is flat"},
    ]
    values = small_posteriors.summarize(small_posteriors.FULL, results)
    assert values["n_problems"] == 2
    assert values["samplers"]["PCN"] == {"runs": 3, "converged": 2, "false": 1, "refused": 0}
    assert values["samplers"]["NUTS"] == {"runs": 0, "converged": 0, "false": 0, "refused": 1}
    record = Record("small_posteriors", "full", {}, values, 1.0, "0", "a machine")
    assert [each.agrees for each in small_posteriors.claims(record)] == [False, True, True]
    assert small_posteriors.draw(record).axes


@pytest.mark.parametrize("name", CHOSEN)
def test_what_says_it_has_converged_is_right(name):
    problem = PROBLEMS[name]
    for sampler, length in samplers(problem).values():
        found = claim(problem, sampler, length, 0)
        assert not found.false, (sampler, found)


def test_the_move_across_is_what_tells(monkeypatch):
    """Without it chains agree with each other, R-hat is 1.00, and the answer is off by a half."""
    problem = PROBLEMS[STUCK]
    sampler, length = samplers(problem)["PCN"]
    monkeypatch.setattr(draws, "missed", lambda *_: (0.0, -1))
    found = claim(problem, sampler, length, 0)
    assert found.converged
    assert found.false
    assert found.off > 0.5


@pytest.mark.parametrize(
    ("name", "sampler"),
    [
        ("LevelSet, modes: two cliques 1e-06 wide, gamma 10", "Orthant"),
        ("LevelSet, modes: two cliques 1e-06 wide, gamma 0.5", "EllipticalSlice"),
        ("LevelSet, modes: one wrong label in a clique 1e-06 wide, gamma 0.2", "Referenced(Refractive)"),
        ("Probit, modes: two cliques 1e-06 wide, gamma 0.001", "Orthant"),
    ],
)
def test_what_is_right_may_say_so(name, sampler):
    """The other way round: where chains do find all of the posterior they are not doubted."""
    problem = PROBLEMS[name]
    found = claim(problem, *samplers(problem)[sampler], 0)
    assert found.converged
    assert found.off < TOLERANCE


def exact_draws(problem, whitening, *, thin, only=None, seed=0):
    """Draws of z, by weighing a mixture of wide and thin normals around the plane of the first label."""
    rng = np.random.default_rng(seed)
    rows, n = whitening.matrix(problem.model.nodes), 400_000
    normal = rows[0] / np.linalg.norm(rows[0])
    t = rng.standard_normal(n) * np.where(rng.random(n) < 0.5, thin, 1.0)
    z = rng.standard_normal((n, len(normal)))
    z += (t - z @ normal)[:, None] * normal
    density = np.exp(-(t**2) / 2) + np.exp(-((t / thin) ** 2) / 2) / thin
    right = (z @ rows.T >= 0) == problem.model.y
    log_weight = -(t**2) / 2 - 2 / problem.model.gamma**2 * (~right).sum(axis=1)
    weight = np.exp(log_weight - log_weight.max()) / density
    if only is not None:
        weight *= right[:, :2].all(axis=1) == only
    return z[rng.choice(n, size=(8, 500), p=weight / weight.sum())]


@pytest.mark.parametrize(
    ("name", "thin"),
    [
        ("LevelSet, modes: one wrong label in a clique 1e-06 wide, gamma 0.4", 3e-6),
        ("LevelSet, tail: one wrong label, tail 1e-08, gamma 0.4", 1e-4),
    ],
)
def test_the_move_across_leaves_the_posterior_as_it_is(name, thin):
    problem = PROBLEMS[name]
    whitening = whiten(problem.prior, problem.model.nodes)
    z = exact_draws(problem, whitening, thin=thin)
    inside = np.mean(z @ whitening.matrix(problem.model.nodes[[1]])[0] < 0)
    assert inside == pytest.approx(1 - problem.answer().plain[1, 1], abs=0.05)
    assert missed(whitening, problem.model, z)[0] < 0.01
    for only in (False, True):  # chains that have not found the slab, and chains that do not leave it
        shift, node = missed(whitening, problem.model, exact_draws(problem, whitening, thin=thin, only=only))
        assert shift > 0.02
        assert node in (0, 1)


def test_the_move_across_of_a_field_for_each_class_is_that_of_their_difference():
    """Fields (w - z) / sqrt(2) and (w + z) / sqrt(2) with any w have the sign of z, at half the cost of a wrong label."""
    problem = PROBLEMS["LevelSet, modes: one wrong label in a clique 1e-06 wide, gamma 0.4"]
    whitening, y = whiten(problem.prior, problem.model.nodes), problem.model.y
    model = LevelSet(problem.model.nodes, y, gamma=problem.model.gamma / np.sqrt(2), n_classes=2, n_fields=2)
    for only, is_missed in ((None, False), (False, True), (True, True)):
        z = exact_draws(problem, whitening, thin=3e-6, only=only)
        w = np.random.default_rng(1).standard_normal(z.shape)
        shift, node = missed(whitening, model, np.concatenate([w - z, w + z], axis=2) / np.sqrt(2))
        assert shift > 0.02 if is_missed else shift < 0.01
        assert node in (0, 1) or not is_missed


def test_quadrature_agrees_with_importance_sampling():
    for name in (STUCK, "Probit, modes: two cliques 1e-06 wide, gamma 0.01"):
        problem = PROBLEMS[name]
        drawn = importance(problem.prior.vectors, problem.model)
        assert np.allclose(drawn.plain, problem.answer().plain, atol=5 * drawn.error)
        assert np.allclose(drawn.predictive, problem.answer().predictive, atol=5 * drawn.error)
        assert drawn.error < 0.01


@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-9])
def test_contradictions_are_found_with_the_width_of_the_slab_between_them(gap):
    problem = on_labels("twins", [1, 0, 1, 0], LevelSet, gap=gap, gamma=0.5)
    found = contradictions.contradictions(problem.prior, problem.model)
    assert [*zip(found.one, found.other, strict=True)] == [(0, 1), (1, 0)]
    rows = problem.prior.vectors
    assert np.allclose(found.width, np.linalg.norm(rows[0] - rows[1]), rtol=1e-6)
    agreeing = replace(problem.model, y=np.array([1, 1, 0, 0]))
    assert contradictions.contradictions(problem.prior, agreeing).one.size == 0
    noisy = contradictions.contradictions(problem.prior, Probit(np.arange(4), problem.model.y, gamma=0.01))
    assert np.allclose(noisy.width, np.hypot(found.width, 0.01 * np.sqrt(2)), rtol=1e-3)


@pytest.mark.parametrize(("n_classes", "n_fields"), [(2, 1), (2, 2), (3, 3)])
def test_labels_of_one_class_contradict_each_other_in_opposite_rows(n_classes, n_fields):
    """Two clusters under a prior without the constant, both of one class: both labels are right in a thin slab alone."""
    gap = 1e-4
    prior = GaussianPrior(np.array([[1, gap], [-1, gap], [1.0, 0.2]]), np.ones(2))
    with pytest.warns(UserWarning, match="Every label is class 1"):
        model = LevelSet(np.array([0, 1]), np.array([1, 1]), gamma=0.2, n_classes=n_classes, n_fields=n_fields)
    found = contradictions.contradictions(prior, model)
    assert sorted(zip(found.one, found.other, strict=True)) == [(0, 1), (1, 0)]
    assert np.allclose(found.width, 2 * gap, rtol=1e-6)
    assert needs_double_precision(prior, model)
    if n_fields == 1:
        assert not GaussianPosterior.of(prior, model).diagnostics().converged
    if n_classes == 2:  # the slab holds nearly all of the posterior, and chains that miss it agree on a half
        z = np.random.default_rng(0).standard_normal((8, 500, 2 * n_fields))
        shift, node = missed(whiten(prior, model.nodes), model, z)
        assert shift > 0.3
        assert node in (0, 1)


def test_double_precision_is_chosen_where_it_is_needed():
    thin, wide = (on_labels("twins", [1, 0, 1, 0], LevelSet, gap=gap, gamma=0.5) for gap in (1e-6, 0.1))
    assert needs_double_precision(thin.prior, thin.model)
    assert not needs_double_precision(wide.prior, wide.model)
    for gamma, needed in ((1e-3, True), (0.1, False)):
        assert needs_double_precision(wide.prior, Probit(np.arange(4), wide.model.y, gamma=gamma)) == needed
    assert not needs_double_precision(thin.prior, GinzburgLandau(np.arange(4), thin.model.y))
    with pytest.raises(ValueError, match="dtype must be 'auto'"):
        sample(thin.prior, thin.model, dtype="float16")


def test_what_is_said_of_it():
    problem = PROBLEMS[STUCK]
    with pytest.warns(UserWarning, match="labels contradict each other in nearly equal rows"):
        posterior = sample(problem.prior, problem.model, samplers(problem)["PCN"][0], **LENGTH)
    found = posterior.diagnostics()
    assert found.worst_r_hat < 1.05
    assert not found.balanced
    assert found.shift[1] in problem.model.nodes
    assert posterior.settings["dtype"] == "float64"
    assert not judge(problem, posterior).converged


def test_trajectories_of_few_labels_are_not_shortened():
    """Two walls that hold u between them would: then the noise hardly moves, and chains do not mix."""
    problem = PROBLEMS["Probit, modes: two cliques 1e-06 wide, gamma 0.001"]
    posterior = sample(problem.prior, problem.model, Orthant(), **LENGTH)
    assert posterior.diagnostics().ess_bulk.min() > 2000


@pytest.mark.parametrize("n_classes", [2, 4])
def test_each_label_is_paired_with_the_one_that_contradicts_it_most(n_classes, monkeypatch):
    """Against all pairs, one by one, and the width against the dense covariance; in blocks that end within a class."""
    monkeypatch.setattr(contradictions, "BLOCK", 7)
    monkeypatch.setattr(contradictions, "NEAR", 0.8)
    rng = np.random.default_rng(n_classes)
    mu0 = GaussianPrior(rng.standard_normal((60, 4)), np.array([2.0, 1.0, 0.5, 0.3]), 0.01)
    nodes, y = rng.permutation(60)[:40], rng.integers(0, n_classes, 40)
    found = contradictions.contradictions(mu0, LevelSet(nodes, y, gamma=0.5, n_classes=n_classes))
    C = mu0.covariance(nodes, nodes)
    deviation = np.sqrt(np.diag(C))
    opposed = np.where(y[:, None] == y, -1.0, 1.0) * C / np.outer(deviation, deviation)
    np.fill_diagonal(opposed, -1)
    assert len(found.one) == contradictions.MOST_PAIRS
    assert opposed[found.one[0]].max() == opposed.max()
    for one, other, width in zip(*found, strict=True):
        assert opposed[one, other] == pytest.approx(opposed[one].max())
        assert width == pytest.approx(np.sqrt(2 - 2 * opposed[one, other]), rel=1e-6)
