"""Rows of features and a few labels in; class probabilities for all these rows and for new ones out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from graphuq import graph as graphs
from graphuq import queries, uncertainty
from graphuq._progress import stages_told
from graphuq.classes import Labels, read_labels, relabel, weighted
from graphuq.estimator import answers
from graphuq.estimator.beliefs import drawn, infer, model_of, with_labels, with_shares
from graphuq.estimator.rows import read_features, warn_of_contradictions, warn_of_order, weights_of
from graphuq.estimator.seen import Seen, read_rows, remember
from graphuq.estimator.settings import check_settings, known_shares, refuse_changed, refuse_unused
from graphuq.estimator.wrappers import refuse_wrappers
from graphuq.new_rows import NewRows
from graphuq.posterior import Draws
from graphuq.posterior.kept import Kept
from graphuq.posterior.left_out import SelfCheck, SuspiciousLabels, self_check, suspicious_labels
from graphuq.posterior.mixture import AnyPosterior
from graphuq.spectrum.result import Spectrum
from graphuq.stages import peak_gigabytes, timed
from graphuq.tall import Tall, is_store

Array = NDArray[np.float64]


class GraphClassifier(ClassifierMixin, BaseEstimator):
    """Classify all rows of a table from a few labels, with class probabilities for every row.

    A similarity graph of the rows defines a Gaussian prior on functions that vary little between similar rows;
    conditioning on the labels gives a posterior. Works for any number of classes.

    Unlabeled rows are part of the data: pass all rows to `fit`, with y = -1, NaN or None where the class is
    unknown (for text also ""). No class can be called -1.

    `fit` raises an error if a parameter is set that the other choices leave unused, such as `tau` without
    prior="matern". To cross-validate, use `LabeledKFold` and `LabeledScorer`.

    Args:
        graph: similarity measure: "knn" (nearest neighbors, for any number of rows), "self_tuning" or "gaussian"
            (all pairs), "nystrom" (all pairs, approximated with 500 landmarks), "cosine" (all pairs, nonnegative
            features), or "precomputed". With "precomputed", X in `fit` is the weight matrix between rows, or a
            `Graph`; X in `predict` holds the weights between new rows and the rows of `fit`, or is the full matrix
            of `fit` again to predict for its rows. Alternatively a function of X that returns a graph or a weight
            matrix, such as ``graph.knn(n_neighbors=20)``.
        n_neighbors: number of neighbors of each row in "knn", or that set its local scale in "self_tuning"; capped
            at the number of other rows.
        width: length scale of "gaussian" and "nystrom": the distance at which rows still count as similar.
        n_components: project the features onto this many principal components first. The default for sparse X,
            such as word counts, is 300, except for "cosine", which needs no dense copy.
        scale: units in which the graph compares features: "robust" centers each at its median, compresses it and
            scales it to standard deviation 1 (see `graph.units`); "none" leaves features unchanged; "auto", the
            default, selects "robust" for "knn" and "self_tuning" if the widest feature has more than ten times the
            range of others or a feature has far outliers. Of 20 or more sparse features, such as word counts, it
            compares directions instead: rows are scaled to length 1. The feature term of a learned prior always uses
            robust units.
        prior: "learned" (a Matern prior on the graph plus a function of the features with a linear and a nonlinear
            ("bent") part, with hyper-parameters and label noise learned from the labels), "matern" with the given
            `tau` and `alpha`, or the paper's "approximate", "project" or "full". Alternatively a function of a
            spectrum that returns a prior, such as ``prior.matern(tau=0.1, alpha=2)``.
        n_modes: number of graph eigenvectors to use; a small graph may have fewer. "full" always uses all.
        tau: inverse length scale of "matern".
        alpha: smoothness of "matern".
        model: label likelihood given the function: "probit", "level_set" or "ginzburg_landau". Alternatively a
            model without labels, such as ``models.Probit(gamma=0.2)``, or a custom model class.
        gamma: standard deviation of the label noise. None learns it or, where nothing is learned, uses the model's
            default (0.1, for Ginzburg-Landau 0.6). If gamma is given for probit, the graph term of a learned prior
            has standard deviation 1; otherwise the prior is in units of the noise.
        epsilon: width of the wells of "ginzburg_landau".
        class_shares: how frequent each class is among all rows, if that is known from elsewhere than the labels, whose
            frequencies may differ: a dict from class to share, or "equal". A mere guess does harm.
        inference: "ep" uses expectation propagation, "sample" makes `n_steps` draws with `sampler`. "auto" uses
            expectation propagation for a learned prior, averaged over hyper-parameters; for any other prior it
            draws until R-hat is below 1.01 with 400 effective draws, for at most 20 times `n_steps` or
            `time_limit`.
        sampler: MCMC sampler, such as `PCN()`; by default the model's own.
        n_steps: draws per chain.
        n_chains: number of independent chains.
        time_limit: seconds after which "auto" stops drawing, with a warning.
        random_state: seed of draws, query candidates, landmarks and the approximate neighbor search. The same seed
            gives the same result, unless `time_limit` ends the drawing.
        verbose: whether to report the stages of `fit` on standard error, with progress bars in a terminal. False
            reports nothing; None, the default, reports stages that take over a second in a terminal or a notebook.

    Attributes:
        classes_: the classes, in order.
        transduction_: predicted class of every row of `fit`.
        label_distributions_: class probabilities at these rows, shape (n_rows, n_classes); columns: `classes_`.
        label_errors_: Monte Carlo standard errors of these probabilities.
        posterior_: the `Posterior`: `Draws`, a `GaussianPosterior` or a `Mixture`.
        hyperparameters_: gamma, tau, alpha, graph, linear, bent, constant, mistakes, epsilon, where they apply.
            gamma is the value given or, for a learned prior, 1, the unit of graph, linear and bent.
        hyperparameter_spread_: multiplicative uncertainty (posterior standard deviation of the log, exponentiated)
            of each learned hyper-parameter.
        graph_, spectrum_: the similarity graph and its eigenpairs; of a large graph, only those with weight.
        stages_, seconds_, peak_gigabytes_: seconds taken by each stage of `fit` and by all of it, and peak memory of this
            process.
        labels_: the labeled rows and their classes.
        n_iter_: steps per chain, or sweeps of expectation propagation.
        n_features_in_, feature_names_in_: number and names of the columns of X.
    """

    posterior_: AnyPosterior
    _seen: Seen
    _cached: tuple[AnyPosterior, Array, Array] | None  # answers at all rows, and the posterior that they are of
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
        class_shares: Any = None,
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
        self.class_shares = class_shares
        self.inference = inference
        self.sampler = sampler
        self.n_steps = n_steps
        self.n_chains = n_chains
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> GraphClassifier:
        """Build the graph of all rows and the posterior given the labeled ones.

        Args:
            X: features, shape (n_rows, n_features), or weights (n_rows, n_rows) if precomputed. Features in a
                store (a Zarr or Dask array, a large memory-mapped file, a `tall.tall`) are read
                block by block, on the cluster of an active Dask client or in this process; see `write_proba`.
            y: class of each labeled row; -1, NaN or None for the others, see `read_labels`.
            sample_weight: how precise the label of each row is, shape (n_rows,); only those of labeled rows matter. A
                label of weight w has the variance of the label noise divided by w: 1 is usual, a quarter doubles
                its standard deviation, and 0 leaves the label out. For probit only. Labels that are added later
                have the weight 1.
        """
        check_settings(self)
        refuse_unused(self)
        self.__dict__.pop("posterior_", None)  # after a failed fit the estimator is unfitted
        if y is None:
            raise ValueError("GraphClassifier requires y to be passed, but the target y is None.")
        warn_of_order(X, y)
        X = read_rows(self, weights_of(self, X))
        check_consistent_length(X, y)
        labels = weighted(read_labels(y), sample_weight, X.shape[0])
        model_of(self, labels)  # fail early if the model does not support the settings
        known_shares(self, labels.classes)
        began = time.perf_counter()
        with stages_told(self.verbose) as tell:
            self._seen = Seen.of(self, remember(X, labels.nodes), tell)
            warn_of_contradictions(self._seen.marks(labels.nodes), labels)
            self._infer(labels)
            if not isinstance(X, Tall):
                with timed(self.stages_, "answers"):
                    _ = self.label_distributions_  # compute now, while progress is reported
        self.seconds_, self.peak_gigabytes_ = time.perf_counter() - began, peak_gigabytes()
        return self

    def partial_fit_labels(self, nodes: ArrayLike, y: Any) -> GraphClassifier:
        """Add, change or remove labels of rows of `fit`, keeping the graph, its spectrum and the hyper-parameters.

        For models that support expectation propagation this takes milliseconds on a graph of any size. All later
        predictions, also at new rows, then use expectation propagation until `draw` is called. The weights of a
        mixture over hyper-parameters are updated with the evidence of the new labels. For other models, and if
        expectation propagation does not converge, the posterior is sampled right away.

        A new label replaces the old one of its row; y = -1, NaN or None removes it. To keep this quick, only the
        heaviest components of a mixture are updated. After many calls the answers therefore depend on their order,
        until `relearn`, or the labels of `fit`, bring all components back.

        Args:
            nodes, y: row numbers, from 0, and their classes.
        """
        check_is_fitted(self)
        labels = relabel(self.labels_, nodes, y, n_rows=self.graph_.n_nodes)
        warn_of_contradictions(self._seen.marks(labels.nodes), labels)
        with stages_told(self.verbose):
            return self._believe(labels, with_labels(self, self._seen.seed, self.posterior_, labels))

    def draw(self) -> GraphClassifier:
        """Sample the posterior (a mixture's heaviest components, its temperature kept); predictions then use the draws."""
        check_is_fitted(self)
        with stages_told(self.verbose):
            return self._believe(self.labels_, drawn(self, self._seen.seed, self.posterior_))

    def most_uncertain(self, n: int = 10) -> NDArray[np.int64]:
        """The unlabeled rows of `fit` whose class is least certain, least certain first."""
        check_is_fitted(self)
        unlabeled = np.setdiff1d(np.arange(self.graph_.n_nodes), self.labels_.nodes)
        return uncertainty.most_uncertain(self.label_distributions_, n, among=unlabeled)

    def next_queries(
        self, n: int = 1, *, strategy: str = "loss", candidates: ArrayLike | None = None
    ) -> NDArray[np.int64]:
        """The unlabeled rows of `fit` most worth labeling, best first; see `queries.next_queries`."""
        check_is_fitted(self)
        return queries.next_queries(
            self.posterior_,
            n,
            strategy=strategy,
            candidates=candidates,
            probability=lambda: self.label_distributions_,
            spectrum=self.spectrum_,
            seed=self._seen.seed,
        )

    def expected_gain(self, n: int = 1) -> queries.ExpectedGain:
        """Expected share of wrong rows now and after n labels, with advice; far too high for the paper's priors."""
        check_is_fitted(self)
        p = self.label_distributions_
        return queries.expected_gain(self.posterior_, n, probability=p, seed=self._seen.seed)

    def relearn(self) -> GraphClassifier:
        """Relearn the hyper-parameters from all current labels, keeping the graph and its spectrum.

        To keep predicting meanwhile, relearn a copy (`copy.copy`) and then pass it new labels. Parameters set since
        `fit` are used, and raise an error if the graph or its spectrum depends on them.
        """
        check_is_fitted(self)
        check_settings(self)
        refuse_unused(self)
        refuse_changed(self)
        known_shares(self, self.classes_)
        return self._infer(self.labels_)

    def suspicious_labels(self, n: int | None = None) -> SuspiciousLabels:
        """Rank the labels by ``1 - P(given class | all other labels)``, largest first; see `SuspiciousLabels`."""
        check_is_fitted(self)
        return suspicious_labels(self.posterior_, n=n)

    def write_proba(self, path: Any, X: Any = None, *, force: bool = False) -> Path:
        """Write the class probabilities of every row block by block, resuming an interrupted earlier call.

        With features in memory these are `label_distributions_`, where equal rows have the average of their
        probabilities. In a store, whose rows are not compared, each row has its own.

        Args:
            path: folder for Parquet files or, if its name ends in ".zarr", a Zarr array; it is returned.
            X: new rows, in memory or in a store, as `tall.tall` accepts them; by default the rows of `fit`.
            force: replace results written there for another fit or other rows.
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
    ) -> Path:
        """Write an HTML report with a map, the rows worth checking and how reliable it all is; return its path.

        Args:
            path: the file to write, such as "report.html".
            X: the rows of `fit`, to show their values: the matrix passed to `fit`, or the data frame it was
                derived from, which may hold text.
            names: row names; by default the index of a data frame X, else numbers from 0.
            columns: names of the columns of X.
            truth: true classes, where known, to evaluate the probabilities.
            title: title of the page.
            force: replace an existing file.
        """
        check_is_fitted(self)
        from graphuq.app.report import write_report

        return write_report(self, path, X=X, names=names, columns=columns, truth=truth, title=title, force=force)

    def self_check(self) -> SelfCheck:
        """Check by leave-one-out over the labels whether probabilities are over- or underconfident."""
        check_is_fitted(self)
        return self_check(self.posterior_)

    @property
    def graph_(self) -> graphs.Graph | graphs.LowRankGraph:
        """The similarity graph."""
        return self._seen.graph

    @property
    def spectrum_(self) -> Spectrum:
        """Eigenpairs of the graph Laplacian; for a large graph, only those that carry weight."""
        return self._seen.spectrum

    @property
    def stages_(self) -> dict[str, float]:
        """Seconds taken by each stage of `fit`."""
        return self._seen.seconds

    @property
    def label_distributions_(self) -> Array:
        """Class probabilities at every row of `fit`, shape (n_rows, n_classes); read-only."""
        return answers.cached(self)[0]

    @property
    def label_errors_(self) -> Array:
        """Monte Carlo standard errors of `label_distributions_`: 0 where nothing was sampled."""
        return answers.cached(self)[1]

    @property
    def transduction_(self) -> NDArray[Any]:
        """Predicted class of every row of `fit`."""
        probability = self.label_distributions_  # first: it checks that the classifier is fitted
        return self.classes_[uncertainty.most_probable(probability)]

    @property
    def n_iter_(self) -> int:
        """Steps per chain, or sweeps of expectation propagation."""
        check_is_fitted(self)
        first = self.posterior_.components[0]
        return first.n_draws if isinstance(first, Draws) else first.fit.n_sweeps

    def predict(self, X: Any) -> NDArray[Any]:
        """Most probable class of each row, whether from `fit` or new."""
        probability = self.predict_proba(X)  # first: it checks that the classifier is fitted
        return self.classes_[uncertainty.most_probable(probability)]

    def predict_proba(self, X: Any) -> Array:
        """Class probabilities, shape (n_rows, n_classes), columns as in `classes_`."""
        refuse_wrappers()
        return answers.of_store(self, X) if is_store(X) else answers.at(self, *self.locate(X)).probability

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of `predict_proba`; all finite, since no probability is 0."""
        return np.asarray(np.log(self.predict_proba(X)))

    def uncertainty(self, X: Any) -> Array:
        """Label variance (3.2) computed from the class probabilities: 0 is certain, 1 a coin toss."""
        return uncertainty.label_variance(self.predict_proba(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy over the rows whose class is given; rows of a class unseen in `fit` count as errors."""
        check_is_fitted(self)
        return answers.accuracy(self, X, y, sample_weight)

    def locate(self, X: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_], NewRows | None]:
        """Match the rows of X to those of `fit`.

        Returns the matching row of `fit` for each row of X (-1 if none), a mask of the new rows, and the new rows
        in the form that `posterior_` takes. Rows of features are matched one by one; weights are matched only if
        they are all rows of `fit` in order.
        """
        check_is_fitted(self)
        X = read_features(self, weights_of(self, X), reset=False)
        nodes = self._seen.nodes(X, labeled=self.labels_.nodes)
        new = nodes < 0
        return nodes, new, self._seen.place(X[new]) if new.any() else None

    def _infer(self, labels: Labels) -> GraphClassifier:
        """Build or learn the prior, and compute the posterior."""
        with stages_told(self.verbose) as tell:
            tell(f"posterior, from {len(labels.nodes):,} labels of {labels.n_classes} classes")
            inferred = infer(self, self._seen, labels)
        self.classes_, self._seen = labels.classes, inferred.seen
        self.hyperparameters_, self.hyperparameter_spread_ = inferred.hyperparameters, inferred.spread
        return self._believe(labels, inferred.posterior)

    def _believe(self, labels: Labels, posterior: AnyPosterior) -> GraphClassifier:
        """Set the posterior that all predictions use, adjusted to known shares, and clear cached probabilities."""
        posterior = with_shares(self, posterior, labels.classes)
        self.labels_, self.posterior_, self._cached = labels, posterior, None
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
