"""A fitted classifier in; the probabilities of its rows, or of new ones in a store, block by block, to a folder out."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from graphuq import uncertainty
from graphuq.files import lock, whole_file
from graphuq.inference.whiten import positions
from graphuq.learning.evidence import learned_basis
from graphuq.memory import check_disk, check_room
from graphuq.passes import check_finite, each_block
from graphuq.posterior.gaussian import GaussianPosterior
from graphuq.posterior.mixture import Mixture
from graphuq.prior import NewRows
from graphuq.tall import Array, Tall, in_parts, needed, tall

if TYPE_CHECKING:
    from graphuq.estimator import GraphClassifier

LEDGER = (
    "_graphuq.jsonl"  # what was asked, and a line for each block that is there; readers of Parquet pass over "_"
)
SAMPLED_ROWS = 1000
# Labeled rows whose fields tell one posterior from another, and by how many deviations: a fit repeated on another
# machine differs by rounding, measured 3e-4, one of other hyper-parameters or draws by more than this.
TOLD_ROWS, SAME = 20, 3e-3


def in_memory(classifier: GraphClassifier) -> tuple[Array, Array]:
    """The probabilities of all rows and their errors, shape (n_rows, n_classes) each."""
    n_rows, n_classes = classifier.graph_.n_nodes, len(classifier.classes_)
    check_room(16.0 * n_rows * n_classes, f"An answer for each of {n_rows:,} rows", "Use write_proba.")
    found, error = np.empty((2, n_rows, n_classes))
    basis, ask = _question(classifier)
    for rows, answer in zip(basis.slices(), each_block(basis, ask), strict=True):
        found[rows], error[rows] = answer
    return found, error


def write(classifier: GraphClassifier, path: Any, X: Any = None, *, force: bool = False) -> Path:
    """Write the probabilities to a folder of Parquet files, or to a Zarr array; blocks that are there are kept."""
    from graphuq.settings import shows_bars

    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, where a folder is needed: choose another name.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / LEDGER).exists():
        raise ValueError(f"{folder} holds something that graphuq did not write: choose another folder.")
    put = _to_zarr if folder.suffix == ".zarr" else _to_parquet
    basis, ask = _question(classifier) if X is None else _new_question(classifier, tall(X))
    n_rows, n_classes, n_blocks = len(basis), len(classifier.classes_), len(basis.slices())
    question = {"form": "graphuq answers 3", "rows": n_rows, "blocks": n_blocks, "of": _key(classifier)}
    if X is not None:
        question["new"] = hashlib.sha256(_some_rows(basis)).hexdigest()
    question["fields"] = _fields(classifier)
    if force and folder.exists() and not _same(_ledger(folder)[0], question):
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with lock(folder / LEDGER) as ledger:
        known, listed = _ledger(folder)
        done = {number for number in listed if _place(folder, number).exists()}
        if known is not None and not _same(known, question):
            raise ValueError(f"{folder} holds the answers of another fit: choose another folder, or replace it.")
        check_disk(folder, 8.0 * (n_classes + 2) * n_rows * (1 - len(done) / n_blocks), "Writing all rows")
        block = put(folder, classifier.classes_, n_rows, basis.slices()[0].stop)
        if known is None:
            ledger.write(json.dumps(question).encode() + b"\n")
        left = [(k, rows) for k, rows in enumerate(basis.slices()) if k not in done]
        found = each_block(
            basis, ask, chosen=[rows for _, rows in left], shown=shows_bars(classifier), desc="answers"
        )
        for (number, rows), (probability, *_) in zip(left, found, strict=True):
            block(number, rows, probability)
            ledger.write(_line(number))
            ledger.flush()
    return folder


@dataclass(frozen=True, eq=False)
class _Ask:
    """A block of rows of the basis to the probabilities there, as of rows whose place in the graph is known exactly."""

    posterior: Any
    nodes: NDArray[np.int64]  # labeled ones, whose answers are known
    labeled: tuple[Array, Array]
    precision: type[np.floating]

    def __call__(self, rows: slice, basis: Array) -> tuple[Array, Array]:
        found = in_parts(self._of_part, basis, 2 * self.labeled[0].shape[1])
        probability, error = np.split(found, 2, axis=1)
        mine = np.flatnonzero((self.nodes >= rows.start) & (self.nodes < rows.stop))
        for answer, known in zip((probability, error), self.labeled, strict=True):
            answer[self.nodes[mine] - rows.start] = known[mine]
        return probability, error

    def _of_part(self, basis: Array) -> Array:
        found = self.posterior.classes(NewRows(basis.astype(self.precision, copy=False)))
        return np.hstack([found.probability, found.error])


@dataclass(frozen=True, eq=False)
class _LabeledRows:
    """The rows of a prior's matrix at the labeled nodes: all that answers need of it."""

    shape: tuple[int, int]
    nodes: NDArray[np.int64]
    found: Array

    def __getitem__(self, index: Any) -> Array:
        nodes = np.arange(*index.indices(self.shape[0])) if isinstance(index, slice) else np.asarray(index)
        return self.found[positions(nodes, self.nodes)]


