"""Fig. 8: label means of hyperspectral scenes by projection, by approximation and exactly; how far they are apart.

The paper's video is not public. In its place are a synthetic video of the same size, whose gas is known, and a
real scene, Indian Pines. Their cosine graphs have rank 129 and 200: every other eigenvalue is exactly 1, so the
posterior of the full prior can be sampled, which the paper could not.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from experiments import scene_claims, scene_maps
from experiments.experiment import Claim, Record, Trial

if TYPE_CHECKING:
    from experiments.scenes import Scene
    from graphuq.posterior import LabelStatistics

TITLE = "uncertainty in hyperspectral scenes (synthetic plume; Indian Pines)"
CONCENTRATIONS = (0.0, 0.01, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.2, np.inf)
N_SHOWN = 3  # the last frames, as in the paper


@dataclass(frozen=True)
class Config:
    """The paper's values; the Ginzburg-Landau model has those of its appendix, since none are printed here."""

    runs: tuple[tuple[str, str], ...] = tuple(scene_maps.TITLES)  # scene and kind of labels
    n_frames: int = 7
    height: int = 128
    width: int = 320
    share_labeled: float = 8000 / 286_720
    n_modes: int = 40
    lambda_bar: float = 1.0
    gamma: float = 0.1
    red: float = 0.4
    gamma_gl: float = 1.0
    epsilon_gl: float = 1.0
    gamma_constant: float = 1.0  # of the projection with q_0; at 0.1 its chains do not mix
    n_chains: int = 4
    n_draws_projection: int = 1300  # of each chain, a quarter of which is cut off
    n_draws_tail: int = 200


FULL = Config()
QUICK = Config(
    runs=(("plume", "clusters"), ("plume", "truth"), ("pines", "truth")),
    height=24,
    width=60,
    n_draws_projection=240,
    n_draws_tail=60,
)


def trials(config: Config) -> list[Trial]:
    return [{"scene": scene, "labels": labels} for scene, labels in config.runs]


def run(config: Config, trial: Trial) -> dict[str, Any]:
    """Three posteriors and one mode of one scene with one kind of labels."""
    from experiments import scenes

    try:
        scene = _scene(config, trial["scene"])
    except ImportError as error:  # the rest of the figure can do without the package that carries Indian Pines
        return {**trial, "missing": str(error)}
    y = scene.labels(trial["labels"])
    rng = np.random.default_rng(0)
    nodes = rng.choice(np.flatnonzero(y), round(config.share_labeled * len(y)), replace=False)
    rest = np.setdiff1d(np.arange(len(y)), nodes)
    known = rest[y[rest] != 0]
    # The classes that the labels are about, and the true ones: the same where labels are true.
    edges = {
        "own": scenes.near_edge(y, scene.shape, scenes.EDGE),
        "true": scenes.near_edge(scene.truth, scene.shape, scenes.EDGE),
    }
    found, posteriors = {}, {}
    for method in scenes.METHODS:
        began = time.perf_counter()
        labels, diagnostics = _posterior(config, scene, nodes, y, method)
        posteriors[method] = labels
        red = np.abs(labels.mean) < config.red
        wrong = np.sign(labels.mean[known]) != y[known]
        found[method] = {
            **diagnostics,
            "seconds": time.perf_counter() - began,
            "red": red[rest].mean(),
            "error": labels.error[rest].mean(),
            "edges": {name: _near(edge[rest], red[rest]) for name, edge in edges.items()},
            "wrong": wrong.mean(),
            "wrong_given_red": wrong[red[known]].mean() if red[known].any() else None,
            "by_concentration": _by_concentration(scene, labels.mean, rest),
            "map": scenes.pack(_shown(scene, labels.mean)),
        }
    gl = _ginzburg_landau(config, scene, nodes, y)
    exact = posteriors["exact"]
    return {
        **trial,
        "n_nodes": len(y),
        "n_labels": len(nodes),
        "n_modes_exact": scene.modes.n_modes,
        "lambda_1": scene.modes.values[1],
        "positive": np.mean(y[y != 0] > 0),
        "clusters_and_truth": np.mean((y == scene.truth)[scene.truth != 0]),
        "shape": [min(N_SHOWN, scene.shape[0]), *scene.shape[1:]],
        "methods": found,
        "distance": {
            method: _distance(posteriors[method], exact, rest) for method in ("projection", "approximation")
        },
        "gl": {
            "map": scenes.pack(_shown(scene, np.where(gl >= 0, 1, -1))),
            "as_projection": np.mean((gl >= 0) == (posteriors["projection"].mean >= 0)),
            "wrong": np.mean((gl[known] >= 0) != (y[known] > 0)),
        },
        "truth": scenes.pack(_shown(scene, scene.truth)),
    }


