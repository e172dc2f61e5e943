"""Numbers in; the sentences of the report about them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphuq import uncertainty
from graphuq.app.wording import share
from graphuq.calibration import Summary
from graphuq.classes import listed
from graphuq.posterior.left_out import SelfCheck

Array = NDArray[np.float64]
Nodes = NDArray[np.int64]

MAX_NAMED = 6  # classes that fit into a sentence
SURE, UNSURE = 0.95, 0.7
FEW_JUDGED = 30  # with fewer rows of known truth, the verdict is weak


@dataclass(frozen=True)
class Suspicious:
    """A label that contradicts the others: node, given class, likelier class, and P(given | all others)."""

    node: int
    given: int
    likelier: int
    probability: float


def sentences(
    classes: Sequence[str],
    given: NDArray[np.int64],
    p: Array,
    unlabeled: Nodes,
    judged: Summary | None,
    suspicious: list[Suspicious] | None,
    converged: bool,
    checked: SelfCheck | None = None,
) -> list[str]:
    """The question, the result and its caveats, in sentences; class names are in curly quotes.

    `given` counts the labels of each class. The quality of the probabilities is taken from `judged`, the
    comparison with the truth, and, if that is missing or covers few rows, from `checked`, the leave-one-out check.
    """
    named = [f"“{name}”" for name in classes]
    question = (
        "the class of the others, and how sure one can be of each"
        if len(unlabeled)
        else "which of these may be mistakes"
    )
    text = [f"Of {len(p):,} rows, {_given(named, given)}. The question was {question}."]
    if len(unlabeled):
        confidence = uncertainty.confidence(p[unlabeled])
        sure, unsure = int(np.sum(confidence >= SURE)), int(np.sum(confidence < UNSURE))
        advice = f" and deserve{'s' if unsure == 1 else ''} a look" if unsure else ""
        counts = np.bincount(uncertainty.most_probable(p[unlabeled]), minlength=len(classes))
        text.append(
            f"The answer: {_answer(named, counts)}. {_count(sure, 'has', 'have').capitalize()} a probability of "
            f"{SURE:.0%} or more; {_count(unsure, 'has', 'have')} less than {UNSURE:.0%}{advice}."
        )
    if judged is not None:
        text.append(by_the_truth(judged))
    if checked is not None and (judged is None or judged.n_nodes < FEW_JUDGED):
        text.append(str(checked))
    if suspicious:
        one = "s" if len(suspicious) == 1 else ""
        text.append(
            f"{len(suspicious):,} of the given labels contradict{one} the others: see Suspicious labels below."
        )
    if not converged:
        text.append("The computation has not converged: read every number on this page as provisional.")
    return text


def by_the_truth(judged: Summary) -> str:
    """Say whether probabilities are over- or underconfident, judged by true classes."""
    known = f"the truth, which is known of {_rows(judged.n_nodes)} without a label"
    if judged.n_nodes < FEW_JUDGED:
        return (
            f"As far as {known}, can tell, the probabilities are {judged.verdict}: {share(judged.accuracy)} are classified "
            f"right where {share(judged.promised)} were promised. So few rows prove little."
        )
    return (
        f"Judged by {known}, the probabilities are "
        f"{judged.verdict}: {share(judged.accuracy, 1)} are classified right where {share(judged.promised, 1)} were "
        f"promised. Leave the least sure tenth to a person, and {share(judged.risk_coverage.at(0.9), 1)} of the rest are "
        "right."
    )


def _given(named: Sequence[str], given: NDArray[np.int64]) -> str:
    """The number of labels per class or, for many classes, their minimum and maximum."""
    if len(named) <= MAX_NAMED:
        return f"{given.sum():,} had a class: {listed(f'{n:,} had {name}' for n, name in zip(given, named, strict=True))}"
    low, high = given.min(), given.max()
    per_class = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return f"{given.sum():,} had one of {len(named)} classes, {per_class} row{'s' if high > 1 else ''} of each"


def _answer(named: Sequence[str], counts: NDArray[np.int64]) -> str:
    """The number of rows per class or, for many classes, the most frequent and the rarest class."""
    if len(named) <= MAX_NAMED:
        likely = "more likely" if len(named) == 2 else "most likely"
        return listed(
            f"{_count(int(n), 'is', 'are')} {likely} {name}" for n, name in zip(counts, named, strict=True)
        )
    most, least = int(counts.argmax()), int(counts.argmin())
    return (
        f"the most frequent class is {named[most]} with {_rows(counts[most])}, the rarest {named[least]} with "
        f"{_rows(counts[least])}"
    )


def _rows(n: int) -> str:
    return f"{n:,} row{'' if n == 1 else 's'}"


def _count(n: int, one: str, more: str) -> str:
    """A count with its verb: "none has", "1 has", "2 have"."""
    return f"{n:,} {more}" if n > 1 else f"{n or 'none'} {one}"


def tiles(p: Array, n_labeled: int, unlabeled: Nodes, judged: Summary | None) -> list[tuple[str, str]]:
    """Key numbers, each with its description."""
    numbers = [
        (f"{len(p):,}", "rows"),
        (f"{n_labeled:,}", "labeled"),
        *([(f"{p.shape[1]}", "classes")] if p.shape[1] > 2 else []),
    ]
    if len(unlabeled):
        sure = np.mean(uncertainty.confidence(p[unlabeled]) >= SURE)
        numbers.append((share(float(sure)), f"of the others with probability {SURE:.0%} or more"))
    numbers.append((f"{uncertainty.mean_label_variance(p):.3f}", "mean uncertainty; 1 before any label"))
    if judged is not None:
        numbers.append((share(judged.accuracy, 1), "right, where the truth is known"))
    return numbers


def measures(summary: Summary) -> list[tuple[str, str]]:
    """Measures of accuracy and calibration, by name."""
    values = {
        "rows with known truth, not labeled": f"{summary.n_nodes:,}",
        "share right": f"{summary.accuracy:.3f}",
        "log-loss": f"{summary.log_loss:.3f}",
        "Brier score": f"{summary.brier:.3f}",
        "expected calibration error": f"{summary.reliability.ece:.3f}",
        "a wrong answer is less sure than a right one with probability": f"{summary.error_detection_auroc:.3f}",
    }
    return [(name, value) for name, value in values.items() if value != "nan"]
