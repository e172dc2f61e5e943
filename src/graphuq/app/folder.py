"""A fitted classifier, what its rows are called and how it was made in; a folder out; and back.

    model.npz    all of it, sealed: the graph and its eigenpairs, the posterior, the answers, the rows, the record
    run.json     the record alone, for people and programs; it is not read again

Nothing in a folder is executed when it is loaded, and a model that was changed is refused.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from graphuq import __version__, archive
from graphuq.app.report.content import Rows
from graphuq.classes import Labels
from graphuq.estimator import GraphClassifier
from graphuq.feature_piece import FeaturePiece
from graphuq.files import recover
from graphuq.graph import Graph, LowRankGraph, cosine
from graphuq.graph.features import Features
from graphuq.graph.kernel import Kernel
from graphuq.learning.evidence import learned_basis
from graphuq.posterior.archive import pack, unpack
from graphuq.seen import Seen
from graphuq.spectrum.result import Spectrum

RUN, MODEL, REPORT, ANSWERS = "run.json", "model.npz", "report.html", "predictions.csv"
FORMAT = "graphuq model 2"
# What a model is made of beside its posterior and weights: stored field by field.
_PIECES: dict[str, Any] = {"features": Features, "kernel": Kernel, "linear": FeaturePiece, "spectrum": Spectrum}


def foreign(folder: Path) -> str | None:
    """The first thing in a folder that `write` did not put there, or None."""
    ours = {RUN, MODEL, REPORT, ANSWERS} if (folder / MODEL).is_file() else set()
    return next((path.name for path in sorted(folder.iterdir()) if path.name not in ours), None)


def refuse_objects(classifier: GraphClassifier) -> None:
    """Refuse settings that no file can keep."""
    for name, value in classifier.get_params().items():
        if not isinstance(value, str | int | float | None):
            raise ValueError(f"A folder cannot keep the setting {name} = {value!r}: give a name or a number.")
    if classifier.graph == "nystrom":
        raise ValueError(
            "A folder cannot keep the landmarks of the graph nystrom: choose knn, gaussian or cosine."
        )


def write(folder: Path, classifier: GraphClassifier, rows: Rows, record: dict[str, Any]) -> None:
    """Write model.npz and run.json. Eigenvectors are stored once."""
    graph: Any = classifier.graph_
    seen = classifier._seen
    found = {
        "features": getattr(graph, "features", None),
        "kernel": getattr(graph, "kernel", None),
        "linear": seen.linear,
        "spectrum": classifier.spectrum_,
        "table": rows,
    }
    facts: dict[str, Any] = {
        "record": record,
        "version": __version__,
        "settings": classifier.get_params(),
        "classes": [str(name) for name in classifier.classes_],
        "hyperparameters": classifier.hyperparameters_,
        "hyperparameter_spread": classifier.hyperparameter_spread_,
        "n_features": int(classifier.n_features_in_),
        "seed": seen.seed,
    }
    parts: dict[str, archive.Arrays] = {"weights": _weights(graph)}
    for part, piece in found.items():
        if piece is not None:
            facts[part], parts[part] = _apart(piece)
    facts["posterior"], parts["posterior"] = pack(classifier.posterior_, classifier.spectrum_.vectors)
    parts["rows"] = {
        "fingerprints": np.frombuffer(b"".join(seen.fingerprints), dtype=np.uint8).reshape(-1, 16),
        "probability": classifier.label_distributions_,
        "error": classifier.label_errors_,
        "linear": np.empty((graph.n_nodes, 0)) if seen.columns is None else seen.columns,
    }
    arrays = {f"{part} {name}": array for part, each in parts.items() for name, array in each.items()}
    archive.write(folder / MODEL, FORMAT, facts, arrays)
    (folder / RUN).write_text(json.dumps({"version": __version__, **record}, indent=1), encoding="utf-8")


def _apart(piece: Any) -> tuple[dict[str, Any], archive.Arrays]:
    """The fields of a dataclass: those that are no arrays, and the arrays."""
    values = {field.name: getattr(piece, field.name) for field in fields(piece) if field.init}
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    return {name: value for name, value in values.items() if name not in arrays}, arrays


def read(folder: Path) -> tuple[GraphClassifier, Rows, dict[str, Any]]:
    """The classifier, rows and record that `write` put there."""
    recover(folder)
    if not folder.is_dir():
        raise ValueError(f"There is no folder {folder}.")
    if not (folder / MODEL).exists():
        raise ValueError(f"{folder} holds no model: it has no {MODEL}.")
    facts, arrays = archive.read(folder / MODEL, FORMAT, "a model")
    if facts["version"] != __version__:
        raise ValueError(
            f"{folder} was written by graphuq {facts['version']}, and this is {__version__}: use that one, or fit again."
        )
    parts: dict[str, archive.Arrays] = defaultdict(dict)
    for name, array in arrays.items():
        part, rest = name.split(" ", 1)
        parts[part][rest] = array
    piece = {part: kind(**facts[part], **parts[part]) for part, kind in _PIECES.items() if part in facts}
    rows = parts["rows"]
    classifier = GraphClassifier(**facts["settings"])
    linear = piece.get("linear")
    classifier._seen = Seen(
        graph=_graph(parts["weights"], piece.get("features"), piece.get("kernel")),
        spectrum=piece["spectrum"],
        has_features=classifier.graph != "precomputed",
        linear=linear,
        columns=None if linear is None else rows["linear"],
        fingerprints=[row.tobytes() for row in rows["fingerprints"]],
        seed=facts["seed"],
        seconds={"spectrum": 0.0},  # nothing was computed here
    )
    classifier._learned = classifier.prior == "learned"
    classifier.classes_ = np.array(facts["classes"])
    classifier.hyperparameters_ = facts["hyperparameters"]
    classifier.hyperparameter_spread_ = facts["hyperparameter_spread"]
    classifier.n_features_in_ = facts["n_features"]
    vectors = classifier.spectrum_.vectors
    basis = learned_basis(rows["linear"], vectors) if classifier._learned else vectors
    posterior = unpack(facts["posterior"], parts["posterior"], basis=basis)
    model: Any = posterior.model
    classifier._believe(Labels(classifier.classes_, model.nodes, model.y), posterior)
    classifier._distributions, classifier._errors = rows["probability"], rows["error"]
    return classifier, Rows(**{**facts["table"], **parts["table"]}), facts["record"]


def _weights(graph: Graph | LowRankGraph) -> archive.Arrays:
    if isinstance(graph, LowRankGraph):
        return {"factor": graph.factor}  # of cosine weights: the only low-rank graph that is kept
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
