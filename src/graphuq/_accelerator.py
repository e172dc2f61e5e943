"""Whether JAX has a GPU and what is worth sending there, in shapes that it knows; products as precise as here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Matrices there have sizes that are multiples of such a number: every other shape would be compiled anew, for seconds.
WIDTH, SWEEP_WIDTH = 64, 256
# Multiplications of a sweep from which on hundreds of sweeps are worth those seconds: here it would take 5 ms and more.
LEAST_SWEEP = 5e7


def is_there() -> bool:
    """Whether there is one."""
    import jax

    return jax.default_backend() == "gpu"


def takes_sweeps(n_multiplications: float) -> bool:
    """Whether sweeps of expectation propagation of this size go there, if there is one."""
    return n_multiplications >= LEAST_SWEEP and is_there()


@cache
def compiled(function: Callable[..., Any], *, static: tuple[int, ...] = ()) -> Callable[..., Any]:
    """For there, once for every shape, without the seconds in which XLA tries all products there are for the quickest.

    Sweeps of many classes do without this, hundreds of one shape: of 800 labels they took a quarter less with the quickest.
    """
    import jax

    return jax.jit(function, static_argnums=static, compiler_options={"xla_gpu_autotune_level": 0})


def sent(function: Callable[..., Any], *data: Any) -> Callable[..., Any]:
    """A function of data that go there once, and of what it is handed later; in doubles."""
    import jax

    with precise():
        there = jax.device_put(data)

    def call(*more: Any) -> Any:
        with precise():
            return function(*there, *more)

    return call


@contextmanager
def precise(dtype: Any = np.float64) -> Iterator[None]:
    """Doubles where they are asked for, and no products with numbers cut to ten bits."""
    import jax

    with jax.enable_x64(dtype == np.float64), jax.default_matmul_precision("highest"):
        yield


def processor() -> Any:
    """JAX's CPU, for what is too small to be sent away; None where JAX was told to do without it."""
    import jax

    try:
        return jax.devices("cpu")[0]
    except RuntimeError:
        return None


def widened(x: NDArray[Any], *axes: int, width: int = WIDTH) -> NDArray[Any]:
    """With zeros up to multiples of the width along some axes."""
    return np.pad(x, [(0, -size % width if axis in axes else 0) for axis, size in enumerate(x.shape)])


def whole_block(x: Any, n_rows: int) -> Any:
    """With rows of zeros, if it has fewer."""
    return x if len(x) == n_rows else np.pad(x, ((0, n_rows - len(x)), *[(0, 0)] * (x.ndim - 1)))


def inverse_root(matrix: Any) -> Any:
    """The same as `sweeps.inverse_root`."""
    import jax.numpy as jnp
    from jax.scipy.linalg import solve_triangular

    one = jnp.eye(len(matrix), dtype=matrix.dtype)
    return solve_triangular(jnp.linalg.cholesky(one + matrix), one, lower=True).T
