"""Experiments and benchmarks follow the package: every file of theirs can be imported."""

from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(path for folder in ("experiments", "benchmarks") for path in (ROOT / folder).glob("[!_]*.py"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_every_file_can_be_imported(path):
    assert import_module(f"{path.parent.name}.{path.stem}").__doc__
