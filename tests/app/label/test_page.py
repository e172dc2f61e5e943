"""People at the page, played by Chromium: by keyboard alone, two at once, and while the server is killed."""

import csv
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from graphuq.app.label.run import answers_file
from graphuq.app.label.store import open_store
from tests.app.label.conftest import NAMES, blobs
from tests.app.report.browser import CHROMIUM

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")

N = 90
EVIL = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"
NAME = "document.getElementById('row-name').textContent"
QUIET = "!document.body.hasAttribute('aria-busy')"


def written(path, rows, given=9, more=0):
    X, y = blobs(N)
    lines = [
        ",".join([f'"{rows(i)}"', *(f"{x:.4f}" for x in X[i]), *["7"] * more, NAMES[y[i]] if i < given else ""])
        for i in range(N)
    ]
    path.write_text(
        "\n".join([",".join(["name,a,b,c,d", *(f"e{k}" for k in range(more)), "kind"]), *lines]) + "\n",
        encoding="utf-8",
    )
    return path


class Server:
    """`graphuq label`, as at a shell."""

    def __init__(self, zygote, log, *words):
        self._zygote, self._log = zygote, log
        log.write_text("")
        self._say({"words": ["label", *map(str, words), "--no-open"], "log": str(log)})
        self.pid, limit = int(zygote.stdout.readline()), time.monotonic() + 60
        while not (found := re.search(r"http://\S+", self.said())):
            assert time.monotonic() < limit, self.said()
            time.sleep(0.02)
        self.address = found[0]

    def said(self):
        return self._log.read_text()

    def end(self, number=signal.SIGINT):
        """Its exit code."""
        os.kill(self.pid, number)
        self._say({"wait": self.pid})
        self.pid = None
        return int(self._zygote.stdout.readline())

    def _say(self, what):
        self._zygote.stdin.write(json.dumps(what) + "\n")
        self._zygote.stdin.flush()


@pytest.fixture(scope="module")
def zygote(tmp_path_factory):
    command = [sys.executable, "-m", "tests.app.label.zygote"]
    kept = {  # what one server compiled, the next one has
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("compiled")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command, **pipes, text=True, env={**os.environ, **kept})
    assert process.stdout.readline() == "ready\n"
    yield process
    process.stdin.close()
    process.wait()
    process.stdout.close()


@pytest.fixture
def serve(zygote, tmp_path):
    """A function that starts a server; what is left of them at the end is killed."""
    started = []

    def start(*words):
        started.append(Server(zygote, tmp_path / f"log {len(started)}", *words))
        return started[-1]

    yield start
    for server in started:
        if server.pid is not None:
            server.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def tab():
    from tests.app.label.chromium import browser

    with browser() as opened:
        yield opened


def digit(page, asked):
    """The key of the right class of the row that is asked."""
    row = int(re.sub(r"\D", "", asked))
    return str(blobs(N)[1][row] + 1)


def test_thirty_answers_by_keyboard_while_the_server_is_killed_ten_times(tab, serve, tmp_path):
    table = written(tmp_path / "t.csv", lambda i: f"row {i}")
    words = (table, "--label", "kind", "--id", "name", "--out", tmp_path / "out", "--modes", "30")
    server, rng = serve(*words), random.Random(1)
    page, answered = tab(), {}
    page.open(server.address)
    killed_before = set(rng.sample(range(30), 10))
    for k in range(30):
        page.until(QUIET)
        asked = page.ask(NAME)
        assert asked not in answered
        key = digit(page, asked)
        page.press(key)
        answered[asked] = NAMES[int(key) - 1]
        if k in killed_before:
            time.sleep(rng.uniform(0, 0.15))  # before the answer is heard, while it is written, or after
            server.end(signal.SIGKILL)
            server = serve(*words)
        page.until(f"{NAME} !== {asked!r} && {QUIET}")
    assert page.ask("document.getElementById('counts').textContent").startswith("39 labels of 90 rows")
    assert page.ask("document.getElementById('problem').hidden")
    page.press("u")
    page.until(f"document.getElementById('counts').textContent.startsWith('38 labels') && {QUIET}")
    last = page.ask(NAME)
    page.press(digit(page, last))
    page.until(f"document.getElementById('counts').textContent.startsWith('39 labels') && {QUIET}")
    page.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path / "saved"))
    page.ask("document.getElementById('csv').click()")
    page.until("document.getElementById('told').textContent === 'Saved.'")
    saved = tmp_path / "saved" / "labels.csv"
    limit = time.monotonic() + 30
    while not saved.exists():
        assert time.monotonic() < limit
        time.sleep(0.02)
    assert server.end() == 0, server.said()
    assert server.said().endswith(f"30 answers, and the results: {tmp_path / 'out'}\n")
    store = open_store(answers_file(tmp_path / "out"))
    given = {f"row {row}": name for row, name in store.tally.answers.items()}
    assert given == answered  # none lost
    with saved.open(newline="") as file:
        lines = {line["name"]: line for line in csv.DictReader(file)}
    assert {row: line["kind"] for row, line in lines.items() if line["status"] == "answered"} == answered
    assert len(store.events()) == 32  # none doubled: 30 answers, an undo, and that answer again
    store.close()
    assert (tmp_path / "out" / "predictions.csv").is_file()
    assert [each for each in page.said if "ERR_" not in each] == []


