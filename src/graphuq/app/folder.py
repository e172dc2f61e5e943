"""A fitted classifier, its row names and a record of the run in; a folder out; and back.

    model.npz    everything, with a checksum: graph, eigenpairs, posterior, probabilities, rows, record
    run.json     the record alone, for people and programs; never read back

A model fitted to a store can be used without the store. For cosine and Nystrom graphs, eigenvectors are functions
of the features: the folder keeps these functions, the labeled rows and a representative sample. For
nearest-neighbor graphs it keeps all rows and eigenvectors, which are memory-mapped and read only where a new row
has its neighbors.

Loading a folder executes no code, and a modified model raises an error.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.utils.validation import check_is_fitted

from graphuq import __version__, archive
from graphuq._expect import expect, expect_path
from graphuq.app.report.content import TableRows
from graphuq.classes import Labels
from graphuq.estimator import GraphClassifier
from graphuq.estimator.answers import TOLD_ROWS
from graphuq.estimator.seen import Seen
from graphuq.estimator.settings import made_with, refuse_changed
from graphuq.feature_piece import FeaturePiece
from graphuq.files import recover, write_text
from graphuq.graph import Graph, LowRankGraph
from graphuq.graph.features import Features
from graphuq.graph.kernel import Kernel
from graphuq.graph.low_rank import Landmarks, UnitRows
from graphuq.models import unlabeled
from graphuq.posterior.archive import pack, unpack
from graphuq.spectrum.factored import Eigenrows
from graphuq.spectrum.result import Spectrum
from graphuq.tall import Tall, numbered, some_rows, spread, tall

FILES = RUN, MODEL, REPORT, ANSWERS = "run.json", "model.npz", "report.html", "predictions.csv"
FORMAT = "graphuq model 8"
# Dataclasses of a model besides its posterior and weights, stored field by field.
_PIECES: dict[str, Any] = {
    "features": Features, "kernel": Kernel, "linear": FeaturePiece, "spectrum": Spectrum, "table": TableRows,
    "unit": UnitRows, "landmarks": Landmarks, "eigenrows": Eigenrows,
}  # fmt: skip
# Arrays of a store's model that are memory-mapped.
_MAPPED = ("rows features", "rows vectors")


class Stored(NamedTuple):
    """A fit read from a folder: the classifier, the table's rows for the report, and the record in run.json."""

    classifier: GraphClassifier
    rows: TableRows
    record: dict[str, Any]


def foreign(folder: Path) -> str | None:
    """The first entry of a folder that `write` did not create, or None."""
    ours = {RUN, MODEL, REPORT, ANSWERS} if (folder / MODEL).is_file() else set()
    return next((path.name for path in sorted(folder.iterdir()) if path.name not in ours), None)


def refuse_objects(classifier: GraphClassifier) -> None:
    """Raise an error for parameters that cannot be stored in a file."""
    for name, value in classifier.get_params().items():
        if not isinstance(value, str | int | float | Mapping | None):
            raise ValueError(f"A folder cannot keep the setting {name} = {value!r}: give a name or a number.")


def space(classifier: GraphClassifier, X: Tall) -> float:
    """Upper bound on the bytes of a model fitted to a store."""
    per_row = 8.0 * X.shape[1]
    if classifier.graph == "knn":  # eigenvectors, degrees, scales and radii, and edges from either side
        per_row += 8.0 * (classifier.n_modes + 3) + 2 * 12.0 * classifier.n_neighbors
    return per_row * len(_kept_rows(classifier, len(X)))


