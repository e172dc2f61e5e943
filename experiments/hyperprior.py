"""Public data in; how well the default hyperprior predicts, beside ones fitted to the data, out as JSON.

First, where the evidence of 40 and 160 labels peaks under next to no hyperprior. Then, for every task (a
data set, a number of labels, all right or a tenth of them wrong), a fixed cloud of hyper-parameters is
drawn from a wide proposal, and expectation propagation gives the evidence and the predictions at each.
Any hyperprior is then a reweighting of the cloud, so hyperpriors compare in milliseconds: by the log-loss
of the averaged predictions, of the sign of u and with the noise of the labels included. A hyperprior
fitted with one data set left out is judged on that data set.

    python -m experiments.hyperprior --out docs/reproduction/hyperprior.json --jobs 16   # some 20 core-minutes
    python -m experiments.hyperprior --out hyperprior.json --quick                       # the small data, few draws

Tables, whose classes overlap, are judged in tables.py.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import Bounds, minimize
from scipy.stats import norm, qmc
from sklearn.datasets import load_breast_cancer, load_digits
from threadpoolctl import threadpool_limits

from graphuq import __version__, datasets, graph, laplacian, spectrum
from graphuq.learning import Hyperprior, LogNormal
from graphuq.learning.averaging import climb
from graphuq.learning.evidence import Point, constant_first, problems
from graphuq.learning.hyperprior import BOUNDS, Family
from graphuq.models import Probit
from graphuq.spectrum import Spectrum

# The prior of the graph alone: what features say in a straight line is judged elsewhere, on tables.
DEFAULT = Hyperprior(linear=None)
# The numbers that it leaves open, in the order of theta.
LEARNED = tuple(
    name for name in BOUNDS if isinstance(each := getattr(DEFAULT, name), LogNormal) and each.factor > 1
)
# The proposal: wide enough to hold every peak of the evidence of 40 and 160 labels seen on these data.
PROPOSAL = replace(DEFAULT, n_effective=None, constant_alone=None)
# Next to no hyperprior: it only keeps peaks from running away where labels are separable.
WEAK = replace(PROPOSAL, **{name: replace(getattr(DEFAULT, name), factor=55.0) for name in LEARNED})


@dataclass(frozen=True)
class Config:
    """What is run."""

    tasks: tuple[str, ...] = (
        "voting", "cancer", "moons 0.06", "moons 0.1", "mnist 49", "mnist 49 thin", "mnist 38", "mnist 38 thin",
        "mnist 06", "mnist 57", "mnist 57 thin", "mnist 17", "mnist 23", "mnist 58 thin", "digits 49",
        "digits 38", "digits 17", "digits 89", "digits 35 thin", "digits 18 thin", "digits even", "digits 8",
    )  # fmt: skip
    # (labels, share of them flipped, draws of labels, weight in the fit)
    settings: tuple[tuple[int, float, int, float], ...] = (
        (10, 0.0, 5, 1.0), (40, 0.0, 2, 1.0), (10, 0.1, 3, 0.5), (40, 0.1, 2, 0.5),
    )  # fmt: skip
    n_labels_of_peaks: tuple[int, ...] = (40, 160)
    n_points: int = 512
    n_test: int = 300
    n_modes: int = 300
    n_iterations: int = 10
    seed: int = 0


QUICK = Config(
    tasks=("voting", "cancer", "digits 49", "digits 38", "digits 18 thin"),
    settings=((10, 0.0, 2, 1.0), (10, 0.1, 2, 0.5)),
    n_labels_of_peaks=(40,),
    n_points=128,
    n_iterations=3,
)


@dataclass(frozen=True)
class Cloud:
    """One draw of labels, seen from every point of the cloud."""

    task: str
    setting: int
    theta: np.ndarray  # the open coordinates, (n_points, n_learned)
    log_modes: np.ndarray  # log of the effective number of modes, (n_points,)
    log_evidence: np.ndarray  # (n_points,)
    sign: np.ndarray  # probability of the true class by the sign of u, (n_points, n_test)
    noisy: np.ndarray  # the same with the noise of the labels included


def group(task: str) -> str:
    """The data set of a task, left out as a whole."""
    return task.split()[0]


def load(task: str, n_modes: int) -> tuple[Spectrum, np.ndarray]:
    """The spectrum and the true labels of a task."""
    y, weights = build(task)
    L = laplacian.normalized(weights)
    if isinstance(weights.weights, np.ndarray):
        return spectrum.dense(L, n_modes=min(n_modes, len(y))), y
    return spectrum.leading(L, n_modes=min(n_modes, len(y))), y


def build(task: str) -> tuple[np.ndarray, graph.Graph]:
    """The true labels and the graph of a task."""
    X, y = rows(task)
    kind, *rest = task.split()
    if kind == "voting":
        return y, graph.gaussian(X, tau=1.25)
    if kind == "moons" and rest[1:] != ["knn"]:
        return y, graph.self_tuning(X, n_neighbors=10)
    if kind == "mnist":
        return y, graph.knn(X, n_neighbors=20, n_components=50)
    return y, graph.knn(X, n_neighbors=10)


def rows(task: str) -> tuple[np.ndarray, np.ndarray]:
    """The features and the true labels of a task; "thin" cuts one class to a quarter."""
    kind, *rest = task.split()
    if kind == "voting":
        votes = datasets.voting_records()
        return votes.X, votes.y
    if kind == "moons":
        moons = datasets.two_moons(noise=float(rest[0]), seed=0)
        return moons.X, moons.y
    if kind == "mnist":
        pair = datasets.mnist_pair(int(rest[0][0]), int(rest[0][1]), n_per_digit=2000, seed=0)
        X, y = pair.X, pair.y
    elif kind == "cancer":
        X, target = load_breast_cancer(return_X_y=True)
        X, y = (X - X.mean(axis=0)) / X.std(axis=0), np.where(target == 1, 1, -1)
    else:
        X, y = _digits(rest[0])
    if rest[-1:] == ["thin"]:
        second = np.flatnonzero(y < 0)
        gone = np.random.default_rng(1).choice(second, 3 * len(second) // 4, replace=False)
        X, y = np.delete(X, gone, axis=0), np.delete(y, gone)
    return X, y


def _digits(which: str) -> tuple[np.ndarray, np.ndarray]:
    """A pair of digits, even against odd, or one digit against the rest."""
    X, digit = load_digits(return_X_y=True)
    if which == "even":
        return X, np.where(digit % 2 == 0, 1, -1)
    if len(which) == 1:
        return X, np.where(digit == int(which), 1, -1)
    first, second = int(which[0]), int(which[1])
    keep = np.isin(digit, (first, second))
    return X[keep], np.where(digit[keep] == first, 1, -1)


def choose_labels(y: np.ndarray, n_labels: int, flipped: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes at random with both classes among them, and their labels, some of them wrong."""
    rng = np.random.default_rng([n_labels, seed])
    nodes = rng.choice(len(y), n_labels, replace=False)
    while np.unique(y[nodes]).size < 2:
        nodes = rng.choice(len(y), n_labels, replace=False)
    labels = y[nodes].astype(float)
    if flipped:
        labels[rng.choice(n_labels, max(1, round(flipped * n_labels)), replace=False)] *= -1
    return nodes, labels


