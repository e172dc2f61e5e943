"""A table of features in; what depends on no label out: graph, eigenpairs, feature columns, new rows' places."""

from __future__ import annotations

from collections import Counter
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
from graphuq.estimator.settings import (
    first_modes,
    made_with,
    make_graph,
    make_spectrum,
    modes_that_fit,
    seed_of,
)
from graphuq.feature_piece import FeaturePiece
from graphuq.graph import Graph, LowRankGraph
from graphuq.graph.units import sampled_rows
from graphuq.learning.evidence import learned_basis
from graphuq.memory import room
from graphuq.new_rows import NewRows
from graphuq.spectrum.result import Spectrum
from graphuq.stages import timed
from graphuq.tall import Tall, is_store, numbered, spread, tall

if TYPE_CHECKING:
    from graphuq.estimator import GraphClassifier

Array = NDArray[np.float64]
Nodes = NDArray[np.int64]

# The prior variance of a new row is at least this quantile of the prior variances of the rows of fit.
LEAST_QUANTILE = 0.05
# A memory-mapped file is read in blocks if it would fill more than this share of the free memory.
LARGE_SHARE = 0.25
# Graphs available for features in a store; the others compare all pairs.
TALL_GRAPHS = ("cosine", "nystrom", "knn")


def read_rows(classifier: GraphClassifier, X: Any) -> Any:
    """Validate the features: an array in memory, or a `Tall` for a store or a large memory-mapped file."""
    large = isinstance(X, np.memmap) and 8.0 * X.size > LARGE_SHARE * room()
    if not large and not is_store(X):
        return read_features(classifier, X, ensure_min_samples=2)
    if isinstance(classifier.graph, str) and classifier.graph not in TALL_GRAPHS:
        raise SettingError("graph", f"must be one of {', '.join(TALL_GRAPHS)} for features in a store.")
    X = tall(X)
    if len(X) < 2:
        raise ValueError(f"X has {len(X)} row, and a graph needs two.")
    classifier.n_features_in_ = X.shape[1]
    classifier.__dict__.pop("feature_names_in_", None)  # from an earlier fit
    return X


def remember(X: Any, labeled: Nodes) -> Any:
    """Cache the rows of a store that are read repeatedly: labeled rows and those sampled to represent all."""
    if not isinstance(X, Tall):
        return X
    n_rows = X.shape[0]
    return X.remembering(np.concatenate([labeled, numbered(spread(n_rows), n_rows), sampled_rows(X)]))


