"""Nothing in; the votes of 435 members of the U.S. House in 1984, and their parties, out."""

from __future__ import annotations

from importlib.resources import files

import numpy as np

from .dataset import Dataset

_VOTE = {"y": 1.0, "n": -1.0, "?": 0.0}
_PARTY = {"democrat": 1, "republican": -1}
_QUESTIONS = (
    "handicapped infants",
    "water project cost sharing",
    "adoption of the budget resolution",
    "physician fee freeze",
    "El Salvador aid",
    "religious groups in schools",
    "anti-satellite test ban",
    "aid to Nicaraguan contras",
    "MX missile",
    "immigration",
    "synfuels corporation cutback",
    "education spending",
    "Superfund right to sue",
    "crime",
    "duty-free exports",
    "export administration act South Africa",
)


def voting_records() -> Dataset:
    """The 16 key votes of 1984: yes 1, no -1, absent 0; 267 Democrats (+1), 168 Republicans (-1)."""
    lines = files(__package__).joinpath("house-votes-84.data").read_text(encoding="ascii").splitlines()
    table = [line.split(",") for line in lines]
    return Dataset(
        X=np.array([[_VOTE[vote] for vote in votes] for _, *votes in table]),
        y=np.array([_PARTY[party] for party, *_ in table]),
        class_names={1: "Democrat", -1: "Republican"},
        source="Congressional Voting Records (1987), UCI Machine Learning Repository, doi:10.24432/C5C01P.",
        feature_names=_QUESTIONS,
    )
