"""The cells of Table 2 in; the paper's seconds beside ours in a picture and in words, out; and its NumPy peer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from experiments import style
from experiments.experiment import Claim

if TYPE_CHECKING:
    from graphuq.models import Model
    from graphuq.posterior import Draws
    from graphuq.prior import GaussianPrior

DATA = {"voting": "voting records", "mnist": "MNIST 4/9", "plume": "synthetic plume"}
PAPER_SECONDS = {
    ("voting", "probit"): 8.9, ("mnist", "probit"): 176.4, ("plume", "probit"): 5410.3,
    ("voting", "level_set"): 2.7, ("mnist", "level_set"): 149.1, ("plume", "level_set"): 970.8,
    ("voting", "ginzburg_landau"): 161.4,
}  # fmt: skip
PAPER_DRAWS = {"voting": 10_000, "mnist": 15_000, "plume": 15_000}
PAPER_DRAWS_GL = 180_000
PAPER_PREPROCESSING = {"voting": "0.7 s", "mnist": "50.8 s", "plume": "under 60 s"}
ROWS = {
    "paper": (style.GRAY, "X"),
    "numpy": (style.ORANGE, "s"),
    "rule": (style.SKY, "o"),
    "effective": (style.BLUE, "D"),
}


def numpy_step(prior: GaussianPrior, model: Model, beta: float, n_steps: int) -> float:
    """The paper's algorithm over all nodes in NumPy, label means included: seconds of the median step."""
    from scipy.special import log_ndtr

    from graphuq.models import GinzburgLandau, Probit
    from graphuq.models.base import signs

    rng = np.random.default_rng(0)
    nodes, y, gamma = model.nodes, signs(model.y), model.gamma
    active = prior.variances > 0
    factor = prior.vectors[:, active] * np.sqrt(prior.variances[active])

    def phi(u: NDArray[np.float64]) -> float:
        if isinstance(model, Probit):
            return -log_ndtr(y * u[nodes] / gamma).sum()
        if isinstance(model, GinzburgLandau):
            return np.square(u**2 - 1).sum() / (4 * model.epsilon) + np.square(y - u[nodes]).sum() / (2 * gamma**2)
        return np.square(y - np.where(u[nodes] >= 0, 1, -1)).sum() / (2 * gamma**2)

    u = factor @ rng.standard_normal(factor.shape[1])
    energy, total = phi(u), np.zeros(len(factor))
    spent = []
    for _ in range(n_steps):
        began = time.perf_counter()
        w = np.sqrt(1 - beta**2) * u + beta * (factor @ rng.standard_normal(factor.shape[1]))
        proposed = phi(w)
        if np.log(rng.random()) < energy - proposed:
            u, energy = w, proposed
        total += u if isinstance(model, GinzburgLandau) else u >= 0
        spent.append(time.perf_counter() - began)
    return float(np.median(spent))


def moves(posterior: Draws, window: int) -> NDArray[np.float64]:
    """``|mean_k - mean_{k-1}|`` over all nodes, mean_k that of the first k windows of draws, for k = 2, 3, ..."""
    z = posterior.z[0]
    ends = np.arange(window, len(z) + 1, window)
    sums = np.cumsum([z[end - window : end].sum(axis=0, dtype=float) for end in ends], axis=0)
    steps = np.diff(sums / ends[:, None], axis=0)
    every = np.arange(posterior.n_nodes)
    return np.linalg.norm(posterior.whitening.mean(steps, every), axis=1) if len(steps) else np.empty(0)


def paper_draws(cell: dict[str, Any]) -> int:
    """The paper's number of draws, or for its dashes the one it has for Ginzburg-Landau on the votes."""
    return PAPER_DRAWS_GL if cell["model"] == "ginzburg_landau" else PAPER_DRAWS[cell["data"]]


def seconds(cell: dict[str, Any]) -> dict[str, float | None]:
    """Of the paper; of its algorithm in NumPy and of ours, for as many draws; and of ours for its effective draws."""
    n = paper_draws(cell)
    return {
        "paper": PAPER_SECONDS.get((cell["data"], cell["model"])),
        "numpy": cell["numpy_step"] * n,
        "rule": cell["rule"]["seconds"] / cell["rule"]["n_steps"] * n,
        "effective": cell["effective"]["seconds"],
    }


