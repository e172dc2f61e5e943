"""The records of calibration, ep_accuracy and hyperprior in; docs/calibration.md out: `python -m experiments.calibration_page`."""

from __future__ import annotations

import argparse
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from experiments import ep_accuracy, style
from experiments.calibration import MEASURES, NAMES, OURS, VARIANTS, contest
from experiments.experiment import Record
from experiments.runner import read_record
from graphuq.files import whole_file

RECORDS, PAGE = Path("docs/reproduction"), Path("docs/calibration.md")

HEAD = """# Can the probabilities be trusted?

A probability of 0.9 should be right nine times in ten. The paper fixes the prior by hand, and its probabilities often
are not: they change with the number of modes kept. graphuq learns the prior from the labels and averages over what the
labels leave open. This page compares both with other tools. It is made by `python -m experiments.calibration_page`
from the records of `python -m experiments calibration ep_accuracy --full` and `python -m experiments.hyperprior`.

**Data.** MNIST 4/9 and 3/8 with 2,000 images of each digit, and the same with the second digit thinned to a quarter;
the 1984 voting records; two moons in 100 dimensions (noise 0.06); digits 3 and 9 of scikit-learn; breast cancer.
Labels are drawn at random, 10, 40 or 160 of them, all right or a tenth of them flipped. All measures are taken on the
nodes without a label.

**Tools.** graphuq with the prior of the graph alone, learned and averaged (`learn` without features, 300 modes), and
with the paper's prior (probit, gamma = 0.1) on 50, 300 and all modes. `GraphClassifier` goes on from there: it adds a
linear function of the features, learns how many labels are mistakes, and counts the noise of labels in.
scikit-learn's `LabelSpreading`, `LabelPropagation` and `GaussianProcessClassifier` (a scaled Gaussian kernel,
learned). GraphLearning's Laplace learning, also reweighted (WNLL, Poisson weights), and Poisson learning. All but the
Gaussian process see the same graph; it sees the features. `+ T` marks a logistic temperature on the tool's scores,
fitted to held-out labels in five folds.

**Measures.** Accuracy; log-loss; Brier score; ECE, the expected calibration error in ten bins of equal width; AUROC of
telling wrong answers from right ones by their confidence. Means over draws of labels, with standard errors.
"""

WHY = """**Where rows are lost, and why.**

- *ECE with ten labels.* A tool that answers one half everywhere, or the share of the larger class, has an ECE near zero
  and says nothing: its accuracy and log-loss show it. ECE alone is no contest there.
- *Two moons.* Many tools are right everywhere. A temperature fitted to a few held-out labels, all right, goes to its
  bound, and being sure of everything happens to be right here. Ten labels cannot show that: ours stays careful, and
  more labels make it sure.
- *Ten labels of classes of unequal size.* Two or three labels of the smaller class say little about its share, and one
  of them may be wrong. The hyperprior leans towards classes of like size, since most data have them.
- *Voting and breast cancer.* Some nodes lie among the other class. A label there is explained as noise, and the noise
  is not part of the probability, so answers around it are too sure. Adding the noise helps on these rows and spoils the
  rows with wrong labels (below): one label a node does not tell an odd node from a wrong label. Where the Gaussian
  process has the best accuracy, it sees something in the features that the graph has lost.
"""

MEANING = """## The sign of u, or a noisy label?

The rows above are of P(u_j >= 0), the paper's quantity: the probability that the node's own class is +1,
`posterior.classes(noise=False)`. `posterior.probability()` is that of the *next label someone writes down* there, with
the noise gamma counted in, so that it is never 0 or 1. Where labels are right and classes overlap that is the better
number; where labels are wrong and noise is all there is to explain them, it hides what is known of the classes.
`GraphClassifier` gives this one, and learns the share of mistakes apart from the noise, which the rows of this page
leave out. Mean log-loss and ECE over all rows, with the peak of the hyper-parameters alone for comparison:
"""

DEFAULTS = """## How good the defaults of the hyperprior are

With ten labels the evidence says little about the hyper-parameters, and what is believed beforehand decides.
`experiments/hyperprior.py` asks how good the defaults are, for the prior of the graph alone: where the evidence of 40
and 160 labels peaks on 22 public tasks under next to no hyperprior; and what is gained by fitting every number of the
hyperprior to the log-loss of predictions from 10 and 40 labels, on all tasks but those of one data set, judged on that
data set. The data of this page are among the 22 tasks except the pair of scikit-learn's digits.
"""


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", nargs="?", type=Path, default=PAGE)
    parser.add_argument("--records", type=Path, default=RECORDS)
    asked = parser.parse_args()
    text = page(asked.records)
    with whole_file(asked.target) as part:
        part.write_text(text, encoding="utf-8")


