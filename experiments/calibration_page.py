"""The records of tables in; docs/calibration.md and its figure out: `python -m experiments.calibration_page`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from experiments import table_data, table_scores, tables
from experiments.calibration_sections import (
    ACCURACY,
    ECE,
    LOG_LOSS,
    blind,
    blind_many,
    constants,
    contest_table,
    converged,
    earlier,
    n_worse,
    overlapping,
    setting_name,
    settings,
    strangers,
    three,
)
from experiments.experiment import Record
from experiments.markdown import table, with_error, wrapped
from experiments.runner import read_record, save_figure
from experiments.table_peers import BARE, SHARES
from experiments.table_scores import MEASURES, OURS
from experiments.tables import GROUPS
from graphuq.files import whole_file

RECORDS, PAGE = Path("docs/reproduction"), Path("docs/calibration.md")

HEAD = """# Can the probabilities be trusted?

A class probability of 0.9 should be right nine times out of ten, even with few labels. This page compares the
probabilities of `GraphClassifier`, used with default settings, to those of other methods, on data that was not used to
choose any of its settings.
"""

METHODS = """**Methods.** All methods see the same labels and are used with their default settings except where noted:

- scikit-learn's `LogisticRegression`, with C = 1 and with C chosen by cross-validation;
- scikit-learn's `GaussianProcessClassifier`, with a scaled Gaussian kernel whose parameters are learned;
- scikit-learn's `RandomForestClassifier` and `HistGradientBoostingClassifier`, as they are and, where each class has at
  least three labels, with sigmoid calibration in three folds;
- scikit-learn's `LabelSpreading` and `LabelPropagation`;
- harmonic functions and Poisson learning from `graphuq.baselines`;
- GraphLearning's Laplace learning, Poisson learning and Poisson-MBO. Poisson-MBO is given either the class frequencies
  among the labels or the true ones ("true shares"), which no other method is given;
- "class shares": every row gets the class frequencies among the labels, after adding one label to each class or, for
  "class shares, bare", without doing so. They ignore the features, so any method should beat them.

`+ T` means that a temperature was fitted to labels held out in up to five folds (two for Poisson-MBO with true shares,
because it is slow). Without a temperature, scores that have no scale of their own are divided by their spread. Graph
methods use a graph of ten nearest neighbors, with edges added where it is disconnected. On the data used to choose
settings, ten suited them better than the five that `GraphClassifier` uses.

**Measures.** Log-loss; accuracy; and ECE, the expected calibration error of the confidence in ten bins. All are computed
on the rows without a label. Values after ± are standard errors over random draws of the labeled rows. A low ECE alone
does not make a good method: the class shares have one although they do not distinguish between rows.
"""

MORE = """## More