def _question(classifier: GraphClassifier) -> tuple[Tall, _Ask]:
    """The basis of all components, as far as one of them looks at it, and what is to be asked of its blocks."""
    posterior: Any = classifier.posterior_
    parts = posterior.components if isinstance(posterior, Mixture) else (posterior,)
    columns = classifier._seen.columns if classifier._learned else None
    n_first = 0 if columns is None else columns.shape[1]
    n_modes = max(2, max(each.prior.first + each.prior.n_modes for each in parts) - n_first)
    vectors = classifier.spectrum_.vectors[:, :n_modes]
    basis = tall(learned_basis(columns, vectors) if classifier._learned else vectors)
    nodes = classifier.labels_.nodes
    known = posterior.classes(nodes)
    light = tuple(_light(each, nodes) for each in parts)
    asked = replace(posterior, components=light, drawn_from=None) if isinstance(posterior, Mixture) else light[0]
    single = all(isinstance(each, GaussianPosterior) and each.blurred for each in parts)
    return basis, _Ask(asked, nodes, (known.probability, known.error), np.float32 if single else np.float64)


@dataclass(frozen=True, eq=False)
class _AskNew:
    """A block of new rows of features to the probabilities there."""

    classifier: GraphClassifier

    def __call__(self, rows: slice, X: Array) -> tuple[Array]:
        check_finite(rows, X)
        return (in_parts(self.classifier.predict_proba, X, len(self.classifier.classes_)),)


def _new_question(classifier: GraphClassifier, X: Tall) -> tuple[Tall, _AskNew]:
    """New rows, and what is to be asked of their blocks: here, where the fit has eigenvectors in memory, else anywhere."""
    asked = copy(classifier)
    if isinstance(classifier.spectrum_.vectors, Tall):
        asked._distributions, asked._kept = None, ()  # which would be sent to every process
    else:
        X = replace(X, in_memory=True)
    asked.predict_proba(X.rows(slice(0, 1)))  # refuses what is wrong, and prepares what all blocks need
    return X, _AskNew(asked)


def _light(posterior: Any, nodes: NDArray[np.int64]) -> Any:
    """The same without the matrix of all rows, to be sent to other processes."""
    vectors = posterior.prior.vectors
    prior = replace(posterior.prior, vectors=_LabeledRows(vectors.shape, nodes, vectors[nodes]))
    return replace(posterior, whitening=replace(posterior.whitening, prior=prior))


def _key(classifier: GraphClassifier) -> str:
    """What a fit was asked: settings, labels, and the features, of a store some of them."""
    X = classifier._seen.store
    labels = classifier.labels_
    settings = {name: repr(value) for name, value in classifier.get_params().items() if name != "verbose"}
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for array in (labels.nodes, labels.y, np.array(labels.classes.tolist(), dtype=str)):
        digest.update(np.ascontiguousarray(array).tobytes())
    if X is None:
        digest.update(b"".join(classifier._seen.fingerprints))
    else:
        digest.update(_some_rows(X))
    return digest.hexdigest()


