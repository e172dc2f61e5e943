"""The content of a report in; one self-contained HTML page that works offline out.

Everything from a user's table is escaped by the template, or set as text by the script. As a second line of
defense, the page's content security policy allows no other script and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined, Template

from graphuq import __version__
from graphuq.app.report.content import Content
from graphuq.app.report.palette import SHAPES, variables
from graphuq.app.wording import percent, share
from graphuq.posterior.left_out import MAX_LEFT_OUT

GENERATOR = '<meta name="generator" content="graphuq'  # identifies a page as ours
MAX_LEGEND = 12  # classes of the legend that are not folded
MAX_MATRIX = 20  # classes of a readable confusion matrix
MAX_TOLD, MAX_NAME = 4, 30  # values of a row in a table, and letters of their column names
LITTLE = 0.1  # weight of the graph below which its map is folded
# Headers of numeric columns.
NUMERIC = {
    "probability", "its probability", "error", "R-hat", "effective draws", "in the tails", "weight", "value", "rows",
}  # fmt: skip


def render(content: Content) -> str:
    """Render the page as HTML text."""
    style, *scripts = (_file(name) for name in ("page.css", "draw.js", "page.js"))
    script = "".join(scripts)
    n_classes = len(content.classes)
    has = {
        "has_pictures": bool(content.plots["pictures"]),
        "has_errors": any(entry["error"] is not None for entry in content.nodes),
        "has_truth": content.confusion is not None,
        "has_nearest": bool(content.nearest),
        "has_unlabeled": len(content.least_certain) > 0,
    }
    page = _template().render(
        content=content,
        nodes={entry["node"]: entry for entry in content.nodes},
        n_classes=n_classes,
        **has,
        row_heads=[
            *(["picture"] if has["has_pictures"] else []),
            *["row", "class", "probability"],
            *(["runner-up", "its probability"] if n_classes > 2 else []),
            *(["error"] if has["has_errors"] else []),
            *(["truth"] if has["has_truth"] else []),
            *(["labeled rows like it"] if has["has_nearest"] else []),
        ],
        rows_note=_rows_note(content),
        map_note=_map_note(content),
        map_caveat=_map_caveat(content.graph_weight),
        legend=_legend(content),
        mistakes=_mistakes(content),
        tall="tall" if n_classes > 4 and max(map(len, content.classes)) > 4 else "",
        style=variables(n_classes) + style,
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        data=_json({**content.plots, "nodes": content.nodes}),
    )
    return page.encode("utf-8", "replace").decode("utf-8")  # a file name may not be valid text


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"percent": percent, "share": share, "form": format, "parts": _parts}
    environment.globals |= {
        "numeric": NUMERIC,
        "shapes": SHAPES,
        "max_checked": MAX_LEFT_OUT,
        "version": __version__,
    }
    environment.globals |= {"about": _about, "stripes": _stripes}
    return environment.from_string(_file("page.html"))


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _json(data: dict[str, Any]) -> str:
    """JSON for the script, escaped so that no text in it can close the surrounding element."""
    text = json.dumps(data, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _parts(sentence: str) -> list[tuple[str, str | None]]:
    """Split a sentence into its own text and the names between curly quotes."""
    pieces = re.split("“(.*?)”", sentence)
    return [(pieces[i], pieces[i + 1] if i + 1 < len(pieces) else None) for i in range(0, len(pieces), 2)]


def _about(columns: list[str], cells: list[str]) -> str:
    """The first values of a row, as text."""
    names = [name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…" for name in columns]
    values = [f"{name}\u00a0{cell[:40] or 'missing'}" for name, cell in zip(names, cells, strict=False)]
    return ", ".join(values[:MAX_TOLD]) + (", …" if len(values) > MAX_TOLD else "")


def _rows_note(content: Content) -> str:
    intro, similar = "Labeled rows are left out.", "the labeled rows most like it"
    if content.rows.cells:
        beside = f", beside those of {similar}" if content.nearest else ""
        return f"{intro} Press the values of a row to see all of them{beside}."
    return f"{intro} Beside each: {similar}." if content.nearest else intro


def _map_note(content: Content) -> str:
    n_all, n_shown = len(content.rows.names), len(content.nodes)
    many = len(content.classes) > 2
    combined = ", which are combined so that classes lie apart" if many else ""
    some = f" {n_shown:,} of {n_all:,} rows are drawn." if n_shown < n_all else ""
    pieces = content.plots["embedding"]["n_pieces"]
    drawn = ": choose “across” and “up” to see them side by side" if many else ", drawn side by side"
    apart = f" The graph falls into {pieces:,} pieces{drawn}." if pieces > 1 else ""
    return (
        f"Each dot is a row, placed by eigenvectors of the graph{combined}: similar rows lie together.{apart}{some} "
        "Point at one to see it; press a class to see it alone."
    )


def _map_caveat(weight: float) -> str:
    """A caveat if the graph shown by the map has little or no weight in the predictions."""
    if weight >= LITTLE:
        return ""
    amount, follow = (f"{share(weight)} of the", "hardly follow") if weight else ("no", "do not follow")
    return f"The graph has {amount} weight in the learned prior: the answers {follow} this map."


def _stripes(n: int) -> str:
    return ", ".join(f"var(--k{k}) {k * 100 // n}% {(k + 1) * 100 // n}%" for k in range(n))


def _legend(content: Content) -> dict[str, list[int]]:
    """The classes of the legend, the rarer of many folded."""
    order = sorted(range(len(content.classes)), key=lambda k: -content.found[k])
    return {"first": sorted(order[:MAX_LEGEND]), "rest": order[MAX_LEGEND:]}


def _mistakes(content: Content) -> list[tuple[int, int, int]] | None:
    """The most frequent mistakes (true class, predicted class, count); None for few classes, shown as a matrix."""
    counts, n_classes = content.confusion, len(content.classes)
    if counts is None or n_classes <= MAX_MATRIX:
        return None
    wrong = counts - np.diag(np.diag(counts))
    pairs = [divmod(int(cell), n_classes) for cell in np.argsort(-wrong, axis=None)[:MAX_MATRIX]]
    return [(i, j, int(wrong[i, j])) for i, j in pairs if wrong[i, j]]
