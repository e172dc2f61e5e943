"""Are the probabilities of many classes right? On data whose classes lie apart, from a few labels of each class.

Tools and measures are those of `tables.py`; `overlapping.py` has tables whose many classes overlap.

    python -m experiments.many --jobs 16                      # docs/reproduction/many.json
    python -m experiments.many --jobs 16 --data FILE          # FILE by experiments.table_data --cache
    python -m experiments.calibration_page                    # docs/calibration.md, of which it is a part
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments import command, graphlearning_peers, table_data, tables
from experiments.experiment import Trial

TITLE = "are the probabilities right? on data of many classes"


@dataclass(frozen=True)
class Config:
    """What is run.

    Attributes:
        many: data of more than two classes.
        per_class: labels of each class.
        n_draws: draws of labels.
        graphlearning: whether the package GraphLearning is among the tools.
    """

    many: tuple[str, ...] = (*table_data.MANY, "mnist")
    per_class: tuple[int, ...] = (1, 2, 5, 10)
    n_draws: int = 6
    graphlearning: bool = graphlearning_peers.installed()


FULL = Config()
QUICK = Config(many=("iris", "vowel"), n_draws=1)

run, summarize, claims, draw = tables.run, tables.summarize, tables.claims, tables.draw


def trials(config: Config) -> list[Trial]:
    """Draws of labels, the longest first of each."""
    return [
        {"group": tables.PER_CLASS, "data": data, "n_labels": n, "seed": seed}
        for seed in range(config.n_draws)
        for n in reversed(config.per_class)
        for data in config.many
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    return command.main("many", __doc__, arguments, data=table_data.FILE)


if __name__ == "__main__":
    raise SystemExit(main())
