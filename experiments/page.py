"""Committed records in; one page with every figure, the paper's numbers beside ours, and what differs, out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments import runner
from experiments.experiment import Claim, Record
from graphuq.files import whole_file

HEAD = """# The paper, reproduced

We recomputed every figure and table of Bertozzi, Luo, Stuart and Zygalakis, *Uncertainty Quantification in Graph-Based
Classification of High Dimensional Data*. This page shows the paper's results next to ours, and explains where they differ.

- **agrees**: the paper's number or statement holds.
- **differs**: it does not hold.
- **no verdict**: the paper leaves a setting open, or the result goes beyond the paper. If the paper has
  a result, ours is shown next to it, and the note gives the reason.

A posterior counts as converged if R-hat is below 1.05.

`graphuq reproduce ID --full` computes the record of one item with the paper's numbers of trials, and `graphuq reproduce ID
--quick` with only a few; the last line of each item says which of the two was used. All quick runs together take some
minutes on two cores. Items with MNIST digits download the data once. `graphuq reproduce page` writes this page from the
records in `docs/reproduction/`.
"""
VERDICTS = {True: "agrees", False: "differs", None: "no verdict"}
# Values of a config that are longer than this say nothing to a reader.
LONGEST_SETTING = 90


def write_page(records: Path, target: Path) -> list[str]:
    """Write the page from the records in a folder; the names of those that were found."""
    found = [name for name in runner.ORDER if (records / f"{name}.json").exists()]
    parts = [HEAD, _contents(found, records)]
    parts += [_section(runner.read_record(records / f"{name}.json"), records.name) for name in found]
    with whole_file(target) as part:
        part.write_text("\n".join(parts), encoding="utf-8")
    return found


def _contents(found: list[str], records: Path) -> str:
    rows = ["| item | what it shows | verdict |", "|---|---|---|"]
    for name in found:
        experiment = runner.load(name)
        claims = experiment.claims(runner.read_record(records / f"{name}.json"))
        rows.append(f"| [{name}](#{name}) | {_cell(experiment.TITLE)} | {_tally(claims)} |")
    return "\n".join([*rows, ""])


def _tally(claims: list[Claim]) -> str:
    """How many claims agree, differ, or have no verdict."""
    counts = {word: sum(claim.agrees is key for claim in claims) for key, word in VERDICTS.items()}
    return ", ".join(f"{word}: {n}" for word, n in counts.items() if n)


def _section(record: Record, folder: str) -> str:
    experiment = runner.load(record.name)
    settings = ", ".join(f"{key} = {_short(value)}" for key, value in record.config.items())
    lines = [
        f'## <a id="{record.name}"></a>{record.name}: {experiment.TITLE}',
        "",
        f"![{record.name}: {experiment.TITLE}]({folder}/{record.name}.png)",
        "",
        "| claim | paper | ours | verdict | note |",
        "|---|---|---|---|---|",
        *(
            f"| {' | '.join(_cell(each) for each in (c.what, c.paper, c.ours, VERDICTS[c.agrees], c.note))} |"
            for c in experiment.claims(record)
        ),
        "",
        f"Level: {record.level}. {_convergence(record.values)}Settings: {settings}. Computing time over all trials: "
        f"{_duration(record.seconds)}, on {record.machine}, graphuq {record.version}.",
        "",
    ]
    return "\n".join(lines)


def _convergence(values: dict[str, Any]) -> str:
    if "worst_r_hat" not in values:
        return ""
    worst = values["worst_r_hat"]
    if worst is None:
        return "The largest R-hat of the posteriors is not finite: **not converged**. "
    verdict = "all converged" if worst < 1.05 else "**not all converged**"
    return f"The largest R-hat of the posteriors is {worst:.3f}: {verdict}. "


def _short(value: Any) -> str:
    text = ", ".join(str(each) for each in value) if isinstance(value, list) else str(value)
    text = f"({text})" if isinstance(value, list) else text
    return text if len(text) <= LONGEST_SETTING else text[:LONGEST_SETTING] + " ..."


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _cell(text: str) -> str:
    """Text that may stand in a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")
