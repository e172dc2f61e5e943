"""Whether JAX has a GPU, and products there that are as precise as here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


def is_there() -> bool:
    """Whether there is one."""
    import jax

    return jax.default_backend() == "gpu"


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
