import re
from copy import copy
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

from graphuq import GraphClassifier
from graphuq.report.content import MAX_POINTS, Rows, _sentences, _shown, collect
from graphuq.report.page import render
from graphuq.settings import without_effect
from tests.report.browser import CHROMIUM, console, probe
from tests.test_estimator import SETTINGS, TRUTH, X, Y

HOSTILE = "<img src=x onerror=\"alert(1)\"></script><script>alert('run')</script>&=1+1"
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


@pytest.fixture(scope="module")
def classifier():
    return GraphClassifier(**SETTINGS).fit(X, Y)


def content_of(classifier, **changes):
    rows = {
        "names": [f"row {k}" for k in range(200)],
        "columns": ["first", "second"],
        "cells": [[f"{value:.3f}" for value in row[:2]] for row in X],
        "truth": np.where(TRUTH == "upper", 1, -1),
    }
    return collect(classifier, Rows(**rows | changes), title="Two moons", settings={"seconds": 1.5})


@pytest.fixture(scope="module")
def page(classifier):
    return render(content_of(classifier))


def test_the_page_stands_alone(page):
    """Nothing is loaded, and the policy of the page would forbid it."""
    assert "default-src 'none'" in page
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)
    assert "@import" not in page
    assert page.count("<script") == 2


def test_what_it_says(classifier, page):
    content = content_of(classifier)
    assert "Of 200 rows, 10 had a class" in content.sentences[0]
    assert content.converged
    assert content.verdict in page
    unlabeled = np.setdiff1d(np.arange(200), classifier.labels_.nodes)
    distance = np.abs(classifier.label_distributions_[:, 1] - 0.5)
    assert content.least_certain[0] == unlabeled[np.argmin(distance[unlabeled])]
    assert content.most_certain[0] == unlabeled[np.argmax(distance[unlabeled])]
    right = np.mean(classifier.transduction_[unlabeled] == TRUTH[unlabeled])
    assert dict(content.calibration)["share right"] == f"{right:.3f}"
    assert ("seconds", "1.5") in content.settings
    assert sum(map(sum, content.plots["confidence"]["counts"])) == len(unlabeled)


@pytest.mark.parametrize(
    ("unsure", "told"),
    [
        (
            0,
            "none is more likely “lower” and 190 are more likely “upper”. 190 have a probability of 95% or more; "
            "none has less than 70%.",
        ),
        (
            1,
            "1 is more likely “lower” and 189 are more likely “upper”. 189 have a probability of 95% or more; "
            "1 has less than 70% and deserves a look.",
        ),
        (
            190,
            "190 are more likely “lower” and none is more likely “upper”. None has a probability of 95% or more; "
            "190 have less than 70% and deserve a look.",
        ),
    ],
)
def test_numbers_and_verbs_agree(classifier, unsure, told):
    unlabeled = np.setdiff1d(np.arange(200), classifier.labels_.nodes)
    probability = np.ones(200)
    probability[unlabeled[:unsure]] = 0.4
    sentences = _sentences(classifier, probability, unlabeled, None, [(0, 0.1)], True)
    assert sentences[1] == f"The answer: {told}"
    assert sentences[2] == "1 of the given labels contradicts the others: see below."


def test_notes_are_shown_as_text(classifier):
    content = replace(content_of(classifier), notes=[HOSTILE])
    page = render(content)
    assert "<h3>Notes</h3><ul><li><bdi>&lt;img src=x" in page
    assert page.count("<script") == 2
    assert "Notes" not in render(content_of(classifier))


def test_names_that_turn_text_round_are_isolated(classifier):
    """U+202E makes what follows run from right to left, unless it is shut in: as every name of the user is."""
    turned = copy(classifier)
    turned.classes_ = np.array(["\u202elower", "\u202eupper"])
    pictures = np.zeros((200, 2, 2), dtype=np.uint8)
    content = content_of(turned, names=[f"\u202e{k}" for k in range(200)], pictures=pictures)
    page = render(replace(content, notes=["\u202e"], title="Two moons"))
    assert page.count("<bdi>\u202e") > 100
    assert not re.findall("(?<!<bdi>)\u202e", page)