def _near(edge: NDArray[np.bool_], red: NDArray[np.bool_]) -> dict[str, Any]:
    """The share of pixels near an edge, among the red ones and among all."""
    return {"red": edge[red].mean() if red.any() else None, "all": edge.mean()}


def _scene(config: Config, name: str) -> Scene:
    from experiments import scenes

    if name == "pines":
        return scenes.indian_pines()
    return scenes.plume(config.n_frames, config.height, config.width)


def _posterior(
    config: Config, scene: Scene, nodes: NDArray[np.int64], y: NDArray[Any], method: str
) -> tuple[LabelStatistics, dict[str, Any]]:
    """Label means by one method, and how well the chains agree."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    from experiments.refractive import Refractive
    from graphuq import Orthant, Referenced, prior, sample
    from graphuq.models import LevelSet

    ell, bar = config.n_modes, config.lambda_bar
    mu0 = {
        "projection": lambda: prior.project(scene.modes, n_modes=ell),
        "approximation": lambda: prior.approximate(scene.modes, n_modes=ell, lambda_bar=bar),
        "exact": lambda: prior.full(scene.modes),
        "constant": lambda: prior.matern(scene.modes, n_modes=ell, tau=1.0, alpha=1.0),
    }[method]()
    tail = mu0.tail_variance > 0
    n_steps = config.n_draws_tail if tail else config.n_draws_projection
    gamma = config.gamma_constant if method == "constant" else config.gamma
    # On few modes walls are dense and their Gaussian is small; with a tail every label has its own coordinate.
    model = LevelSet(nodes, y[nodes], gamma=gamma)
    sampler = Orthant() if tail else Referenced(Refractive())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the record says it
        posterior = sample(mu0, model, sampler, n_steps=n_steps, n_warmup=0, n_chains=config.n_chains)
    # Neither sampler needs to adapt here: the way from the start, a quarter, is cut off instead of warmed up.
    kept = {name: getattr(posterior, name)[:, n_steps // 4 :] for name in ("z", "acceptance", "work")}
    posterior = replace(posterior, **kept)
    checked = posterior.diagnostics()
    modal = mu0.variances.sum() / mu0.n_nodes
    diagnostics = {"r_hat": checked.worst_r_hat, "ess": checked.ess_bulk.min(), "modal_variance": modal}
    return posterior.labels(), diagnostics


def _ginzburg_landau(
    config: Config, scene: Scene, nodes: NDArray[np.int64], y: NDArray[Any]
) -> NDArray[np.float64]:
    """The mode of Ginzburg-Landau on the same modes, from that of probit at the scale of the wells."""
    from graphuq import find_mode, prior
    from graphuq.models import GinzburgLandau, Probit

    mu0 = prior.project(scene.modes, n_modes=config.n_modes)
    start = find_mode(mu0, Probit(nodes, y[nodes], gamma=config.gamma)).u
    model = GinzburgLandau(nodes, y[nodes], gamma=config.gamma_gl, epsilon=config.epsilon_gl)
    return find_mode(mu0, model, start=start / np.sqrt(np.mean(start**2))).u


def _distance(one: LabelStatistics, exact: LabelStatistics, nodes: NDArray[np.int64]) -> dict[str, float]:
    """The mean of ``|s_j - s_j*|``, and what it would be from Monte-Carlo error alone."""
    noise = np.sqrt(2 / np.pi * (one.error[nodes] ** 2 + exact.error[nodes] ** 2))
    return {"mean": np.abs(one.mean[nodes] - exact.mean[nodes]).mean(), "monte_carlo": noise.mean()}


def _by_concentration(scene: Scene, s: NDArray[np.float64], nodes: NDArray[np.int64]) -> list[Any] | None:
    """Quartiles of s_j and their number of pixels, for each range of the concentration."""
    if scene.concentration is None:
        return None
    which = np.digitize(scene.concentration[nodes], CONCENTRATIONS) - 1
    parts = [s[nodes][which == k] for k in range(len(CONCENTRATIONS) - 1)]
    return [[*np.quantile(part, (0.25, 0.5, 0.75)), len(part)] if len(part) else None for part in parts]


def _shown(scene: Scene, values: NDArray[Any]) -> NDArray[Any]:
    return values.reshape(scene.shape)[-N_SHOWN:]


def summarize(config: Config, results: list[dict[str, Any]]) -> dict[str, Any]:
    r_hats = [found["r_hat"] for run in results for found in run.get("methods", {}).values()]
    return {"runs": results, "worst_r_hat": None if None in r_hats else max(r_hats)}


def draw(record: Record) -> Any:
    return scene_maps.draw(record, CONCENTRATIONS)


def claims(record: Record) -> list[Claim]:
    return [claim for run in record.values["runs"] for claim in scene_claims.claims(run)]
