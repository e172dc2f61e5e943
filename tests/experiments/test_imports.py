"""Experiments and benchmarks follow the package: every file of theirs can be imported."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMES = sorted(
    f"{folder}.{path.stem}"
    for folder in ("experiments", "benchmarks")
    for path in (ROOT / folder).glob("[!_]*.py")
)


def test_every_file_can_be_imported():
    """In a process of its own: peers load libraries that other tests count."""
    each = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    done = subprocess.run([sys.executable, "-c", each, *NAMES], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