def test_pictures_are_captioned_with_the_name_of_their_row(classifier):
    content = content_of(classifier, pictures=np.zeros((200, 2, 2), dtype=np.uint8))
    node = content.least_certain[0]
    figure = re.search(rf"<figure data-node='{node}'><canvas.*?</figure>", render(content))[0]
    assert f"row <bdi>row {node}</bdi><br><b><bdi>{classifier.transduction_[node]}</bdi></b>" in figure


def test_settings_without_effect_are_left_out(classifier):
    """SETTINGS ask for a matern prior and nearest neighbors of a probit model."""
    named = dict(content_of(classifier).settings)
    assert {"n_neighbors", "tau", "alpha", "n_modes"} <= set(named)
    assert not {"width", "epsilon"} & set(named)
    other = clone(classifier).set_params(affinity="gaussian", width=0.5, prior="learned", model="ginzburg_landau")
    assert set(without_effect(other)) == {"n_neighbors", "tau", "alpha"}
    other.set_params(affinity="cosine", prior="full", inference="sample")
    assert set(without_effect(other)) == {
        "width", "n_neighbors", "n_components", "n_modes", "tau", "alpha", "time_limit",
    }  # fmt: skip


def test_what_is_learned_says_how_well_it_is_known(classifier):
    learned = copy(classifier)
    learned.hyperparameters_ = {"gamma": 0.5, "tau": 0.3, "alpha": 2.0}
    learned.hyperparameter_spread_ = {"tau": 1.94, "alpha": 113.0}
    assert content_of(learned).hyperparameters == [
        ("gamma", "0.5", "set, not learned"),
        ("tau", "0.3", "learned, to a factor of 1.9"),
        ("alpha", "2", "learned, but hardly known (to a factor of 110)"),
    ]


def test_no_probability_is_shown_as_certain(classifier):
    content = content_of(classifier)
    sure = [{**entry, "p": 1.0 if entry["p"] > 0.5 else 0.0} for entry in content.nodes]
    table = re.search(r"<table aria-label='Most certain'>.*?</table>", render(replace(content, nodes=sure)), re.S)[
        0
    ]
    assert table.count("&gt; 99.9%") == 20
    assert "100.0%" not in table


def test_what_is_not_known_is_left_out(classifier):
    content = content_of(classifier, truth=None)
    page = render(content)
    assert content.calibration == []
    assert "Are the probabilities right?" not in page
    assert "What they look like" not in page


def test_a_wrong_label_is_suspicious():
    wrong = Y.copy()
    upper = np.flatnonzero(TRUTH == "upper")
    wrong[upper[::4]] = "upper"
    wrong[upper[20]] = "lower"
    content = content_of(GraphClassifier(**SETTINGS).fit(X, wrong))
    assert upper[20] in [node for node, _ in content.suspicious]
    assert f"row {upper[20]}" in render(content)


def test_text_of_the_user_is_only_ever_text(classifier):
    names = [HOSTILE + str(k) for k in range(200)]
    page = render(content_of(classifier, names=names, columns=[HOSTILE, "x"], cells=[[HOSTILE, "=2+2"]] * 200))
    assert page.count("<script") == 2
    assert page.count("</script>") == 2
    assert "<img" not in page


def test_of_a_large_graph_the_telling_rows_are_drawn():
    ranked, labeled = np.arange(10, 20_000), np.arange(10)
    shown = _shown(ranked, labeled, np.random.default_rng(0))
    assert len(shown) == len(set(shown)) == MAX_POINTS
    assert set(labeled) | set(ranked[:20]) | set(ranked[-20:]) <= set(shown)


