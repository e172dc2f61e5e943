"""Are the probabilities right on tables that had no say? Thirty more of R's, listed after all others were split.

The list was made from the names, sizes and columns of the tables alone, and all of it is reported. Tools, labels and
measures are those of `tables.py`.

    python -m experiments.strangers --jobs 16                      # docs/reproduction/strangers.json
    python -m experiments.strangers --jobs 16 --data FILE          # FILE by experiments.table_data --strangers
    python -m experiments.calibration_page                         # docs/calibration.md, of which it is a part
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments import command, table_data, tables
from experiments.experiment import Trial

TITLE = "are the probabilities right? on tables that were listed last"
# Of fewer than 400 rows.
SMALL = ("birthwt", "crabs")


@dataclass(frozen=True)
class Config:
    """What is run.

    Attributes:
        tables: two-class tables.
        n_labels: drawn at random, each class at least once.
        n_draws: draws of labels.
        graphlearning: whether the package GraphLearning is among the tools.
    """

    tables: tuple[str, ...] = tuple(table_data.STRANGERS)
    n_labels: tuple[int, ...] = (20, 50, 200)
    n_draws: int = 10
    graphlearning: bool = False


FULL = Config()
QUICK = Config(tables=("twoclass",), n_labels=(20,), n_draws=1)

run, summarize, claims, draw = tables.run, tables.summarize, tables.claims, tables.draw


def trials(config: Config) -> list[Trial]:
    """Draws of labels, the longest first of each."""
    return tables.of_tables(config, "tables", {(data, 200) for data in SMALL})


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    return command.main("strangers", __doc__, arguments, data=table_data.FILE)


if __name__ == "__main__":
    raise SystemExit(main())
