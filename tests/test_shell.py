"""What goes wrong at a shell: one line and an exit code, whatever the command."""

import os
import subprocess
import sys

import pytest

from tests.test_cli import ENVIRONMENT, refused, run

FULL = "/dev/full"
# What a command does that writes a table: more than a buffer holds, no flush.
TABLE = "import sys, graphuq.shell\nwith graphuq.shell.whole_output(): sys.stdout.write('row,class\\n' * {n})"


def start(*words, **streams):
    return subprocess.run([sys.executable, *words], text=True, check=False, env=ENVIRONMENT, **streams)


@pytest.mark.skipif(not os.path.exists(FULL), reason=f"there is no {FULL}")
@pytest.mark.parametrize(
    "words",
    [
        ["-c", TABLE.format(n=10)],
        ["-c", TABLE.format(n=100_000)],
        ["-m", "graphuq.cli", "--help"],
        ["-m", "graphuq.cli", "data", "voting", "--json"],
    ],
)
def test_standard_output_that_is_full(words):
    with open(FULL, "w") as full:
        done = start(*words, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr == "graphuq: standard output could not be written: No space left on device.\n"


def test_a_closed_pipe_ends_quietly():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        done = start("-c", TABLE.format(n=100_000), stdout=closed, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (1, "")


def test_exit_codes_pass_through():
    done = start("-m", "graphuq.cli", "data", "irises", capture_output=True)
    assert done.returncode == 2
    assert done.stderr.startswith("graphuq: There is no data set 'irises'")
    assert start("-m", "graphuq.cli", "--version", capture_output=True).returncode == 0


def test_a_file_where_a_folder_is_needed(tmp_path):
    (tmp_path / "file").write_text("mine")
    done = run("demo", "--out", tmp_path / "file", "--quiet")
    refused(done, "file is a file, where a folder is needed", tmp_path, ["file"])
    done = start("-m", "experiments", "fig1", "--out", tmp_path / "file", "--work", tmp_path, capture_output=True)
    assert done.returncode == 2
    assert done.stderr == f"graphuq reproduce: {tmp_path / 'file'} is a file, where a folder is needed.\n"
    assert (tmp_path / "file").read_text() == "mine"
