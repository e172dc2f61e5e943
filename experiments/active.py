"""Does asking the right rows help? Simulated labelling: accuracy and log-loss after every answer, ours and other tools.

All begin with one label of each class. Half of the rows may be asked; the other half, the same for all, judges.
Data: active_data.py. Tools: active_peers.py.

    python -m experiments.active --jobs 16                          # docs/reproduction/active.json, docs/active.md
    python -m experiments.active --jobs 16 --data FILE --seconds 400    # data from a file, and an end after so long
    python -m experiments.active --page                             # the picture and the page from the record
    python -m experiments.active --quick                            # two starts on small data, to reproduction/quick
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import active_data, active_peers, command, runner
from experiments.experiment import Claim, Record, Trial
from graphuq import calibration
from graphuq.files import whole_file
from graphuq.queries import STRATEGIES

Array = NDArray[np.float64]

TITLE = "does asking the right rows help?"
DEFAULT, RANDOM = "graphuq, loss", "graphuq, random"
LONGER = f"{RANDOM} for longer"
# Of the accuracy at the end.
SHARES = (0.95, 0.99)
PAGE = Path("docs/active.md")
DIGITS = 4


@dataclass(frozen=True)
class Config:
    """What is run.

    Attributes:
        choosing: data on which strategies are compared with each other.
        reporting: data on which the default is compared with other tools.
        n_starts: draws of the first labels and of the rows that judge, of the data that are reported.
        n_starts_choosing: of the others.
        n_answers: questions asked with two classes; n_answers_many with more.
        longer: how many times as many are asked at random too, to see what random choice needs where the others are done.
        reported: strategies of ours that are run on the data reported.
    """

    choosing: tuple[str, ...] = active_data.CHOOSING
    reporting: tuple[str, ...] = active_data.REPORTING
    n_starts: int = 20
    n_starts_choosing: int = 2
    n_answers: int = 48
    n_answers_many: int = 60
    longer: int = 2
    reported: tuple[str, ...] = ("loss", "random")


FULL = Config()
QUICK = Config(
    choosing=("titanic",), reporting=("voting", "breast cancer"), n_starts=2, n_starts_choosing=1, n_answers=10
)


def trials(config: Config) -> list[Trial]:
    """One start of one tool each; start by start, so that a run cut off has all data and tools; longer ones at the end."""
    plan = [("reporting", name, config.n_starts) for name in config.reporting]
    plan += [("choosing", name, config.n_starts_choosing) for name in config.choosing]
    most = max(n for _, _, n in plan)
    found = []
    for seed in range(most):
        for part, data, n_starts in plan:
            mine = [f"graphuq, {name}" for name in (config.reported if part == "reporting" else STRATEGIES)]
            others = [name for name in active_peers.sessions(()) if part == "reporting"]
            if seed < n_starts:
                found += [{"part": part, "data": data, "seed": seed, "tool": tool} for tool in (*mine, *others)]
    reported = [each for each in found if each["part"] == "reporting" and each["tool"] == RANDOM]
    order = {data: i for i, data in enumerate(config.reporting)}
    return found + [
        {**each, "times": config.longer} for each in sorted(reported, key=lambda each: order[each["data"]])
    ]


def run(config: Config, trial: Trial) -> dict[str, Any]:
    """Accuracy and log-loss on the rows that judge, at the start and after every answer."""
    X, y = active_data.load(trial["data"])
    n_classes = int(y.max()) + 1
    rng = np.random.default_rng([trial["seed"], zlib.crc32(trial["data"].encode())])
    order = rng.permutation(len(y))
    judges, rest = np.sort(order[: len(y) // 2]), order[len(y) // 2 :]
    nodes = np.array([rest[np.flatnonzero(y[rest] == k)[0]] for k in range(n_classes)])
    pool = active_peers.Pool(X, nodes, y[nodes], np.setdiff1d(rest, nodes), trial["seed"])
    n_answers = (config.n_answers if n_classes == 2 else config.n_answers_many) * trial.get("times", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of labels that decide little, which is the point
        session = active_peers.sessions(STRATEGIES)[trial["tool"]](pool)
        probability, row = next(session)
        curve = [measure(probability[judges], y[judges])]
        for _ in range(min(n_answers, len(pool.open_rows) - 1)):
            probability, row = session.send(int(y[row]))
            curve.append(measure(probability[judges], y[judges]))
    return {**trial, "n_first": n_classes, "curve": np.round(curve, DIGITS)}


def measure(probability: Array, truth: NDArray[np.int64]) -> list[float]:
    """Accuracy and log-loss."""
    return [calibration.accuracy(probability, truth), calibration.log_loss(probability, truth)]


def summarize(config: Config, results: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean curve of every tool on every data set, and the labels it needs."""
    found: dict[tuple[str, str], dict[str, dict[int, Any]]] = {}
    for each in results:
        tools = found.setdefault((each["part"], each["data"]), {})
        tools.setdefault(LONGER if "times" in each else each["tool"], {})[each["seed"]] = each
    whole = {
        key: tools for key, tools in found.items() if DEFAULT in tools and RANDOM in tools
    }  # of a run cut off
    return {"data": [_data(part, data, tools) for (part, data), tools in whole.items()]}


