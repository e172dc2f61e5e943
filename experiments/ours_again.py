"""Records of many tools in; the same with our own answers computed anew out, those of the other tools as they were.

What other tools answer does not change with our code, and takes ten times as long. The labels are drawn as before: the
class shares, which follow from them alone, are computed too and must be those of the record. Of a difference between
ours and another tool the mean is exact; its error is that of independent draws, which is larger than draw by draw.

    python -m experiments.ours_again tables many overlapping --data FILE    # FILE by experiments.table_data
    python -m experiments.ours_again strangers --data FILE                  # FILE by experiments.table_data --strangers
    python -m experiments.calibration_page                                  # docs/calibration.md from the records

    python -m experiments.ours_again digits_ten
    python -m experiments.digits_ten --page                                 # docs/digits.md from the record

    python -m experiments.ours_again active --data FILE --seconds 500       # FILE by experiments.active_data
    python -m experiments.active --page                                     # docs/active.md from the record

The last resumes where `--seconds` stopped it, and writes what it has.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from experiments import active, active_data, digits_ten, runner, table_data, table_peers, table_scores, tables
from experiments.command import RECORDS, SCRATCH
from experiments.experiment import Trial
from experiments.table_peers import BARE, SHARES, TOOLS
from experiments.table_scores import OURS, bins, grouped, measure, wrong_label_auroc
from graphuq._progress import progress_bar


def answered(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Our answers, and the class shares, on draws of labels of one data set."""
    found = []
    for trial in trials:
        problem = tables.prepare(trial["data"])
        nodes, given = tables.draw_labels(problem.y, trial)
        beliefs, probability = tables.ours(problem, nodes, given)
        rest = np.setdiff1d(np.arange(len(problem.y)), nodes)
        truth, wrong = problem.y[rest], given != problem.y[nodes]
        task: Any = table_peers.Task(np.empty((len(problem.y), 0)), None, nodes, given, trial["seed"], None)
        every = {OURS: probability, **{name: TOOLS[name](task) for name in (SHARES, BARE)}}
        found.append(
            {
                **trial,
                "scores": {name: measure(p[rest], truth) for name, p in every.items()},
                "bins": {OURS: bins(probability[rest], truth)},
                "wrong_label_auroc": wrong_label_auroc(beliefs, wrong, nodes) if wrong.any() else None,
            }
        )
    return found


def merged(values: dict[str, Any], results: list[dict[str, Any]]) -> dict[str, Any]:
    """The values of a record with ours replaced."""
    now = table_scores.summarized(results)
    mine = {_key(cell): cell for cell in now["cells"]}
    cells = []
    for before in values["cells"]:
        cell = mine.pop(_key(before))
        for name in (SHARES, BARE):
            if not np.allclose(*(each["scores"][name][0][0] for each in (before, cell)), rtol=1e-3):
                raise ValueError(f"{_key(before)}: the record is of other labels, run all tools anew.")
        new = {**before, "wrong_label_auroc": cell["wrong_label_auroc"]}
        for part in ("scores", "beyond_shares"):
            new[part] = {**before[part], OURS: cell[part][OURS]}
        cells.append(new)
    if mine:
        raise ValueError(f"The record does not have {next(iter(mine))}: run all tools anew.")
    groups = [
        table_scores.group_of([{**cell, "ours_beyond": _differences(cell["scores"])} for cell in some])
        for some in grouped(cells, "group", "n_labels")
    ]
    pooled = {
        group: {n: {**each, OURS: now["bins"][group][n][OURS]} for n, each in counts.items()}
        for group, counts in values["bins"].items()
    }
    return {"cells": cells, "groups": groups, "bins": pooled}


def _key(cell: dict[str, Any]) -> tuple[str, str, int]:
    return cell["group"], cell["data"], cell["n_labels"]


