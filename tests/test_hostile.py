"""Bad input of every kind, one line each: what is given, and the sentence that refuses it. No traceback, no silent answer.

Three tables: what people write in Python, what they type at a shell, and what stands in files; then files that decayed.
"""

import os
import pickle
import re
import shlex
import warnings
from fractions import Fraction
from pathlib import Path  # noqa: F401 - named in the tables
from types import SimpleNamespace  # noqa: F401 - named in the tables

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

import graphuq
from graphuq import (  # noqa: F401 - named in the tables
    GraphClassifier,
    archive,
    baselines,
    calibration,
    datasets,
    graph,
    laplacian,
    models,
    posterior,
    prior,
    queries,
    spectrum,
    uncertainty,
)
from graphuq.app import folder
from graphuq.app.cli import app
from graphuq.app.tables.read import read_table
from graphuq.spectrum.result import Spectrum
from graphuq.tall import tall  # noqa: F401 - named in the tables
from tests.decay import attempt, decayed

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(size=(20, 2)), RNG.normal(size=(20, 2)) + 4])
Y = np.where(np.isin(np.arange(40), (0, 1, 20, 21)), np.arange(40) // 20, -1)
A = graph.gaussian(X, tau=1.0)
L = laplacian.normalized(A)
S = spectrum.dense(L)
MU = prior.matern(S, tau=0.1, alpha=2)
M = models.Probit(np.array([0, 1, 20, 21]), np.array([0, 0, 1, 1]), gamma=0.5)
P = posterior.GaussianPosterior.of(MU, M)
HALF = np.full((3, 2), 0.5)
MASKED = np.ma.array(X, mask=X > 3)
BROKEN = sp.csr_array((np.ones(2), np.array([0, 99]), np.array([0] * 39 + [0, 2])), shape=(40, 2))
STUBBORN = type("Stubborn", (), {"__array__": lambda self, *how, **more: 1 / 0})()
SETTINGS = {"prior": "matern", "inference": "ep", "gamma": 0.5}
C = GraphClassifier(**SETTINGS).fit(X, Y)


def fit(X=X, y=Y, **settings):
    return GraphClassifier(**SETTINGS | settings).fit(X, y)


def own(phi):
    """Sample a model of one's own with this phi."""
    model = type("Own", (models.Model,), {"nodes": M.nodes, "phi": lambda self, u: phi(u)})
    return graphuq.sample(MU, model(), n_steps=20, n_warmup=20, n_chains=2)


NOWHERE = type("Nowhere", (graphuq.PCN,), {"draw": lambda self, state, problem: state.z * np.nan})()
NUMBER = "must be a finite number above 0, got"
PYTHON = [
    # objects of another kind, or in another order
    ("laplacian.normalized(None)", "Weights must be real numbers, got None"),
    ("laplacian.normalized(S)", "Weights must be real numbers, got a Spectrum"),
    ("laplacian.normalized('A')", "Weights must be real numbers, got 'A'"),
    ("laplacian.normalized(X)", "Weights must be a square matrix, got the shape (40, 2)"),
    ("laplacian.normalized(graph.cosine(abs(X)))", "The weights of a low-rank graph are never formed"),
    ("laplacian.unnormalized(L)", "Weights must be real numbers, got a Laplacian"),
    ("laplacian.unnormalized([])", "Weights must be a square matrix"),
    ("laplacian.dirichlet_energy(L, [1.0])", "u must have a finite value for each of 40 nodes"),
    ("spectrum.dense(A)", "L must be a Laplacian, as laplacian.normalized(graph) makes, got a Graph"),
    ("spectrum.dense(None)", "L must be a Laplacian, as laplacian.normalized(graph) makes, got None"),
    ("spectrum.dense(X)", "L must be a Laplacian, as laplacian.normalized(graph) makes, got a ndarray"),
    ("spectrum.dense(S)", "L must be a Laplacian"),
    ("spectrum.dense(L, n_modes=0)", "n_modes must lie between 1 and 40, the nodes of the graph, got 0"),
    ("spectrum.dense(L, n_modes=41)", "n_modes must lie between 1 and 40"),
    ("spectrum.leading(A, n_modes=3)", "L must be a Laplacian"),
    ("spectrum.leading(L, n_modes='3')", "n_modes must be a whole number, got '3'"),
    ("spectrum.leading(L, n_modes=2.5)", "n_modes must be a whole number, got 2.5"),
    ("spectrum.leading(L, n_modes=-1)", "n_modes must lie between 1 and 40"),
    ("spectrum.leading(L, n_modes=None)", "n_modes must be a whole number, got None"),
    ("spectrum.leading(L, n_modes=3, tolerance=2)", "tolerance must lie between 1e-12 and 1e-2"),
    ("spectrum.low_rank(A)", "graph must be a low-rank graph, as graph.cosine(X) makes, got a Graph"),
    ("spectrum.low_rank(None)", "graph must be a low-rank graph, as graph.cosine(X) makes, got None"),
    ("prior.full(A)", "spectrum must be a Spectrum, as spectrum.dense(laplacian) makes, got a Graph"),
    ("prior.full(L)", "spectrum must be a Spectrum, as spectrum.dense(laplacian) makes, got a Laplacian"),
    ("prior.full(None)", "spectrum must be a Spectrum, as spectrum.dense(laplacian) makes, got None"),
    ("prior.full(spectrum.dense(L, n_modes=5))", "needs all 40 eigenpairs and this spectrum has 5"),
    ("prior.project(A, n_modes=3)", "spectrum must be a Spectrum"),
    ("prior.project(S, n_modes=1)", "n_modes must lie between 2 and 40"),
    ("prior.project(S, n_modes=99)", "n_modes must lie between 2 and 40"),
    ("prior.project(S, n_modes='5')", "n_modes must be a whole number, got '5'"),
    ("prior.approximate(L, n_modes=3)", "spectrum must be a Spectrum"),
    ("prior.approximate(S, n_modes=5, lambda_bar=0)", f"lambda_bar {NUMBER} 0"),
    ("prior.approximate(S, n_modes=5, lambda_bar='a')", f"lambda_bar {NUMBER} 'a'"),
    ("prior.matern(A, tau=0.1, alpha=2)", "spectrum must be a Spectrum"),
    ("prior.matern(S, tau=1e-200, alpha=2)", "variances beyond what numbers of 64 bits hold"),
    ("prior.matern(S, tau=np.nan, alpha=2)", f"tau {NUMBER} nan"),
    ("prior.matern(S, tau='a', alpha=2)", f"tau {NUMBER} 'a'"),
    ("prior.matern(S, tau=None, alpha=2)", f"tau {NUMBER} None"),
    ("prior.matern(S, tau=1j, alpha=2)", f"tau {NUMBER} 1j"),
    ("prior.matern(S, tau=-1, alpha=2)", f"tau {NUMBER} -1"),
    ("prior.matern(S, tau=0.1, alpha=0)", f"alpha {NUMBER} 0"),
    ("prior.matern(S, tau=0.1, alpha=np.inf)", f"alpha {NUMBER} inf"),
    ("prior.matern(S, tau=0.1, alpha=2, constant=-1)", "constant must be a finite number, 0 or above, got -1"),
    ("prior.matern(tao=0.1)", "unexpected keyword argument 'tao'"),
    ("graphuq.sample(S, M)", "prior must be a prior, as prior.matern(spectrum) makes, got a Spectrum"),
    ("graphuq.sample(M, MU)", "prior must be a prior, as prior.matern(spectrum) makes, got a Probit"),
    ("graphuq.sample(None, M)", "prior must be a prior, as prior.matern(spectrum) makes, got None"),
    ("graphuq.sample(MU, None)", "model must be a model with labels, such as models.Probit(nodes, y), got None"),
    (
        "graphuq.sample(MU, models.Probit)",
        "model must be a model with labels, such as models.Probit(nodes, y), got",
    ),
    (
        "graphuq.sample(MU, models.Probit())",
        "The model has no labels: give it nodes and y, as in Probit(nodes, y)",
    ),
    ("graphuq.sample(MU, Y)", "model must be a model with labels, such as models.Probit(nodes, y), got a ndarray"),
    ("graphuq.sample(MU, models.Probit([0, 99], [0, 1]))", "Node 99 is not in the graph, whose nodes are 0 to 39"),
    ("graphuq.sample(MU, M, 'pcn')", "sampler takes a sampler such as PCN() or NUTS(), got 'pcn'"),
    ("graphuq.sample(MU, M, graphuq.PCN)", "sampler takes a sampler such as PCN() or NUTS()"),
    ("graphuq.sample(MU, M, stop=60)", "stop takes rules such as EffectiveSize() or TimeLimit(60), got 60"),
    ("graphuq.sample(MU, M, dtype='float16')", "dtype must be 'auto', 'float32' or 'float64'"),
    ("graphuq.sample(MU, M, seed=2**70)", "seed must be a whole number between 0 and 9223372036854775807"),
    ("graphuq.sample(MU, M, seed=-1)", "seed must be a whole number between 0 and"),
    ("graphuq.sample(MU, M, seed='a')", "seed must be a whole number, got 'a'"),
    ("graphuq.sample(MU, M, seed=1.5)", "seed must be a whole number, got 1.5"),
    ("graphuq.sample(MU, M, seed=None)", "seed must be a whole number, got None"),
    ("graphuq.sample(MU, M, n_steps=1.5)", "n_steps must be a whole number, got 1.5"),
    ("graphuq.sample(MU, M, n_steps=0)", "n_steps must be a whole number of at least 1, got 0"),
    ("graphuq.sample(MU, M, n_warmup=-1)", "n_warmup must be a whole number of at least 0, got -1"),
    ("graphuq.sample(MU, M, n_chains='8')", "n_chains must be a whole number, got '8'"),
    ("graphuq.sample(MU, M, thin=0)", "thin must be a whole number of at least 1, got 0"),
    ("graphuq.sample(MU, M, n_steps=10, thin=11)", "thin = 11 would keep none of n_steps = 10"),
    ("graphuq.sample(MU, M, n_steps=9, checkpoint='/')", "/ is not a regular file"),
    ("graphuq.learn(A, M)", "spectrum must be a Spectrum, as spectrum.dense(laplacian) makes, got a Graph"),
    ("graphuq.learn(M, S)", "spectrum must be a Spectrum, as spectrum.dense(laplacian) makes, got a Probit"),
    (
        "graphuq.learn(MU, M)",
        "spectrum must be a Spectrum, as spectrum.dense(laplacian) makes, got a GaussianPrior",
    ),
    ("graphuq.learn(S, None)", "model must be a model with labels"),
    ("graphuq.learn(S, models.GinzburgLandau([0, 20], [0, 1]))", "GinzburgLandau offers no sites"),
    ("graphuq.find_mode(S, M)", "prior must be a prior"),
    ("graphuq.find_mode(M, MU)", "prior must be a prior, as prior.matern(spectrum) makes, got a Probit"),
    ("graphuq.find_mode(MU, None)", "model must be a model with labels"),
    ("graphuq.find_mode(MU, models.LevelSet([0, 20], [0, 1]))", "LevelSet has no mode"),
    ("graphuq.find_mode(MU, M, method='bfgs')", "method must be 'auto', 'newton' or 'gradient_flow'"),
    ("graphuq.find_mode(MU, M, n_steps=0)", "n_steps must be a whole number of at least 1"),
    (
        "graphuq.find_mode(MU, models.Probit([0, 1, 2, 3], [0, 1, 2, 0], gamma=1e-9))",
        "Phi of Probit is too steep for Newton's method in double precision: use a larger gamma",
    ),
    ("graphuq.find_mode(MU, [])", "model must be a model with labels"),
    ("posterior.GaussianPosterior.of(S, M)", "prior must be a prior"),
    ("posterior.GaussianPosterior.of(MU, Y)", "model must be a model with labels"),
    (
        "posterior.GaussianPosterior.of(MU, models.GinzburgLandau([0, 20], [0, 1]))",
        "GinzburgLandau offers no sites",
    ),
    ("baselines.harmonic(S, [0], [1])", "Weights must be real numbers, got a Spectrum"),
    ("baselines.harmonic(X, [0], [1])", "Weights must be a square matrix"),
    ("baselines.harmonic(A, [0, 99], [0, 1])", "Node 99 is not in the graph, whose nodes are 0 to 39"),
    ("baselines.poisson(None, [0], [1])", "Weights must be real numbers, got None"),
    ("baselines.poisson(A, [99], [1])", "Node 99 is not in the graph, whose nodes are 0 to 39"),
    ("baselines.fiedler(A)", "spectrum must be a Spectrum"),
    ("baselines.fiedler(None)", "spectrum must be a Spectrum"),
    # labels and models
    ("models.Probit(None, [0, 1])", "nodes and y must be two lists of one length"),
    ("models.Probit([0.5, 1], [0, 1])", "nodes must be integers (row numbers), got float64"),
    ("models.Probit([-1, 1], [0, 1])", "nodes must be row numbers from 0, got -1"),
    ("models.Probit([0, 1], [0, 1j])", "y must be real numbers, got complex128"),
    ("models.Probit([0, 1], ['a', 'b'])", "y must be real numbers, got <U1"),
    ("models.Probit([0, 1], np.ma.array([0, 1], mask=[0, 1]))", "y has masked entries, 1 of 2: fill them in"),
    ("models.Probit([0, 1], [0, np.nan])", "Labels must be classes 0, 1, ..., or -1 and +1, got nan"),
    ("models.Probit([0, 1], [0, 2.5])", "Labels must be classes 0, 1, ..., or -1 and +1, got 2.5"),
    ("models.Probit([0, 1], [-1, 2])", "Labels are either -1 and +1, or classes from 0; got -1 and 2 together"),
    ("models.Probit([0, 1], [0, 1, 1])", "nodes and y must be two lists of one length"),
    ("models.Probit([], [])", "No labels: at least one labeled node is needed"),
    ("models.Probit([0, 0], [0, 1])", "Node 0 is given two different labels: remove one of them"),
    ("models.Probit([0, 1], [0, 1], gamma=0)", f"gamma {NUMBER} 0"),
    ("models.Probit([0, 1], [0, 1], gamma='a')", f"gamma {NUMBER} 'a'"),
    ("models.Probit([0, 1], [0, 1], gamma=np.inf)", f"gamma {NUMBER} inf"),
    ("models.Probit([0, 1], [0, 1], gamma=None)", f"gamma {NUMBER} None"),
    ("models.Probit([0, 1], [0, 1], delta=0.6)", "delta, the probability of a wrong label, must lie in [0, 0.5)"),
    ("models.Probit([0, 1], [0, 5], n_classes=3)", "A label is 5, and with n_classes = 3 they go up to 2"),
    ("models.Probit([0, 1], [0, 2], n_fields=2)", "n_fields must be 3"),
    ("models.LevelSet([0, 1], [0, 1], gamma=-1)", f"gamma {NUMBER} -1"),
    ("models.GinzburgLandau([0, 1], [0, 1], epsilon=0)", f"epsilon {NUMBER} 0"),
    ("models.GinzburgLandau([0, 1], [0, 1], epsilon='b')", f"epsilon {NUMBER} 'b'"),
    ("own(lambda u: 'a')", "phi of Own fails for u of the shape (4,)"),
    ("own(lambda u: None)", "phi of Own must return one real number, got NoneType"),
    ("own(lambda u: u)", "phi of Own must return one real number, got float32 of the shape (4,)"),
    ("own(lambda u: jnp.sum(u) * 1j)", "phi of Own must return one real number, got complex64"),
    ("own(lambda u: jnp.int32(3))", "phi of Own must return one real number, got int32"),
    ("own(lambda u: 1 / 0)", "phi of Own fails for u of the shape (4,): division by zero"),
    ("own(lambda u: np.sum(np.asarray(u)))", "It must be a function of u written with jax.numpy"),
    ("own(lambda u: 1.0 if u[0] > 0 else 2.0)", "without Python's if on values"),
    ("own(lambda u: u[0] / 0 * 0)", "phi of Own must be finite, and at u = 0 it is nan"),
    (
        "graphuq.sample(MU, M, NOWHERE, n_steps=9)",
        "The draws of Nowhere are not finite: phi of Probit must be finite",
    ),
    (
        "graphuq.sample(MU, type('Own', (models.Model,), {'nodes': [], 'phi': jnp.sum})())",
        "The nodes of Own must be a list of one or more node numbers from 0, got float64 of the shape (0,)",
    ),
    (
        "graphuq.sample(MU, type('Own', (models.Model,), {'nodes': [-1], 'phi': jnp.sum})())",
        "The nodes of Own must be a list of one or more node numbers from 0, got int64 of the shape (1,) and -1",
    ),
    ("own(lambda u: u.foo)", "phi of Own fails for u"),
    ("graphuq.PCN(beta=2.0)", "beta must lie in (0, 1], got 2.0"),
    ("graphuq.PCN(beta='a')", "beta must be a number in (0, 1], got 'a'"),
    ("graphuq.PCN(target_acceptance=0)", "target_acceptance must lie in (0, 1)"),
    ("graphuq.NUTS(step_size=0)", f"step_size {NUMBER} 0"),
    ("graphuq.NUTS(target_acceptance=None)", "target_acceptance must be a number in (0, 1), got None"),
    ("graphuq.TimeLimit(-1)", "seconds must be a finite number, 0 or above, got -1"),
    ("graphuq.EffectiveSize('a')", "target must be a finite number above 0, got 'a'"),
    ("graphuq.EffectiveSize(0)", "target must be a finite number above 0, got 0"),
    # features
    ("graph.gaussian(X + 1j, tau=1.0)", "X must be real numbers, got complex128"),
    ("graph.gaussian(MASKED, tau=1.0)", "X has masked entries"),
    ("graph.gaussian(None, tau=1.0)", "X must be real numbers, got None"),
    ("graph.gaussian('abc', tau=1.0)", "X must be real numbers, got 'abc'"),
    ("graph.gaussian([['a', 'b']] * 3, tau=1.0)", "X must be real numbers, got <U1"),
    (
        "graph.gaussian(np.array([['2020-01-01'], ['2020-01-02']], 'M8[D]'), tau=1.0)",
        "X must be real numbers, got datetime",
    ),
    ("graph.gaussian(X[:, 0], tau=1.0)", "X must be a table of features, one row a node"),
    ("graph.gaussian(X[None], tau=1.0)", "X must be a table of features, one row a node"),
    ("graph.gaussian(X[:1], tau=1.0)", "at least 2 rows"),
    (
        "graph.gaussian(X * np.nan, tau=1.0)",
        "X has NaN or infinite values in 40 rows, the first of them row 0",
    ),
    ("graph.gaussian(X * 1e200, tau=1.0)", "X has numbers too large to square"),
    (
        "graph.gaussian(np.array([[None, 1], [2, 3]], object), tau=1.0)",
        "X has NaN or infinite values in row 0.",
    ),
    ("graph.gaussian(X, tau=1e-100)", "40 of 40 nodes are isolated"),
    ("graph.gaussian(X, tau=1e-200)", "tau must lie between 1e-150 and 1e+150, got 1e-200"),
    ("graph.gaussian(X, tau=10**400)", f"tau {NUMBER} 1000"),
    ("graph.gaussian([[10**400, 1], [1, 1]], tau=1)", "X must be real numbers, got object"),
    ("graph.gaussian(STUBBORN, tau=1)", "X must be real numbers, got a Stubborn"),
    (
        "graph.knn(X, n_neighbors=3, weights=A)",
        'weights must be "self_tuning" or a number tau above 0, got a Graph',
    ),
    ("graph.knn(X, n_neighbors=3, weights=-1)", f"weights {NUMBER} -1"),
    ("graph.knn(X, n_neighbors=3, weights=1e300)", "weights must lie between 1e-150 and 1e+150, got 1e+300"),
    ("graph.nystrom(X, tau=1e-320, n_landmarks=5)", "tau must lie between 1e-150 and 1e+150, got 9.99989e-321"),
    ("spectrum.extend_weights(S, None)", "Weights must be real numbers, got None"),
    ("spectrum.low_rank(graph.cosine(abs(X)), at_most='a')", "at_most must be a whole number, got 'a'"),
    ("spectrum.low_rank(graph.cosine(abs(X)), at_most=0)", "at_most must be a whole number of at least 1, got 0"),
    ("prior.approximate(S, n_modes=5, lambda_bar=1e-320)", "variances beyond what numbers of 64 bits hold"),
    ("graph.gaussian(X, tau=0)", f"tau {NUMBER} 0"),
    ("graph.gaussian(X, tau='a')", f"tau {NUMBER} 'a'"),
    ("graph.gaussian(X, tau=None)", f"tau {NUMBER} None"),
    ("graph.gaussian(X, tau=np.inf)", f"tau {NUMBER} inf"),
    ("graph.knn(X + 1j, n_neighbors=3)", "X must be real numbers, got complex128"),
    ("graph.knn(sp.csr_array(X + 1j), n_neighbors=3)", "X must be real numbers, got complex128|dense"),
    ("graph.knn(MASKED, n_neighbors=3)", "X has masked entries"),
    ("graph.knn(X, n_neighbors=0)", "n_neighbors must lie between 1 and 39, the number of other nodes, got 0"),
    ("graph.knn(X, n_neighbors=40)", "n_neighbors must lie between 1 and 39"),
    ("graph.knn(X, n_neighbors=1.5)", "n_neighbors must be a whole number, got 1.5"),
    ("graph.knn(X, n_neighbors='3')", "n_neighbors must be a whole number, got '3'"),
    ("graph.knn(X, n_neighbors=3, n_components=0)", "n_components must lie between 1 and 2"),
    ("graph.knn(X, n_neighbors=3, n_components=9)", "n_components must lie between 1 and 2"),
    ("graph.self_tuning(X + 1j, n_neighbors=3)", "X must be real numbers, got complex128"),
    ("graph.self_tuning(X, n_neighbors=99)", "n_neighbors must lie between 1 and 39"),
    ("graph.cosine(X)", "more than a right angle apart"),
    ("graph.cosine(abs(X) + 1j)", "X must be real numbers"),
    (
        "graph.cosine(np.concatenate([np.zeros((1, 2)), abs(X)]))",
        "of X is all zeros and has no direction. Cosine weights need",
    ),
    ("graph.nystrom(X, tau=0, n_landmarks=5)", f"tau {NUMBER} 0"),
    ("graph.nystrom(None, tau=1, n_landmarks=5)", "X must be real numbers, got None"),
    ("graph.precomputed(np.triu(np.ones((4, 4))))", "Weights must be symmetric"),
    ("graph.precomputed(np.ones((4, 4)) * 1j)", "Weights must be real numbers, got complex128"),
    ("graph.precomputed(-np.ones((4, 4)))", "Weights must not be negative"),
    ("graph.precomputed(np.ma.array(np.ones((4, 4)), mask=np.eye(4)))", "Weights has masked entries"),
    ("graph.precomputed(np.full((3, 3), np.nan))", "Weights must be finite"),
    ("graph.precomputed([['a', 'b'], ['b', 'a']])", "Weights must be real numbers, got <U1"),
    ("graph.precomputed(np.zeros((3, 3)))", "3 of 3 nodes are isolated"),
    ("laplacian.unnormalized(A.weights * 1e300)", "too much to square: divide all weights by the largest"),
    ("graph.precomputed(A.weights * 1e-320)", "too little to divide by: divide all weights by the largest"),
    ("graph.precomputed(A.weights * 1.7e308)", "so large that their sum is infinite"),
    ("graph.precomputed(np.ones((1, 1)))", "A graph needs at least two nodes"),
    (
        "prior.full(spectrum.dense(laplacian.normalized(np.kron(np.eye(2), np.ones((3, 3))))))",
        "2 connected components",
    ),
    # questions to a posterior
    ("P.most_uncertain(-1)", "n must be a whole number of at least 1, got -1"),
    ("P.most_uncertain(0)", "n must be a whole number of at least 1, got 0"),
    ("P.most_uncertain(1.5)", "n must be a whole number, got 1.5"),
    ("P.most_uncertain('a')", "n must be a whole number, got 'a'"),
    ("P.most_uncertain(None)", "n must be a whole number, got None"),
    ("P.classes([-1])", "Nodes must lie between 0 and 39, got -1"),
    ("P.classes([3, 99])", "Nodes must lie between 0 and 39, got 99."),
    ("P.classes([0.5])", "Nodes must be a list of node numbers"),
    ("P.classes('a')", "Nodes must be a list of node numbers"),
    ("P.classes([True, False])", "A mask needs one entry for each of 40 nodes, got 2"),
    ("P.latent([99])", "Nodes must lie between 0 and 39"),
    ("uncertainty.most_uncertain(HALF, -1)", "n must be a whole number of at least 1, got -1"),
    ("uncertainty.most_uncertain(HALF * 9, 1)", "Probabilities must lie between 0 and 1, got 4.5"),
    ("uncertainty.most_uncertain(HALF, 1, among=[7])", "among must lie between 0 and 2, got 7"),
    ("uncertainty.entropy(HALF[0])", "Probabilities must have the shape (n, n_classes)"),
    ("uncertainty.entropy(None)", "Probabilities must be real numbers, got None"),
    ("uncertainty.entropy(HALF * np.nan)", "Probabilities must lie between 0 and 1, got nan"),
    ("uncertainty.entropy(HALF * 1j)", "Probabilities must be real numbers, got complex128"),
    ("uncertainty.margin(HALF * 0.9)", "Rows of probabilities must add up to 1"),
    ("calibration.summary(HALF, [0, 1, 5])", "truth must be a column number, 0 to 1, got 5"),
    ("calibration.summary(HALF, [0, 1])", "truth must have shape (3,)"),
    ("calibration.log_loss(HALF * 4, [0, 1, 1])", "Probabilities must lie between 0 and 1"),
    ("calibration.reliability(HALF, [0, 1, 1], n_bins=0)", "n_bins must be"),
    ("MU.sample(1.5)", "n_draws must be a whole number, got 1.5"),
    ("MU.sample(-1)", "n_draws must be a whole number of at least 1, got -1"),
    ("MU.covariance([99], [0])", "Nodes must lie between 0 and 39, got 99"),
    ("MU.covariance([0], [-1])", "Nodes must lie between 0 and 39, got -1"),
    ("MU.covariance([0], [0.5])", "Nodes must be a list of node numbers"),
    ("MU.marginal_variance([99])", "Nodes must lie between 0 and 39, got 99"),
    ("MU.rows('a')", "Nodes must be a list of node numbers"),
    ("P.with_labels([99], [1])", "Node 99 is not in the graph, whose nodes are 0 to 39"),
    ("posterior.Mixture((P,), np.ones(1)).with_labels([0, 99], [0, 1])", "Node 99 is not in the graph"),
    ("graphuq.Referenced(3)", "inner takes a sampler such as PCN() or NUTS(), got 3"),
    ("graphuq.Referenced(graphuq.PCN)", "inner takes a sampler such as PCN() or NUTS(), got a PCN itself"),
    ("graphuq.Referenced(reference=MU)", "reference must be a Gaussian of a mean and a factor, or None"),
    ("S.truncate('a')", "n_modes must be a whole number, got 'a'"),
    ("S.truncate(99)", "n_modes must lie between 1 and 40"),
    ("spectrum.extend(A, S, X)", "spectrum must be a Spectrum"),
    ("spectrum.extend(S, L, X)", "graph must be the graph that the spectrum was made from, got a Laplacian"),
    ("spectrum.extend(S, A, None)", "X must be real numbers, got None"),
    (
        "posterior.Mixture((P, P), np.array([0.5, 0.6]))",
        "weights must be 0 or above and add up to 1, got the sum 1.1",
    ),
    ("posterior.Mixture((P, P), np.array([1.5, -0.5]))", "weights must be 0 or above and add up to 1"),
    ("posterior.Mixture((P,), np.array([0.5, 0.5]))", "one weight for each of its components, got 2 weights"),
    ("posterior.Mixture((), np.array([]))", "one weight for each of its components"),
    ("graphuq.find_mode(MU, M, tolerance='a')", "tolerance must be a finite number, 0 or above, got 'a'"),
    ("graphuq.find_mode(MU, M, beta='a')", f"beta {NUMBER} 'a'"),
    ("graphuq.find_mode(MU, M, n_steps=1.5)", "n_steps must be a whole number, got 1.5"),
    ("graphuq.find_mode(MU, [M, M])", "model must be a model with labels"),
    ("calibration.apply_temperature(HALF, 'a')", f"temperature {NUMBER} 'a'"),
    ("calibration.reliability(HALF, [0, 1, 1], n_bins=1.5)", "n_bins must be a whole number, got 1.5"),
    ("graphuq.TimeLimit('a')", "seconds must be a finite number, 0 or above, got 'a'"),
    ("graphuq.NUTS(max_doublings='a')", "max_doublings must be a whole number, got 'a'"),
    ("graphuq.learn(S, M, features='a')", "features must be real numbers, got 'a'"),
    ("graphuq.learn(S, M, features=np.full((40, 1), np.nan))", "features must be finite, of shape (40, n)"),
    ("graphuq.learn(S, M, features=np.ones((3, 1)))", "features must be finite, of shape (40, n), got (3, 1)"),
    ("graphuq.learn(S, M, hyperprior=3)", "hyperprior must be a Hyperprior, got 3"),
    ("graph.nystrom(X, tau=1, n_landmarks='a')", "n_landmarks must be a whole number, got 'a'"),
    ("graph.knn(X, n_neighbors=3, n_components='a')", "n_components must be a whole number, got 'a'"),
    ("models.Probit([0, 1], [0, 1], delta=None)", "delta must be a number in [0, 0.5), got None"),
    ("C.report('/no/such/folder/page.html')", "There is no folder /no/such/folder"),
    ("C.report('/')", "/ is not a regular file"),
    # every public name with objects of another kind
    ("spectrum.extend_weights(A, A.weights)", "spectrum must be a Spectrum"),
    ("spectrum.believed_modes(S, S)", "graph must be the graph that the spectrum was made from, got a Spectrum"),
    (
        "spectrum.leading(L, n_modes=3, tolerance='a')",
        "tolerance must be a number between 1e-12 and 1e-2, got 'a'",
    ),
    ("spectrum.leading(L, n_modes=3, seed='a')", "seed must be a whole number, got 'a'"),
    ("spectrum.leading(L, n_modes=3, start=L)", "start must be a Spectrum of the same Laplacian, or None"),
    ("spectrum.leading(L, n_modes=True)", "n_modes must be a whole number, got True"),
    ("laplacian.dirichlet_energy(A, X[:, 0])", "L must be a Laplacian, as laplacian.normalized(graph) makes"),
    ("laplacian.dirichlet_energy(L, X[:, 0] * np.nan)", "u must have a finite value for each of 40 nodes"),
    ("laplacian.dirichlet_energy(L, X[:, 0] * 1e200)", "u has numbers too large to square, above 1e+150"),
    ("MU.energy(X[:, 0] * 1e200)", "u has numbers too large to square, above 1e+150"),
    ("MU.energy(X[:3, 0])", "u must have a finite value for each of 40 nodes, got the shape (3,)"),
    ("MU.precision('a')", "u must be real numbers, got 'a'"),
    ("MU.sample(2**40)", "n_draws must be a whole number between 1 and 2147483647"),
    ("MU.sample(seed='a')", "seed must be a whole number, got 'a'"),
    ("P.latent([0], seed=-1)", "seed must be a whole number between 0 and"),
    ("prior.matern(S, tau=1e300, alpha=2)", "variances beyond what numbers of 64 bits hold"),
    ("prior.matern(S, tau=1, alpha=2, tail='no')", "tail must be True or False, got 'no'"),
    (
        "prior.matern(S, tau=1, alpha=2, n_modes=5, tail=True, lambda_bar='a')",
        "lambda_bar must be a finite number, 0 or above, got 'a'",
    ),
    ("prior.project(S, n_modes=X)", "n_modes must be a whole number, got a ndarray"),
    ("models.Probit([0, 1], [0, 1], gamma=1e-320)", "gamma must lie between 1e-150 and 1e+15, got"),
    ("models.Probit([0, 1], [0, 1], gamma=1e39)", "gamma must lie between 1e-150 and 1e+15, got 1e+39"),
    ("models.Probit([0, 1], [0, 1], n_classes='2')", "n_classes must be a whole number, got '2'"),
    ("models.Probit([0, 1], [0, 1], n_fields=1.0)", "n_fields must be a whole number, got 1.0"),
    ("models.Probit(np.ma.array([0, 1], mask=[0, 1]), [0, 1])", "nodes has masked entries, 1 of 2"),
    ("graphuq.Orthant(time='a')", "time must be a number in (0, 2.5], got 'a'"),
    ("graphuq.Orthant(max_bounces=X)", "max_bounces must be a whole number, got a ndarray"),
    ("graphuq.Tempered(n_rungs=1)", "n_rungs must be a whole number of at least 2, got 1"),
    ("graphuq.Tempered(target_acceptance=X)", "target_acceptance must be a number in (0, 1), got a ndarray"),
    ("graphuq.PCN(target_acceptance=S)", "target_acceptance must be a number in (0, 1), got a Spectrum"),
    ("graphuq.sample(MU, M, n_steps=9, progress='no')", "progress must be True, False or None, got 'no'"),
    ("spectrum.low_rank(graph.cosine(abs(X)), progress=X)", "progress must be True, False or None, got a ndarray"),
    ("graphuq.sample(MU, M, dtype=A)", "dtype must be 'auto', 'float32' or 'float64', got a Graph"),
    ("graphuq.sample(MU, M, stop=A)", "stop takes rules such as EffectiveSize() or TimeLimit(60), got a Graph"),
    ("graphuq.sample(MU, M, n_chains=True)", "n_chains must be a whole number, got True"),
    ("graphuq.sample(MU, M, n_steps=np.array(2))", "n_steps must be a whole number, got a ndarray"),
    ("graphuq.sample(MU, M, n_steps=9, checkpoint=3)", "checkpoint must be the name of a file, got 3"),
    ("graphuq.find_mode(MU, M, method=A)", "method must be 'auto', 'newton' or 'gradient_flow', got a Graph"),
    ("graphuq.learn(S, M, more=3)", "more must be a function from a spectrum to a longer one, or None, got 3"),
    ("graphuq.learn(S, M, average='no')", "average must be True or False, got 'no'"),
    ("graphuq.learn(S, M, features=X * 1e200)", "features have numbers too large to square"),
    ("posterior.load(3)", "path must be the name of a file, got 3"),
    ("posterior.load('p.npz', model=A)", "model must be a model with labels"),
    ("P.save('a\\0b')", "path must be the name of a file, got 'a\\x00b', which holds a zero byte"),
    ("P.save(None)", "path must be the name of a file, got None"),
    ("S.save(A)", "path must be the name of a file, got a Graph"),
    ("Spectrum.load(None)", "path must be the name of a file, got None"),
    ("posterior.Mixture(('a', 'b'), np.array([0.5, 0.5]))", "A component must be a GaussianPosterior or Draws"),
    ("posterior.Mixture((P,), np.ones(1), temperature=0)", f"temperature {NUMBER} 0"),
    (
        "queries.next_queries(MU)",
        "posterior must be a Posterior, as sample(prior, model) makes, got a GaussianPrior",
    ),
    ("queries.next_queries(P, probability=HALF)", "probability must have the shape (40, 2), got (3, 2)"),
    ("queries.next_queries(P, strategy='best')", "strategy must be "),
    ("queries.next_queries(P, seed='a')", "seed must be a whole number, got 'a'"),
    ("queries.expected_gain(None)", "posterior must be a Posterior, as sample(prior, model) makes, got None"),
    ("queries.spread(MU, 2)", "where must be a graph, or the Spectrum of one, got a GaussianPrior"),
    ("queries.spread(S, 'a')", "n must be a whole number, got 'a'"),
    ("uncertainty.ranked(HALF, among=np.ma.array([0, 1], mask=[0, 1]))", "among has masked entries, 1 of 2"),
    (
        "uncertainty.entropy(pd.DataFrame(HALF).astype('Float64').mask(HALF > 0))",
        "must be real numbers, got object",
    ),
    (
        "calibration.accuracy(pd.DataFrame(HALF).astype('Float64').mask(HALF > 0), [0, 1, 1])",
        "must be real numbers",
    ),
    (
        "calibration.reliability(HALF, [0, 1, 1], n_bins=2**70)",
        "n_bins must be a whole number between 1 and 1000000",
    ),
    ("calibration.temperature(HALF, [0, 1, 1], median='a')", f"median {NUMBER} 'a'"),
    (
        "calibration.accuracy(HALF, ['a', 'b', 'b'])",
        "truth must be a column number, 0 to 1, got <U1. np.searchsorted(",
    ),
    ("calibration.accuracy([0.5, 0.5], ['a', 'b'])", "truth must be -1 or +1 (or 0 or 1), got <U1. "),
    ("baselines.harmonic(A, [0, 20], [0, 1], n_classes=2.5)", "n_classes must be a whole number, got 2.5"),
    (
        "baselines.poisson(A, A, [0, 1])",
        "nodes and y must be two lists of one length, got shapes (1,) and (2,)",
    ),
    ("baselines.poisson(A, np.ma.array([0, 20], mask=[0, 1]), [0, 1])", "nodes has masked entries"),
    ("baselines.mbo(A, [0, 20], [0, 1], class_shares=['a', 'b'])", "class_shares must be real numbers, got <U1"),
    ("datasets.two_moons(1)", "n_nodes must be a whole number of at least 2, got 1"),
    ("datasets.two_moons(20, seed=None)", "seed must be a whole number, got None"),
    ("datasets.two_moons(20, noise=X)", "noise must be a finite number, 0 or above, got a ndarray"),
    ("datasets.plume(height='a')", "height must be a whole number, got 'a'"),
    ("graph.knn(X, n_neighbors=True)", "n_neighbors must be a whole number, got True"),
    ("graph.knn(X, n_neighbors=3, method=S)", "method must be 'auto', 'exact' or 'approximate', got a Spectrum"),
    ("graph.knn(X, n_neighbors=3, seed='a')", "seed must be a whole number, got 'a'"),
    ("graph.nystrom(X, tau=1, n_landmarks=5, seed=1.5)", "seed must be a whole number, got 1.5"),
    ("fit(X=S)", "X must be a table of real numbers, got a Spectrum"),
    (
        "fit(graph=A)",
        "graph must be one of knn, self_tuning, gaussian, nystrom, cosine, precomputed, or a function",
    ),
    ("fit(model=A)", "model takes a name, a model such as Probit(gamma=0.2), or a class of one, got a Graph"),
    ("fit(inference=A)", "inference must be one of auto, ep, sample, got a Graph"),
    ("fit(sampler=3)", "sampler takes a sampler such as PCN() or NUTS(), got 3"),
    (
        "fit(random_state='a')",
        "random_state must be a whole number between 0 and 4294967295, a RandomState or None",
    ),
    ("C.predict(A)", "X must be a table of real numbers, got a Graph"),
    (
        "C.score(X, Y, sample_weight=-np.ones(40))",
        "sample_weight must be finite numbers, 0 or above and not all 0",
    ),
    ("C.suspicious_labels(A)", "n must be a whole number, got a Graph"),
    ("C.report(3)", "path must be the name of a file, got 3"),
    ("C.report('page.html', title=3)", "title must be text, got 3"),
    ("C.report('page.html', names='abc')", "names must be a list of names, got 'abc'"),
    ("C.report('page.html', X=X[:, 0])", "X must be the table of fit, got the shape (40,)"),
    ("graphuq.LabeledKFold(2, shuffle=True, random_state='a')", "random_state must be a whole number, got 'a'"),
    ("list(graphuq.LabeledKFold(2).split(X[:3], Y))", "inconsistent numbers of samples"),
    ("graphuq.LabeledScorer()(P, X, Y)", "estimator must be a fitted classifier with probabilities"),
    ("graphuq.LabeledScorer()(C, X, Y[:3])", "inconsistent numbers of samples"),
    ("graphuq.LabeledScorer(3)", "measure must be 'accuracy', 'neg_log_loss' or 'neg_brier_score', got 3"),
    # the classifier
    ("fit(X=pd.DataFrame(X, columns=['a', 'a']))", "X has more than one column 'a': give each its own name"),
    ("fit(X=pd.DataFrame({'a': pd.date_range('2020', periods=40), 'b': X[:, 0]}))", "X holds times (datetime64["),
    (
        "fit(X=pd.DataFrame({'b': X[:, 0], 'a': pd.period_range('2020', periods=40)}))",
        "times (period[D], in column 1)",
    ),
    ("fit(X=np.arange(80).reshape(40, 2).astype('m8[D]'))", "X holds times (timedelta64[D]"),
    ("fit(X=pl.DataFrame({'a': pl.Series(range(40)).cast(pl.Date)}))", "X holds times (Date, in column 0)"),
    ("fit(X=pl.DataFrame(X).lazy())", "X must be a table of real numbers, got a LazyFrame: pass a matrix"),
    (
        "fit(X=SimpleNamespace(X=X, obs=None))",
        "X must be a table of real numbers, got a SimpleNamespace: pass a matrix",
    ),
    (
        "fit(X=SimpleNamespace(adjacency=dict), graph='precomputed')",
        "X must be a table of real numbers, got a SimpleNamespace: pass a matrix",
    ),
    ("fit(X=pd.Series(X[:, 0]))", "Expected a 2-dimensional container but got"),
    ("C.predict(pd.Series(X[0]))", "Expected a 2-dimensional container but got"),
    ("fit(X=pd.Series(pd.date_range('2020', periods=40)))", "X holds times (datetime64["),
    ("fit(X=np.full((40, 2), b'a'))", "X holds text, b'a', and features are numbers"),
    (
        "fit(X=pd.DataFrame({'a': pd.interval_range(0, 40)}))",
        "X must be a table of real numbers, got a DataFrame: float",
    ),
    ("fit(X=[[1, 2], [3]] * 20)", "one row like another, got a list: its rows are not alike"),
    ("fit(X=np.full((40, 2), 10**400))", "got a ndarray: a number is too large"),
    ("fit(X={'a': [1]})", "X must be a table of real numbers, got a dict"),
    ("fit(X=np.rec.fromarrays(X.T))", "Cannot cast array data"),
    ("fit(X=X.astype(np.longdouble) * np.longdouble('1e400'))", "contains infinity"),
    ("fit(X=pd.DataFrame(X).astype('Float64').mask(X > 4))", "contains NaN"),
    ("fit(X=pl.DataFrame({'a': [None] + [1.0] * 39}))", "contains NaN"),
    ("fit(X=pd.DataFrame(X, columns=[0, 'a']))", "Feature names are only supported if all"),
    ("fit(X=pd.DataFrame({'a': pd.Categorical(['x', 'y'] * 20)}))", "X holds text, 'x'"),
    ("fit(X=sp.csr_array(np.where(X > 4, np.nan, abs(X))), graph='cosine')", "contains NaN"),
    ("fit(X=BROKEN)", "X must be a well-formed sparse matrix: "),
    ("C.predict(BROKEN)", "X must be a well-formed sparse matrix: "),
    ("graph.cosine(BROKEN)", "X must be a well-formed sparse matrix: "),
    (
        "graph.precomputed(sp.csr_array((np.ones(2), [1, 9], [0, 1, 2]), shape=(2, 2)))",
        "Weights must be a well-formed sparse matrix: ",
    ),
    ("fit(X=tall(np.where(X > 4, np.nan, X)))", "X has NaN or infinite values in"),
    (
        "fit(X=sp.csr_array((np.zeros(2), ([0, 1], [0, 1])), shape=(40, 2)), graph='cosine')",
        "40 rows of X are all zeros",
    ),
    ("fit(X=X[:0], y=Y[:0])", "Found array with 0 sample(s)"),
    ("fit(X=X[:1], y=[0])", "Found array with 1 sample(s)"),
    ("fit(X=X * 1e-310)", "no distance to measure weights by (those below 1e-162 have no square)"),
    ("fit(y=[(0, 1)] * 20 + [None] * 20)", "y must hold one class a row, got several"),
    ("fit(y=pd.Series([['a'], ['b', 'c']] * 20))", "one class a row, got several: scikit-learn's MultiOutput"),
    ("fit(y=pd.Series([('a',), ('b',)] * 20))", "one class a row, got several: scikit-learn's MultiOutput"),
    ("fit(y=['', 1, 'a'] + [''] * 37)", "text in some rows and numbers in others"),
    ("fit(y=pd.Series([range(1), range(2)] * 20))", "one class a row, got several: scikit-learn's MultiOutput"),
    ("fit(y=['a', 'a\\0'] + [None] * 38)", "A class in y ends with a zero byte, 'a\\x00', which NumPy drops"),
    (
        "fit(y=np.eye(2)[np.arange(40) // 20])",
        "y should be a 1d array, got an array of shape (40, 2): y must hold",
    ),
    ("fit(y=dict(enumerate(Y)))", "y should be a 1d array"),
    ("fit(y=(label for label in Y))", "Expected sequence or array-like"),
    ("fit(y=3)", "Expected sequence or array-like"),
    ("fit(y=sp.csr_matrix(Y))", "inconsistent numbers of samples"),
    (
        "fit(pd.DataFrame(X, columns=['a', 'b'])).predict(pd.DataFrame(X, columns=['b', 'a']))",
        "names should match",
    ),
    ("C.predict(X[:0])", "Found array with 0 sample(s)"),
    ("C.predict(X * 1e160)", "numbers too large to square in"),
    ("fit(y=None)", "requires y to be passed, but the target y is None"),
    ("fit(X=Y, y=X)", "Expected 2D array, got 1D array instead"),
    ("fit(X=MASKED)", "X has masked entries"),
    ("fit(X=X + 1j)", "Complex data not supported"),
    ("fit(X=X.astype(str) + 'a')", "X holds text, '0.12573022"),
    (
        "fit(X=['red shoes'] * 40)",
        "X holds text, 'red shoes', and features are numbers: turn texts into a sparse matrix",
    ),
    (
        'fit(X=np.array(["it\'s a shoe"] * 40, dtype=object))',
        'X holds text, "it\'s a shoe", and features are numbers',
    ),
    (
        "fit(X=pd.DataFrame({'a': ['x'] * 40}))",
        "with scikit-learn's TfidfVectorizer say, and categories into columns",
    ),
    ("fit(X=None)", "Expected 2D array, got scalar array instead"),
    ("fit(X=X[:, :0])", "Found array with 0 feature(s)"),
    ("fit(X=X * np.inf)", "contains infinity|contains NaN"),
    ("fit(y=Y[:5])", "inconsistent numbers of samples"),
    ("fit(y=Y + 0j)", "y must hold text or whole numbers, got complex numbers"),
    ("fit(y=Y.astype(bytes))", "The classes in y are bytes: decode them"),
    (
        "fit(prior='learned', gamma=None, model=models.Probit(gamma=0.2))",
        "model has gamma = 0.2, and a learned prior learns it instead: give gamma to GraphClassifier",
    ),
    ("fit(prior='learned', gamma=None, model=models.Probit(delta=0.1))", "model has delta = 0.1, and a learned"),
    ("fit(y=Y * 0 - 1)", "No row is labeled: give at least one row of each of two classes"),
    ("fit(y=np.where(Y < 0, -1, 1))", "Only one class, 1, is labeled"),
    ("fit(y=np.where(Y < 0, np.nan, Y * 0.3))", "continuous"),
    ("fit(y=np.array([None, 'a', 1] + [None] * 37, dtype=object))", "text in some rows and numbers in others"),
    ("fit(y=np.array([np.inf] + [0, 1] + [-1] * 37))", "Input y contains infinity"),
    (
        "fit(y=np.array([np.nan, -1, 0, 1] + [0] * 36))",
        "marks unlabeled rows by missing values and holds -1 as well",
    ),
    ("fit(graph='kn')", "graph must be one of knn, self_tuning, gaussian, nystrom, cosine, precomputed"),
    ("fit(graph=3)", "graph must be one of knn"),
    ("fit(graph=lambda X: None)", "Weights must be real numbers, got None"),
    ("fit(graph=lambda X: np.ones((3, 3)))", "The graph has 3 nodes and X has 40 rows: they must be the same"),
    ("fit(graph='gaussian')", "width must be given for gaussian weights"),
    ("fit(graph='gaussian', width=-1)", f"width {NUMBER} -1"),
    ("fit(graph='precomputed')", "Weights must be a square matrix"),
    ("fit(prior='mattern')", "prior must be one of learned, matern, approximate, project, full"),
    (
        "fit(prior=lambda S: None)",
        "What the function given as prior returns must be a prior, such as prior.matern's, got None",
    ),
    (
        "fit(prior=lambda S: S)",
        "What the function given as prior returns must be a prior, such as prior.matern's, got a Spectrum",
    ),
    ("fit(prior='full', tau=None)", f"tau {NUMBER} None"),
    ("fit(model='probitt')", "model must be one of probit, level_set, ginzburg_landau"),
    ("fit(model=None)", "model takes a name, a model such as Probit(gamma=0.2), or a class of one, got None"),
    (
        "fit(model=int)",
        "model must be one of probit, level_set, ginzburg_landau, or a model without labels, or a class",
    ),
    ("fit(model=3)", "model takes a name, a model such as Probit(gamma=0.2), or a class of one, got 3"),
    ("fit(inference='mcmc')", "inference must be one of auto, ep, sample, got 'mcmc'"),
    ("fit(inference=None)", "inference must be one of auto, ep, sample, got None"),
    ("fit(inference='ep', model='ginzburg_landau')", "GinzburgLandau offers no sites"),
    ("fit(tau=1e-200)", "tau must lie between 1e-9 and 1e9, got 1e-200"),
    ("fit(tau=np.nan)", f"tau {NUMBER} nan"),
    ("fit(alpha='2')", f"alpha {NUMBER} '2'"),
    ("fit(gamma=0)", f"gamma {NUMBER} 0"),
    ("fit(gamma=1e12)", "gamma must lie between 1e-9 and 1e9"),
    ("fit(epsilon=None)", f"epsilon {NUMBER} None"),
    ("fit(n_modes=1)", "n_modes must be a whole number of at least 2, got 1"),
    ("fit(n_modes=2.5)", "n_modes must be a whole number, got 2.5"),
    ("fit(n_modes=None)", "n_modes must be a whole number, got None"),
    ("fit(n_neighbors=0)", "n_neighbors must be a whole number of at least 1, got 0"),
    ("fit(n_neighbors='5')", "n_neighbors must be a whole number, got '5'"),
    ("fit(n_steps=0)", "n_steps must be a whole number of at least 1, got 0"),
    ("fit(n_chains=-8)", "n_chains must be a whole number of at least 1, got -8"),
    ("fit(n_components=0)", "n_components must lie between 1 and 2"),
    ("fit(n_components=3)", "n_components must lie between 1 and 2"),
    ("fit(time_limit=0)", "time_limit must be a number above 0, of seconds, got 0"),
    ("fit(time_limit=np.nan)", "time_limit must be a number above 0, of seconds, got nan"),
    ("fit(time_limit='a')", "time_limit must be a number above 0, of seconds, got 'a'"),
    ("fit(random_state=2**70)", "random_state must be a whole number between 0 and 4294967295"),
    ("fit(random_state=-1)", "random_state must be a whole number between 0 and 4294967295"),
    ("fit(inference='sample', sampler='pcn')", "sampler takes a sampler such as PCN() or NUTS(), got 'pcn'"),
    ("GraphClassifier().predict(X)", "is not fitted yet"),
    ("GraphClassifier().most_uncertain()", "is not fitted yet"),
    (
        "GraphClassifier().fit(X, Y, sample_weight=-np.ones(40))",
        "sample_weight of labeled rows must be finite numbers",
    ),
    ("GraphClassifier().fit(X, Y, sample_weight='a')", "sample_weight must be real numbers"),
    ("GraphClassifier().fit(X, Y, sample_weight=np.full(40, 1e9))", "Weights of labels must lie between"),
    ("GraphClassifier().fit(X, Y, sample_weight=2.0)", "sample_weight must be one number for each of 40 rows"),
    ("C.predict(None)", "Expected 2D array, got scalar array instead"),
    ("C.predict(X[:, :1])", "X has 1 features, but GraphClassifier is expecting 2 features"),
    ("C.predict(MASKED)", "X has masked entries"),
    ("C.predict(X * np.nan)", "contains NaN"),
    ("C.predict([['a', 'b']])", "X holds text, 'a', and features are numbers"),
    ("C.predict_proba(X + 1j)", "Complex data not supported"),
    ("C.score(X, None)", "y should be a 1d array"),
    ("C.score(X, Y * 0 - 1)", "No row of y has a class to compare with"),
    ("C.most_uncertain(-1)", "n must be a whole number of at least 1, got -1"),
    ("C.most_uncertain(1.5)", "n must be a whole number, got 1.5"),
    ("C.suspicious_labels(-1)", "n must be a whole number of at least 1"),
    ("C.suspicious_labels(1.5)", "n must be a whole number"),
    ("C.partial_fit_labels([99], [1])", "nodes must lie between 0 and 39, got 99"),
    ("C.partial_fit_labels([0.5], [1])", "nodes must be a list of node numbers"),
    ("C.partial_fit_labels(None, [1])", "nodes must be a list of node numbers"),
    ("C.partial_fit_labels([5, 5], [0, 1])", "nodes must differ: each is meant once"),
    ("C.partial_fit_labels([5], [0, 1])", "There are 1 nodes and 2 classes"),
    ("C.partial_fit_labels([5], [7])", "7 is none of the classes of fit, 0 and 1"),
    ("C.partial_fit_labels([0, 1], [-1, -1])", "Only one class would stay labeled"),
    # stores and folders
    ("tall(None)", "X must be real numbers, got None"),
    ("tall([[1, 2], [3]])", "X must be real numbers, got object"),
    ("tall(MASKED)", "X has masked entries"),
    (
        "fit('x.npy')",
        "X must be a table of real numbers, got 'x.npy': pass a matrix or a data frame, or what tall.tall opens",
    ),
    ("C.predict(Path('x.npy'))", "X must be a table of real numbers, got a PosixPath: pass a matrix"),
    ("C.write_proba(None)", "path must be the name of a file, got None"),
    ("C.write_proba('out', force='no')", "force must be True or False, got 'no'"),
    ("C.write_proba('out', MASKED)", "X has masked entries"),
    ("folder.read(None)", "folder must be the name of a file, got None"),
    ("folder.read('none')", "There is no folder none"),
    ("folder.write('none', GraphClassifier())", "is not fitted yet"),
    ("graphuq.LabeledKFold(1)", "n_splits must be a whole number of at least 2, got 1"),
    ("graphuq.LabeledScorer('auc')", "measure must be 'accuracy', 'neg_log_loss'"),
    ("graphuq.Probit", "has no attribute 'Probit'"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("given", "sentence"), PYTHON, ids=[given for given, _ in PYTHON])
def test_what_is_wrong_in_python(given, sentence):
    with pytest.raises((ValueError, TypeError, AttributeError)) as caught:
        eval(given)  # noqa: S307
    assert any(each in str(caught.value) for each in sentence.split("|")), caught.value
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ValueError | TypeError) or given == "graphuq.Probit"


# What is taken, but perhaps not as it was meant, and the warning that says how.
TAKEN = [
    (
        "models.Probit([0, 1], [1, 2])",
        "y holds classes up to 2, counted from 0, and class 0 has no label: 3 classes",
    ),
    (
        "models.LevelSet([0, 1, 2], [0, 1, 5])",
        "class 2 has no label: 6 classes are taken. Give n_classes=6 if they",
    ),
    ("models.GinzburgLandau([0, 1], [0, 2])", "class 1 has no label: 3 classes are taken"),
    ("models.Probit([0, 1], [1, 1])", "Every label is class 1"),
    (
        "fit(y=np.where(Y < 0, '?', Y.astype(str)))",
        "y holds '?' in 36 rows, which are taken as a class. If they are",
    ),
    ("fit(y=np.where(Y < 0, ' ', Y.astype(str)))", "y holds ' ' in 36 rows, which are taken as a class"),
    ("fit(y=np.where(Y < 0, None, Y).astype(str))", "y holds 'None' in 36 rows, which are taken as a class"),
    (
        "fit(y=[pd.NA if label < 0 else ('None', 'a')[label] for label in Y])",
        "y holds 'None' in 2 rows, which are taken as a class",
    ),
    ("fit(y=Y.astype(np.uint8))", "y holds 255 in 36 rows, which are taken as a class"),
    ("fit(n_neighbors=99)", "n_neighbors is 99, and there are 40 rows: all others are neighbors of each"),
    ("fit(graph='self_tuning', n_neighbors=2**40)", "and there are 40 rows: all others are neighbors of each"),
]


@pytest.mark.parametrize(("given", "sentence"), TAKEN, ids=[given for given, _ in TAKEN])
def test_what_is_taken_another_way_is_told(given, sentence):
    with pytest.warns(UserWarning, match=re.escape(sentence)) as caught:
        eval(given)  # noqa: S307
    assert caught[0].filename in (__file__, "<string>")


TEXT = np.where(Y < 0, None, np.where(Y == 0, "a", "b"))


@pytest.mark.parametrize(
    "y",
    [
        pd.Series(Y).astype("Int64").mask(Y < 0),
        pd.Series(Y == 1).astype("boolean").mask(Y < 0),
        pd.Series(TEXT, dtype="string"),
        pd.Categorical(TEXT, categories=["a", "b", "c"]),
        pd.Series(pd.Categorical(TEXT, categories=["a", "b", "c"]), index=range(100, 140)),
        pl.Series(TEXT.tolist(), dtype=pl.Categorical),
        [None if label < 0 else bool(label) for label in Y],
        [-1.0 if label < 0 else "ab"[label] for label in Y],
        Y.astype(np.int8),
        np.where(Y < 0, -1, Y + 2**62),
    ],
    ids=str,
)
def test_labels_of_every_kind_are_the_same_labels(y):
    found = fit(y=y)
    assert len(found.classes_) == 2  # and none for a category that no row has
    np.testing.assert_allclose(found.label_distributions_, C.label_distributions_, atol=1e-12)


def test_settings_may_be_numbers_of_any_type():
    """Also where they are compared with what the type does not hold, and in what is told."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        wide = fit(graph="gaussian", width=np.float32(1))
    np.testing.assert_allclose(wide.label_distributions_, fit(graph="gaussian", width=1).label_distributions_)
    for limit in (Fraction(1, 10**9), np.inf, 10**400):
        settings = {"gamma": None, "inference": "auto", "model": "level_set", "n_steps": 2, "time_limit": limit}
        with pytest.warns(UserWarning, match="time_limit|onverged"):
            fit(**settings)


def test_a_pcn_chain_moves_away_from_where_phi_is_infinite():
    """Between two such points the acceptance was NaN, and so then the step size and all draws."""

    class Wall(models.Model):
        nodes = M.nodes

        def phi(self, u):
            return jnp.where(u[0] > -0.1, 0.0, jnp.inf)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of draws that are too few
        found = graphuq.sample(MU, Wall(), graphuq.PCN(), n_steps=100, n_warmup=100)
    assert (found.latent([0]) > -0.1).all()


def test_functions_given_as_settings_can_be_pickled():
    classifier = GraphClassifier(
        **SETTINGS | {"graph": graph.knn(n_neighbors=4), "prior": prior.matern(tau=0.1, alpha=2)}
    )
    loaded = pickle.loads(pickle.dumps(classifier.fit(X, Y)))  # noqa: S301
    np.testing.assert_array_equal(loaded.fit(X, Y).label_distributions_, classifier.label_distributions_)


def test_input_of_other_types_gives_the_same_answers():
    """Unsigned and small integers, booleans, float32: as float64, without wrapping around."""
    small = np.round(X * 10 + 50)
    expected = fit(small).predict_proba(small)
    for kind in (np.uint8, np.int16, np.uint64, np.float32):
        np.testing.assert_allclose(fit(small.astype(kind)).predict_proba(small.astype(kind)), expected, atol=1e-6)
    weights = np.round(A.weights * 200).astype(np.uint8)
    unsigned, floats = (spectrum.dense(laplacian.normalized(W)).values for W in (weights, weights.astype(float)))
    np.testing.assert_allclose(unsigned, floats)
    assert np.array_equal(models.Probit(np.array([0, 9], np.uint8), np.array([0, 1], np.uint8)).nodes, [0, 9])
    scaled = spectrum.dense(laplacian.normalized(A.weights * 1e300))
    np.testing.assert_allclose(scaled.values, S.values, atol=1e-12)


# What stands in a file of this name, and the sentence that refuses it.
TABLE = "id,x,y,k\n" + "".join(
    f"r{i},{x:.3f},{y:.3f},{'ab'[i // 20] if Y[i] >= 0 else ''}\n" for i, (x, y) in enumerate(X)
)
FILES = [
    ("t.csv", b"", "t.csv is empty"),
    ("t.csv", b"a,b\n", "t.csv has no rows"),
    ("t.csv", b"\n\n\n", "has no rows|has no name"),
    ("t.csv", b"a,b\n1,2\n3\n", "t.csv is ragged: line 3 has 1 cells between commas, and the heading has 2"),
    ("t.csv", b"a,b\n1,2,3\n", "t.csv is ragged: line 2 has 3 cells"),
    ("t.csv", b"a;b\n1;2\n3;4;5\n", "t.csv is ragged|has no column"),
    ("t.csv", b"a,a\n1,2\n", "more than one column 'a'"),
    ("t.csv", b"a,\n1,2\n", "Column 2 of t.csv has no name"),
    ("t.csv", b",,\n1,2,3\n", "Column 1 of t.csv has no name"),
    ("t.csv", b'a,b\n"1,2\n', "t.csv is not well-formed"),
    ("t.csv", b'a,b\n"1"x,2\n', "t.csv is not well-formed"),
    ("t.csv", b"a,b\nx\0y,1\n", "t.csv is not text: it holds zero bytes"),
    ("t.csv", b"\x00\x01\x02\x03", "t.csv is no"),
    ("t.csv", b"a,b\n\x81\x8d,1\n", "neither UTF-8 (byte 0x81 is not) nor Windows-1252 text"),
    ("t.csv", "a,b\n1,2".encode("utf-16")[:-1], "begins as utf-16 text but does not go on so"),
    ("t.csv", b"\xff\xfe\x00", "begins as utf-16 text but does not go on so"),
    ("t.csv", b"a,b\n" + b"x" * 200_000 + b",1\n", "field larger than field limit"),
    ("t.csv", b"PK\x03\x04\x14\x00\x00\x00", "t.csv is no"),
    ("t.tsv", b"a\tb\n1\n", "t.tsv is ragged"),
    ("t.xls", b"x", "t.xls is an old Excel file: save it as .xlsx or CSV"),
    ("t.doc", b"x", "none of the files that can be read: CSV, TSV, Excel, Parquet and NPZ"),
    ("t", b"x", "none of the files that can be read"),
    ("t.json", b"[" * 100_000, "none of the files that can be read"),
    ("t.xlsx", b"x", "t.xlsx is not an Excel file, is locked by a password, or is damaged"),
    ("t.xlsx", b"\xd0\xcf\x11\xe0" + b"\0" * 900, "is locked by a password"),
    ("t.xlsx", b"PK\x05\x06" + b"\0" * 18, "t.xlsx is not an Excel file"),
    ("t.npz", b"x", "t.npz is not an NPZ file, or is damaged"),
    ("t.npz", b"PK\x03\x04garbage", "t.npz is not an NPZ file, or is damaged"),
    ("t.npz", b"PK\x05\x06" + b"\0" * 18, "t.npz has no rows"),
    ("t.parquet", b"PAR1" + b"\0" * 100 + b"PAR1", "t.parquet is not a Parquet file, or is damaged"),
    ("t.parquet", b"x", "t.parquet is not a Parquet file, or is damaged"),
]


@pytest.mark.parametrize(("name", "content", "sentence"), FILES, ids=range(len(FILES)))
def test_what_is_wrong_in_files(tmp_path, name, content, sentence):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        read_table(tmp_path / name).column("no such")
    assert any(each in str(caught.value) for each in sentence.split("|"))
    assert "\n" not in str(caught.value)


ARRAYS = [
    ({"x": np.ones(3), "k": np.ones(4)}, "differ in length: x 3, k 4. Each needs one entry a row"),
    ({"x": np.ones(3, complex)}, "'x' of t.npz holds complex128, neither numbers nor text"),
    ({"x": np.array(["2020-01-01"], "M8[D]")}, "neither numbers nor text"),
    ({"x": np.array([("a", 1)], [("f", "U1"), ("g", int)])}, "neither numbers nor text"),
    ({"x": np.array([["a", "b"]])}, "'x' of t.npz must hold one text a row, got the shape (1, 2)"),
    ({"x": np.array([{}, 1], object)}, "pickled objects in 'x', which can run code when they are loaded"),
    ({"x": np.array(3.0)}, "'x' of t.npz is a single value: each row needs one of its own"),
    ({"x": np.ones((0, 3))}, "t.npz has no rows"),
]


def test_text_that_parquet_holds_as_bytes_is_text(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({"k": ["é".encode(), None]}), tmp_path / "t.parquet")
    assert columns(tmp_path / "t.parquet")["k"].tolist() == ["é", ""]
    parquet.write_table(pa.table({"k": [b"\xff"]}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"Column 'k' of t\.parquet holds bytes that are not UTF-8 text"):
        columns(tmp_path / "t.parquet")


@pytest.mark.parametrize(("arrays", "sentence"), ARRAYS, ids=range(len(ARRAYS)))
def test_what_is_wrong_in_arrays(tmp_path, arrays, sentence):
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        read_table(tmp_path / "t.npz")
    assert sentence in str(caught.value)


# What is typed, in a folder with the files of `shell`, and the sentence that refuses it.
FIT = "fit t.csv --label k --id id --out new"
SHELL = [
    ("fit none.csv --label k --out new", "There is no file none.csv"),
    ("fit . --label k --out new", ". is a folder, not a file"),
    ("fit folder.csv --label k --out new", "folder.csv is a folder, not a file"),
    ("fit pipe.csv --label k --out new", "pipe.csv is not a regular file"),
    ("fit t.csv --label kind --out new", "t.csv has no column 'kind': there are"),
    ("fit t.csv --label K --out new", "no column 'K': did you mean 'k'?"),
    (
        "fit t.csv --label k --out new",
        "Column 'id' holds a different text in every row ('r0'), as names (--id) do. This would work: --id id.",
    ),
    ("fit t.csv --label k --id ix --out new", "no column 'ix': there are"),
    ("fit t.csv --label k --id k --out new", "Column 'k' is given as --label and again as --id"),
    (
        "fit t.csv --label x --id id --out new",
        "Every row of t.csv has a class in 'x', so there is nothing to find out",
    ),
    ("fit t.csv --label id --out new", "Every row of t.csv has a class in 'id'|no classes"),
    (f"{FIT} --truth k", "Column 'k' is given as --label and again as --truth"),
    (f"{FIT} --truth x", "no row has that class in 'k'"),
    (f"{FIT} --truth none", "no column 'none'"),
    (f"{FIT} --column zz", "no column 'zz'"),
    (f"{FIT} --column x --column x", "given as --column and again as --column"),
    (f"{FIT} --column k", "given as --label and again as --column"),
    (f"{FIT} --drop zz", "no column 'zz'"),
    (f"{FIT} --drop x --drop y", "t.csv has no column left to use as a feature"),
    (f"{FIT} --drop k", "given as --label and as --drop"),
    (f"{FIT} --drop id", "given as --id and as --drop"),
    (f"{FIT} --column x --drop y", "--drop y changes nothing: --column says which columns are used"),
    (f"{FIT} --category zz", "no column 'zz'"),
    (f"{FIT} --category all", "No feature of t.csv holds text: leave out --category all"),
    (
        "fit alike.csv --label k --out new",
        "'x' holds one text ('red'), which tells no rows apart. This would work: --drop x",
    ),
    (f"{FIT} --category k", "'k' is given as --category, and it is not one of the features"),
    (f"{FIT} --scale big", "'big' is not one of 'auto', 'robust', 'none'"),
    (f"{FIT} --impute zero", "'zero' is not one of 'median', 'mean'"),
    (f"{FIT} --unlabeled '?'", "No row holds '?' in column 'k': leave out --unlabeled"),
    (f"{FIT} --unlabeled a", "Only one class, b, is labeled"),
    (f"{FIT} --separator ';;'", "The separator must be one character, got ';;'"),
    (f"{FIT} --separator ';'", "has no column|is ragged"),
    (f"{FIT} --graph kn", "'kn' is not one of"),
    (f"{FIT} --neighbors 0", "--neighbors must be a whole number of at least 1, got 0"),
    (f"{FIT} --neighbors many", "Invalid value for '--neighbors'"),
    (f"{FIT} --neighbors 2.5", "Invalid value for '--neighbors'"),
    (f"{FIT} --neighbors 3 --graph gaussian --width 1", "--neighbors is for --graph knn and self_tuning"),
    (f"{FIT} --graph gaussian", "--width must be given for gaussian weights"),
    (f"{FIT} --graph gaussian --width 0", "--width must be a finite number above 0, got 0"),
    (f"{FIT} --graph gaussian --width nan", "--width must be a finite number above 0, got nan"),
    (
        f"{FIT} --graph gaussian --width 1e-100",
        "nodes are isolated: all their weights are zero. The first is node r0",
    ),
    (f"{FIT} --graph gaussian --width 1e-200", "--width must lie between 1e-150 and 1e150, got 1e-200"),
    (f"{FIT} --width 1", "--width is for --graph gaussian and nystrom: leave it out"),
    (f"{FIT} --graph cosine", "more than a right angle apart"),
    (f"{FIT} --graph cosine --components 1", "--components is for distances"),
    (f"{FIT} --graph cosine --modes 5", "--modes is for the first eigenvectors"),
    (f"{FIT} --components 0", "--components must lie between 1 and 2"),
    (f"{FIT} --components 9", "--components must lie between 1 and 2"),
    (f"{FIT} --prior best", "'best' is not one of"),
    (f"{FIT} --modes 1", "--modes must be a whole number of at least 2, got 1"),
    (f"{FIT} --modes -5", "--modes must be a whole number of at least 2, got -5"),
    (f"{FIT} --prior full --modes 5", "--modes is for the first eigenvectors"),
    (
        f"{FIT} --prior project --neighbors 2",
        "connected components, and this prior exists on a connected graph only",
    ),
    (f"{FIT} --tau 1", "--tau is for --prior matern: leave it out"),
    (f"{FIT} --alpha 1", "--alpha is for --prior matern: leave it out"),
    (f"{FIT} --prior matern --tau 0", "--tau must be a finite number above 0, got 0"),
    (f"{FIT} --prior matern --tau 1e-200", "--tau must lie between 1e-9 and 1e9, got 1e-200"),
    (f"{FIT} --prior matern --tau x", "Invalid value for '--tau'"),
    (f"{FIT} --prior matern --alpha inf", "--alpha must be a finite number above 0, got inf"),
    (f"{FIT} --gamma 0", "--gamma must be a finite number above 0, got 0"),
    (f"{FIT} --gamma 1e-320", "--gamma must lie between 1e-9 and 1e9"),
    (f"{FIT} --epsilon 1", "--epsilon is for --model ginzburg_landau"),
    (f"{FIT} --model ginzburg_landau --epsilon 0", "--epsilon must be a finite number above 0, got 0"),
    (f"{FIT} --model logit", "'logit' is not one of"),
    (f"{FIT} --model ginzburg_landau --inference ep", "GinzburgLandau offers no sites"),
    (f"{FIT} --inference exact", "'exact' is not one of"),
    (f"{FIT} --draws 9", "--draws is for --inference sample, and for priors that are not learned"),
    (f"{FIT} --inference sample --draws 0", "--draws must be a whole number of at least 1, got 0"),
    (f"{FIT} --time-limit 9", "--time-limit is for --inference auto where draws are made"),
    (f"{FIT} --prior matern --time-limit 0", "--time-limit must be a number above 0, of seconds, got 0"),
    (f"{FIT} --prior matern --time-limit nan", "--time-limit must be a number above 0, of seconds, got nan"),
    (f"{FIT} --seed -1", "Invalid value for '--seed'"),
    (f"{FIT} --seed 1180591620717411303424", "Invalid value for '--seed'"),
    (f"{FIT} --colour red", "No such option: --colour"),
    ("fit t.csv --label k", "Missing option '--out'"),
    ("fit t.csv --out new", "Give --label with the column of a table"),
    ("fit", "Missing argument"),
    (
        "fit t.csv --label k --id id --out out",
        "out exists already: choose another folder, or replace it with --force",
    ),
    ("fit t.csv --label k --id id --out mine --force", "holds something that graphuq did not write, thesis.txt"),
    ("fit t.csv --label k --id id --out t.csv --force", "holds something that graphuq did not write, t.csv"),
    ("fit t.csv --label k --id id --out / --force", "/ holds everything there is: choose another folder"),
    (
        f"fit t.csv --label k --id id --out {'n' * 300}",
        "could not be written, and nothing was: File name too long",
    ),
    ("fit t.csv --label k --id id --out ''", "exists already"),
    ("fit t.csv --label '' --id id --out new", "t.csv has no column ''"),
    ("fit - --label k --out new", "There is no file -"),
    ("fit t.csv --label k --id id --out t.csv/new", "could not be written"),
    ("fit twice.csv --label k --id id --out new", "The row id 'a' repeats in column 'id': rows 1 and 2 have it"),
    (
        "fit gaps.csv --label k --out new",
        "Column 'x' has missing values, the first in row 2. This would work: --impute",
    ),
    ("fit words.csv --label k --out new", "Column 'x' holds text ('red'). This would work: --category x"),
    (
        "fit prose.csv --label k --out new",
        "Column 'x' holds free text ('the shoes are red'), which is compared by the",
    ),
    ("fit prose.csv --label k --out new", "as scikit-learn's TfidfVectorizer does, and save those as an NPZ file"),
    (
        "fit money.csv --label k --out new",
        "holds numbers with a unit, or with marks between digits ('$1.50'): write plain",
    ),
    (
        "fit share.csv --label k --out new",
        "holds numbers with a unit, or with marks between digits ('12%'): write plain",
    ),
    (
        "fit dates.csv --label k --out new",
        "Column 'x' holds dates or times ('2020-01-31'): write plain numbers instead, such as the days since a first date",
    ),
    ("fit tage.csv --label k --out new", "Column 'x' holds dates or times ('1.11.1959'): write plain numbers"),
    ("fit asked.csv --label k --out new", "or say what stands for it: --unlabeled '?'"),
    (
        "predict out t.csv --out t.csv --force",
        "t.csv is read here, or belongs to a fit, and would be lost: choose another name",
    ),
    ("predict out t.csv --out link.csv --force", "link.csv is read here, or belongs to a fit, and would be lost"),
    (
        "predict out t.csv --out out/model.npz --force",
        "model.npz is read here, or belongs to a fit, and would be lost",
    ),
    ("predict out t.csv --out out/predictions.csv --force", "predictions.csv is read here, or belongs to a fit"),
    ("report out --out out/predictions.csv --force", "predictions.csv is read here, or belongs to a fit"),
    ("report out --out out/model.npz --force", "model.npz is read here, or belongs to a fit, and would be lost"),
    (
        "label t.csv --label k --id id --out desk --export t.csv --force",
        "t.csv is read here, or belongs to a fit, and would be lost",
    ),
    ("fit dead.csv --label k --out new", "There is no file dead.csv"),
    ("fit loop.csv --label k --out new", "There is no file loop.csv"),
    ("predict older t.csv", "holds the format 'graphuq model 1', and this version reads"),
    ("predict endless t.csv", "is not a model of graphuq, or is damaged"),
    ("predict out out/predictions.csv", "predictions.csv has no columns 'x' and 'y'"),
    ("fit t.csv --label k --id id --out . --force", "holds something that graphuq did not write"),
    ("fit mixed.csv --label k --out new", "Column 'x' holds numbers, and text ('?') in 1 of 6 cells: empty those"),
    ("fit huge.csv --label k --out new", "Column 'x' holds the number 1e+300, too large to compute with"),
    ("fit infinite.csv --label k --out new", "Column 'x' holds an infinite number"),
    ("fit hollow.csv --label k --out new", "Column 'x' is empty. This would work: --drop x"),
    ("fit same.csv --label k --out new", "All points coincide, so there is no distance to measure weights by"),
    (
        "fit full.csv --label k --out new",
        "leave that cell empty in the rows in question, or say what stands for it: --unlabeled MARK",
    ),
    ("fit one.csv --label k --out new", "Only one class, a, is labeled"),
    ("fit bare.csv --label k --out new", "No row is labeled"),
    ("fit minus.csv --label k --out new", "-1 marks unlabeled rows, so no class can be called -1"),
    ("predict", "Missing argument"),
    ("predict out", "Missing argument"),
    ("predict none t.csv", "There is no folder none"),
    ("predict mine t.csv", "mine holds no model: it has no model.npz"),
    ("predict t.csv t.csv", "There is no folder t.csv"),
    ("predict out none.csv", "There is no file none.csv"),
    ("predict out words.csv", "Column 'x' holds text ('red'), and held numbers in the fit"),
    (
        "predict out gaps.csv",
        "Column 'x' has missing values, the first in row 2, and the fit did not say how",
    ),
    ("predict out other.csv", "other.csv has no column 'y'"),
    ("predict out huge.csv", "too large to compute with"),
    (
        "predict out t.csv --out other.csv",
        "other.csv exists already: choose another name, or replace it with --force",
    ),
    (
        "predict out t.csv --out answers.xlsx",
        "answers.xlsx would hold CSV, which its name contradicts: give a name that",
    ),
    ("predict out t.csv --out answers.parquet", "answers.parquet would hold CSV, which its name contradicts"),
    ("predict out t.csv --out no/such/file.csv", "There is no folder"),
    ("predict out t.csv --out mine --force", "mine is not a regular file, so it is not replaced"),
    ("predict out t.csv --out pipe.csv --force", "pipe.csv is not a regular file, so it is not replaced"),
    ("predict out t.csv --unknown guess", "'guess' is not one of 'refuse', 'ignore'"),
    ("predict broken t.csv", "model.npz is not a model of graphuq, or is damaged"),
    ("predict deep t.csv", "model.npz is not a model of graphuq, or is damaged"),
    ("predict future t.csv", "holds the format 'graphuq model 99', and this version reads"),
    ("predict swapped t.csv", "model.npz was changed or damaged after it was written: its checksum differs"),
    ("report none", "There is no folder none"),
    ("report mine", "mine holds no model"),
    ("report out --force", "--force replaces what --out names, and that is not given: leave it out"),
    ("predict out t.csv --force", "--force replaces what --out names"),
    ("report broken", "is not a model of graphuq, or is damaged"),
    ("report out --out mine", "mine is not a regular file, so it is not replaced"),
    ("report out --out t.csv", "t.csv exists already"),
    ("data irises", "There is no data set 'irises': choose one of voting, mnist, indian-pines, plume"),
    ("demo --out t.csv --quiet", "t.csv is a file, where a folder is needed"),
    ("demo --out foreign --quiet", "report.html was not written by graphuq, so it is not replaced"),
    ("demo --seed x", "Invalid value for '--seed'"),
    ("demo --seed -1", "Invalid value for '--seed'"),
    ("reproduce --all", "The experiments come with the repository"),
    ("fitt t.csv", "No such command 'fitt'"),
    ("--fit", "No such option: --fit"),
]


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """A folder with a table, what `fit` made of it, and files in which something is wrong."""
    home = tmp_path_factory.mktemp("shell")
    six = ["1.0,1,a", "2.0,2,", "3.0,1,b", "4.0,2,", "5.0,1,", "6.0,2,"]
    tables = {
        "t.csv": TABLE,
        "twice.csv": "id,x,k\na,1,a\na,2,b\nc,3,\n",
        "other.csv": "x,z\n1,2\n",
        "words.csv": "x,y,k\nred,1,a\nblue,2,b\nred,3,\n",
        "alike.csv": "x,y,k\nred,1,a\nred,2,b\nred,3,\n",
        "prose.csv": "x,y,k\nthe shoes are red,1,a\nthis one is blue,2,b\nit is red again,3,\n",
        "money.csv": "x,k\n$1.50,a\n$2.25,b\n$7,\n",
        "share.csv": "x,k\n12%,a\n1.5%,b\n-3 %,\n",
        "tage.csv": "x,k\n"
        + "".join(f"{day}.11.1959,{'ab'[day % 2]}\n" for day in range(1, 25))
        + "25.11.1959,\n",
        "dates.csv": "x,k\n2020-01-31,a\n2020-02-01,b\n2020-02-02 10:00,\n",
        "asked.csv": "x,k\n1,a\n2,b\n3,?\n4,?\n",
        "same.csv": "x,y,k\n1,1,a\n1,1,b\n1,1,\n1,1,\n",
        "full.csv": "x,k\n1,a\n2,b\n",
        "one.csv": "x,k\n1,a\n2,a\n3,\n",
        "bare.csv": "x,k\n1,\n2,NA\n",
        "minus.csv": "x,k\n1,-1\n2,1\n3,-1\n",
    }
    for name, cell in {"gaps": "", "mixed": "?", "huge": "1e300", "infinite": "inf"}.items():
        tables[f"{name}.csv"] = "\n".join(["x,y,k", *six]).replace("2.0,", f"{cell},", 1)
    tables["hollow.csv"] = "\n".join(["x,y,k", *(line[3:] for line in six)])
    for name, text in tables.items():
        (home / name).write_text(text)
    for name in ("folder.csv", "mine", "broken", "deep", "future", "swapped", "foreign", "older", "endless"):
        (home / name).mkdir()
    (home / "mine" / "thesis.txt").write_text("years of work")
    (home / "foreign" / "report.html").write_text("mine")
    os.mkfifo(home / "pipe.csv")
    asked = f"fit {home}/t.csv --label k --id id --out {home}/out --prior matern --gamma 0.5 --inference ep"
    done = CliRunner().invoke(app, shlex.split(asked))
    assert done.exit_code == 0, done.output
    (home / "broken" / "model.npz").write_bytes((home / "out" / "model.npz").read_bytes()[:5000])
    deep = np.frombuffer(b"[" * 100_000, np.uint8)
    np.savez(home / "deep" / "model.npz", facts=deep)
    archive.write(home / "future" / "model.npz", "graphuq model 99", {}, {})
    archive.write(home / "older" / "model.npz", "graphuq model 1", {}, {})
    for name, target in {"link.csv": "t.csv", "dead.csv": "gone", "loop.csv": "loop.csv"}.items():
        (home / name).symlink_to(home / target)
    (home / "endless" / "model.npz").symlink_to("/dev/zero")
    with np.load(home / "out" / "model.npz") as arrays:
        changed = dict(arrays)
    changed["rows probability"] = changed["rows probability"][::-1]
    np.savez(home / "swapped" / "model.npz", **changed)
    return home


def contents(home):
    return {path.relative_to(home): path.lstat().st_mtime_ns for path in home.rglob("*")}


@pytest.mark.parametrize(("typed", "sentence"), SHELL, ids=[typed for typed, _ in SHELL])
def test_what_is_wrong_at_a_shell(shell, monkeypatch, typed, sentence):
    monkeypatch.chdir(shell)
    monkeypatch.setenv("COLUMNS", "1000")
    before = contents(shell)
    done = CliRunner().invoke(app, shlex.split(typed))
    assert done.exit_code == 2, done.output
    assert isinstance(done.exception, SystemExit)
    told = " ".join(done.stderr.split())
    assert any(each in told for each in sentence.split("|")), told
    assert "Traceback" not in done.output
    assert contents(shell) == before


def test_there_are_enough():
    assert len(PYTHON) + len(FILES) + len(ARRAYS) + len(SHELL) >= 400


# Files that decayed ---------------------------------------------------------------------------------------------------


def same(a, b):
    return a.keys() == b.keys() and all(
        np.array_equal(a[name], b[name], equal_nan=a[name].dtype.kind == "f") for name in a
    )


def answers(path):
    found = posterior.load(path)
    return {"p": found.probability(), "mean": found.label_mean()}


def model_answers(path):
    classifier, rows, _ = folder.read(path.parent)
    return {"p": classifier.label_distributions_, "names": np.array(rows.names)}


def spectrum_of(path):
    found = Spectrum.load(path)
    return {"values": found.values, "vectors": found.vectors}


def columns(path):
    return dict(read_table(path).columns)


def write_npz(path):
    np.savez_compressed(path, x=X[:, 0], k=np.array(["a", "b"])[np.arange(40) // 20])


def write_excel(path):
    from openpyxl import Workbook

    book = Workbook()
    for row in [["x", "k"], *([float(x), "ab"[i // 20]] for i, x in enumerate(X[:, 0]))]:
        book.active.append(row)
    book.save(path)


def draws():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return graphuq.sample(MU, M, n_steps=20, n_warmup=10, n_chains=2)


SEALED = {
    "spectrum.npz": (S.save, spectrum_of),
    "gaussian.npz": (P.save, answers),
    "draws.npz": (lambda path: draws().save(path), answers),
    "mixture.npz": (lambda path: posterior.Mixture((P, P), np.array([0.6, 0.4])).save(path), answers),
    "t.npz": (write_npz, columns),
    "t.xlsx": (write_excel, columns),
}


@pytest.mark.parametrize("name", SEALED)
def test_decayed_files_are_refused_or_say_the_same(tmp_path, name):
    write, read = SEALED[name]
    path, refused = tmp_path / name, 0
    write(path)
    whole, content = read(path), path.read_bytes()
    for each in decayed(content):
        path.write_bytes(each)
        found, told = attempt(read, path)
        refused += found is None
        assert same(found, whole) if found else name in told and "\n" not in told
    assert refused > 120


def test_a_column_that_a_flip_would_hide_is_missed(tmp_path):
    """A longer comment of the first member swallows the second in the list of members."""
    write_npz(tmp_path / "t.npz")
    content = bytearray((tmp_path / "t.npz").read_bytes())
    content[content.index(b"PK\x01\x02") + 32] = 8
    (tmp_path / "t.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"t\.npz"):
        read_table(tmp_path / "t.npz")


def test_a_decayed_model_is_refused_or_says_the_same(tmp_path, shell):
    path = tmp_path / "model.npz"
    content = (shell / "out" / "model.npz").read_bytes()
    path.write_bytes(content)
    whole, refused = model_answers(path), 0
    for each in decayed(content):
        path.write_bytes(each)
        found, told = attempt(model_answers, path)
        refused += found is None
        assert same(found, whole) if found else "or is damaged" in told or "its checksum differs" in told
    assert refused > 120


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_decayed_tables_are_read_or_refused_in_one_sentence(tmp_path, name):
    """Nothing tells that a digit of a text file has changed; but nothing worse than a sentence comes of it."""
    path = tmp_path / name
    if name == "t.csv":
        path.write_text(TABLE)
    else:
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.table({"x": X[:, 0], "k": ["ab"[i // 20] for i in range(40)]}), path)
    content = path.read_bytes()
    for each in decayed(content):
        path.write_bytes(each)
        found, told = attempt(columns, path)
        assert found or (name in told and "\n" not in told)
