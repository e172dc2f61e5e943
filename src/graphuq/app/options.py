"""Options that several commands take, and what they may be."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

# What an option may be; in help they are listed.
Graph = StrEnum("Graph", ["knn", "self_tuning", "gaussian", "cosine"])
FitGraph = StrEnum("FitGraph", ["knn", "self_tuning", "gaussian", "cosine", "nystrom"])
Prior = StrEnum("Prior", ["learned", "matern", "approximate", "project", "full"])
ModelName = StrEnum("ModelName", ["probit", "level_set", "ginzburg_landau"])
Inference = StrEnum("Inference", ["auto", "ep", "sample"])
Scale = StrEnum("Scale", ["auto", "standard", "none"])
Impute = StrEnum("Impute", ["median", "mean"])
Unknown = StrEnum("Unknown", ["refuse", "ignore"])

Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The same seed gives the same answer.")]
Json = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what exists.")]
Separator = Annotated[
    str | None, typer.Option(help="Between the cells of a text file; by default as the file looks.")
]

# How a table is read, and what graph is made of it.
RowId = Annotated[str | None, typer.Option("--id", help="Column that names the rows.")]
Columns = Annotated[list[str] | None, typer.Option(help="A feature to use; repeat. By default all others.")]
Dropped = Annotated[list[str] | None, typer.Option(help="A column that is no feature; repeat.")]
Categories = Annotated[
    list[str] | None, typer.Option(help="A feature that holds categories; repeat, or 'all' for all text.")
]
Scaling = Annotated[Scale, typer.Option(help="Numbers to mean 0 and variance 1; auto: but not pixels.")]
Imputing = Annotated[Impute | None, typer.Option(help="Fill missing values; by default they are refused.")]
Unlabeled = Annotated[str, typer.Option(help="A further text that marks an unlabeled row.")]
GraphOption = Annotated[Graph, typer.Option(help="How similar rows are.")]
FitGraphOption = Annotated[FitGraph, typer.Option(help="How similar rows are; nystrom with --labels alone.")]
Width = Annotated[float | None, typer.Option(help="Distance of similar rows, for gaussian and nystrom.")]
Components = Annotated[int | None, typer.Option(help="Principal components to keep first.")]
