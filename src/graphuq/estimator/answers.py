"""A fitted classifier in; class probabilities of its rows or of new ones, block by block, to a folder out."""

from __future__ import annotations

import hashlib
import json
import re
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
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from graphuq import _accelerator, uncertainty
from graphuq._expect import RowError, expect_flag, expect_numbers, expect_path
from graphuq._needed import needed
from graphuq._progress import stages_told
from graphuq.classes import Labels, read_labels
from graphuq.estimator.ledger import FORM, LEDGER, Ledger
from graphuq.estimator.rows import average_equal, read_features, warn_of_order, weights_of
from graphuq.estimator.settings import shows_bars
from graphuq.files import made_folder, refuse_foreign, whole_file
from graphuq.large.passes import check_finite, each_block
from graphuq.large.stores import create_zarr
from graphuq.memory import check_disk, check_room
from graphuq.new_rows import NewRows
from graphuq.posterior.base import Classes
from graphuq.posterior.gaussian import GaussianPosterior
from graphuq.posterior.kept import Kept, refreshed
from graphuq.posterior.mixture import Mixture
from graphuq.tall import Array, Tall, in_parts, is_store, some_rows, spread, tall

if TYPE_CHECKING:
    from graphuq.estimator import GraphClassifier

TOLD_ROWS = 20  # labeled rows whose latent fields identify a posterior in the ledger


def cached(classifier: GraphClassifier) -> tuple[Array, Array]:
    """Class probabilities of all rows of `fit` and their errors, read-only, computed when first asked for."""
    check_is_fitted(classifier)
    known = classifier._cached
    if known is None or known[0] is not classifier.posterior_:
        now = copy(classifier)  # a snapshot, as another thread may change the labels meanwhile
        probability, error, classifier._kept = of_fit(now)
        known = classifier._cached = now.posterior_, probability, error
    for each in known[1:]:  # predict reads them; a copy loses the flag
        each.setflags(write=False)
    return known[1:]


def of_fit(classifier: GraphClassifier) -> tuple[Array, Array, tuple[Kept, ...]]:
    """Class probabilities of all rows of `fit`, their errors, and what an update for new labels can start from."""
    seen = classifier._seen
    if seen.store is not None:
        return *in_memory(classifier), ()
    probability, error, kept = refreshed(classifier.posterior_, classifier._kept)
    if seen.has_features:
        probability, error = (average_equal(each, seen.fingerprints) for each in (probability, error))
    return probability, error, kept


def accuracy(classifier: GraphClassifier, X: Any, y: Any, sample_weight: Any) -> float:
    """Weighted share of right answers among the rows of X whose class is given."""
    warn_of_order(X, y)
    check_consistent_length(weights_of(classifier, X), y, sample_weight)
    truth = read_labels(y, classes=classifier.classes_, others=True)
    if not truth.nodes.size:
        raise ValueError("No row of y has a class to compare with.")
    right = uncertainty.most_probable(classifier.predict_proba(X))[truth.nodes] == truth.y
    weights = None
    if sample_weight is not None:
        weights = np.ravel(expect_numbers(sample_weight, "sample_weight"))[truth.nodes]
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
            raise ValueError("sample_weight must be finite numbers, 0 or above and not all 0.")
    return float(np.average(right, weights=weights))


def in_memory(classifier: GraphClassifier) -> tuple[Array, Array]:
    """Class probabilities of all rows of `fit` and their errors, shape (n_rows, n_classes) each."""
    n_rows, n_classes = classifier.graph_.n_nodes, len(classifier.classes_)
    check_room(16.0 * n_rows * n_classes, f"An answer for each of {n_rows:,} rows", "Use write_proba.")
    probability, error = np.empty((2, n_rows, n_classes))
    basis, ask = _question(classifier)
    for rows, block in zip(basis.slices(), each_block(basis, ask), strict=True):
        probability[rows], error[rows] = block
    return probability, error


def at(
    classifier: GraphClassifier, nodes: NDArray[np.int64], new: NDArray[np.bool_], where: NewRows | None
) -> Classes:
    """Class probabilities at rows matched by `locate`; rows of `fit` get the probabilities they have there."""
    probability, error = np.empty((2, len(nodes), len(classifier.classes_)))
    if not new.all():
        known = _at_nodes(classifier, nodes[~new])
        probability[~new], error[~new] = known.probability, known.error
    if where is not None:
        fresh = classifier.posterior_.classes(where)
        probability[new], error[new] = fresh.probability, fresh.error
        if where.nearest is not None and where.share is not None:
            # Interpolate: a new row close to a row of the fit gets nearly its probabilities.
            share, near = where.share[:, None], _at_nodes(classifier, where.nearest)
            probability[new] = (1 - share) * fresh.probability + share * near.probability
    return Classes(probability, error)


