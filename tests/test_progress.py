import sys
import threading
import time

import pytest

from graphuq import _progress
from graphuq._progress import looked_on, progress_bar, restart, stages_told


def test_what_is_left_is_judged_by_what_is_alike():
    """A hundred seconds of warm-up say nothing of the steps: at five a second the last 900 take three minutes."""
    now = 0.0
    with progress_bar(1000, shown=True, unit="step", desc="warm-up") as bar:
        bar._time = lambda: now
        bar.start_t = bar.last_print_t = now
        now = 100.0
        restart(bar, 50)
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
    monkeypatch.setattr(_progress, "looked_on", lambda: True)
    monkeypatch.setattr(_progress, "LONG", 0.2)


@pytest.mark.parametrize("seconds", [0.0, 0.3])
def test_a_person_sees_what_takes_long_until_it_is_done(onlooker, capsys, seconds):
    with progress_bar(2, shown=None, unit="step", desc="warm-up") as bar:
        restart(bar, 1)
        bar.set_description("sampling")
        time.sleep(seconds)
        bar.set_postfix({"R-hat": "1.002"})
        told = capsys.readouterr().err
    assert ("sampling:  50%" in told and "R-hat=1.002" in told) if seconds else told == ""
    assert capsys.readouterr().err.strip() == ""


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


def test_nobody_looks_on_at_a_pipe_or_a_thread(monkeypatch):
    assert not looked_on()
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert looked_on()
    found = []
    thread = threading.Thread(target=lambda: found.append(looked_on()))
    thread.start()
    thread.join()
    assert found == [False]
    monkeypatch.delattr(sys, "ps1")
    monkeypatch.setattr(sys, "stderr", None)
    assert not looked_on()
