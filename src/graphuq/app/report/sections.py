"""The sections of the page below its tables of rows: content in, HTML out."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from graphuq.app.report import html
from graphuq.app.report.content import MAX_CHECKED_LABELS, N_MARGINALS, Content
from graphuq.app.wording import percent

MAX_MATRIX = 20  # classes of a confusion matrix that a person can read


def confidence() -> str:
    """How many rows are how sure."""
    note = "Rows without a label, by class."
    return html.section("How sure are the answers?", "<div id='confidence'></div>", note)


def calibration(content: Content) -> str:
    """Whether probabilities can be taken at their word, where the truth is known."""
    if not content.calibration:
        return ""
    rows = [f"<tr>{html.text(name)}{html.text(value, 'number')}</tr>" for name, value in content.calibration]
    return html.section(
        "Are the probabilities right?",
        f"<div id='reliability'></div>{html.details('measures', html.table([], rows))}",
        "Rows of like probability are taken together. Dots on the dashed line mean that probabilities can be taken "
        "at their word; vertical lines show how far chance alone moves a dot from it: two standard deviations.",
    )


def confusion(content: Content) -> str:
    """What is taken for what: a matrix, or of many classes the most frequent mistakes."""
    counts, classes = content.confusion, content.classes
    assert counts is not None
    title = "What is taken for what?"
    if len(classes) > MAX_MATRIX:
        wrong = counts - np.diag(np.diag(counts))
        pairs = [divmod(int(cell), len(classes)) for cell in np.argsort(-wrong, axis=None)[:MAX_MATRIX]]
        rows = [
            f"<tr>{html.one_class(i, classes)}{html.one_class(j, classes)}{html.number(int(wrong[i, j]), ',')}</tr>"
            for i, j in pairs
            if wrong[i, j]
        ]
        heads = [("truth", ""), ("answer", ""), ("rows", "number")]
        return html.section(
            title, html.table(heads, rows, name=title), "Rows without a label: the most frequent mistakes."
        )
    kind = "tall" if len(classes) > 4 and max(map(len, classes)) > 4 else ""
    answers = (
        f"<th scope='col' class='{kind}'>{html.user(name)}{html.mark(j)}</th>" for j, name in enumerate(classes)
    )
    head = f"<th></th>{''.join(answers)}<th scope='col'>right</th>"
    body = "".join(f"<tr>{_matrix_line(i, line, classes)}</tr>" for i, line in enumerate(counts.tolist()))
    return html.section(
        title,
        f"<div class='scroll'><table class='matrix' aria-label='{title}'><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>",
        "Rows without a label: the true class beside a line, the answer above a column.",
    )


def _matrix_line(i: int, counts: Sequence[int], classes: Sequence[str]) -> str:
    """The answers for the rows of one class, and which share of them is right."""
    total = sum(counts) or 1
    cells = (
        f"<td class='{'right' if i == j else 'wrong'}' style='--share:{n / total:.0%}'>{n or ''}</td>"
        for j, n in enumerate(counts)
    )
    right = f"{counts[i] / total:.0%}" if sum(counts) else ""
    truth = f"<span class='class'>{html.mark(i)}{html.user(classes[i])}</span>"
    return f"<th scope='row'>{truth}</th>{''.join(cells)}<td>{right}</td>"


def marginals(content: Content) -> str:
    """Of two classes: u at single rows."""
    entries = {entry["node"]: entry for entry in content.nodes}
    figures = [
        f"<figure data-node='{found['node']}'><div data-marginal='{k}'></div>"
        f"<figcaption><b>{html.user(entries[found['node']]['name'])}</b>"
        f"{html.user(content.classes[entries[found['node']]['class']])} "
        f"{escape(percent(entries[found['node']]['confidence']))}</figcaption></figure>"
        for k, found in enumerate(content.plots["marginals"])
    ]
    groups = [("Least certain", figures[:N_MARGINALS]), ("Most certain", figures[N_MARGINALS:])]
    negative, positive = (html.user(name) for name in content.classes)
    return html.section(
        "The function behind the labels",
        "".join(f"<h3>{title}</h3><div class='small-multiples'>{''.join(group)}</div>" for title, group in groups),
        f"What u may be at single rows: right of the dashed line is {positive}, left of it {negative}. The "
        "outermost bars hold all that lies beyond.",
    )


def shares(content: Content) -> str:
    """Of more classes: between which of them the least certain rows lie."""
    entries = {entry["node"]: entry for entry in content.nodes}

    def figure(node: int) -> str:
        lines = "".join(
            f"<li>{html.mark(k)}{html.user(content.classes[k])}{html.bar(k, p)}<span>{escape(percent(p))}</span></li>"
            for k, p in entries[node]["p"]
        )
        name = html.user(entries[node]["name"])
        return f"<figure data-node='{node}'><figcaption><b>{name}</b></figcaption><ul class='shares'>{lines}</ul></figure>"

    figures = "".join(figure(int(node)) for node in content.least_certain[: 2 * N_MARGINALS])
    if not figures:
        return ""
    note = "The probabilities of the likeliest classes at the least certain rows."
    return html.section("Between which classes?", f"<div class='small-multiples wide'>{figures}</div>", note)


def convergence(content: Content) -> str:
    """Whether the numbers can be trusted."""
    mark, kind = ("✓", "good") if content.converged else ("⚠", "bad")
    told = f"<p class='verdict {kind}'>{mark} {escape(content.verdict)}</p>{_notes(content)}"
    note = ""
    if content.convergence:
        note = "Chains should agree (R-hat near 1) and hold many effective draws; drawn is where they agree least."
        told += f"<div class='pair'>{_traces(content)}</div>"
        rows = [
            f"<tr>{html.text(what)}{html.text(row)}{html.number(r_hat, '.3f')}{html.number(bulk, '.0f')}"
            f"{html.number(tail, '.0f')}</tr>"
            for what, row, r_hat, bulk, tail in content.convergence
        ]
        numbers = ("R-hat", "effective draws", "in the tails")
        heads = [("quantity", ""), ("row", ""), *((name, "number") for name in numbers)]
        told += html.details("all that is watched", html.table(heads, rows, name="Convergence"))
    if content.components:
        rows = [
            f"<tr>{html.probability(weight)}{html.text(prior)}{html.text(model)}</tr>"
            for weight, prior, model in content.components
        ]
        heads = [("weight", "number"), ("prior of u", ""), ("labels", "")]
        title = f"the {len(rows)} choices of hyper-parameters that are averaged over"
        told += html.details(title, html.table(heads, rows, name="Averaged over"))
    return html.section("Can the computation be trusted?", told, note)


def _traces(content: Content) -> str:
    one_field = len(content.classes) == 2
    figures = []
    for k, trace in enumerate(content.plots["traces"]):
        what = "u" if one_field else f"u of {html.user(content.classes[trace['class']])} less the largest other"
        row = html.user(content.rows.names[trace["node"]])
        told = f"<figcaption class='line'>{what} at <b>{row}</b>, one line a chain</figcaption>"
        figures.append(f"<figure class='trace'><div data-trace='{k}'></div>{told}</figure>")
    return "".join(figures)


def _notes(content: Content) -> str:
    if not content.notes:
        return ""
    return f"<h3>Notes</h3><ul>{''.join(f'<li>{html.user(note)}</li>' for note in content.notes)}</ul>"


def suspicious(content: Content) -> str:
    """Labels that may be wrong."""
    title = "Suspicious labels"
    if content.suspicious is None:
        told = f"Not checked: that takes probit or level-set, and at most {MAX_CHECKED_LABELS:,} labels."
        return html.section(title, f"<p>{told}</p>")
    if not content.suspicious:
        return html.section(title, "<p>None: no label contradicts the others.</p>")
    rows = [
        f"<tr>{html.text(content.rows.names[found.node])}{html.one_class(found.given, content.classes)}"
        f"{html.probability(found.probability)}{html.one_class(found.likelier, content.classes)}</tr>"
        for found in content.suspicious
    ]
    heads = [("row", ""), ("label", ""), ("its probability", "number"), ("likelier", "")]
    note = "Given labels that the other labels make unlikely: perhaps mistakes."
    return html.section(title, html.table(heads, rows, name=title), note)


def hyperparameters(content: Content) -> str:
    """What was set or learned."""
    rows = [
        f"<tr>{html.text(name)}{html.text(value, 'number')}{html.text(source)}</tr>"
        for name, value, source in content.hyperparameters
    ]
    return html.section("Hyper-parameters", html.table([("name", ""), ("value", "number"), ("from", "")], rows))


def comparison(content: Content) -> str:
    """Other models on the same question."""
    if not content.comparison:
        return ""
    head, *lines = content.comparison
    rows = [
        f"<tr>{html.text(name)}{''.join(html.text(cell, 'number') for cell in cells)}</tr>"
        for name, *cells in lines
    ]
    heads = [(name, "number" if k else "") for k, name in enumerate(head)]
    return html.section("Several models, one question", html.table(heads, rows))


def spectrum() -> str:
    """The eigenvalues."""
    note = "Small eigenvalues are the directions in which rows fall into groups."
    return html.section("Spectrum of the graph", "<div id='spectrum'></div>", note)


def settings(content: Content) -> str:
    """Everything else."""
    rows = [f"<tr>{html.text(name)}{html.text(value)}</tr>" for name, value in content.settings]
    return html.section("Settings", html.details("everything that was set or found", html.table([], rows)))
