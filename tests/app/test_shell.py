"""What goes wrong at a shell: one line and an exit code, whatever the command."""

import os
import re
import signal
import subprocess
import sys

import pytest
import typer

import graphuq.__main__
from graphuq.app.cli import _for_terminal
from graphuq.app.shell import exit_on_signals, one_sentence, sentence
from graphuq.files import whole_file, whole_folder
from tests.app.test_cli import ENVIRONMENT, PLAIN, fit_blobs, refused, run, write_blobs

FULL = "/dev/full"
# What a command does that writes a table: more than a buffer holds, no flush.
TABLE = (
    "import sys, graphuq.app.shell\nwith graphuq.app.shell.whole_output(): sys.stdout.write('row,class\\n' * {n})"
)


def start(*words, **streams):
    return subprocess.run([sys.executable, *words], text=True, check=False, env=ENVIRONMENT, **streams)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="limits are known on Linux")
@pytest.mark.parametrize("kilobytes", [500_000, 1_200_000])
def test_too_few_addresses_to_begin_with(kilobytes, tmp_path):
    words = [sys.executable, "-m", "graphuq.app.cli", "fit", "none.csv", "--label", "y", "--out", "out"]
    limited = ["bash", "-c", f'ulimit -v {kilobytes} && exec "$0" "$@"', *words]
    done = subprocess.run(limited, cwd=tmp_path, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"graphuq: 1.5 GB of addresses are needed .* raise ulimit -v\.\n", done.stderr)


