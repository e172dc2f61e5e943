"""Options that several commands take, and what they may be."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

# What an option may be; in help they are listed.
Graph = StrEnum("Graph", ["knn", "self_tuning", "gaussian", "cosine"])
Prior = StrEnum("Prior", ["learned", "matern", "approximate", "project", "full"])
ModelName = StrEnum("ModelName", ["probit", "level_set", "ginzburg_landau"])
Inference = StrEnum("Inference", ["auto", "ep", "sample"])
Scale = StrEnum("Scale", ["auto", "standard", "none"])
Impute = StrEnum("Impute", ["median", "mean"])
Unknown = StrEnum("Unknown", ["refuse", "ignore"])

Seed = Annotated[int, typer.Option(help="The same seed gives the same answer.")]
Json = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what exists.")]
Separator = Annotated[
    str | None, typer.Option(help="Between the cells of a text file; by default as the file looks.")
]
