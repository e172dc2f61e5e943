"""From features to weights: `X -> A`.

| constructor | weights | stored as |
|---|---|---|
| `self_tuning` | (5.1), every pair of nodes | dense `Graph` |
| `gaussian` | ``exp(-|x - x'|^2 / (2 tau^2))``, every pair | dense `Graph` |
| `knn` | either of the two, nearest neighbors only | sparse `Graph` |
| `cosine` | cosine of the angle, every pair | `LowRankGraph`, exact |
| `nystrom` | Gaussian, every pair | `LowRankGraph`, approximate |
| `precomputed` | yours | dense or sparse `Graph` |
"""

from graphuq.graph.dense import gaussian, self_tuning
from graphuq.graph.low_rank import FeatureMap, LowRankGraph, cosine, nystrom
from graphuq.graph.neighbors import knn
from graphuq.graph.weights import Graph, as_graph, precomputed

__all__ = [
    "FeatureMap",
    "Graph",
    "LowRankGraph",
    "as_graph",
    "cosine",
    "gaussian",
    "knn",
    "nystrom",
    "precomputed",
    "self_tuning",
]