def _at_nodes(classifier: GraphClassifier, nodes: NDArray[np.int64]) -> Classes:
    """Class probabilities at rows of `fit`; for a store, without computing those of all rows."""
    if classifier._cached is None and classifier._seen.store is not None:
        return classifier.posterior_.classes(nodes)
    probability, error = cached(classifier)
    return Classes(probability[nodes], error[nodes])


def of_store(classifier: GraphClassifier, X: Any) -> Array:
    """Class probabilities of rows in a store, as an array in memory."""
    X, ask = _new_question(classifier, X)
    with stages_told(classifier.verbose) as tell:
        return np.concatenate([probability for probability, _ in _evaluate(classifier, X, ask, X.slices(), tell)])


def _evaluate(
    classifier: GraphClassifier, X: Tall, ask: Any, chosen: list[slice], tell: Callable[[str], None]
) -> Iterator[Any]:
    """Evaluate `ask` on the chosen blocks of X, reporting progress."""
    if chosen:
        tell(f"answers of {sum(rows.stop - rows.start for rows in chosen):,} rows")
    return each_block(X, ask, chosen=chosen, shown=shows_bars(classifier), desc="answers")


def write(classifier: GraphClassifier, path: Any, X: Any = None, *, force: bool = False) -> Path:
    """Write class probabilities as Parquet files or a Zarr array; blocks already written are kept."""
    folder, force = expect_path(path), expect_flag(force, "force")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, where a folder is needed: choose another name.")
    refuse_foreign(folder, LEDGER)
    basis, ask = _known_question(classifier) if X is None else _new_question(classifier, X)
    if _is_zarr(folder):  # each block is one chunk, and all chunks have the same length
        basis = basis.evenly()
    ledger = _ledger(classifier, folder, basis, new=isinstance(ask, _AskNew))
    if force and folder.exists() and ledger.mismatch():
        shutil.rmtree(folder)
    with made_folder(folder), ledger.open(), stages_told(classifier.verbose) as tell:
        try:
            n_rows, slices, done = len(basis), basis.slices(), ledger.done()
            remaining = space(n_rows, len(classifier.classes_)) * (1 - len(done) / len(slices))
            check_disk(folder, remaining, "Writing all rows")
            make_writer = _zarr_writer if _is_zarr(folder) else _parquet_writer
            write_block = make_writer(folder, classifier.classes_, n_rows, slices[0].stop)
            numbers = [number for number in range(len(slices)) if number not in done]
            results = _evaluate(classifier, basis, ask, [slices[number] for number in numbers], tell)
            for number, (probability, extra) in zip(numbers, results, strict=True):
                write_block(number, slices[number], probability)
                mark = extra if isinstance(ask, _AskNew) else 0  # rows of `fit` need no checksum
                ledger.append(number, mark)
        finally:
            if not ledger.begun:
                _remove_unbegun(folder)
    return folder


def _ledger(classifier: GraphClassifier, folder: Path, basis: Tall, *, new: bool) -> Ledger:
    """The ledger of this fit and these rows; `new` rows are identified by a checksum of their features."""
    slices = basis.slices()
    of = key(classifier, classifier.labels_, classifier._seen.store)
    question = {"form": FORM, "rows": len(basis), "blocks": len(slices), "of": of}
    question |= {"new": new, "fields": _identifying_fields(classifier)}

    def marks(numbers: list[int]) -> Iterable[int]:
        return each_block(basis, _checksum, chosen=[slices[k] for k in numbers]) if new else [0] * len(numbers)

    return Ledger(folder, question, partial(_block_file, folder), marks)


