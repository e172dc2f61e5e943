"""Then and now on the earlier page's rows: a small record, and its section of the page."""

import json
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from experiments import calibration_page, separable
from experiments.experiment import Record
from experiments.runner import plain

RECORDS = Path(__file__).parents[2] / "docs" / "reproduction"
SMALL = separable.Config(data=("cancer",), n_labels=(10,), flipped=(0.1,), n_draws=2)


def test_differences_are_taken_draw_by_draw_and_shown_beside_the_earlier_record(tmp_path):
    results = plain([separable.run(SMALL, trial) for trial in separable.trials(SMALL)])
    values = plain(separable.summarize(SMALL, results))
    (row,) = values["rows"]
    differences = [each["now"][0] - each["then"][0] for each in results]
    assert row["difference"][0][0] == pytest.approx(np.mean(differences), rel=1e-3)
    assert row["difference"][0][1] == pytest.approx(np.std(differences, ddof=1) / np.sqrt(2), rel=0.1)
    record = Record("separable", "quick", plain(asdict(SMALL)), values, 1.0, "0", "a machine")
    (tmp_path / "separable.json").write_text(json.dumps(asdict(record)))
    (tmp_path / "calibration.json").write_bytes((RECORDS / "calibration.json").read_bytes())
    text = calibration_page.earlier(tmp_path)
    assert "breast cancer, 10 labels, 10% wrong | 0.359\u00a0±\u00a00.057" in text
    assert f"{row['now'][0][0]:.3f}" in text
    total, *_ = (line.split(" | ")[1] for line in text.splitlines() if line.startswith("| all steps"))
    steps = [row[after][0][0] - row[before][0][0] for before, after in pairwise(separable.STEPS)]
    assert sum(steps) == pytest.approx(row["now"][0][0] - row["then"][0][0])
    assert total == (f"{sum(steps):+.3f}" if row["difference"][0][0] > row["difference"][0][1] else "–")
    assert all(f"{separable.STEPS[name]} | " in text for name in list(separable.STEPS)[1:])
    assert len(separable.claims(record)) == 1
    assert separable.draw(record).axes
