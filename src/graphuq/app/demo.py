"""Two data sets that need no download in; the classes of all rows from a few labels, how sure they are, and reports out.

The voting records of 1984 from five labels, by four models; and handwritten digits, ten classes, from five of each.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from graphuq import __version__, datasets, uncertainty
from graphuq.app.report.content import Content, TableRows, collect
from graphuq.app.report.page import GENERATOR, render
from graphuq.app.report.palette import colors
from graphuq.app.report.plots import sureness
from graphuq.app.wording import percent
from graphuq.estimator import GraphClassifier
from graphuq.files import refuse_irregular, whole_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The prior that `graphuq fit` learns; then that of the paper, with the settings of its Fig. 7.
_PAPER: dict[str, Any] = {"graph": "gaussian", "width": 1.25, "prior": "full"}
MODELS: dict[str, dict[str, Any]] = {
    "probit, learned": {},
    "probit": {**_PAPER, "gamma": 0.5},
    "level-set": {**_PAPER, "model": "level_set", "gamma": 0.5},
    "Ginzburg-Landau": {**_PAPER, "model": "ginzburg_landau", "gamma": 0.6, "epsilon": 10.0, "n_steps": 100},
}
MIDDLE = "#c8c8c4"
VOTES = "Party of 435 members of the House of 1984, from 5 known"
DIGITS = "1,797 handwritten digits, from 5 of each known"
# The files, and what tells within their first bytes that they are ours.
_PAGE, _PICTURE = GENERATOR.encode(), b"Software\0graphuq "
MARKS = {"report.html": _PAGE, "voting.png": _PICTURE, "digits.html": _PAGE, "digits.png": _PICTURE}


@dataclass(frozen=True)
class Line:
    """One model's result; without draws there is no R-hat."""

    model: str
    accuracy: float
    mean_variance: float
    r_hat: float | None
    seconds: float


@dataclass(frozen=True)
class Member:
    """One member whose party is least sure; rows are counted from 1, as on the command line."""

    row: int
    probability: float
    party: str


@dataclass(frozen=True)
class Demo:
    """What the demonstration found."""

    lines: list[Line]
    least_certain: list[Member]
    digits_accuracy: float
    files: list[Path]

    def as_json(self) -> dict[str, Any]:
        """Plain numbers and text."""
        return {**asdict(self), "files": [str(file) for file in self.files]}

    def as_text(self) -> str:
        """Two short tables, a sentence, and where the reports are."""
        table = [
            f"{name:<16}" + "".join(f"{cell:>10}" for cell in cells) for name, *cells in comparison(self.lines)
        ]
        return "\n".join([
            VOTES, *table, "",
            "The first learns its prior from the labels, as `graphuq fit` does; the others have",
            "that of the paper. The ten members the first is least sure of:",
            f"{'row':>5} {'P(Democrat)':>12}  party",
            *(f"{each.row:>5} {percent(each.probability):>12}  {each.party}" for each in self.least_certain), "",
            DIGITS, f"right: {self.digits_accuracy:.1%}", "",
            *(f"written: {file}" for file in self.files),
        ])  # fmt: skip


def comparison(lines: list[Line]) -> list[tuple[str, str, str, str, str]]:
    """The models as a table of text, its head first."""
    found = [("model", "accuracy", "Var(l)", "R-hat", "seconds")]
    for line in lines:
        r_hat = "no draws" if line.r_hat is None else f"{line.r_hat:.3f}"
        found.append(
            (line.model, f"{line.accuracy:.1%}", f"{line.mean_variance:.3f}", r_hat, f"{line.seconds:.1f}")
        )
    return found


def run(
    out: Path, *, seed: int = 0, tell: Callable[[str], None] = lambda line: None, progress: bool = False
) -> Demo:
    """Classify the House from three Democrats and two Republicans, and the digits; save a report and a picture of each."""
    out.mkdir(parents=True, exist_ok=True)  # before any work, since it may fail
    _refuse_foreign(out)
    votes = datasets.voting_records()
    party = np.array([votes.class_names[int(label)] for label in votes.y])
    known, _ = datasets.few_labels(votes.y, {1: 3, -1: 2}, seed=seed)
    fitted, lines = {}, []
    for name, settings in MODELS.items():
        tell(f"{name} ...")
        began = time.perf_counter()
        classifier = GraphClassifier(random_state=seed, verbose=progress, **settings)
        accuracy = _fit(classifier, votes.X, party, known)
        fitted[name], posterior = classifier, classifier.posterior_
        r_hat = getattr(posterior.diagnostics(), "worst_r_hat", None)
        seconds = time.perf_counter() - began
        lines.append(Line(name, accuracy, posterior.mean_label_variance(), r_hat, seconds))
    house = fitted[next(iter(MODELS))]
    rows = TableRows(
        names=[f"member {row}" for row in range(1, len(party) + 1)],
        columns=votes.feature_names or (),
        cells=[[{1: "yes", -1: "no", 0: "absent"}[int(vote)] for vote in member] for member in votes.X],
        truth=np.searchsorted(house.classes_, party),
    )
    settings = {"data": votes.source, "seed": seed}
    page = collect(house, rows, title=VOTES, settings=settings, comparison=comparison(lines))
    files = _write(page, _map(house, VOTES), out / "report.html", out / "voting.png")
    tell("digits ...")
    accuracy, more = _digits(out, seed, progress)
    democrat = list(house.classes_).index("Democrat")
    unsure = [
        Member(int(node) + 1, float(house.label_distributions_[node, democrat]), str(party[node]))
        for node in house.most_uncertain(10)
    ]
    return Demo(lines, unsure, accuracy, files + more)