@needs_browser
@pytest.mark.parametrize("width", [1200, 390])
def test_in_a_browser(page, width):
    """No error, every plot drawn, nothing wider than the screen."""
    found, failures = probe(
        page,
        """
        const map = document.querySelector("canvas.map");
        const pixels = map.getContext("2d").getImageData(0, 0, map.width, map.height).data;
        return {
          drawn: pixels.some((value) => value > 0),
          bars: document.querySelectorAll("#confidence rect").length,
          reliability: document.querySelectorAll("#reliability circle").length,
          marginals: document.querySelectorAll("[data-marginal] svg").length,
          traces: document.querySelectorAll("[data-trace] polyline").length,
          colors: new Set([...document.querySelectorAll("[data-trace='0'] polyline")].map((line) => line.getAttribute("stroke"))).size,
          axis: [...document.querySelectorAll("[data-trace='0'] text")].map((text) => text.textContent),
          legend: document.querySelector(".controls").textContent,
          dots: document.querySelector("#reliability circle").getAttribute("fill"),
          classes: ["--positive", "--negative"].map((name) => getComputedStyle(document.documentElement).getPropertyValue(name)),
          edges: getComputedStyle(document.querySelector(".scroll")).backgroundAttachment,
          spectrum: document.querySelectorAll("#spectrum circle").length,
          overflow: document.documentElement.scrollWidth - innerWidth,
        };
        """,
        width=width,
    )
    assert failures == []
    assert found["drawn"]
    assert found["bars"] == 40
    assert found["reliability"] > 0
    assert (found["marginals"], found["traces"], found["spectrum"]) == (12, 16, 200)
    assert found["colors"] == 8  # one for each chain
    assert {"draw", "200"} <= set(found["axis"])
    assert "stars: labeled" in found["legend"]
    assert found["dots"] not in found["classes"]
    assert found["edges"] == "local, local, scroll, scroll"
    assert found["overflow"] <= 0


@needs_browser
def test_on_a_phone_wide_tables_scroll_in_their_box(classifier):
    """Long names without a place to break, all details open: the page keeps the width of the screen."""
    name = "a_name_without_a_place_to_break" * 3
    content = content_of(classifier, names=[f"{name}{k}" for k in range(200)])
    content = replace(content, title=name, classes=(name, f"{name}2"), hyperparameters=[(name, "1", name)] * 2)
    found, failures = probe(
        render(content),
        """
        document.querySelectorAll("details").forEach((details) => { details.open = true; });
        const boxes = [...document.querySelectorAll(".scroll")];
        return {
          width: innerWidth,
          page: document.documentElement.scrollWidth,
          scrolling: boxes.filter((box) => box.scrollWidth > box.clientWidth).length,
          outside: boxes.filter((box) => box.getBoundingClientRect().right > innerWidth).length,
        };
        """,
        width=390,
    )
    assert failures == []
    assert found["width"] == found["page"] == 390
    assert found["scrolling"] > 0
    assert found["outside"] == 0


@needs_browser
def test_sorting_hovering_and_dark(page):
    found, failures = probe(
        page,
        """
        const table = document.querySelector("table[aria-label='Least certain']");
        const column = (k) => [...table.tBodies[0].rows].map((row) => row.cells[k].dataset.value ?? row.cells[k].textContent);
        const button = (k) => table.tHead.rows[0].cells[k].querySelector("button");
        button(3).click();
        const up = column(3).map(Number);
        button(3).click();
        const down = column(3).map(Number);
        button(0).click();
        const names = column(0);
        const row = table.tBodies[0].rows[0];
        row.dispatchEvent(new PointerEvent("pointermove", { clientX: 50, clientY: 50, bubbles: true }));
        const tip = document.getElementById("tip");
        const shown = [tip.style.display, tip.textContent];
        const before = getComputedStyle(document.body).backgroundColor;
        document.getElementById("theme").click();
        const after = getComputedStyle(document.body).backgroundColor;
        return { up, down, names, name: row.cells[0].textContent, shown, before, after };
        """,
    )
    assert failures == []
    assert found["up"] == sorted(found["up"])
    assert found["down"] == sorted(found["up"], reverse=True)
    assert found["up"][0] < found["up"][-1]
    assert found["names"] == sorted(found["names"], key=lambda name: int(name.split()[1]))
    assert found["shown"][0] == "block"
    assert found["name"] in found["shown"][1]
    assert "first" in found["shown"][1]
    assert found["before"] != found["after"]


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
