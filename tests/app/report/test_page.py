import re
from copy import copy
from dataclasses import replace

import numpy as np
import pytest

from graphuq import GraphClassifier
from graphuq.app.report.content import Content
from graphuq.app.report.page import MAX_LEGEND, MAX_MATRIX, render
from graphuq.app.report.words import Suspicious
from graphuq.tall import tall
from tests.app.report.browser import CHROMIUM, console, probe
from tests.app.report.fits import content_of, fit, moons, of_kind

HOSTILE = "<img src=x onerror=\"alert(1)\"></script><script>alert('run')</script>&=1+1"
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


@pytest.fixture(scope="module")
def page(classifier):
    return render(content_of(classifier))


def renamed(content: Content, *classes: str) -> Content:
    """The same under other names of its classes, in the script's data too."""
    return replace(content, classes=classes, plots={**content.plots, "classes": classes})


def many_classes(content: Content, n: int) -> Content:
    """The same as if there were n classes: class k of the rows becomes k, the others stay empty."""
    confusion = np.zeros((n, n), dtype=int)
    confusion[:3, :3] = content.confusion
    confusion[n - 1, 4] = 999
    found = [*content.found, *[0] * (n - 4), 99]
    classes = tuple(f"class {k}" for k in range(n))
    return replace(renamed(content, *classes), confusion=confusion, found=found)


def test_the_page_stands_alone(page):
    """Nothing is loaded, and the policy of the page would forbid it."""
    assert "default-src 'none'" in page
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)
    assert "@import" not in page
    assert page.count("<script") == 2


def test_what_the_page_shows(any_kind):
    """What there is of a posterior is shown, and nothing else."""
    content = content_of(any_kind)
    page = render(content)
    assert content.verdict in page
    has_draws, several = content.nodes[0]["error"] is not None, len(content.classes) > 2
    heads = re.findall(r"<th[^>]*>([^<]*)", page)
    assert ("error" in heads) == ("Monte-Carlo errors" in page) == has_draws
    assert ("runner-up" in heads) == several
    assert ("R-hat" in heads) == bool(content.convergence)
    assert ("weight" in heads) == bool(content.components)
    assert "truth" in heads
    matrix = re.search(r"<table class='matrix'.*?</table>", page)[0]
    numbers = [int(n or 0) for n in re.findall(r"style='--share:\d+%'>(\d*)</td>", matrix)]
    assert numbers == content.confusion.ravel().tolist()


def test_notes_are_shown_as_text(classifier):
    content = replace(content_of(classifier), notes=[HOSTILE])
    page = render(content)
    assert "<h3>Notes</h3><ul><li><bdi>&lt;img src=x" in page
    assert page.count("<script") == 2
    assert "Notes" not in render(content_of(classifier))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_names_that_turn_text_round_are_isolated(n_classes, classifier, three):
    """U+202E makes what follows run from right to left, unless it is shut in: as every name of the user is."""
    turned = copy(classifier if n_classes == 2 else three)
    turned.classes_ = np.array([f"\u202e{name}" for name in turned.classes_])
    n_rows = turned.graph_.n_nodes
    pictures = np.zeros((n_rows, 2, 2), dtype=np.uint8)
    content = content_of(turned, names=[f"\u202e{k}" for k in range(n_rows)], pictures=pictures, truth=None)
    page = render(replace(content, notes=["\u202e"], suspicious=[Suspicious(4, 0, 1, 0.03)]))
    assert page.count("<bdi>\u202e") > 100
    assert not re.findall("(?<!<bdi>)(?<!<bdi>u of )\u202e", page)


def test_no_probability_is_shown_as_certain(classifier):
    content = content_of(classifier)
    sure = [{**entry, "p": [[entry["class"], 1.0], [1 - entry["class"], 0.0]]} for entry in content.nodes]
    page = render(replace(content, nodes=sure))
    table = re.search(r"<table[^>]* aria-label='Most certain'>.*?</table>", page, re.DOTALL)[0]
    assert table.count("&gt; 99.9%") == 20
    assert "100.0%" not in table


def test_what_is_not_known_is_left_out(classifier):
    content = content_of(classifier, truth=None)
    page = render(content)
    assert content.calibration == []
    assert "Are the probabilities right?" not in page


