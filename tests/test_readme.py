"""The code that people read first runs as it stands."""

import json
import os
import re
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import graphuq

ROOT = Path(__file__).parents[1]


PAGES = ("README.md", "docs/quickstart.md", "docs/extending.md", "docs/large.md", "docs/models.md")
TUTORIALS = tuple(f"docs/tutorials/{path.name}" for path in sorted((ROOT / "docs/tutorials").glob("*.md")))


@pytest.mark.parametrize("page", [*PAGES, *TUTORIALS])
def test_the_code_on_a_page_runs(page, tmp_path, monkeypatch):
    """Blocks of Python and of shell in their order, in one folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```(python|sh)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert blocks
    names: dict[str, object] = {}
    for language, block in blocks:
        if language == "sh":
            done = subprocess.run(["bash", "-ec", block], capture_output=True, text=True)
            assert done.returncode == 0, block + done.stderr
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(block, page, "exec"), names)


def exported(archive, number):
    """The tasks that the command for this archive exports, which the code of that number on the page makes."""
    from typer.testing import CliRunner

    from graphuq.app.cli import app

    text = (ROOT / "docs/labelling.md").read_text(encoding="utf-8")
    code = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[number]
    exec(compile(code, "labelling.md", "exec"), {})
    [command] = re.findall(rf"^    graphuq (label {re.escape(archive)} .*)", text, re.MULTILINE)
    done = CliRunner().invoke(app, [*command.split(), "--export", "labels.json"])
    assert done.exit_code == 0, done.output
    return json.loads(Path("labels.json").read_text())


def test_the_recipe_for_pictures_runs(tmp_path, monkeypatch):
    from matplotlib.image import imsave

    monkeypatch.chdir(tmp_path)
    (tmp_path / "pictures").mkdir()
    for k in range(12):
        imsave(tmp_path / "pictures" / f"{k}.png", np.roll(np.eye(20), k % 3, axis=0))
    tasks = exported("shapes.npz", 0)
    assert tasks[1]["data"] == {"row": "1.png", "cells": {"picture": "1.png"}}


def test_the_recipe_for_texts_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [f"w{k % 7} w{k % 5} w{k % 3} w{k} and w{k + 1}" for k in range(30)]
    (tmp_path / "tickets.csv").write_text(
        "\n".join(["ticket,text", *(f"T{k},{each}" for k, each in enumerate(words))])
    )
    tasks = exported("tickets.npz", 1)
    assert tasks[1]["data"] == {"row": "T1", "cells": {"text": words[1]}}


def test_every_command_on_a_page_exists():
    """`graphuq NAME` in the pages names a command, and its options are options."""
    import typer

    from graphuq.app.cli import app

    commands = typer.main.get_command(app).commands
    for page in ("README.md", "docs/quickstart.md", "docs/tutorials/analyst.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        lines = re.findall(r"^    graphuq (\w+)([^#\n]*)", text, re.MULTILINE)
        assert lines
        for name, rest in lines:
            known = {option for each in commands[name].params for option in each.opts}
            assert set(re.findall(r"--[\w-]+", rest)) <= known, (page, name)


def named(name):
    """What a dotted name below graphuq stands for."""
    found = graphuq
    for part in name.split("."):
        if not hasattr(found, part):
            import_module(f"{found.__name__}.{part}")
        found = getattr(found, part)
    return found


def table_of_equations():
    """The rows of both tables: the functions and the tests that each names."""
    lines = (ROOT / "docs/equations.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("|").split(" | ")[-2:] for line in lines if line.startswith("|")]
    rows = [row for row in rows if row[0].strip() != "function" and not row[0].startswith("---")]
    return [tuple(re.findall(r"`([^`]+)`", cell) for cell in row) for row in rows]


def test_every_name_in_the_table_of_equations_exists():
    rows = table_of_equations()
    assert len(rows) > 40
    for functions, tests in rows:
        assert functions
        assert tests
        for name in functions:
            if name.endswith(".py"):
                assert (ROOT / "src/graphuq" / name).exists() or (ROOT / name).exists(), name
            elif not name.endswith("="):  # a setting
                assert callable(named(name.split("(")[0])), name
        for path in tests:
            assert (ROOT / "tests" / path).exists(), path
    with pytest.raises(ModuleNotFoundError):
        named("laplacian.no_such_name")


@pytest.mark.parametrize("page", sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")))
def test_every_link_and_setting_on_a_page_exists(page):
    """Links to other pages and files; and no setting that the classifier does not have."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert link.startswith("http") or ((ROOT / page).parent / link).exists(), link
    known = graphuq.GraphClassifier().get_params()
    for settings in re.findall(r"GraphClassifier\(([^()`]*(?:\([^()]*\)[^()`]*)*)\)", text):
        outer = re.sub(r"\([^()]*\)", "", settings)
        assert set(re.findall(r"(\w+)=", outer)) <= set(known), settings