def _differences(scores: dict[str, Any]) -> dict[str, list[float | None]]:
    """Our log-loss less that of each tool, and the error of independent draws."""
    (mean, error), *_ = scores[OURS]
    return {
        name: [0.0, 0.0]
        if name == OURS
        else [mean - theirs[0][0], None if error is None else float(np.hypot(error, theirs[0][1]))]
        for name, theirs in scores.items()
    }


def renewed(name: str, path: Path, jobs: int) -> None:
    """One record, written anew."""
    record, experiment, began = runner.read_record(path), import_module(f"experiments.{name}"), time.perf_counter()
    trials = experiment.trials(experiment.FULL)
    some = grouped(trials, "data", "n_labels")
    results: dict[str, dict[str, Any]] = {}
    with (
        runner.environment(1, SCRATCH / "work"),
        ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool,
        progress_bar(len(some), shown=True, unit="set", desc=name) as bar,
    ):
        for part in pool.map(answered, some):
            results |= {_told(each): each for each in part}
            bar.update()
    values = merged(record.values, [results[_told(trial)] for trial in trials])
    seconds = round(record.seconds + jobs * (time.perf_counter() - began), 1)
    runner.write(path, asdict(replace(record, values=values, seconds=seconds)))
    for claim in experiment.claims(runner.read_record(path)):
        print(f"{claim.what}: {claim.ours}")


def renewed_active(path: Path, jobs: int, seconds: float, n_starts: int) -> None:
    """The record of simulated labelling, with our curves on the reported data made anew from so many starts."""
    record, work = runner.read_record(path), SCRATCH / "work"

    def wanted(trial: Trial) -> bool:
        ours = trial["part"] == "reporting" and trial["tool"].startswith("graphuq")
        return ours and trial["seed"] < n_starts

    results = runner.results_of("active", wanted, jobs=jobs, work=work, seconds=seconds)
    values = active.merged(record.values, active.summarize(active.FULL, results))
    runner.write(path, asdict(replace(record, values=values)))
    print(
        f"{len(results)} trials",
        *(f"{claim.what}: {claim.ours}" for claim in active.claims(runner.read_record(path))),
        sep="\n",
    )


def renewed_digits(path: Path, jobs: int) -> None:
    """The record of ten digits, with our lines made anew."""
    record, config = runner.read_record(path), digits_ten.FULL
    with (
        runner.environment(1, SCRATCH / "work"),
        ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool,
    ):
        results = list(pool.map(digits_ten.ours, digits_ten.trials(config)))
    rows = []
    for before, now in zip(record.values["rows"], digits_ten.summarize(config, results)["rows"], strict=True):
        if any(before[key] != now[key] for key in ("per_class", "n_draws")):
            raise ValueError("The record is of other draws, run all tools anew.")
        rows.append({**before, "scores": before["scores"] | now["scores"]})
    runner.write(path, asdict(replace(record, values={"rows": rows})))


def _told(result: dict[str, Any]) -> str:
    return json.dumps({key: result[key] for key in ("group", "data", "n_labels", "seed")})


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="+", choices=["tables", "many", "overlapping", "strangers", "active", "digits_ten"]
    )
    parser.add_argument("--data", type=Path, help="a file with the data")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="of active: begin no more trials after so long"
    )
    parser.add_argument("--starts", type=int, default=active.FULL.n_starts, help="of active: how many")
    parser.add_argument("--out", type=Path, default=RECORDS, help="where the records are")
    asked = parser.parse_args(arguments)
    if asked.data is not None:
        os.environ[active_data.FILE if "active" in asked.names else table_data.FILE] = str(asked.data.absolute())
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    if "active" in asked.names:
        renewed_active(asked.out / "active.json", asked.jobs, asked.seconds, asked.starts)
    if "digits_ten" in asked.names:
        renewed_digits(asked.out / "digits_ten.json", asked.jobs)
    for name in set(asked.names) - {"active", "digits_ten"}:
        renewed(name, asked.out / f"{name}.json", asked.jobs)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