def peaks(modes: Spectrum, y: np.ndarray, config: Config) -> list[np.ndarray]:
    """Where the evidence peaks: logs of what is learned, and of the effective number of modes."""
    found = []
    for n_labels in config.n_labels_of_peaks:
        if n_labels > len(y) // 2:
            continue
        for seed in range(2):
            model = Probit(*choose_labels(y, n_labels, 0.0, seed))
            (problem,) = problems(constant_first(modes), model, None, WEAK)
            theta = climb(problem).theta
            found.append(np.append(theta[problem.family.free], np.log(problem.family.n_effective(theta))))
    return found


def draw_points(family: Family, config: Config) -> np.ndarray:
    """Points of the proposal, in an order in which neighbors are close so that fits start warm."""
    free = family.free
    uniform = qmc.Sobol(int(free.sum()), seed=config.seed).random(config.n_points)
    theta = np.tile(family.mean, (config.n_points, 1))
    theta[:, free] += family.deviation[free] * norm.ppf(np.clip(uniform, 1e-6, 1 - 1e-6))
    theta = np.clip(theta, family.lower, family.upper)
    return theta[np.lexsort(theta.T[::-1])]


def make_cloud(
    modes: Spectrum,
    y: np.ndarray,
    nodes: np.ndarray,
    labels: np.ndarray,
    *,
    config: Config,
    task: str,
    setting: int,
) -> Cloud:
    """Evidence and predictions at every point."""
    (problem,) = problems(constant_first(modes), Probit(nodes, labels), None, PROPOSAL)
    rest = np.setdiff1d(np.arange(len(y)), nodes)
    test = np.random.default_rng(config.seed).permutation(rest)[: config.n_test]
    truth = (np.arange(len(test)), (y[test] > 0).astype(int))
    theta = draw_points(problem.family, config)
    log_evidence, log_modes, sign, noisy = [], [], [], []
    point: Point | None = None
    for each in theta:
        point = problem.at(each, None if point is None else point.fit)
        posterior = problem.posterior(point)
        log_evidence.append(point.fit.log_evidence)
        log_modes.append(np.log(problem.family.n_effective(each)))
        sign.append(posterior.classes(test, noise=False).probability[truth])
        noisy.append(posterior.classes(test).probability[truth])
    arrays = (np.array(each) for each in (log_modes, log_evidence, sign, noisy))
    return Cloud(task, setting, theta[:, problem.family.free], *arrays)


