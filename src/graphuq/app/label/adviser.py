"""Labels in; what is believed of every row at once, and what to ask next a moment later, out.

A new label moves the beliefs in milliseconds. A thread then weighs what to ask next, leaves labels out, and learns the
hyper-parameters anew when classes come or go, or when there are a quarter more labels than when it last did.
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

N_AHEAD = 6  # questions weighed at a time: one for each of a few people
N_GAIN = 10  # answers whose worth is told
FIRST = 30.0  # seconds that the first question of all may take


class Situation(NamedTuple):
    """What is known: the class of some rows, and which others may be asked about."""

    given: dict[int, str]
    askable: Nodes


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What is believed at one moment.

    Attributes:
        version: how many times labels were told.
        classifier: None while fewer than two classes have labels.
        shown: the probability of each of its classes at the rows of the map, shape (n_shown, n_classes).
    """

    version: int = 0
    classifier: GraphClassifier | None = None
    shown: Array | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class Advice:
    """What the thread found for some version of the beliefs: rows to ask, best first, and what else there is to say."""

    version: int = -1
    ahead: tuple[int, ...] = ()
    suspicious: SuspiciousLabels | None = None
    gain: queries.ExpectedGain | None = None


class Adviser:
    """Beliefs about one table that move with its labels; safe to call from any thread."""

    def __init__(
        self,
        seen: GraphClassifier,
        shown: Nodes,
        situation: Callable[[], Situation],
        note: Callable[[int, float, float | None], None],
    ) -> None:
        """Start to learn, from a classifier that has seen the table; `shown` are the rows of the map.

        `situation` says what is known now; `note` takes the number of labels, the mean label variance and the log-loss of
        labels left out.
        """
        self.n_rows = int(seen.graph_.n_nodes)
        self.shown = shown
        self.seen, self._situation, self._note = seen, situation, note
        self._lock = threading.RLock()
        self._news = threading.Condition(self._lock)
        self.now, self.advice = Snapshot(), Advice()
        self.learning, self.weighing, self.failure = False, False, ""
        self.coordinates, self.layout = self._place(None), 0  # of all rows, shape (n_rows, 2)
        self._kept: tuple[Kept, ...] = ()  # of the rows of the map
        self._learned_from, self._failed_at = 0, -1
        self._stopped = False
        self._thread = threading.Thread(target=self._work, name="weigh", daemon=True)
        self._thread.start()

    def tell(self) -> None:
        """Labels have changed: beliefs follow at once."""
        with self._news:
            self._believe(self.now.classifier, self.now.version + 1)
            self._news.notify_all()

    def wait(self, seconds: float) -> Advice:
        """What to ask, weighed with all labels if that is ready in time."""
        with self._news:
            self._news.wait_for(lambda: bool(self.advice.ahead) or self.advice.version >= 0, FIRST)
            self._news.wait_for(lambda: self.advice.version >= self.now.version, seconds)
            return self.advice

    def settled(self, seconds: float = 600.0) -> bool:
        """Wait until everything is learned and weighed."""
        with self._news:
            return self._news.wait_for(self._idle, seconds)

    def stop(self) -> None:
        """End the thread."""
        with self._news:
            self._stopped = True
            self._news.notify_all()
        self._thread.join()

    # ---- beliefs --------------------------------------------------------------------------------------
    def _believe(self, classifier: GraphClassifier | None, version: int) -> None:
        """Take up the labels of this moment."""
        found = None if classifier is None else told(classifier, self._situation().given)
        shown = None
        if found is not None:
            if len(self.shown) == self.n_rows:
                shown = found.label_distributions_
            else:  # all rows of a large table wait for the thread
                shown, _, self._kept = refreshed(found.posterior_, self._kept, self.shown)
            self._note(len(found.labels_.nodes), uncertainty.mean_label_variance(shown), None)
        self.now = Snapshot(version, found, shown)

    def _place(self, p: Array | None) -> Array:
        """Where rows lie on the map, from 0 to 1: the first two columns of the report's, half of them as ranks.

        Eigenvectors throw a few rows far out and leave the others in a heap: their order stays, and the heap gets room.
        """
        modes, rows = self.seen.spectrum_, np.arange(self.n_rows)
        open_minded = np.full((self.n_rows, 2), 0.5)
        columns = plots.embedding(modes, open_minded if p is None else p, rows)["coordinates"][:2]
        found = np.column_stack([*columns, *([np.zeros(self.n_rows)] * (2 - len(columns)))])
        low, high = found.min(axis=0), found.max(axis=0)
        even = rankdata(found, axis=0) / self.n_rows
        return np.asarray((even + (found - low) / np.where(high > low, high - low, 1)) / 2)

    # ---- the thread -----------------------------------------------------------------------------------
    def _idle(self) -> bool:
        done = self.advice.version >= self.now.version and not (self.learning or self.weighing)
        return done and not self._must_learn()

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
        # Those who wait for an answer come first, where a thread has a priority of its own.
        if sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
        self._spread(Advice.version, self._situation())  # something to ask about, while the rest is found
        while True:
            with self._news:
                self.learning = self.weighing = False
                self._news.notify_all()
                self._news.wait_for(lambda: self._stopped or not self._idle())
                if self._stopped:
                    return
                self.learning = self._must_learn()
                self.weighing = not self.learning
                version, situation = self.now.version, self._situation()
            try:
                self._learn(situation) if self.learning else self._weigh(version, situation)
                self.failure = ""
            except Exception as error:  # the page goes on without advice, and says so
                tell(sentence(error)) if isinstance(error, OSError) else traceback.print_exc(file=sys.stderr)
                with self._news:
                    self.failure, self._failed_at = sentence(error), version  # until there is another label
                    self.advice = replace(self.advice, version=version)

    def _learn(self, situation: Situation) -> None:
        classifier = learned(self.seen, situation.given)
        place = self._place(classifier.label_distributions_)
        with self._news:
            self._learned_from = len(situation.given)
            self._kept = tuple(each.at(self.shown) for each in classifier._kept)
            self._believe(classifier, self.now.version + 1)
            self.coordinates, self.layout = place, self.layout + 1

    def _weigh(self, version: int, situation: Situation) -> None:
        """What to ask first, since someone waits for it; then the rest, as long as no label comes in between."""
        classifier, (given, askable) = self.now.classifier, situation
        if classifier is None:
            self._spread(version, situation)
            return
        ahead = classifier.next_queries(N_AHEAD, candidates=askable) if askable.size else askable
        self._publish(Advice(version, tuple(ahead.tolist()), self.advice.suspicious, self.advice.gain))
        suspicious, log_loss = None, None
        if len(given) <= MAX_LEFT_OUT:
            left_out = classifier.posterior_.left_out()
            suspicious = suspicious_labels(classifier.posterior_, left_out=left_out)
            log_loss = calibration.log_loss(left_out, classifier.labels_.y)
        variance = uncertainty.mean_label_variance(classifier.label_distributions_)
        self._note(len(classifier.labels_.nodes), variance, log_loss)
        if not self._publish(replace(self.advice, suspicious=suspicious)) or not askable.size:
            return
        self._publish(replace(self.advice, gain=classifier.expected_gain(N_GAIN)))

    def _spread(self, version: int, situation: Situation) -> None:
        """Without two classes nothing but the graph says what to ask: rows that are spread over it."""
        ahead = situation.askable
        if ahead.size:
            taken = np.setdiff1d(np.arange(self.n_rows), ahead)
            ahead = queries.spread(self.seen.spectrum_, N_AHEAD, taken=taken)
        self._publish(Advice(version, tuple(ahead.tolist())))

    def _publish(self, advice: Advice) -> bool:
        """Take up advice; whether there is time for more."""
        with self._news:
            self.advice = advice
            self._news.notify_all()
            return self.now.version == advice.version and not self._stopped


def seen(classifier: GraphClassifier, X: NDArray[np.float64], tell: Callable[[str], None]) -> GraphClassifier:
    """The classifier with a graph of all rows and its eigenpairs, and no labels yet."""
    classifier._seen = Seen.of(classifier, read_rows(classifier, X), tell)
    return classifier


def learned(classifier: GraphClassifier, given: Mapping[int, str]) -> GraphClassifier:
    """Another classifier of the same graph, its hyper-parameters learned from these labels, of two classes or more."""
    nodes = np.array(sorted(given), dtype=np.int64)
    classes, y = np.unique([given[row] for row in nodes.tolist()], return_inverse=True)
    found = copy.copy(classifier)
    return found._infer(Labels(classes, nodes, y))


def told(classifier: GraphClassifier, given: Mapping[int, str]) -> GraphClassifier | None:
    """The classifier with these labels in the place of its own, as far as they are of classes that it knows.

    None where those are of fewer than two classes.
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
    # Not `partial_fit_labels`: where labels contradict each other that would draw, while someone waits.
    return copy.copy(classifier)._believe(Labels(before.classes, nodes, y), posterior.with_labels(nodes, y))
