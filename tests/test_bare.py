"""Where only NumPy, SciPy, scikit-learn and JAX are installed, a classifier fits and predicts."""

import subprocess
import sys

SCRIPT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"arviz", "arviz_stats", "blackjax", "dask", "matplotlib", "typer", "tqdm", "pandas"}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
import numpy as np
from graphuq import GraphClassifier

X = np.random.default_rng(0).standard_normal((300, 3))
truth = (X[:, 0] > 0).astype(int)
fitted = GraphClassifier().fit(X, np.where(np.arange(300) < 40, truth, -1))
assert fitted.score(X + 0.01, truth) > 0.8
assert set(fitted.stages_) == {"graph", "rows", "spectrum", "features", "learning", "answers"}
assert 0 < sum(fitted.stages_.values()) <= fitted.seconds_
assert fitted.peak_gigabytes_ > 0.01
"""


def test_fit_and_predict_without_what_draws_and_shows():
    found = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
