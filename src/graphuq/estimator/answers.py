"""A fitted classifier in; the probabilities of its rows, or of new ones in a store, block by block, to a folder out."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from graphuq import _accelerator, uncertainty
from graphuq._expect import RowError, expect_flag, expect_path
from graphuq._progress import stages_told
from graphuq.classes import Labels
from graphuq.estimator.ledger import FORM, LEDGER, Ledger
from graphuq.estimator.rows import read_features
from graphuq.estimator.settings import shows_bars
from graphuq.files import made_folder, whole_file
from graphuq.large.passes import check_finite, each_block
from graphuq.learning.evidence import learned_basis
from graphuq.memory import check_disk, check_room
from graphuq.posterior.base import Classes
from graphuq.posterior.gaussian import GaussianPosterior
from graphuq.posterior.mixture import Mixture
from graphuq.prior import NewRows
from graphuq.tall import Array, Tall, in_parts, is_store, needed, some_rows, spread, tall

if TYPE_CHECKING:
    from graphuq.estimator import GraphClassifier

TOLD_ROWS = 20  # labeled rows whose fields tell one posterior from another


def in_memory(classifier: GraphClassifier) -> tuple[Array, Array]:
    """The probabilities of all rows and their errors, shape (n_rows, n_classes) each."""
    n_rows, n_classes = classifier.graph_.n_nodes, len(classifier.classes_)
    check_room(16.0 * n_rows * n_classes, f"An answer for each of {n_rows:,} rows", "Use write_proba.")
    found, error = np.empty((2, n_rows, n_classes))
    basis, ask = _question(classifier)
    for rows, answer in zip(basis.slices(), each_block(basis, ask), strict=True):
        found[rows], error[rows] = answer
    return found, error


def at(
    classifier: GraphClassifier, nodes: NDArray[np.int64], new: NDArray[np.bool_], where: NewRows | None
) -> Classes:
    """The probabilities at rows that `locate` has found: those of `fit` have the answers that they have there."""
    found, error = np.empty((2, len(nodes), len(classifier.classes_)))
    if not new.all():
        known = _at_nodes(classifier, nodes[~new])
        found[~new], error[~new] = known.probability, known.error
    if where is not None:
        fresh = classifier.posterior_.classes(where)
        found[new], error[new] = fresh.probability, fresh.error
        if where.nearest is not None and where.share is not None:
            # Where a new row and one of the fit all but coincide, so do their answers.
            share, near = where.share[:, None], _at_nodes(classifier, where.nearest)
            found[new] = (1 - share) * fresh.probability + share * near.probability
    return Classes(found, error)


def _at_nodes(classifier: GraphClassifier, nodes: NDArray[np.int64]) -> Classes:
    """At rows of `fit`; of a store without asking for all of them."""
    if classifier._distributions is None and classifier._seen.store is not None:
        return classifier.posterior_.classes(nodes)
    return Classes(classifier.label_distributions_[nodes], classifier.label_errors_[nodes])


def of_store(classifier: GraphClassifier, X: Any) -> Array:
    """The probabilities of rows in a store, as an array."""
    X, ask = _new_question(classifier, X)
    with stages_told(classifier.verbose) as tell:
        return np.concatenate([found for found, _ in _asked(classifier, X, ask, X.slices(), tell)])


def _asked(
    classifier: GraphClassifier, X: Tall, ask: Any, chosen: list[slice], tell: Callable[[str], None]
) -> Iterator[Any]:
    """The answers of some blocks, and how far they are."""
    if chosen:
        tell(f"answers of {sum(rows.stop - rows.start for rows in chosen):,} rows")
    return each_block(X, ask, chosen=chosen, shown=shows_bars(classifier), desc="answers")


def write(classifier: GraphClassifier, path: Any, X: Any = None, *, force: bool = False) -> Path:
    """Write the probabilities to a folder of Parquet files, or to a Zarr array; blocks that are there are kept."""
    folder, force = expect_path(path), expect_flag(force, "force")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, where a folder is needed: choose another name.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / LEDGER).exists():
        raise ValueError(f"{folder} holds something that graphuq did not write: choose another folder.")
    basis, ask = _question(classifier) if X is None else _new_question(classifier, X)
    if _is_zarr(folder):  # whose chunks are of one length, and a block is one
        basis = basis.evenly()
    ledger = _ledger(classifier, folder, basis, new=isinstance(ask, _AskNew))
    if force and folder.exists() and ledger.mismatch():
        shutil.rmtree(folder)
    with made_folder(folder), ledger.open(), stages_told(classifier.verbose) as tell:
        try:
            n_rows, slices, done = len(basis), basis.slices(), ledger.done()
            left = space(n_rows, len(classifier.classes_)) * (1 - len(done) / len(slices))
            check_disk(folder, left, "Writing all rows")
            put = _to_zarr if _is_zarr(folder) else _to_parquet
            block = put(folder, classifier.classes_, n_rows, slices[0].stop)
            numbers = [number for number in range(len(slices)) if number not in done]
            found = _asked(classifier, basis, ask, [slices[number] for number in numbers], tell)
            for number, (probability, told) in zip(numbers, found, strict=True):
                block(number, slices[number], probability)
                ledger.append(number, mark=told if isinstance(ask, _AskNew) else 0)  # else its errors were told
        finally:
            if not ledger.begun:
                _clear(folder)
    return folder


def _ledger(classifier: GraphClassifier, folder: Path, basis: Tall, *, new: bool) -> Ledger:
    """What is asked: which fit, and of which rows; `new` ones are told by their features."""
    slices = basis.slices()
    of = key(classifier, classifier.labels_, classifier._seen.store)
    question = {"form": FORM, "rows": len(basis), "blocks": len(slices), "of": of}
    question |= {"new": new, "fields": _fields(classifier)}

    def marks(numbers: list[int]) -> Iterable[int]:
        return each_block(basis, _mark, chosen=[slices[k] for k in numbers]) if new else [0] * len(numbers)

    return Ledger(folder, question, partial(_place, folder), marks)


@dataclass(frozen=True, eq=False)
class _Ask:
    """A block of rows of the basis to the probabilities there, as of rows whose place in the graph is known exactly."""

    posterior: Any
    nodes: NDArray[np.int64]  # those that the model sees, whose answers are known
    labeled: tuple[Array, Array]
    precision: type[np.floating]

    def __call__(self, rows: slice, basis: Array) -> tuple[Array, Array]:
        # an accelerator has no cache to stay in, and wants few calls
        whole = _accelerator.is_there()
        found = self._of_part(basis) if whole else in_parts(self._of_part, basis, 2 * self.labeled[0].shape[1])
        probability, error = np.split(found, 2, axis=1)
        mine = np.flatnonzero((self.nodes >= rows.start) & (self.nodes < rows.stop))
        for answer, known in zip((probability, error), self.labeled, strict=True):
            answer[self.nodes[mine] - rows.start] = known[mine]
        return probability, error

    def _of_part(self, basis: Array) -> Array:
        found = self.posterior.classes(NewRows(basis.astype(self.precision, copy=False)))
        return np.hstack([found.probability, found.error])


def _question(classifier: GraphClassifier) -> tuple[Tall, _Ask]:
    """The basis of all components, as far as one of them looks at it, and what is to be asked of its blocks."""
    posterior: Any = classifier.posterior_
    parts = posterior.components
    columns = classifier._seen.columns if classifier._learned else None
    n_first = 0 if columns is None else columns.shape[1]
    n_modes = max(2, max(each.prior.first + each.prior.n_modes for each in parts) - n_first)
    vectors = classifier.spectrum_.vectors[:, :n_modes]
    basis = tall(learned_basis(columns, vectors) if classifier._learned else vectors)
    # what a model sees beside labels, as Ginzburg-Landau does all nodes, is no new row either
    nodes = reduce(np.union1d, (each.whitening.nodes for each in parts), classifier.labels_.nodes)
    known = posterior.classes(nodes)
    light = tuple(_light(each, nodes) for each in parts)
    asked = replace(posterior, components=light, drawn_from=None) if isinstance(posterior, Mixture) else light[0]
    single = all(isinstance(each, GaussianPosterior) and each.blurred for each in parts)
    return basis, _Ask(asked, nodes, (known.probability, known.error), np.float32 if single else np.float64)


@dataclass(frozen=True, eq=False)
class _AskNew:
    """A block of new rows of features to the probabilities there, and what tells these rows from others."""

    classifier: GraphClassifier

    def __call__(self, rows: slice, X: Array) -> tuple[Array, int]:
        check_finite(rows, X)
        try:
            found = in_parts(self.classifier.predict_proba, X, len(self.classifier.classes_))
        except RowError as error:
            raise error.after(rows.start) from None
        return found, _mark(rows, X)


def _mark(rows: slice, X: Array) -> int:
    """What tells a block of rows from others."""
    return crc32(np.ascontiguousarray(X).data)


def _new_question(classifier: GraphClassifier, X: Any) -> tuple[Tall, Any]:
    """New rows, and what is to be asked of their blocks: here, where the fit has eigenvectors in memory, else anywhere."""
    seen, names = classifier._seen, getattr(classifier, "feature_names_in_", ())
    if not (is_store(X) or isinstance(X, str | Path | np.memmap)):
        X, names = read_features(classifier, X, reset=False, ensure_all_finite=False), ()
        if not seen.has_features and (seen.nodes(X, labeled=classifier.labels_.nodes) >= 0).all():
            return _question(classifier)  # weights tell rows of the fit only all together
    X = tall(X)
    X.expect_columns(classifier.n_features_in_, names if seen.store is None else seen.store.names)
    asked = copy(classifier)
    asked.__dict__.pop("feature_names_in_", None)  # which blocks do not have
    if isinstance(classifier.spectrum_.vectors, Tall):
        asked._distributions, asked._kept = None, ()  # which would be sent to every process
    else:
        X = replace(X, in_memory=True)
    first = slice(0, 1)
    check_finite(first, X.rows(first))
    asked.predict_proba(X.rows(first))  # refuses what is wrong, and prepares what all blocks need
    return X, _AskNew(asked)


def _light(posterior: Any, nodes: NDArray[np.int64]) -> Any:
    """The same without the matrix of all rows, to be sent to other processes."""
    vectors = posterior.prior.vectors
    prior = replace(posterior.prior, vectors=some_rows(vectors[nodes], nodes, len(vectors)))
    return replace(posterior, whitening=replace(posterior.whitening, prior=prior))


def space(n_rows: int, n_classes: int) -> float:
    """Bytes that answers take on disk at most."""
    return 8.0 * (n_classes + 2) * n_rows


def key(classifier: GraphClassifier, labels: Labels, X: Tall | None) -> str:
    """What a fit is asked: settings, labels, and the features, of a store some of them and its stamp."""
    settings = {name: repr(value) for name, value in classifier.get_params().items() if name != "verbose"}
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for array in (labels.nodes, labels.y, np.array(labels.classes.tolist(), dtype=str)):
        digest.update(np.ascontiguousarray(array).tobytes())
    if X is None:
        digest.update(b"".join(classifier._seen.fingerprints))
    else:
        digest.update(X[spread(len(X))].tobytes() + X.stamp.encode())
    return digest.hexdigest()


def _fields(classifier: GraphClassifier) -> list[float]:
    """What it found: of some labeled rows the classes, and the fields in deviations, which depend on all that was learned."""
    nodes = classifier.labels_.nodes
    some = nodes[np.unique(np.linspace(0, len(nodes) - 1, TOLD_ROWS).astype(np.int64))]
    mean, variance = classifier.posterior_.moments(some)
    variance = np.maximum(variance, np.finfo(float).tiny)
    told = (classifier.posterior_.probability(some), mean / np.sqrt(variance), np.log(variance))
    return np.concatenate([each.ravel() for each in told]).round(6).tolist()


def _clear(folder: Path) -> None:
    """Leave nothing of ours where nothing was answered."""
    shutil.rmtree(folder / "c", ignore_errors=True)
    with suppress(OSError):
        (folder / "zarr.json").unlink(missing_ok=True)
        if len(list(folder.iterdir())) == 1:  # what a killed call left beside it is known as ours by it
            (folder / LEDGER).unlink()


def _is_zarr(folder: Path) -> bool:
    return folder.suffix.lower() == ".zarr"


def _place(folder: Path, number: int) -> Path:
    """Where a block lies."""
    return folder / (f"c/{number}/0" if _is_zarr(folder) else f"part-{number:06d}.parquet")


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

    (folder / "zarr.json").unlink(missing_ok=True)  # which has no checksum
    shape, chunks = (n_rows, len(classes)), (chunk, len(classes))
    settings: Any = {"dtype": "float64", "fill_value": float("nan")}
    sealed = ZstdCodec(checksum=True)
    array = zarr.create_array(folder, shape=shape, chunks=chunks, compressors=sealed, **settings)
    array.attrs["classes"] = classes.tolist()

    def put(number: int, rows: slice, found: Array) -> None:
        array[rows] = found

    return put