@dataclass(frozen=True, eq=False)
class Seen:
    """The part of a fit that depends on no label.

    Attributes:
        graph, spectrum: similarity graph of all rows and its eigenpairs.
        linear, columns: the feature term of a learned prior, and its columns evaluated at all rows.
        fingerprints: hash of each row; empty for a store, whose rows are never matched.
        store: the features, if they are in a store.
        seed: random seed of the fit.
        made_with: the parameters that it depends on.
        seconds: time taken by each stage.
    """

    graph: Graph | LowRankGraph
    spectrum: Spectrum
    linear: FeaturePiece | None
    columns: Any
    fingerprints: list[bytes]
    seed: int
    made_with: dict[str, Any]
    seconds: dict[str, float]
    store: Tall | None = None

    @classmethod
    def of(cls, classifier: GraphClassifier, X: Any, tell: Callable[[str], None]) -> Seen:
        """Build by the settings of a classifier; `tell` is called with the name of each stage."""
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
        with timed(seconds, "features"):
            of_features = classifier.prior == "learned" and classifier.graph != "precomputed"
            linear = FeaturePiece.of(X) if of_features else None
            columns = None if linear is None else linear.columns(X)
        settings = made_with(classifier)
        return cls(graph, modes, linear, columns, rows, seed_of(classifier), settings, seconds, store)

    def more_modes(self, classifier: GraphClassifier, current: Spectrum, factor: int = 4) -> Spectrum | None:
        """A spectrum with `factor` times as many modes, up to `n_modes`; None if there are no more to compute."""
        wanted = min(classifier.n_modes, self.graph.n_nodes)
        if isinstance(self.graph, LowRankGraph) or current.n_modes >= wanted:
            return None
        n_modes = min(factor * current.n_modes, wanted, max(current.n_modes, modes_that_fit(current.n_nodes)))
        if n_modes < min(factor * current.n_modes, wanted):
            warn(
                f"There is memory for {n_modes} eigenvectors of the graph, and the labels ask for more: the answers may be "
                "less sharp than they could be. Free memory, or ask for fewer n_modes.",
            )
        if n_modes == current.n_modes:
            return None
        with timed(self.seconds, "spectrum"):
            return make_spectrum(classifier, self.graph, n_modes=n_modes, start=current)

    def marks(self, nodes: Nodes) -> list[bytes]:
        """Keys that are equal for rows with equal features; for precomputed weights, the row numbers."""
        if self.store is not None:
            return fingerprints(self.store.rows(nodes))
        if not self.has_features:  # distinct rows, such as the leaves of a hub, can have equal weights
            return [b"%d" % node for node in nodes]
        return [self.fingerprints[node] for node in nodes]

    def nodes(self, X: Any, *, labeled: Nodes) -> Nodes:
        """Match each row of X to an equal row of the table, a labeled one or else the first; -1 if none.

        Distinct rows of precomputed weights may be equal, such as the leaves of a hub: these match only as part of
        the whole matrix, in the order of the table.
        """
        if self.store is not None:
            return np.full(X.shape[0], -1)
        rows = fingerprints(X)
        if not self.has_features and rows == self.fingerprints:
            return np.arange(len(rows))
        given = {self.fingerprints[node]: int(node) for node in labeled[::-1]} | self._ambiguous
        return np.array([given.get(row, self._first.get(row, -1)) for row in rows], dtype=np.int64)

    @cached_property
    def _ambiguous(self) -> dict[bytes, int]:
        """-1 for each row of precomputed weights that occurs more than once."""
        return {} if self.has_features else {row: -1 for row, n in Counter(self.fingerprints).items() if n > 1}

    @cached_property
    def _first(self) -> dict[bytes, int]:
        """The first row with each fingerprint."""
        return {row: i for i, row in reversed(list(enumerate(self.fingerprints)))}

    @property
    def has_features(self) -> bool:
        """Whether rows of X are features; False if they are precomputed weights."""
        return bool(self.made_with["graph"] != "precomputed")

    @property
    def learned(self) -> bool:
        """Whether the prior is a learned one, whose basis has columns other than the eigenvectors."""
        return bool(self.made_with["prior"] == "learned")

    def basis(self, vectors: Any) -> Any:
        """The columns of the prior at all rows of the table, from eigenvectors there."""
        return learned_basis(self.columns, vectors) if self.learned else vectors

    def place(self, X: Any) -> NewRows:
        """Place new rows in the graph, in the form that the posterior takes.

        Eigenvectors are extended to new rows through their weights to the rows of the table (`spectrum.extend`).
        """
        extras: Any = {}
        if isinstance(self.graph, LowRankGraph):
            extended = spectrum.extend(self.spectrum, self.graph, X)
        elif self.graph.features is not None:
            placed = self.graph.place(X)
            extended = spectrum.extend_weights(self.spectrum, placed.weights)
            extras = {"nearest": placed.nearest, "share": placed.share}
        elif self.has_features:
            raise TypeError("The graph was made from weights alone and cannot place new rows: fit them too.")
        else:
            extended = spectrum.extend_weights(self.spectrum, X)
        has_value = self._believed_modes.copy()
        if self.learned:
            columns = None
            if self.linear is not None:
                columns, extras["beyond"] = self.linear.within_reach(X)
                extras["slope"] = self.linear.n_bent
            extended = learned_basis(columns, extended)
            has_value[0] = True  # the constant, which takes the place of q_0
            has_value = np.pad(has_value, (extended.shape[1] - has_value.size, 0), constant_values=True)
        # with low-rank weights a new row has the same values as an equal row of the table: it needs no more variance
        least = 0.0 if isinstance(self.graph, LowRankGraph) else LEAST_QUANTILE
        return NewRows(extended, has_value, least, **extras)

    @cached_property
    def _believed_modes(self) -> NDArray[np.bool_]:
        return np.array(spectrum.believed_modes(self.spectrum, self.graph))
