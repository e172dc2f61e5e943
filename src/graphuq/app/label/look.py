"""A table in; how its rows are displayed, and a fingerprint that recognizes the same table later, out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq.app.options import Showing
from graphuq.app.question import Data, Question
from graphuq.app.tables.read import Table
from graphuq.classes import names_listed

MAX_LETTERS = 4000  # characters shown of a cell
MAX_NUMBERS = 400  # points shown of a curve
MAX_PICTURE = 20 * 2**20  # bytes of a picture file
# Picture formats by file extension; no other file is ever served. SVG is left out because it may hold scripts.
KINDS = {
    ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
    ".bmp": "image/bmp", ".avif": "image/avif",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Look:
    """What is displayed of each row.

    Attributes:
        names: one name per row.
        columns: the cells as text, by column.
        series: columns with many numbers per row, as arrays of shape (n_rows, n_numbers).
        pictures: gray values, shape (n_rows, height, width), where rows are images.
        folder: folder of the picture files.
        files: name of the picture file of each row, "" where there is none.
    """

    names: Sequence[str]
    columns: dict[str, NDArray[Any]] = field(repr=False)
    series: dict[str, NDArray[Any]] = field(default_factory=dict, repr=False)
    pictures: NDArray[np.uint8] | None = None
    folder: Path | None = None
    files: NDArray[Any] | None = None

    def cells(self, row: int, most: int | None = None) -> list[tuple[str, str]]:
        """Column names and cell texts of a row, of the first `most` columns if given."""
        return [(name, _cut(str(column[row]))) for name, column in list(self.columns.items())[:most]]

    def curves(self, row: int) -> list[tuple[str, list[float]]]:
        """Names and numbers of the columns with many numbers, thinned evenly to at most `MAX_NUMBERS`."""
        return [
            (name, [float(f"{x:.4g}") for x in values[row, :: -(-values.shape[1] // MAX_NUMBERS)]])
            for name, values in self.series.items()
        ]

    def picture(self, row: int) -> tuple[Path, str]:
        """Path and media type of the picture of a row; FileNotFoundError if there is none that may be served."""
        name = "" if self.files is None else str(self.files[row])
        if self.folder is None or not name:
            raise FileNotFoundError("This row has no picture.")
        home = self.folder.resolve()
        try:
            path = (home / name).resolve()
            inside, exists = path.is_relative_to(home), path.is_file()
        except (OSError, ValueError):  # not a valid file name
            inside = exists = False
        if not inside or not exists:
            raise FileNotFoundError(f"There is no picture {name} in {self.folder}.")
        if path.suffix.lower() not in KINDS:
            raise FileNotFoundError(f"{name} is not a picture of a kind that is shown: {', '.join(KINDS)}.")
        if path.stat().st_size > MAX_PICTURE:
            raise FileNotFoundError(f"{name} is larger than {MAX_PICTURE // 2**20} MB, and is not shown.")
        return path, KINDS[path.suffix.lower()]


def check_pictures(question: Question, showing: Showing) -> None:
    """Refuse a folder of pictures without a column of file names, or the reverse, before the table is read."""
    pictures, picture_column = showing.pictures, showing.picture_column
    if (pictures is None) != (picture_column is None):
        raise ValueError("--pictures and --picture-column go together: a folder, and the column with file names.")
    if pictures is not None and not pictures.is_dir():
        raise ValueError(f"There is no folder {pictures} with pictures.")
    if picture_column == question.label:
        raise ValueError(
            f"Column {picture_column!r} is given as --label and again as --picture-column: use it once."
        )


def look_at(data: Data, question: Question, showing: Showing) -> Look:
    """Choose what is displayed: the requested columns, or all but names, labels and those dropped; and pictures from a folder."""
    table, show, pictures, picture_column = data.table, showing.show, showing.pictures, showing.picture_column
    for name in show:
        table.column(name)
    hidden = () if show else (question.label, question.row_id, picture_column, *question.drop)
    shown = [name for name in show or table.columns if name not in hidden]
    single = {name: table.as_written(name) for name in shown if table.column(name).ndim == 1}
    series = {name: table.column(name) for name in shown if table.column(name).ndim == 2}
    files = None if picture_column is None else table.text(picture_column)
    return Look(data.rows.names, single, series, data.rows.pictures, pictures, files)


def identity(table: Table, settings: dict[str, Any]) -> dict[str, Any]:
    """Fingerprint of a table and the settings of a session: number of rows, and a digest of each column."""
    columns = {name: _digest(column) for name, column in table.columns.items()}
    return {"rows": table.n_rows, "columns": columns, "settings": settings}


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Differences between two fingerprints, in words; an empty list if they are the same."""
    changes = []
    if before["rows"] != now["rows"]:
        changes.append(f"it had {before['rows']:,} rows and has {now['rows']:,}")
    old, new = before["columns"], now["columns"]
    for names, how in (
        ([name for name in old if name not in new], "without"),
        ([name for name in new if name not in old], "with the new"),
    ):
        if names:
            changes.append(f"it is now {how} column{'s' if len(names) > 1 else ''} {names_listed(names)}")
    changed = [name for name in old if name in new and old[name] != new[name]]
    if changed and before["rows"] == now["rows"]:
        changes.append(f"cells of {names_listed(changed)} changed")
    for name, value in before["settings"].items():
        if (other := now["settings"].get(name)) != value:
            changes.append(f"{name} was {_setting(value)} and is {_setting(other)}")
    return changes


def _setting(value: Any) -> str:
    return "not given" if value in (None, "", []) else repr(value)


def _cut(text: str) -> str:
    beyond = len(text) - MAX_LETTERS
    return text if beyond <= 0 else f"{text[:MAX_LETTERS]} … ({beyond:,} more letters)"


def _digest(column: NDArray[Any]) -> str:
    digest = hashlib.sha256(f"{column.dtype.kind} {column.shape}".encode())
    if column.dtype.kind != "O":
        digest.update(np.ascontiguousarray(column).tobytes())
    else:
        for cell in column:
            raw = str(cell).encode("utf-8", "surrogatepass")
            digest.update(len(raw).to_bytes(8, "little") + raw)
    return digest.hexdigest()
