"""The runner of experiments: what is done is kept, what changed is done again, and what broke is named."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from experiments import __main__ as command
from experiments import page, runner

from graphuq.files import whole_file
from tests.experiments import toy


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the toy with some settings; the outcome, and how often each trial has run so far."""
    monkeypatch.setattr(runner, "load", lambda name: toy)
    out, work = tmp_path / "out", tmp_path / "work"

    def once(**settings):
        monkeypatch.setattr(toy, "QUICK", toy.Config(folder=str(tmp_path), **settings))
        outcome = runner.reproduce(["toy"], level="quick", jobs=1, out=out, work=work)[0]
        return outcome, len(list(tmp_path.glob("ran-*")))

    return once


def test_trials_become_a_record_a_figure_and_claims(run, tmp_path):
    outcome, n_runs = run()
    assert n_runs == 3
    assert outcome.good
    record = runner.read_record(tmp_path / "out" / "toy.json")
    assert record == outcome.record
    assert record.values == {"sum": 5}
    assert record.level == "quick"
    assert "cores" in record.machine
    assert (tmp_path / "out" / "toy.png").stat().st_size < runner.LARGEST_FIGURE


def test_a_record_of_the_trials_that_time_allowed_and_no_figure(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "load", lambda name: toy)
    monkeypatch.setattr(toy, "QUICK", toy.Config(folder=str(tmp_path), n_trials=9, seconds=0.2))
    out, work = tmp_path / "out", tmp_path / "work"

    def once(**limits):
        return runner.reproduce(["toy"], level="quick", jobs=1, out=out, work=work, figures=False, **limits)[0]

    assert once(seconds=0.0).record.values["sum"] < 204
    assert once().record.values["sum"] == 204  # goes on where it stopped
    assert len(list(tmp_path.glob("ran-*"))) == 9
    assert (out / "toy.json").exists()
    assert not (out / "toy.png").exists()


def test_what_is_done_is_not_done_again_unless_the_config_changed(run):
    run()
    outcome, n_runs = run()
    assert n_runs == 3
    assert outcome.record.values == {"sum": 5}
    outcome, n_runs = run(n_trials=4, paper=14)
    assert n_runs == 7
    assert outcome.record.values == {"sum": 14}


def test_a_digest_tells_experiments_configs_and_trials_apart(monkeypatch):
    monkeypatch.setattr(runner, "load", lambda name: toy)
    config, trial = toy.Config(), {"number": 1}
    first = runner.digest("toy", config, trial)
    assert first == runner.digest("toy", toy.Config(), {"number": 1})
    others = {
        runner.digest("yot", config, trial),
        runner.digest("toy", replace(config, seconds=0.1), trial),
        runner.digest("toy", config, {"number": 2}),
    }
    assert len(others | {first}) == 4


def test_a_broken_trial_is_named_and_the_others_are_kept(run):
    outcome, n_runs = run(broken=1)
    assert not outcome.good
    assert outcome.record is None
    assert 'toy, trial {"number": 1}' in outcome.errors[0]
    assert "no square today" in outcome.errors[0]
    assert n_runs == 3
    assert run(broken=1)[1] == 4  # the broken one alone is tried again
    assert 'trial {"number": 1}' in command.table([outcome])


def test_data_that_cannot_be_had_are_named_in_the_table(run):
    outcome, _ = run(missing=True)
    assert outcome.record is None
    assert outcome.good  # nothing disagrees
    assert "squares could not be had" in " ".join(command.table([outcome]).split())


def test_the_exit_code_says_whether_a_claim_differs(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "load", lambda name: toy)
    monkeypatch.setattr(runner, "available", lambda: ["toy"])
    words = ["toy", "--jobs", "1", "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    for paper, code in ((5, 0), (6, 1)):
        monkeypatch.setattr(toy, "QUICK", toy.Config(folder=str(tmp_path), paper=paper))
        assert command.main(words) == code


@pytest.mark.parametrize(
    "words", [[], ["fig11"], ["fig1", "--all"], ["fig1", "--jobs", "0"], ["--quick", "--full"], ["page", "--full"]]
)
def test_a_wrong_question_is_refused(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        command.main(words)
    assert "error" in capsys.readouterr().err


def test_a_killed_run_goes_on_where_it_stopped(tmp_path, run):
    program = f"""
from experiments import runner
from pathlib import Path
from tests.experiments import toy
runner.load = lambda name: toy
toy.QUICK = toy.Config(folder={str(tmp_path)!r}, seconds=0.3, n_trials=20, paper=2470)
runner.reproduce(["toy"], level="quick", jobs=1, out=Path({str(tmp_path)!r}, "out"), work=Path({str(tmp_path)!r}, "work"))
"""
    running = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL, env=_environment())
    finished = tmp_path / "work" / "trials"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(list(finished.glob("toy-*.json"))) < 2:
        time.sleep(0.05)
    running.kill()
    running.wait()
    time.sleep(1)  # for its processes to see that it is gone
    done, began = len(list(finished.glob("toy-*.json"))), len(list(tmp_path.glob("ran-*")))
    assert 2 <= done < 20
    assert began - done <= 2  # the one at work, and perhaps the next
    outcome, n_runs = run(seconds=0.3, n_trials=20, paper=2470)
    assert outcome.good
    assert n_runs == began + 20 - done


def test_a_file_is_there_whole_or_not_at_all(tmp_path):
    target = tmp_path / "record.json"
    target.write_text("old")

    def interrupted():
        with whole_file(target) as part:
            part.write_text("ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_plain_makes_json_of_anything_an_experiment_returns():
    value = {
        "a": np.array([1 / 3, np.nan]),
        "b": (np.int64(2), np.bool_(True)),
        3: np.float32(np.inf),
        "c": "text",
    }
    assert json.loads(json.dumps(runner.plain(value), allow_nan=False)) == {
        "a": [0.3333333, None],
        "b": [2, True],
        "3": None,
        "c": "text",
    }


def test_the_page_shows_each_record(run, tmp_path, monkeypatch):
    run()
    monkeypatch.setattr(runner, "ORDER", ("toy", "absent"))
    assert page.write_page(tmp_path / "out", tmp_path / "page.md") == ["toy"]
    text = (tmp_path / "page.md").read_text()
    assert "(out/toy.png)" in text
    assert "| sum \\| of squares | 5.0 | 5 | agrees |" in text
    assert "Level: quick" in text


def _environment():
    import os

    root = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, *filter(None, sys.path)])}