@dataclass(frozen=True, eq=False)
class _Ask:
    """Map a block of rows of the prior's basis to class probabilities and their errors."""

    posterior: Any
    nodes: NDArray[np.int64]  # nodes that the model observes, whose probabilities are known
    labeled: tuple[Array, Array]
    precision: type[np.floating]

    def __call__(self, rows: slice, basis: Array) -> tuple[Array, Array]:
        # a GPU prefers few large calls; a CPU, parts that fit its cache
        whole = _accelerator.has_gpu()
        stacked = self._of_part(basis) if whole else in_parts(self._of_part, basis, 2 * self.labeled[0].shape[1])
        probability, error = np.split(stacked, 2, axis=1)
        inside = np.flatnonzero((self.nodes >= rows.start) & (self.nodes < rows.stop))
        for answer, known in zip((probability, error), self.labeled, strict=True):
            answer[self.nodes[inside] - rows.start] = known[inside]
        return probability, error

    def _of_part(self, basis: Array) -> Array:
        classes = self.posterior.classes(NewRows(basis.astype(self.precision, copy=False)))
        return np.hstack([classes.probability, classes.error])


def _question(classifier: GraphClassifier) -> tuple[Tall, _Ask]:
    """The prior's basis at all rows, with the modes that some component uses, and the function of its blocks."""
    posterior: Any = classifier.posterior_
    parts = posterior.components
    columns = classifier._seen.columns
    n_first = 0 if columns is None else columns.shape[1]
    n_modes = max(2, max(part.prior.columns.stop for part in parts) - n_first)
    vectors = classifier.spectrum_.vectors[:, :n_modes]
    basis = tall(classifier._seen.basis(vectors))
    # a model may observe more than the labeled nodes (Ginzburg-Landau observes all): these are not new rows either
    nodes = reduce(np.union1d, (part.whitening.nodes for part in parts), classifier.labels_.nodes)
    known = posterior.classes(nodes)
    components = tuple(_lightweight(part, nodes) for part in parts)
    light = components[0]
    if isinstance(posterior, Mixture):
        light = replace(posterior, components=components, drawn_from=None, learned=None)
    single = all(isinstance(part, GaussianPosterior) and part.blurred for part in parts)
    return basis, _Ask(light, nodes, (known.probability, known.error), np.float32 if single else np.float64)


def _known_question(classifier: GraphClassifier) -> tuple[Tall, Any]:
    """The question whose answers are those of the rows of the fit; with features in memory they are known."""
    if classifier._seen.store is not None:
        return _question(classifier)
    return replace(tall(classifier.label_distributions_), in_memory=True), lambda rows, known: (known, None)


@dataclass(frozen=True, eq=False)
class _AskNew:
    """Map a block of new rows of features to class probabilities and a checksum of the rows."""

    classifier: GraphClassifier

    def __call__(self, rows: slice, X: Array) -> tuple[Array, int]:
        check_finite(rows, X)
        try:
            probability = in_parts(self.classifier.predict_proba, X, len(self.classifier.classes_))
        except RowError as error:
            raise error.after(rows.start) from None
        return probability, _checksum(rows, X)


def _checksum(rows: slice, X: Array) -> int:
    """A checksum that identifies a block of rows."""
    return crc32(np.ascontiguousarray(X).data)


def _new_question(classifier: GraphClassifier, X: Any) -> tuple[Tall, Any]:
    """New rows as a `Tall`, and the function of its blocks.

    Blocks are evaluated in this process if the eigenvectors of the fit are in memory, otherwise anywhere.
    """
    seen, names = classifier._seen, getattr(classifier, "feature_names_in_", ())
    if not (is_store(X) or isinstance(X, str | Path | np.memmap)):
        X, names = read_features(classifier, X, reset=False, ensure_all_finite=False), ()
        if not seen.has_features and (seen.nodes(X, labeled=classifier.labels_.nodes) >= 0).all():
            return _known_question(classifier)  # weights identify the rows of the fit only as a whole matrix
    X = tall(X).with_columns(classifier.n_features_in_, names if seen.store is None else seen.store.names)
    light = copy(classifier)
    light.__dict__.pop("feature_names_in_", None)  # blocks are plain arrays, without names
    if isinstance(classifier.spectrum_.vectors, Tall):
        light._cached, light._kept = None, ()  # keep these out of what is sent to every process
    else:
        X = replace(X, in_memory=True)
    first = slice(0, 1)
    check_finite(first, X.rows(first))
    light.predict_proba(X.rows(first))  # fail early, and fill the caches that all blocks need
    return X, _AskNew(light)


def _lightweight(posterior: Any, nodes: NDArray[np.int64]) -> Any:
    """Copy of a posterior without the matrix of all rows, cheap to send to other processes."""
    vectors = posterior.prior.vectors
    prior = replace(posterior.prior, vectors=some_rows(vectors[nodes], nodes, len(vectors)))
    return replace(posterior, whitening=replace(posterior.whitening, prior=prior))


