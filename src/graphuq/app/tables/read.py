"""A CSV, TSV, Parquet or NPZ file in; named columns out, or one sentence that says what is wrong with it.

No cell is ever run: NPZ files with pickled objects are refused, formulas and HTML are text like any other.
"""

from __future__ import annotations

import csv
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".txt": "\t"}
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})

EXACT = 2**53  # up to here a float64 holds every whole number

# What a file holds, by column: an array, or cells of text that may yet turn out to be numbers.
Cells = dict[str, NDArray[Any] | list[str]]


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of one length.

    Attributes:
        source: the file, for messages.
        columns: a column of numbers is float64 with NaN where a cell is missing, a column of text is an
            array of str objects with "" there, and so is one of whole numbers with more digits than float64 has.
            In an NPZ file a column may hold many numbers a row, or a picture.
        missing_words: of a column of cells read as text, the words such as "NA" that count as missing, and in how
            many rows each stands; an empty cell is no word.
    """

    source: Path
    columns: Mapping[str, NDArray[Any]]
    missing_words: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values())))

    def column(self, name: str) -> NDArray[Any]:
        """One column; the error for a name that is not there suggests the nearest that is."""
        if name in self.columns:
            return self.columns[name]
        near = get_close_matches(name, self.columns, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {_listed(self.columns)}."
        raise ValueError(f"{self.source.name} has no column {name!r}: {hint}")

    def text(self, name: str) -> NDArray[Any]:
        """One column as text, whole numbers without a point, "" where a cell is missing."""
        column = self.column(name)
        if column.ndim != 1:
            raise ValueError(f"{name!r} holds {column.shape[1:]} numbers a row, where one value is needed.")
        if column.dtype.kind == "f":
            return np.array([_digits(value) for value in column], dtype=object)
        return column


def _digits(value: float) -> str:
    if np.isnan(value):
        return ""
    return f"{value:.0f}" if value == np.trunc(value) and abs(value) <= EXACT else f"{value:.15g}"


def read_table(path: Path, *, separator: str | None = None) -> Table:
    """Read a file by the ending of its name."""
    ending = path.suffix.lower()
    readers = {".npz": _read_npz, ".parquet": _read_parquet, ".pq": _read_parquet}
    if ending not in (*SEPARATORS, *readers):
        raise ValueError(f"{path.name} is none of the files that can be read: CSV, TSV, Parquet and NPZ.")
    if not path.exists():
        raise ValueError(f"There is no file {path}.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder, not a file.")
    if path.stat().st_size == 0:
        raise ValueError(f"{path.name} is empty.")
    if separator is not None and ending in readers:
        raise ValueError(f"A separator is for text files such as CSV, and {path.name} is none: leave it out.")
    cells = readers[ending](path) if ending in readers else _read_text(path, separator or SEPARATORS[ending])
    if not cells or len(next(iter(cells.values()))) == 0:
        raise ValueError(f"{path.name} has no rows.")
    columns = {name: _parse(column) if isinstance(column, list) else column for name, column in cells.items()}
    words = {
        name: Counter(cell for cell in column if cell and _is_missing(cell))
        for name, column in cells.items()
        if isinstance(column, list)
    }
    return Table(path, columns, words)


def _read_text(path: Path, separator: str) -> Cells:
    if len(separator) != 1:
        raise ValueError(f"The separator must be one character, got {separator!r}.")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file, delimiter=separator, strict=True)
            names = [name.strip() for name in next(lines, [])]
            _check_names(path, names)
            rows = []
            for row in lines:
                if not row:  # a blank line
                    continue
                if len(row) != len(names):
                    raise ValueError(
                        f"{path.name} is ragged: line {lines.line_num} has {len(row)} cells, and the heading has "
                        f"{len(names)}."
                    )
                rows.append(row)
    except UnicodeDecodeError as error:
        bad = f"byte 0x{error.object[error.start]:02x}"
        raise ValueError(f"{path.name} is not UTF-8 text ({bad} is not): save it with that encoding.") from None
    except csv.Error as error:
        raise ValueError(f"{path.name} is not well-formed: line {lines.line_num}: {error}.") from None
    return {name: [row[k].strip() for row in rows] for k, name in enumerate(names)}


def _is_missing(cell: str) -> bool:
    return cell.lower() in MISSING


def _parse(cells: list[str]) -> NDArray[Any]:
    """Numbers where every cell that is not missing is one, else text."""
    present = ["" if _is_missing(cell) else cell for cell in cells]
    try:
        return np.array([_number(cell) if cell else np.nan for cell in present], dtype=np.float64)
    except ValueError:
        return np.array(present, dtype=object)


def _number(cell: str) -> float:
    # 007 is a name and not 7, and a float has 15 digits; float() would read 1_000
    if "_" in cell or re.fullmatch(r"[+-]?(0\d+|\d{16,})", cell):
        raise ValueError
    return float(cell)


def _read_npz(path: Path) -> Cells:
    try:
        # opened here, since np.load leaves a damaged file open
        with path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
            members = archive.namelist()
        if not all(member.endswith(".npy") for member in members):
            raise ValueError(f"{path.name} is not an NPZ file: it holds more than arrays.")
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            _check_names(path, file.files)
            arrays = {}
            for name in file.files:
                try:
                    arrays[name] = file[name]
                except ValueError as error:
                    if "allow_pickle" not in str(error):
                        raise
                    raise ValueError(
                        f"{path.name} holds pickled objects in {name!r}, which can run code when they are loaded: "
                        "save numbers or text instead."
                    ) from None
    except (zipfile.BadZipFile, EOFError, OSError) as error:
        raise ValueError(f"{path.name} is not an NPZ file, or is damaged: {error}.") from None
    lengths = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {n}" for name, n in lengths.items())
        raise ValueError(f"The arrays of {path.name} differ in length: {told}. Each needs one entry a row.")
    return {name: _plain(path, name, array) for name, array in arrays.items()}


def _plain(path: Path, name: str, array: NDArray[Any]) -> NDArray[Any] | list[str]:
    if array.dtype.kind in "iu" and array.ndim == 1:
        return _whole_numbers(array.tolist())
    if array.dtype.kind in "biuf":
        return array.astype(np.float64)
    if array.dtype.kind == "U" and array.ndim == 1:
        return [str(cell).strip() for cell in array]
    raise ValueError(f"{name!r} of {path.name} holds {array.dtype}, neither numbers nor text.")


def _whole_numbers(values: list[int | None]) -> NDArray[Any]:
    """Numbers, or text where a float64 would change one."""
    if any(value is not None and abs(value) > EXACT for value in values):
        return np.array(["" if value is None else str(value) for value in values], dtype=object)
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _read_parquet(path: Path) -> Cells:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ValueError("Parquet files need pyarrow: pip install 'graphuq[parquet]'.") from None
    try:
        table = parquet.ParquetFile(path).read()
    except pyarrow.ArrowException as error:
        raise ValueError(
            f"{path.name} is not a Parquet file, or is damaged: {str(error).splitlines()[0]}."
        ) from None
    _check_names(path, table.column_names)
    columns: Cells = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = column.type
        values = column.to_pylist()
        if pyarrow.types.is_integer(kind):
            columns[name] = _whole_numbers(values)
        elif pyarrow.types.is_floating(kind) or pyarrow.types.is_boolean(kind):
            columns[name] = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
        else:
            columns[name] = np.array(["" if value is None else str(value) for value in values], dtype=object)
    return columns


def _check_names(path: Path, names: list[str]) -> None:
    repeated = [name for name, n in Counter(names).items() if n > 1]
    if repeated:
        raise ValueError(f"{path.name} has more than one column {repeated[0]!r}: give each its own name.")
    if "" in names:
        raise ValueError(f"Column {names.index('') + 1} of {path.name} has no name.")


def _listed(names: Iterable[str], most: int = 8) -> str:
    every = [repr(name) for name in names]
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")
