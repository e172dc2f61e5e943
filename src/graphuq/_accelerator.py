"""Functions and arrays in; the same compiled, padded to few shapes and run on a GPU in full precision, out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Matrices on the GPU are padded to multiples of these: each new shape is compiled anew, which takes seconds.
WIDTH, SWEEP_WIDTH = 64, 256
# Multiplications per sweep from which hundreds of sweeps repay that time: on the CPU a sweep takes 5 ms or more.
LEAST_SWEEP = 5e7


def has_gpu() -> bool:
    """Whether JAX has a GPU."""
    import jax

    return jax.default_backend() == "gpu"


def takes_sweeps(n_multiplications: float) -> bool:
    """Whether sweeps of expectation propagation of this size run on a GPU."""
    return n_multiplications >= LEAST_SWEEP and has_gpu()


@cache
def compiled(function: Callable[..., Any], *, static: tuple[int, ...] = ()) -> Callable[..., Any]:
    """Compile for the GPU, once per shape, without the seconds of XLA's autotuning of matrix products.

    Sweeps of many classes do not use this: hundreds share one shape, and with 800 labels autotuning saved a quarter.
    """
    import jax

    return jax.jit(function, static_argnums=static, compiler_options={"xla_gpu_autotune_level": 0})


def sent(function: Callable[..., Any], *data: Any) -> Callable[..., Any]:
    """Bind the first arguments of a function to data sent to the GPU once; computes in float64."""
    import jax

    with precise():
        on_device = jax.device_put(data)

    def call(*more: Any) -> Any:
        with precise():
            return function(*on_device, *more)

    return call


@contextmanager
def precise() -> Iterator[None]:
    """Context with float64 enabled, and matrix products in full precision instead of TF32."""
    import jax

    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        yield


def processor() -> Any:
    """JAX's CPU device, for work too small for the GPU; None where JAX is configured without it."""
    import jax

    try:
        return jax.devices("cpu")[0]
    except RuntimeError:
        return None


def widened(x: NDArray[Any], *axes: int, width: int = WIDTH) -> NDArray[Any]:
    """Pad x with zeros to multiples of the width along the given axes."""
    return np.pad(x, [(0, -size % width if axis in axes else 0) for axis, size in enumerate(x.shape)])


def whole_block(x: Any, n_rows: int) -> Any:
    """Pad x with rows of zeros to `n_rows`."""
    return x if len(x) == n_rows else np.pad(x, ((0, n_rows - len(x)), *[(0, 0)] * (x.ndim - 1)))


def inverse_root(matrix: Any) -> Any:
    """JAX counterpart of `sweeps.inverse_root`."""
    import jax.numpy as jnp
    from jax.scipy.linalg import solve_triangular

    identity = jnp.eye(len(matrix), dtype=matrix.dtype)
    return solve_triangular(jnp.linalg.cholesky(identity + matrix), identity, lower=True).T
