"""A graph and labels in; scores of classes out: classical methods without uncertainty.

| function | input | method |
|---|---|---|
| `harmonic` | a graph and labels | Laplace learning: each score is the mean over its neighbors |
| `poisson` | a graph and labels | Poisson learning: labels are sources, which helps if there are few |
| `mbo` | a graph and labels | threshold dynamics started from `poisson`, optionally with given class sizes |
| `fiedler` | a `Spectrum` | two clusters, without labels |

The first three share one signature, ``method(A, nodes, y, *, n_classes, class_shares)``, and return one row of
scores per node and one column per class. The predicted class has the largest score, ``scores.argmax(axis=1)``.
"""

from graphuq.baselines.fiedler_vector import fiedler
from graphuq.baselines.harmonic_functions import harmonic
from graphuq.baselines.poisson_learning import mbo, poisson

__all__ = ["fiedler", "harmonic", "mbo", "poisson"]
