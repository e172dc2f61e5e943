"""The record of simulated labelling in; docs/active.md out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments import graphlearning_peers
from experiments.active import DEFAULT, RANDOM, chosen, goals
from experiments.active_data import LOOKED_AT
from experiments.experiment import Record
from experiments.markdown import table


def page(record: Record, out: Path) -> str:
    """The answer, the curves, and the labels that every tool needs."""
    cells = [each for each in record.values["data"] if each["part"] == "reporting"]
    starts, asked = sorted({each["n_starts"] for each in cells}), record.config["n_starts"]
    parts = [
        "# Does choosing the questions help?\n",
        "In these simulations every tool starts with one label of each class and asks for the label of one row at a time. "
        "It may ask about half of the rows; accuracy and log-loss are measured on the other half, which is the same for "
        f"all tools. Results are means over {starts[0] if len(starts) == 1 else f'{starts[0]} to {starts[-1]}'} "
        f"start{'s' * (starts[-1] > 1)}, computed by `python -m experiments.active`.\n",
        _kept(cells),
        ""
        if starts[0] >= asked or _kept(cells)
        else f"The run was stopped before all {asked} starts were done, and the same command continues it. With so few "
        "starts, tools with similar results cannot be told apart.\n",
        answer(record),
        f"The results on `{LOOKED_AT}` are not independent: they were looked at while the default was chosen, see below.\n"
        if LOOKED_AT in [each["data"] for each in cells]
        else "",
        f"![Accuracy and log-loss after every answer]({'reproduction' if out.name == 'reproduction' else '.'}/active.png)\n",
        "## Labels needed\n",
        f"`{DEFAULT.removeprefix('graphuq, ')}` is the default of `next_queries`. Accuracy goals are shares of the best "
        "final accuracy of our strategies; the log-loss goal is the final log-loss of random choice. `>` marks a goal "
        f"that was not reached. {_longer(cells)}\n",
        table(
            ["data", "to reach", "default", "random", "best other tool", ""],
            [_needed(row) for row in goals(record)],
        ),
        "## On the way\n",
        "Accuracy / log-loss, averaged over all answers.\n",
        _on_the_way(cells),
        _choice(record),
        f"{'The earlier run of all tools' if _kept(cells) else f'{record.level.capitalize()} run'}: "
        f"{record.seconds / 60:.0f} core-minutes on {record.machine}, graphuq "
        f"{record.version}.\n",
        "The Gaussian process is scikit-learn's and asks about the row that it is least certain of, as modAL's uncertainty "
        "sampling does. GraphLearning stands for its Laplace learning with its own acquisition functions, on a connected "
        "graph with ten neighbors.\n",
    ]
    return "\n".join(part for part in parts if part)


def _kept(cells: list[dict[str, Any]]) -> str:
    """That our curves were made anew, if they were, and from how many starts those of other tools are."""
    starts = {each["n_starts_others"] for each in cells if "n_starts_others" in each}
    return (
        f"Our results were recomputed by `python -m experiments.ours_again active`. Those of the other tools are from an "
        f"earlier run, and are means over {max(starts)} starts. With more than two classes ours predate the temperature that "
        f"follows how many labels are the only ones of their class.\n"
        if starts
        else ""
    )


def _longer(cells: list[dict[str, Any]]) -> str:
    """On which data random choice went on."""
    on = [each["data"] for each in cells if each["n_labels_random"] > each["n_labels"]]
    return f"Random choice went on with twice as many answers on: {', '.join(on)}." if on else ""


def answer(record: Record) -> str:
    """In how many data sets the default needs half of what random needs, and no more than the best other tool."""
    rows = goals(record)
    lines = []
    for goal in dict.fromkeys(row["goal"] for row in rows):
        mine = [row for row in rows if row["goal"] == goal]
        half, no_more = (sum(row[key] is True for row in mine) for key in ("half", "no_more"))
        open_end = ", ".join(row["data"] for row in mine if row["half"] is None)
        lost = ", ".join(row["data"] for row in mine if not row["no_more"]) or "none"
        lines.append(
            f"- **{goal}**: it needs at most half of the labels of random choice on {half} of {len(mine)} data sets"
            f"{f' (undecided: {open_end})' if open_end else ''}, and no more than the best other tool on {no_more} (more, or "
            f"never reached: {lost})."
        )
    return "How many labels the default needs to reach\n\n" + "\n".join(lines) + "\n"


def _needed(row: dict[str, Any]) -> list[str]:
    def show(n: int, beyond: int = row["beyond"]) -> str:
        return f"> {n - 1}" if n == beyond else str(n)

    marks = [
        {True: "half of random", None: "half of random or not: too soon to tell"}.get(row["half"], ""),
        "no more than others" if row["no_more"] else "more than others",
    ]
    peer = show(row["peer_needs"]) + (f", {row['peer']}" if row["peer_needs"] < row["beyond"] else "")
    at_random = show(row["random"], row["beyond_random"])
    return [row["data"], row["goal"], show(row["ours"]), at_random, peer, "; ".join(filter(None, marks))]


def _on_the_way(cells: list[dict[str, Any]]) -> str:
    names = [DEFAULT, RANDOM]
    names += [name for name in cells[0]["curves"] if name not in names]
    absent = graphlearning_peers.missing(names, graphlearning_peers.ACQUISITIONS)
    rows = []
    for cell in cells:
        accuracy, loss = cell["mean_accuracy"], cell["mean_log_loss"]
        least = min(loss.values())
        mark = {name: "**" if loss[name] == least else "" for name in loss}
        rows.append(
            [cell["data"]]
            + [f"{accuracy[n]:.3f} / {mark[n]}{loss[n]:.3f}{mark[n]}" if n in loss else "–" for n in names]
            + [graphlearning_peers.NOT_INSTALLED] * len(absent)
        )
    return table(["data", *names, *absent], rows)


def _choice(record: Record) -> str:
    """What the default was chosen by."""
    found = chosen(record)
    if not found:
        return ""
    cells = [each for each in record.values["data"] if each["part"] == "choosing"]
    data, n_starts = ", ".join(each["data"] for each in cells), min(each["n_starts"] for each in cells)
    ranked = sorted(found, key=lambda name: found[name])
    ahead = " and ".join(f"`{name.removeprefix('graphuq, ')}`" for name in ranked[: ranked.index(DEFAULT)])
    told = (
        f"## How the default was chosen\n\nLog-loss of our strategies, averaged over all answers, on other data sets with "
        f"{n_starts} start{'s' * (n_starts > 1)} each: {data}.\n\n"
    )
    why = (
        f"On these alone {ahead} did better than the default. A first record of one start had `error` as the default, which "
        f"was worse than random choice on `{LOOKED_AT}`. The log-loss was then added to the criterion, and the first "
        "questions were spread over the graph, with that data set in view.\n"
    )
    rows = [[name, f"{found[name]:.3f}"] for name in ranked]
    return told + table(["strategy", "log-loss"], rows) + (f"\n{why}" if ahead else "")
