"""Rows of features and a few classes in; the class of every row, and of new ones, and how sure it is out."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data
from tqdm.auto import tqdm

from graphuq import graph as graphs
from graphuq import laplacian, spectrum
from graphuq import prior as priors
from graphuq.classes import Labels, read_labels, relabel
from graphuq.hyperprior import Hyperprior, LogNormal
from graphuq.inference.approximate import GaussianPosterior
from graphuq.inference.auto import sample_enough
from graphuq.inference.extended import extend_whitening
from graphuq.inference.run import sample
from graphuq.inference.whiten import Whitening
from graphuq.learning import learn, warn_of_unlabeled_components
from graphuq.models import LevelSet, Model, Probit
from graphuq.posterior import Posterior
from graphuq.prior import GaussianPrior
from graphuq.rows import fingerprints, first_rows, warn_of_contradictions
from graphuq.settings import MODELS, check_settings
from graphuq.spectrum.result import Spectrum

Array = NDArray[np.float64]

# A new row has at least the prior variance that all but this share of the rows of fit have.
LEAST_QUANTILE = 0.05


class GraphClassifier(ClassifierMixin, BaseEstimator):
    """Classify every row from a few labeled ones, and say how sure each answer is.

    A similarity graph of the rows gives a Gaussian prior on functions of the rows that vary little
    between similar ones; the labels turn it into a posterior, which is sampled. Two classes.

    Unlabeled rows are part of the data: pass all rows to `fit`, with y = -1, NaN or None where the class
    is not known (for text also ""). No class can be called -1.

    Args:
        affinity: how similar rows are: "knn" (nearest neighbors, for any size), "self_tuning" or
            "gaussian" (all pairs), "cosine" (all pairs, nonnegative features), or "precomputed": X is then
            the matrix of weights between rows, or a `Graph`, and in `predict` of new rows to the rows of `fit`.
        n_neighbors: neighbors of a row in the graph, or that set its scale; at most all other rows.
        width: the distance at which rows still count as similar, for "gaussian".
        n_components: project the features to so many principal components first; needed for sparse X.
        prior: "learned" (a matern prior whose tau, alpha, and the labels' gamma, are fitted to the labels),
            "matern" with the `tau` and `alpha` given, or the paper's "approximate", "project" or "full".
        n_modes: eigenvectors of the graph to use; all of a small graph's. "full" always uses all.
        tau: inverse length scale of "matern".
        alpha: smoothness of "matern".
        model: how labels follow from the function: "probit", "level_set" or "ginzburg_landau".
        gamma: standard deviation of the noise of labels; None to learn it, or, where nothing is
            learned, for the model's own (0.1, for Ginzburg-Landau 0.6).
        epsilon: width of the wells of "ginzburg_landau".
        inference: "auto" draws until R-hat is below 1.01 with 400 effective draws: first by proposals from
            expectation propagation, which take milliseconds; if those fall short, by the model's own sampler,
            for up to 20 times `n_steps` or `time_limit`. "sample" runs that sampler for `n_steps`.
        n_steps: draws of each chain.
        n_chains: independent chains.
        time_limit: seconds after which "auto" stops drawing, and says so.
        random_state: the same number gives the same answer.
        verbose: show progress on standard error.

    Attributes:
        classes_: the two classes, in order.
        transduction_: the class of every row of `fit`.
        label_distributions_: their probabilities, shape (n_rows, 2), columns as in `classes_`.
        posterior_: the `Posterior`, in which the label +1 is `classes_[1]`; after `partial_fit_labels` by `draw`.
        hyperparameters_: gamma, tau, alpha, constant, epsilon, as far as they apply, see `prior.matern`.
        hyperparameter_spread_: of those that were learned, the factor within which they are known.
        graph_, spectrum_: the similarity graph and its eigenpairs.
        labels_: the labeled rows and their labels.
        n_iter_: steps of each chain.
        n_features_in_, feature_names_in_: of X.
    """

    _beliefs: Posterior | GaussianPosterior  # what the answers come from
    _distributions: Array | None

    def __init__(
        self,
        *,
        affinity: str = "knn",
        n_neighbors: int = 10,
        width: float | None = None,
        n_components: int | None = None,
        prior: str = "learned",
        n_modes: int = 300,
        tau: float = 0.1,
        alpha: float = 2.0,
        model: str = "probit",
        gamma: float | None = None,
        epsilon: float = 10.0,
        inference: str = "auto",
        n_steps: int = 500,
        n_chains: int = 8,
        time_limit: float = 60.0,
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool = False,
    ) -> None:
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.width = width
        self.n_components = n_components
        self.prior = prior
        self.n_modes = n_modes
        self.tau = tau
        self.alpha = alpha
        self.model = model
        self.gamma = gamma
        self.epsilon = epsilon
        self.inference = inference
        self.n_steps = n_steps
        self.n_chains = n_chains
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> GraphClassifier:
        """Build the graph of all rows and the posterior given the labeled ones.

        Args:
            X: features, shape (n_rows, n_features), or weights (n_rows, n_rows) if precomputed.
            y: a class for each labeled row; -1, NaN or None for the others, see `read_labels`.
        """
        check_settings(self)
        self.__dict__.pop("_beliefs", None)  # a fit that fails leaves nothing that answers
        if self.affinity == "precomputed" and isinstance(X, graphs.Graph):
            X = X.weights
        if y is None:
            raise ValueError("GraphClassifier requires y to be passed, but the target y is None.")
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, ensure_min_samples=2)
        check_consistent_length(X, y)
        labels = read_labels(y)
        began = time.perf_counter()
        with tqdm(total=3, desc="graph", disable=not self.verbose, unit="stage") as stages:
            self.graph_ = self._graph(X)
            self._fingerprints = fingerprints(X)
            self._rows = first_rows(self._fingerprints)
            warn_of_contradictions(self._fingerprints, labels)
            stages.update()
            stages.set_description("spectrum")
            self.spectrum_ = self._spectrum()
            stages.update()
            stages.set_description("posterior")
            self.classes_ = labels.classes
            self._seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
            self._infer(labels)
            stages.update()
        self.seconds_ = time.perf_counter() - began
        return self

    def partial_fit_labels(self, nodes: ArrayLike, y: Any) -> GraphClassifier:
        """Take in the classes of some more rows of `fit`; the graph, its spectrum and hyper-parameters stay.

        With `inference="auto"` this takes milliseconds on a graph of any size: the answers, of new rows too, are
        those of expectation propagation from here on, until `draw` replaces them by draws. Ginzburg-Landau, and
        labels that expectation propagation cannot reconcile, are sampled at once.

        A row that was labeled before is labeled anew, or, where y is -1, NaN or None, not at all.

        Args:
            nodes: row numbers, from 0.
            y: their classes.
        """
        check_is_fitted(self)
        labels = relabel(self.labels_, nodes, y, n_rows=self.graph_.n_nodes)
        warn_of_contradictions(self._fingerprints, labels)
        prior, model = self._beliefs.whitening.prior, replace(self._likelihood, nodes=labels.nodes, y=labels.y)
        if self.inference == "auto" and isinstance(model, Probit | LevelSet):
            quick = GaussianPosterior.of(prior, model)
            if quick.result.converged:
                return self._believe(labels, model, quick)
        return self._believe(labels, model, self._sample(prior, model))

    def draw(self) -> GraphClassifier:
        """Sample the posterior of the labels taken in by `partial_fit_labels`: answers then come from the draws."""
        check_is_fitted(self)
        posterior = self._sample(self._beliefs.whitening.prior, self._likelihood)
        return self._believe(self.labels_, self._likelihood, posterior)

    def most_uncertain(self, n: int = 10) -> NDArray[np.int64]:
        """The rows of `fit` without a label whose class is least sure, least sure first."""
        check_is_fitted(self)
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}.")
        rows = np.setdiff1d(np.arange(self.graph_.n_nodes), self.labels_.nodes)
        distance = np.abs(self.label_distributions_[rows, 1] - 0.5)
        return rows[np.argsort(distance, kind="stable")[:n]]

    @property
    def posterior_(self) -> Posterior:
        """The draws."""
        check_is_fitted(self)
        if isinstance(self._beliefs, Posterior):
            return self._beliefs
        raise AttributeError("New labels were taken in without draws: call draw() to make them.")

    @property
    def label_distributions_(self) -> Array:
        """The probabilities of the classes at every row of `fit`."""
        check_is_fitted(self)
        if self._distributions is None:
            self._distributions = _both(self._beliefs.probability())
        return self._distributions

    @property
    def transduction_(self) -> NDArray[Any]:
        """The class of every row of `fit`."""
        likelier = self.label_distributions_.argmax(axis=1)
        return self.classes_[likelier]

    @property
    def n_iter_(self) -> int:
        """Steps of each chain."""
        return self.posterior_.n_draws

    def predict(self, X: Any) -> NDArray[Any]:
        """The more probable class of each row, of `fit` or new."""
        likelier = self.predict_proba(X).argmax(axis=1)
        return self.classes_[likelier]

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, shape (n_rows, 2), columns as in `classes_`."""
        whitening, nodes = self._locate(X)
        return _both(replace(self._beliefs, whitening=whitening).probability(nodes))

    def uncertainty(self, X: Any) -> Array:
        """The posterior variance of the label (3.2): 0 is sure; 1 is a coin toss."""
        whitening, nodes = self._locate(X)
        return replace(self._beliefs, whitening=whitening).label_variance(nodes)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of rows classified right, among those whose class is given."""
        check_is_fitted(self)
        check_consistent_length(X, y, sample_weight)
        truth = read_labels(y, classes=self.classes_)
        if not truth.nodes.size:
            raise ValueError("No row of y has a class to compare with.")
        right = np.where(self.predict_proba(X)[:, 1] > 0.5, 1.0, -1.0)[truth.nodes] == truth.y
        weights = None if sample_weight is None else np.asarray(sample_weight)[truth.nodes]
        return float(np.average(right, weights=weights))

    def posterior_at(self, X: Any) -> tuple[Posterior, NDArray[np.int64]]:
        """The posterior with rows of X as nodes, and which of its nodes they are.

        A row that was in `fit` is the node it was there. Any other is a new node, where the eigenvectors
        take the values that its weights to the rows of `fit` give them (`spectrum.extend`).
        """
        whitening, nodes = self._locate(X)
        return replace(self.posterior_, whitening=whitening), nodes

    def _locate(self, X: Any) -> tuple[Whitening, NDArray[np.int64]]:
        """The nodes that rows of X are, new ones behind those of `fit`, and what z says about them all."""
        check_is_fitted(self)
        whitening = self._beliefs.whitening
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        nodes = np.array([self._rows.get(row, -1) for row in fingerprints(X)], dtype=np.int64)
        new = np.flatnonzero(nodes < 0)
        if not new.size:
            return whitening, nodes
        n_modes = whitening.prior.n_modes
        given = isinstance(self.graph_, graphs.Graph) and self.graph_.features is None
        extend = (
            spectrum.extend_weights(self.spectrum_, X[new])
            if given
            else spectrum.extend(self.spectrum_, self.graph_, X[new])
        )
        nodes[new] = self.graph_.n_nodes + np.arange(new.size)
        believed = spectrum.believed_modes(self.spectrum_, self.graph_)[:n_modes]
        return extend_whitening(whitening, extend[:, :n_modes], believed, LEAST_QUANTILE), nodes

    def _graph(self, X: Any) -> graphs.Graph | graphs.LowRankGraph:
        if self.affinity == "precomputed":
            return graphs.precomputed(X)
        if self.affinity == "cosine":
            return graphs.cosine(X)
        if self.affinity == "gaussian":
            assert self.width is not None  # checked
            return graphs.gaussian(X, tau=self.width, n_components=self.n_components)
        n_neighbors = min(self.n_neighbors, X.shape[0] - 1)
        build = graphs.knn if self.affinity == "knn" else graphs.self_tuning
        return build(X, n_neighbors=n_neighbors, n_components=self.n_components)

    def _spectrum(self) -> Spectrum:
        if isinstance(self.graph_, graphs.LowRankGraph):
            return spectrum.low_rank(self.graph_)
        L = laplacian.normalized(self.graph_)
        if self.prior == "full":
            return spectrum.dense(L)
        return spectrum.leading(L, n_modes=min(self.n_modes, self.graph_.n_nodes), progress=self.verbose)

    def _infer(self, labels: Labels) -> None:
        """The prior, made or learned, and the posterior."""
        prior, model = self._prior(labels), self._model(labels)
        self._believe(labels, model, self._sample(prior, model))
        _ = self.label_distributions_  # here, where there is a progress bar, and not when first asked for

    def _believe(self, labels: Labels, model: Any, beliefs: Posterior | GaussianPosterior) -> GraphClassifier:
        """All answers come from these beliefs."""
        self.labels_ = labels
        self._likelihood = model
        self._rows |= {self._fingerprints[i]: int(i) for i in labels.nodes[::-1]}  # of equal rows a labeled one
        self._beliefs = beliefs
        self._distributions = None
        return self

    def _prior(self, labels: Labels) -> GaussianPrior:
        """The prior, and with it the hyper-parameters."""
        self.hyperparameter_spread_: dict[str, float] = {}
        gamma = MODELS[self.model].gamma if self.gamma is None else self.gamma
        self.hyperparameters_ = {"gamma": float(gamma)}
        if self.model == "ginzburg_landau":
            self.hyperparameters_["epsilon"] = float(self.epsilon)
        if self.prior == "learned":
            return self._learn(labels)
        if self.prior == "matern":
            self.hyperparameters_ |= {"tau": float(self.tau), "alpha": float(self.alpha)}
            warn_of_unlabeled_components(self.spectrum_, labels.nodes, stacklevel=5)
            return priors.matern(self.spectrum_, tau=self.tau, alpha=self.alpha)
        return getattr(priors, self.prior)(self.spectrum_)

    def _learn(self, labels: Labels) -> GaussianPrior:
        """The matern prior that the labels speak for.

        Ginzburg-Landau has no evidence to climb: its prior is the one that probit learns, its gamma is kept.
        """
        model = (LevelSet if self.model == "level_set" else Probit)(labels.nodes, labels.y)
        believed = Hyperprior.of(model)
        is_label_model = self.model != "ginzburg_landau"
        if self.gamma is not None and is_label_model:
            believed = replace(believed, gamma=LogNormal(self.gamma, 1.0))
        found = learn(self.spectrum_, model, hyperprior=believed)
        self.spectrum_ = found.spectrum
        spread = {name: float(np.exp(value)) for name, value in found.log_deviations._asdict().items()}
        learned = found.hyperparameters._asdict()
        for name in learned if is_label_model else learned.keys() - {"gamma"}:
            self.hyperparameters_[name] = learned[name]
            if spread[name] > 1:
                self.hyperparameter_spread_[name] = spread[name]
        return found.prior

    def _model(self, labels: Labels) -> Model:
        settings = {
            name: self.hyperparameters_[name] for name in ("gamma", "epsilon") if name in self.hyperparameters_
        }
        return MODELS[self.model](labels.nodes, labels.y, **settings)

    def _sample(self, prior: GaussianPrior, model: Model) -> Posterior:
        run: dict[str, Any] = {"n_chains": self.n_chains, "seed": self._seed, "progress": self.verbose}
        if self.inference == "sample":
            return sample(prior, model, n_steps=self.n_steps, n_warmup=self.n_steps, **run)
        return sample_enough(prior, model, n_steps=self.n_steps, time_limit=self.time_limit, stacklevel=5, **run)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_beliefs")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.pairwise = self.affinity == "precomputed"
        tags.input_tags.sparse = self.affinity == "precomputed" or self.n_components is not None
        return tags


def _both(probability: Array) -> Array:
    """A column for each class."""
    return np.column_stack([1 - probability, probability])
