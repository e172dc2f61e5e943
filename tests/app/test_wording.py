"""What is noted and advised at a shell: rows by their names, options instead of arguments."""

import json
import pickle
import re
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from graphuq import GraphClassifier
from graphuq._expect import RowError, RowWarning, SettingError
from graphuq.app.wording import OPTIONS, as_the_shell_says, percent, verdict, words_of_the_shell
from graphuq.inference.diagnostics import Diagnostics
from graphuq.posterior.gaussian import EPDiagnosis
from graphuq.posterior.mixture import MixtureDiagnosis
from tests.app.test_cli import KNOWN, PLAIN, fit_votes, refused, run, write_votes


def test_settings_become_options():
    assert as_the_shell_says(SettingError("n_steps", "must be 1, got 0."), []) == "--draws must be 1, got 0."
    assert as_the_shell_says(SettingError("thin", "must be 1."), []) == "thin must be 1."
    assert as_the_shell_says(ValueError("n_steps {}"), []) == "n_steps {}"
    assert as_the_shell_says('Use scale="none" or x="y".', []) == 'Use --scale none or x="y".'
    assert as_the_shell_says(SettingError("tau", 'is for prior="matern".'), []) == "--tau is for --prior matern."
    assert OPTIONS.keys() <= GraphClassifier().get_params().keys()
    options = run("fit", "--help").stdout
    assert all(option in options for option in OPTIONS.values())


def test_rows_get_their_names():
    names = ["a", "b{}", "\x1b[2J"]
    told = RowWarning("Rows {} and {} differ.", 0, 1)
    assert (str(told), as_the_shell_says(told, names)) == ("Rows 0 and 1 differ.", "Rows a and b{} differ.")
    assert as_the_shell_says(RowError("Row {} is strange.", 2), names) == "Row ?[2J is strange."
    for each in (told, SettingError("n_steps", "must be 1.")):
        assert str(pickle.loads(pickle.dumps(each))) == str(each)  # noqa: S301


def test_warnings_are_noted_and_errors_reworded():
    with words_of_the_shell(["first", "second"]) as notes:
        warnings.warn(RowWarning("Row {} is strange.", 1), stacklevel=1)
        warnings.warn(RowWarning("Row {} is strange.", 1), stacklevel=1)  # said once
        warnings.warn("Raise n_steps.", ConvergenceWarning, stacklevel=1)  # the verdict says so
        warnings.warn("A library's own affair.", DeprecationWarning, stacklevel=1)
        warnings.warn("overflow", RuntimeWarning, stacklevel=1)
    assert notes == ["Row second is strange."]
    for kind in (MemoryError, TypeError):
        with pytest.raises(ValueError, match=r"^it is too much$"), words_of_the_shell():
            raise kind("it is too much")
    with pytest.raises(ValueError, match=r"^--modes is 1$"), words_of_the_shell():
        raise SettingError("n_modes", "is 1")


@pytest.mark.parametrize(
    ("r_hat", "draws", "message"),
    [
        (1.001, 1000, r"^Converged: .* at least 1000\.$"),
        (1.03, 1000, "^Converged: .*More --draws"),
        (1.5, 1000, "^Not converged .R-hat up to 1.500.*more --draws or a larger --time-limit; a larger --gamma"),
        (1.001, 20, "^Not converged .*effective draws from 20"),
        (np.nan, 0, "at least 8 --draws"),
    ],
)
def test_verdict(r_hat, draws, message):
    found = of_draws(r_hat, draws)
    assert re.search(message, verdict(found))
    assert "Tempered" not in verdict(found)
    worst = verdict(MixtureDiagnosis((of_draws(1.0, 5000), found, of_draws(1.0, 5000))))
    assert worst.startswith("An average over 3 choices of hyper-parameters. ")
    assert worst.endswith(verdict(found if not found.converged else of_draws(1.0, 5000)))


def of_draws(r_hat, draws):
    one = np.ones(1)
    return Diagnostics(r_hat * one, draws * one, draws * one, ["u at 0"], np.zeros(1, dtype=np.int64))


def test_verdict_without_draws():
    assert verdict(EPDiagnosis(True, 7)).startswith("Expectation propagation converged after 7 sweeps")
    failed = verdict(MixtureDiagnosis((EPDiagnosis(True, 7), EPDiagnosis(False, 200))))
    assert failed.startswith(
        "An average over 2 choices of hyper-parameters. Expectation propagation did not converge"
    )
    assert failed.endswith("Sample the posterior instead, or look at the suspicious labels.")


def test_percent():
    assert [percent(p) for p in (0, 0.0004, 0.123, 0.9994, 0.9995)] == [
        "< 0.1%",
        "< 0.1%",
        "12.3%",
        "99.9%",
        "> 99.9%",
    ]


def test_a_class_called_none_is_noted(tmp_path):
    def party(row, truth):
        return truth if row in KNOWN else "none" if row < 12 else "NA" if row == 12 else ""

    table = write_votes(tmp_path / "votes.csv", rows=120, party=party)
    done = fit_votes(table, tmp_path / "out")
    assert done.exit_code == 0, done.output
    notes = [line for line in done.stderr.splitlines() if line.startswith("Note:")]
    assert notes[0].startswith(
        "Note: Column 'party' holds 'none' in 8 rows, which count as unlabeled: if it names"
    )
    assert notes[1].startswith("Note: Column 'party' holds 'NA' in 1 row, which counts as unlabeled")
    run_json = json.loads((tmp_path / "out" / "run.json").read_text())
    assert "holds 'none' in 8 rows" in run_json["diagnostics"]["warnings"][0]
    truth = fit_votes(table, tmp_path / "other", "--unlabeled", "none")  # this says what is meant
    assert "'none'" not in truth.stderr


def test_one_class_because_the_other_is_called_none(tmp_path):
    table = write_votes(
        tmp_path / "votes.csv", rows=40, party=lambda row, truth: ["some", "none", ""][min(row, 2)]
    )
    done = fit_votes(table, tmp_path / "out")
    refused(done, "Only one class, some", tmp_path, ["votes.csv"])
    assert "holds 'none' in 1 row" in done.stderr


def test_notes_name_rows_as_the_table_does(tmp_path):
    table = write_votes(tmp_path / "votes.csv", rows=120)
    lines = table.read_text().splitlines()
    lines[8] = "m7,Democrat,," + lines[1].split(",", 3)[3]  # votes as m0, a Republican, did
    table.write_text("\n".join(lines))
    done = fit_votes(table, tmp_path / "out")
    assert "Rows m0 and m7 are the same in every feature" in done.stderr
    done = run(
        "fit", table, "--label", "party", "--drop", "truth", "--drop", "member", "--out", tmp_path / "o", *PLAIN
    )
    assert "Rows 1 and 8 are the same in every feature" in done.stderr


def test_advice_can_be_followed_at_a_shell(tmp_path):
    table = write_votes(tmp_path / "votes.csv", rows=120)
    # of 8 chains of 9 draws, whose R-hat is hardly ever below 1.05
    asked = ["--label", "party", "--drop", "truth", "--drop", "member", "--prior", "matern", "--draws", "9"]
    asked += ["--seed", "2"]
    done = run("fit", table, "--out", tmp_path / "out", *asked, "--gamma", "0.5", "--inference", "sample")
    assert done.exit_code == 0, done.output
    assert "Not converged" in done.stdout
    assert "more --draws or a larger --time-limit" in done.stdout
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "more --draws" in page
    for word in ("Tempered", "n_steps", "time_limit", "ConvergenceWarning"):
        assert word not in done.output
