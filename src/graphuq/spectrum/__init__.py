"""A Laplacian in; its eigenpairs out: `L -> Spectrum`.

| function | input | computes |
|---|---|---|
| `dense` | any small L | all modes, by LAPACK |
| `leading` | a sparse or dense L | the first modes, by a Chebyshev-filtered block iteration |
| `low_rank` | a `LowRankGraph`: cosine, Nystrom | all modes, from one small Gram matrix |
| `extend`, `extend_weights` | a `Spectrum` | its eigenvectors at new points |
| `believed_modes` | a `Spectrum` and its graph | which modes extend to new points with more signal than noise |
"""

from graphuq.spectrum.chebyshev import leading
from graphuq.spectrum.extension import believed_modes, extend, extend_weights
from graphuq.spectrum.factored import low_rank
from graphuq.spectrum.lapack import dense
from graphuq.spectrum.result import Spectrum

__all__ = ["Spectrum", "believed_modes", "dense", "extend", "extend_weights", "leading", "low_rank"]
