"""A matrix with very many rows, in memory or in a store, in; selected rows, row blocks and its Gram matrix out.

| source | where the rows come from |
|---|---|
| `Stored` | an array, a memory-mapped file, a Zarr array |
| `Chunked` | the chunks of a Dask array |
| `Mapped` | computed on request from the rows of another matrix |
| `Beside` | several matrices, side by side |
| `Some` | selected rows kept in memory; optionally all rows from another source |
| `stores.Grouped` | the row groups of Parquet files |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from mmap import ALLOCATIONGRANULARITY
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from graphuq._expect import RowError, expect_numbers, refuse_masked
from graphuq._needed import needed
from graphuq.memory import check_room

Array = NDArray[np.float64]
Index = slice | NDArray[np.int64]

_BLOCK_BYTES = 2**25  # size of a block that is read
_MADE_BYTES = 2**27  # size of a block that is computed
# Rows of a block that are processed at a time.
PART_ROWS = 2048
# Approximate number of evenly spaced rows from which quantiles and means over all rows are estimated.
SPREAD_ROWS = 5000


def row_blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Slices of rows such that a float64 array of each slice, with `n_columns` columns, fits in one block."""
    step = max(1, _BLOCK_BYTES // (8 * n_columns))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def spread(n_rows: int) -> slice:
    """Slice of evenly spaced rows that represent all `n_rows`."""
    return slice(None, None, max(1, n_rows // SPREAD_ROWS))


def numbered(index: slice | ArrayLike, n_rows: int) -> NDArray[np.int64]:
    """Numbers from 0 to n_rows - 1 of the rows that a slice, row numbers or a mask select, as in NumPy."""
    if isinstance(index, slice):
        return np.arange(*index.indices(n_rows))
    chosen = np.asarray(index)
    if chosen.dtype.kind == "b":
        if chosen.shape != (n_rows,):
            raise IndexError(f"A mask needs one entry for each of {n_rows:,} rows, got the shape {chosen.shape}.")
        return np.flatnonzero(chosen)
    if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
        raise IndexError(
            "Rows are selected by a slice, a list of row numbers or a mask; "
            f"got {chosen.dtype} of the shape {chosen.shape}."
        )
    outside = chosen[(chosen < -n_rows) | (chosen >= n_rows)]
    if outside.size:
        raise IndexError(f"There is no row {outside[0]:,} among {n_rows:,} rows.")
    chosen = chosen.astype(np.int64)
    return np.where(chosen < 0, chosen + n_rows, chosen)


class Rows(Protocol):
    """Source of the rows of a matrix; pickled for other processes without the rows themselves."""

    def rows(self, index: Index) -> Array:
        """Read the selected rows, as float64; the index is a slice of step 1, or numbers from 0 to n_rows - 1."""
        ...

    def lazy(self, rows: slice) -> Any:
        """The same as a Dask object, computed on any worker."""
        ...


@dataclass(frozen=True, eq=False)
class Tall:
    """A matrix that is read or computed by blocks of rows; indexed like an array, it can stand in for one.

    Attributes:
        source: where the rows come from.
        shape: (n_rows, n_columns).
        bounds: first row of each block, and the end; blocks consist of whole chunks of the store.
        in_memory: whether part of it is in the memory of this process, so that work on it is done here.
        names: the column names, if any.
        stamp: changes when the underlying files are written to; for stores opened by their path.
    """

    source: Rows
    shape: tuple[int, int]
    bounds: NDArray[np.int64]
    in_memory: bool = False
    names: tuple[str, ...] = ()
    stamp: str = ""

    def rows(self, index: slice | ArrayLike) -> Array:
        """Read the rows that a slice, row numbers or a mask select, shape (n, n_columns)."""
        if not isinstance(index, slice) or index.step not in (None, 1):
            index = numbered(index, len(self))
        return self.source.rows(index)

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Iterate over all blocks, as the slice of rows and their values."""
        for rows in self.slices():
            yield rows, self.rows(rows)

    def slices(self) -> list[slice]:
        """The slice of rows of each block."""
        return [slice(int(a), int(b)) for a, b in pairwise(self.bounds)]

    def evenly(self) -> Tall:
        """The same matrix in blocks of equal length, that of the longest; the last may be shorter."""
        return replace(self, bounds=_evenly(len(self), int(np.diff(self.bounds).max())))

    def gram(self) -> Array:
        """Gram matrix ``X^T X``, in one pass over the blocks."""
        return sum((X.T @ X for _, X in self.blocks()), np.zeros((self.shape[1],) * 2))

    def mapped(self, function: Callable[[Array], Array], n_columns: int) -> Tall:
        """The matrix whose rows a function computes from these, on request; in shorter blocks if it is wide."""
        made, bounds = Mapped(self, function, n_columns), self.bounds_of(n_columns)
        return replace(self, source=made, shape=(len(self), n_columns), bounds=bounds, names=())

    def bounds_of(self, n_columns: int) -> NDArray[np.int64]:
        """Bounds of the blocks of a matrix made from this one: shorter, unless every block would read a huge chunk."""
        if 8 * self.shape[1] * np.diff(self.bounds).max() > 2 * _BLOCK_BYTES:
            return self.bounds
        step = max(_MADE_BYTES // (8 * n_columns), PART_ROWS)
        return np.concatenate([*(np.arange(a, b, step) for a, b in pairwise(self.bounds)), self.bounds[-1:]])

    def remembering(self, nodes: NDArray[np.int64]) -> Tall:
        """The same matrix with these rows read now and cached, since reading each later may cost a whole chunk."""
        nodes = np.unique(numbered(nodes, len(self)))
        return replace(self, source=Some(self.rows(nodes), nodes, len(self), self.source))

    def with_columns(self, n_columns: int, names: Sequence[str], called: str = "X") -> Tall:
        """The same matrix with the columns in the order of the fit, if both have names; refuse other columns."""
        if self.shape[1] != n_columns:
            raise ValueError(
                f"{called} has {self.shape[1]} columns, and the fit has {n_columns}: give the same features."
            )
        if not self.names or not len(names) or list(self.names) == list(names):
            return self
        if missing := [name for name in names if name not in self.names]:
            raise ValueError(
                f"{called} lacks the column {missing[0]!r}, which the fit has: give the same columns."
            )
        order = [self.names.index(name) for name in names]
        return self.mapped(partial(np.take, indices=order, axis=1), n_columns)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        index, columns = key if isinstance(key, tuple) else (key, slice(None))
        if isinstance(index, slice) and index == slice(None) and isinstance(columns, slice):
            n_columns = len(range(self.shape[1])[columns])
            if isinstance(self.source, Mapped) and hasattr(self.source.function, "cut"):
                # compute only the selected columns
                return self.source.given.mapped(self.source.function.cut(columns), n_columns)
            return self.mapped(itemgetter((slice(None), columns)), n_columns)
        if isinstance(index, int | np.integer) and not isinstance(index, bool):
            return self.rows(np.array([index]))[0, columns]
        rows = self.rows(index)
        outer = isinstance(index, slice) or isinstance(columns, slice)  # two lists name pairs, as in NumPy
        return rows[slice(None) if outer else np.arange(len(rows)), columns]

    def __matmul__(self, W: Array) -> Array:
        return self.made(lambda X: X @ W)

    def made(self, function: Callable[[Array], Array]) -> Array:
        """Apply a function to all rows, block by block; returns one array."""
        return np.concatenate([function(X) for _, X in self.blocks()])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        check_room(8.0 * self.shape[0] * self.shape[1], f"A matrix of {len(self):,} rows", "Take its blocks.")
        return np.asarray(self.rows(slice(0, len(self))), dtype)


@dataclass(frozen=True, eq=False)
class Stored:
    """The rows of an array, a memory-mapped file, or a Zarr array."""

    array: Any

    def rows(self, index: Index) -> Array:
        """Read the selected rows."""
        if not hasattr(self.array, "oindex"):
            return np.asarray(self.array[index], dtype=np.float64)
        try:
            selected = self.array[index] if isinstance(index, slice) else self.array.oindex[index]
        except Exception as error:  # each codec of Zarr raises its own type
            raise ValueError(
                f"Rows of {self.array.store_path} cannot be read, a chunk is damaged: {error}."
            ) from error
        return np.asarray(selected, dtype=np.float64)

    def lazy(self, rows: slice) -> Any:
        """The same, read by the worker that needs it."""
        return delayed(Stored.rows)(self, rows)

    def __reduce__(self) -> Any:
        if isinstance(self.array, np.memmap):  # would be pickled with all its data
            return _mapped_file, _place_of(self.array)
        return Stored, (self.array,)


@dataclass(frozen=True, eq=False)
class Chunked:
    """The rows of a Dask array whose chunks span all columns."""

    array: Any

    def rows(self, index: Index) -> Array:
        """Compute the selected rows."""
        from graphuq.large.passes import told_if_lost

        with told_if_lost():
            return np.asarray(self.array[index].compute(), dtype=np.float64)

    def lazy(self, rows: slice) -> Any:
        """The same, left where Dask holds the chunks."""
        return self.array[rows].astype(np.float64)


@dataclass(frozen=True, eq=False)
class Mapped:
    """Rows that a function computes from the rows of another matrix."""

    given: Tall
    function: Callable[[Array], Array]
    n_columns: int

    def rows(self, index: Index) -> Array:
        """Compute the selected rows."""
        return in_parts(self.function, self.given.rows(index), self.n_columns)

    def lazy(self, rows: slice) -> Any:
        """The same, computed where the rows of the other matrix are."""
        return delayed(in_parts)(self.function, self.given.source.lazy(rows), self.n_columns)


@dataclass(frozen=True, eq=False)
class Beside:
    """Rows of several matrices, side by side."""

    parts: tuple[Rows, ...]

    def rows(self, index: Index) -> Array:
        """Read the selected rows."""
        return np.hstack([part.rows(index) for part in self.parts])

    def lazy(self, rows: slice) -> Any:
        """The same as a Dask object."""
        return delayed(np.hstack)([part.lazy(rows) for part in self.parts])


@dataclass(frozen=True, eq=False)
class Some:
    """Cache of selected rows of a matrix that are needed repeatedly, and a source of all rows, if available."""

    array: Array
    nodes: NDArray[np.int64]  # numbers of the cached rows, ascending
    n_rows: int
    every: Rows | None = None

    def rows(self, index: Index) -> Array:
        """Read the selected rows from the cache or, where some are not in it, from the source of all rows."""
        if self.every is not None and isinstance(index, slice):
            return self.every.rows(index)
        wanted = numbered(index, self.n_rows)
        place = np.minimum(np.searchsorted(self.nodes, wanted), len(self.nodes) - 1)
        if (missing := wanted[self.nodes[place] != wanted]).size:
            if self.every is not None:
                return self.every.rows(wanted)
            raise ValueError(
                f"Row {missing[0]:,} is not here: of {self.n_rows:,} rows {len(self.nodes):,} are kept, those with a label and "
                "some that stand for all. New rows can be answered; for those of the fit read its answers, or fit again."
            )
        return self.array[place]

    def lazy(self, rows: slice) -> Any:
        """The same as a Dask object."""
        return delayed(Some.rows)(self, rows) if self.every is None else self.every.lazy(rows)


def some_rows(
    array: Array, nodes: NDArray[np.int64], n_rows: int, names: Sequence[str] = (), stamp: str = ""
) -> Tall:
    """A matrix with `n_rows` rows, of which only those numbered `nodes` (possibly all) are kept, in memory."""
    shape, order = (n_rows, array.shape[1]), np.argsort(nodes)
    source: Rows = Stored(array) if len(nodes) == n_rows else Some(array[order], nodes[order], n_rows)
    return Tall(source, shape, merged(None, *shape), True, tuple(names), stamp)


def in_parts(function: Callable[[Array], Array], X: Array, n_columns: int) -> Array:
    """Apply a function to `PART_ROWS` rows at a time, so that intermediate results stay in the CPU cache."""
    result = np.empty((len(X), n_columns))
    for first in range(0, len(X), PART_ROWS):
        try:
            result[first : first + PART_ROWS] = function(X[first : first + PART_ROWS])
        except RowError as error:  # its row number is relative to this part
            raise error.after(first) from None
    return result


def is_store(X: Any) -> bool:
    """Whether X should not be read into memory whole: a `Tall`, a Zarr or a Dask array."""
    return isinstance(X, Tall) or type(X).__module__.split(".")[0] in ("zarr", "dask")


def tall(X: Any, *, called: str = "X") -> Tall:
    """Open a numeric table for reading in blocks.

    Args:
        X: an array in memory, a memory-mapped file, a Zarr array or a Dask array; or the path of an NPY file, a
            Zarr folder, a Parquet file or a folder of Parquet files.
        called: its name in error messages.
    """
    if isinstance(X, Tall):
        return X
    if isinstance(X, str | Path):
        from graphuq.large.stores import open_store

        return open_store(Path(X))
    kind = type(X).__module__.split(".")[0]
    name = f"The {kind.capitalize()} array" if kind in ("zarr", "dask") else called
    if kind == "dask" and not hasattr(X, "dtype"):
        raise TypeError("X is a table of Dask: give its numbers, as to_dask_array(lengths=True) does.")
    if issparse(X):
        raise TypeError(
            "X is sparse, and blocks of rows are dense: pass some rows at a time, as X[:1000].toarray()."
        )
    refuse_masked(X, name)
    X = X if hasattr(X, "dtype") and hasattr(X, "shape") else expect_numbers(X, name)
    if X.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold real numbers, got {X.dtype}.")
    if len(X.shape) != 2 or X.shape[1] < 1:
        raise ValueError(f"{name} must be a table of features, one row a node, got the shape {X.shape}.")
    if X.shape[0] == 0:
        raise ValueError(f"{name} has no rows.")
    if kind == "dask":
        if np.isnan(X.shape[0]):
            raise ValueError(
                "The Dask array does not know its number of rows: call its compute_chunk_sizes() first."
            )
        X = X if X.numblocks[1] == 1 else X.rechunk({1: -1})
        return Tall(Chunked(X), X.shape, merged(np.cumsum([0, *X.chunks[0]]), *X.shape))
    if kind == "zarr":
        from graphuq.large.stores import check_chunks

        check_chunks(X)
        chunk = (getattr(X, "shards", None) or X.chunks)[0]  # the unit that is read as a whole
        return Tall(Stored(X), X.shape, merged(_evenly(X.shape[0], chunk), *X.shape))
    return Tall(Stored(X), X.shape, merged(None, *X.shape), type(X) is np.ndarray)


def delayed(value: Any) -> Any:
    """``dask.delayed``, imported only where it is used."""
    return needed("dask", "Clusters need Dask").delayed(value, pure=False)


def _evenly(n_rows: int, step: int) -> NDArray[np.int64]:
    return np.append(np.arange(0, n_rows, step), n_rows)


def merged(bounds: NDArray[np.int64] | None, n_rows: int, n_columns: int) -> NDArray[np.int64]:
    """Bounds of blocks of a convenient size, merged from whole chunks with the given bounds, if any."""
    ends = np.array([block.stop for block in row_blocks(n_rows, n_columns)])
    if bounds is not None:
        ends = bounds[np.minimum(np.searchsorted(bounds, ends), len(bounds) - 1)]
        ends = np.union1d(ends, bounds[1:][np.diff(bounds) >= ends[0]])
    return np.union1d([0], ends)


def _place_of(array: np.memmap[Any, Any]) -> tuple[Any, ...]:
    """File, dtype, offset, shape and strides of a memory-mapped array, which may be a view of a larger one."""
    start = np.frombuffer(array._mmap, np.uint8).ctypes.data  # type: ignore[attr-defined]
    offset = array.offset - array.offset % ALLOCATIONGRANULARITY + array.ctypes.data - start
    return array.filename, array.dtype, offset, array.shape, array.strides


def _mapped_file(path: Any, dtype: Any, offset: int, shape: tuple[int, int], strides: tuple[int, int]) -> Stored:
    """Inverse of `_place_of`."""
    whole = np.memmap(path, np.uint8, "r")[offset:]
    numbers = whole[: len(whole) // dtype.itemsize * dtype.itemsize].view(dtype)
    return Stored(np.lib.stride_tricks.as_strided(numbers, shape, strides, subok=True, writeable=False))