def test_of_long_names_of_columns_values_are_left(classifier):
    content = content_of(classifier, columns=["Größe der beheizten Fläche in Quadratmetern", "second"])
    first, second = content.rows.cells[int(content.least_certain[0])]
    told = re.search(r"<tr class='more'>.*?<summary>(.*?)</summary>", render(content))[1]
    assert told == f"<bdi>Größe der beheizten Fläche in…\u00a0{first}, second\u00a0{second}</bdi>"


def values_under(page: str, name: str, row: str) -> list[list[str]]:
    """What is told of a row in a table when its values are opened: lines of cells, the heads first."""
    table = re.search(rf"<table[^>]* aria-label='{name}'>.*?</table>", page)[0]
    told = re.search(rf"<bdi>{row}</bdi></td>.*?<tr class='more'>(.*?)</tr>", table)[1]
    lines = told.split("<div role='row'>")[1:]
    cells = [re.findall("<span role='[a-z]*'>(.*?)</span>", line) for line in lines]
    return [[re.sub("<[^>]*>", " ", cell).split() for cell in line] for line in cells]


def test_all_values_of_a_row_stand_beside_those_of_the_labeled_rows_like_it(three):
    """Also of a suspicious label, which is not like itself."""
    cells = [[f"{k}/{j}" for j in range(30)] for k in range(120)]
    content = content_of(
        three, names=[f"row{k}" for k in range(120)], columns=[f"c{j}" for j in range(30)], cells=cells
    )
    doubted = int(three.labels_.nodes[0])
    nearest = {**content.nearest, doubted: [int(node) for node in three.labels_.nodes[1:3]]}
    page = render(replace(content, suspicious=[Suspicious(doubted, 0, 2, 0.034)], nearest=nearest))
    for table, node in (("Least certain", int(content.least_certain[0])), ("Suspicious labels", doubted)):
        heads, *lines = values_under(page, table, f"row{node}")
        side = [node, *nearest[node]]
        labels = {entry["node"]: entry["label"] for entry in content.nodes}
        named = [[f"row{k}", *([content.classes[labels[k]]] if labels[k] >= 0 else [])] for k in side]
        assert heads == [[], *named]
        assert lines == [[[f"c{j}"], *([f"{k}/{j}"] for k in side)] for j in range(30)]


def test_columns_that_are_left_out_are_counted(classifier):
    assert "more column" not in render(content_of(classifier))
    assert "<p class='note'>and 1,200 more columns</p>" in render(content_of(classifier, n_left_out=1200))


@needs_browser
def test_opened_values_fit_a_phone_and_stand_under_their_row(three):
    names = [f"a_long_name_of_a_row_{k}" for k in range(120)]
    cells = [["a_value_without_a_place_to_break" * 2, str(k)] for k in range(120)]
    content = content_of(three, names=names, columns=["a_column_without_a_place_to_break", "second"], cells=cells)
    found, failures = probe(
        render(content),
        """
        const table = document.querySelector("table[aria-label='Least certain']");
        table.querySelectorAll("details").forEach((details) => { details.open = true; });
        const rows = [...table.tBodies[0].rows];
        const pairs = rows.filter((row) => row.dataset.node).map((row) => [row.dataset.node, row.nextElementSibling.querySelectorAll("[role='columnheader']")[1].textContent]);
        return { pairs, n: rows.length, overflow: document.documentElement.scrollWidth - innerWidth, wide: table.parentElement.scrollWidth - table.parentElement.clientWidth };
        """,
        width=390,
    )
    assert failures == []
    assert found["n"] == 2 * len(found["pairs"]) == 40
    assert all(name == names[int(node)] for node, name in found["pairs"])
    assert [int(node) for node, _ in found["pairs"]] == content.least_certain.tolist()
    assert found["overflow"] <= 0
    assert found["wide"] == 0


