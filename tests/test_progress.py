import pytest

from graphuq._progress import progress_bar, restart


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
