"""How far probabilities can be trusted: graphuq against other tools, row by row, over draws of labels.

A row is a data set, a number of labels, and whether a tenth of them is wrong. All tools see the same graph (the
Gaussian process sees the features behind it) and the same labels, and are judged on the nodes without a label. Tables,
whose classes overlap, and many classes are in tables.py.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import calibration_peers as peers
from experiments import problems, style
from experiments.ep_accuracy import label_probability
from experiments.experiment import Claim, Record, Trial
from experiments.hyperprior import build, choose_labels
from graphuq import laplacian, prior, spectrum
from graphuq.calibration import Reliability, accuracy, brier, error_detection_auroc, log_loss, reliability
from graphuq.graph import Graph
from graphuq.learning import Learned, learn
from graphuq.models import Probit
from graphuq.posterior import GaussianPosterior
from graphuq.posterior.left_out import suspicious_labels
from graphuq.spectrum import Spectrum

TITLE = "accuracy and calibration of graphuq against other tools"
OURS = "graphuq, learned"
VARIANTS = ("graphuq, learned, with label noise", "graphuq, learned, peak alone")
MEASURES = ("accuracy", "log_loss", "brier", "ece", "auroc")
# Whose reliability diagrams are drawn.
DRAWN = (OURS, "paper's prior, 300 modes", "paper's prior, all modes", "LabelSpreading", "Laplace, WNLL + T")
NAMES = {
    "mnist 49": "MNIST 4/9",
    "mnist 49 thin": "MNIST 4/9, 9s thinned",
    "mnist 38": "MNIST 3/8",
    "mnist 38 thin": "MNIST 3/8, 8s thinned",
    "voting": "voting",
    "moons 0.06 knn": "two moons",
    "digits 39": "digits 3/9",
    "cancer": "breast cancer",
}


@dataclass(frozen=True)
class Config:
    """What is run.

    Attributes:
        data: see `NAMES`; the pair of scikit-learn's digits is one that the hyperprior was not chosen by.
        n_labels: numbers of labels, drawn at random with both classes among them.
        flipped: shares of labels that are made wrong.
        n_draws: draws of labels a row.
        n_modes: eigenvectors for the learned prior.
        modes_of_paper: numbers of modes of the paper's prior; None for all.
        gamma: noise of the labels under the paper's prior.
        doublings: numbers of modes between which probabilities are compared, on MNIST 4/9 with 160 labels.
        graphlearning: whether GraphLearning's methods are among the peers.
    """

    data: tuple[str, ...] = tuple(NAMES)
    n_labels: tuple[int, ...] = (10, 40, 160)
    flipped: tuple[float, ...] = (0.0, 0.1)
    n_draws: int = 10
    n_modes: int = 300
    modes_of_paper: tuple[int | None, ...] = (50, 300, None)
    gamma: float = 0.1
    doublings: tuple[int, ...] = (150, 300, 600)
    n_draws_of_doublings: int = 5
    graphlearning: bool = True


FULL = Config()
QUICK = Config(
    data=("voting", "digits 39", "cancer"),
    n_labels=(10, 40),
    n_draws=2,
    n_draws_of_doublings=0,
    graphlearning=find_spec("graphlearning") is not None,
)


def trials(config: Config) -> list[Trial]:
    """Draws of labels for every row, data by data in turn so that processes do not wait for one spectrum."""
    rows = [
        {"data": data, "n_labels": n_labels, "flipped": flipped, "seed": seed}
        for n_labels in config.n_labels
        for flipped in config.flipped
        for seed in range(config.n_draws)
        for data in config.data
    ]
    return rows + [{"doublings": True, "seed": seed} for seed in range(config.n_draws_of_doublings)]


def run(config: Config, trial: Trial) -> dict[str, Any]:
    """Every method on one draw of labels."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of labels that decide little, which is the point
        return _doublings(config, trial["seed"]) if "doublings" in trial else _row(config, trial)