def space(n_rows: int, n_classes: int) -> float:
    """Upper bound on the bytes that the results take on disk."""
    return 8.0 * (n_classes + 2) * n_rows


def key(classifier: GraphClassifier, labels: Labels, X: Tall | None) -> str:
    """A digest of settings, labels and features; for a store, of a sample of its rows and its stamp."""
    settings = {
        name: re.sub(" at 0x[0-9a-f]+", "", repr(value))  # a function's address differs between runs
        for name, value in classifier.get_params().items()
        if name != "verbose"
    }
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    weights = np.empty(0) if labels.weights is None else labels.weights
    for array in (labels.nodes, labels.y, weights, np.array(labels.classes.tolist(), dtype=str)):
        digest.update(np.ascontiguousarray(array).tobytes())
    if X is None:
        digest.update(b"".join(classifier._seen.fingerprints))
    else:
        digest.update(X[spread(len(X))].tobytes() + X.stamp.encode())
    return digest.hexdigest()


def _identifying_fields(classifier: GraphClassifier) -> list[float]:
    """Numbers that identify the posterior, from up to `TOLD_ROWS` labeled rows.

    Class probabilities, means over standard deviations, and log variances of the latent field: they depend on
    everything that was learned.
    """
    nodes = classifier.labels_.nodes
    probes = nodes[np.unique(np.linspace(0, len(nodes) - 1, TOLD_ROWS).astype(np.int64))]
    mean, variance = classifier.posterior_.moments(probes)
    variance = np.maximum(variance, np.finfo(float).tiny)
    fields = (classifier.posterior_.probability(probes), mean / np.sqrt(variance), np.log(variance))
    return np.concatenate([field.ravel() for field in fields]).round(6).tolist()


def _remove_unbegun(folder: Path) -> None:
    """Remove the files of this call from a folder into which no block was written."""
    shutil.rmtree(folder / "c", ignore_errors=True)
    with suppress(OSError):
        (folder / "zarr.json").unlink(missing_ok=True)
        if len(list(folder.iterdir())) == 1:  # else keep it: it marks files left by a killed call as ours
            (folder / LEDGER).unlink()


def _is_zarr(folder: Path) -> bool:
    return folder.suffix.lower() == ".zarr"


def _block_file(folder: Path, number: int) -> Path:
    """The file of a block."""
    return folder / (f"c/{number}/0" if _is_zarr(folder) else f"part-{number:06d}.parquet")


def plain(classes: NDArray[Any]) -> list[Any]:
    """Classes as files hold them; times as ISO text, because some of their units are converted to integers."""
    return [str(name) for name in classes] if classes.dtype.kind in "mM" else classes.tolist()


def _parquet_writer(
    folder: Path, classes: NDArray[Any], n_rows: int, chunk: int
) -> Callable[[int, slice, Array], None]:
    """A writer of Parquet files with columns row, class, its probability, and the probability of each class."""
    parquet = needed("pyarrow.parquet", "Parquet files need pyarrow", "parquet")
    import pyarrow

    names = plain(classes)
    values = pyarrow.array(names, type=pyarrow.uint64() if classes.dtype.kind == "u" else None)

    def write_block(number: int, rows: slice, probability: Array) -> None:
        best = uncertainty.most_probable(probability)
        columns = {
            "row": np.arange(rows.start, rows.stop),
            "class": pyarrow.DictionaryArray.from_arrays(best.astype(np.int32), values),
            "probability": probability[np.arange(len(probability)), best],
        }
        columns |= {f"p_{name}": probability[:, k] for k, name in enumerate(names)}
        with whole_file(_block_file(folder, number)) as part:
            parquet.write_table(pyarrow.table(columns), part, write_page_checksum=True)

    return write_block


def _zarr_writer(
    folder: Path, classes: NDArray[Any], n_rows: int, chunk: int
) -> Callable[[int, slice, Array], None]:
    """A writer of a Zarr array, shape (n_rows, n_classes), whose attributes name the classes."""
    (folder / "zarr.json").unlink(missing_ok=True)  # it has no checksum, so write it again
    array = create_zarr(folder, (n_rows, len(classes)), chunk)
    array.attrs["classes"] = plain(classes)

    def write_block(number: int, rows: slice, probability: Array) -> None:
        array[rows] = probability

    return write_block