@needs_browser
@pytest.mark.parametrize(("weight", "told"), [(0.0, "no weight"), (0.06, "6% of the weight"), (0.5, None)])
def test_the_map_is_folded_where_the_graph_does_not_count(weight, told, three):
    page = render(replace(content_of(three), graph_weight=weight))
    assert ("in the learned prior: the answers" in page) == (told is not None)
    assert told is None or f"The graph has {told} in the learned prior" in page
    (seen, drawn), failures = probe(
        page,
        """
        const map = document.querySelector("canvas.map"), before = map.checkVisibility();
        const fold = map.closest("details");
        if (fold) { fold.open = true; fold.dispatchEvent(new Event("toggle")); }
        const pixels = map.getContext("2d").getImageData(0, 0, map.width, map.height).data;
        return [before, pixels.some((value) => value > 0)];
        """,
    )
    assert failures == []
    assert seen == (told is None)
    assert drawn


def test_a_bar_is_as_long_as_its_probability(three):
    bars = re.findall(r"<i style='width:(\d+)%;[^>]*></i></span>(?:<span>)?([\d.]+)%", render(content_of(three)))
    assert len(bars) > 20
    for width, percent in bars:
        assert abs(float(width) - float(percent)) <= 0.6


@needs_browser
def test_where_every_row_has_a_class_nothing_is_told_of_the_others():
    _, truth = moons()
    page = render(content_of(fit(2, truth, inference="ep"), truth=None))
    assert "The question was which of these may be mistakes." in page
    for others in ("of the others with", "Rows worth checking", "How sure are the answers?"):
        assert others not in page
    assert "Suspicious labels" in page
    assert probe(page, "return null;") == (None, [])


def test_where_the_truth_is_known_it_judges_and_not_the_labels(three):
    content = content_of(three)
    page, without = render(content), render(content_of(three, truth=None))
    lead = re.findall(r"<p class='lead'>(.*?)</p>", page)
    assert any(each.startswith("Judged by the truth, which is known of 105 rows without a label") for each in lead)
    assert not any("left out in turn" in each for each in lead)
    assert "<p class='note'>Without the truth this page would say: As far as 15 labels can tell" in page
    assert "Judged by the truth" not in without
    assert f"<p class='lead'>{content.self_check}</p>" in without


def test_suspicious_labels_are_listed(three):
    content = replace(content_of(three), suspicious=[Suspicious(4, 0, 2, 0.034)])
    table = re.search(r"<table[^>]* aria-label='Suspicious labels'>.*?</table>", render(content))[0]
    table = re.sub("<tr class='more'>.*?</tr>", "", table)
    assert re.sub("<[^>]*>", " ", table).split() == [
        "row",
        "label",
        "its",
        "probability",
        "likelier",
        "row",
        "4",
        "ash",
        "3.4%",
        "cedar",
    ]


def test_the_rarer_of_many_classes_are_shown_when_asked_for(three):
    content = many_classes(content_of(three), MAX_LEGEND + 3)
    first, more = re.search(
        r"<div class='controls'>(.*?)<details><summary>3 rarer classes(.*?)</details>", render(content)
    ).groups()
    assert first.count("<button") == MAX_LEGEND
    assert more.count("<button") == 3
    assert "class 14" in first  # which has the most rows


def test_the_bars_of_the_classes_have_a_legend(three):
    content = content_of(three)
    section = re.search(r"<div id='confidence'></div>(.*?)</section>", render(content), re.DOTALL)[1]
    assert re.findall("<bdi>(.*?)</bdi>", section) == list(content.classes)
    content = many_classes(content, MAX_LEGEND + 3)
    section = re.search(r"<div id='confidence'></div>(.*?)</section>", render(content), re.DOTALL)[1]
    assert section.count("<bdi>") == MAX_LEGEND
    assert "and 3 rarer" in section


@needs_browser
@pytest.mark.parametrize("width", [1200, 390])
def test_a_plot_that_stands_alone_is_not_blown_up(width, three):
    tall = "document.querySelector('#confidence text').getBoundingClientRect().height"
    found, failures = probe(render(content_of(three, truth=None)), f"return {tall};", width=width)
    assert failures == []
    assert 9 < found < 20


