"""The path of an NPY file, a Zarr folder or Parquet files in; a matrix to be read in blocks, or an error, out.

Also the way back: a matrix in; a Zarr array on disk out.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from graphuq._expect import expect_path, why
from graphuq._needed import needed
from graphuq.archive import told_if_damaged
from graphuq.files import whole_folder
from graphuq.large.passes import each_block
from graphuq.memory import check_disk
from graphuq.tall import Array, Index, Tall, delayed, merged, numbered, tall

PARQUET = (".parquet", ".pq")


def open_store(path: Path) -> Tall:
    """Open the matrix stored at a path."""
    if not path.exists():
        raise FileNotFoundError(f"There is no file or folder {path}.")
    # number of files, their total size, and the time of the last change
    files = [file.stat() for file in ([path] if path.is_file() else path.rglob("*"))]
    latest = max((file.st_mtime_ns for file in files), default=0)
    stamp = f"{len(files)} {sum(file.st_size for file in files)} {latest}"
    return replace(_opened(path), stamp=stamp)


def _opened(path: Path) -> Tall:
    if path.suffix == ".npy":
        with told_if_damaged(path, f"{path} is not an NPY file of numbers, or ends before its last row"):
            array = np.load(path, mmap_mode="r")
        return tall(array, called=path.name)
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path] if path.suffix in PARQUET else []
    if files:
        return _of_parquet(files)
    if not path.is_dir():
        raise ValueError(
            f"{path} is none of these: an NPY file, a Zarr folder, a Parquet file or a folder of them."
        )
    return tall(_open_zarr(path))


def _open_zarr(path: Path) -> Any:
    zarr = needed("zarr", "Zarr folders need zarr")
    try:
        array: Any = zarr.open(path, mode="r")
    except Exception as error:  # Zarr's errors have no common base class
        raise ValueError(f"{path} holds neither Parquet files nor a Zarr array: {why(error)}.") from None
    if not hasattr(array, "dtype"):
        inner = ", ".join(sorted(name for name, _ in array.arrays())) or "none"
        raise ValueError(f"{path} is a Zarr group, not an array: give the path of one of its arrays ({inner}).")
    return array


def check_chunks(array: Any) -> None:
    """Refuse an incomplete Zarr array: missing chunks would be read as the fill value."""
    n_written, n_chunks = array.nchunks_initialized, array.nchunks
    if n_written < n_chunks:
        raise ValueError(
            f"The Zarr array {array.store_path} holds {n_written:,} of its {n_chunks:,} chunks, and the others would be read as "
            f"{array.fill_value}: it was not written to its end. If those numbers are meant, write it with "
            "write_empty_chunks."
        )


def create_zarr(path: Path, shape: tuple[int, int], chunk: int, dtype: DTypeLike = np.float64) -> Any:
    """Create a Zarr array of numbers with checksums, in chunks of `chunk` rows and all columns."""
    zarr = needed("zarr", "Zarr arrays need zarr")
    from zarr.codecs import ZstdCodec

    settings: Any = {"dtype": np.dtype(dtype).name, "fill_value": float("nan")}
    compressor = ZstdCodec(checksum=True)
    return zarr.create_array(path, shape=shape, chunks=(chunk, shape[1]), compressors=compressor, **settings)


def write_zarr(X: Any, path: str | os.PathLike[str], *, progress: bool | None = None) -> Tall:
    """Write a matrix to a new Zarr array, block by block; return it as read from there.

    Args:
        X: an array, or anything that `tall` opens; single precision stays single.
        path: name of the folder, which must not exist; it appears when the last block is written.
        progress: whether to show a progress bar; by default, if this takes long.
    """
    path = expect_path(path)
    if path.exists():
        raise ValueError(f"{path} exists already: choose another name, or remove it first.")
    dtype = np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64
    rows = tall(X).evenly()
    slices = rows.slices()
    check_disk(path, float(np.dtype(dtype).itemsize) * rows.shape[0] * rows.shape[1], "The Zarr array")
    with whole_folder(path) as part:
        array = create_zarr(part, rows.shape, slices[0].stop, dtype)
        for block, values in zip(slices, each_block(rows, _unchanged, shown=progress, desc="rows"), strict=True):
            array[block] = values
    return tall(path)


def _unchanged(rows: slice, X: Array) -> Array:
    return X


def _of_parquet(files: list[Path]) -> Tall:
    """Matrix of Parquet files with the same numeric columns, one file after another."""
    types = needed("pyarrow", "Parquet files need pyarrow", "parquet").types
    is_numeric = (types.is_integer, types.is_floating, types.is_boolean)
    groups, counts, names = [], [0], None
    for number, path in enumerate(files):
        file = _open_parquet(path)
        schema = file.schema_arrow
        for column in schema:
            if not any(check(column.type) for check in is_numeric):
                raise TypeError(
                    f"Column {column.name!r} of {path} holds {column.type}, and features are numbers: all columns of a store "
                    "are taken as features, so write it without those that are not."
                )
        if names is not None and names != schema.names:
            raise ValueError(f"{path} has other columns than {files[0]}: {', '.join(schema.names[:8])}.")
        names = schema.names
        groups += [(number, k) for k in range(file.num_row_groups)]
        counts += [file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)]
    if not names or not sum(counts):
        raise ValueError(f"{path} holds no rows of numbers.")
    shape, first = (sum(counts), len(names)), np.cumsum(counts)
    source = Grouped(tuple(files), tuple(groups), first, len(names))
    return Tall(source, shape, merged(first, *shape), names=tuple(names))


@dataclass(frozen=True, eq=False)
class Grouped:
    """The rows of Parquet files, one file after another, read by row groups."""

    files: tuple[Path, ...]
    groups: tuple[tuple[int, int], ...] = field(repr=False)  # of each row group: file, and index in it
    first: NDArray[np.int64] = field(repr=False)  # first row of each row group, and the end
    n_columns: int

    def rows(self, index: Index) -> Array:
        """Read the selected rows."""
        index = numbered(index, self.first[-1])
        groups = np.searchsorted(self.first, index, side="right") - 1
        selected = np.empty((len(index), self.n_columns))
        for group in np.unique(groups):
            inside = groups == group
            selected[inside] = self._group(int(group))[index[inside] - self.first[group]]
        return selected

    def lazy(self, rows: slice) -> Any:
        """The same, read by the worker that needs it."""
        return delayed(Grouped.rows)(self, rows)

    def _group(self, number: int) -> Array:
        """Read one row group."""
        file, k = self.groups[number]
        path = self.files[file]
        with told_if_damaged(path, f"Row group {k} of {path} cannot be read"):
            table = _open_parquet(path).read_row_group(k)
            if len(table) != self.first[number + 1] - self.first[number]:
                raise OSError("it has another number of rows than the file says")
        return np.column_stack([column.to_numpy().astype(np.float64) for column in table.columns])


def _open_parquet(path: Path) -> Any:
    parquet = needed("pyarrow.parquet", "Parquet files need pyarrow", "parquet")
    with told_if_damaged(path, f"{path} is not a Parquet file, or ends early"):
        return parquet.ParquetFile(path, page_checksum_verification=True)