def _moments(hyperprior: Hyperprior) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of the medians and of the factors of what is learned."""
    believed = [getattr(hyperprior, name) for name in LEARNED]
    return np.log([each.median for each in believed]), np.log([each.factor for each in believed])


def averaged(cloud: Cloud, hyperprior: Hyperprior) -> tuple[np.ndarray, np.ndarray]:
    """Probability of the true class at the test nodes, by the sign of u and with noise, averaged."""
    median, factor = _moments(hyperprior)
    wide_median, wide_factor = _moments(PROPOSAL)
    log_weights = cloud.log_evidence.copy()
    log_weights -= (((cloud.theta - median) / factor) ** 2).sum(axis=1) / 2
    log_weights += (((cloud.theta - wide_median) / wide_factor) ** 2).sum(axis=1) / 2
    if hyperprior.n_effective is not None:
        modes = hyperprior.n_effective
        log_weights -= ((cloud.log_modes - np.log(modes.median)) / np.log(modes.factor)) ** 2 / 2
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    return weights @ cloud.sign, weights @ cloud.noisy


def log_loss(probability: np.ndarray) -> float:
    """Mean of minus the log of the probability of the true class."""
    return float(-np.log(np.clip(probability, 1e-9, 1)).mean())


def loss(clouds: Iterable[Cloud], hyperprior: Hyperprior, config: Config) -> float:
    """Weighted mean log-loss of the predicted label, noise included, every task counting alike."""
    per_task: dict[str, dict[int, list[float]]] = {}
    for cloud in clouds:
        by_setting = per_task.setdefault(cloud.task, {})
        by_setting.setdefault(cloud.setting, []).append(log_loss(averaged(cloud, hyperprior)[1]))
    means = []
    for by_setting in per_task.values():
        weights = [config.settings[setting][3] for setting in by_setting]
        means.append(np.average([np.mean(each) for each in by_setting.values()], weights=weights))
    return float(np.mean(means))


def unpack(h: np.ndarray) -> Hyperprior:
    """Log medians and then log log factors, of what is learned and of the number of modes, as a hyperprior."""
    medians, factors = np.split(h, 2)
    pairs = zip(np.exp(medians), np.exp(np.exp(factors)), strict=True)
    believed = [LogNormal(float(median), float(factor)) for median, factor in pairs]
    return replace(DEFAULT, **dict(zip((*LEARNED, "n_effective"), believed, strict=True)))


def pack(hyperprior: Hyperprior) -> np.ndarray:
    """The inverse of `unpack`."""
    assert hyperprior.n_effective is not None
    median, factor = _moments(hyperprior)
    modes = hyperprior.n_effective
    return np.concatenate([median, [np.log(modes.median)], np.log(factor), [np.log(np.log(modes.factor))]])


def fit(clouds: list[Cloud], config: Config) -> Hyperprior:
    """The hyperprior of least log-loss on these clouds, drawn a little towards the default."""
    start = pack(DEFAULT)
    n = start.size // 2
    reach = np.concatenate([1.3 * np.exp(start[n:]), np.ones(n)])  # where the cloud has points

    def objective(h: np.ndarray) -> float:
        return loss(clouds, unpack(h), config) + 1e-3 * float(np.square((h - start) / reach).sum())

    bounds = Bounds(start - reach, start + np.where(np.arange(2 * n) < n, reach, 0.1))
    options: Any = {"maxiter": config.n_iterations}
    return unpack(minimize(objective, start, method="L-BFGS-B", bounds=bounds, options=options).x)


def table(clouds: list[Cloud], hyperprior: Hyperprior, config: Config) -> list[dict[str, float]]:
    """Mean log-loss for each number of labels, with and without the noise of the labels."""
    rows = []
    for setting, (n_labels, flipped, _, _) in enumerate(config.settings):
        chosen = [cloud for cloud in clouds if cloud.setting == setting]
        both = np.array([[log_loss(each) for each in averaged(cloud, hyperprior)] for cloud in chosen])
        names = [cloud.task for cloud in chosen]
        per_task = np.array([both[[name == task for name in names]].mean(axis=0) for task in dict.fromkeys(names)])
        sign, noisy = per_task.mean(axis=0)
        rows.append({"labels": n_labels, "flipped": flipped, "sign": float(sign), "with_noise": float(noisy)})
    return rows


def clouds_of(task: str, config: Config) -> tuple[list[Cloud], list[np.ndarray]]:
    """Every cloud of a task, and the peaks of its evidence; runs in a process of its own."""
    clouds = []
    with threadpool_limits(1):
        modes, y = load(task, config.n_modes)
        for setting, (n_labels, flipped, n_draws, _) in enumerate(config.settings):
            for seed in range(n_draws):
                nodes, labels = choose_labels(y, n_labels, flipped, seed)
                clouds.append(make_cloud(modes, y, nodes, labels, config=config, task=task, setting=setting))
        return clouds, peaks(modes, y, config)


def run(config: Config, report: Callable[[str], None] = lambda line: None, *, jobs: int = 1) -> dict[str, Any]:
    """All clouds, the default, the fit to everything, and the fits with one data set left out."""
    began = time.perf_counter()
    clouds: list[Cloud] = []
    tops: list[np.ndarray] = []
    context = multiprocessing.get_context("spawn")  # BLAS has threads, which do not survive a fork
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        for some, found in pool.map(clouds_of, config.tasks, [config] * len(config.tasks)):
            clouds += some
            tops += found
            report(f"{some[0].task}: {time.perf_counter() - began:.0f} s")
    everything = fit(clouds, config)
    left_out = {}
    for name in dict.fromkeys(group(task) for task in config.tasks):
        inside = [cloud for cloud in clouds if group(cloud.task) == name]
        fitted = fit([cloud for cloud in clouds if group(cloud.task) != name], config)
        left_out[name] = {
            label: loss(inside, each, config)
            for label, each in (("default", DEFAULT), ("fitted without it", fitted), ("fitted", everything))
        }
        report(f"{name} left out: {left_out[name]}")
    hyperpriors = {"default": DEFAULT, "without n_effective": PROPOSAL, "fitted": everything}
    return {
        "config": asdict(config),
        "peaks": {
            "of": [*LEARNED, "n_effective"],
            "median": np.exp(np.median(tops, axis=0)).tolist(),
            "factor": np.exp(np.std(tops, axis=0)).tolist(),
            "default": [getattr(DEFAULT, name).median for name in (*LEARNED, "n_effective")],
        },
        "tables": {name: table(clouds, each, config) for name, each in hyperpriors.items()},
        "fitted": asdict(everything),
        "left_out": left_out,
        "version": __version__,
        "seconds": time.perf_counter() - began,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    arguments = parser.parse_args()
    record = run(QUICK if arguments.quick else Config(), report=print, jobs=arguments.jobs)
    arguments.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
