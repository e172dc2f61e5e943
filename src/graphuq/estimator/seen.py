"""A table of features in; what needs no label out: its graph, eigenpairs and columns, and where new rows lie among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from graphuq import spectrum
from graphuq._expect import SettingError
from graphuq._warn import warn
from graphuq.estimator.rows import fingerprints, read_features
from graphuq.estimator.settings import first_modes, make_graph, make_spectrum, modes_that_fit, seed_of
from graphuq.feature_piece import FeaturePiece
from graphuq.graph import Graph, LowRankGraph
from graphuq.graph.units import looked_at
from graphuq.memory import room
from graphuq.prior import NewRows
from graphuq.spectrum.result import Spectrum
from graphuq.stages import timed
from graphuq.tall import Tall, is_store, numbered, spread, tall

if TYPE_CHECKING:
    from graphuq.estimator import GraphClassifier

Array = NDArray[np.float64]
Nodes = NDArray[np.int64]

# A new row has at least the prior variance that all but this share of the rows of fit have.
LEAST_QUANTILE = 0.05
# A file mapped to memory is read in blocks if it would fill more than this share of what is free.
LARGE_SHARE = 0.25
# Graphs that features in a store can have: others compare all pairs.
TALL_GRAPHS = ("cosine", "nystrom", "knn")


def read_rows(classifier: GraphClassifier, X: Any) -> Any:
    """Features as numbers: in memory, or, of a store or a file that would fill it, where they lie."""
    large = isinstance(X, np.memmap) and 8.0 * X.size > LARGE_SHARE * room()
    if not large and not is_store(X):
        return read_features(classifier, X, ensure_min_samples=2)
    if isinstance(classifier.graph, str) and classifier.graph not in TALL_GRAPHS:
        raise SettingError("graph", f"must be one of {', '.join(TALL_GRAPHS)} for features in a store.")
    X = tall(X)
    if len(X) < 2:
        raise ValueError(f"X has {len(X)} row, and a graph needs two.")
    classifier.n_features_in_ = X.shape[1]
    classifier.__dict__.pop("feature_names_in_", None)  # of a table that was fitted before
    return X


def remember(X: Any, labeled: Nodes) -> Any:
    """Features whose rows that are asked for again and again are read once: with a label, and such as stand for all."""
    if not isinstance(X, Tall):
        return X
    n_rows = X.shape[0]
    return X.remembering(np.concatenate([labeled, numbered(spread(n_rows), n_rows), looked_at(X)]))


@dataclass(frozen=True, eq=False)
class Seen:
    """All of a table that needs no label.

    Attributes:
        graph, spectrum: of all rows.
        has_features: whether rows are features, and not weights to the rows of the table.
        linear, columns: the function of the features that a learned prior has, and its columns at all rows.
        fingerprints: of each row; none of a store, where no row is looked up again.
        store: the features, if they are in a store.
        seed: of all that is random.
        seconds: that each part took.
    """

    graph: Graph | LowRankGraph
    spectrum: Spectrum
    has_features: bool
    linear: FeaturePiece | None
    columns: Any
    fingerprints: list[bytes]
    seed: int
    seconds: dict[str, float]
    store: Tall | None = None

    @classmethod
    def of(cls, classifier: GraphClassifier, X: Any, tell: Callable[[str], None]) -> Seen:
        """By the settings of a classifier; `tell` is called with what begins."""
        seconds: dict[str, float] = {}
        store = X if isinstance(X, Tall) else None
        tell(f"graph of {X.shape[0]:,} rows, {X.shape[1]:,} features")
        with timed(seconds, "graph"):
            graph = make_graph(classifier, X)
        with timed(seconds, "rows"):
            rows = [] if store is not None else fingerprints(X)
        tell("eigenvectors of the graph")
        with timed(seconds, "spectrum"):
            modes = make_spectrum(classifier, graph, n_modes=first_modes(classifier, X.shape[0]))
        has_features, seed = classifier.graph != "precomputed", seed_of(classifier)
        with timed(seconds, "features"):
            learned = has_features and classifier.prior == "learned"
            linear = FeaturePiece.of(X) if learned else None
            columns = None if linear is None else linear.columns(X)
        return cls(graph, modes, has_features, linear, columns, rows, seed, seconds, store)

    def more_modes(self, classifier: GraphClassifier, found: Spectrum, factor: int = 4) -> Spectrum | None:
        """So many times the modes found, up to those asked for; None if these are there."""
        wanted = min(classifier.n_modes, self.graph.n_nodes)
        if isinstance(self.graph, LowRankGraph) or found.n_modes >= wanted:
            return None
        n_modes = min(factor * found.n_modes, wanted, max(found.n_modes, modes_that_fit(found.n_nodes)))
        if n_modes < min(factor * found.n_modes, wanted):
            warn(
                f"There is memory for {n_modes} eigenvectors of the graph, and the labels ask for more: the answers may be "
                "less sharp than they could be. Free memory, or ask for fewer n_modes.",
            )
        if n_modes == found.n_modes:
            return None
        with timed(self.seconds, "spectrum"):
            return make_spectrum(classifier, self.graph, n_modes=n_modes, start=found)

    def marks(self, nodes: Nodes) -> list[bytes]:
        """What tells some rows apart: their features, or, where weights are all that is known, which rows they are."""
        if self.store is not None:
            return fingerprints(self.store.rows(nodes))
        if not self.has_features:  # twins, such as the leaves of a hub, have equal weights
            return [b"%d" % node for node in nodes]
        return [self.fingerprints[node] for node in nodes]

    def nodes(self, X: Any, *, labeled: Nodes) -> Nodes:
        """The row of the table that each row of X is, of equal ones a labeled or else the first; -1 if none.

        Rows of weights are those of the table only all together: one alone may be that of a new twin.
        """
        if self.store is not None:
            return np.full(X.shape[0], -1)
        if not self.has_features:
            same = X.shape[0] == self.graph.n_nodes and fingerprints(X) == self.fingerprints
            return np.arange(X.shape[0]) if same else np.full(X.shape[0], -1)
        known = {self.fingerprints[node]: int(node) for node in labeled[::-1]}
        return np.array([known.get(row, self._first.get(row, -1)) for row in fingerprints(X)], dtype=np.int64)

    @cached_property
    def _first(self) -> dict[bytes, int]:
        """The number of the first row that each fingerprint belongs to."""
        return {row: i for i, row in reversed(list(enumerate(self.fingerprints)))}

    def place(self, X: Any, *, learned: bool) -> NewRows:
        """New rows as the posterior takes them, under a learned prior or another.

        The eigenvectors take the values that the weights of a new row to those of the table give them (`spectrum.extend`).
        """
        like: Any = {}
        if isinstance(self.graph, LowRankGraph):
            extended = spectrum.extend(self.spectrum, self.graph, X)
        elif self.graph.features is not None:
            placed = self.graph.place(X)
            extended = spectrum.extend_weights(self.spectrum, placed.weights)
            like = {"nearest": placed.nearest, "share": placed.share}
        elif self.has_features:
            raise TypeError("The graph was made from weights alone and cannot place new rows: fit them too.")
        else:
            extended = spectrum.extend_weights(self.spectrum, X)
        has_value = self._believed_modes.copy()
        if learned:
            has_value[0], extended[:, 0] = True, 1.0  # as in the basis of the learned prior
        if learned and self.linear is not None:
            columns, like["beyond"] = self.linear.within_reach(X)
            like["slope"] = self.linear.n_bent
            has_value = np.concatenate([np.ones(columns.shape[1], dtype=bool), has_value])
            extended = np.hstack([columns, extended])
        return NewRows(extended, has_value, LEAST_QUANTILE, **like)

    @cached_property
    def _believed_modes(self) -> NDArray[np.bool_]:
        return np.array(spectrum.believed_modes(self.spectrum, self.graph))
