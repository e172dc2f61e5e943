"""What sweeps of expectation propagation, and answers from it, do on an accelerator: one function for all shapes of a size."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from numpy.typing import NDArray

from graphuq import _accelerator

# Matrices there have sizes that are multiples of such a number: every other shape would be compiled anew, for seconds.
WIDTH, SWEEP_WIDTH = 64, 256
# Multiplications of a sweep from which on hundreds of sweeps are worth those seconds: here it would take 5 ms and more.
LEAST_SWEEP = 5e7


def is_worth_it(n_multiplications: float) -> bool:
    """Whether sweeps of this size go there, if there is one."""
    return n_multiplications >= LEAST_SWEEP and _accelerator.is_there()


def widened(x: NDArray[Any], *axes: int, width: int = WIDTH) -> NDArray[Any]:
    """With zeros up to multiples of the width along some axes."""
    return np.pad(x, [(0, -size % width if axis in axes else 0) for axis, size in enumerate(x.shape)])


def inverse_root(matrix: Any) -> Any:
    """The same as `sweeps.inverse_root`."""
    one = jnp.eye(len(matrix), dtype=matrix.dtype)
    return solve_triangular(jnp.linalg.cholesky(one + matrix), one, lower=True).T
