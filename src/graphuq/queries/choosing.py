"""A posterior in; the rows whose answers are expected to help most, and by how much, out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphuq import uncertainty
from graphuq._expect import expect_nodes, expect_one_of, expect_posterior, expect_seed, expect_whole
from graphuq.models.base import offer
from graphuq.posterior.base import Posterior
from graphuq.queries.joint import N_ANSWERS, N_ANSWERS_TOLD, Joint, heaviest, joint
from graphuq.queries.spreading import most_telling, spread
from graphuq.spectrum import Spectrum

Array = NDArray[np.floating]
Nodes = NDArray[np.int64]

STRATEGIES = ("loss", "error", "variance", "margin", "entropy", "v_optimality", "sigma_optimality", "random")
# With fewer labels than this, questions are spread over the graph: what few labels lead one to expect of answers is mostly
# the hyperprior, and answers asked for only where that is unsure cannot show that it is wrong.
N_SPREAD = 8
# Rows whose answer is weighed: half are the least sure, half are spread over all others.
# Of many classes there are fewer, since each has K^2 numbers for every target.
N_CANDIDATES, N_CANDIDATES_MANY = 200, 100
# Answers of a batch that are weighed one after the other, which takes the longer the more there are: the rest are the least
# sure rows, since what so many answers leave open is a guess.
N_WEIGHED = 100
# Rows whose class is looked at before and after: all, or so many drawn by how unsure they are.
N_TARGETS, N_TARGETS_MANY = 2000, 250
# No row has less than this share of the average chance to be a target.
LEAST_CHANCE = 0.1
# An answer less probable than this says nothing.
LEAST_ANSWER = 1e-6
# Joint probabilities below this, and losses summed over rows, are none.
LEAST_JOINT, LEAST_LOSS = 1e-12, 1e-9
# An answer that varies less than this is as good as known, and takes nothing from what others say.
LEAST_VARIANCE = 1e-4
# In a batch, rows whose answers have more in common than this are asked once.
NEAR_DUPLICATE = 0.5
# Hyper-parameters are learned anew as labels grow by this factor: few labels leave them open, and a question that is
# chosen by wrong ones is wasted. To learn after every answer was no better.
LEARN_AGAIN = 1.25
# To go on is advised where an answer is expected to mend so many rows, or all of them this share of what is wrong; and left
# to the person where an answer mends about as much as asking a wrong row itself would.
WORTH_ASKING, WORTH_GOING_ON, WORTH_ITSELF = 2.0, 0.1, 0.5


def next_queries(
    posterior: Posterior,
    n: int = 1,
    *,
    strategy: str = "loss",
    candidates: ArrayLike | None = None,
    probability: Array | None = None,
    spectrum: Spectrum | None = None,
    seed: int = 0,
) -> Nodes:
    """The rows to ask a person about, best first; fewer than n if fewer are unlabeled.

    | strategy | the row |
    |---|---|
    | loss | whose answer is expected to reduce the error and the log-loss most, each relative to its present value |
    | error | whose answer is expected to leave the fewest rows wrong |
    | variance | whose answer is expected to leave the least mean label variance (3.2) |
    | margin, entropy | whose own class is least certain |
    | v_optimality, sigma_optimality | that says most about the others, whatever its class |
    | random | any |

    With fewer than eight labels, "loss" spreads the questions over the graph if its spectrum is given. A batch holds no
    near-duplicates: after each choice, the information in its answer no longer counts for the others. After the first
    100, the least certain rows follow.

    Args:
        posterior: of any kind.
        n: how many.
        strategy: one of the above.
        candidates: rows to choose from, by default all without a label.
        probability: the result of `posterior.probability()`, if already computed.
        spectrum: the eigenpairs of the graph.
        seed: of random choices and draws.
    """
    expect_posterior(posterior)
    expect_one_of(strategy, STRATEGIES, "strategy")
    expect_seed(seed)
    number = expect_whole(n, "n")
    open_rows = _open_rows(posterior, candidates)
    if not open_rows.size:
        return open_rows
    if strategy == "random":
        rng = np.random.default_rng([seed, len(posterior.model.nodes)])
        return rng.permutation(open_rows)[:number]
    known = np.asarray(posterior.model.nodes)
    if strategy == "loss" and spectrum is not None and len(known) < N_SPREAD:
        return spread(spectrum, number, taken=known, among=open_rows)
    if strategy in ("v_optimality", "sigma_optimality"):
        best = heaviest(posterior)[0][0]
        noise = float(offer(best.model, "noise"))
        return most_telling(best.prior, noise, open_rows, number, known=known, summed=strategy.startswith("sigma"))
    p = _given(posterior, probability)
    if strategy in ("margin", "entropy"):
        return _least_sure(posterior, p, open_rows, number, strategy, seed)
    weighed = min(number, N_WEIGHED)
    asked = _candidates(p, open_rows, weighed, seed)
    first = asked[_batch(posterior, p, asked, weighed, strategy, seed)[0]]
    rest = np.setdiff1d(open_rows, first)
    return (
        first if number <= N_WEIGHED or not rest.size else np.append(first, uncertainty.ranked(p, rest))[:number]
    )


@dataclass(frozen=True)
class ExpectedGain:
    """What some more answers are worth.

    Attributes:
        n_rows: the number of rows.
        errors: the expected share of wrong rows, counting labeled rows as right: now, after one more answer to the best
            question, after two, and so on.
    """

    n_rows: int
    errors: tuple[float, ...]

    @property
    def n_answers(self) -> int:
        """How many answers."""
        return len(self.errors) - 1

    @property
    def n_wrong(self) -> tuple[float, ...]:
        """Rows that are expected to be wrong: now, after one more answer, and so on."""
        return tuple(self.n_rows * each for each in self.errors)

    def in_words(self) -> str:
        """How many rows are wrong now, after one more answer and after all of them, and whether to go on."""
        now, one, last = self.n_wrong[0], self.n_wrong[min(1, self.n_answers)], self.n_wrong[-1]
        if now < 0.5:
            return f"Hardly any of {self.n_rows:,} rows is expected to be wrong: you can stop."
        later = f" and {_about(last)} after {self.n_answers:,} more" if self.n_answers > 1 else ""
        told = f"About {_about(now)} of {self.n_rows:,} rows are expected to be wrong now, {_about(one)} after one more answer{later}. "
        rate = (now - last) / max(1, self.n_answers)
        if rate >= WORTH_ASKING or now - last >= WORTH_GOING_ON * now:
            return told + "Go on."
        if rate >= WORTH_ITSELF:
            return told + "Each answer hardly mends more than its own row: stop when that is not worth it."
        return told + f"More answers mend little of that: stop if about {_about(last)} wrong rows will do."


def expected_gain(
    posterior: Posterior, n: int = 1, *, probability: Array | None = None, seed: int = 0
) -> ExpectedGain:
    """What n more answers, at most 100, are expected to correct if `next_queries` chooses the rows."""
    expect_posterior(posterior)
    expect_seed(seed)
    number = expect_whole(n, "n", most=N_WEIGHED)
    p = _given(posterior, probability)
    open_rows = _open_rows(posterior, None)
    wrong = 1 - uncertainty.confidence(p)[open_rows]
    now = float(wrong.sum()) / len(p)
    if not open_rows.size:
        return ExpectedGain(len(p), (now, now))
    asked = _candidates(p, open_rows, number, seed)
    losses = np.array(_batch(posterior, p, asked, number, "error", seed, n_answers=N_ANSWERS_TOLD)[1])
    # Joint probabilities are rougher than those at hand: what carries over is the share that is left.
    taken = 1 - losses / losses[0] if losses[0] > 0 else np.zeros(len(losses))
    return ExpectedGain(len(p), tuple((now * np.clip(1 - np.cumsum(taken), 0, 1)).tolist()))


def _given(posterior: Posterior, probability: Array | None) -> Array:
    """The probabilities of all rows, asked for where they are not at hand."""
    if probability is None:
        return posterior.classes().probability
    found = uncertainty.check_probability(probability)
    if found.shape != (shape := (posterior.n_nodes, posterior.n_classes)):
        raise ValueError(f"probability must have the shape {shape}, got {found.shape}.")
    return found


def _open_rows(posterior: Posterior, candidates: ArrayLike | None) -> Nodes:
    """The rows without a label that may be asked."""
    n_nodes = posterior.n_nodes
    rows = np.arange(n_nodes) if candidates is None else expect_nodes(candidates, n_nodes)
    return np.setdiff1d(rows, posterior.model.nodes)


def _candidates(p: Array, open_rows: Nodes, number: int, seed: int) -> Nodes:
    """The least sure rows, and as many spread over the others: a sure row can stand for many unsure ones."""
    n = max(N_CANDIDATES if p.shape[1] == 2 else N_CANDIDATES_MANY, 2 * number)
    if len(open_rows) <= n:
        return open_rows
    ranked = uncertainty.ranked(p, open_rows)
    rest = np.random.default_rng(seed).permutation(ranked[n // 2 :])
    return np.concatenate([ranked[: n // 2], rest[: n - n // 2]])


def _targets(p: Array, open_rows: Nodes, n: int, seed: int) -> tuple[Nodes, Array]:
    """Rows to look at and what each stands for: all, or drawn by label variance, evenly along the sum of their chances."""
    if len(open_rows) <= n:
        return open_rows, np.ones(len(open_rows))
    size = uncertainty.label_variance(p)[open_rows]
    chance = size + LEAST_CHANCE * max(float(size.mean()), 1e-12)
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
    """The candidates chosen, by position, and the expected loss before and after each alone, given those before it."""
    open_rows = _open_rows(posterior, None)
    most = N_TARGETS if posterior.n_classes == 2 else N_TARGETS_MANY
    targets, weights = _targets(p, open_rows, most, seed)
    rows = np.append(targets, asked) if n > 1 else targets
    found = joint(posterior, rows, asked, n_answers=n_answers, seed=seed)
    same = targets[:, None] == asked
    chosen: list[int] = []
    losses: list[float] = []
    for _ in range(min(n, len(asked))):
        before, gain = expected_loss(found, weights, strategy)
        expected = weights @ np.where(same, 0.0, before[:, None] - gain)
        if not losses:
            losses.append(float(weights @ before))
        expected[chosen] = np.inf
        best = int(np.argmin(expected))
        chosen.append(best)
        losses.append(float(expected[best]))
        if n > 1:
            found = _known(found, best, len(targets))
    return chosen, losses


def expected_loss(found: Joint, weights: Array, strategy: str) -> tuple[Array, Array]:
    """The loss at each of the first rows, and by how much each answer is expected to lower it, (n,) and (n, n_asked).

    | strategy | loss | expected to be lowered by |
    |---|---|---|
    | error | ``1 - max_k p_k`` | ``sum_a max_k P(y_j = k, a) - max_k p_k`` |
    | log_loss | ``-sum_k p_k log p_k`` | ``sum_a sum_k P(y_j = k, a) log(P(y_j = k, a) / p_k P(a))`` |
    | variance | ``K / (K - 1) (1 - sum_k p_k^2)`` | ``K / (K - 1) sum_a sum_k (P(y_j = k, a) - p_k P(a))^2 / P(a)`` |
    | loss | error + log_loss, each over its sum over rows | the same of both |

    The error alone sees no use in an answer that changes the class of no row by itself; the log-loss alone cares for rows
    whose class is clear.

    Args:
        found: what rows and answers have in common.
        weights: what each of the first n rows stands for, shape (n,).
        strategy: which loss.
    """
    n = len(weights)
    p, q = found.probability[:n], found.answer
    if strategy == "loss":
        error, log_loss = (expected_loss(found, weights, each) for each in ("error", "log_loss"))
        a, b = (1 / max(float(weights @ before), LEAST_LOSS) for before, _ in (error, log_loss))
        return a * error[0] + b * log_loss[0], a * error[1] + b * log_loss[1]
    if strategy == "error":
        before = 1 - p.max(axis=1)
    elif strategy == "log_loss":
        before = uncertainty.entropy(p)
    else:
        before = uncertainty.label_variance(p)
    apart = np.multiply.outer(p, q).astype(found.covariance.dtype)

    def gain(covariance: Array) -> Array:
        if strategy == "variance":
            scale = p.shape[1] / (p.shape[1] - 1)
            return scale * (np.square(covariance).sum(axis=1) / np.maximum(q, LEAST_ANSWER)).sum(axis=2)
        together = covariance + apart
        if strategy == "error":
            return together.max(axis=1).sum(axis=2) - p.max(axis=1)[:, None]
        together = np.maximum(together, LEAST_JOINT)
        return (together * np.log(together / np.maximum(apart, LEAST_JOINT))).sum(axis=(1, 3))

    gained = gain(found.covariance[:n])
    if found.spurious is not None:
        gained = gained - gain(found.spurious[:n])
    return before, gained


def _known(found: Joint, c: int, n_targets: int) -> Joint:
    """What is left in common once the answer at c is known, as far as it is linear in it.

    Cov(j, d | c) = Cov(j, d) - Cov(j, c) Cov(c, c)^+ Cov(c, d),    Cov(c, c) = diag(q) - q q^T

    The share r of each direction of that answer that the class there has in common with it lies between 0 and 1. What is
    known of it is rough: a direction with r < 0 has nothing left to say, and of r > 1 no more is taken than there is, or
    errors would grow from answer to answer without end.
    """
    q = found.answer[c]
    values, vectors = np.linalg.eigh(np.diag(q) - np.outer(q, q))
    unsure = values > LEAST_VARIANCE
    white = vectors[:, unsure] / np.sqrt(values[unsure])
    with_c = found.covariance[:, :, c]  # of every class of every row with every answer at c
    to_asked = with_c[n_targets:]  # (n_asked, n_classes, n_classes)
    r, turn = np.linalg.eigh(white.T @ (to_asked[c] + to_asked[c].T) @ white / 2)
    root = white @ turn[:, r > 0] / np.sqrt(np.maximum(r[r > 0], 1))
    inverse = root @ root.T
    taken = np.tensordot(with_c @ inverse, to_asked, (2, 2))
    return found._replace(covariance=found.covariance - taken.astype(found.covariance.dtype))


def _least_sure(posterior: Posterior, p: Array, open_rows: Nodes, n: int, strategy: str, seed: int) -> Nodes:
    """The least sure rows, of which near-duplicates are passed over while there are others."""
    size = -uncertainty.margin(p) if strategy == "margin" else uncertainty.entropy(p)
    ranked = open_rows[np.argsort(-size[open_rows], kind="stable")]
    if n == 1:
        return ranked[:1]
    among = ranked[: max(N_CANDIDATES, 2 * n)]
    found = joint(posterior, among, among, seed=seed)
    chosen: list[int] = []
    passed: list[int] = []
    for i in range(len(among)):
        (passed if chosen and _alike(found, i, chosen).max() > NEAR_DUPLICATE else chosen).append(i)
        if len(chosen) == n:
            break
    return among[sorted(chosen + passed[: n - len(chosen)])]


def _alike(found: Joint, i: int, others: list[int]) -> Array:
    """How much of the class of a row the answers at others tell, 0 to 1: the largest correlation of a class."""
    p, q = found.probability[i], found.answer[others]
    shared = np.einsum("kck->ck", found.covariance[i][:, others])
    return np.asarray((shared / np.sqrt(np.maximum(p * (1 - p) * q * (1 - q), 1e-12))).max(axis=1))


def _about(n: float) -> str:
    return f"{n:,.0f}" if n >= 10 else f"{n:.1f}"
