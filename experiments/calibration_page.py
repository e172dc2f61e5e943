"""The record of tables in; docs/calibration.md and its figure out: `python -m experiments.calibration_page`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from experiments import calibration, separable, table_data, table_scores, tables
from experiments.experiment import Record
from experiments.markdown import table, with_error, wrapped
from experiments.runner import read_record, save_figure
from experiments.table_peers import BARE, SHARES
from experiments.table_scores import MEASURES, OURS
from experiments.tables import GROUPS
from graphuq.files import whole_file

RECORDS, PAGE = Path("docs/reproduction"), Path("docs/calibration.md")
LOG_LOSS, ECE, ACCURACY = range(len(MEASURES))

HEAD = """# Are the probabilities right?

A probability of 0.9 should be right nine times in ten, with few labels too. Here `GraphClassifier`, with its settings
as they come, stands beside other tools on data that none of its settings was chosen on. The page and its figure are
made by `python -m experiments.calibration_page` from the records of `python -m experiments.tables`, `python -m
experiments.strangers`, `python -m experiments.separable` and `python -m benchmarks.small_posteriors`.
"""

TOOLS = """**Tools.** All see the same labels. scikit-learn's `LogisticRegression` (C = 1, and C by cross-validation),
`GaussianProcessClassifier` (a scaled Gaussian kernel, learned), `RandomForestClassifier` and
`HistGradientBoostingClassifier` (as they are, and calibrated by sigmoids in three folds where each class has three
labels), `LabelSpreading` and `LabelPropagation`; harmonic functions and Poisson learning of `graphuq.baselines`;
GraphLearning's Laplace learning, Poisson learning and Poisson-MBO, told the true share of each class or that among the
labels, on fewer draws and in a table of their own, since they take long; and the share of each class among the labels, bare or with one more label of each, which any tool should beat.
`+ T` is a temperature, fitted to labels held out in up to five folds, two for Poisson-MBO with the true shares, which
takes long; scores that come without a scale get one from their own spread where there is no temperature. Tools that work on a graph get
one of ten neighbors, joined where it falls apart, which suits them better than our five.

**Measures.** Log-loss; ECE, the expected calibration error of the confidence in ten bins; accuracy; all on the rows
without a label. Errors are standard errors over draws of labels. ECE alone is no contest: the class shares have a small
one and know nothing of a row.
"""

MORE = """## More

