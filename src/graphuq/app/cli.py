"""Command-line arguments in; files and short tables out; bad input gives a one-sentence error and exit code 2.

Libraries are imported inside the commands to keep `graphuq --help` fast.
"""

from __future__ import annotations

import json as jsons
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from graphuq import __version__
from graphuq.app.label.command import label
from graphuq.app.options import (
    Force,
    Json,
    Modelling,
    OnceEach,
    Quiet,
    Reading,
    Scale,
    Scheduler,
    Seed,
    Separator,
    Sheet,
    Unknown,
    Workers,
    grouped,
)
from graphuq.app.shell import exit_on_signals, one_sentence, printable, tell, whole_output
from graphuq.files import check_target

app = typer.Typer(
    help="Much data, few labels: the class of every row, how sure it is, and which rows a person should look at.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
# reproduce passes all arguments, including --help, on to another program.
HANDED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"graphuq {__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Much data, few labels: the class of every row, how sure it is, and which rows a person should look at."""


@app.command(cls=OnceEach)
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the reports; earlier ones are replaced.")] = Path("demo"),
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Classify the House of 1984 from five known members, and handwritten digits from five of each."""
    from graphuq.app import demo as demonstration

    with one_sentence():
        silent = quiet or json
        result = demonstration.run(
            out, seed=seed, tell=partial(tell, silent=silent), progress=sys.stderr.isatty() and not silent
        )
    _print(result, demonstration.in_words(result), json, quiet)


@app.command(cls=OnceEach)
@grouped
def fit(
    table: Annotated[
        Path,
        typer.Argument(
            help="CSV, TSV, Excel, Parquet or NPZ file, one row for each thing to classify. With --labels: an NPY "
            "file, a Zarr folder or Parquet files of any size."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write: predictions.csv, report.html, the model.")],
    *,
    label: Annotated[
        str | None, typer.Option(help="Column with the class of some rows; empty or -1 where unknown.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Table with columns row, from 0, and class, for features in a store.")
    ] = None,
    dask_scheduler: Scheduler = None,
    workers: Workers = None,
    reading: Reading,
    truth: Annotated[str | None, typer.Option(help="Column with true classes, to judge the answers by.")] = None,
    modelling: Modelling,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Classify every row of a table from those that have a class."""
    with one_sentence():
        if (label is None) == (labels is None):
            raise ValueError("Give --label with the column of a table, or --labels with a table for a store.")
        if labels is None and (dask_scheduler or workers):
            raise ValueError("--dask-scheduler and --workers are for features in a store: use --labels.")
        if labels is None and (table.suffix in (".npy", ".zarr") or any(table.glob("*.parquet"))):
            raise ValueError(
                f"{table} is a store, whose classes stand in a table of their own: give that as --labels."
            )
        classifier = modelling.classifier(verbose=not (quiet or json))
        if labels is not None:
            from graphuq.app import large

            if truth or replace(reading, scale=Scale.auto) != Reading():
                raise ValueError(
                    "Features in a store are numbers, all of which are used: leave out --id, --truth, --column, --drop, "
                    "--category, --impute, --unlabeled, --separator and --sheet."
                )
            classifier.scale = reading.scale.value
            cluster: dict[str, Any] = {"scheduler": dask_scheduler, "workers": workers, "replace": force}
            report_stage = partial(tell, silent=quiet or json)
            result = large.fit_store(table, labels, classifier, out, tell=report_stage, **cluster)
            _print(result, large.summary_in_words(result), json, quiet)
            return
        from graphuq.app.fitting import fit_folder

        question = reading.question(table, label or "", truth=truth)
        summary = fit_folder(question, classifier, out, replace=force, tell=partial(tell, silent=quiet or json))
    summary["report"] = str(out / "report.html")
    for note in summary["warnings"]:
        tell(f"Note: {note}", quiet or json)
    _print(summary, _fit_in_words(summary, out), json, quiet)


@app.command(cls=OnceEach)
def predict(
    folder: Annotated[Path, typer.Argument(help="What fit wrote.")],
    table: Annotated[Path, typer.Argument(help="New rows, with the same features: a table, or a store.")],
    out: Annotated[
        Path | None,
        typer.Option(help="CSV file to write; by default standard output. For a store: a folder, or NAME.zarr."),
    ] = None,
    separator: Separator = None,
    sheet: Sheet = None,
    unknown: Annotated[
        Unknown, typer.Option(help="What to do with a category that was not in the fit: refuse it, or ignore it.")
    ] = Unknown.refuse,
    dask_scheduler: Scheduler = None,
    workers: Workers = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Classify the rows of a new table, or store, with a fitted model."""
    with one_sentence():
        from graphuq.app import large
        from graphuq.app.fitting import predict_table
        from graphuq.app.folder import FILES, read
        from graphuq.app.tables.read import refuse_other_kind
        from graphuq.app.tables.write import write_csv
        from graphuq.files import whole_file

        target: Any = (out, force, table, *(folder / name for name in FILES))
        if not (table.is_dir() or table.suffix in (".npy", *large.PARQUET)):  # a table, whatever the model
            check_target(*target)
        model = read(folder)
        if large.as_store(table, model):
            if (separator, sheet, unknown) != (None, None, Unknown.refuse):
                raise ValueError(
                    f"{table} is a store of numbers, taken as they are: leave out --separator, --sheet and --unknown."
                )
            cluster: dict[str, Any] = {"scheduler": dask_scheduler, "workers": workers, "replace": force}
            result = large.predict_store(table, model, out, **cluster, verbose=not (quiet or json))
            _print(result, large.summary_in_words(result), json, quiet)
            return
        if dask_scheduler or workers:
            raise ValueError(
                f"--dask-scheduler and --workers are for features in a store, and {table} is a table."
            )
        check_target(*target)
        refuse_other_kind(out)
        ignore_unknown = unknown == Unknown.ignore
        format_options: dict[str, Any] = {"separator": separator, "sheet": sheet}
        answers, notes, marks = predict_table(model, table, **format_options, ignore_unknown=ignore_unknown)
        if out is not None:
            with whole_file(out) as part, part.open("w", encoding="utf-8", newline="") as file:
                write_csv(file, answers, marks)
    for note in notes:
        tell(f"Note: {note}", quiet)
    if json:
        names = list(answers)
        typer.echo(
            jsons.dumps([dict(zip(names, row, strict=True)) for row in zip(*answers.values(), strict=True)])
        )
    elif out is None:
        in_terminal = sys.stdout.isatty()
        write_csv(sys.stdout, _for_terminal(answers) if in_terminal else answers, marks._replace(first=""))
    elif not quiet:
        typer.echo(f"{len(next(iter(answers.values()))):,} rows classified: {out}")


@app.command(cls=OnceEach)
def report(
    folder: Annotated[Path, typer.Argument(help="What fit wrote.")],
    out: Annotated[Path | None, typer.Option(help="File to write; by default report.html in the folder.")] = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Write the report of a fitted model again."""
    with one_sentence():
        from graphuq.app.fitting import rewrite_report
        from graphuq.app.folder import FILES, REPORT

        check_target(out, force, *(folder / name for name in FILES if name != REPORT))

        written = rewrite_report(folder, out)
    if not quiet:
        typer.echo(f"Report: {written}")


app.command(cls=OnceEach)(label)


@app.command(cls=OnceEach)
def data(
    name: Annotated[str, typer.Argument(help="mnist, voting, indian-pines or plume.")],
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fetch or make a data set, check it, and say what it holds."""
    from graphuq import datasets

    loaders: dict[str, Any] = {
        "voting": datasets.voting_records,
        "mnist": datasets.mnist,
        "indian-pines": datasets.indian_pines,
        "plume": datasets.plume,
    }
    with one_sentence():
        if name not in loaders:
            raise ValueError(f"There is no data set {name!r}: choose one of {', '.join(loaders)}.")
        try:
            dataset = loaders[name]()
        except (datasets.DatasetUnavailable, ImportError) as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(1) from None
    n_rows, n_features = dataset.X.shape
    facts = {"name": name, "rows": n_rows, "features": n_features, "source": dataset.source}
    text = f"{name}: {n_rows:,} rows of {n_features} features. {dataset.source}"
    _print({**facts, "folder": str(datasets.data_folder())}, text, json, quiet)


@app.command(context_settings=HANDED_ON)
def reproduce(context: typer.Context) -> None:
    """Reproduce the paper's figures and tables, beside the originals; needs a clone of the repository."""
    with one_sentence():
        if not Path("experiments", "__main__.py").exists():
            raise ValueError("The experiments come with the repository: run this in the root of a clone.")
    raise typer.Exit(subprocess.run([sys.executable, "-m", "experiments", *context.args], check=False).returncode)


def _for_terminal(columns: dict[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Make the text of a table safe to print to a terminal."""
    return {
        printable(name): [printable(cell) if isinstance(cell, str) else cell for cell in cells]
        for name, cells in columns.items()
    }


def _print(result: Any, text: str, json: bool, quiet: bool) -> None:
    """Print the result as JSON or as text."""
    if json or not quiet:
        typer.echo(jsons.dumps(result) if json else text)


def _fit_in_words(summary: dict[str, Any], out: Path) -> str:
    """The summary of a fit as text."""
    from graphuq.app.wording import percent

    classes, suspicious = _found(summary["found"]), summary["suspicious_labels"]
    width = min(max(len(row["row"]) for row in summary["least_certain"]), 40)
    lines = [
        f"{summary['rows']:,} rows, {summary['labeled']:,} with a class. Of the others: {classes}.",
        f"Features: {summary['scaling']}.",
        summary["verdict"],
        summary["truth_check"] or summary["self_check"],
        f"Labels that contradict the others: {suspicious:,}, see the report." if suspicious else "",
        "\nLeast certain:",
        *(
            f"  {printable(row['row']).ljust(width)}  {percent(row['probability']):>7}  {printable(row['class'])}"
            for row in summary["least_certain"]
        ),
        f"\nReport: {summary['report']}\nEvery row: {out / 'predictions.csv'}",
    ]
    return "\n".join(line for line in lines if line)


def _found(counts: dict[str, int], most: int = 8) -> str:
    """The number of rows in each class, or in the largest `most` classes, as text."""
    from graphuq.classes import listed

    names = list(counts) if len(counts) <= most else sorted(counts, key=lambda name: -counts[name])[:most]
    quoted = (repr(name) if "," in name else name for name in names)
    parts = [f"{counts[name]:,} of class {printable(text)}" for name, text in zip(names, quoted, strict=True)]
    if len(counts) > most:
        n_others = sum(counts.values()) - sum(counts[name] for name in names)
        parts.append(f"{n_others:,} of {len(counts) - most} more")
    return listed(parts)


def main() -> None:
    """Run the command line."""
    exit_on_signals()
    with whole_output():
        app()


if __name__ == "__main__":
    main()