def test_two_people_at_once_are_never_asked_the_same_row(tab, serve, tmp_path):
    table = written(tmp_path / "t.csv", lambda i: f"row {i}", more=7)
    server = serve(table, "--label", "kind", "--id", "name", "--out", tmp_path / "out", "--modes", "30")
    pages = tab(), tab()
    for page in pages:
        page.resize(390, 844)
        page.open(server.address)
        # What the model believes comes by itself once there is one, and no cell of a dozen is cut on a phone.
        page.until("document.querySelector('#classes small').textContent.endsWith('%')")
        assert page.ask("document.querySelectorAll('#face dd').length") == 11
        assert (
            page.ask(
                "(({ scrollHeight, clientHeight }) => scrollHeight - clientHeight)(document.querySelector('#face dl'))"
            )
            == 0
        )
    asked = []
    for _ in range(6):
        for page in pages:
            page.until(QUIET)
        now = [page.ask(NAME) for page in pages]
        asked += now
        for page, name in zip(pages, now, strict=True):
            page.press(digit(page, name))
        for page, name in zip(pages, now, strict=True):
            page.until(f"{NAME} !== {name!r}")
    assert len(set(asked)) == len(asked) == 12
    pages[0].until("document.getElementById('counts').textContent.startsWith('21 labels')")
    assert server.end(signal.SIGTERM) == 128 + signal.SIGTERM
    store = open_store(answers_file(tmp_path / "out"))
    assert len(store.tally.answers) == 12
    store.close()


def test_the_class_that_others_say_shows_whole_on_a_phone(tab, serve, tmp_path):
    table = written(tmp_path / "t.csv", lambda i: f"row {i}", given=30)
    heading, *lines = table.read_text().splitlines()
    kind = lines[0].rpartition(",")[2]
    lines = [re.sub(f"{kind}$", f"{kind} with a name of several words", line) for line in lines]
    lines[0] = lines[0].rpartition(",")[0] + "," + lines[1].rpartition(",")[2]  # a mistake
    table.write_text("\n".join([heading, *lines]))
    page = tab()
    page.resize(390, 844)
    page.open(serve(table, "--label", "kind", "--id", "name", "--out", tmp_path / "out", "--modes", "30").address)
    said = "document.querySelector('#suspicious .what span')"
    page.until(f"{said} !== null")
    assert page.ask(f"{said}.textContent") == f"others say {kind} with a name of several words"
    assert page.ask(f"{said}.scrollWidth - {said}.clientWidth") == 0


