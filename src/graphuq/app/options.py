"""Command-line options shared by several commands in; a `Question` or a classifier that they describe out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_args, get_type_hints

import typer
from typer import BadParameter
from typer.core import TyperCommand

if TYPE_CHECKING:
    from graphuq.app.question import Question
    from graphuq.estimator import GraphClassifier

# Allowed values of options, listed in the help.
Graph = StrEnum("Graph", ["knn", "self_tuning", "gaussian", "cosine", "nystrom"])
Prior = StrEnum("Prior", ["learned", "matern", "approximate", "project", "full"])
ModelName = StrEnum("ModelName", ["probit", "level_set", "ginzburg_landau"])
Inference = StrEnum("Inference", ["auto", "ep", "sample"])
Scale = StrEnum("Scale", ["auto", "robust", "none"])
Impute = StrEnum("Impute", ["median", "mean"])
Unknown = StrEnum("Unknown", ["refuse", "ignore"])

Json = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what exists.")]
Separator = Annotated[
    str | None, typer.Option(help="Between the cells of a text file; by default as the file looks.")
]
Sheet = Annotated[str | None, typer.Option(help="Of an Excel file; by default the first.")]
Scheduler = Annotated[str | None, typer.Option(help="Address of a Dask scheduler that does the work on a store.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes of this machine that do the work on a store.")]

Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The same seed gives the same answer.")]

# What each parameter is for, which an error says if it has no effect.
_PURPOSES = {
    "n_neighbors": "--graph knn and self_tuning",
    "width": "--graph gaussian and nystrom",
    "tau": "--prior matern",
    "alpha": "--prior matern",
    "epsilon": "--model ginzburg_landau",
    "n_components": "distances, which --graph cosine does not take",
    "n_modes": "the first eigenvectors of a graph, and --graph cosine and --prior full take all",
    "n_steps": "--inference sample, and for priors that are not learned",
    "time_limit": "--inference auto where draws are made: with priors that are not learned",
}


class OnceEach(TyperCommand):
    """A command that refuses to take a single-valued option twice: otherwise the last would win silently."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments as Typer does, after counting them."""
        given: Counter[Any] = Counter(self.make_parser(ctx).parse_args(args=list(args))[2])
        for option, times in given.items():
            if times > 1 and option.param_type_name == "option" and not (option.multiple or option.is_flag):
                raise BadParameter(f"{option.opts[0]} takes one value, and is given {times} times.")
        return super().parse_args(ctx, args)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Options for reading a table."""

    panel: ClassVar[str] = "Reading the table"
    row_id: Annotated[str | None, typer.Option("--id", help="Column that names the rows.")] = None
    columns: Annotated[
        list[str], typer.Option("--column", help="A feature to use; repeat. By default all others.")
    ] = field(default_factory=list)
    drop: Annotated[list[str], typer.Option(help="A column that is not a feature; repeat.")] = field(
        default_factory=list
    )
    categories: Annotated[
        list[str],
        typer.Option("--category", help="A feature that holds categories; repeat, or 'all' for all text."),
    ] = field(default_factory=list)
    scale: Annotated[
        Scale,
        typer.Option(
            help="Units to compare columns in: robust, or none, as they are. auto: robust, but pixels and a store as they "
            "are unless columns differ much."
        ),
    ] = Scale.auto
    impute: Annotated[Impute | None, typer.Option(help="Fill missing values; by default they are refused.")] = None
    unlabeled: Annotated[str, typer.Option(help="A further text that marks an unlabeled row.")] = ""
    separator: Separator = None
    sheet: Sheet = None

    def question(self, table: Path, label: str, *, truth: str | None = None) -> Question:
        """The question about a table with a label column."""
        from graphuq.app.question import Question

        return Question(table, label, truth, **vars(self))


@dataclass(frozen=True, kw_only=True)
class Showing:
    """Options for what the labeling page shows of a row."""

    panel: ClassVar[str] = "What is shown of a row"
    show: Annotated[
        list[str], typer.Option(help="A column to show; repeat. By default all but the label and those of --drop.")
    ] = field(default_factory=list)
    pictures: Annotated[Path | None, typer.Option(help="Folder with a picture of each row.")] = None
    picture_column: Annotated[str | None, typer.Option(help="Column with the names of the picture files.")] = None


@dataclass(frozen=True)
class Similarity:
    """Options of the similarity graph."""

    panel: ClassVar[str] = "Similarity"
    graph: Annotated[Graph, typer.Option(help="How similar rows are.")] = Graph.knn
    neighbors: Annotated[int | None, typer.Option(help="Neighbors of each row in the graph; by default 5.")] = None
    width: Annotated[float | None, typer.Option(help="Distance of similar rows, for gaussian and nystrom.")] = None
    components: Annotated[int | None, typer.Option(help="Principal components to keep first.")] = None
    modes: Annotated[int | None, typer.Option(help="Eigenvectors of the graph to use; by default 300.")] = None
    seed: Seed = 0

    def classifier(self, **settings: Any) -> GraphClassifier:
        """A classifier with these options, translated to parameter names, and further parameters.

        Raises an error for invalid values, and for options that the chosen graph, prior or inference does not use.
        """
        from graphuq.app.wording import OPTIONS, words_of_the_shell
        from graphuq.estimator import GraphClassifier
        from graphuq.estimator.settings import check_settings, without_effect

        given: dict[str, Any] = {}
        for name, option in OPTIONS.items():
            value = getattr(self, option.removeprefix("--").replace("-", "_"), None)
            if isinstance(value, list):
                value = _shares(value) if value else None
            if value is not None:
                given[name] = str(value) if isinstance(value, StrEnum) else value
        classifier = GraphClassifier(random_state=self.seed, **given, **settings)
        with words_of_the_shell():
            check_settings(classifier)
        for name in without_effect(classifier):
            if name in given:
                raise ValueError(f"{OPTIONS[name]} is for {_PURPOSES[name]}: leave it out.")
        return classifier


@dataclass(frozen=True)
class Modelling(Similarity):
    """Options of the graph, the prior, the model and inference."""

    panel: ClassVar[str] = "Graph, prior, model and inference"
    prior: Annotated[Prior, typer.Option(help="What is believed before any label.")] = Prior.learned
    model: Annotated[ModelName, typer.Option(help="How labels follow from the function.")] = ModelName.probit
    tau: Annotated[float | None, typer.Option(help="Inverse length scale of matern; by default 0.1.")] = None
    alpha: Annotated[float | None, typer.Option(help="Smoothness of matern; by default 2.")] = None
    gamma: Annotated[
        float | None, typer.Option(help="Noise of labels; by default learned, else 0.1 (ginzburg_landau 0.6).")
    ] = None
    epsilon: Annotated[
        float | None, typer.Option(help="Width of the wells of ginzburg_landau; by default 10.")
    ] = None
    class_share: Annotated[
        list[str],
        typer.Option(help="Known share of a class among all rows, such as yes=0.05; repeat, or 'equal' for all."),
    ] = field(default_factory=list)
    inference: Annotated[
        Inference, typer.Option(help="Expectation propagation, or draws; auto: draws if the prior is not learned.")
    ] = Inference.auto
    draws: Annotated[int | None, typer.Option(help="Posterior draws of each of 8 chains; by default 500.")] = None
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds after which drawing stops, once warm; by default 60.")
    ] = None


def _shares(given: list[str]) -> str | dict[str, float]:
    """Class shares written as NAME=SHARE, or "equal"."""
    if given == ["equal"]:
        return "equal"
    shares = {}
    for text in given:
        name, _, share = text.rpartition("=")
        try:
            shares[name] = float(share)
        except ValueError:
            raise ValueError(
                f"--class-share {text}: write it as NAME=SHARE, such as yes=0.05, or equal."
            ) from None
    return shares


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Expand dataclass parameters of a command, such as `Reading`, into options, each group in its own help panel."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name]))
            continue
        option_hints = get_type_hints(groups[name], include_extras=True)
        for option, default in vars(groups[name]()).items():
            kind, info = get_args(option_hints[option])
            info = copy(info)  # another command may show the same option elsewhere
            info.rich_help_panel = groups[name].panel
            hint = Annotated[kind, info]  # type: ignore[valid-type]
            parameters.append(Parameter(option, Parameter.KEYWORD_ONLY, default=default, annotation=hint))

    @wraps(command)
    def run(**given: Any) -> None:
        filled = {
            name: kind(**{option.name: given.pop(option.name) for option in fields(kind)})
            for name, kind in groups.items()
        }
        command(**given, **filled)

    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return run
