"""A fitted classifier in, a folder that can be checked and loaded again out; and back.

    model.npz    the graph and its eigenpairs, the posterior, and the answers
    run.json     what was asked, versions, and the sha256 of every file, its own included

Nothing in a folder is executed when it is loaded, and what was changed is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from graphuq import __version__, archive
from graphuq.classes import Labels
from graphuq.estimator import GraphClassifier
from graphuq.files import whole_file
from graphuq.graph import Graph, LowRankGraph, cosine
from graphuq.graph.features import Features
from graphuq.graph.kernel import Kernel
from graphuq.linear import LinearPiece
from graphuq.posterior.archive import pack, unpack
from graphuq.rows import first_rows
from graphuq.spectrum.result import Spectrum

RUN, MODEL = "run.json", "model.npz"
FORMAT = "graphuq model 1"
# What a model is made of beside its posterior and weights: stored field by field.
_PIECES: dict[str, Any] = {"features": Features, "kernel": Kernel, "linear": LinearPiece, "spectrum": Spectrum}


@contextmanager
def whole_folder(target: Path, *, replace: bool = False) -> Iterator[Path]:
    """A folder to write into, which becomes `target` if all goes well and vanishes if not.

    A folder that exists is left as it is, unless `replace` is set and it is empty or one of ours. Of a link the
    folder that it points to is written.
    """
    target = Path(os.path.realpath(target))
    if target.exists() and not replace:
        raise ValueError(f"{target} exists already: choose another folder, or replace it with --force.")
    if target.exists() and (foreign := _foreign(target)):
        raise ValueError(f"{target} holds something that graphuq did not write, {foreign}: it is not replaced.")
    home = next(parent for parent in target.parents if parent.exists())
    part = home / f".{target.name}.{uuid.uuid4().hex[:8]}.part"
    old = part.with_suffix(".old")
    try:
        part.mkdir()
        yield part
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            target.rename(old)
        try:
            part.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
    except OSError as error:
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error  # whole_file names its own file
        raise ValueError(f"{target} could not be written, and nothing was: {cause.strerror or cause}.") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _foreign(target: Path) -> str | None:
    """The first thing at `target` that `seal` does not name, or None."""
    if not target.is_dir():
        return target.name
    try:
        ours = {RUN, *json.loads((target / RUN).read_text(encoding="utf-8"))["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        ours = set()
    return next((path.name for path in sorted(target.iterdir()) if path.name not in ours), None)


def refuse_objects(classifier: GraphClassifier) -> None:
    """Refuse settings that no file can keep."""
    for name, value in classifier.get_params().items():
        if not isinstance(value, str | int | float | None):
            raise ValueError(f"A folder cannot keep the setting {name} = {value!r}: give a name or a number.")


def save_model(classifier: GraphClassifier, folder: Path) -> None:
    """Write the model; `seal` then makes it one with all other files. Eigenvectors are stored once."""
    graph: Any = classifier.graph_
    found: dict[str, Any] = {
        "features": getattr(graph, "features", None),
        "kernel": getattr(graph, "kernel", None),
        "linear": classifier._linear,
        "spectrum": classifier.spectrum_,
    }
    facts: dict[str, Any] = {
        "settings": classifier.get_params(),
        "classes": [str(name) for name in classifier.classes_],
        "hyperparameters": classifier.hyperparameters_,
        "hyperparameter_spread": classifier.hyperparameter_spread_,
        "n_features": int(classifier.n_features_in_),
        "seed": classifier._seed,
    }
    parts: dict[str, archive.Arrays] = {"weights": _weights(graph)}
    for part, piece in found.items():
        if piece is not None:
            facts[part], parts[part] = apart(piece)
    facts["posterior"], parts["posterior"] = pack(classifier.posterior_, classifier.spectrum_.vectors)
    parts["rows"] = {
        "fingerprints": np.frombuffer(b"".join(classifier._fingerprints), dtype=np.uint8).reshape(-1, 16),
        "probability": classifier.label_distributions_,
        "error": classifier.label_errors_,
        "linear": _linear_columns(classifier),
    }
    arrays = {f"{part} {name}": array for part, each in parts.items() for name, array in each.items()}
    archive.write(folder / MODEL, FORMAT, facts, arrays)


def apart(piece: Any) -> tuple[dict[str, Any], archive.Arrays]:
    """The fields of a dataclass: those that are no arrays, and the arrays."""
    values = {field.name: getattr(piece, field.name) for field in fields(piece) if field.init}
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    return {name: value for name, value in values.items() if name not in arrays}, arrays


def load_model(folder: Path, run: dict[str, Any]) -> GraphClassifier:
    """The classifier of a folder, its file checked against what `read_run` found."""
    check_files(folder, run, MODEL)
    facts, arrays = archive.read(folder / MODEL, FORMAT, "a model")
    parts: dict[str, archive.Arrays] = defaultdict(dict)
    for name, array in arrays.items():
        part, rest = name.split(" ", 1)
        parts[part][rest] = array
    piece = {part: kind(**facts[part], **parts[part]) for part, kind in _PIECES.items() if part in facts}
    rows = parts["rows"]
    classifier = GraphClassifier(**facts["settings"])
    classifier.graph_ = _graph(parts["weights"], piece.get("features"), piece.get("kernel"))
    classifier.spectrum_, classifier._linear = piece["spectrum"], piece.get("linear")
    classifier._learned = classifier.prior == "learned"
    classifier._fingerprints = [row.tobytes() for row in rows["fingerprints"]]
    classifier._rows = first_rows(classifier._fingerprints)
    classifier._seed = facts["seed"]
    classifier.classes_ = np.array(facts["classes"])
    classifier.hyperparameters_ = facts["hyperparameters"]
    classifier.hyperparameter_spread_ = facts["hyperparameter_spread"]
    classifier.n_features_in_ = facts["n_features"]
    posterior = unpack(facts["posterior"], parts["posterior"], basis=_basis(classifier, rows["linear"]))
    model: Any = posterior.model
    classifier._believe(Labels(classifier.classes_, model.nodes, model.y), posterior)
    classifier._distributions, classifier._errors = rows["probability"], rows["error"]
    return classifier


def _linear_columns(classifier: GraphClassifier) -> NDArray[np.float64]:
    """The columns linear in the features at the rows of the fit, shape (n_rows, n_linear); zeros where unused."""
    posterior: Any = classifier.posterior_
    n_linear = 0 if classifier._linear is None else classifier._linear.weights.shape[1]
    for each in getattr(posterior, "components", (posterior,)):
        if each.prior.first == 0:
            return np.asarray(each.prior.vectors[:, :n_linear])
    return np.zeros((posterior.n_nodes, n_linear))


def _basis(classifier: GraphClassifier, linear: NDArray[np.float64]) -> NDArray[np.float64]:
    """The columns of the prior: the eigenvectors; of a learned one linear columns, 1, and all of them but q_0."""
    vectors: NDArray[np.float64] = classifier.spectrum_.vectors
    if classifier.prior != "learned":
        return vectors
    return np.hstack([linear, np.ones((len(vectors), 1)), vectors[:, 1:]])


def _weights(graph: Graph | LowRankGraph) -> archive.Arrays:
    if isinstance(graph, LowRankGraph):
        return {"factor": graph.factor}  # of cosine weights: the only low-rank graph with a name
    weights = graph.weights
    if isinstance(weights, np.ndarray):
        return {"dense": weights}
    return {"data": weights.data, "indices": weights.indices, "indptr": weights.indptr}


def _graph(arrays: archive.Arrays, features: Features | None, kernel: Kernel | None) -> Graph | LowRankGraph:
    if "factor" in arrays:
        return cosine(arrays["factor"])
    weights: Any = arrays.get("dense")
    if weights is None:
        n_nodes = arrays["indptr"].size - 1
        weights = csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=(n_nodes, n_nodes))
    return Graph(weights, features, kernel)


def seal(folder: Path, record: dict[str, Any]) -> None:
    """Write run.json: the record, and the checksum of everything."""
    files = {path.name: sha256(path) for path in sorted(folder.iterdir()) if path.name != RUN}
    write_run(folder, {"version": __version__, **record, "files": files})


def write_run(folder: Path, run: dict[str, Any]) -> None:
    """Write run.json with its own checksum, whole or not at all."""
    with whole_file(folder / RUN) as part:
        part.write_text(_sealed(run), encoding="utf-8")


def read_run(folder: Path) -> dict[str, Any]:
    """What run.json says, checked against its version and its checksum."""
    if not folder.is_dir():
        raise ValueError(f"There is no folder {folder}.")
    try:
        text = (folder / RUN).read_text(encoding="utf-8")
        run = json.loads(text)
        version = run["version"]
        del run["sha256"]
    except FileNotFoundError:
        raise ValueError(f"{folder} holds no model: it has no {RUN}.") from None
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise ValueError(f"{folder / RUN} is damaged: fit again.") from None
    if version != __version__:
        raise ValueError(
            f"{folder} was written by graphuq {version}, and this is {__version__}: use that one, or fit again."
        )
    if text != _sealed(run):
        raise ValueError(f"{folder / RUN} was changed since it was written: fit again.")
    return dict(run)


def check_files(folder: Path, run: dict[str, Any], *names: str) -> None:
    """Refuse files that are not those that were written."""
    for name in names:
        path = folder / name
        if name not in run["files"] or not path.exists():
            raise ValueError(f"{path} is missing: fit again.")
        if sha256(path) != run["files"][name]:
            raise ValueError(f"{path} was changed since it was written: fit again.")


def sha256(path: Path) -> str:
    """The checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sealed(run: dict[str, Any]) -> str:
    """The text of run.json."""
    digest = hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()
    return json.dumps({**run, "sha256": digest}, indent=1, allow_nan=False)