def _row(config: Config, trial: Trial) -> dict[str, Any]:
    y, graph, modes = task(trial["data"], config)
    nodes, labels = choose_labels(y, trial["n_labels"], trial["flipped"], trial["seed"])
    few = modes.truncate(min(config.n_modes, modes.n_modes))
    learned = learn(few, Probit(nodes, labels), hyperprior=problems.GRAPH_ALONE)
    found = averaged(learned)
    for n_modes in config.modes_of_paper:
        name = f"paper's prior, {'all' if n_modes is None else n_modes} modes"
        if modes.n_components == 1:
            believed = prior.project(modes, n_modes=None if n_modes is None else min(n_modes, modes.n_modes))
            found[name] = label_probability(believed, Probit(nodes, labels, gamma=config.gamma))[1]
    assert graph.features is not None
    found["Gaussian process"] = peers.gaussian_process(graph.features.points, nodes, labels)
    for name, score in peers.scorers(graph, graphlearning=config.graphlearning).items():
        whole = score(nodes, labels)
        if name != "Poisson":  # its scores have no scale
            found[name] = np.clip((1 + whole) / 2, 0, 1)
        found[f"{name} + T"] = peers.tempered(score, nodes, labels, whole, seed=trial["seed"])
    rest = np.setdiff1d(np.arange(len(y)), nodes)
    suspicious = suspicious_labels(learned.posterior)
    wrong = suspicious.y != (y[suspicious.nodes] > 0)
    return {
        **trial,
        "scores": {name: measure(p[rest], y[rest]) for name, p in found.items()},
        "bins": {name: _bins(found[name][rest], y[rest]) for name in DRAWN if name in found},
        "wrong_label_auroc": _auroc(suspicious.probability, wrong) if wrong.any() else None,
    }


@lru_cache(maxsize=1)
def task(data: str, config: Config) -> tuple[NDArray[np.int64], Graph, Spectrum]:
    """True labels, graph and all eigenpairs; computed once, kept beside the trials."""
    y, graph = build(data)
    return y, graph, problems.cached(f"calibration {data}", lambda: spectrum.dense(laplacian.normalized(graph)))


def averaged(learned: Learned) -> dict[str, NDArray[np.float64]]:
    """P(+1) at every node: of the sign of u, of a label with its noise, and at the highest peak alone."""
    peak = GaussianPosterior.of(learned.prior, learned.model)
    found = {
        OURS: learned.posterior.classes(noise=False),
        VARIANTS[0]: learned.posterior.classes(),
        VARIANTS[1]: peak.classes(noise=False),
    }
    return {name: each.probability[:, 1] for name, each in found.items()}


def measure(probability: NDArray[np.float64], truth: NDArray[np.int64]) -> list[float]:
    """In the order of `MEASURES`."""
    return [
        accuracy(probability, truth),
        log_loss(probability, truth),
        brier(probability, truth),
        reliability(probability, truth).ece,
        error_detection_auroc(probability, truth),
    ]


def _bins(probability: NDArray[np.float64], truth: NDArray[np.int64]) -> list[list[float]]:
    """Nodes, summed confidence and right answers in each bin, to be pooled over draws."""
    found = reliability(probability, truth)
    counts = found.counts.astype(float)
    return [list(counts), *(list(counts * np.nan_to_num(each)) for each in (found.confidence, found.frequency))]


def _auroc(suspicion: NDArray[np.float64], wrong: NDArray[np.bool_]) -> float:
    """The chance that a wrong label is more suspicious than a right one, equals counting half."""
    pairs = suspicion[wrong][:, None] - suspicion[~wrong][None]
    return float(np.mean((pairs > 0) + (pairs == 0) / 2))


def _doublings(config: Config, seed: int) -> dict[str, Any]:
    """Mean change of P(+1) from each number of modes to the next, learned and under the paper's prior."""
    y, _, modes = task("mnist 49", config)
    nodes, labels = choose_labels(y, 160, 0.0, seed)
    model = Probit(nodes, labels, gamma=config.gamma)
    found = {
        "learned": [_learned_probability(modes.truncate(n), model) for n in config.doublings],
        "paper": [label_probability(prior.project(modes, n_modes=n), model)[1] for n in config.doublings],
    }
    rest = np.setdiff1d(np.arange(len(y)), nodes)
    return {name: [_change(a[rest], b[rest]) for a, b in pairwise(p)] for name, p in found.items()}


