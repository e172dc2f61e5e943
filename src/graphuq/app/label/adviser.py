"""Labels in; predictions for every row at once, and the next questions from a background thread, out.

A new label updates the predictions in milliseconds. A thread then ranks candidate questions, predicts each label
from the others, and relearns the hyper-parameters when the set of classes changes or labels have grown by a
quarter.
"""

from __future__ import annotations

import copy
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from graphuq import calibration, queries, uncertainty
from graphuq.app.report import plots
from graphuq.app.shell import sentence, tell
from graphuq.classes import Labels
from graphuq.estimator import GraphClassifier
from graphuq.estimator.seen import Seen, read_rows
from graphuq.posterior.kept import Kept, refreshed
from graphuq.posterior.left_out import MAX_LEFT_OUT, SuspiciousLabels, suspicious_labels

Array = NDArray[Any]
Nodes = NDArray[np.int64]

N_AHEAD = 6  # questions prepared at a time: one for each of a few people
N_GAIN = 10  # further answers whose expected gain is reported
FIRST = 30.0  # seconds allowed for the very first question


class Situation(NamedTuple):
    """Input of the model: the class of each labeled row, and the rows that may be asked about."""

    given: dict[int, str]
    askable: Nodes


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Predictions at one moment.

    Attributes:
        version: number of updates so far.
        classifier: None while fewer than two classes have labels.
        shown: class probabilities at the rows of the map, shape (n_shown, n_classes).
    """

    version: int = 0
    classifier: GraphClassifier | None = None
    shown: Array | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class Advice:
    """Results of the thread for one version of the predictions: rows to ask, best first, and diagnostics.

    The diagnostics may still be those of the version before; `classes` are the names of the classes in `suspicious`.
    """

    version: int = -1
    ahead: tuple[int, ...] = ()
    suspicious: SuspiciousLabels | None = None
    classes: tuple[str, ...] = ()
    gain: queries.ExpectedGain | None = None


class Adviser:
    """Predictions for one table that follow its labels, and advice on what to ask; thread-safe."""

    def __init__(
        self,
        seen: GraphClassifier,
        shown: Nodes,
        situation: Callable[[], Situation],
        note: Callable[[int, float, float | None], None],
    ) -> None:
        """Start the thread, with a classifier that has the graph of the table; `shown` are the rows of the map.

        `situation` returns the current labels; `note` records the number of labels, the mean label variance and
        the leave-one-out log-loss.
        """
        self.n_rows = int(seen.graph_.n_nodes)
        self.shown = shown
        self.seen, self._situation, self._note = seen, situation, note
        self._news = threading.Condition()
        self.now, self.advice = Snapshot(), Advice()
        self.busy, self.failure = "", ""  # what the thread does: "learning", "updating" or nothing
        self.coordinates, self.layout = self._place(None), 0  # of all rows, shape (n_rows, 2)
        self._kept: tuple[Kept, ...] = ()  # of the rows of the map
        self._learned_from, self._failed_at = 0, -1
        self._stopped = False
        self._thread = threading.Thread(target=self._work, name="weigh", daemon=True)
        self._thread.start()

    def tell(self) -> None:
        """Update the predictions at once after labels have changed, and wake the thread."""
        with self._news:
            self._believe(self.now.classifier, self.now.version + 1)
            self._news.notify_all()

    def wait(self, seconds: float) -> Advice:
        """Latest advice; waits up to `seconds` for advice that takes all labels into account."""
        with self._news:
            self._news.wait_for(lambda: bool(self.advice.ahead) or self.advice.version >= 0, FIRST)
            self._news.wait_for(lambda: self.advice.version >= self.now.version, seconds)
            return self.advice

    def settled(self, seconds: float = 600.0) -> bool:
        """Wait until the thread is idle; returns whether it is."""
        with self._news:
            return self._news.wait_for(self._idle, seconds)

    def retire(self) -> None:
        """Let the thread begin nothing more."""
        with self._news:
            self._stopped = True
            self._news.notify_all()

    def stop(self, seconds: float | None = None) -> bool:
        """End the thread, which cannot be interrupted while it learns; returns whether it has ended in that time."""
        self.retire()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    # ---- predictions ----------------------------------------------------------------------------------
    def _believe(self, classifier: GraphClassifier | None, version: int) -> None:
        """Condition the classifier on the current labels and publish its predictions."""
        updated = None if classifier is None else told(classifier, self._situation().given)
        shown = None
        if updated is not None:
            if len(self.shown) == self.n_rows:
                shown = updated.label_distributions_
            else:  # in a large table, all other rows are left to the thread
                shown, _, self._kept = refreshed(updated.posterior_, self._kept, self.shown)
            self._note(len(updated.labels_.nodes), uncertainty.mean_label_variance(shown), None)
        self.now = Snapshot(version, updated, shown)

    def _place(self, p: Array | None) -> Array:
        """Map coordinates of all rows in [0, 1]: the mean of the report's first two coordinates and their ranks.

        Eigenvectors put a few rows far out and crowd the others together: ranks keep the order and spread the
        crowd.
        """
        modes, rows = self.seen.spectrum_, np.arange(self.n_rows)
        uniform = np.full((self.n_rows, 2), 0.5)
        columns = plots.embedding(modes, uniform if p is None else p, rows)["coordinates"][:2]
        points = np.column_stack([*columns, *([np.zeros(self.n_rows)] * (2 - len(columns)))])
        low, high = points.min(axis=0), points.max(axis=0)
        ranks = rankdata(points, axis=0) / self.n_rows
        return np.asarray((ranks + (points - low) / np.where(high > low, high - low, 1)) / 2)

    # ---- the thread -----------------------------------------------------------------------------------
    def _idle(self) -> bool:
        return not self.busy and self.advice.version >= self.now.version and not self._must_learn()

    def _must_learn(self) -> bool:
        given = self._situation().given
        classes = set(given.values())
        if len(classes) < 2 or self._failed_at == self.now.version:
            return False
        known = self.now.classifier
        return (
            known is None
            or set(known.classes_.tolist()) != classes
            or len(given) >= queries.LEARN_AGAIN * self._learned_from
        )

    def _work(self) -> None:
        # Requests from pages come first: Linux gives each thread its own priority.
        if sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
        self._spread(Advice.version, self._situation())  # questions to start with, while the rest is computed
        while True:
            with self._news:
                self.busy = ""
                self._news.notify_all()
                self._news.wait_for(lambda: self._stopped or not self._idle())
                if self._stopped:
                    return
                self.busy = "learning" if self._must_learn() else "updating"
                version, situation = self.now.version, self._situation()
            try:
                self._learn(situation) if self.busy == "learning" else self._weigh(version, situation)
                self.failure = ""
            except Exception as error:  # the page continues without advice, and shows the failure
                tell(sentence(error)) if isinstance(error, OSError) else traceback.print_exc(file=sys.stderr)
                with self._news:
                    self.failure, self._failed_at = sentence(error), version  # retried after the next label
                    self.advice = replace(self.advice, version=version)

    def _learn(self, situation: Situation) -> None:
        """Relearn the hyper-parameters, then update the predictions and the map."""
        classifier = learned(self.seen, situation.given)
        coordinates = self._place(classifier.label_distributions_)
        with self._news:
            self._learned_from = len(situation.given)
            self._kept = tuple(kept.at(self.shown) for kept in classifier._kept)
            self._believe(classifier, self.now.version + 1)
            self.coordinates, self.layout = coordinates, self.layout + 1

    def _weigh(self, version: int, situation: Situation) -> None:
        """Rank questions first, since someone waits for them; then diagnostics, unless a new label arrives."""
        classifier, (given, askable) = self.now.classifier, situation
        if classifier is None:
            self._spread(version, situation)
            return
        ahead = classifier.next_queries(N_AHEAD, candidates=askable) if askable.size else askable
        self._publish(replace(self.advice, version=version, ahead=tuple(ahead.tolist())))
        suspicious, log_loss = None, None
        if len(given) <= MAX_LEFT_OUT:
            left_out = classifier.posterior_.left_out()
            suspicious = suspicious_labels(classifier.posterior_, left_out=left_out)
            log_loss = calibration.log_loss(left_out, classifier.labels_.y)
        variance = uncertainty.mean_label_variance(classifier.label_distributions_)
        self._note(len(classifier.labels_.nodes), variance, log_loss)
        advice = replace(self.advice, suspicious=suspicious, classes=tuple(classifier.classes_.tolist()))
        if not self._publish(advice) or not askable.size:
            return
        self._publish(replace(self.advice, gain=classifier.expected_gain(N_GAIN)))

    def _spread(self, version: int, situation: Situation) -> None:
        """Ask about rows spread over the graph: the only criterion while fewer than two classes have labels."""
        ahead = situation.askable
        if ahead.size:
            taken = np.setdiff1d(np.arange(self.n_rows), ahead)
            ahead = queries.spread(self.seen.spectrum_, N_AHEAD, taken=taken)
        self._publish(Advice(version, tuple(ahead.tolist())))

    def _publish(self, advice: Advice) -> bool:
        """Publish advice; returns whether it is still up to date, so that more can be computed."""
        with self._news:
            self.advice = advice
            self._news.notify_all()
            return self.now.version == advice.version and not self._stopped


def seen(classifier: GraphClassifier, X: NDArray[np.float64], tell: Callable[[str], None]) -> GraphClassifier:
    """The classifier with the graph of all rows and its eigenpairs, but no labels yet."""
    classifier._seen = Seen.of(classifier, read_rows(classifier, X), tell)
    return classifier


def learned(classifier: GraphClassifier, given: Mapping[int, str]) -> GraphClassifier:
    """A new classifier on the same graph, hyper-parameters learned from these labels of at least two classes."""
    nodes = np.array(sorted(given), dtype=np.int64)
    classes, y = np.unique([given[row] for row in nodes.tolist()], return_inverse=True)
    return copy.copy(classifier)._infer(Labels(classes, nodes, y))


def told(classifier: GraphClassifier, given: Mapping[int, str]) -> GraphClassifier | None:
    """The classifier conditioned on these labels instead of its own, ignoring labels of classes it does not know.

    None if fewer than two classes remain.
    """
    before, known = classifier.labels_, classifier.classes_.tolist()
    numbers = {row: known.index(name) for row, name in given.items() if name in known}
    nodes = np.array(sorted(numbers), dtype=np.int64)
    y = np.array([numbers[row] for row in nodes.tolist()])
    if len(np.unique(y)) < 2:
        return None
    if np.array_equal(nodes, before.nodes) and np.array_equal(y, before.y):
        return classifier
    posterior: Any = classifier.posterior_
    # Not `partial_fit_labels`, which would run MCMC if labels contradict each other, while someone waits.
    return copy.copy(classifier)._believe(Labels(before.classes, nodes, y), posterior.with_labels(nodes, y))
