import sys
import threading
import time

import numpy as np
import pytest

from graphuq import GraphClassifier, _progress
from graphuq._progress import is_watched, progress_bar, restart, stages_told
from graphuq.estimator import beliefs
from graphuq.posterior import GaussianPosterior
from graphuq.tall import tall


def test_what_is_left_is_judged_by_what_is_alike():
    """A hundred seconds of warm-up say nothing of the steps: at five a second the last 900 take three minutes."""
    now = 0.0
    with progress_bar(1000, shown=True, unit="step", desc="warm-up") as bar:
        bar._time = lambda: now
        bar.start_t = bar.last_print_t = now
        now = 100.0
        restart(bar, 50, 1000)
        assert bar.format_dict["rate"] is None
        now = 110.0
        bar.update(50)
        told = bar.format_dict
        assert (told["n"], told["elapsed"]) == (100, 10.0)
        assert told["rate"] == pytest.approx(5.0)
        assert "<03:00" in str(bar)


def test_what_comes_all_at_once_promises_no_time(capsys):
    """Modes converge late and together: the first of 300 would promise minutes where seconds are left."""
    with progress_bar(300, shown=True, unit="mode", steady=False) as bar:
        bar.update(1)
        assert "<" not in str(bar)
        assert "1/300 modes, 00:00" in str(bar)


def test_a_bar_that_nobody_sees_counts(capsys):
    with progress_bar(10, shown=False, unit="step") as bar:
        bar.update(3)
        assert bar.n == 3
    assert capsys.readouterr().err == ""


@pytest.fixture
def onlooker(monkeypatch):
    """Someone looks on, and a fifth of a second is long."""
    monkeypatch.setattr(_progress, "is_watched", lambda: True)
    monkeypatch.setattr(_progress, "LONG", 0.2)


@pytest.mark.parametrize("seconds", [0.0, 0.3])
def test_a_person_sees_what_takes_long_until_it_is_done(onlooker, capsys, seconds):
    with progress_bar(2, shown=None, unit="step", desc="warm-up") as bar:
        restart(bar, 1, 2)
        bar.set_description("sampling")
        time.sleep(seconds)
        bar.set_postfix({"R-hat": "1.002"})
        told = capsys.readouterr().err
    assert ("sampling:  50%" in told and "R-hat=1.002" in told) if seconds else told == ""
    assert capsys.readouterr().err.strip() == ""


def test_a_bar_is_seen_before_its_first_step_and_gone_after_its_last(onlooker, capsys):
    """Compiling may take ten seconds, and a bar restarted after it was once left on the line."""
    with progress_bar(2, shown=None, unit="step", desc="compiling") as bar:
        time.sleep(0.5)
        assert "compiling:   0%" in capsys.readouterr().err
        restart(bar, 1, 4)
        bar.set_postfix({"R-hat": "1.002"})
        told = capsys.readouterr().err
        assert "1/4" in told
        restart(bar, 2, 9)
        told += capsys.readouterr().err
        assert "<-" not in told, "once the count began below the one it was restarted at"
    assert capsys.readouterr().err.endswith("\r")


@pytest.mark.parametrize(
    ("shown", "expected"), [(None, "b ...\nc ...\n"), (True, "a ...\nb ...\nc ...\n"), (False, "")]
)
def test_stages_are_told_at_once_or_once_it_takes_long(onlooker, capsys, shown, expected):
    with stages_told(shown) as tell:
        tell("a")
        tell("b")
        time.sleep(0.3)
        tell("c")
    assert capsys.readouterr().err == expected
    with stages_told(shown) as tell:
        tell("a")
    assert capsys.readouterr().err == ("a ...\n" if shown else "")


def test_a_late_first_stage_is_told(onlooker, capsys):
    """The timer ends with nothing to tell."""
    with stages_told(None) as tell:
        time.sleep(0.3)
        assert capsys.readouterr().err == ""
        tell("a")
    assert capsys.readouterr().err == "a ...\n"


def test_stages_within_stages_are_told_by_one(onlooker, capsys):
    """A second one would wait a second of its own, and the first tell meanwhile what is over."""
    with stages_told(None) as outer:
        outer("a")
        with stages_told(None) as inner:
            inner("b")
            time.sleep(0.3)
    assert capsys.readouterr().err == "b ...\n"
    with stages_told(None):
        pass
    with stages_told(False) as tell:  # and not that of before
        tell("c")
    assert capsys.readouterr().err == ""


@pytest.mark.filterwarnings("ignore")
def test_what_takes_long_after_a_fit_is_told_too(capsys, tmp_path, monkeypatch):
    X = np.abs(np.random.default_rng(0).standard_normal((60, 3))) + 0.1
    y = np.where(np.arange(60) < 8, np.arange(60) % 2, -1)
    classifier = GraphClassifier(graph="cosine", verbose=True).fit(X, y)
    monkeypatch.setattr(beliefs, "sample_enough", lambda prior, model, **run: GaussianPosterior.of(prior, model))
    for step, stage in (
        (classifier.relearn, "posterior, from 8 labels of 2 classes ...\n"),
        (lambda: classifier.predict_proba(tall(X[:7])), "answers of 7 rows ...\n"),
        (lambda: classifier.write_proba(tmp_path / "out"), "answers of 60 rows ...\n"),
        (classifier.draw, "draws of 8 chains, of hyper-parameters 1 of "),
        (
            lambda: classifier.set_params(prior="matern").fit(X, y),
            "posterior, from 8 labels of 2 classes ...\ndraws of 8 chains ...\n",
        ),
    ):
        capsys.readouterr()
        step()
        assert stage in capsys.readouterr().err
    classifier.set_params(verbose=False).draw()
    assert capsys.readouterr().err == ""


def test_answers_that_are_all_there_are_not_told(capsys, tmp_path):
    X = np.abs(np.random.default_rng(0).standard_normal((60, 3))) + 0.1
    classifier = GraphClassifier(graph="cosine", prior="matern", inference="ep", verbose=True)
    classifier.fit(X, np.where(np.arange(60) < 8, np.arange(60) % 2, -1))
    for told in ("answers of 60 rows ...\n", ""):
        capsys.readouterr()
        classifier.write_proba(tmp_path / "out")
        assert capsys.readouterr().err == told


def test_nobody_looks_on_at_a_pipe_or_a_thread(monkeypatch):
    assert not is_watched()
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert is_watched()
    found = []
    thread = threading.Thread(target=lambda: found.append(is_watched()))
    thread.start()
    thread.join()
    assert found == [False]
    monkeypatch.delattr(sys, "ps1")
    monkeypatch.setattr(sys, "stderr", None)
    assert not is_watched()