@needs_browser
@pytest.mark.parametrize("width", [1200, 390])
def test_large_counts_leave_room_for_what_is_counted(width, three):
    content = content_of(three)
    counts = [[1000 * n for n in each] for each in content.plots["confidence"]["counts"]]
    content.plots["confidence"] = content.plots["confidence"] | {"counts": counts}
    found, failures = probe(
        render(content),
        """
        const texts = [...document.querySelectorAll("#confidence text")], boxes = texts.map((each) => each.getBoundingClientRect());
        const rows = boxes[texts.findIndex((each) => each.textContent === "rows")];
        const levels = texts.filter((each) => each.getAttribute("text-anchor") === "end");
        return {
          told: levels.map((each) => each.textContent),
          room: Math.min(...levels.map((each) => each.getBoundingClientRect().left)) - rows.right,
        };
        """,
        width=width,
    )
    assert failures == []
    assert any(len(told) >= len("10,000") for told in found["told"]), found
    assert found["room"] > 0


def test_of_very_many_classes_the_mistakes_are_listed(three):
    content = many_classes(content_of(three), MAX_MATRIX + 1)
    page = render(content)
    assert "class='matrix'" not in page
    table = re.search(r"<table aria-label='What is taken for what\?'>.*?</table>", page)[0]
    lines = [re.sub("<[^>]*>", "", line) for line in re.findall("<tr>.*?</tr>", table)[1:]]
    wrong = content.confusion - np.diag(np.diag(content.confusion))
    assert len(lines) == np.count_nonzero(wrong)
    assert lines[0] == "class 20class 4999"


def test_text_of_the_user_is_only_ever_text(classifier):
    names = [HOSTILE + str(k) for k in range(200)]
    page = render(content_of(classifier, names=names, columns=[HOSTILE, "x"], cells=[[HOSTILE, "=2+2"]] * 200))
    assert page.count("<script") == 2
    assert page.count("</script>") == 2
    assert "<img" not in page


@needs_browser
@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("case", ["2 draws", "3 draws", "2 mixture", "3 gaussian"])
def test_in_a_browser(case, width, classifier, three):
    """No error, every plot drawn, nothing wider than the screen."""
    n_classes, kind = int(case[0]), case[2:]
    content = content_of(of_kind(kind, classifier if n_classes == 2 else three))
    found, failures = probe(
        render(content),
        """
        const map = document.querySelector("canvas.map");
        const pixels = map.getContext("2d").getImageData(0, 0, map.width, map.height).data;
        const fills = (query) => new Set([...document.querySelectorAll(query)].map((each) => each.getAttribute("fill")));
        return {
          drawn: pixels.some((value) => value > 0),
          bars: document.querySelectorAll("#confidence rect").length,
          stacks: fills("#confidence rect").size,
          axis: Number(document.querySelector("#confidence rect").getAttribute("x")),
          reliability: document.querySelectorAll("#reliability circle").length,
          bottom: document.querySelector("#reliability text").textContent,
          matrix: document.querySelectorAll(".matrix tbody td").length,
          traces: document.querySelectorAll("[data-trace] polyline").length,
          colors: new Set([...document.querySelectorAll("[data-trace='0'] polyline")].map((line) => line.getAttribute("stroke"))).size,
          legend: [...document.querySelectorAll("button.legend")].map((button) => button.textContent),
          dots: document.querySelector("#reliability circle").getAttribute("fill"),
          classes: [...fills("#confidence rect")],
          edges: getComputedStyle(document.querySelector(".scroll")).backgroundAttachment,
          overflow: document.documentElement.scrollWidth - innerWidth,
        };
        """,
        width=width,
    )
    assert failures == []
    assert found["drawn"]
    assert found["bars"] == np.count_nonzero(content.plots["confidence"]["counts"])
    assert found["stacks"] == n_classes
    assert found["reliability"] == len(content.plots["reliability"]["counts"])
    assert found["bottom"] == "0", "bars cut off at the foot exaggerate"
    assert found["matrix"] == n_classes * (n_classes + 1)
    assert (found["traces"], found["colors"]) == ((8, 4) if kind == "draws" else (0, 0))
    assert found["legend"] == [
        f"{name} {count}" for name, count in zip(content.classes, content.found, strict=True)
    ]
    assert found["dots"] not in found["classes"]
    assert found["edges"] == "local, local, scroll, scroll"
    assert found["overflow"] <= 0