def _fit(classifier: GraphClassifier, X: Any, truth: NDArray[Any], known: NDArray[np.int64]) -> float:
    """Fit with the classes of some rows alone; the share of the others that is right."""
    y = np.full(len(truth), None, dtype=object)
    y[known] = truth[known]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the table shows R-hat
        classifier.fit(X, y)
    others = np.setdiff1d(np.arange(len(truth)), known)
    return float(np.mean(classifier.transduction_[others] == truth[others]))


def _digits(out: Path, seed: int, progress: bool) -> tuple[float, list[Path]]:
    """The 8 x 8 digits that come with scikit-learn."""
    from sklearn.datasets import load_digits

    found = load_digits()
    known, _ = datasets.few_labels(found.target, dict.fromkeys(range(10), 5), seed=seed)
    classifier = GraphClassifier(random_state=seed, verbose=progress)
    accuracy = _fit(classifier, found.data, found.target, known)
    rows = TableRows(
        names=[f"digit {row}" for row in range(1, len(found.target) + 1)],
        pictures=(found.images * (255 / 16)).astype(np.uint8),
        truth=found.target,
    )
    source = (
        "Optical Recognition of Handwritten Digits (1998), UCI Machine Learning Repository, doi:10.24432/C50P49."
    )
    page = collect(classifier, rows, title=DIGITS, settings={"data": source, "seed": seed})
    return accuracy, _write(page, _map(classifier, DIGITS), out / "digits.html", out / "digits.png")


def _write(page: Content, figure: Figure, report: Path, picture: Path) -> list[Path]:
    """The report and the picture of a fit."""
    text = render(page)
    with whole_file(report) as part:
        part.write_text(text, encoding="utf-8")
    with whole_file(picture) as part:
        figure.savefig(part, format="png", dpi=130, metadata={"Software": f"graphuq {__version__}"})
    return [report, picture]


def _map(classifier: GraphClassifier, title: str) -> Figure:
    """All rows in the plane, similar ones near each other: what was known, and what was found, faded where unsure.

    Two eigenvectors cannot show ten classes: the first eleven are laid out flat, so that neighbors stay neighbors.
    """
    from matplotlib.figure import Figure
    from sklearn.manifold import TSNE

    p, labels, modes = classifier.label_distributions_, classifier.labels_, classifier.spectrum_
    first, n_classes = modes.n_components, len(classifier.classes_)
    position = modes.vectors[:, first : first + n_classes + 1] * np.sqrt(len(p))
    place = TSNE(init="pca", random_state=0, max_iter=400).fit_transform(position)
    figure = Figure(figsize=(13, 6), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.scatter(*place.T, s=10, color="#dedede")
    right.scatter(*place.T, s=10, c=faded(p))
    for k, (name, color) in enumerate(zip(classifier.classes_, colors(n_classes), strict=True)):
        mine = place[labels.nodes[labels.y == k]]
        for axes in (left, right):
            axes.scatter(*mine.T, s=70, color=color, edgecolors="black", linewidths=1.2, label=str(name))
    for axes, told in ((left, "Known before"), (right, "Found: the paler, the less sure")):
        axes.set(title=told, xticks=[], yticks=[])
    right.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    figure.suptitle(title)
    return figure


def faded(p: NDArray[Any]) -> NDArray[np.float64]:
    """The color of the likeliest class, mixed with gray where it is unsure, shape (n_nodes, 3)."""
    from matplotlib.colors import to_rgb

    sure = sureness(uncertainty.confidence(p), p.shape[1])[:, None]
    pure = np.array([to_rgb(each) for each in colors(p.shape[1])])[uncertainty.most_probable(p)]
    return np.asarray(np.clip(sure * pure + (1 - sure) * to_rgb(MIDDLE), 0, 1))


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