def test_text_of_a_table_is_never_run_and_keys_do_all(tab, serve, tmp_path):
    text = EVIL.replace('"', '""')
    table = written(tmp_path / "t.csv", lambda i: f"{i} {text}", given=0)
    table.write_text(table.read_text().replace("name,a,b,", f"name,{'long_name_' * 7},b,", 1))
    server = serve(
        table,
        "--label",
        EVIL,
        "--id",
        "name",
        "--out",
        tmp_path / "out",
        "--drop",
        "kind",
        "--modes",
        "30",
        "--class",
        EVIL,
    )
    page = tab()
    page.resize(390, 844)
    page.open(server.address)
    assert EVIL in page.ask(NAME)
    assert EVIL in page.ask("document.getElementById('classes').textContent")
    page.press("1")
    page.until("document.getElementById('counts').textContent.startsWith('1 labels')")
    page.until(QUIET)
    before = page.ask(NAME)
    page.press("n")
    assert page.ask("document.activeElement.id") == "name"
    page.type("other")
    page.press("Enter")
    page.until(
        f"document.getElementById('counts').textContent.startsWith('2 labels') && {NAME} !== {before!r} && {QUIET}"
    )
    page.until("document.getElementById('busy').hidden")
    page.press("n")
    page.type("mistyped")
    page.press("Enter")
    page.until(f"document.getElementById('counts').textContent.startsWith('3 labels') && {QUIET}")
    assert "mistyped" in page.ask("document.getElementById('classes').textContent")
    page.press("n")
    page.type("OTHER")
    page.press("Enter")
    refused = "document.getElementById('problem').textContent.includes('only in capitals')"
    page.until(refused)
    page.until("document.getElementById('busy').hidden")  # the page has asked for the state since, with success
    assert page.ask(refused)
    page.press("u")
    page.until(f"document.getElementById('counts').textContent.startsWith('2 labels') && {QUIET}")
    assert "mistyped" not in page.ask("document.body.innerText")
    for key, told in (("s", "1 skipped"), ("?", "1 not sure")):
        page.until(QUIET)
        page.press(key)
        page.until(f"document.getElementById('counts').textContent.includes({told!r})")
    page.until(QUIET)
    assert page.ask("document.title").startswith(EVIL)
    assert page.ask("document.querySelectorAll('main img, main script').length") == 0
    assert page.ask("document.documentElement.scrollWidth") == 390  # nothing sticks out of a phone
    assert (
        page.ask("Math.min(...[...document.querySelectorAll('#face dd')].map((each) => each.clientWidth))") > 120
    )
    assert "long_name_long_name… " in page.ask("document.getElementById('near').textContent")
    assert page.ask("document.getElementById('told').getAttribute('aria-live')") == "polite"
    # Everything that can be pressed has a name, and can be reached.
    nameless = "[...document.querySelectorAll('button, input, canvas')].filter((each) => !(each.ariaLabel || each.textContent.trim() || each.labels?.length || each.getAttribute('aria-labelledby'))).length"
    assert page.ask(nameless) == 0
    reached = set()
    for _ in range(14):
        page.press("Tab")
        reached.add(
            page.ask(
                "document.activeElement.id || document.activeElement.dataset.class || document.activeElement.tagName"
            )
        )
    assert {"write", "theme", "0", "1", "new", "skip", "unsure", "undo"} <= reached
    assert all("409" in each for each in page.said)  # the one that was refused
    wrong = tab()
    wrong.call("Page.navigate", url=server.address.split("#")[0] + "#wrong")
    wrong.until("document.getElementById('problem')?.textContent.includes('key in the address')")
    assert EVIL not in wrong.ask("document.body.textContent")
    server.end()


@pytest.mark.parametrize("picture", ["there", "missing"])
def test_pictures(tab, serve, tmp_path, picture):
    from matplotlib.image import imsave

    (tmp_path / "pictures").mkdir()
    if picture == "there":
        for i in range(N):
            imsave(tmp_path / "pictures" / f"{i}.png", np.full((4, 4, 3), i / N))
    table = written(tmp_path / "t.csv", lambda i: f"{i}.png")
    server = serve(
        table, "--label", "kind", "--out", tmp_path / "out", "--modes", "30",
        "--pictures", tmp_path / "pictures", "--picture-column", "name",
    )  # fmt: skip
    page = tab()
    page.open(server.address)
    if picture == "there":
        page.until("document.querySelector('#face img')?.naturalWidth === 4")
        assert page.said == []
    else:
        page.until("document.querySelector('#face .missing')?.textContent.includes('There is no picture')")
    server.end()
