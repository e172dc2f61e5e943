"""The name of an experiment that has a page of its own in; its command line out: run what is left, write the page."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from experiments import runner
from experiments.experiment import Record

RECORDS, SCRATCH = Path("docs/reproduction"), Path("reproduction")


def main(
    name: str,
    about: str | None,
    arguments: Sequence[str] | None,
    *,
    page: Callable[[Record, Path], Path] | None = None,
    data: str = "",
) -> int:
    """Run what is not done yet, and write the record; then the page. 1 where a claim that should hold does not.

    Args:
        name: of the experiment.
        about: the help.
        arguments: of the shell.
        page: draws the picture and writes the page of a record in a folder, and says where; None: another command does.
        data: the variable that names a file with the data, if there is one.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small part of it")
    parser.add_argument("--page", action="store_true", help="nothing but the page, from the record")
    parser.add_argument("--data", type=Path, help="a file with the data, where there is one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="begin no more trials after so long; 0: none"
    )
    parser.add_argument("--out", type=Path, help=f"for the record (default: {RECORDS}, or {SCRATCH}/quick)")
    parser.add_argument("--work", type=Path, default=SCRATCH / "work", help="for finished trials")
    asked = parser.parse_args(arguments)
    if asked.data is not None:
        if not data:
            parser.error(f"{name} reads no file of data.")
        os.environ[data] = str(asked.data.absolute())
    out = asked.out or (SCRATCH / "quick" if asked.quick else RECORDS)
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # nothing here would gain from an accelerator
    wrong = False
    if not asked.page:
        (outcome,) = runner.reproduce(
            [name],
            level="quick" if asked.quick else "full",
            jobs=asked.jobs,
            out=out,
            work=asked.work,
            seconds=asked.seconds,
            figures=False,
        )
        for claim in outcome.claims:
            print(f"{claim.what}: {claim.ours}")
        wrong = any(claim.agrees is False for claim in outcome.claims)
        if outcome.record is None:
            print(*outcome.errors[:3], outcome.missing, sep="\n")
            return 1
    path = out / f"{name.rpartition('.')[2]}.json"
    if page is None or find_spec("matplotlib") is None:
        print(f"{path}{'' if page is None else ': the page needs matplotlib, --page.'}")
    else:
        print(path, page(runner.read_record(path), out))
    return int(wrong)