def _learned_probability(modes: Spectrum, model: Probit) -> NDArray[np.float64]:
    found = learn(modes, model, hyperprior=problems.GRAPH_ALONE).posterior
    return found.classes(noise=False).probability[:, 1]


def _change(before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
    return float(np.abs(after - before).mean())


def summarize(config: Config, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Means and standard errors over draws for each row; bins pooled over data and draws."""
    rows, doublings = [], [result for result in results if "learned" in result]
    drawn = [result for result in results if "scores" in result]
    keys = [(data, n, share) for data in config.data for n in config.n_labels for share in config.flipped]
    for data, n_labels, flipped in keys:
        mine = [
            result
            for result in drawn
            if (result["data"], result["n_labels"], result["flipped"]) == (data, n_labels, flipped)
        ]
        aurocs = [result["wrong_label_auroc"] for result in mine if result["wrong_label_auroc"] is not None]
        rows.append(
            {
                "data": data,
                "n_labels": n_labels,
                "flipped": flipped,
                "scores": {name: _moments([each["scores"][name] for each in mine]) for name in mine[0]["scores"]},
                "wrong_label_auroc": mean_and_error(aurocs) if aurocs else None,
            }
        )
    bins: dict[str, Any] = {}
    for result in drawn:
        for name, each in result["bins"].items():
            setting = bins.setdefault(f"{result['n_labels']} {result['flipped']}", {})
            setting[name] = np.add(setting.get(name, 0.0), each)
    changes = {
        name: [mean_and_error([each[name][i] for each in doublings]) for i in range(len(config.doublings) - 1)]
        for name in ("learned", "paper")
        if doublings
    }
    return {"rows": rows, "bins": bins, "doublings": changes}


def mean_and_error(values: Any) -> list[float | None]:
    """Mean over draws and its standard error, which one draw does not have."""
    x = np.asarray(values, dtype=float)
    return [float(x.mean()), float(x.std(ddof=1) / np.sqrt(x.size)) if x.size > 1 else None]


def _moments(scores: list[list[float]]) -> dict[str, list[float | None]]:
    """Mean and standard error of each measure; a draw in which it does not exist is left out."""
    columns = np.array(scores, dtype=float).T
    return {
        name: mean_and_error(column[np.isfinite(column)]) if np.isfinite(column).any() else [None, None]
        for name, column in zip(MEASURES, columns, strict=True)
    }


def is_ours(method: str) -> bool:
    """Whether a method is graphuq's, learned or with the paper's prior."""
    return method.startswith(("graphuq", "paper's"))


def contest(row: dict[str, Any], name: str) -> tuple[str, float, float, float]:
    """The best other tool of a row by one measure: its name, its mean, ours, and the larger standard error."""
    rivals = {key: each[name] for key, each in row["scores"].items() if not is_ours(key)}
    sign = -1 if name in ("accuracy", "auroc") else 1
    best = min((key for key, each in rivals.items() if each[0] is not None), key=lambda key: sign * rivals[key][0])
    ours = row["scores"][OURS][name]
    return best, rivals[best][0], ours[0], max(ours[1] or 0.0, rivals[best][1] or 0.0)


def claims(record: Record) -> list[Claim]:
    """For every row: best in log-loss and ECE, accuracy within a standard error of the best."""
    found = []
    for row in record.values["rows"]:
        parts, won = [], []
        for name, word in (("log_loss", "log-loss"), ("ece", "ECE"), ("accuracy", "accuracy")):
            best, theirs, ours, error = contest(row, name)
            good = ours >= theirs - error if name == "accuracy" else ours <= theirs
            won.append(good)
            parts.append(f"{word} {ours:.3f} (best other: {theirs:.3f}, {best}){'' if good else ' *'}")
        wrong = ", a tenth of them wrong" if row["flipped"] else ""
        found.append(
            Claim(
                what=f"{NAMES[row['data']]}, {row['n_labels']} labels{wrong}: best in log-loss and ECE, accuracy "
                "within a standard error of the best",
                paper="not in the paper",
                ours="; ".join(parts),
                agrees=None,
                note="" if all(won) else "Not met where marked *.",
            )
        )
    return found


def draw(record: Record) -> Any:
    """Reliability diagrams above, log-loss and ECE of every row below."""
    values, config = record.values, record.config
    settings = [f"{n} {config['flipped'][0]}" for n in config["n_labels"]]
    n_rows = len(values["rows"])
    figure, _ = style.subplots(size=(9.5, 4.1 + 0.15 * n_rows))
    figure.clear()
    above, below = figure.subfigures(2, 1, height_ratios=[3.4, 0.7 + 0.15 * n_rows])
    axes = above.subplots(1, len(settings), sharey=True, squeeze=False)[0]
    for ax, setting in zip(axes, settings, strict=True):
        _reliability(ax, values["bins"][setting], f"{setting.split()[0]} labels, all data")
    _dots(below, values["rows"])
    return figure


# Below, a log scale would show differences between answers that are all sure and all right.
LEAST_SHOWN = 1e-3
COLORS = {
    OURS: style.BLUE,
    "paper's prior, 300 modes": style.SKY,
    "paper's prior, all modes": style.PURPLE,
    "LabelSpreading": style.ORANGE,
    "Laplace, WNLL + T": style.VERMILION,
}


def pooled(bins: list[list[float]]) -> Reliability:
    """The diagram of summed bins."""
    counts, confidence, right = np.array(bins)
    kept = np.maximum(counts, 1)
    edges = np.linspace(0.5, 1, len(counts) + 1)
    ece = float(np.abs(confidence - right).sum() / counts.sum())
    return Reliability(edges, confidence / kept, right / kept, counts.astype(np.int64), ece)


def _reliability(ax: Any, bins: dict[str, Any], title: str) -> None:
    for name, marker in zip(DRAWN, "osD^v", strict=True):
        if name in bins:
            found = pooled(bins[name])
            shown = found.counts >= 20  # fewer say nothing of a frequency
            label = f"{name}: {found.ece:.3f}"
            line = {"marker": marker, "markersize": 4, "linewidth": 1.2, "color": COLORS[name]}
            ax.plot(found.confidence[shown], found.frequency[shown], label=label, **line)
    ax.plot([0.5, 1], [0.5, 1], "--", color=style.GRAY, linewidth=0.8)
    ax.set(title=title, xlabel="confidence", ylabel="share right", xlim=(0.49, 1.01), ylim=(0.3, 1.01))
    ax.legend(title="ECE of all nodes pooled", fontsize=6, title_fontsize=6, loc="lower right")


def _dots(figure: Any, rows: list[dict[str, Any]]) -> None:
    """A line a row: ours, the best other tool, and all the others."""
    names = [f"{NAMES[row['data']]}, {row['n_labels']}{', 10% wrong' if row['flipped'] else ''}" for row in rows]
    place = np.arange(len(rows))[::-1]
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (name, word) in zip(axes, (("log_loss", "log-loss"), ("ece", "ECE")), strict=True):
        for row, y in zip(rows, place, strict=True):
            others = [each[name][0] for key, each in row["scores"].items() if not is_ours(key)]
            first = y == place[0]
            ax.plot(np.maximum(others, LEAST_SHOWN), [y] * len(others), "|", color="0.6", markersize=4)
            _, theirs, ours, _ = contest(row, name)
            for value, marker, color, label in (
                (theirs, "s", style.VERMILION, "best other"),
                (ours, "o", style.BLUE, OURS),
            ):
                at = max(value, LEAST_SHOWN)
                ax.plot(at, y, marker, color=color, markersize=4, label=label if first else None)
        ax.set(xlabel=f"{word}, at least {LEAST_SHOWN}", xscale="log", ylim=(-0.7, len(rows) - 0.3))
        ax.set_yticks(place, names, fontsize=6)
    axes[0].legend(loc="upper left", fontsize=6)