def write(folder: Path, classifier: GraphClassifier, rows: TableRows | None = None, record: Any = None) -> None:
    """Write model.npz and run.json. Eigenvectors are stored once."""
    folder = expect_path(folder, "folder")
    expect(classifier, GraphClassifier, "classifier", "a GraphClassifier, such as the last step of a pipeline")
    check_is_fitted(classifier)
    refuse_objects(classifier)
    for stale in (ANSWERS, REPORT):
        if (folder / stale).exists():
            raise ValueError(f"{folder} holds {stale} of the model there, not of this one: choose another folder.")
    refuse_changed(classifier)
    graph: Any = classifier.graph_
    seen, shares, record = classifier._seen, classifier.class_shares, {} if record is None else record
    if isinstance(shares, Mapping):  # in the form that JSON keeps: by the text of the class
        shares = {str(name): float(share) for name, share in shares.items()}
    facts: dict[str, Any] = {
        "record": record,
        "version": __version__,
        "settings": classifier.get_params() | {"class_shares": shares},
        "hyperparameters": classifier.hyperparameters_,
        "hyperparameter_spread": classifier.hyperparameter_spread_,
        "n_features": int(classifier.n_features_in_),
        "names": list(getattr(classifier, "feature_names_in_", ())),
        "seed": seen.seed,
    }
    pieces: dict[str, Any] = {"linear": seen.linear, "spectrum": seen.spectrum, "table": rows or TableRows(())}
    parts: dict[str, archive.Arrays] = {"labels": {"classes": classifier.classes_}}
    if isinstance(graph, Graph):
        parts["weights"] = _arrays(graph.weights)
        pieces |= {"features": graph.features, "kernel": graph.kernel}
    else:
        parts["weights"] = {"total": graph.total, **_arrays(graph.factor)}
        facts["least degree"], features = graph.least_degree, getattr(graph.feature_map, "features", None)
        pieces |= {"landmarks" if features else "unit": graph.feature_map, "features": features}
    if seen.store is None:
        parts["rows"] = {
            "fingerprints": np.frombuffer(b"".join(seen.fingerprints), dtype=np.uint8).reshape(-1, 16),
            "probability": classifier.label_distributions_,
            "error": classifier.label_errors_,
            "linear": np.empty((graph.n_nodes, 0)) if seen.columns is None else seen.columns,
        }
    else:
        nodes = np.union1d(classifier.labels_.nodes, _kept_rows(classifier, graph.n_nodes))
        parts["rows"] = {"nodes": nodes, "features": seen.store.rows(nodes)}
        facts["store"] = {"n_rows": graph.n_nodes, "names": seen.store.names, "stamp": seen.store.stamp}
        modes, points = pieces["spectrum"], pieces["features"]
        if isinstance(graph, Graph):
            parts["rows"]["vectors"] = modes.vectors
            pieces |= {"spectrum": replace(modes, vectors=None), "features": replace(points, points=None)}
        else:
            pieces["eigenrows"] = modes.vectors.source.function
    for part, piece in pieces.items():
        if piece is not None:
            facts[part], parts[part] = _split(piece)
    facts["posterior"], parts["posterior"] = pack(classifier.posterior_)
    arrays = {f"{part} {name}": array for part, group in parts.items() for name, array in group.items()}
    folder.mkdir(parents=True, exist_ok=True)
    archive.write(folder / MODEL, FORMAT, facts, arrays)
    write_record(folder, record)


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Write run.json."""
    write_text(folder / RUN, json.dumps({"version": __version__, **record}, indent=1))


def read(folder: Path, *, store: Any = None) -> Stored:
    """Read what `write` wrote; if the fitted `store` is given, the classifier uses all its rows."""
    folder = expect_path(folder, "folder")
    recover(folder)
    if not folder.is_dir():
        raise ValueError(f"There is no folder {folder}.")
    if not (folder / MODEL).exists():
        raise ValueError(f"{folder} holds no model: it has no {MODEL}.")
    facts, arrays = archive.read(folder / MODEL, FORMAT, "a model", mapped=_MAPPED)
    if facts["version"] != __version__:
        raise ValueError(
            f"{folder} was written by graphuq {facts['version']}, and this is {__version__}: use that one, or fit again."
        )
    parts: dict[str, archive.Arrays] = defaultdict(dict)
    for name, array in arrays.items():
        part, rest = name.split(" ", 1)
        parts[part][rest] = array

    def build(part: str, **overrides: Any) -> Any:
        return _PIECES[part](**{**facts[part], **parts[part], **overrides}) if part in facts else None

    rows, features, linear = parts["rows"], build("features"), build("linear")
    if store is not None:
        store = tall(store)
        _check_store(folder, store, facts, rows)
    X = store
    if "store" in facts:
        X = X or some_rows(rows["features"], rows["nodes"], **facts["store"])
        if features is not None and features.points is None:
            features = replace(features, points=features.project(rows["features"]))
    graph: Any
    if "least degree" in facts:
        feature_map = build("unit") or build("landmarks", features=features)
        rank = feature_map.rank
        factor = _matrix(parts["weights"], n_columns=rank) if X is None else X.mapped(feature_map, rank)
        graph = LowRankGraph(factor, parts["weights"]["total"], feature_map, facts["least degree"])
    else:
        graph = Graph(_matrix(parts["weights"]), features, build("kernel"))
    overrides: Any = {}
    if X is not None and isinstance(graph, Graph):
        overrides = {"vectors": rows["vectors"]}
    elif X is not None:
        vectors = build("eigenrows", times=graph.feature_map.times)
        overrides = {"vectors": X.mapped(vectors, len(vectors.constant)), "degrees": graph.degrees}
    classifier = GraphClassifier(**facts["settings"])
    classifier._seen = Seen(
        graph=graph,
        spectrum=build("spectrum", **overrides),
        linear=linear,
        columns=None if linear is None else rows["linear"] if X is None else linear.columns(X),
        fingerprints=[row.tobytes() for row in rows.get("fingerprints", ())],
        seed=facts["seed"],
        made_with=made_with(classifier),
        seconds={"spectrum": 0.0},  # nothing was computed here
        store=X,
    )
    classifier.classes_ = parts["labels"]["classes"]
    classifier.hyperparameters_ = facts["hyperparameters"]
    classifier.hyperparameter_spread_ = facts["hyperparameter_spread"]
    classifier.n_features_in_ = facts["n_features"]
    if names := facts.get("names"):
        classifier.feature_names_in_ = np.array(names, dtype=object)
    basis = classifier._seen.basis(classifier.spectrum_.vectors)
    posterior = unpack(facts["posterior"], parts["posterior"], basis)
    model: Any = posterior.model
    classifier.labels_ = Labels(classifier.classes_, model.nodes, model.y, model.weights)
    classifier.posterior_ = posterior
    classifier._cached = (posterior, rows["probability"], rows["error"]) if X is None else None
    return Stored(classifier, build("table"), facts["record"])


def _check_store(folder: Path, store: Tall, facts: dict[str, Any], rows: archive.Arrays) -> None:
    """Raise an error if the size or a sample of the rows of a store differ from those fitted."""
    same = "store" in facts and store.shape == (facts["store"]["n_rows"], facts["n_features"])
    if same:
        probes = np.linspace(0, len(rows["nodes"]) - 1, TOLD_ROWS).astype(np.int64)
        same = np.array_equal(store.rows(rows["nodes"][probes]), rows["features"][probes])
    if not same:
        raise ValueError(
            f"{folder} holds the model of other features than this store has: give the store that was fitted, or fit again "
            "to another folder."
        )


def _kept_rows(classifier: GraphClassifier, n_rows: int) -> NDArray[np.int64]:
    """The rows of a store that its model needs, besides the labeled ones."""
    every = classifier.graph == "knn" or unlabeled(classifier.model, classifier).sees_all_nodes
    return numbered(slice(None) if every else spread(n_rows), n_rows)


def _split(piece: Any) -> tuple[dict[str, Any], archive.Arrays]:
    """Split the fields of a dataclass into JSON values and arrays; other fields are rebuilt from these."""
    values = {field.name: getattr(piece, field.name) for field in fields(piece) if field.init}
    plain = {
        name: value for name, value in values.items() if isinstance(value, str | int | float | list | tuple | None)
    }
    return plain, {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


def _arrays(matrix: Any) -> archive.Arrays:
    """The arrays of a dense or CSR matrix; empty for a `Tall`, which is rebuilt from the store."""
    if isinstance(matrix, Tall):
        return {}
    if isinstance(matrix, np.ndarray):
        return {"dense": matrix}
    return {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}


def _matrix(arrays: archive.Arrays, n_columns: int | None = None) -> Any:
    """Rebuild the matrix of `_arrays`; square unless `n_columns` is given."""
    if "dense" in arrays:
        return arrays["dense"]
    n_rows = arrays["indptr"].size - 1
    shape = (n_rows, n_rows if n_columns is None else n_columns)
    return csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape)
