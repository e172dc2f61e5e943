"""What an experiment is: a frozen config, independent trials, a JSON record, figures and claims from the record alone.

Each file named after a figure or table of the paper (`fig5.py`, `table1.py`) holds one:

    TITLE = "..."                              what it shows, one line
    FULL, QUICK = Config(...), Config(...)     frozen dataclasses: the paper's values; the same with fewer trials
    trials(config) -> list[Trial]              what can be run apart, each a small dict of JSON values
    run(config, trial) -> dict                 one trial: pure, seeded by the trial, JSON values out
    summarize(config, results) -> dict         the record's `values`, from the results in the order of the trials
    draw(record) -> Figure                     the picture
    claims(record) -> list[Claim]              the paper's numbers, ours, and whether they agree
    ALONE = True                               optional: trials are timed, so nothing runs beside them

Where there are posteriors, `values["worst_r_hat"]` is the largest R-hat among them, None if one is not finite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

Trial = dict[str, Any]


@dataclass(frozen=True)
class Claim:
    """One line of the final table.

    Attributes:
        what: the claim in a few words.
        paper: the paper's number or statement.
        ours: ours, with its error.
        agrees: whether it holds; None for no verdict (the paper leaves a setting out, or has no such result).
        note: why it differs, in a sentence or two; may be empty where it agrees.
    """

    what: str
    paper: str
    ours: str
    agrees: bool | None
    note: str = ""


@dataclass(frozen=True)
class Record:
    """The outcome of an experiment, as saved to JSON.

    Attributes:
        name: of the experiment, such as "fig5".
        level: "full" or "quick".
        config: the config's fields.
        values: what `summarize` returned.
        seconds: summed over trials.
        version: of graphuq.
        machine: processor, cores and accelerator, in words.
    """

    name: str
    level: str
    config: dict[str, Any]
    values: dict[str, Any]
    seconds: float
    version: str
    machine: str


class Experiment(Protocol):
    """A module that holds the names above."""

    __name__: str
    TITLE: str
    FULL: Any
    QUICK: Any

    def trials(self, config: Any) -> list[Trial]:
        """What can be run apart."""
        ...

    def run(self, config: Any, trial: Trial) -> dict[str, Any]:
        """One trial."""
        ...

    def summarize(self, config: Any, results: list[dict[str, Any]]) -> dict[str, Any]:
        """The record's values."""
        ...

    def draw(self, record: Record) -> Any:
        """A matplotlib figure."""
        ...

    def claims(self, record: Record) -> list[Claim]:
        """What the paper says and what we find."""
        ...