# How many pixels of the map have the full color of each class.
PIXELS = """
const map = document.querySelector("canvas.map");
const parse = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
const wanted = [0, 1, 2].map((k) => parse(getComputedStyle(document.documentElement).getPropertyValue("--k" + k).trim()));
const count = () => {
  const copy = document.createElement("canvas");
  [copy.width, copy.height] = [map.width, map.height];
  const context = copy.getContext("2d", { willReadFrequently: true });
  context.drawImage(map, 0, 0);
  const pixels = context.getImageData(0, 0, map.width, map.height).data;
  const found = [0, 0, 0];
  for (let i = 0; i < pixels.length; i += 4) {
    if (pixels[i + 3] < 255) continue;
    wanted.forEach((rgb, k) => { if (rgb.every((v, c) => Math.abs(v - pixels[i + c]) < 3)) found[k] += 1; });
  }
  return found;
};
"""


@needs_browser
def test_colors_of_the_map_fade_where_rows_are_unsure(three):
    """Sure rows have the color of their class; of rows that may be anything none has; labeled ones always do."""
    content = content_of(three)
    drawn = {}
    for confidence in (1.0, 1 / 3):
        nodes = [{**entry, "confidence": confidence, "label": -1} for entry in content.nodes]
        drawn[confidence], failures = probe(render(replace(content, nodes=nodes)), PIXELS + "return count();")
        assert failures == []
    labeled = [{**entry, "confidence": 1 / 3} for entry in content.nodes]
    stars, _ = probe(render(replace(content, nodes=labeled)), PIXELS + "return count();")
    assert min(drawn[1.0]) > 100
    assert drawn[1 / 3] == [0, 0, 0]
    assert all(0 < few < many for few, many in zip(stars, drawn[1.0], strict=True))


@needs_browser
def test_a_class_can_be_seen_alone(three):
    content = content_of(three)
    sure = [{**entry, "confidence": 1.0} for entry in content.nodes]
    (before, alone, pressed, after), failures = probe(
        render(replace(content, nodes=sure)),
        PIXELS
        + """
        const buttons = [...document.querySelectorAll("button.legend")], before = count();
        buttons[1].click();
        const alone = count(), pressed = buttons.map((button) => button.getAttribute("aria-pressed"));
        buttons[1].click();
        return [before, alone, pressed, count()];
        """,
    )
    assert failures == []
    assert min(before) > 100
    assert alone[1] >= before[1]
    assert alone[0] == alone[2] == 0
    assert pressed == ["false", "true", "false"]
    assert after == before


@needs_browser
@pytest.mark.parametrize("width", [768, 1280])
def test_tables_of_long_classes_show_whole(three, width):
    content = renamed(
        content_of(three, truth=np.zeros(200, dtype=int)), "Rotwein", "Schaumwein aus Flaschengärung", "Weißwein"
    )
    doubted = [Suspicious(k, k % 3, (k + 1) % 3, 0.028) for k in range(5)]
    found, failures = probe(
        render(replace(content, suspicious=doubted)),
        """
        const boxes = [...document.querySelectorAll(".scroll")];
        return [boxes.length, ...boxes.filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.textContent)];
        """,
        width=width,
    )
    assert failures == []
    assert found[0] >= 4
    assert found[1:] == []


@needs_browser
def test_rows_with_pictures_of_several_classes_show_whole(three):
    pictures = np.zeros((200, 8, 8), dtype=np.uint8)
    content = content_of(three, names=[f"digit {1000 + k}" for k in range(200)], pictures=pictures)
    found, failures = probe(
        render(content),
        """
        const box = document.querySelector(".scroll:has(canvas.picture)");
        return [box.scrollWidth, box.clientWidth];
        """,
        width=1280,
    )
    assert failures == []
    assert found[0] == found[1] > 500