- [reproduction.md](reproduction.md#calibration): the earlier record of separable data in full, with the prior of the
  graph alone and more of GraphLearning's methods.
- [reproduction.md](reproduction.md#ep_accuracy): expectation propagation against exact chains. With up to 20 labels its
  probabilities are corrected label by label (`inference/marginals.py`): few labels under a smooth prior leave a
  posterior that is cut off on one side, which no Gaussian is. With more labels Gaussian marginals are close enough.
- [digits.md](digits.md): ten digits, from 1 to 10 labels each.
- `GraphClassifier.self_check` judges the probabilities of your own data by leaving out each label.
"""


def main() -> None:
    """Write the page and the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", nargs="?", type=Path, default=PAGE)
    parser.add_argument("--records", type=Path, default=RECORDS)
    asked = parser.parse_args()
    record = read_record(asked.records / "tables.json")
    save_figure(tables.draw(record), asked.records / "tables.png")
    text = page(record, asked.records)
    with whole_file(asked.target) as part:
        part.write_text(text, encoding="utf-8")


def page(record: Record, records: Path) -> str:
    """The whole page; the figure and the other records are in a folder, whose name it is found by."""
    folder = records.name
    others = (
        (beside_graphlearning, "tables_graphlearning"),
        (earlier, "separable"),
        (converged, "small_posteriors"),
    )

    def kept(*sections: tuple[Callable[[Path], str], str]) -> list[str]:
        return [section(records) for section, name in sections if (records / f"{name}.json").exists()]

    parts = [
        HEAD,
        answer(record),
        *kept((blind, "strangers")),
        f"![Share of right answers against confidence, for each kind of data]({folder}/tables.png)\n",
        data(record),
        TOOLS,
        contest(record),
        *kept((strangers, "strangers")),
        every_tool(record),
        shares(record),
        wrong_labels(record),
        *kept(*others),
        MORE,
        f"{record.level.capitalize()} run, {record.seconds / 60:.0f} core-minutes on {record.machine}, graphuq "
        f"{record.version}.\n",
    ]
    return "\n".join(parts)


def settings(record: Record) -> list[dict[str, Any]]:
    """Groups and numbers of labels, in order."""
    order = list(GROUPS)
    return sorted(record.values["groups"], key=lambda each: (order.index(each["group"]), each["n_labels"]))


def setting_name(group: dict[str, Any]) -> str:
    """A group and its number of labels in words."""
    return f"{GROUPS[group['group']]}, {group['n_labels']}{' a class' if group['group'] == 'many' else ''}"


def answer(record: Record) -> str:
    """In how many settings ours is best, where it is not, and how often it is worse than the class shares."""
    found, cells = settings(record), record.values["cells"]
    n_best = [sum(_rank(each["scores"], measure) == 1 for each in found) for measure in range(len(MEASURES))]
    behind = []
    for each in found:
        if _rank(each["scores"], LOG_LOSS) > 1:
            best = table_scores.best_other(each["scores"], LOG_LOSS)
            behind.append(f"- {setting_name(each)}: {best}, by {with_error(each['ours_beyond'][best])}\n")
    counts = {name: n_worse(record, name) for name in cells[0]["scores"] if name not in (SHARES, BARE)}
    second = min((name for name in counts if name != OURS), key=lambda name: counts[name])
    worst = max(found, key=lambda each: each["scores"][OURS][ECE][0])
    bins = record.values["bins"][worst["group"]][str(worst["n_labels"])][OURS]
    rows, confidence, right = np.sum(bins, axis=1)
    short = wrapped(
        f"""**In short.** A setting is a kind of data and a number of labels; there are {len(found)}. Among
        {len(found[0]["scores"])} lines ours has the least mean log-loss in {n_best[LOG_LOSS]} of them and the best
        accuracy in {n_best[ACCURACY]}. Its log-loss is behind in:"""
    )
    rest = wrapped(
        f"""In {counts[OURS]} of {len(cells)} cases, a data set and a number of labels each, it is worse than the class
        shares by more than {table_scores.LEAST_DIFFERENCE} and a standard error; the next, {second}, in {counts[second]}. Its
        largest ECE is {worst["scores"][OURS][ECE][0]:.3f}: {setting_name(worst)}, where a mean confidence of
        {confidence / rows:.2f} is {"too timid" if confidence < right else "too sure"}, {right / rows:.2f} being right."""
    )
    return f"{short}\n{''.join(behind)}\n{rest}"


def n_worse(record: Record, name: str) -> int:
    """In how many cases a tool is worse than the class shares."""
    return len(table_scores.worse_than_shares(record.values["cells"], name))


def _rank(scores: dict[str, list[list[float]]], measure: int) -> int:
    """Ours among all, 1 for the best."""
    sign = -1 if measure == ACCURACY else 1
    mine = sign * scores[OURS][measure][0]
    return 1 + sum(sign * each[measure][0] < mine for each in scores.values())


def data(record: Record) -> str:
    """What is reported, and what was used for choosing."""
    config = record.config
    pairs = ", ".join("/".join(pair) for pair in config["pairs"])
    reported = f"""**Data, reported.** Pairs of digits {pairs} of MNIST's test images, about 2,000 rows each.
        {len(config["tables"])} two-class tables of KEEL and of R, at most {table_data.MOST_ROWS:,} rows each:
        {", ".join(config["tables"])}. Rare: the second class of these pairs, and of {", ".join(config["rare_tables"])},
        cut to 5%. Many classes: {", ".join(config["many"][:-1])} of KEEL and the 10,000 test images of MNIST. Labels
        are drawn at random, each class at least once; of many classes so many of each. {config["n_draws"]} draws of
        labels of ordinary tables, {config["n_draws_wrong"]} of them with wrong labels, {config["n_draws_others"]} of
        all else: single errors are rough."""
    choosing = f"""**Data, for choosing.** The settings of the learned prior were chosen on
        {len(table_data.CHOOSING)} other tables ({", ".join(table_data.CHOOSING)}), drawn at random from one list with
        the reported ones; on pairs of scikit-learn's digits and of MNIST's training images, breast cancer, voting and
        moons; and, for many classes, on segment, vehicle, satimage and movement_libras of KEEL and scikit-learn's
        digits. None of these rows is reported: scikit-learn's digits were taken out of optdigits, and vehicle1 was
        left out. Not all was blind: numbers of earlier versions on the reported tables had been seen when the last
        settings were chosen. The tables that were listed last are for that."""
    return f"{wrapped(reported)}\n{wrapped(choosing)}"


def contest(record: Record) -> str:
    """Ours beside the best other tool of each setting."""
    text = wrapped(
        f"""Means over data sets. The other tool is the best of {len(record.values["groups"][0]["scores"]) - 1} by
        log-loss, after the fact, another one in each line. The last column is our log-loss less its, draw by draw."""
    )
    return f"## Beside the best other tool of each setting\n\n{text}\n{_contest(record)}"


def _contest(record: Record) -> str:
    lines = []
    for each in settings(record):
        best = table_scores.best_other(each["scores"], LOG_LOSS)
        difference = each["ours_beyond"][best]
        cells = [setting_name(each), str(each["n_data"]), *_three(each["scores"][OURS]), best]
        lines.append([*cells, *_three(each["scores"][best]), with_error(difference)])
    three = list(MEASURES.values())
    heading = ["data, labels", "sets", *three, "best other", *three, "difference"]
    return table(heading, lines)


def blind(records: Path) -> str:
    """In short, what came out on the tables that were listed last."""
    record = read_record(records / "strangers.json")
    found = settings(record)
    best = [table_scores.best_other(each["scores"], LOG_LOSS) for each in found]

    def losses(names: list[str]) -> str:
        return " / ".join(
            f"{each['scores'][name][LOG_LOSS][0]:.3f}" for each, name in zip(found, names, strict=True)
        )

    return wrapped(
        f"""**Blind**, on {len(record.config["tables"])} tables that were listed when all settings were fixed
        ([below](#on-tables-that-were-listed-last)), its log-loss at {", ".join(str(each["n_labels"]) for each in found)}
        labels is {losses([OURS] * len(found))}, that of the best other tool of each {losses(best)}."""
    )


def strangers(records: Path) -> str:
    """Ours beside the best other tool, and the class shares, on tables that were listed last."""
    record = read_record(records / "strangers.json")
    names, cells = record.config["tables"], record.values["cells"]
    draws = sorted({cell["n_draws"] for cell in cells})
    counts = {name: n_worse(record, name) for name in cells[0]["scores"] if name not in (SHARES, BARE)}
    second = min((name for name in counts if name != OURS), key=lambda name: counts[name])
    text = wrapped(
        f"""{len(names)} more tables of R, which were listed by their names, sizes and columns alone after every setting was
        fixed, and are all reported: {", ".join(names)}. {" to ".join(map(str, draws))} draws of labels; made by `python -m
        experiments.strangers`. Worse than the class shares, as above: ours in {counts[OURS]} of {len(cells)} cases, the next,
        {second}, in {counts[second]}."""
    )
    worse = [
        f"{cell['data']} at {cell['n_labels']} by {with_error(cell['beyond_shares'][OURS])}"
        for cell in table_scores.worse_than_shares(cells, OURS)
    ]
    where = wrapped(f"Ours is worse on {'; '.join(worse)}.") if worse else ""
    return f"## On tables that were listed last\n\n{text}\n{_contest(record)}\n{where}"


def _three(scores: list[list[float]]) -> list[str]:
    return [with_error(scores[LOG_LOSS]), f"{scores[ECE][0]:.3f}", f"{scores[ACCURACY][0]:.3f}"]


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
        f"""Log-loss / ECE, means over data sets and numbers of labels; and in how many of
        {len(record.values["cells"])} cases the log-loss is worse than that of the class shares by more than
        {table_scores.LEAST_DIFFERENCE} and a standard error."""
    )
    heading = ["", *(GROUPS[group] for group in groups), "worse than class shares"]
    return f"## One tool for all data\n\n{text}\n{table(heading, lines)}"


def beside_graphlearning(records: Path) -> str:
    """Ours beside the package GraphLearning, from a record of fewer draws, which has it among the tools."""
    record = read_record(records / "tables_graphlearning.json")
    lines = []
    for each in settings(record):
        theirs = {name: found for name, found in each["scores"].items() if name.startswith("GraphLearning")}
        cells = [setting_name(each), *_three(each["scores"][OURS])]
        for measure, sign in ((LOG_LOSS, 1), (ACCURACY, -1)):
            best = min(theirs, key=lambda name, m=measure, s=sign: s * theirs[name][m][0])
            cells += [best.removeprefix("GraphLearning "), f"{theirs[best][measure][0]:.3f}"]
        lines.append(cells)
    draws = sorted({cell["n_draws"] for cell in record.values["cells"]})
    text = wrapped(
        f"""The best of GraphLearning's methods in each line, after the fact, by log-loss and by accuracy; means over
        data sets and {draws[0]} to {draws[-1]} draws of labels. Made by `python -m experiments.tables` where the
        package is installed, stopped early."""
    )
    heading = ["data, labels", *MEASURES.values(), "least log-loss of", "is", "best accuracy of", "is"]
    return f"## Beside GraphLearning\n\n{text}\n{table(heading, lines)}"


def shares(record: Record) -> str:
    """Ours less the class shares, table by table."""
    cells = [cell for cell in record.values["cells"] if cell["group"] == "tables"]
    counts = sorted({cell["n_labels"] for cell in cells})
    lines = []
    for name in sorted({cell["data"] for cell in cells}):
        found = {cell["n_labels"]: cell["beyond_shares"][OURS] for cell in cells if cell["data"] == name}
        lines.append([name, *(_beyond(found[n]) if n in found else "–" for n in counts)])
    text = wrapped(
        f"""Our log-loss less that of the class shares: below 0 the features help. A star marks what is above 0 by more
        than {table_scores.LEAST_DIFFERENCE} and a standard error."""
    )
    heading = ["", *(f"{n} labels" for n in counts)]
    return f"## Beside the class shares, table by table\n\n{text}\n{table(heading, lines)}"


def _beyond(value: list[float | None]) -> str:
    return f"{with_error(value)}{' *' if table_scores.exceeds(value) else ''}"


def wrong_labels(record: Record) -> str:
    """How well wrong labels are found."""
    found = [each for each in settings(record) if each["wrong_label_auroc"]]
    lines = [[setting_name(each), with_error(each["wrong_label_auroc"])] for each in found]
    text = wrapped(
        """The chance that `suspicious_labels` ranks a wrong label above a right one (AUROC). Where classes overlap, a
        right label may be the stranger one."""
    )
    return f"## Finding wrong labels\n\n{text}\n{table(['data, labels', 'AUROC'], lines)}"


def earlier(records: Path) -> str:
    """Every row of the earlier page: then, then run again, and now."""
    kept = {
        (row["data"], row["n_labels"], row["flipped"]): row["scores"]
        for row in read_record(records / "calibration.json").values["rows"]
    }
    found = read_record(records / "separable.json").values["rows"]
    lines, better = [], 0
    worse = [row for row in found if row["difference"][LOG_LOSS][0] > (row["difference"][LOG_LOSS][1] or 0.0)]
    for row in found:
        scores = kept[row["data"], row["n_labels"], row["flipped"]]
        rivals = {name: each["log_loss"][0] for name, each in scores.items() if not calibration.is_ours(name)}
        best = min(rivals, key=lambda name: rivals[name])
        mean, error = row["difference"][LOG_LOSS]
        better += -mean > (error or 0.0)
        then, now = row["then"][LOG_LOSS], row["now"][LOG_LOSS]
        old = with_error(scores[calibration.OURS]["log_loss"])
        mark = " *" if row in worse else ""
        cells = [separable.row_name(row), old, with_error(then), with_error(now), with_error([mean, error]) + mark]
        lines.append([*cells, f"{rivals[best]:.3f} {best}"])
    text = wrapped(
        f"""An earlier version of this page, on separable data alone, had the prior of the graph alone, on a graph chosen
        for each data set, and reported the sign of u. Its log-loss stands beside that of the same method run again, and
        of `GraphClassifier` as it comes, on the same {found[0]["n_draws"]} draws of labels. The difference is now less
        then, draw by draw: {better} of {len(found)} rows are better by more than a standard error, {len(worse)}, with a star,
        worse. The last column is the best other tool of that page, after the fact."""
    )
    heading = [
        "data, labels",
        "earlier record",
        "earlier, again",
        "now",
        "difference",
        "best other, earlier record",
    ]
    why = wrapped(
        """What changed in between, one step at a time: the mean change of the log-loss by each, where it got worse and in
        all rows."""
    )
    names = list(separable.STEPS)
    steps = [
        [separable.STEPS[after], *(_change(rows, before, after) for rows in (worse, found))]
        for before, after in pairwise(names)
    ]
    steps.append(["all of it", *(_change(rows, names[0], names[-1]) for rows in (worse, found))])
    by_step = table(["step", f"{len(worse)} rows with a star", f"all {len(found)} rows"], steps)
    return f"## Separable data, then and now\n\n{text}\n{table(heading, lines)}\n\n{why}\n{by_step}"


def _change(rows: list[dict[str, Any]], before: str, after: str) -> str:
    """The mean over rows of the log-loss after a step less that before it."""
    if not rows:
        return "–"
    return f"{np.mean([row[after][LOG_LOSS][0] - row[before][LOG_LOSS][0] for row in rows]):+.3f}"


def converged(records: Path) -> str:
    """How often chains say Converged, and are wrong."""
    record = read_record(records / "small_posteriors.json")
    values = record.values
    lines = [
        [name, *(str(each[key]) for key in ("runs", "converged", "false"))]
        for name, each in values["samplers"].items()
    ]
    text = wrapped(
        f"""Where chains are asked for, the report says whether they converged. {values["n_problems"]} small posteriors
        with answers by quadrature or importance sampling, adversarial ones among them (nearly equal rows with
        contradictory labels, noise from 1e-5 to 10, twins, bridges, one class alone), {record.config["n_seeds"]} seeds
        each. False: it says Converged, and a class probability is off by more than 0.05 and five Monte-Carlo errors.
        `python -m benchmarks.small_posteriors`."""
    )
    return f"## Does Converged mean it?\n\n{text}\n{table(['sampler', 'runs', 'Converged', 'false'], lines)}"


if __name__ == "__main__":
    main()
