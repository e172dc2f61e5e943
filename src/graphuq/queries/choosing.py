"""A posterior in; the rows whose labels are expected to help most (active learning), and by how much, out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphuq import uncertainty
from graphuq._expect import expect, expect_nodes, expect_one_of, expect_seed, expect_whole
from graphuq.inference.marginals import gaussian_classes
from graphuq.posterior import GaussianPosterior
from graphuq.posterior.base import Posterior
from graphuq.queries.joint import N_ANSWERS, N_ANSWERS_TOLD, Joint, heaviest, joint
from graphuq.queries.spreading import most_telling, spread
from graphuq.spectrum import Spectrum

Array = NDArray[np.floating]
Nodes = NDArray[np.int64]
Given: TypeAlias = Array | Callable[[], Array] | None

STRATEGIES = ("loss", "error", "variance", "margin", "entropy", "v_optimality", "sigma_optimality", "random")
# With fewer labels than this, queries are spread over the graph: the answers that few labels predict reflect
# mostly the hyperprior, and labels only where it is uncertain cannot reveal that it is wrong.
N_SPREAD = 8
# Candidates whose expected loss is computed: half are the least certain rows, half are spread over the others.
# There are fewer with many classes, since each pair of candidate and target has K^2 probabilities.
N_CANDIDATES, N_CANDIDATES_MANY = 200, 100
# Rows of a batch that are chosen greedily by expected loss, at increasing cost; further rows are the least certain
# ones, since predictions after so many unknown answers are unreliable.
N_WEIGHED = 100
# Rows at which the loss is evaluated: all, or this many sampled by their uncertainty.
N_TARGETS, N_TARGETS_MANY = 2000, 250
# Every row has at least this fraction of the average probability of being sampled as a target.
LEAST_CHANCE = 0.1
# Lower bound on the probability of an answer, as a divisor.
LEAST_ANSWER = 1e-6
# Lower bounds on joint probabilities in logarithms, and on the total loss as a divisor.
LEAST_JOINT, LEAST_LOSS = 1e-12, 1e-9
# Directions in which an answer varies less than this are treated as known: they carry no information.
LEAST_VARIANCE = 1e-4
# Of rows whose classes are correlated more strongly than this, a batch has only one.
NEAR_DUPLICATE = 0.5
# Hyper-parameters are learned again each time the number of labels has grown by this factor: few labels leave them
# uncertain, and queries chosen with wrong ones are wasted. Learning after every answer was no better.
LEARN_AGAIN = 1.25
# Continuing is recommended if each answer is expected to correct at least the first number of rows, or all answers
# together at least the second number as a fraction of the errors. The decision is left to the user if each answer
# corrects at least the third number of rows, about as many as labeling a wrong row itself.
WORTH_ASKING, WORTH_GOING_ON, WORTH_ITSELF = 2.0, 0.1, 0.5


def next_queries(
    posterior: Posterior,
    n: int = 1,
    *,
    strategy: str = "loss",
    candidates: ArrayLike | None = None,
    probability: Given = None,
    spectrum: Spectrum | None = None,
    seed: int = 0,
) -> Nodes:
    """Choose the rows to label next, best first; fewer than n if fewer are unlabeled.

    | strategy | chosen row |
    |---|---|
    | loss | its label is expected to reduce error plus log-loss most, each relative to its current value |
    | error | its label is expected to leave the fewest wrong predictions |
    | variance | its label is expected to leave the least mean label variance (3.2) |
    | margin, entropy | its own class is least certain |
    | v_optimality, sigma_optimality | it is most informative about the others, whatever its class |
    | random | any |

    With fewer than eight labels, "loss" spreads the queries over the graph if its spectrum is given. A batch
    contains no near-duplicates: after each choice, the other rows are credited only with information that the
    chosen label does not provide. After the first 100 rows, the least certain ones follow.

    Args:
        posterior: a posterior of any kind.
        n: number of rows to choose.
        strategy: one of the above.
        candidates: rows to choose from, by default all without a label.
        probability: the result of `posterior.probability()`, if already computed, or a function that returns it.
        spectrum: the eigenpairs of the graph.
        seed: seed of random choices and draws.
    """
    expect(posterior, Posterior, "posterior", "a Posterior, as sample(prior, model) makes")
    expect_one_of(strategy, STRATEGIES, "strategy")
    expect_seed(seed)
    n_rows = expect_whole(n, "n")
    open_rows = _open_rows(posterior, candidates)
    if not open_rows.size:
        return open_rows
    if strategy == "random":
        rng = np.random.default_rng([seed, len(posterior.model.nodes)])
        return rng.permutation(open_rows)[:n_rows]
    labeled = np.asarray(posterior.model.nodes)
    if strategy == "loss" and spectrum is not None and len(labeled) < N_SPREAD:
        return spread(spectrum, n_rows, taken=labeled, among=open_rows)
    if strategy in ("v_optimality", "sigma_optimality"):
        noise, summed = float(posterior.model.noise), strategy == "sigma_optimality"
        return most_telling(posterior.prior, noise, open_rows, n_rows, known=labeled, summed=summed)
    if strategy in ("margin", "entropy"):
        return _least_sure(posterior, _given(posterior, probability), open_rows, n_rows, strategy, seed)
    # The rows after the first 100 are ranked by the probabilities themselves.
    p = (_roughly if n_rows <= N_WEIGHED else _given)(posterior, probability)
    n_greedy = min(n_rows, N_WEIGHED)
    pool = _candidates(p, open_rows, n_greedy, seed)
    first = pool[_batch(posterior, p, pool, n_greedy, strategy, seed)[0]]
    rest = np.setdiff1d(open_rows, first)
    if n_rows <= N_WEIGHED or not rest.size:
        return first
    return np.append(first, uncertainty.ranked(p, rest))[:n_rows]


@dataclass(frozen=True)
class ExpectedGain:
    """The expected benefit of more labels.

    Attributes:
        n_rows: number of rows.
        errors: the expected share of wrong rows, counting labeled rows as right: now, after the label of the best
            query, after two, and so on.
    """

    n_rows: int
    errors: tuple[float, ...]

    @property
    def n_answers(self) -> int:
        """Number of further labels considered."""
        return len(self.errors) - 1

    @property
    def n_wrong(self) -> tuple[float, ...]:
        """Expected number of wrong rows: now, after one more label, and so on."""
        return tuple(self.n_rows * each for each in self.errors)

    def __str__(self) -> str:
        """The expected numbers of wrong rows, and a recommendation whether to continue labeling, as text."""
        now, one, last = self.n_wrong[0], self.n_wrong[min(1, self.n_answers)], self.n_wrong[-1]
        if now < 0.5:
            return f"Hardly any of {self.n_rows:,} rows is expected to be wrong: you can stop."
        later = f" and {_about(last)} after {self.n_answers:,} more" if self.n_answers > 1 else ""
        message = f"About {_about(now)} of {self.n_rows:,} rows are expected to be wrong now, {_about(one)} after one more answer{later}. "
        rate = (now - last) / max(1, self.n_answers)
        if rate >= WORTH_ASKING or now - last >= WORTH_GOING_ON * now:
            return message + "Go on."
        if rate >= WORTH_ITSELF:
            return message + "Each answer hardly corrects more than its own row: stop when that is not worth it."
        return message + f"More answers correct few of them: stop if about {_about(last)} wrong rows will do."


def expected_gain(posterior: Posterior, n: int = 1, *, probability: Given = None, seed: int = 0) -> ExpectedGain:
    """The expected errors after up to n more labels, at most 100, of rows chosen by `next_queries`.

    They are expectations under the posterior, so only as good as its prior. The paper's were underconfident: with
    15 labels of each class, on average over five draws of the labels and by expectation propagation,
    `prior.approximate` expected 142 errors where there were 23 (breast cancer) and 30 where there were 8 (wine); a
    learned prior expected 32 where there were 24, and 4 where there were 7.
    """
    expect(posterior, Posterior, "posterior", "a Posterior, as sample(prior, model) makes")
    expect_seed(seed)
    n_labels = expect_whole(n, "n", most=N_WEIGHED)
    p = _given(posterior, probability)
    open_rows = _open_rows(posterior, None)
    wrong = 1 - uncertainty.confidence(p)[open_rows]
    now = float(wrong.sum()) / len(p)
    if not open_rows.size:
        return ExpectedGain(len(p), (now, now))
    pool = _candidates(p, open_rows, n_labels, seed)
    losses = np.array(_batch(posterior, p, pool, n_labels, "error", seed, n_answers=N_ANSWERS_TOLD)[1])
    # Joint probabilities are less accurate than p, so they provide only the relative reduction of the loss.
    reduction = 1 - losses / losses[0] if losses[0] > 0 else np.zeros(len(losses))
    return ExpectedGain(len(p), tuple((now * np.clip(1 - np.cumsum(reduction), 0, 1)).tolist()))


def _roughly(posterior: Posterior, probability: Given) -> Array:
    """The class probabilities of all rows if given, or of Gaussian marginals of one field: enough to choose candidates.

    With few labels, corrected marginals take ten times as long.
    """
    parts, weights = heaviest(posterior)
    of_one_field = all(isinstance(part, GaussianPosterior) and part.model.n_fields == 1 for part in parts)
    if not (of_one_field and (probability is None or callable(probability))):
        return _given(posterior, probability)
    p = np.zeros((posterior.n_nodes, 2))
    for part, weight in zip(parts, weights, strict=True):
        mean, variance = part.moments()
        p += weight * gaussian_classes(mean, variance + float(part.model.noise) ** 2)
    return posterior.adjusted(p)


def _given(posterior: Posterior, probability: Given) -> Array:
    """The class probabilities of all rows: those given, validated, or else computed."""
    if callable(probability):
        probability = probability()
    if probability is None:
        return posterior.classes().probability
    p = uncertainty.check_probability(probability)
    if p.shape != (shape := (posterior.n_nodes, posterior.n_classes)):
        raise ValueError(f"probability must have the shape {shape}, got {p.shape}.")
    return p


def _open_rows(posterior: Posterior, candidates: ArrayLike | None) -> Nodes:
    """The candidates without a label."""
    n_nodes = posterior.n_nodes
    rows = np.arange(n_nodes) if candidates is None else expect_nodes(candidates, n_nodes)
    return np.setdiff1d(rows, posterior.model.nodes)


def _candidates(p: Array, open_rows: Nodes, number: int, seed: int) -> Nodes:
    """The least certain rows, and as many random others: a certain row can represent many uncertain ones."""
    n = max(N_CANDIDATES if p.shape[1] == 2 else N_CANDIDATES_MANY, 2 * number)
    if len(open_rows) <= n:
        return open_rows
    ranked = uncertainty.ranked(p, open_rows)
    rest = np.random.default_rng(seed).permutation(ranked[n // 2 :])
    return np.concatenate([ranked[: n // 2], rest[: n - n // 2]])


def _targets(p: Array, open_rows: Nodes, n: int, seed: int) -> tuple[Nodes, Array]:
    """Rows at which to evaluate the loss and their weights: all, or a systematic sample by label variance."""
    if len(open_rows) <= n:
        return open_rows, np.ones(len(open_rows))
    variance = uncertainty.label_variance(p)[open_rows]
    chance = variance + LEAST_CHANCE * max(float(variance.mean()), 1e-12)
    chance /= chance.sum()
    order = np.random.default_rng(seed).permutation(len(open_rows))
    points = (np.arange(n) + 0.5) / n
    drawn = order[np.minimum(np.searchsorted(np.cumsum(chance[order]), points), len(order) - 1)]
    rows, counts = np.unique(drawn, return_counts=True)
    return open_rows[rows], counts / (n * chance[rows])


def _batch(
    posterior: Posterior,
    p: Array,
    asked: Nodes,
    n: int,
    strategy: str,
    seed: int,
    n_answers: int = N_ANSWERS,
) -> tuple[list[int], list[float]]:
    """Positions of greedily chosen candidates, and losses: the initial one, then that expected after each choice.

    A loss after a choice counts the information of that answer alone, beyond what the previous answers provide.
    """
    open_rows = _open_rows(posterior, None)
    most = N_TARGETS if posterior.n_classes == 2 else N_TARGETS_MANY
    targets, weights = _targets(p, open_rows, most, seed)
    rows = np.append(targets, asked) if n > 1 else targets
    joint_classes = joint(posterior, rows, asked, n_answers=n_answers, seed=seed)
    same = targets[:, None] == asked
    chosen: list[int] = []
    losses: list[float] = []
    for _ in range(min(n, len(asked))):
        before, gain = expected_loss(joint_classes, weights, strategy)
        expected = weights @ np.where(same, 0.0, before[:, None] - gain)
        if not losses:
            losses.append(float(weights @ before))
        expected[chosen] = np.inf
        best = int(np.argmin(expected))
        chosen.append(best)
        losses.append(float(expected[best]))
        if n > 1:
            joint_classes = _known(joint_classes, best, len(targets))
    return chosen, losses


def expected_loss(joint_classes: Joint, weights: Array, strategy: str) -> tuple[Array, Array]:
    """The loss at each of the first n rows and its expected reduction by each answer, (n,) and (n, n_asked).

    | strategy | loss | expected reduction |
    |---|---|---|
    | error | ``1 - max_k p_k`` | ``sum_a max_k P(y_j = k, a) - max_k p_k`` |
    | log_loss | ``-sum_k p_k log p_k`` | ``sum_a sum_k P(y_j = k, a) log(P(y_j = k, a) / p_k P(a))`` |
    | variance | ``K / (K - 1) (1 - sum_k p_k^2)`` | ``K / (K - 1) sum_a sum_k (P(y_j = k, a) - p_k P(a))^2 / P(a)`` |
    | loss | error + log_loss, each divided by its sum over rows | the same for both |

    The error alone gives no credit to an answer that by itself changes the predicted class of no row; the log-loss
    alone spends queries on rows whose class is clear already.

    Args:
        joint_classes: the joint distribution of the classes of rows and the answers.
        weights: the number of rows that each of the first n represents, shape (n,).
        strategy: which loss.
    """
    n = len(weights)
    p, q = joint_classes.probability[:n], joint_classes.answer
    if strategy == "loss":
        error, log_loss = (expected_loss(joint_classes, weights, each) for each in ("error", "log_loss"))
        a, b = (1 / max(float(weights @ before), LEAST_LOSS) for before, _ in (error, log_loss))
        return a * error[0] + b * log_loss[0], a * error[1] + b * log_loss[1]
    if strategy == "error":
        before = 1 - p.max(axis=1)
    elif strategy == "log_loss":
        before = uncertainty.entropy(p)
    else:
        before = uncertainty.label_variance(p)
    apart = np.multiply.outer(p, q).astype(joint_classes.covariance.dtype)

    def gain(covariance: Array) -> Array:
        if strategy == "variance":
            scale = p.shape[1] / (p.shape[1] - 1)
            return scale * (np.square(covariance).sum(axis=1) / np.maximum(q, LEAST_ANSWER)).sum(axis=2)
        together = covariance + apart
        if strategy == "error":
            return together.max(axis=1).sum(axis=2) - p.max(axis=1)[:, None]
        together = np.maximum(together, LEAST_JOINT)
        return (together * np.log(together / np.maximum(apart, LEAST_JOINT))).sum(axis=(1, 3))

    gained = gain(joint_classes.covariance[:n])
    if joint_classes.spurious is not None:
        gained = gained - gain(joint_classes.spurious[:n])
    return before, gained


def _known(joint_classes: Joint, c: int, n_targets: int) -> Joint:
    """The joint distribution conditioned on the answer at c, to first order (linear regression on the answer).

    Cov(j, d | c) = Cov(j, d) - Cov(j, c) Cov(c, c)^+ Cov(c, d),    Cov(c, c) = diag(q) - q q^T

    In whitened directions of the answer, its covariance r with the class at c lies between 0 and 1, but is known
    only approximately. Directions with r < 0 are ignored, and those with r > 1 are scaled to 1: otherwise errors
    would grow without bound from answer to answer.
    """
    q = joint_classes.answer[c]
    values, vectors = np.linalg.eigh(np.diag(q) - np.outer(q, q))
    uncertain = values > LEAST_VARIANCE
    white = vectors[:, uncertain] / np.sqrt(values[uncertain])
    with_c = joint_classes.covariance[:, :, c]  # of every class of every row with every answer at c
    to_asked = with_c[n_targets:]  # (n_asked, n_classes, n_classes)
    r, rotation = np.linalg.eigh(white.T @ (to_asked[c] + to_asked[c].T) @ white / 2)
    root = white @ rotation[:, r > 0] / np.sqrt(np.maximum(r[r > 0], 1))
    inverse = root @ root.T
    explained = np.tensordot(with_c @ inverse, to_asked, (2, 2))
    covariance = joint_classes.covariance - explained.astype(joint_classes.covariance.dtype)
    return joint_classes._replace(covariance=covariance)


def _least_sure(posterior: Posterior, p: Array, open_rows: Nodes, n: int, strategy: str, seed: int) -> Nodes:
    """The least certain rows; near-duplicates of chosen rows are skipped as long as there are others."""
    doubt = -uncertainty.margin(p) if strategy == "margin" else uncertainty.entropy(p)
    ranked = open_rows[np.argsort(-doubt[open_rows], kind="stable")]
    if n == 1:
        return ranked[:1]
    among = ranked[: max(N_CANDIDATES, 2 * n)]
    joint_classes = joint(posterior, among, among, seed=seed)
    chosen: list[int] = []
    skipped: list[int] = []
    for i in range(len(among)):
        (skipped if chosen and _alike(joint_classes, i, chosen).max() > NEAR_DUPLICATE else chosen).append(i)
        if len(chosen) == n:
            break
    return among[sorted(chosen + skipped[: n - len(chosen)])]


def _alike(joint_classes: Joint, i: int, others: list[int]) -> Array:
    """Similarity of row i to others: the largest correlation, over classes, of its class with their answers."""
    p, q = joint_classes.probability[i], joint_classes.answer[others]
    shared = np.einsum("kck->ck", joint_classes.covariance[i][:, others])
    return np.asarray((shared / np.sqrt(np.maximum(p * (1 - p) * q * (1 - q), 1e-12))).max(axis=1))


def _about(n: float) -> str:
    return f"{n:,.0f}" if n >= 10 else f"{n:.1f}"
