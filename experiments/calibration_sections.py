"""Records that stand beside that of tables in; their sections of docs/calibration.md out."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from experiments import calibration, choose, separable, table_scores
from experiments.experiment import Record
from experiments.markdown import table, with_error, wrapped
from experiments.runner import read_record
from experiments.table_peers import BARE, SHARES
from experiments.table_scores import MEASURES, OURS
from experiments.tables import GROUPS, PER_CLASS

LOG_LOSS, ECE, ACCURACY = range(len(MEASURES))


def settings(record: Record) -> list[dict[str, Any]]:
    """Groups and numbers of labels, in order."""
    order = list(GROUPS)
    return sorted(record.values["groups"], key=lambda each: (order.index(each["group"]), each["n_labels"]))


def setting_name(group: dict[str, Any]) -> str:
    """A group and its number of labels in words."""
    return f"{GROUPS[group['group']]}, {group['n_labels']}{' per class' if group['group'] == PER_CLASS else ''}"


def n_worse(record: Record, name: str) -> int:
    """In how many cases a tool is worse than the class shares."""
    return len(table_scores.worse_than_shares(record.values["cells"], name))


def contest_table(record: Record) -> str:
    lines = []
    for each in settings(record):
        best = table_scores.best_other(each["scores"], LOG_LOSS)
        difference = each["ours_beyond"][best]
        cells = [setting_name(each), str(each["n_data"]), *three(each["scores"][OURS]), best]
        lines.append([*cells, *three(each["scores"][best]), with_error(difference)])
    measures = list(MEASURES.values())
    heading = ["data, labels", "data sets", *measures, "best other", *measures, "difference"]
    return table(heading, lines)


def three(scores: list[list[float]]) -> list[str]:
    return [with_error(scores[LOG_LOSS]), f"{scores[ECE][0]:.3f}", f"{scores[ACCURACY][0]:.3f}"]


def blind(records: Path) -> str:
    """In short, what came out on the tables that were listed last."""
    record = read_record(records / "strangers.json")
    return wrapped(
        f"""**On {len(record.config["tables"])} tables that were added last** and not used to choose any setting
        ([details](#tables-that-were-added-last)), {_losses(record)}"""
    )


def blind_many(records: Path) -> str:
    """In short, what came out on tables of many classes."""
    record = read_record(records / "overlapping.json")
    return wrapped(
        f"""**On {len(record.config["tables"])} tables with many overlapping classes**, also not used to choose any setting
        ([details](#tables-with-many-overlapping-classes)), {_losses(record)}"""
    )


def _losses(record: Record) -> str:
    """Ours at each number of labels, and those of the best other tool of each."""
    found = settings(record)
    best = [table_scores.best_other(each["scores"], LOG_LOSS) for each in found]

    def losses(names: list[str]) -> str:
        return " / ".join(
            f"{each['scores'][name][LOG_LOSS][0]:.3f}" for each, name in zip(found, names, strict=True)
        )

    counts = ", ".join(str(each["n_labels"]) for each in found)
    return f"""the log-loss of graphuq with {counts} labels is {losses([OURS] * len(found))}; that of the best other method for
        each number of labels, chosen in hindsight, is {losses(best)}."""


def strangers(records: Path) -> str:
    """Ours beside the best other tool, and the class shares, on tables that were listed last."""
    record = read_record(records / "strangers.json")
    names = record.config["tables"]
    text = f"""These are {len(names)} more tables from R. They were selected by their names, sizes and columns alone, and all
        of them are reported: {", ".join(names)}. All settings of the prior were fixed before the tables were selected. The
        prior was changed three times after that, based only on the tables used to choose settings: features were compressed
        and rare values no longer magnified; nonlinear functions of the features became a structure of their own (`bent` in
        the code); and so did a constant alone. The results here are from the first run on these tables after the last change
        (`python -m experiments.strangers`)."""
    return f"## Tables that were added last\n\n{_apart(record, text)}"


def overlapping(records: Path) -> str:
    """Ours beside the best other tool, and the class shares, on tables whose many classes overlap."""
    record = read_record(records / "overlapping.json")
    names = record.config["tables"]
    text = f"""These are {len(names)} tables from R, with 3 to 32 overlapping classes: {", ".join(names)}. A random split of one
        list separated them from those used to choose settings. They were first run after all settings were fixed, except for
        the way features enter the prior (see above). Labeled rows are drawn at random, at least one from each class (`python
        -m experiments.overlapping`)."""
    return f"## Tables with many overlapping classes\n\n{_apart(record, text)}"


def _apart(record: Record, text: str) -> str:
    """A record that stands alone: ours beside the best other tool, and where it is worse than the class shares."""
    cells = record.values["cells"]
    draws = sorted({cell["n_draws"] for cell in cells})
    counts = {name: n_worse(record, name) for name in cells[0]["scores"] if name not in (SHARES, BARE)}
    second = min((name for name in counts if name != OURS), key=lambda name: counts[name])
    text += f""" Results are means over {" to ".join(map(str, draws))} random draws of the labeled rows. By the same criterion as
        above, graphuq is worse than the class shares in {counts[OURS]} of {len(cells)} cases, and {second}, the next best
        method, in {counts[second]}."""
    worse = [
        f"{cell['data']} with {cell['n_labels']} labels, by {with_error(cell['beyond_shares'][OURS])}"
        for cell in table_scores.worse_than_shares(cells, OURS)
    ]
    where = wrapped(f"graphuq is worse than the class shares on {'; '.join(worse)}.") if worse else ""
    return f"{wrapped(text)}\n{contest_table(record)}\n{where}"


def constants(records: Path) -> str:
    """What other constants would bring on the data for choosing."""
    record = read_record(records / "choose.json")
    lines = []
    for kind, found in record.values.items():
        ordered = sorted(found["changes"].items(), key=lambda change: change[1][0])
        ends = [f"{with_error(change, 4)}, {name}" for name, change in (ordered[0], ordered[-1])]
        lines.append([kind, str(found["n"]), with_error(found[choose.DEFAULT]), *ends])
    tried = sorted({name for found in record.values.values() for name in found["changes"]})
    text = wrapped(
        f"""The constants of the learned prior were chosen on {len(record.config["tables"])} other tables, on separable data
        and on {len(record.config["many"]) + len(record.config["overlapping"])} data sets with many classes. On these data,
        {len(tried)} changes were tried one at a time, with the same labels. For each kind of data, the table shows the change that
        lowers the log-loss most and the one that raises it most, with the difference in log-loss. Changes are named after the
        constants in the code; `no` leaves a term out, and `bent` is the nonlinear function of the features."""
    )
    heading = ["data used to choose settings", "draws", "log-loss", "best change", "worst change"]
    return f"## Could the constants be better?\n\n{text}\n{table(heading, lines)}"


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
        f"""An earlier version of this page covered separable data alone. Its method used a prior on the graph alone
        and a graph chosen for each data set, and reported the probability of the sign of u. The table shows the recorded
        log-loss of that method, its log-loss when run again, and that of `GraphClassifier` ("now"), all on the same
        {found[0]["n_draws"]} draws of the labeled rows. "Now" predates three changes to the prior (see above), which matter
        little on such data. The difference is "now" minus "earlier, again", computed draw by draw:
        {better} of {len(found)} rows improved by more than a standard error, and {len(worse)}, marked with a star, got worse by more
        than a standard error. The last column is the best other method in the earlier record, chosen in hindsight."""
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
        """The changes since the earlier version, one step at a time: the mean change in log-loss due to each, for the rows
        that got worse and for all rows."""
    )
    names = list(separable.STEPS)
    steps = [
        [separable.STEPS[after], *(_change(rows, before, after) for rows in (worse, found))]
        for before, after in pairwise(names)
    ]
    steps.append(["all steps", *(_change(rows, names[0], names[-1]) for rows in (worse, found))])
    by_step = table(["step", f"{len(worse)} rows with a star", f"all {len(found)} rows"], steps)
    return f"## Separable data: comparison with an earlier version\n\n{text}\n{table(heading, lines)}\n\n{why}\n{by_step}"


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
        f"""When a posterior is sampled by chains, the report says whether they converged. We check this on
        {values["n_problems"]} small posteriors whose answers are known from quadrature or importance sampling, with
        {record.config["n_seeds"]} seeds each (`python -m benchmarks.small_posteriors`). Some of them are adversarial: nearly equal
        rows with contradictory labels, noise from 1e-5 to 10, near-duplicate rows, clusters joined by a bridge, labels of one class only. A verdict of "Converged"
        counts as false if a class probability is off by more than 0.05 and by more than five Monte-Carlo errors."""
    )
    return f'## Can the verdict "Converged" be trusted?\n\n{text}\n{table(["sampler", "runs", "Converged", "false"], lines)}'
