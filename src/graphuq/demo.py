"""The voting records of 1984: five labels in; three models, 435 answers, how sure they are, and a report out."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from graphuq import __version__, datasets
from graphuq.estimator import GraphClassifier
from graphuq.files import refuse_irregular, whole_file
from graphuq.report.content import Rows, collect
from graphuq.report.figures import overview
from graphuq.report.page import GENERATOR, render
from graphuq.wording import percent

# The settings of the paper's Fig. 7.
MODELS: dict[str, dict[str, Any]] = {
    "probit": {"model": "probit", "gamma": 0.5},
    "level-set": {"model": "level_set", "gamma": 0.5},
    "Ginzburg-Landau": {"model": "ginzburg_landau", "gamma": 0.6, "epsilon": 10.0, "n_steps": 250},
}
TITLE = "House votes of 1984: 435 members, 5 known"
# The files, and what tells within their first bytes that they are ours.
MARKS = {"report.html": GENERATOR.encode(), "voting.png": b"Software\0graphuq "}


@dataclass(frozen=True)
class Line:
    """One model's result."""

    model: str
    accuracy: float
    mean_variance: float
    r_hat: float
    seconds: float


@dataclass(frozen=True)
class Member:
    """One member the probit model is unsure of; rows are counted from 1, as on the command line."""

    row: int
    probability: float
    error: float
    party: str


@dataclass(frozen=True)
class Demo:
    """What the demonstration found."""

    lines: list[Line]
    least_certain: list[Member]
    report: Path
    picture: Path

    def as_json(self) -> dict[str, Any]:
        """Plain numbers and text."""
        return {**asdict(self), "report": str(self.report), "picture": str(self.picture)}

    def as_text(self) -> str:
        """Two short tables, and where the report is."""
        table = [
            f"{name:<16}" + "".join(f"{cell:>10}" for cell in cells) for name, *cells in comparison(self.lines)
        ]
        unsure = [f"{'row':>5} {'P(Democrat)':>12} {'error':>7}  party"] + [
            f"{each.row:>5} {percent(each.probability):>12} {each.error:>7.3%}  {each.party}"
            for each in self.least_certain
        ]
        told = [*table, "", "The prior is the paper's; `graphuq fit` learns one from the labels."]
        told += ["", "The ten members the probit model is least sure of:", *unsure]
        return "\n".join([*told, "", f"Report: {self.report}", f"Picture: {self.picture}"])


def comparison(lines: list[Line]) -> list[tuple[str, ...]]:
    """The models as a table of text, its head first."""
    rows = [
        (
            line.model,
            f"{line.accuracy:.1%}",
            f"{line.mean_variance:.3f}",
            f"{line.r_hat:.3f}",
            f"{line.seconds:.1f}",
        )
        for line in lines
    ]
    return [("model", "accuracy", "Var(l)", "R-hat", "seconds"), *rows]


def few_labels(
    y: NDArray[np.int64], counts: dict[int, int], *, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """So many nodes of each class at random, with their labels."""
    rng = np.random.default_rng(seed)
    nodes = np.concatenate([rng.choice(np.flatnonzero(y == label), n, False) for label, n in counts.items()])
    return nodes, y[nodes]


def run(
    out: Path, *, seed: int = 0, tell: Callable[[str], None] = lambda line: None, progress: bool = False
) -> Demo:
    """Fit the three models to three Democrats and two Republicans; save a report of probit and a picture."""
    out.mkdir(parents=True, exist_ok=True)  # before any work, since it may fail
    _refuse_foreign(out)
    votes = datasets.voting_records()
    nodes, _ = few_labels(votes.y, {1: 3, -1: 2}, seed=seed)
    party = np.array([votes.class_names[int(label)] for label in votes.y], dtype=object)
    y = np.full(len(party), None, dtype=object)
    y[nodes] = party[nodes]
    unlabeled = np.setdiff1d(np.arange(len(y)), nodes)
    lines, fitted = [], {}
    for name, settings in MODELS.items():
        tell(f"sampling {name} ...")
        began = time.perf_counter()
        classifier = GraphClassifier(
            affinity="gaussian", width=1.25, prior="full", random_state=seed, verbose=progress, **settings
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the table shows R-hat
            fitted[name] = classifier.fit(votes.X, y)
        lines.append(
            Line(
                model=name,
                accuracy=float(np.mean(classifier.transduction_[unlabeled] == party[unlabeled])),
                mean_variance=classifier.posterior_.mean_label_variance(),
                r_hat=classifier.posterior_.diagnostics().worst_r_hat,
                seconds=time.perf_counter() - began,
            )
        )
    probit = fitted["probit"]
    tell("writing the report ...")
    report, picture = _write(out, probit, votes, lines, seed)
    statistics = probit.posterior_.labels()
    democrat = list(probit.classes_).index("Democrat")
    unsure = [
        Member(
            int(node) + 1,
            float(probit.label_distributions_[node, democrat]),
            float(statistics.error[node] / 2),
            party[node],
        )
        for node in probit.posterior_.most_uncertain(10)
    ]
    return Demo(lines, unsure, report, picture)


def _write(
    out: Path, probit: GraphClassifier, votes: datasets.Dataset, lines: list[Line], seed: int
) -> tuple[Path, Path]:
    """The report and the picture."""
    sign = {name: 2 * k - 1 for k, name in enumerate(probit.classes_)}
    rows = Rows(
        names=[f"member {row}" for row in range(1, len(votes.y) + 1)],
        columns=votes.feature_names or (),
        cells=[[{1: "yes", -1: "no", 0: "absent"}[int(vote)] for vote in member] for member in votes.X],
        truth=np.array([sign[votes.class_names[int(label)]] for label in votes.y]),
    )
    page = render(
        collect(
            probit, rows, title=TITLE, settings={"data": votes.source, "seed": seed}, comparison=comparison(lines)
        )
    )
    labels = probit.labels_
    figure = overview(
        probit.spectrum_,
        probit.posterior_.label_mean(),
        labeled=labels.nodes,
        y=labels.y,
        prior_draw=probit.posterior_.whitening.prior.sample(seed=seed)[0],
        title=TITLE,
    )
    report, picture = (out / name for name in MARKS)
    with whole_file(report) as part:
        part.write_text(page, encoding="utf-8")
    with whole_file(picture) as part:
        figure.savefig(part, format="png", dpi=130, metadata={"Software": f"graphuq {__version__}"})
    return report, picture


def _refuse_foreign(out: Path) -> None:
    """Replace only what an earlier demonstration, or report, wrote."""
    for name, mark in MARKS.items():
        path = out / name
        refuse_irregular(path)
        if not path.exists():
            continue
        with path.open("rb") as file:
            ours = mark in file.read(1000)
        if not ours:
            raise ValueError(f"{path} was not written by graphuq, so it is not replaced: choose another --out.")
