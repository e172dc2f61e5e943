"""The size of a product in; how many threads of the linear algebra library may share it, out."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

# From here on threads share the work of a product: on two cores they gain nothing before.
MANY_MULTIPLICATIONS = 1e9


@cache
def _blas() -> Any:
    return ThreadpoolController().select(user_api="blas")


def blas_threads(n_multiplications: float) -> AbstractContextManager[Any]:
    """One thread for small matrices: there, threads that wait for each other cost more than they bring,
    most of all on a busy machine.
    """
    return nullcontext() if n_multiplications > MANY_MULTIPLICATIONS else _blas().limit(limits=1)
