"""`python -m experiments ID... | --all [--quick | --full]`: records and figures, then a table of verdicts.

`python -m experiments page` writes docs/reproduction.md from the committed records. `python -m experiments NAME` of
`active`, `tables`, `digits_ten`, `separable` and `choose` has options of its own.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from experiments import page, runner
from graphuq.app.shell import sentence, whole_output

RECORDS = Path("docs/reproduction")
PAGE = Path("docs/reproduction.md")
SCRATCH = Path("reproduction")
WIDTHS = (15, 40, 26, 40, 8)
ON_THEIR_OWN = ("active", "tables", "strangers", "digits_ten", "separable", "choose")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; 1 where something that should agree does not, 2 where the question is wrong."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and given[0] in ON_THEIR_OWN:
        found: int = import_module(f"experiments.{given[0]}").main(given[1:])
        return found
    here = runner.available()
    parser = argparse.ArgumentParser(prog="graphuq reproduce", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="ID", help=f"of {', '.join(here)}; or page")
    parser.add_argument("--all", action="store_true", help="every one of them")
    level = parser.add_mutually_exclusive_group()
    level.add_argument("--quick", action="store_true", help="fewer trials and draws, in minutes (the default)")
    level.add_argument("--full", action="store_true", help="the paper's numbers of trials; a killed run resumes")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    parser.add_argument("--out", type=Path, help=f"for records (default: {RECORDS}, or {SCRATCH}/quick)")
    parser.add_argument("--work", type=Path, default=SCRATCH / "work", help="for finished trials")
    asked = parser.parse_args(given)
    if asked.names == ["page"]:
        if asked.all or asked.quick or asked.full:
            parser.error("the page is made of records that are there: leave out --all, --quick and --full.")
        records = asked.out or RECORDS
        if not any(records.glob("*.json")):
            parser.error(f"there is no record in {records}: run some experiments first.")
        try:
            found = page.write_page(records, PAGE)
        except OSError as error:
            return _tell(error)
        print(f"{PAGE}: {len(found)} of {len(runner.ORDER)} items.")
        return 0
    unknown = [name for name in asked.names if name not in here]
    if unknown:
        parser.error(f"no experiment {', '.join(unknown)}: choose from {', '.join(here)}.")
    if asked.all == bool(asked.names):
        parser.error("name some experiments, or ask for --all of them.")
    if asked.jobs < 1:
        parser.error(f"--jobs must be 1 or more, got {asked.jobs}.")
    chosen = here if asked.all else [name for name in here if name in asked.names]
    word = "full" if asked.full else "quick"
    out = asked.out or (RECORDS if asked.full else SCRATCH / "quick")
    try:
        outcomes = runner.reproduce(chosen, level=word, jobs=asked.jobs, out=out, work=asked.work)
    except MemoryError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        return _tell(error)
    except KeyboardInterrupt:
        print("Stopped. What is done is kept: the same command goes on from here.", file=sys.stderr)
        return 130
    print(table(outcomes))
    print(f"Records and figures: {out}")
    return 0 if all(outcome.good for outcome in outcomes) else 1


def _tell(error: OSError) -> int:
    print(f"graphuq reproduce: {sentence(error)}", file=sys.stderr)
    return 2


def table(outcomes: Sequence[runner.Outcome]) -> str:
    """Item, claim, the paper's, ours, verdict: one line each, wrapped."""
    rows: list[Sequence[str]] = [("item", "claim", "paper", "ours", "verdict")]
    for outcome in outcomes:
        for claim in outcome.claims:
            verdict = {True: "agrees", False: "DIFFERS", None: "-"}[claim.agrees]
            rows.append((outcome.name, claim.what, claim.paper, claim.ours, verdict))
        if outcome.missing:
            rows.append((outcome.name, "not run", "", outcome.missing, "-"))
        rows += [(outcome.name, "broken", "", error.splitlines()[0], "BROKEN") for error in outcome.errors]
    lines = []
    for row in rows:
        cells = [textwrap.wrap(cell, width) or [""] for cell, width in zip(row, WIDTHS, strict=True)]
        for i in range(max(len(cell) for cell in cells)):
            parts = (cell[i] if i < len(cell) else "" for cell in cells)
            lines.append("  ".join(f"{part:<{width}}" for part, width in zip(parts, WIDTHS, strict=True)).rstrip())
    broken = [error for outcome in outcomes for error in outcome.errors]
    return "\n".join([*lines, *(f"\n{error}" for error in broken)])


if __name__ == "__main__":
    with whole_output():
        sys.exit(main())