@needs_browser
@pytest.mark.parametrize(("pictures", "truth"), [(False, None), (True, None), (False, np.zeros(200, dtype=int))])
@pytest.mark.parametrize(("name", "n_lines"), [("Gelegenheitskäufer", 1), ("Grundstücksverkehrsgenehmigung", 2)])
def test_a_class_of_one_word_stands_on_one_line_on_a_desktop(name, n_lines, pictures, truth, three):
    shown = np.zeros((200, 8, 8), dtype=np.uint8) if pictures else None
    cells = [["15.51", "the second cell of a row"]] * 200
    content = content_of(three, columns=["Umsatz", "Besuche"], cells=cells, pictures=shown, truth=truth)
    found, failures = probe(
        render(renamed(content, name, name + "s", name + "n")),
        """
        const box = document.querySelector(".scroll:has(.rows)");
        const lines = (each) => Math.round(each.getBoundingClientRect().height / parseFloat(getComputedStyle(each).lineHeight));
        return [box.scrollWidth - box.clientWidth, ...new Set([...box.querySelectorAll("tbody .class bdi")].map(lines))];
        """,
        width=1280,
    )
    assert failures == []
    assert found == [0, n_lines]


@needs_browser
@pytest.mark.parametrize("pictures", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_rows_show_whole_whatever_their_classes_are_called(width, pictures, three):
    """Class, runner-up, truth and like rows side by side on a desktop; one under the other on a phone."""
    shown = np.zeros((200, 8, 8), dtype=np.uint8) if pictures else None
    content = content_of(three, truth=np.zeros(200, dtype=int), pictures=shown)
    content = renamed(content, *(f"Grundstücksverkehrsgenehmigung_{k}" for k in range(3)))
    doubted = [Suspicious(k, k % 3, (k + 1) % 3, 0.028) for k in range(5)]
    found, failures = probe(
        render(replace(content, suspicious=doubted)),
        """
        document.querySelectorAll("details").forEach((details) => { details.open = true; });
        const boxes = [...document.querySelectorAll(".scroll:has(.rows)")];
        const row = document.querySelector(".rows tbody tr");
        const above = (a, b) => row.querySelector(a).getBoundingClientRect().bottom <= row.querySelector(b).getBoundingClientRect().top;
        return {
          boxes: boxes.length,
          scrolling: boxes.filter((box) => box.scrollWidth > box.clientWidth).map((box) => [box.scrollWidth, box.clientWidth]),
          cells: [...row.cells].filter((cell) => !cell.offsetWidth).length,
          stacked: above(".row", ".like"),
          said: getComputedStyle(row.querySelector("[data-head]"), "::before").content,
        };
        """,
        width=width,
    )
    assert failures == []
    assert found["boxes"] == 3
    assert found["scrolling"] == []
    assert found["cells"] == 0
    assert found["stacked"] == (width == 390)
    assert found["said"] == ('"or"' if width == 390 else "none")


@needs_browser
def test_what_is_taken_for_what_fits_a_phone(three):
    content = renamed(content_of(three), "gastronomy", "investments", "recreation")
    found, failures = probe(
        render(content),
        """
        const box = document.querySelector(".scroll:has(.matrix)");
        return [box.scrollWidth, box.clientWidth];
        """,
        width=390,
    )
    assert failures == []
    assert found[0] == found[1] > 300


@needs_browser
@pytest.mark.parametrize("n_classes", [2, 3, 15, 25])
def test_on_a_phone_wide_tables_scroll_in_their_box(n_classes, classifier, three):
    """Long names without a place to break, all details open: the page keeps the width of the screen."""
    name = "a_name_without_a_place_to_break" * 3
    content = content_of(classifier if n_classes == 2 else three, names=[f"{name}{k}" for k in range(200)])
    if n_classes > 3:
        content = many_classes(content, n_classes)
    content = renamed(content, *(f"{name}{k}" for k in range(n_classes)))
    content = replace(content, title=name, hyperparameters=[(name, "1", name)] * 2)
    found, failures = probe(
        render(content),
        """
        document.querySelectorAll("details").forEach((details) => { details.open = true; });
        const boxes = [...document.querySelectorAll(".scroll")];
        const seen = (each) => each.parentElement.closest(".scroll, .scale span") === null; // which cut what is in them
        const cards = [...document.querySelectorAll("section *")].filter(seen);
        return {
          width: innerWidth,
          page: document.documentElement.scrollWidth,
          scrolling: boxes.filter((box) => box.scrollWidth > box.clientWidth).length,
          outside: boxes.filter((box) => box.getBoundingClientRect().right > innerWidth).length,
          cut: cards.filter((each) => each.getBoundingClientRect().right > innerWidth + 1).map((each) => each.outerHTML.slice(0, 80)),
        };
        """,
        width=390,
    )
    assert failures == []
    assert found["width"] == found["page"] == 390
    assert found["scrolling"] > 0
    assert found["outside"] == 0
    assert found["cut"] == []


@needs_browser
def test_hovering_and_dark(page):
    found, failures = probe(
        page,
        """
        const table = document.querySelector("table[aria-label='Least certain']");
        const row = table.tBodies[0].rows[0];
        row.dispatchEvent(new PointerEvent("pointermove", { clientX: 50, clientY: 50, bubbles: true }));
        const tip = document.getElementById("tip");
        const shown = [tip.style.display, tip.textContent];
        const before = getComputedStyle(document.body).backgroundColor;
        document.getElementById("theme").click();
        const after = getComputedStyle(document.body).backgroundColor;
        return { name: row.cells[0].querySelector("bdi").textContent, shown, before, after };
        """,
    )
    assert failures == []
    assert found["shown"][0] == "block"
    assert found["name"] in found["shown"][1]
    assert "first" in found["shown"][1]
    assert found["before"] != found["after"]


@needs_browser
def test_what_the_pointer_shows_of_several_classes(three):
    """The class and its probability, the two that follow, and the truth."""
    content = content_of(three)
    node = int(content.least_certain[0])
    entry = next(each for each in content.nodes if each["node"] == node)
    (told, wrong), failures = probe(
        render(content),
        """
        document.querySelector("tr[data-node]").dispatchEvent(new PointerEvent("pointermove", { clientX: 50, clientY: 50 }));
        const tip = document.getElementById("tip");
        return [[...tip.children].slice(0, 5).map((line) => line.textContent), tip.querySelectorAll(".wrong").length];
        """,
    )
    assert failures == []
    named = [
        f"{content.classes[k]}, {'' if i else 'probability '}{100 * p:.1f}%" for i, (k, p) in enumerate(entry["p"])
    ]
    assert told[0] == f"row {node}"
    assert told[1] == f"{named[0]} (error {entry['error']:.4f})"
    assert told[2:4] == [f"or {each}" for each in named[1:]]
    assert told[4] == f"in truth {content.classes[entry['truth']]}"
    assert wrong == (entry["truth"] != entry["class"])


@needs_browser
def test_hostile_text_in_a_browser(classifier):
    names = [HOSTILE + str(k) for k in range(200)]
    page = render(content_of(classifier, names=names, columns=[HOSTILE, "x"], cells=[[HOSTILE, "=2+2"]] * 200))
    assert console(page) == []
    found, failures = probe(
        page,
        """
        const row = document.querySelector("tr[data-node]");
        row.dispatchEvent(new PointerEvent("pointermove", { clientX: 50, clientY: 50, bubbles: true }));
        return [document.images.length, document.scripts.length, document.getElementById("tip").textContent];
        """,
    )
    assert failures == []
    assert found[0] == 0
    assert found[1] == 4  # the page's two, and the two of the probe
    assert HOSTILE in found[2]


@needs_browser
def test_pictures_in_a_browser(classifier):
    pictures = np.random.default_rng(0).integers(0, 255, (200, 5, 4), dtype=np.uint8)
    content = content_of(classifier, pictures=pictures)
    node = int(content.least_certain[0])
    found, failures = probe(
        render(content),
        f"""
        const canvas = document.querySelector("canvas.picture[data-node='{node}']");
        const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        return [canvas.width, canvas.height, [...pixels].filter((_, k) => k % 4 === 0)];
        """,
    )
    assert failures == []
    assert found[:2] == [4, 5]
    assert found[2] == pictures[node].ravel().tolist()


def test_three_classes_from_a_store_have_a_map(tmp_path):
    rng = np.random.default_rng(0)
    truth = np.arange(60) % 3
    np.save(tmp_path / "X.npy", np.abs(rng.standard_normal((60, 4)) + 4 * np.eye(3, 4)[truth]))
    y = np.where(np.arange(60) < 12, truth, -1)
    path = GraphClassifier(graph="cosine").fit(tall(tmp_path / "X.npy"), y).report(tmp_path / "page.html")
    assert "view 1" in path.read_text(encoding="utf-8")
