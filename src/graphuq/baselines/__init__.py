"""Classical methods that answer with no uncertainty: `A, labels -> scores`.

| function | of | gives |
|---|---|---|
| `harmonic` | a graph and labels | Laplace learning: each score is the mean of its neighbors' |
| `poisson` | a graph and labels | Poisson learning: labels are sources, which helps where there are few |
| `mbo` | a graph and labels | threshold dynamics from the answer of `poisson`, with given class sizes if wanted |
| `fiedler` | a `Spectrum` | two clusters, with no labels |

The first three are called alike, ``method(A, nodes, y, *, n_classes, class_priors)``, and give one row of scores
a node and one column a class: the largest wins, ``scores.argmax(axis=1)``.
"""

from graphuq.baselines.fiedler_vector import fiedler
from graphuq.baselines.harmonic_functions import harmonic
from graphuq.baselines.poisson_learning import mbo, poisson

__all__ = ["fiedler", "harmonic", "mbo", "poisson"]