@pytest.mark.skipif(not os.path.exists(FULL), reason=f"there is no {FULL}")
@pytest.mark.parametrize(
    "words",
    [
        ["-c", TABLE.format(n=10)],
        ["-c", TABLE.format(n=100_000)],
        ["-m", "graphuq.app.cli", "--help"],
        ["-m", "graphuq.app.cli", "data", "voting", "--json"],
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


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-"])
def test_streams_that_the_shell_closed(closed):
    words = ["sh", "-c", f"'{sys.executable}' -m graphuq.app.cli data voting {closed}"]
    done = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("435" in done.stdout) == (closed != ">&-")


def test_what_is_piped_is_utf8_whatever_the_terminal_takes():
    told = "import sys, graphuq.app.shell\nwith graphuq.app.shell.whole_output(): sys.stdout.write('Ñandú')"
    done = subprocess.run(
        [sys.executable, "-c", told],
        capture_output=True,
        check=True,
        env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii"},
    )
    assert done.stdout == "Ñandú".encode()


def test_exit_codes_pass_through():
    done = start("-m", "graphuq.app.cli", "data", "irises", capture_output=True)
    assert done.returncode == 2
    assert done.stderr.startswith("graphuq: There is no data set 'irises'")
    assert start("-m", "graphuq.app.cli", "--version", capture_output=True).returncode == 0


def test_a_file_where_a_folder_is_needed(tmp_path):
    (tmp_path / "file").write_text("mine")
    done = run("demo", "--out", tmp_path / "file", "--quiet")
    refused(done, "file is a file, where a folder is needed", tmp_path, ["file"])
    done = start("-m", "experiments", "fig1", "--out", tmp_path / "file", "--work", tmp_path, capture_output=True)
    assert done.returncode == 2
    assert done.stderr == f"graphuq reproduce: {tmp_path / 'file'} is a file, where a folder is needed.\n"
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("command", ["predict", "report"])
def test_what_is_no_regular_file_is_never_replaced(tmp_path, command):
    """A pipe stands for a device here, which root could replace."""
    pipe, folder = tmp_path / "pipe", tmp_path / "folder"
    os.mkfifo(pipe)
    folder.mkdir()
    words = [command, "model", *(["new.csv"] if command == "predict" else [])]
    for target in (pipe, folder):
        done = run(*words, "--out", target, "--force")
        refused(done, "is not a regular file, so it is not replaced", tmp_path, ["pipe", "folder"])
        with pytest.raises(ValueError, match="not a regular file"), whole_file(target) as part:
            part.write_text("new")
    assert pipe.is_fifo()
    assert folder.is_dir()


def test_links_stay_and_what_they_point_to_is_written(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "short").symlink_to("file")
    with whole_folder(tmp_path / "link", replace=True) as part:
        (part / "new").write_text("1")
    with whole_file(tmp_path / "short") as part:
        part.write_text("new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "real", "short"]
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "short").is_symlink()
    assert (tmp_path / "real" / "new").read_text() == "1"
    assert (tmp_path / "file").read_text() == "new"


# A fit that lasts, as reading a large table does.
LASTING = """
import signal
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which a test run by nohup would hand down as ignored
import time, graphuq.app.fitting
graphuq.app.fitting.read_data = lambda question: time.sleep(60)
from graphuq.app.cli import main
main()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there are no such signals")
@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_fit_that_is_ended_leaves_nothing(tmp_path, name, code):
    words = [sys.executable, "-c", LASTING, "fit", "t.csv", "--label", "kind", "--out", "out"]
    with subprocess.Popen(words, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE) as fit:
        assert fit.stderr.readline() == b"reading t.csv ...\n"
        assert list(tmp_path.iterdir()) != []
        fit.send_signal(getattr(signal, name))
        assert fit.wait(30) == code
        assert fit.stderr.read() == b""
    assert list(tmp_path.iterdir()) == []


# A process signalled while the garbage collector calls back, as it calls JAX.
COLLECTING = """
import gc, os, sys, time
from graphuq.app.shell import exit_on_signals
exit_on_signals()
gc.callbacks.append(lambda *how: (gc.callbacks.clear(), os.kill(os.getpid(), int(sys.argv[1])), time.sleep(0)))
gc.collect()
time.sleep(60)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
def test_a_signal_is_not_lost_to_the_garbage_collector(number, code):
    words = [sys.executable, "-c", COLLECTING, str(int(number))]
    done = subprocess.run(words, env=ENVIRONMENT, capture_output=True, timeout=30, check=False)
    assert done.returncode == code
    assert b"Exception ignored" not in done.stderr


def test_ctrl_c_ends_without_a_traceback_while_libraries_are_imported(monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr("graphuq.app.cli.main", interrupted)
    with pytest.raises(SystemExit) as ended:
        graphuq.__main__.main()
    assert ended.value.code == 130


def test_a_device_that_is_not_there_is_told_in_one_line(capsys):
    with pytest.raises(typer.Exit), one_sentence():
        raise RuntimeError("Unable to initialize backend 'tpu': it is\nnot there")
    assert capsys.readouterr().err == "graphuq: Unable to initialize backend 'tpu': it is not there\n"
    with pytest.raises(RuntimeError, match="a mistake"), one_sentence():
        raise RuntimeError("a mistake")


# A fit that reads its table when told to.
WAITING = """
import sys, graphuq.app.fitting as fitting
read = fitting.read_data
fitting.read_data = lambda question: (sys.stdin.readline(), read(question))[1]
from graphuq.app.cli import main
main()
"""


@pytest.mark.parametrize("more", [[], ["--force"]])
def test_two_fits_to_one_folder(tmp_path, more):
    """The second is told in a sentence and changes nothing; the first ends with a whole result."""
    out, table = tmp_path / "out", write_blobs(tmp_path / "blobs.csv")
    asked = ["--label", "kind", "--truth", "truth", "--id", "name", "--neighbors", "5", *PLAIN, *more]
    words = [sys.executable, "-W", "ignore", "-c", WAITING, "fit", table, "--out", out, *asked]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    if more:
        assert fit_blobs(table, out).exit_code == 0
    with subprocess.Popen(words, env=ENVIRONMENT, **pipes) as first:
        assert first.stderr.readline() == "reading blobs.csv ...\n"
        left = {path.name for path in tmp_path.iterdir()}
        refused(fit_blobs(table, out, *more), "Another process is writing", tmp_path, left)
        _, told = first.communicate("go on\n", timeout=60)
        assert first.returncode == 0, told
    assert run("predict", out, table).exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blobs.csv", "out"]


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there is no such signal")
def test_a_signal_that_is_ignored_stays_so(monkeypatch):
    """As under nohup."""
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        exit_on_signals()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_no_text_of_a_table_steers_the_terminal(tmp_path):
    def name(k):
        return f"\x1b[31m\u202e{k}"

    table = write_blobs(tmp_path / "blobs.csv", names=("\x07a", "b"), row=name)
    done = fit_blobs(table, tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "23 of class ?a and 11 of class b" in done.stdout
    assert "?[31m?24" in done.stdout
    assert re.search(r"\?24 +50\.0%  \?a\n", done.stdout)
    assert not {"\x07", "\x1b", "\u202e"} & set(done.output)
    assert sentence(ValueError("Only one class, \x1b[2J")) == "Only one class, ?[2J"
    persian = "\u0645\u06cc\u200c\u062e\u0648\u0631\u062f"
    assert sentence(ValueError(persian)) == persian
    assert _for_terminal({"P(\x07)": ["\x1b", 0.5]}) == {"P(?)": ["?", 0.5]}
