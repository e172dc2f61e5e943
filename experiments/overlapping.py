"""Are the probabilities right on tables whose many classes overlap? Sixteen of R's, of 3 to 32 classes.

The tables were drawn at random from one list with those that settings were chosen on, and were first run when all was
chosen. Tools, labels and measures are those of `tables.py`.

    python -m experiments.overlapping --jobs 16                    # docs/reproduction/overlapping.json
    python -m experiments.overlapping --jobs 16 --data FILE        # FILE by experiments.table_data --cache
    python -m experiments.calibration_page                         # docs/calibration.md, of which it is a part
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments import command, table_data, tables
from experiments.experiment import Trial

TITLE = "are the probabilities right? on tables of many classes"
# Of fewer than 500 rows.
SMALL = ("bankwages", "mode", "pbc_stage", "salaries", "womenlf")
# More classes than 20 labels could name.
MANY_MORE = ("leaves",)


@dataclass(frozen=True)
class Config:
    """What is run.

    Attributes:
        tables: of more than two classes.
        n_labels: drawn at random, each class at least once.
        n_draws: draws of labels.
        graphlearning: whether the package GraphLearning is among the tools.
    """

    tables: tuple[str, ...] = table_data.OVERLAPPING
    n_labels: tuple[int, ...] = (20, 50, 200)
    n_draws: int = 10
    graphlearning: bool = False


FULL = Config()
QUICK = Config(tables=("womenlf",), n_labels=(20,), n_draws=1)

run, summarize, claims, draw = tables.run, tables.summarize, tables.claims, tables.draw


def trials(config: Config) -> list[Trial]:
    """Draws of labels, the longest first of each."""
    left_out = {(data, 200) for data in SMALL} | {(data, 20) for data in MANY_MORE}
    return tables.of_tables(config, "many, tables", left_out)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    return command.main("overlapping", __doc__, arguments, data=table_data.FILE)


if __name__ == "__main__":
    raise SystemExit(main())
