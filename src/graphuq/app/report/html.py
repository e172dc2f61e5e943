"""Pieces of the page: text and numbers in, HTML out, with whatever comes from a user escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from graphuq.app.report.palette import SHAPES
from graphuq.app.wording import percent


def section(title: str, body: str, note: str = "") -> str:
    """A card; `body` and `note` are HTML."""
    told = f"<p class='note'>{note}</p>" if note else ""
    return f"<section><h2>{escape(title)}</h2>{told}{body}</section>"


def pair(*parts: str) -> str:
    """Side by side, where there is room."""
    return f"<div class='pair'>{''.join(parts)}</div>"


def details(title: str, body: str) -> str:
    """What is shown when asked for."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def table(heads: Sequence[tuple[str, str]], rows: Sequence[str], *, name: str = "") -> str:
    """A table of ready rows; one with a name can be sorted by its heads, given as (title, class)."""

    def head(title: str, kind: str) -> str:
        sortable = name and title != "picture"
        inner = f"<button type='button'>{escape(title)}</button>" if sortable else escape(title)
        return f"<th scope='col' class='{kind}'>{inner}</th>"

    top = f"<thead><tr>{''.join(head(*each) for each in heads)}</tr></thead>" if heads else ""
    label = f" aria-label='{escape(name)}'" if name else ""
    return f"<div class='scroll'><table{label}>{top}<tbody>{''.join(rows)}</tbody></table></div>"


def text(value: str, kind: str = "text") -> str:
    """A cell with text of the user."""
    return f"<td class='{kind}'>{user(value)}</td>"


def user(value: str) -> str:
    """Text of the user: whichever way it is written, what follows is not turned round."""
    return f"<bdi>{escape(value)}</bdi>"


def sentence(value: str) -> str:
    """Text of ours, with names between curly quotes."""
    return re.sub("“(.*?)”", "“<bdi>\\1</bdi>”", escape(value))


def number(value: float | None, form: str) -> str:
    """A cell with a number, or with none."""
    return "<td></td>" if value is None else f"<td class='number' data-value='{value}'>{value:{form}}</td>"


def probability(value: float, bar: str = "") -> str:
    """A cell with a probability."""
    return f"<td class='number' data-value='{value}'>{bar}{escape(percent(value))}</td>"


def one_class(k: int, classes: Sequence[str], kind: str = "text", after: str = "") -> str:
    """A cell with a class: its mark and its name."""
    return f"<td class='{kind}'><span class='class'>{mark(k)}{user(classes[k])}{after}</span></td>"


def mark(k: int) -> str:
    """The shape of a class in its color, as on the map."""
    path = f"<path d='{SHAPES[k % len(SHAPES)]}' fill='var(--k{k})'/>"
    return f"<svg class='mark' viewBox='-1.3 -1.3 2.6 2.6' aria-hidden='true'>{path}</svg>"


def bar(k: int, share: float) -> str:
    """A bar in the color of a class; `share` of it is filled."""
    return f"<span class='bar'><i style='width:{100 * share:.0f}%;background:var(--k{k})'></i></span>"


def picture(node: int) -> str:
    """A canvas that the script fills."""
    return f"<canvas class='picture' data-node='{node}' role='img' aria-label='picture of the row'></canvas>"
