"""The code that people read first runs as it stands."""

import re
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md", "docs/extending.md"])
def test_the_python_on_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(
        r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert blocks
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile("\n".join(blocks), page, "exec"), {})


def test_every_command_on_a_page_exists():
    """`graphuq NAME` in the pages names a command, and its options are options."""
    import typer

    from graphuq.cli import app

    commands = typer.main.get_command(app).commands
    for page in ("README.md", "docs/quickstart.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        lines = re.findall(r"^    graphuq (\w+)([^#\n]*)", text, re.MULTILINE)
        assert lines
        for name, rest in lines:
            known = {option for each in commands[name].params for option in each.opts}
            assert set(re.findall(r"--[\w-]+", rest)) <= known, (page, name)