def draw(cells: list[dict[str, Any]], effective_size: float) -> Any:
    """Seconds on a log scale: a panel for each data set, a row for each model."""
    figure, axes = style.subplots(1, 3, size=(4.3, 3.1), sharey=True)
    models = list(style.NAMES)
    names = {
        "paper": "the paper's seconds",
        "numpy": "its algorithm in NumPy here, as many draws",
        "rule": "the same chain in graphuq, as many draws",
        "effective": f"graphuq's own sampler, {effective_size:.0f} effective draws (open: not reached)",
    }
    for ax, (data, title) in zip(axes, DATA.items(), strict=True):
        mine = [cell for cell in cells if cell["data"] == data]
        for cell in mine:
            for i, (name, value) in enumerate(seconds(cell).items()):
                if value is not None:
                    color, marker = ROWS[name]
                    reached = name != "effective" or cell["effective"]["stopped_by"] == "EffectiveSize"
                    at = models.index(cell["model"]) + 0.18 * (i - 1.5)
                    face = color if reached else "none"
                    ax.plot(
                        value, at, marker=marker, color=color, markerfacecolor=face, markersize=7, linestyle=""
                    )
        ax.set(xscale="log", xlabel="seconds", title=f"{title}, N = {mine[0]['n_nodes']:,}", ylim=(2.5, -0.5))
        ax.set_yticks(range(3), [style.NAMES[model] for model in models])
        for line in (0.5, 1.5):
            ax.axhline(line, color=style.GRAY, linewidth=0.5)
    handles = [
        axes[0].plot([], [], marker=m, color=c, linestyle="", label=names[k])[0] for k, (c, m) in ROWS.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=9)
    return figure


def claims(cells: list[dict[str, Any]]) -> list[Claim]:
    """A line for each cell and each preprocessing, and what the paper says of the order of the models."""
    lines = [_cell(cell) for cell in cells]
    for data, title in DATA.items():
        cell = next(cell for cell in cells if cell["data"] == data)
        ours = f"{cell['preprocessing']:.1f} s for {cell['n_nodes']:,} nodes"
        lines.append(Claim(f"{title}: preprocessing", PAPER_PREPROCESSING[data], ours, None, cell["machine"]))
    needed = {cell["model"]: cell["rule"]["met"]["per_node"] for cell in cells if cell["data"] == "voting"}
    label_models = max(needed[model] or np.inf for model in ("probit", "level_set"))
    steps = ", ".join(
        f"{style.NAMES[model]} {f'{n:,}' if n else 'more than were run'}" for model, n in needed.items()
    )
    lines.append(
        Claim(
            "voting records: steps until the paper's stopping rule is met, with its norm divided by N",
            "10,000 for probit and level-set, 180,000 for Ginzburg-Landau, which is multi-modal",
            steps,
            (needed["ginzburg_landau"] or np.inf) > label_models,
            "Only the order can be compared, because the paper gives neither epsilon nor the norm.",
        )
    )
    for data, title in DATA.items():
        spent = {cell["model"]: 1e3 * cell["numpy_step"] for cell in cells if cell["data"] == data}
        if {"probit", "level_set"} <= set(spent):
            ours = f"{spent['probit']:.2f} ms against {spent['level_set']:.2f} ms"
            paper = " against ".join(f"{PAPER_SECONDS[data, model]} s" for model in ("probit", "level_set"))
            note = "The paper used the Gaussian cdf of Matlab; we use SciPy's log_ndtr."
            lines.append(
                Claim(f"{title}: a step of probit against one of level-set, in NumPy", paper, ours, None, note)
            )
    return lines


def _cell(cell: dict[str, Any]) -> Claim:
    rule, effective = cell["rule"], cell["effective"]
    spent, paper = seconds(cell), PAPER_SECONDS.get((cell["data"], cell["model"]))
    met = {name: f"{n:,}" if n else f"over {rule['n_steps']:,}" for name, n in rule["met"].items()}
    reached = (
        ""
        if effective["stopped_by"] == "EffectiveSize"
        else f" (not converged: stopped by {effective['stopped_by']})"
    )
    ours = (
        f"{effective['ess']:.0f} effective draws in {effective['seconds']:.1f} s{reached}; the paper's chain: "
        f"{spent['rule']:.1f} s, in NumPy {spent['numpy']:.0f} s"
    )
    note = (
        f"{effective['sampler']}: {effective['n_draws']:,} draws, R-hat {effective['r_hat'] or np.inf:.3f}. The paper's chain accepts "
        f"{rule['acceptance']:.1%} of its moves; R-hat is {rule['r_hat'] or np.inf:.2f} after {rule['n_steps']:,} steps. Its stopping rule is met after "
        f"{met['over_nodes']} steps (norm over all nodes) or {met['per_node']} steps (the same norm divided by N). One step in NumPy takes "
        f"{1e3 * cell['numpy_step']:.2f} ms. {cell['machine']}."
    )
    if rule["acceptance"] < 0.05:
        note += " A chain that hardly moves meets the rule because it stands still."
    shown = f"{paper} s, {paper_draws(cell):,} draws" if paper else "too slow"
    return Claim(f"{DATA[cell['data']]}, {style.NAMES[cell['model']]}", shown, ours, None, note)
