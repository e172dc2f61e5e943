"""Predicted probabilities and true classes in; accuracy, proper scores and calibration measures out.

Every measure takes the same two arguments:

- `probability`, shape (n_nodes, n_classes), rows summing to 1; `truth` is then the class index (the column);
- or `probability`, shape (n_nodes,), of the second of two classes, +1; `truth` is then -1 or +1 (or 0 or 1).

The predicted class is the most probable one, see `uncertainty.most_probable`; in the second form a tie predicts
+1. Its probability is the *confidence*. Results do not depend on the order of the nodes, even with ties.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Real
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphuq import uncertainty
from graphuq._expect import expect, expect_number, expect_numbers, expect_whole

Array = NDArray[np.float64]

# Probabilities are clipped to this in the log-loss: a true class predicted with probability 0 costs 36.
SMALLEST_PROBABILITY = float(np.finfo(np.float64).eps)
# Bounds of the temperature, reached if all predictions are right, or no better than guessing.
LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE = 0.05, 20.0
# The accuracy is significantly different from the mean confidence beyond this many standard deviations, and
# relevantly different beyond this difference.
SURPRISE, SLIGHT = 2.0, 0.02
MOST_BINS = 10**6
# Gradient tolerance in matching known class shares, and the largest acceptable error of a share.
SHARES_TOLERANCE, SHARES_MISSED = 1e-8, 1e-5


@dataclass(frozen=True, eq=False)
class Reliability:
    """A reliability diagram: mean confidence and accuracy in each bin of confidence.

    Attributes:
        edges: edges of the bins, shape (n_bins + 1,); a value on an edge belongs to the bin below.
        confidence: mean confidence in each bin, shape (n_bins,); NaN in empty bins.
        frequency: share of correct predictions in each bin, shape (n_bins,); NaN in empty bins.
        counts: number of nodes in each bin, shape (n_bins,).
        ece: expected calibration error, ``sum_b counts_b |frequency_b - confidence_b| / n_nodes``.
    """

    edges: Array
    confidence: Array
    frequency: Array
    counts: NDArray[np.int64]
    ece: float


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """The risk-coverage curve: accuracy on the nodes with the highest confidence.

    Attributes:
        coverage: the share of nodes kept, ``k / n_nodes`` for k = 1 .. n_nodes.
        accuracy: the share of correct predictions among the k nodes with the highest confidence, averaged over all
            orders of nodes with equal confidence.
    """

    coverage: Array = field(repr=False)
    accuracy: Array = field(repr=False)

    def at(self, coverage: float) -> float:
        """The accuracy when the smallest number of nodes with at least this share, in (0, 1], is kept."""
        if not 0 < coverage <= 1:
            raise ValueError(f"coverage must lie in (0, 1], got {coverage}.")
        return float(self.accuracy[np.searchsorted(self.coverage, coverage * (1 - 1e-12))])


@dataclass(frozen=True)
class Summary:
    """All measures at once; see the functions of the same names.

    Two have no function: `promised`, the mean confidence, is the expected accuracy if the probabilities are right,
    and `z` is the number of standard deviations by which the accuracy then exceeds it.
    """

    n_nodes: int
    accuracy: float
    promised: float
    z: float
    log_loss: float
    brier: float
    error_detection_auroc: float
    reliability: Reliability
    risk_coverage: RiskCoverage

    @property
    def verdict(self) -> str:
        """ "too sure", "too timid", or "about right" if accuracy is within 2%, or chance, of `promised`."""
        if abs(self.z) <= SURPRISE or abs(self.accuracy - self.promised) <= SLIGHT:
            return "about right"
        return "too sure" if self.z < 0 else "too timid"


def accuracy(probability: ArrayLike, truth: ArrayLike) -> float:
    """The share of nodes whose most probable class is the true one."""
    _, right = _confidence(*_check(probability, truth))
    return float(right.mean())


def log_loss(probability: ArrayLike, truth: ArrayLike) -> float:
    """Mean of ``-log p(true class)``, with p clipped below at 2.2e-16."""
    p, column = _check(probability, truth)
    return float(-np.log(np.maximum(_of_truth(p, column), SMALLEST_PROBABILITY)).mean())


def brier(probability: ArrayLike, truth: ArrayLike) -> float:
    """The Brier score: mean squared distance between probabilities and truth.

    ``sum_k (p_k - [truth = k])^2``, between 0 and 2; for two classes half of that, which is
    ``(p - [truth = +1])^2``.
    """
    p, column = _check(probability, truth)
    distance = np.square(p).sum(axis=1) - 2 * _of_truth(p, column) + 1
    return float(distance.mean() / (2 if p.shape[1] == 2 else 1))


def reliability(probability: ArrayLike, truth: ArrayLike, *, n_bins: int = 10) -> Reliability:
    """The reliability diagram and the expected calibration error.

    Args:
        probability: of +1, or of every class.
        truth: the true classes.
        n_bins: number of bins, of equal width between the least possible confidence 1 / n_classes and 1.
    """
    p, column = _check(probability, truth)
    expect_whole(n_bins, "n_bins", most=MOST_BINS)
    confidence, right = _confidence(p, column)
    edges = np.linspace(1 / p.shape[1], 1, n_bins + 1)
    which = np.searchsorted(edges[1:-1], confidence)
    counts = np.bincount(which, minlength=n_bins)
    sums = np.array([np.bincount(which, weights=each, minlength=n_bins) for each in (confidence, right)])
    means = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
    return Reliability(edges, means[0], means[1], counts, float(np.abs(sums[0] - sums[1]).sum() / len(p)))


def confusion(probability: ArrayLike, truth: ArrayLike) -> NDArray[np.int64]:
    """The confusion matrix: counts by true class (rows) and predicted class (columns), (n_classes, n_classes)."""
    p, column = _check(probability, truth)
    from sklearn.metrics import confusion_matrix

    counts = confusion_matrix(column, uncertainty.most_probable(p), labels=np.arange(p.shape[1]))
    return counts if np.ndim(probability) == 2 else counts[::-1, ::-1]  # -1 before +1


def risk_coverage(probability: ArrayLike, truth: ArrayLike) -> RiskCoverage:
    """The risk-coverage curve: accuracy against the share of nodes kept, most confident first."""
    confidence, right = _confidence(*_check(probability, truth))
    _, group, counts = np.unique(-confidence, return_inverse=True, return_counts=True)
    share = np.bincount(group, weights=right) / counts
    k = np.arange(1, len(right) + 1)
    kept = np.cumsum(np.repeat(share, counts)) / k
    return RiskCoverage(k / len(right), kept)


def error_detection_auroc(probability: ArrayLike, truth: ArrayLike) -> float:
    """The probability that a wrong prediction has lower confidence than a correct one; ties count half.

    1 is best, 1/2 is chance level; NaN if all predictions are correct or all are wrong.
    """
    from sklearn.metrics import roc_auc_score

    confidence, right = _confidence(*_check(probability, truth))
    return float("nan") if right.all() or not right.any() else float(roc_auc_score(right, confidence))


def temperature(
    probability: ArrayLike, truth: ArrayLike, *, median: float = 1.0, spread: float = math.inf
) -> float:
    """The temperature T for which ``p_k^(1/T) / sum_l p_l^(1/T)`` has the lowest log-loss.

    T > 1 means that the probabilities are overconfident, T < 1 that they are underconfident. T lies between 0.05,
    its value if every prediction is correct, and 20. The log-loss is convex in 1/T, so the minimum is unique.

    Args:
        probability: of +1, or of every class.
        truth: the true classes.
        median, spread: a prior ``log T ~ N(log median, spread^2)``; none by default.
    """
    from scipy.optimize import minimize_scalar

    expect_number(median, "median")
    expect(spread, Real, "spread", "a number above 0")
    if not spread > 0:
        raise ValueError(f"spread must be positive, got {spread}.")
    p, column = _check(probability, truth)
    log_p = np.log(np.maximum(p, SMALLEST_PROBABILITY))
    log_p -= log_p.max(axis=1, keepdims=True)
    own, others = _of_truth(log_p, column), log_p.copy()
    np.put_along_axis(others, log_p.argmax(axis=1)[:, None], -np.inf, axis=1)

    def loss(log_t: float) -> float:
        beta = math.exp(-log_t)
        log_sum = np.log1p(np.exp(beta * others).sum(axis=1))  # for a certain row the sum is far below 1e-16
        return float(np.sum(log_sum - beta * own)) + ((log_t - math.log(median)) / spread) ** 2 / 2

    ends = (math.log(LOWEST_TEMPERATURE), math.log(HIGHEST_TEMPERATURE))
    return math.exp(minimize_scalar(loss, bounds=ends, method="bounded", options={"xatol": 1e-8}).x)


def apply_temperature(probability: ArrayLike, temperature: float) -> Array:
    """``p_k^(1/T) / sum_l p_l^(1/T)``, in the shape of `probability`: less confident for T > 1, more for T < 1."""
    expect_number(temperature, "temperature")
    p = _columns(probability)
    powers = (p / p.max(axis=1, keepdims=True)) ** (1 / temperature)
    scaled = powers / powers.sum(axis=1, keepdims=True)
    return scaled if np.ndim(probability) == 2 else scaled[:, 0]


def match_shares(probability: ArrayLike, shares: ArrayLike) -> Array:
    """``p_jk w_k / sum_l p_jl w_l``, with class weights w for which the mean over rows equals the known `shares`.

    For class shares that are known independently, for example from a census or the design of an experiment. With
    one or two labels per class, little other information is as valuable; shares that are merely guessed do harm.
    Labeled rows need no special treatment. `GraphClassifier(class_shares=...)` does the same, also for new rows.

    Args:
        probability: of all rows, shape (n_nodes, n_classes).
        shares: shares of the classes among these rows, shape (n_classes,), positive and summing to 1.
    """
    return weighted_classes(probability, class_weights(probability, shares))


def weighted_classes(probability: ArrayLike, weights: Array) -> Array:
    """``p_jk w_k / sum_l p_jl w_l``: the class probabilities after multiplying the odds by class weights w."""
    joint = np.asarray(probability) * weights
    return np.asarray(joint / joint.sum(axis=1, keepdims=True))


def class_weights(probability: ArrayLike, shares: ArrayLike) -> Array:
    """The class weights w of `match_shares`, shape (n_classes,), with geometric mean 1."""
    p = uncertainty.check_probability(probability)
    known = expect_numbers(shares, "shares")
    if known.shape != (p.shape[1],) or not (known > 0).all() or abs(known.sum() - 1) > 1e-6:
        raise ValueError(
            f"shares must have one number above 0 for each of the {p.shape[1]} classes, adding up to 1, got "
            f"{' '.join(np.array2string(known, threshold=10).split())}."
        )
    if len(p) == 0:
        raise ValueError("probability is empty: at least one node is needed.")
    known = known / known.sum()
    if (never := np.flatnonzero(p.max(axis=0) == 0)).size:
        raise ValueError(
            f"No row can be of class {never[0]}: its probability is 0 everywhere, so its share cannot be met."
        )
    from scipy.optimize import minimize
    from scipy.special import logsumexp, softmax

    with np.errstate(divide="ignore"):
        log_p = np.log(p)

    def loss(log_weights: Array) -> tuple[float, Array]:
        """``mean_j log sum_k p_jk w_k - sum_k shares_k log w_k``, which is convex and minimal at the shares."""
        log_joint = log_p + log_weights
        value = float(logsumexp(log_joint, axis=1).mean() - known @ log_weights)
        return value, softmax(log_joint, axis=1).mean(axis=0) - known

    with np.errstate(over="ignore", invalid="ignore"):  # the weights diverge if the shares cannot be met
        minimum = minimize(loss, np.zeros(len(known)), jac=True, method="BFGS", options={"gtol": SHARES_TOLERANCE})
        missed = np.abs(loss(minimum.x)[1])
    if not missed.max() <= SHARES_MISSED:
        raise ValueError(
            f"The share {known[missed.argmax()]:g} of class {missed.argmax()} cannot be met: probabilities of 0 decide the "
            "class of too many rows."
        )
    return np.asarray(np.exp(minimum.x - minimum.x.mean()))


def summary(probability: ArrayLike, truth: ArrayLike, *, n_bins: int = 10) -> Summary:
    """All measures of this module at once."""
    p, column = _check(probability, truth)
    found = tally(p, column)
    return Summary(
        n_nodes=len(p),
        accuracy=accuracy(probability, truth),
        promised=found.promised / len(p),
        z=found.z,
        log_loss=log_loss(probability, truth),
        brier=brier(probability, truth),
        error_detection_auroc=error_detection_auroc(probability, truth),
        reliability=reliability(probability, truth, n_bins=n_bins),
        risk_coverage=risk_coverage(probability, truth),
    )


class Tally(NamedTuple):
    """How many predictions are right, how many should be, the standard deviation, and the difference in units of that."""

    right: float
    promised: float
    deviation: float
    z: float


def tally(p: Array, column: NDArray[np.int64]) -> Tally:
    """Count right predictions from probabilities p, (n, K), given the column of the true class of each."""
    confidence, right = _confidence(p, column)
    n_right, promised = float(right.sum()), float(confidence.sum())
    deviation = float(np.sqrt(np.sum(confidence * (1 - confidence))))
    return Tally(n_right, promised, deviation, (n_right - promised) / max(deviation, 1e-12))


def _columns(probability: ArrayLike) -> Array:
    """Probabilities of every class, validated; from the one-column form, +1 comes first."""
    p = expect_numbers(probability, "probability")
    if p.ndim not in (1, 2):
        raise ValueError(f"probability must have shape (n_nodes,) or (n_nodes, n_classes), got {p.shape}.")
    return uncertainty.check_probability(np.column_stack([p, 1 - p]) if p.ndim == 1 else p)


def _check(probability: ArrayLike, truth: ArrayLike) -> tuple[Array, NDArray[np.int64]]:
    """Probabilities of every class as in `_columns`, and the column of the true class, both validated."""
    p, by_class = _columns(probability), np.ndim(probability) == 2
    allowed = f"a column number, 0 to {p.shape[1] - 1}" if by_class else "-1 or +1 (or 0 or 1)"
    try:
        labels = expect_numbers(truth, "truth")
    except TypeError as error:
        got = str(error).partition("got ")[2]
        raise TypeError(
            f"truth must be {allowed}, got {got} np.searchsorted(classes, names) turns names into numbers."
        ) from None
    if len(p) == 0:
        raise ValueError("probability is empty: at least one node is needed.")
    if labels.shape != p.shape[:1]:
        raise ValueError(f"truth must have shape {p.shape[:1]}, one class for each node, got {labels.shape}.")
    classes = list(range(p.shape[1])) if by_class or np.isin(labels, (0, 1)).all() else [-1, 1]
    unknown = ~np.isin(labels, classes)
    if unknown.any():
        raise ValueError(f"truth must be {allowed}, got {labels[unknown][0]:g}.")
    return p, (labels if by_class else labels != 1).astype(np.int64)


def _of_truth(p: Array, column: NDArray[np.int64]) -> Array:
    """The probability of the true class at each node."""
    return p[np.arange(len(p)), column]


def _confidence(p: Array, column: NDArray[np.int64]) -> tuple[Array, NDArray[np.bool_]]:
    """The probability of the predicted class, and whether it is the true one."""
    return uncertainty.confidence(p), uncertainty.most_probable(p) == column