def _some_rows(X: Tall) -> bytes:
    """What tells one store from another."""
    return X.rows(np.unique(np.linspace(0, len(X) - 1, SAMPLED_ROWS).astype(np.int64))).tobytes()


def _fields(classifier: GraphClassifier) -> list[float]:
    """What it found: of some labeled rows the classes, and the fields in deviations, which depend on all that was learned."""
    nodes = classifier.labels_.nodes
    some = nodes[np.unique(np.linspace(0, len(nodes) - 1, TOLD_ROWS).astype(np.int64))]
    mean, variance = classifier.posterior_.moments(some)
    variance = np.maximum(variance, np.finfo(float).tiny)
    told = (classifier.posterior_.probability(some), mean / np.sqrt(variance), np.log(variance))
    return np.concatenate([each.ravel() for each in told]).round(6).tolist()


def _same(known: Any, question: dict[str, Any]) -> bool:
    """Whether answers are those of the fit that is asked, or of one that differs by rounding."""
    try:
        apart = np.abs(np.subtract(known["fields"], question["fields"])).max()
        return bool(apart < SAME) and known | {"fields": 0} == question | {"fields": 0}
    except (KeyError, TypeError, ValueError):  # no question of this form
        return False


def _ledger(folder: Path) -> tuple[Any, set[int]]:
    """What was asked, and the blocks that are there; a line that was cut off does not count."""
    path = folder / LEDGER
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    try:
        done = [int(line.split()[0]) for line in lines[1:]]
        if [line + b"\n" for line in lines[1:]] != [_line(number) for number in done]:
            raise ValueError
        return (json.loads(lines[0]) if lines else None), set(done)
    except (ValueError, IndexError):
        raise ValueError(f"{path} is damaged: choose another folder, or remove this one.") from None


def _line(number: int) -> bytes:
    """What the ledger holds of a block, with a checksum: a flipped digit would leave out another block."""
    return f"{number} {crc32(str(number).encode()):08x}\n".encode()


def _place(folder: Path, number: int) -> Path:
    """Where a block lies."""
    return folder / (f"c/{number}/0" if folder.suffix == ".zarr" else f"part-{number:06d}.parquet")


def _to_parquet(
    folder: Path, classes: NDArray[Any], n_rows: int, chunk: int
) -> Callable[[int, slice, Array], None]:
    """Parts of a table: row, class, its probability, and that of each class."""
    parquet = needed("pyarrow.parquet", "Parquet files need pyarrow")
    import pyarrow

    def put(number: int, rows: slice, found: Array) -> None:
        best = uncertainty.most_probable(found)
        columns = {
            "row": np.arange(rows.start, rows.stop),
            "class": pyarrow.DictionaryArray.from_arrays(best.astype(np.int32), pyarrow.array(classes.tolist())),
            "probability": found[np.arange(len(found)), best],
        }
        columns |= {f"p_{name}": found[:, k] for k, name in enumerate(classes.tolist())}
        with whole_file(_place(folder, number)) as part:
            parquet.write_table(pyarrow.table(columns), part, write_page_checksum=True)

    return put


def _to_zarr(folder: Path, classes: NDArray[Any], n_rows: int, chunk: int) -> Callable[[int, slice, Array], None]:
    """An array of shape (n_rows, n_classes), whose attributes name the classes."""
    zarr = needed("zarr", "Zarr arrays need zarr")
    from zarr.codecs import ZstdCodec

    if (folder / "zarr.json").exists():
        array = zarr.open_array(folder, mode="r+")
    else:
        shape, chunks = (n_rows, len(classes)), (chunk, len(classes))
        settings: Any = {"dtype": "float64", "fill_value": float("nan")}
        sealed = ZstdCodec(checksum=True)
        array = zarr.create_array(folder, shape=shape, chunks=chunks, compressors=sealed, **settings)
        array.attrs["classes"] = classes.tolist()

    def put(number: int, rows: slice, found: Array) -> None:
        array[rows] = found

    return put
