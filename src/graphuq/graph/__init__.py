"""Features in; a weighted graph out: `X -> A`.

| constructor | weights | stored as |
|---|---|---|
| `self_tuning` | self-tuning Gaussian (5.1), every pair of nodes | dense `Graph` |
| `gaussian` | ``exp(-|x - x'|^2 / (2 tau^2))``, every pair | dense `Graph` |
| `knn` | either of the above, nearest neighbors only | sparse `Graph` |
| `cosine` | cosine similarity, every pair | `LowRankGraph`, exact |
| `nystrom` | Gaussian, every pair | `LowRankGraph`, approximate |
| `precomputed` | given by the user | dense or sparse `Graph` |
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
