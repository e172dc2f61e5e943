"""Rows of features and a few classes in; the class of every row and of new ones, and how sure it is, out."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from graphuq import graph as graphs
from graphuq import queries, uncertainty
from graphuq._expect import expect_numbers
from graphuq._progress import stages_told
from graphuq.classes import Labels, read_labels, relabel
from graphuq.estimator import answers
from graphuq.estimator.beliefs import drawn, infer, model_of, with_labels
from graphuq.estimator.rows import average_equal, read_features, warn_of_contradictions, weights_of
from graphuq.estimator.seen import Seen, read_rows, remember
from graphuq.estimator.settings import check_settings, refuse_unused
from graphuq.estimator.wrappers import refuse_wrappers
from graphuq.posterior import Draws
from graphuq.posterior.kept import Kept, refreshed
from graphuq.posterior.left_out import SelfCheck, SuspiciousLabels, self_check, suspicious_labels
from graphuq.posterior.mixture import AnyPosterior
from graphuq.prior import NewRows
from graphuq.spectrum.result import Spectrum
from graphuq.stages import peak_gigabytes, timed
from graphuq.tall import Tall, is_store

Array = NDArray[np.float64]


class GraphClassifier(ClassifierMixin, BaseEstimator):
    """Classify every row from a few labeled ones, and say how sure each answer is.

    A similarity graph of the rows gives a Gaussian prior on functions of the rows that vary little
    between similar ones; the labels turn it into a posterior. Any number of classes.

    Unlabeled rows are part of the data: pass all rows to `fit`, with y = -1, NaN or None where the class is unknown
    (for text also ""). No class can be called -1.

    A number that only another choice would look at, such as `tau` without prior="matern", is refused by `fit`.

    Labels have no weights: `fit` takes no `sample_weight`. To cross-validate, use `LabeledKFold` and `LabeledScorer`.

    Args:
        graph: how similarity is measured: "knn" (nearest neighbors, for any size), "self_tuning" or "gaussian" (all
            pairs), "nystrom" (all pairs, through 500 landmarks), "cosine" (all pairs, nonnegative features), or
            "precomputed": X is then the matrix of weights between rows, or a `Graph`; in `predict` it holds the weights
            of new rows to the rows of `fit`, or is the whole matrix of `fit` again, to answer for its rows. Or a
            function of X that returns a graph or a matrix of weights, such as ``graph.knn(n_neighbors=20)``.
        n_neighbors: neighbors that a row is joined to, or that set its scale; at most all other rows.
        width: the distance at which rows still count as similar, for "gaussian" and "nystrom".
        n_components: project the features to this many principal components first. The default for sparse X, such as
            word counts, is 100, except for "cosine", which needs no dense copy.
        scale: in what units the graph compares features: "robust", from their medians, compressed, and of deviation 1 (see
            `graph.units`); "none", as they are given; or "auto", the default: "robust" for "knn" and "self_tuning" where
            the widest feature has more than ten times the range of others, or a feature has far outliers, but never for
            sparse features, which it leaves as they are given. A learned prior's function of the features is always in
            robust units.
        prior: "learned" (a sum of a matern prior on the graph and a function of the features, linear or bent, whose
            hyper-parameters are learned from the labels, as is the labels' noise), "matern" with the given `tau` and
            `alpha`, or the paper's "approximate", "project" or "full". Or a function of a spectrum that returns a
            prior, such as ``prior.matern(tau=0.1, alpha=2)``.
        n_modes: how many eigenvectors of the graph to use; a small graph may have fewer. "full" always uses all.
        tau: inverse length scale of "matern".
        alpha: smoothness of "matern".
        model: how labels follow from the function: "probit", "level_set" or "ginzburg_landau". Or a model
            without labels, such as ``models.Probit(gamma=0.2)``, or a class of your own.
        gamma: standard deviation of the label noise. None learns it or, where nothing is learned, uses the model's
            default (0.1, for Ginzburg-Landau 0.6). If probit's gamma is given, a learned prior has standard deviation 1
            along the graph; if not, the prior is in units of the noise.
        epsilon: width of the wells of "ginzburg_landau".
        inference: "ep" uses expectation propagation, "sample" makes `n_steps` draws with `sampler`. "auto" uses
            expectation propagation for a learned prior, averaged over hyper-parameters; for any other prior it draws
            until R-hat is below 1.01 with 400 effective draws, for at most 20 times `n_steps` or `time_limit`.
        sampler: how to draw, such as `PCN()`; by default the model's own.
        n_steps: draws of each chain.
        n_chains: independent chains.
        time_limit: seconds after which "auto" stops drawing, with a warning.
        random_state: seed of the draws, of random choices among rows to ask about, of the landmarks of "nystrom" and of
            an approximate neighbor search; the same number gives the same answer. Other random choices (the start of
            the eigenvectors, rows that represent all others, labels to begin learning with) do not depend on it.
        verbose: whether to report the stages of long work on standard error, with bars in a terminal. False never does;
            None, the default, reports what takes over a second in a terminal or a notebook.

    Attributes:
        classes_: the classes, in order.
        transduction_: the class of every row of `fit`.
        label_distributions_: the probability of each class at these rows, shape (n_rows, n_classes), columns as in
            `classes_`.
        label_errors_: the Monte-Carlo errors of these.
        posterior_: the `Posterior`: `Draws`, a `GaussianPosterior` or a `Mixture`.
        hyperparameters_: gamma, tau, alpha, graph, linear, bent, constant, mistakes, epsilon, as far as they apply. gamma
            is the value given or, for a learned prior, 1, the unit of graph, linear and bent.
        hyperparameter_spread_: for each learned one, the factor within which it is known.
        graph_, spectrum_: the similarity graph and its eigenpairs; for a large graph, those that carry weight.
        stages_, peak_gigabytes_: the seconds that each part of `fit` took, and the most memory this process has held.
        labels_: the labeled rows and their classes.
        n_iter_: steps of each chain, or sweeps of expectation propagation.
        n_features_in_, feature_names_in_: number and names of the columns of X.
    """

    posterior_: AnyPosterior
    _seen: Seen
    _distributions: Array | None
    _errors: Array
    _kept: tuple[Kept, ...] = ()

    def __init__(
        self,
        *,
        graph: Any = "knn",
        n_neighbors: int = 5,
        width: float | None = None,
        n_components: int | None = None,
        scale: str = "auto",
        prior: Any = "learned",
        n_modes: int = 300,
        tau: float = 0.1,
        alpha: float = 2.0,
        model: Any = "probit",
        gamma: float | None = None,
        epsilon: float = 10.0,
        inference: str = "auto",
        sampler: Any = None,
        n_steps: int = 500,
        n_chains: int = 8,
        time_limit: float = 60.0,
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool | None = None,
    ) -> None:
        self.graph = graph
        self.n_neighbors = n_neighbors
        self.width = width
        self.n_components = n_components
        self.scale = scale
        self.prior = prior
        self.n_modes = n_modes
        self.tau = tau
        self.alpha = alpha
        self.model = model
        self.gamma = gamma
        self.epsilon = epsilon
        self.inference = inference
        self.sampler = sampler
        self.n_steps = n_steps
        self.n_chains = n_chains
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> GraphClassifier:
        """Build the graph of all rows and the posterior given the labeled ones.

        Args:
            X: features, shape (n_rows, n_features), or weights (n_rows, n_rows) if precomputed. Features in a store (a
                Zarr or Dask array, a mapped file that would fill the memory, a `tall.tall`) stay there: they are read
                in blocks, by the cluster of an open Dask client or by this process; see `write_proba`.
            y: a class for each labeled row; -1, NaN or None for the others, see `read_labels`.
        """
        check_settings(self)
        refuse_unused(self)
        self.__dict__.pop("posterior_", None)  # a fit that fails leaves nothing that answers
        if y is None:
            raise ValueError("GraphClassifier requires y to be passed, but the target y is None.")
        X = read_rows(self, weights_of(self, X))
        check_consistent_length(X, y)
        labels = read_labels(y)
        model_of(self, labels)  # one that cannot do what is asked is refused before any work
        began = time.perf_counter()
        with stages_told(self.verbose) as tell:
            self._seen = Seen.of(self, remember(X, labels.nodes), tell)
            warn_of_contradictions(self._seen.marks(labels.nodes), labels)
            self._infer(labels)
            if not isinstance(X, Tall):
                with timed(self.stages_, "answers"):
                    _ = self.label_distributions_  # where it is told what takes time, and not when first asked for
        self.seconds_, self.peak_gigabytes_ = time.perf_counter() - began, peak_gigabytes()
        return self

    def partial_fit_labels(self, nodes: ArrayLike, y: Any) -> GraphClassifier:
        """Add labels to rows of `fit`; the graph, its spectrum and the hyper-parameters stay.

        Where the model allows expectation propagation this takes milliseconds on a graph of any size. From then on all
        answers, also at new rows, come from expectation propagation, until `draw` replaces them by draws. The weights
        of a mixture over hyper-parameters are updated by the evidence of the new labels. Other models, and labels that
        expectation propagation cannot reconcile, are sampled at once.

        A row that has a label gets the new one; y = -1, NaN or None removes it.

        Args:
            nodes: row numbers, from 0.
            y: their classes.
        """
        check_is_fitted(self)
        labels = relabel(self.labels_, nodes, y, n_rows=self.graph_.n_nodes)
        warn_of_contradictions(self._seen.marks(labels.nodes), labels)
        with stages_told(self.verbose):
            return self._believe(labels, with_labels(self, self._seen, self.posterior_, labels))

    def draw(self) -> GraphClassifier:
        """Sample the posterior, of a mixture its heaviest components: answers then come from exact draws.

        The temperature of a mixture, used with more than two classes, stays and is applied to the draws' probabilities.
        """
        check_is_fitted(self)
        with stages_told(self.verbose):
            return self._believe(self.labels_, drawn(self, self._seen, self.posterior_))

    def most_uncertain(self, n: int = 10) -> NDArray[np.int64]:
        """The unlabeled rows of `fit` whose class is least certain, least certain first."""
        check_is_fitted(self)
        unlabeled = np.setdiff1d(np.arange(self.graph_.n_nodes), self.labels_.nodes)
        return uncertainty.most_uncertain(self.label_distributions_, n, among=unlabeled)

    def next_queries(
        self, n: int = 1, *, strategy: str = "loss", candidates: ArrayLike | None = None
    ) -> NDArray[np.int64]:
        """The unlabeled rows of `fit` to ask a person about, best first; see `queries.next_queries`."""
        check_is_fitted(self)
        known: dict[str, Any] = {
            "probability": self.label_distributions_,
            "spectrum": self.spectrum_,
            "seed": self._seen.seed,
        }
        return queries.next_queries(self.posterior_, n, strategy=strategy, candidates=candidates, **known)

    def expected_gain(self, n: int = 1) -> queries.ExpectedGain:
        """The share of rows expected to be wrong now and after n more answers, and in words whether to go on."""
        check_is_fitted(self)
        return queries.expected_gain(
            self.posterior_, n, probability=self.label_distributions_, seed=self._seen.seed
        )

    def relearn(self) -> GraphClassifier:
        """Learn the hyper-parameters again from all labels given since; the graph and its spectrum stay.

        It takes as long as `fit` without building the graph. To keep answering meanwhile, relearn a copy (`copy.copy`),
        then give it the labels that arrived in the meantime by `partial_fit_labels`.
        """
        check_is_fitted(self)
        return self._infer(self.labels_)

    def suspicious_labels(self, n: int | None = None) -> SuspiciousLabels:
        """The given labels, most suspicious first: ``1 - P(the given class | all other labels)``; see `SuspiciousLabels`."""
        check_is_fitted(self)
        return suspicious_labels(self.posterior_, n=n)

    def write_proba(self, path: Any, X: Any = None, *, force: bool = False) -> Any:
        """Write the probabilities of every row, a block at a time, continuing where an earlier call was stopped.

        Args:
            path: a folder for Parquet files or, if its name ends in ".zarr", a Zarr array; it is returned.
            X: new rows, in memory or in a store, as `tall.tall` takes them; by default the rows of `fit`.
            force: replace what was written there for another fit or other rows.
        """
        check_is_fitted(self)
        return answers.write(self, path, X, force=force)

    def report(
        self,
        path: Any,
        *,
        X: Any = None,
        names: Any = None,
        columns: Any = None,
        truth: Any = None,
        title: str | None = None,
        force: bool = False,
    ) -> Any:
        """Write a page with a map, the rows worth checking and what can be trusted; returns its path.

        Args:
            path: the file to write, such as "report.html".
            X: the rows of `fit`, to show their values: those that went into it, or a data frame from before a pipeline,
                with text too.
            names: of the rows.
            columns: names of the columns of X.
            truth: the true classes, where known, by which the probabilities are then judged.
            title: of the page.
            force: replace an existing file.
        """
        check_is_fitted(self)
        from graphuq.app.report import write_report

        return write_report(self, path, X=X, names=names, columns=columns, truth=truth, title=title, force=force)

    def self_check(self) -> SelfCheck:
        """Whether probabilities are too sure, too timid or about right, judged by leaving out each label."""
        check_is_fitted(self)
        return self_check(self.posterior_)

    @property
    def graph_(self) -> graphs.Graph | graphs.LowRankGraph:
        """The similarity graph."""
        return self._seen.graph

    @property
    def spectrum_(self) -> Spectrum:
        """Its eigenpairs; for a large graph, those that carry weight."""
        return self._seen.spectrum

    @property
    def stages_(self) -> dict[str, float]:
        """The seconds that each part of `fit` took."""
        return self._seen.seconds

    @property
    def label_distributions_(self) -> Array:
        """The probability of each class at every row of `fit`; read-only."""
        check_is_fitted(self)
        if self._distributions is None and self._seen.store is not None:
            self._distributions, self._errors = answers.in_memory(self)
        elif self._distributions is None:
            self._distributions, self._errors, self._kept = refreshed(self.posterior_, self._kept)
            if self._seen.has_features:
                self._distributions = average_equal(self._distributions, self._seen.fingerprints)
                self._errors = average_equal(self._errors, self._seen.fingerprints)
        for each in (self._distributions, self._errors):  # predict answers from them, and a copy forgets
            each.setflags(write=False)
        return self._distributions

    @property
    def label_errors_(self) -> Array:
        """The Monte-Carlo errors of these probabilities: 0 where nothing was drawn."""
        _ = self.label_distributions_
        return self._errors

    @property
    def transduction_(self) -> NDArray[Any]:
        """The class of every row of `fit`."""
        found = self.label_distributions_
        return self.classes_[uncertainty.most_probable(found)]

    @property
    def n_iter_(self) -> int:
        """Steps of each chain, or sweeps of expectation propagation."""
        check_is_fitted(self)
        first = self.posterior_.components[0]
        return first.n_draws if isinstance(first, Draws) else first.fit.n_sweeps

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row, whether from `fit` or new."""
        found = self.predict_proba(X)
        return self.classes_[uncertainty.most_probable(found)]

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, shape (n_rows, n_classes), columns as in `classes_`."""
        refuse_wrappers()
        return answers.of_store(self, X) if is_store(X) else answers.at(self, *self.locate(X)).probability

    def uncertainty(self, X: Any) -> Array:
        """The variance of the label (3.2), from the probabilities of the classes: 0 is sure; 1 is a coin toss."""
        return uncertainty.label_variance(self.predict_proba(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of rows classified correctly, among those whose class is given; a class that `fit` did not see counts."""
        check_is_fitted(self)
        check_consistent_length(weights_of(self, X), y, sample_weight)
        truth = read_labels(y, classes=self.classes_, others=True)
        if not truth.nodes.size:
            raise ValueError("No row of y has a class to compare with.")
        right = uncertainty.most_probable(self.predict_proba(X))[truth.nodes] == truth.y
        weights = None
        if sample_weight is not None:
            weights = np.ravel(expect_numbers(sample_weight, "sample_weight"))[truth.nodes]
            if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
                raise ValueError("sample_weight must be finite numbers, 0 or above and not all 0.")
        return float(np.average(right, weights=weights))

    def locate(self, X: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_], NewRows | None]:
        """The row of `fit` that each row of X is (-1 if none), which are new, and these as `posterior_` takes them.

        A row of features that was in `fit` is matched to its node. Weights are matched only if they are all rows of
        `fit` in order.
        """
        check_is_fitted(self)
        X = read_features(self, weights_of(self, X), reset=False)
        nodes = self._seen.nodes(X, labeled=self.labels_.nodes)
        new = nodes < 0
        return nodes, new, self._seen.place(X[new], learned=self._learned) if new.any() else None

    def _infer(self, labels: Labels) -> GraphClassifier:
        """The prior, made or learned, and the posterior."""
        with stages_told(self.verbose) as tell:
            tell(f"posterior, from {len(labels.nodes):,} labels of {labels.n_classes} classes")
            found = infer(self, self._seen, labels)
        self.classes_, self._seen, self._learned = labels.classes, found.seen, self.prior == "learned"
        self.hyperparameters_, self.hyperparameter_spread_ = found.hyperparameters, found.spread
        return self._believe(labels, found.posterior)

    def _believe(self, labels: Labels, posterior: AnyPosterior) -> GraphClassifier:
        """All answers come from this posterior."""
        self.labels_, self.posterior_, self._distributions = labels, posterior, None
        return self

    def __sklearn_clone__(self) -> GraphClassifier:
        refuse_wrappers()
        return super().__sklearn_clone__()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "posterior_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.graph == "precomputed"
        tags.input_tags.sparse = True
        return tags
