"""The content of a report in; one HTML page that needs nothing else, not even a network, out.

Whatever comes from a user's table is escaped here, or set as text by the script. As a second fence the
page carries a policy that lets no other script run and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from graphuq import __version__
from graphuq.report.content import MAX_CHECKED_LABELS, N_MARGINALS, Content
from graphuq.wording import percent

GENERATOR = '<meta name="generator" content="graphuq'  # how a page of ours is known
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
<footer>Made by graphuq {version}. Probabilities are posterior probabilities, errors Monte-Carlo errors.</footer>
</main>
<div id="tip" role="status"></div>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""
_CIRCLE = '<svg viewBox="0 0 14 14"><circle cx="7" cy="7" r="5.5" fill="var(--positive)"/></svg>'
_SQUARE = '<svg viewBox="0 0 14 14"><rect x="2" y="2" width="10" height="10" fill="var(--negative)"/></svg>'
_STAR = '<svg viewBox="0 0 14 14"><path d="{path}" fill="var(--{kind})" stroke="var(--text)"/></svg>'
# Five points for one class and four for the other, as the script draws them.
_STARS = _STAR.format(
    path="M7 .7 8.6 4.8 13 5.1 9.6 7.8 10.7 12.1 7 9.7 3.3 12.1 4.4 7.8 1 5.1 5.4 4.8Z", kind="positive"
) + _STAR.format(path="M7 .7 8.9 5.1 13.3 7 8.9 8.9 7 13.3 5.1 8.9.7 7 5.1 5.1Z", kind="negative")


def render(content: Content) -> str:
    """The page as text."""
    style, script = (files(__package__).joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    sections = [
        _answer(content),
        _map(content),
        _table_of_nodes(content),
        _pictures(content),
        _pair(_confidence(), _calibration(content) or _spectrum()),
        _marginals(content),
        _convergence(content),
        _pair(_suspicious(content), _hyperparameters(content)),
        _comparison(content),
        _spectrum() if content.calibration else "",
        _settings(content),
    ]
    return _PAGE.format(
        policy=f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        generator=GENERATOR,
        title=escape(content.title),
        style=style,
        body="\n".join(filter(None, sections)),
        version=escape(__version__),
        data=_json(content),
        script=script,
    )


def _json(content: Content) -> str:
    """The numbers for the script; no text in them can end the element they stand in."""
    text = json.dumps({**content.plots, "nodes": content.nodes}, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _answer(content: Content) -> str:
    told = "".join(f"<p class='lead'>{_sentence(sentence)}</p>" for sentence in content.sentences)
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

    negative, positive = (_name(name) for name in content.classes)
    marks = ((_CIRCLE, positive), (_SQUARE, negative), (_STARS, "stars: labeled"))
    legend = "".join(f"<span class='legend'>{mark} {name}</span>" for mark, name in marks)
    n_all, n_shown = len(content.rows.names), len(content.nodes)
    some = f" {n_shown:,} of {n_all:,} rows are drawn." if n_shown < n_all else ""
    return _section(
        "The rows, as the graph sees them",
        f"<div class='controls'>{legend}{select('x', 0)}{select('y', 1)}</div>"
        "<canvas class='map' role='img' aria-label='Map of the rows'></canvas>"
        f"<div class='scale'><span>surely {negative}</span><i></i><span>surely {positive}</span></div>",
        f"Each dot is a row, placed by eigenvectors of the graph: similar rows lie together.{some} Point at one "
        "to see it.",
    )


def _table_of_nodes(content: Content) -> str:
    entries = {entry["node"]: entry for entry in content.nodes}
    has_pictures, has_truth = bool(content.plots["pictures"]), any(entry["truth"] for entry in content.nodes)
    heads = [
        *([("picture", "")] if has_pictures else []),
        *[("row", ""), ("class", ""), ("probability", "number"), ("label mean", "number"), ("error", "number")],
        *([("truth", "")] if has_truth else []),
    ]

    def line(node: int) -> str:
        entry = entries[node]
        up, confidence = entry["class"], max(entry["p"], 1 - entry["p"])
        kind = "positive" if up else "negative"
        bar = f"<span class='bar'><i class='{kind}' style='width:{200 * confidence - 100:.0f}%'></i></span>"
        cells = [
            *([f"<td>{_picture(node)}</td>"] if has_pictures else []),
            _text(entry["name"]),
            f"<td class='text'><span class='dot {kind}'></span>{_name(content.classes[up])}</td>",
            f"<td class='number' data-value='{confidence}'>{bar}{escape(percent(confidence))}</td>",
            _number(entry["mean"], "+.3f"),
            _number(entry["error"], ".4f"),
        ]
        if has_truth:
            truth = content.classes[entry["truth"] > 0] if entry["truth"] else ""
            wrong = bool(entry["truth"]) and (entry["truth"] > 0) != up
            cells.append(f"<td class='text wrong'>{_name(truth)} ✗</td>" if wrong else _text(truth))
        return f"<tr data-node='{node}'>{''.join(cells)}</tr>"

    def table(name: str, nodes: Iterable[Any]) -> str:
        return _table(heads, [line(int(node)) for node in nodes], name=name)

    return _section(
        "Rows worth checking",
        f"<h3>Least certain</h3>{table('Least certain', content.least_certain)}"
        + _details("Most certain", table("Most certain", content.most_certain)),
        "Labeled rows are left out. Press a heading to sort.",
    )


def _pictures(content: Content) -> str:
    if not content.plots["pictures"]:
        return ""
    entries = {entry["node"]: entry for entry in content.nodes}

    def figure(node: int) -> str:
        entry = entries[node]
        name, p = content.classes[entry["class"]], entry["p"]
        caption = f"row {_name(entry['name'])}<br><b>{_name(name)}</b> {escape(percent(max(p, 1 - p)))}"
        return (
            f"<figure data-node='{node}'>{_picture(node)}<figcaption class='line'>{caption}</figcaption></figure>"
        )

    groups = (("Least certain", content.least_certain), ("Most certain", content.most_certain))
    return _section(
        "What they look like",
        "".join(
            f"<h3>{title}</h3><div class='pictures'>{''.join(figure(int(node)) for node in nodes)}</div>"
            for title, nodes in groups
        ),
    )


def _confidence() -> str:
    return _section("How sure are the answers?", "<div id='confidence'></div>", "Rows without a label, by class.")


def _calibration(content: Content) -> str:
    if not content.calibration:
        return ""
    measures = _table(
        [], [f"<tr>{_text(name)}{_text(value, 'number')}</tr>" for name, value in content.calibration]
    )
    return _section(
        "Are the probabilities right?",
        f"<div id='reliability'></div>{_details('measures', measures)}",
        "Rows of like probability are taken together. Dots on the dashed line mean that probabilities can be taken "
        "at their word; vertical lines show how far chance alone moves a dot from it: two standard deviations.",
    )


def _marginals(content: Content) -> str:
    names = {entry["node"]: entry["name"] for entry in content.nodes}
    figures = [
        f"<figure data-node='{found['node']}'><div data-marginal='{k}'></div>"
        f"<figcaption><b>{_name(names[found['node']])}</b> label mean {found['mean']:+.3f}</figcaption></figure>"
        for k, found in enumerate(content.plots["marginals"])
    ]
    if not figures:
        return ""
    groups = [("Least certain", figures[:N_MARGINALS]), ("Most certain", figures[N_MARGINALS:])]
    negative, positive = (_name(name) for name in content.classes)
    return _section(
        "The function behind the labels",
        "".join(f"<h3>{title}</h3><div class='small-multiples'>{''.join(group)}</div>" for title, group in groups),
        f"Posterior draws of u at single rows: right of the dashed line is {positive}, left of it {negative}.",
    )


def _convergence(content: Content) -> str:
    mark, kind = ("✓", "good") if content.converged else ("⚠", "bad")
    traces = "".join(
        f"<figure class='trace'><div data-trace='{k}'></div><figcaption class='line'>u at "
        f"<b>{_name(content.rows.names[trace['node']])}</b>, one line a chain</figcaption></figure>"
        for k, trace in enumerate(content.plots["traces"])
    )
    rows = [
        f"<tr>{_text(name)}{_number(r_hat, '.3f')}{_number(bulk, '.0f')}{_number(tail, '.0f')}</tr>"
        for name, r_hat, bulk, tail in content.convergence
    ]
    heads = [("row", ""), ("R-hat", "number"), ("effective draws", "number"), ("in the tails", "number")]
    return _section(
        "Can the sampling be trusted?",
        f"<p class='verdict {kind}'>{mark} {escape(content.verdict)}</p>{_notes(content)}<div class='pair'>{traces}</div>"
        + _details("all watched rows", _table(heads, rows, name="Convergence")),
        "Chains should agree (R-hat near 1) and hold many effective draws; drawn is where they agree least.",
    )


def _notes(content: Content) -> str:
    if not content.notes:
        return ""
    return f"<h3>Notes</h3><ul>{''.join(f'<li>{_name(note)}</li>' for note in content.notes)}</ul>"


def _suspicious(content: Content) -> str:
    title = "Suspicious labels"
    if content.suspicious is None:
        return _section(
            title,
            f"<p>Not checked: that takes probit or level-set, and at most {MAX_CHECKED_LABELS:,} labels.</p>",
        )
    if not content.suspicious:
        return _section(title, "<p>None: no label contradicts the others.</p>")
    rows = [
        f"<tr>{_text(content.rows.names[node])}<td class='number' data-value='{p}'>{escape(percent(p))}</td></tr>"
        for node, p in content.suspicious
    ]
    heads = [("row", ""), ("probability of its label", "number")]
    note = "Given labels that the other labels make unlikely: perhaps mistakes."
    return _section(title, _table(heads, rows, name=title), note)


def _hyperparameters(content: Content) -> str:
    rows = [
        f"<tr>{_text(name)}{_text(value, 'number')}{_text(source)}</tr>"
        for name, value, source in content.hyperparameters
    ]
    return _section("Hyper-parameters", _table([("name", ""), ("value", "number"), ("from", "")], rows))


def _comparison(content: Content) -> str:
    if not content.comparison:
        return ""
    head, *lines = content.comparison
    rows = [f"<tr>{_text(name)}{''.join(_text(cell, 'number') for cell in cells)}</tr>" for name, *cells in lines]
    heads = [(name, "number" if k else "") for k, name in enumerate(head)]
    return _section("Several models, one question", _table(heads, rows))


def _spectrum() -> str:
    note = "Small eigenvalues are the directions in which rows fall into groups."
    return _section("Spectrum of the graph", "<div id='spectrum'></div>", note)


def _settings(content: Content) -> str:
    rows = [f"<tr>{_text(name)}{_text(value)}</tr>" for name, value in content.settings]
    return _section("Settings", _details("everything that was set or found", _table([], rows)))


def _section(title: str, body: str, note: str = "") -> str:
    """A card; `body` and `note` are HTML."""
    told = f"<p class='note'>{note}</p>" if note else ""
    return f"<section><h2>{escape(title)}</h2>{told}{body}</section>"


def _pair(*sections: str) -> str:
    return f"<div class='pair'>{''.join(sections)}</div>"


def _details(title: str, body: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def _table(heads: Sequence[tuple[str, str]], rows: Sequence[str], *, name: str = "") -> str:
    """A table of ready rows; one with a name can be sorted by its heads, given as (title, class)."""

    def head(title: str, kind: str) -> str:
        sortable = name and title != "picture"
        inner = f"<button type='button'>{escape(title)}</button>" if sortable else escape(title)
        return f"<th scope='col' class='{kind}'>{inner}</th>"

    top = f"<thead><tr>{''.join(head(*each) for each in heads)}</tr></thead>" if heads else ""
    label = f" aria-label='{escape(name)}'" if name else ""
    return f"<div class='scroll'><table{label}>{top}<tbody>{''.join(rows)}</tbody></table></div>"


def _text(value: str, kind: str = "text") -> str:
    return f"<td class='{kind}'>{_name(value)}</td>"


def _name(text: str) -> str:
    """Text of the user: whichever way it is written, what follows is not turned round."""
    return f"<bdi>{escape(text)}</bdi>"


def _sentence(text: str) -> str:
    """Text of ours, with names between curly quotes."""
    return re.sub("“(.*?)”", "“<bdi>\\1</bdi>”", escape(text))


def _number(value: float, form: str) -> str:
    return f"<td class='number' data-value='{value}'>{value:{form}}</td>"


def _picture(node: int) -> str:
    return f"<canvas class='picture' data-node='{node}' role='img' aria-label='picture of the row'></canvas>"
