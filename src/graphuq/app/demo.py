"""Two data sets that need no download in; class probabilities of all rows from a few labels, with reports, out.

The voting records of 1984 from five labels, with four models; and handwritten digits from five labels per class.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
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
from graphuq.files import refuse_irregular, whole_file, write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# First the learned prior of `graphuq fit`, then the paper's prior, with the settings of its Fig. 7.
_PAPER: dict[str, Any] = {"graph": "gaussian", "width": 1.25, "prior": "full"}
MODELS: dict[str, dict[str, Any]] = {
    "probit, learned": {},
    "probit": {**_PAPER, "gamma": 0.5},
    "level-set": {**_PAPER, "model": "level_set", "gamma": 0.5},
    "Ginzburg-Landau": {**_PAPER, "model": "ginzburg_landau", "gamma": 0.6, "epsilon": 10.0, "n_steps": 100},
}
VOTES = "Party of 435 members of the House of 1984, from 5 known"
DIGITS = "1,797 handwritten digits, from 5 of each known"
# The files, and the bytes near their beginning that identify them as ours.
_PAGE, _PICTURE = GENERATOR.encode(), b"Software\0graphuq "
MARKS = {"report.html": _PAGE, "voting.png": _PICTURE, "digits.html": _PAGE, "digits.png": _PICTURE}


def in_words(found: dict[str, Any]) -> str:
    """What `run` found, as text: two short tables, the accuracy on digits, and the files written."""
    models = [("model", "accuracy", "Var(l)", "R-hat", "seconds")]
    for each in found["models"]:
        r_hat = "no draws" if each["r_hat"] is None else f"{each['r_hat']:.3f}"
        variance, seconds = f"{each['mean_variance']:.3f}", f"{each['seconds']:.1f}"
        models.append((each["model"], f"{each['accuracy']:.1%}", variance, r_hat, seconds))
    return "\n".join([
        VOTES,
        *(f"{name:<16}" + "".join(f"{cell:>10}" for cell in cells) for name, *cells in models), "",
        "The first learns its prior from the labels, as `graphuq fit` does; the others have",
        "that of the paper. Var(l) is the mean uncertainty, from 0 to 1, of the function",
        "behind the labels; that in the report is larger, as it counts their noise too.",
        "R-hat near 1 means that the chains of draws agree.", "",
        "The ten members that the first is least sure of:",
        f"{'row':>5} {'P(Democrat)':>12}  party",
        *(f"{each['row']:>5} {percent(each['probability']):>12}  {each['party']}" for each in found["least_certain"]),
        "", DIGITS, f"right: {found['digits_accuracy']:.1%}", "",
        *(f"written: {file}" for file in found["files"]),
    ])  # fmt: skip


def run(
    out: Path, *, seed: int = 0, tell: Callable[[str], None] = lambda line: None, progress: bool = False
) -> dict[str, Any]:
    """Classify the House from three Democrats and two Republicans, and the digits; save reports and plots."""
    out.mkdir(parents=True, exist_ok=True)  # first, because it may fail
    _refuse_foreign(out)
    votes = datasets.voting_records()
    party = np.array([votes.class_names[int(label)] for label in votes.y])
    known, _ = datasets.few_labels(votes.y, {1: 3, -1: 2}, seed=seed)
    fitted, models = {}, []
    for name, settings in MODELS.items():
        tell(f"{name} ...")
        began = time.perf_counter()
        classifier = GraphClassifier(random_state=seed, verbose=progress, **settings)
        accuracy = _fit(classifier, votes.X, party, known)
        fitted[name], posterior = classifier, classifier.posterior_
        models.append(
            {
                "model": name,
                "accuracy": accuracy,
                "mean_variance": posterior.mean_label_variance(),
                "r_hat": getattr(posterior.diagnostics(), "worst_r_hat", None),  # None without draws
                "seconds": time.perf_counter() - began,
            }
        )
    house = fitted[next(iter(MODELS))]
    rows = TableRows(
        names=[f"member {row}" for row in range(1, len(party) + 1)],
        columns=votes.feature_names or (),
        cells=[[{1: "yes", -1: "no", 0: "absent"}[int(vote)] for vote in member] for member in votes.X],
        truth=np.searchsorted(house.classes_, party),
    )
    content = collect(house, rows, title=VOTES, settings={"data": votes.source, "seed": seed})
    files = _write(content, _map(house, VOTES), out / "report.html", out / "voting.png")
    tell("digits ...")
    accuracy, digit_files = _digits(out, seed, progress)
    p = house.label_distributions_[:, list(house.classes_).index("Democrat")]
    return {
        "models": models,
        "least_certain": [  # rows are numbered from 1, as on the command line
            {"row": int(node) + 1, "probability": float(p[node]), "party": str(party[node])}
            for node in house.most_uncertain(10)
        ],
        "digits_accuracy": accuracy,
        "files": [str(file) for file in files + digit_files],
    }


def _fit(classifier: GraphClassifier, X: Any, truth: NDArray[Any], known: NDArray[np.int64]) -> float:
    """Fit with the classes of the known rows only; return the accuracy on the others."""
    y = np.full(len(truth), None, dtype=object)
    y[known] = truth[known]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the table shows R-hat
        classifier.fit(X, y)
    others = np.setdiff1d(np.arange(len(truth)), known)
    return float(np.mean(classifier.transduction_[others] == truth[others]))


def _digits(out: Path, seed: int, progress: bool) -> tuple[float, list[Path]]:
    """Classify the 8 x 8 digits of scikit-learn; return the accuracy and the files written."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    known, _ = datasets.few_labels(digits.target, dict.fromkeys(range(10), 5), seed=seed)
    classifier = GraphClassifier(random_state=seed, verbose=progress)
    accuracy = _fit(classifier, digits.data, digits.target, known)
    rows = TableRows(
        names=[f"digit {row}" for row in range(1, len(digits.target) + 1)],
        pictures=(digits.images * (255 / 16)).astype(np.uint8),
        truth=digits.target,
    )
    source = (
        "Optical Recognition of Handwritten Digits (1998), UCI Machine Learning Repository, doi:10.24432/C50P49."
    )
    content = collect(classifier, rows, title=DIGITS, settings={"data": source, "seed": seed})
    return accuracy, _write(content, _map(classifier, DIGITS), out / "digits.html", out / "digits.png")


