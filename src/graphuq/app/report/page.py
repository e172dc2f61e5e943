"""The content of a report in; one HTML page that needs nothing else, not even a network, out.

Whatever comes from a user's table is escaped here, or set as text by the script. As a second fence the
page carries a policy that lets no other script run and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from typing import Any

from graphuq import __version__
from graphuq.app.report import html, sections
from graphuq.app.report.content import Content
from graphuq.app.report.palette import variables
from graphuq.app.wording import percent

GENERATOR = '<meta name="generator" content="graphuq'  # how a page of ours is known
MAX_LEGEND = 12  # classes of a legend that are shown without asking
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
{generator} {version}">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<main>
<header><h1><bdi>{title}</bdi></h1>
<button id="theme" type="button" aria-label="switch between light and dark">◐ theme</button></header>
{body}
<footer>Made by graphuq {version}. Probabilities are posterior probabilities{errors}.</footer>
</main>
<div id="tip" role="status"></div>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""
_STAR = (
    "<svg class='mark' viewBox='0 0 14 14' aria-hidden='true'><path fill='none' stroke='currentColor' "
    "d='M7 .7 8.6 4.8 13 5.1 9.6 7.8 10.7 12.1 7 9.7 3.3 12.1 4.4 7.8 1 5.1 5.4 4.8Z'/></svg>"
)


def render(content: Content) -> str:
    """The page as text."""
    style, *scripts = (
        files(__package__).joinpath(name).read_text("utf-8") for name in ("page.css", "draw.js", "page.js")
    )
    script = "".join(scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = [
        _answer(content),
        _map(content),
        _table_of_nodes(content),
        _pictures(content),
        html.pair(sections.confidence(), sections.calibration(content) or sections.spectrum()),
        _judged(content),
        sections.marginals(content) if content.plots["marginals"] else sections.shares(content),
        sections.convergence(content),
        html.pair(sections.suspicious(content), sections.hyperparameters(content)),
        sections.comparison(content),
        sections.settings(content),
    ]
    return _PAGE.format(
        policy=f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        generator=GENERATOR,
        title=escape(content.title),
        style=variables(len(content.classes)) + style,
        body="\n".join(filter(None, parts)),
        errors=", errors Monte-Carlo errors" if _has_errors(content) else "",
        version=escape(__version__),
        data=_json(content),
        script=script,
    )


def _judged(content: Content) -> str:
    """What is known where the truth is; a large matrix takes the whole width."""
    if content.confusion is None:
        return ""
    parts = sections.confusion(content), sections.spectrum()
    return html.pair(*parts) if len(content.classes) <= MAX_LEGEND else "".join(parts)


def _json(content: Content) -> str:
    """The numbers for the script; no text in them can end the element they stand in."""
    text = json.dumps({**content.plots, "nodes": content.nodes}, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _has_errors(content: Content) -> bool:
    return any(entry["error"] is not None for entry in content.nodes)


def _sureness(content: Content, confidence: float) -> float:
    """A confidence between 1 / n_classes and 1, from 0 to 1."""
    least = 1 / len(content.classes)
    return max(0.0, (confidence - least) / (1 - least))


def _answer(content: Content) -> str:
    told = "".join(f"<p class='lead'>{html.sentence(sentence)}</p>" for sentence in content.sentences)
    tiles = (f"<div class='tile'><b>{escape(n)}</b><span>{escape(what)}</span></div>" for n, what in content.tiles)
    return f"{told}<div class='tiles'>{''.join(tiles)}</div>"


def _map(content: Content) -> str:
    names = content.plots["embedding"]["names"]

    def select(axis: str, chosen: int) -> str:
        options = "".join(
            f"<option value='{k}'{' selected' if k == min(chosen, len(names) - 1) else ''}>{escape(name)}</option>"
            for k, name in enumerate(names)
        )
        return f"<label>{axis} <select id='axis-{axis}'>{options}</select></label>"

    n_all, n_shown = len(content.rows.names), len(content.nodes)
    combined = ", which are combined so that classes lie apart" if len(content.classes) > 2 else ""
    some = f" {n_shown:,} of {n_all:,} rows are drawn." if n_shown < n_all else ""
    return html.section(
        "The rows, as the graph sees them",
        f"<div class='controls'>{_legend(content)}</div>"
        "<canvas class='map' role='img' aria-label='Map of the rows'></canvas>"
        f"<div class='controls'>{_scale(content)}{select('x', 0)}{select('y', 1)}</div>",
        f"Each dot is a row, placed by eigenvectors of the graph{combined}: similar rows lie together.{some} Point at "
        "one to see it; press a class to see it alone.",
    )


def _legend(content: Content) -> str:
    """Every class with how many rows are most likely of it; the rarer ones of many only when asked for."""
    order = sorted(range(len(content.classes)), key=lambda k: -content.found[k])
    first = sorted(order[:MAX_LEGEND])

    def entry(k: int) -> str:
        return (
            f"<button type='button' class='legend' data-class='{k}' aria-pressed='false'>{html.mark(k)}"
            f"{html.user(content.classes[k])} <small>{content.found[k]:,}</small></button>"
        )

    others = "".join(map(entry, order[MAX_LEGEND:]))
    more = html.details(f"{len(order) - MAX_LEGEND} rarer classes", f"<div class='controls'>{others}</div>")
    return f"{''.join(map(entry, first))}<span class='legend'>{_STAR} labeled</span>{more if others else ''}"


def _scale(content: Content) -> str:
    """What a faded color means."""
    n = len(content.classes)
    if n == 2:
        negative, positive = (html.user(name) for name in content.classes)
        ends, colors = (f"surely {negative}", f"surely {positive}"), "90deg, var(--k0), var(--middle), var(--k1)"
        bar = f"<i style='background:linear-gradient({colors})'></i>"
        return f"<div class='scale'><span>{ends[0]}</span>{bar}<span>{ends[1]}</span></div>"
    stripes = ", ".join(
        f"var(--k{k}) {k * 100 // min(n, 5)}% {(k + 1) * 100 // min(n, 5)}%" for k in range(min(n, 5))
    )
    fade = f"linear-gradient(90deg, var(--middle), transparent), linear-gradient({stripes})"
    return f"<div class='scale'>any class<i style='background:{fade}'></i>surely one</div>"


def _table_of_nodes(content: Content) -> str:
    entries = {entry["node"]: entry for entry in content.nodes}
    has_pictures, has_errors = bool(content.plots["pictures"]), _has_errors(content)
    has_truth, has_others = content.confusion is not None, len(content.classes) > 2
    heads = [
        *([("picture", "")] if has_pictures else []),
        *[("row", ""), ("class", ""), ("probability", "number")],
        *([("runner-up", ""), ("its probability", "number")] if has_others else []),
        *([("error", "number")] if has_errors else []),
        *([("truth", "")] if has_truth else []),
    ]

    def line(node: int) -> str:
        entry = entries[node]
        (first, p), (second, q) = entry["p"][:2]
        cells = [
            *([f"<td>{html.picture(node)}</td>"] if has_pictures else []),
            html.text(entry["name"]),
            html.one_class(first, content.classes),
            html.probability(p, html.bar(first, _sureness(content, p))),
            *([html.one_class(second, content.classes), html.probability(q)] if has_others else []),
            *([html.number(entry["error"], ".4f")] if has_errors else []),
        ]
        if has_truth:
            known, wrong = entry["truth"] >= 0, entry["truth"] not in (-1, first)
            kind, after = ("text wrong", " ✗") if wrong else ("text", "")
            cells.append(html.one_class(entry["truth"], content.classes, kind, after) if known else html.text(""))
        return f"<tr data-node='{node}'>{''.join(cells)}</tr>"

    def table(name: str, nodes: Iterable[Any]) -> str:
        return html.table(heads, [line(int(node)) for node in nodes], name=name)

    return html.section(
        "Rows worth checking",
        f"<h3>Least certain</h3>{table('Least certain', content.least_certain)}"
        + html.details("Most certain", table("Most certain", content.most_certain)),
        "Labeled rows are left out. Press a heading to sort.",
    )


def _pictures(content: Content) -> str:
    if not content.plots["pictures"]:
        return ""
    entries = {entry["node"]: entry for entry in content.nodes}

    def figure(node: int) -> str:
        name, p = content.classes[entries[node]["class"]], entries[node]["confidence"]
        caption = f"row {html.user(entries[node]['name'])}<br><b>{html.user(name)}</b> {escape(percent(p))}"
        told = f"<figcaption class='line'>{caption}</figcaption>"
        return f"<figure data-node='{node}'>{html.picture(node)}{told}</figure>"

    groups = (("Least certain", content.least_certain), ("Most certain", content.most_certain))
    return html.section(
        "What they look like",
        "".join(
            f"<h3>{title}</h3><div class='pictures'>{''.join(figure(int(node)) for node in nodes)}</div>"
            for title, nodes in groups
        ),
    )
