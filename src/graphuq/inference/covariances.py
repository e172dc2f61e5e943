"""Roots of the covariance of K fields and rows in; the K x K covariances of the fields at each row out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from graphuq import _accelerator
from graphuq.inference.largest import rows_at_once, worth_sending
from graphuq.inference.span import Matrix
from graphuq.inference.stars import Stack

# Rows are taken in blocks of about this many numbers, to fit the CPU cache: twice as fast.
CACHED, LEAST_ROWS = 2**17, 16
# The same on an accelerator.
MOST_ON_GPU = 2**25


def covariances_at(at: Matrix, alone: Stack, shared: Stack) -> Stack:
    """Covariances of the fields ``at z_k``, one matrix for each row of `at`, in its precision."""
    roots, n_classes = _side_by_side(at, shared, alone), len(shared)
    result = np.empty((len(at), n_classes, n_classes), at.dtype)
    size = max(LEAST_ROWS, CACHED // sum(root.shape[1] for root in roots))
    for rows in (slice(first, first + size) for first in range(0, len(at), size)):
        result[rows] = _products(np, at[rows], roots, n_classes)
    return result


def covariances_anywhere(at: Matrix, alone: Stack, shared: Stack) -> Any:
    """The same, for many rows on an accelerator if there is one: a zero-padded float32 block that stays on it."""
    n_classes = len(shared)
    if not worth_sending(len(at)) or len(at) > rows_at_once(n_classes):
        return covariances_at(at, alone, shared)
    # Products in double precision: whether single would do has not been measured.
    at = _accelerator.whole_block(_accelerator.widened(at.astype(float), 1), rows_at_once(n_classes))
    roots = _side_by_side(at, *(_accelerator.widened(stack, 1, 2) for stack in (shared, alone)))
    n_numbers = len(at) * sum(root.shape[1] for root in roots)
    n_parts = min(len(at), 2 ** math.ceil(math.log2(max(1, n_numbers / MOST_ON_GPU))))
    with _accelerator.precise():
        return _products_on_gpu(at, roots, n_classes, n_parts)


def _side_by_side(at: Matrix, *stacks: Stack) -> list[Matrix]:
    """Stacks of shape (n_classes, k, r) as matrices of shape (k, n_classes r), in the precision of `at`."""
    return [np.hstack([*stack]).astype(at.dtype, copy=False) for stack in stacks]


def _products(xp: Any, at: Any, roots: Sequence[Any], n_classes: int) -> Any:
    """``sum_r shared_k shared_l + delta_kl sum_r alone_k^2`` at each row; xp is NumPy or jax.numpy."""
    common, own = ((at @ root).reshape(len(at), n_classes, -1) for root in roots)
    own_variance = xp.einsum("nki,nki->nk", own, own)
    return common @ common.swapaxes(1, 2) + own_variance[:, :, None] * np.eye(n_classes, dtype=at.dtype)


@partial(_accelerator.compiled, static=(2, 3))
def _products_on_gpu(at: jax.Array, roots: Sequence[jax.Array], n_classes: int, n_parts: int) -> jax.Array:
    parts = at.reshape(n_parts, -1, at.shape[1])
    covariances = jax.lax.map(lambda part: _products(jnp, part, roots, n_classes), parts)
    return covariances.reshape(-1, n_classes, n_classes).astype(jnp.float32)