def _write(page: Content, figure: Figure, report: Path, picture: Path) -> list[Path]:
    """Write the report and the plot of a fit."""
    write_text(report, render(page))
    with whole_file(picture) as part:
        figure.savefig(part, format="png", dpi=130, metadata={"Software": f"graphuq {__version__}"})
    return [report, picture]


def _map(classifier: GraphClassifier, title: str) -> Figure:
    """Plot all rows in the plane: the labels on the left, the predictions, paler where uncertain, on the right.

    Two eigenvectors cannot separate ten classes, so t-SNE embeds the first eleven.
    """
    from matplotlib.figure import Figure
    from sklearn.manifold import TSNE

    p, labels, modes = classifier.label_distributions_, classifier.labels_, classifier.spectrum_
    first, n_classes = modes.n_components, len(classifier.classes_)
    position = modes.vectors[:, first : first + n_classes + 1] * np.sqrt(len(p))
    points = TSNE(init="pca", random_state=0, max_iter=400).fit_transform(position)
    figure = Figure(figsize=(13, 6), layout="constrained")
    left, right = figure.subplots(1, 2)
    dots: dict[str, Any] = {"s": 22, "linewidths": 0}  # a pale edge over a pale dot would be a ring
    left.scatter(*points.T, color="#dedede", **dots)
    palette, found = colors(n_classes), uncertainty.most_probable(p)
    sure = 0.15 + 0.85 * sureness(uncertainty.confidence(p), n_classes)
    right.scatter(*points.T, c=[palette[k] for k in found], alpha=sure, **dots)
    for k, (name, color) in enumerate(zip(classifier.classes_, palette, strict=True)):
        labeled = points[labels.nodes[labels.y == k]]
        for axes in (left, right):
            axes.scatter(*labeled.T, s=70, color=color, edgecolors="black", linewidths=1.2, label=str(name))
    for axes, caption in ((left, "Known before"), (right, "Found: the paler, the less sure")):
        axes.set(title=caption, xticks=[], yticks=[])
    right.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    figure.suptitle(title)
    return figure


def _refuse_foreign(out: Path) -> None:
    """Raise an error if a file to be replaced was not written by an earlier demonstration or report."""
    for name, mark in MARKS.items():
        path = out / name
        refuse_irregular(path)
        if not path.exists():
            continue
        with path.open("rb") as file:
            ours = mark in file.read(1000)
        if not ours:
            raise ValueError(f"{path} was not written by graphuq, so it is not replaced: choose another --out.")