- [reproduction.md](reproduction.md#calibration) has the full earlier results on separable data, with a prior on the
  graph alone and with more of GraphLearning's methods.
- [reproduction.md](reproduction.md#ep_accuracy) compares expectation propagation with exact chains. With up to 20 labels,
  its probabilities are corrected label by label (`inference/marginals.py`): with few labels and a smooth prior, the
  posterior is cut off on one side, so a Gaussian does not fit it. With more labels, Gaussian marginals are close enough.
- [digits.md](digits.md) has results for ten classes of digits, with 1 to 10 labels per class.
- `GraphClassifier.self_check` assesses the probabilities on your own data by predicting each label from the others. If labels
  come in groups of near-copies, such as pixels of one polygon, it is too optimistic: hold out whole groups instead.

## How this page is made

`python -m experiments.calibration_page` writes this page and its figure from the records of `python -m
experiments.tables`, `python -m experiments.many`, `python -m experiments.strangers`, `python -m
experiments.overlapping`, `python -m experiments.choose`, `python -m experiments.separable` and `python -m
benchmarks.small_posteriors`.
"""


def main() -> None:
    """Write the page and the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", nargs="?", type=Path, default=PAGE)
    parser.add_argument("--records", type=Path, default=RECORDS)
    asked = parser.parse_args()
    record = reported(asked.records)
    save_figure(tables.draw(record), asked.records / "tables.png")
    text = page(record, asked.records)
    with whole_file(asked.target) as part:
        part.write_text(text, encoding="utf-8")


def reported(records: Path) -> Record:
    """The records of two classes and of many as one."""
    two, many = (read_record(records / f"{name}.json") for name in ("tables", "many"))
    values = {key: two.values[key] + many.values[key] for key in ("cells", "groups")}
    return replace(
        two,
        config=many.config | two.config,
        values=values | {"bins": two.values["bins"] | many.values["bins"]},
    )


def page(record: Record, records: Path) -> str:
    """The whole page; the figure and the other records are in a folder, whose name it is found by."""
    folder = records.name

    def kept(*sections: tuple[Callable[[Path], str], str]) -> list[str]:
        return [section(records) for section, name in sections if (records / f"{name}.json").exists()]

    parts = [
        HEAD,
        answer(record),
        *kept((blind, "strangers"), (blind_many, "overlapping")),
        f"![Share of correct answers against confidence, for each kind of data]({folder}/tables.png)\n",
        data(record),
        METHODS,
        contest(record),
        *kept((strangers, "strangers"), (overlapping, "overlapping")),
        every_tool(record),
        shares(record),
        wrong_labels(record),
        beside_graphlearning(record),
        *kept((constants, "choose"), (earlier, "separable"), (converged, "small_posteriors")),
        MORE,
        f"{record.level.capitalize()} run on {record.machine}, graphuq {record.version}.\n",
    ]
    return "\n".join(parts)


def answer(record: Record) -> str:
    """In how many settings ours is best, where it is not, and how often it is worse than the class shares."""
    found, cells = settings(record), record.values["cells"]
    n_best = [sum(_rank(each["scores"], measure) == 1 for each in found) for measure in range(len(MEASURES))]
    behind = []
    for each in found:
        if _rank(each["scores"], LOG_LOSS) > 1:
            best = table_scores.best_other(each["scores"], LOG_LOSS)
            behind.append(f"- {setting_name(each)}: {with_error(each['ours_beyond'][best])} behind {best}\n")
    counts = {name: n_worse(record, name) for name in cells[0]["scores"] if name not in (SHARES, BARE)}
    second = min((name for name in counts if name != OURS), key=lambda name: counts[name])
    worst = max(found, key=lambda each: each["scores"][OURS][ECE][0])
    bins = record.values["bins"][worst["group"]][str(worst["n_labels"])][OURS]
    rows, confidence, right = np.sum(bins, axis=1)
    short = wrapped(
        f"""**In short.** We compare {len(found[0]["scores"])} methods, graphuq included, in {len(found)} settings; a
        setting is a kind of data and a number of labels. graphuq has the lowest mean log-loss in {n_best[LOG_LOSS]} of them
        and the highest accuracy in {n_best[ACCURACY]}. Its log-loss is higher than that of another method in these
        settings:"""
    )
    rest = wrapped(
        f"""A basic check is to compare a method with the class frequencies among the labels (the "class shares"). A case
        is a data set with a given number of labels. In {counts[OURS]} of {len(cells)} cases, the log-loss of graphuq is higher than
        that of the class shares by more than {table_scores.LEAST_DIFFERENCE} and by more than a standard error; for {second},
        the next best method in this respect, this happens in {counts[second]}. The largest calibration error (ECE) of graphuq
        is {worst["scores"][OURS][ECE][0]:.3f}, for "{setting_name(worst)}": there it is
        {"underconfident" if confidence < right else "overconfident"}, with a mean confidence of {confidence / rows:.2f} and an
        accuracy of {right / rows:.2f}."""
    )
    return f"{short}\n{''.join(behind)}\n{rest}"


def _rank(scores: dict[str, list[list[float]]], measure: int) -> int:
    """Ours among all, 1 for the best."""
    sign = -1 if measure == ACCURACY else 1
    mine = sign * scores[OURS][measure][0]
    return 1 + sum(sign * each[measure][0] < mine for each in scores.values())


def data(record: Record) -> str:
    """What is reported, and what was used for choosing."""
    config = record.config
    pairs = ", ".join("/".join(pair) for pair in config["pairs"])
    shown = f"""**Test data.** The separable data are pairs of digits ({pairs}) from MNIST's test images, about 2,000 rows
        each. The ordinary tables are {len(config["tables"])} two-class tables from KEEL and R, with at most
        {table_data.MOST_ROWS:,} rows each: {", ".join(config["tables"])}. For a rare class, the second class of these pairs of
        digits, and of {", ".join(config["rare_tables"])}, was reduced to 5%. The data with many classes are
        {", ".join(config["many"][:-1])} from KEEL and the 10,000 test images of MNIST."""
    labels = f"""**Labels.** Labeled rows are drawn at random, at least one from each class; with many classes, the same number
        from each class. Results are means over {config["n_draws"]} random draws of the labeled rows for ordinary tables,
        {config["n_draws_wrong"]} for ordinary tables with wrong labels, and {config["n_draws_others"]} for all other data. With so few draws,
        individual standard errors are rough."""
    choosing = f"""**Data used to choose settings.** The settings of the learned prior were chosen on
        {len(table_data.CHOOSING)} other tables ({", ".join(table_data.CHOOSING)}); a random split of one list separated them
        from the test tables. Also used were pairs of scikit-learn's digits and of MNIST's training images, breast cancer,
        voting and moons. For many classes, the settings were chosen on segment, vehicle, satimage and movement_libras from
        KEEL, scikit-learn's digits, and {len(table_data.CHOOSING_OVERLAPPING)} tables whose classes overlap
        ({", ".join(table_data.CHOOSING_OVERLAPPING)}). None of these rows is among the test data: scikit-learn's digits were
        removed from optdigits, and vehicle1 was left out. The separation is not perfect: when the last settings were chosen,
        results of earlier versions on the test tables had been seen. The tables that were added last are there for this reason."""
    return "\n".join(map(wrapped, (shown, labels, choosing)))


def contest(record: Record) -> str:
    """Ours beside the best other tool of each setting."""
    text = wrapped(
        f"""Each row shows means over data sets. The first three measures are those of graphuq. The other method is the one
        with the lowest log-loss of all {len(record.values["groups"][0]["scores"]) - 1} others in that setting, chosen in
        hindsight, so it changes from row to row. The last column is the log-loss of graphuq minus that of the other method.
        Its standard error treats the draws of the two methods as independent, because the results of graphuq were recomputed
        (`python -m experiments.ours_again`) and those of the other methods kept; the error of paired differences would be smaller."""
    )
    return f"## The best other method in each setting\n\n{text}\n{contest_table(record)}"


def every_tool(record: Record) -> str:
    """Every tool on every kind of data, over all numbers of labels."""
    found = settings(record)
    groups = [name for name in GROUPS if any(each["group"] == name for each in found)]
    lines = []
    for name in found[0]["scores"]:
        cells = [f"**{name}**" if name == OURS else name]
        for group in groups:
            scores = [each["scores"][name] for each in found if each["group"] == group]
            means = [np.mean([each[measure][0] for each in scores]) for measure in (LOG_LOSS, ECE)]
            cells.append(" / ".join(f"{mean:.3f}" for mean in means))
        cells.append(str(n_worse(record, name)) if name != SHARES else "–")
        lines.append(cells)
    text = wrapped(
        f"""Cells show log-loss / ECE, as means over data sets and numbers of labels. The last column counts in how many of {len(record.values["cells"])} cases the log-loss is higher than
        that of the class shares by more than {table_scores.LEAST_DIFFERENCE} and by more than a standard error."""
    )
    heading = ["", *(GROUPS[group] for group in groups), "worse than class shares"]
    return f"## All methods on all kinds of data\n\n{text}\n{table(heading, lines)}"


def beside_graphlearning(record: Record) -> str:
    """Ours beside the package GraphLearning, if it was there."""
    if not record.config["graphlearning"]:
        return ""
    lines = []
    for each in settings(record):
        theirs = {name: found for name, found in each["scores"].items() if name.startswith("GraphLearning")}
        cells = [setting_name(each), *three(each["scores"][OURS])]
        for measure, sign in ((LOG_LOSS, 1), (ACCURACY, -1)):
            best = min(theirs, key=lambda name, m=measure, s=sign: s * theirs[name][m][0])
            cells += [best.removeprefix("GraphLearning "), f"{theirs[best][measure][0]:.3f}"]
        lines.append(cells)
    text = wrapped(
        """In each row, graphuq is compared with the GraphLearning method that has the lowest log-loss and with the one that
        has the highest accuracy, both chosen in hindsight. Values are means over data sets and draws of the labeled rows."""
    )
    heading = ["data, labels", *MEASURES.values(), "lowest log-loss", "value", "highest accuracy", "value"]
    return f"## Comparison with GraphLearning\n\n{text}\n{table(heading, lines)}"


def shares(record: Record) -> str:
    """Ours less the class shares, table by table."""
    cells = [cell for cell in record.values["cells"] if cell["group"] == "tables"]
    counts = sorted({cell["n_labels"] for cell in cells})
    lines = []
    for name in sorted({cell["data"] for cell in cells}):
        found = {cell["n_labels"]: cell["beyond_shares"][OURS] for cell in cells if cell["data"] == name}
        lines.append([name, *(_beyond(found[n]) if n in found else "–" for n in counts)])
    text = wrapped(
        f"""The log-loss of graphuq minus that of the class shares: negative values mean that the features help. A star marks
        values above 0 by more than {table_scores.LEAST_DIFFERENCE} and by more than a standard error."""
    )
    heading = ["", *(f"{n} labels" for n in counts)]
    return f"## Comparison with the class shares, table by table\n\n{text}\n{table(heading, lines)}"


def _beyond(value: list[float | None]) -> str:
    return f"{with_error(value)}{' *' if table_scores.exceeds(value) else ''}"


def wrong_labels(record: Record) -> str:
    """How well wrong labels are found."""
    found = [each for each in settings(record) if each["wrong_label_auroc"]]
    lines = [[setting_name(each), with_error(each["wrong_label_auroc"])] for each in found]
    text = wrapped(
        """The probability that `suspicious_labels` ranks a wrong label above a correct one (AUROC). Where classes overlap, a
        correct label may look more suspicious than a wrong one."""
    )
    return f"## Finding wrong labels\n\n{text}\n{table(['data, labels', 'AUROC'], lines)}"


if __name__ == "__main__":
    main()