def page(records: Path) -> str:
    """The whole page, from the records that are there."""
    record = read_record(records / "calibration.json")
    parts = [HEAD, figures(record, records.name), overview(record), WHY, MEANING, noise_table(record)]
    parts += [modes(record), wrong_labels(record)]
    if (records / "ep_accuracy.json").exists():
        parts.append(ep_table(read_record(records / "ep_accuracy.json")))
    parts.append(DEFAULTS)
    if (records / "hyperprior.json").exists():
        parts.append(hyperprior_table(json.loads((records / "hyperprior.json").read_text(encoding="utf-8"))))
    parts.append(details(record))
    return "\n".join(parts)


def table(heading: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [heading, ["---"] * len(heading), *rows]) + "\n"


def name_of(row: dict[str, Any]) -> str:
    """A row in words."""
    return f"{NAMES[row['data']]}, {row['n_labels']} labels{', 10% wrong' if row['flipped'] else ''}"


def figures(record: Record, folder: str) -> str:
    """The picture, and what was run."""
    config = record.config
    return (
        f"![Reliability diagrams, log-loss and calibration error of every row]({folder}/calibration.png)\n\n"
        f"{config['n_draws']} draws of labels a row. Above: share of right answers against confidence, all data pooled. "
        f"Below: a line a row; gray ticks are the other tools. {record.level.capitalize()} run, "
        f"{record.seconds / 60:.0f} core-minutes on {record.machine}, graphuq {record.version}.\n"
    )


def overview(record: Record) -> str:
    """Ours against the best other tool of each row; a star where we lose."""
    lines, won = [], {"log_loss": 0, "ece": 0, "accuracy": 0}
    for row in record.values["rows"]:
        cells = [name_of(row)]
        for measure in won:
            best, theirs, ours, error = contest(row, measure)
            good = ours >= theirs - error if measure == "accuracy" else ours <= theirs
            won[measure] += good
            cells += [f"{ours:.3f}" if good else f"{ours:.3f} *", f"{theirs:.3f} {best}"]
        lines.append(cells)
    n = len(lines)
    text = (
        "## Learned prior against the best other tool of each row\n\n"
        f"Best log-loss in {won['log_loss']} of {n} rows, best ECE in {won['ece']}, accuracy within one standard error "
        f"of the best, or better, in {won['accuracy']}. The rival of a row is the best of "
        f"{n_rivals(record)} after the fact, a different one in each. A star marks a row that is lost.\n"
    )
    heading = ["row", "log-loss", "best other", "ECE", "best other", "accuracy", "best other"]
    return "\n".join([text, table(heading, lines), losses(record)])


def n_rivals(record: Record) -> int:
    """How many other tools a row has."""
    return sum(not name.startswith(("graphuq", "paper's")) for name in record.values["rows"][0]["scores"])


def losses(record: Record) -> str:
    """Mean log-loss of every method over rows, for methods that are in every row: no tool is best everywhere."""
    rows = record.values["rows"]
    names = [name for name in rows[0]["scores"] if all(name in row["scores"] for row in rows)]
    settings = sorted({(row["n_labels"], row["flipped"]) for row in rows})
    lines = []
    for name in names:
        cells = [f"**{name}**" if name == OURS else name]
        for n_labels, flipped in settings:
            mine = [row for row in rows if (row["n_labels"], row["flipped"]) == (n_labels, flipped)]
            means = [np.mean([row["scores"][name][measure][0] for row in mine]) for measure in ("log_loss", "ece")]
            cells.append(" / ".join(f"{mean:.3f}" for mean in means))
        lines.append(cells)
    heading = [
        "log-loss / ECE, mean over data",
        *(f"{n}{', 10% wrong' if share else ''}" for n, share in settings),
    ]
    return f"One tool for all data, rather than the best of each row:\n\n{table(heading, lines)}"