def merged(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """The values of a record with our curves replaced by those computed now; those of other tools are kept."""
    found = {(cell["part"], cell["data"]): cell for cell in now["data"]}
    cells = []
    for old in before["data"]:
        if (new := found.get((old["part"], old["data"]))) is None:
            cells.append(old)
            continue
        kept = {name: curve for name, curve in old["curves"].items() if not name.startswith("graphuq")}
        means = {name: np.array(curve) for name, curve in {**new["curves"], **kept}.items()}
        cell = _cell({**new, "curves": means, "longer": np.array(new["longer"])})
        cells.append({**cell, "n_starts_others": old.get("n_starts_others", old["n_starts"])})
    return {"data": cells}


def _data(part: str, data: str, tools: dict[str, dict[int, Any]]) -> dict[str, Any]:
    """The means over the starts that all tools have done; random choice for longer counts where it has done them too."""
    longer = tools.pop(LONGER, {})
    seeds = sorted(set.intersection(*(set(runs) for runs in tools.values())))
    means = {name: np.mean([runs[seed]["curve"] for seed in seeds], axis=0) for name, runs in tools.items()}
    at_random = longer if set(seeds) <= set(longer) else tools[RANDOM]
    cell = {"part": part, "data": data, "n_starts": len(seeds), "n_first": tools[RANDOM][seeds[0]]["n_first"]}
    return _cell(
        {**cell, "curves": means, "longer": np.mean([at_random[seed]["curve"] for seed in seeds], axis=0)}
    )


def _cell(of: dict[str, Any]) -> dict[str, Any]:
    """What follows from the mean curves of every tool on one data set: how it ends, and the labels needed."""
    means, n_first = of["curves"], of["n_first"]
    final = {name: curve[-1] for name, curve in means.items()}
    best = max(final[name][0] for name in final if name.startswith("graphuq"))
    levels = {f"{share:.0%} of the accuracy": share * best for share in SHARES}
    judged = {**means, RANDOM: of["longer"]}
    needed = {
        name: {word: labels_needed(curve[:, 0], level, n_first) for word, level in levels.items()}
        | {"the log-loss of random": labels_needed(-curve[:, 1], -final[RANDOM][1], n_first)}
        for name, curve in judged.items()
    }
    return {
        **{key: of[key] for key in ("part", "data", "n_starts", "n_first")},
        "n_labels": n_first + len(means[RANDOM]) - 1,
        "n_labels_random": n_first + len(judged[RANDOM]) - 1,
        "final_accuracy": best,
        "curves": {name: np.round(curve, DIGITS) for name, curve in means.items()},
        "longer": np.round(of["longer"], DIGITS),
        "mean_log_loss": {name: float(curve[:, 1].mean()) for name, curve in means.items()},
        "mean_accuracy": {name: float(curve[:, 0].mean()) for name, curve in means.items()},
        "needed": needed,
    }


def labels_needed(curve: Array, level: float, n_first: int) -> int | None:
    """The fewest labels at which a mean curve is at a level, and at every later number of labels on average; None if never."""
    later = np.cumsum(curve[::-1])[::-1] / np.arange(len(curve), 0, -1)
    there = np.flatnonzero((curve >= level) & (later >= level))
    return int(there[0]) + n_first if there.size else None


def goals(record: Record) -> list[dict[str, Any]]:
    """For every data set reported and every goal: what the default needs, random, and the best other tool.

    Half of what random needs is None where random was not asked for long enough to tell.
    """
    rows = []
    for each in record.values["data"]:
        if each["part"] != "reporting":
            continue
        for goal in each["needed"][DEFAULT]:
            beyond = {
                name: each["n_labels_random" if name == RANDOM else "n_labels"] + 1 for name in each["needed"]
            }
            # At least so many, where a goal is not reached.
            need = {name: words[goal] or beyond[name] for name, words in each["needed"].items()}
            peers = {name: n for name, n in need.items() if not name.startswith("graphuq")}
            peer = min(peers, key=lambda name: peers[name])
            open_end = need[RANDOM] == beyond[RANDOM] and 2 * need[DEFAULT] > need[RANDOM]
            rows.append(
                {
                    "data": each["data"],
                    "goal": goal,
                    "ours": need[DEFAULT],
                    "random": need[RANDOM],
                    "peer": peer,
                    "peer_needs": peers[peer],
                    "beyond": beyond[DEFAULT],
                    "beyond_random": beyond[RANDOM],
                    "half": None if open_end else 2 * need[DEFAULT] <= need[RANDOM],
                    "no_more": need[DEFAULT] <= peers[peer] and need[DEFAULT] < beyond[DEFAULT],
                }
            )
    return rows


def claims(record: Record) -> list[Claim]:
    """How often the default needs half of what random needs, and no more than the best other tool."""
    rows, lines = goals(record), []
    for goal in dict.fromkeys(row["goal"] for row in rows):
        mine = [row for row in rows if row["goal"] == goal]
        for key, word in (
            ("half", "at most half of the labels of random"),
            ("no_more", "no more than the best peer"),
        ):
            n = sum(row[key] is True for row in mine)
            lines.append(Claim(f"to {goal}: {word}", "not in the paper", f"{n} of {len(mine)} data sets", None))
    return lines


def chosen(record: Record) -> dict[str, float]:
    """The log-loss of every strategy of ours, averaged over answers and over the data that it was chosen on."""
    cells = [each["mean_log_loss"] for each in record.values["data"] if each["part"] == "choosing"]
    return {name: float(np.mean([cell[name] for cell in cells])) for name in cells[0]} if cells else {}


def draw(record: Record) -> Any:
    """A column for each data set: accuracy above, log-loss below."""
    from experiments import style

    cells = [each for each in record.values["data"] if each["part"] == "reporting"]
    names = list(cells[0]["curves"])
    colors = [style.BLUE, style.SKY, style.GRAY, style.ORANGE, style.GREEN, style.VERMILION, style.PURPLE, "black"]
    per_row = min(3, len(cells))
    n_rows = -(-len(cells) // per_row)
    figure, axes = style.subplots(2 * n_rows, per_row, size=(3.0, 2.1), squeeze=False)
    for i, cell in enumerate(cells):
        column, first = i % per_row, 2 * (i // per_row)
        for name, color in zip(names, colors, strict=False):
            curve = np.array(cell["curves"].get(name, np.full((1, 2), np.nan)))
            x = cell["n_first"] + np.arange(len(curve))
            wide = 1.8 if name == DEFAULT else 1.0
            for ax, values in zip(axes[first : first + 2, column], curve.T, strict=True):
                ax.plot(x, values, color=color, linewidth=wide, label=name, zorder=3 if name == DEFAULT else 2)
        starts = f"{cell['n_starts']} start{'s' * (cell['n_starts'] > 1)}"
        axes[first, column].set_title(f"{cell['data']}, {starts}", fontsize=9)
        axes[first, 0].set_ylabel("accuracy")
        axes[first + 1, 0].set_ylabel("log-loss")
        axes[first + 1, column].set_xlabel("labels")
        low = np.array(cell["curves"][DEFAULT])[:, 1]
        axes[first + 1, column].set_ylim(0.8 * low.min(), 1.3 * low.max())
    for ax in axes[2 * n_rows - 2 :, (len(cells) - 1) % per_row + 1 :].flat:
        ax.axis("off")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)
    return figure


def write_page(record: Record, out: Path) -> Path:
    """The picture beside the record, and the page."""
    from experiments import active_page

    runner.save_figure(draw(record), out / "active.png")
    target = PAGE if out == command.RECORDS else out / PAGE.name
    with whole_file(target) as part:
        part.write_text(active_page.page(record, out), encoding="utf-8")
    return target


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    return command.main("active", __doc__, arguments, page=write_page, data=active_data.FILE)


if __name__ == "__main__":
    raise SystemExit(main())
