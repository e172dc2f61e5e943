"""A fitted classifier in, a folder that can be checked and loaded again out; and back.

    graph.npz       the nodes, their weights, and how new rows get theirs
    spectrum.npz    eigenpairs
    posterior.nc    draws, prior and model
    run.json        settings, versions, and the sha256 of every file, its own included

Nothing in a folder is executed when it is loaded, and what was changed is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from graphuq import __version__
from graphuq.classes import Labels
from graphuq.estimator import GraphClassifier
from graphuq.files import whole_file
from graphuq.graph import Graph, LowRankGraph, cosine
from graphuq.graph.features import Features
from graphuq.graph.kernel import Kernel
from graphuq.posterior import Posterior
from graphuq.rows import first_rows
from graphuq.spectrum.result import Spectrum

RUN = "run.json"
MODEL_FILES = ("graph.npz", "spectrum.npz", "posterior.nc")


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


def save_model(classifier: GraphClassifier, folder: Path) -> None:
    """Write the model files; `seal` then makes them one."""
    _save_graph(classifier, folder / "graph.npz")
    classifier.spectrum_.save(folder / "spectrum.npz")
    classifier.posterior_.save(folder / "posterior.nc")


def seal(classifier: GraphClassifier, folder: Path, record: dict[str, Any]) -> None:
    """Write run.json: what is needed to load the model, `record`, and the checksum of everything."""
    run = {
        "version": __version__,
        "classifier": {
            "settings": classifier.get_params(),
            "classes": [str(name) for name in classifier.classes_],
            "hyperparameters": classifier.hyperparameters_,
            "hyperparameter_spread": classifier.hyperparameter_spread_,
            "n_features": int(classifier.n_features_in_),
        },
        **record,
        "files": {path.name: sha256(path) for path in sorted(folder.iterdir()) if path.name != RUN},
    }
    write_run(folder, run)


def write_run(folder: Path, run: dict[str, Any]) -> None:
    """Write run.json with its own checksum, whole or not at all."""
    run = {name: value for name, value in run.items() if name != "sha256"}
    text = json.dumps({**run, "sha256": _digest(run)}, indent=1, allow_nan=False)
    with whole_file(folder / RUN) as part:
        part.write_text(text, encoding="utf-8")


def read_run(folder: Path) -> dict[str, Any]:
    """What run.json says, checked against its version and its checksum."""
    if not folder.is_dir():
        raise ValueError(f"There is no folder {folder}.")
    try:
        run = json.loads((folder / RUN).read_text(encoding="utf-8"))
        version, digest = run["version"], run.pop("sha256")
    except FileNotFoundError:
        raise ValueError(f"{folder} holds no model: it has no {RUN}.") from None
    except (ValueError, KeyError, AttributeError, TypeError):
        raise ValueError(f"{folder / RUN} is damaged: fit again.") from None
    if version != __version__:
        raise ValueError(
            f"{folder} was written by graphuq {version}, and this is {__version__}: use that one, or fit again."
        )
    if _digest(run) != digest:
        raise ValueError(f"{folder / RUN} was changed since it was written: fit again.")
    return dict(run)


def check_files(folder: Path, run: dict[str, Any], names: tuple[str, ...]) -> None:
    """Refuse files that are not those that were written."""
    for name in names:
        path = folder / name
        if name not in run["files"] or not path.exists():
            raise ValueError(f"{path} is missing: fit again.")
        if sha256(path) != run["files"][name]:
            raise ValueError(f"{path} was changed since it was written: fit again.")


def load_model(folder: Path) -> GraphClassifier:
    """The classifier of a folder, every file checked."""
    run = read_run(folder)
    check_files(folder, run, MODEL_FILES)
    facts = run["classifier"]
    classifier = GraphClassifier(**facts["settings"])
    classifier.graph_, classifier._fingerprints = _load_graph(folder / "graph.npz")
    classifier._rows = first_rows(classifier._fingerprints)
    classifier.spectrum_ = Spectrum.load(folder / "spectrum.npz")
    posterior = Posterior.load(folder / "posterior.nc")
    classifier.classes_ = np.array(facts["classes"])
    classifier.hyperparameters_ = facts["hyperparameters"]
    classifier.hyperparameter_spread_ = facts["hyperparameter_spread"]
    classifier.n_features_in_ = facts["n_features"]
    model: Any = posterior.model
    classifier._seed = posterior.settings["seed"]
    classifier._believe(Labels(classifier.classes_, model.nodes, model.y), model, posterior)
    return classifier


def _save_graph(classifier: GraphClassifier, path: Path) -> None:
    graph, arrays = classifier.graph_, dict[str, NDArray[Any]]()
    if isinstance(graph, LowRankGraph):
        arrays["unit_rows"] = graph.factor  # of cosine weights: the only low-rank graph of a classifier
    else:
        weights = graph.weights
        if isinstance(weights, np.ndarray):
            arrays["weights"] = weights
        else:
            arrays |= {"data": weights.data, "indices": weights.indices, "indptr": weights.indptr}
        if graph.features is not None and graph.kernel is not None:
            arrays |= {"points": graph.features.points, "mean": graph.features.mean}
            arrays["tau"] = np.asarray(graph.kernel.tau)
            optional = {
                "components": graph.features.components,
                "n_neighbors": graph.kernel.n_neighbors,
                "radii": graph.kernel.radii,
            }
            arrays |= {name: np.asarray(value) for name, value in optional.items() if value is not None}
    arrays["rows"] = np.frombuffer(b"".join(classifier._fingerprints), dtype=np.uint8).reshape(-1, 16)
    np.savez(path, **arrays)  # type: ignore[arg-type]


def _load_graph(path: Path) -> tuple[Graph | LowRankGraph, list[bytes]]:
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    rows = [row.tobytes() for row in arrays["rows"]]
    if "unit_rows" in arrays:
        return cosine(arrays["unit_rows"]), rows
    weights = arrays.get("weights")
    if weights is None:
        n_nodes = arrays["indptr"].size - 1
        weights = csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=(n_nodes, n_nodes))
    if "points" not in arrays:
        return Graph(weights), rows
    tau = arrays["tau"]
    kernel = Kernel(
        tau if tau.ndim else float(tau),
        int(arrays["n_neighbors"]) if "n_neighbors" in arrays else None,
        arrays.get("radii"),
    )
    return Graph(weights, Features(arrays["points"], arrays["mean"], arrays.get("components")), kernel), rows


def sha256(path: Path) -> str:
    """The checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(run: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()