def noise_table(record: Record) -> str:
    """Sign of u against noisy labels, and averaging against the peak alone."""
    lines = []
    for flipped in record.config["flipped"]:
        mine = [row for row in record.values["rows"] if row["flipped"] == flipped]
        for name in (OURS, *VARIANTS):
            means = [np.mean([row["scores"][name][measure][0] for row in mine]) for measure in ("log_loss", "ece")]
            lines.append([f"{flipped:.0%}", name, *(f"{mean:.4f}" for mean in means)])
    return table(["labels wrong", "", "log-loss", "ECE"], lines)


def modes(record: Record) -> str:
    """How far probabilities move when the number of modes doubles."""
    changes, doublings = record.values["doublings"], record.config["doublings"]
    if not changes:
        return ""
    lines = [
        [
            {"learned": "learned prior", "paper": "paper's prior"}[name],
            *(_with_error(each, 4) for each in changes[name]),
        ]
        for name in changes
    ]
    steps = [f"{a} to {b} modes" for a, b in pairwise(doublings)]
    return (
        "## The number of modes is a matter of cost\n\nMean change of P(+1) over unlabeled nodes of MNIST 4/9, 160 labels:"
        f"\n\n{table(['', *steps], lines)}"
    )


def wrong_labels(record: Record) -> str:
    """How well flipped labels are found."""
    rows = [row for row in record.values["rows"] if row["wrong_label_auroc"]]
    counts = sorted({row["n_labels"] for row in rows})
    lines = []
    for data in dict.fromkeys(row["data"] for row in rows):
        found = {row["n_labels"]: row["wrong_label_auroc"] for row in rows if row["data"] == data}
        lines.append([NAMES[data], *(_with_error(found[n], 3) if n in found else "" for n in counts)])
    return (
        "## Finding wrong labels\n\nA tenth of the labels was flipped. AUROC of `suspicious_labels`: the chance that a "
        f"flipped label is ranked above a right one.\n\n{table(['', *(f'{n} labels' for n in counts)], lines)}"
    )


def ep_table(record: Record) -> str:
    """Expectation propagation against exact chains."""
    lines = [
        [
            ep_accuracy.NAMES[row["data"]],
            style.NAMES[row["model"]],
            row["prior"],
            str(row["n_labels"]),
            f"{row['mean']:.4f}",
            f"{row['max']:.3f}",
            f"{row['monte_carlo']:.4f}",
        ]
        for row in record.values["rows"]
    ]
    heading = ["data", "model", "prior", "labels", "mean", "largest", "Monte-Carlo error of the mean"]
    return (
        "## Expectation propagation against exact chains\n\nDifference of the label means s_j = 2 P(u_j >= 0) - 1 over all "
        f"nodes, {record.config['n_chains']} chains of {record.config['n_steps']:,} draws of the orthant sampler.\n\n"
        f"{table(heading, lines)}\n{ep_accuracy.REASON}\n"
    )


def hyperprior_table(record: dict[str, Any]) -> str:
    """Peaks of the evidence, and the default against hyperpriors fitted to the data."""
    found = record["peaks"]
    peaks = table(
        ["", *found["of"]],
        [
            ["median of the peaks", *(f"{value:.3g}" for value in found["median"])],
            ["spread of the peaks, a factor", *(f"{value:.3g}" for value in found["factor"])],
            ["default median", *(f"{value:.3g}" for value in found["default"])],
        ],
    )
    left_out = table(
        ["log-loss on", "default", "fitted to the others", "fitted to all"],
        [
            [name, *(f"{each[key]:.4f}" for key in ("default", "fitted without it", "fitted"))]
            for name, each in record["left_out"].items()
        ],
    )
    return f"{peaks}\nWhat tuning would gain, on data it has not seen and on data it has, which says how much that matters:\n\n{left_out}"


def details(record: Record) -> str:
    """Every method of every row, all measures."""
    parts = ["## Every row\n"]
    heading = ["", "accuracy", "log-loss", "Brier", "ECE", "AUROC"]
    for row in record.values["rows"]:
        lines = [
            [f"**{name}**" if name == OURS else name, *(_with_error(scores[measure], 3) for measure in MEASURES)]
            for name, scores in row["scores"].items()
        ]
        parts.append(f"<details><summary>{name_of(row)}</summary>\n\n{table(heading, lines)}\n</details>\n")
    return "\n".join(parts)


def _with_error(value: list[float | None], digits: int) -> str:
    """A mean with its standard error, or a dash where it does not exist (no answer was wrong)."""
    mean, error = value
    if mean is None:
        return "–"
    return f"{mean:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")


if __name__ == "__main__":
    main()
