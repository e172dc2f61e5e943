"""An experiment of no content, for the tests of the runner; every run of a trial leaves a file."""

import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.experiment import Claim, Record, Trial

from graphuq.datasets import DatasetUnavailable

TITLE = "squares"


@dataclass(frozen=True)
class Config:
    folder: str = "."
    n_trials: int = 3
    seconds: float = 0.0
    broken: int | None = None
    missing: bool = False
    paper: float = 5.0


FULL = QUICK = Config()


def trials(config: Config) -> list[Trial]:
    return [{"number": number} for number in range(config.n_trials)]


def run(config: Config, trial: Trial) -> dict[str, Any]:
    (Path(config.folder) / f"ran-{trial['number']}-{uuid.uuid4().hex}").touch()
    time.sleep(config.seconds)
    if config.missing:
        raise DatasetUnavailable("squares could not be had")
    if trial["number"] == config.broken:
        raise ZeroDivisionError("no square today")
    return {"square": trial["number"] ** 2}


def summarize(config: Config, results: list[dict[str, Any]]) -> dict[str, Any]:
    return {"sum": sum(result["square"] for result in results)}


def draw(record: Record) -> Any:
    from experiments import style

    figure, ax = style.subplots()
    ax.plot([0, record.values["sum"]])
    return figure


def claims(record: Record) -> list[Claim]:
    found, paper = record.values["sum"], record.config["paper"]
    return [Claim("sum | of squares", str(paper), str(found), found == paper)]
