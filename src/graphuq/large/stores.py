"""The path of an NPY file, a Zarr folder or Parquet files in; a matrix to be read in blocks, or what is wrong, out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq._expect import why
from graphuq.archive import told_if_damaged
from graphuq.tall import Array, Index, Tall, delayed, merged, needed, numbered, tall

PARQUET = (".parquet", ".pq")


def open_store(path: Path) -> Tall:
    """The matrix that lies there."""
    if not path.exists():
        raise FileNotFoundError(f"There is no file or folder {path}.")
    # how many files there are, how large, and when the last was written to
    files = [each.stat() for each in ([path] if path.is_file() else path.rglob("*"))]
    latest = max((each.st_mtime_ns for each in files), default=0)
    stamp = f"{len(files)} {sum(each.st_size for each in files)} {latest}"
    return replace(_opened(path), stamp=stamp)


def _opened(path: Path) -> Tall:
    if path.suffix == ".npy":
        with told_if_damaged(path, f"{path} is no NPY file of numbers, or ends before its last row"):
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
        found: Any = zarr.open(path, mode="r")
    except Exception as error:  # of Zarr's many, none of them common to all
        raise ValueError(f"{path} holds neither Parquet files nor a Zarr array: {why(error)}.") from None
    if not hasattr(found, "dtype"):
        inner = ", ".join(sorted(name for name, _ in found.arrays())) or "none"
        raise ValueError(f"{path} is a Zarr group, not an array: give the path of one of its arrays ({inner}).")
    return found


def check_chunks(array: Any) -> None:
    """Refuse a Zarr array that ends early: chunks that are not there would be read as zeros."""
    there, every = array.nchunks_initialized, array.nchunks
    if there < every:
        raise ValueError(
            f"The Zarr array {array.store_path} holds {there:,} of its {every:,} chunks, and the others would be read as "
            f"{array.fill_value}: it was not written to its end. If those numbers are meant, write it with "
            "write_empty_chunks."
        )


def _of_parquet(files: list[Path]) -> Tall:
    """Files that have the same columns, all of numbers."""
    types = needed("pyarrow", "Parquet files need pyarrow").types
    numbers = (types.is_integer, types.is_floating, types.is_boolean)
    groups, counts, names = [], [0], None
    for number, path in enumerate(files):
        file = _open_parquet(path)
        schema = file.schema_arrow
        for column in schema:
            if not any(is_one(column.type) for is_one in numbers):
                raise TypeError(
                    f"Column {column.name!r} of {path} holds {column.type}, and features are numbers: all columns of a store "
                    "are taken for features, so write it without those that are none."
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
    """The rows of Parquet files, one after another, a row group at a time."""

    files: tuple[Path, ...]
    groups: tuple[tuple[int, int], ...] = field(repr=False)  # the file and the number in it of each row group
    first: NDArray[np.int64] = field(repr=False)  # row of each row group, and the end
    n_columns: int

    def rows(self, index: Index) -> Array:
        """Some of the rows."""
        index = numbered(index, self.first[-1])
        group = np.searchsorted(self.first, index, side="right") - 1
        found = np.empty((len(index), self.n_columns))
        for each in np.unique(group):
            mine = group == each
            found[mine] = self._group(int(each))[index[mine] - self.first[each]]
        return found

    def lazy(self, rows: slice) -> Any:
        """Read where it is needed."""
        return delayed(Grouped.rows)(self, rows)

    def _group(self, number: int) -> Array:
        file, k = self.groups[number]
        path = self.files[file]
        with told_if_damaged(path, f"Row group {k} of {path} cannot be read"):
            table = _open_parquet(path).read_row_group(k)
            if len(table) != self.first[number + 1] - self.first[number]:
                raise OSError("it has another number of rows than the file says")
        return np.column_stack([column.to_numpy().astype(np.float64) for column in table.columns])


def _open_parquet(path: Path) -> Any:
    parquet = needed("pyarrow.parquet", "Parquet files need pyarrow")
    with told_if_damaged(path, f"{path} is not a Parquet file, or ends early"):
        return parquet.ParquetFile(path, page_checksum_verification=True)
