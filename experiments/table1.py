"""Table 1: the posterior variance of the labels, Var(l), by pair of digits.

The paper does not say how many modes it used, and Var(l) depends on that strongly, so it is shown for several
numbers. Beside our converged values stands the paper's own algorithm, pCN with its beta = 0.3: where it hardly moves,
its chains disagree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from experiments import style
from experiments.experiment import Claim, Record, Trial

TITLE = "Var(l) by pair of digits"
PAPER = {"probit": (0.1485, 0.1005, 0.0429, 0.0084), "level_set": (0.1280, 0.1018, 0.0489, 0.0121)}
ALL = 4000


@dataclass(frozen=True)
class Config:
    """The paper's values, for several numbers of modes."""

    pairs: tuple[tuple[int, int], ...] = ((4, 9), (3, 8), (0, 6), (5, 7))
    n_modes: tuple[int, ...] = (10, 30, 50, 100, 300, ALL)
    share_labeled: float = 0.04
    gamma: float = 0.1
    beta: float = 0.3
    n_trials: int = 10
    n_steps: int = 500
    n_paper_steps: int = 10_000


FULL = Config()
QUICK = Config(n_modes=(50, 300), n_trials=2, n_steps=200)


def trials(config: Config) -> list[Trial]:
    return [{"pair": list(pair), "n_modes": n} for n in reversed(config.n_modes) for pair in config.pairs]


def run(config: Config, trial: Trial) -> dict[str, Any]:
    """All label draws of one pair and number of modes: they share the eigenvectors."""
    from experiments import problems
    from graphuq import PCN, prior

    n_modes = trial["n_modes"]
    first, second = trial["pair"]
    pair, modes = problems.mnist(first, second, None if n_modes == ALL else 300)
    mu0 = prior.project(modes, n_modes=n_modes)
    found: dict[str, Any] = {**trial}
    for name in PAPER:
        ours = []
        for seed in range(config.n_trials):
            nodes = problems.choose(pair.y, config.share_labeled, seed)
            model = problems.LIKELIHOODS[name](nodes, pair.y[nodes], gamma=config.gamma)
            ours.append(_converged(mu0, model, n_steps=config.n_steps, seed=seed))
        steps = {"n_steps": config.n_paper_steps, "n_warmup": 0, "thin": 20}
        pcn = problems.draw(mu0, model, PCN(beta=config.beta, target_acceptance=None), seed=0, **steps)
        alone = [replace(pcn, z=pcn.z[i : i + 1]).mean_label_variance() for i in range(pcn.n_chains)]
        found[name] = {
            "variances": [each["variance"] for each in ours],
            "r_hat": problems.worst(ours),
            "pcn": {
                "acceptance": pcn.acceptance.mean(),
                "single_chains": alone,
                "r_hat": pcn.diagnostics().worst_r_hat,
            },
        }
    return found


def _converged(mu0: Any, model: Any, *, n_steps: int, seed: int) -> dict[str, float]:
    """By the default sampler; where chains disagree, with ten times the steps, then by one for many labels on few modes."""
    from experiments import problems
    from experiments.refractive import Refractive
    from graphuq import Referenced

    tries: list[dict[str, float]] = []
    for sampler, thin in ((None, 1), (None, 10), (Referenced(Refractive()), 4)):
        posterior = problems.draw(mu0, model, sampler, n_steps=n_steps * thin, thin=thin, seed=seed)
        tries.append(problems.measured(posterior))
        if tries[-1]["r_hat"] < 1.05:
            break
    return min(tries, key=lambda each: each["r_hat"])


def summarize(config: Config, results: list[dict[str, Any]]) -> dict[str, Any]:
    from experiments.problems import mean_and_error, worst

    cells = []
    for result in results:
        for name in PAPER:
            mean, error = mean_and_error(result[name]["variances"])
            chains = mean_and_error(result[name]["pcn"].pop("single_chains"))
            cells.append(
                {
                    "pair": result["pair"],
                    "n_modes": result["n_modes"],
                    "model": name,
                    "mean": mean,
                    "error": error,
                    "r_hat": result[name]["r_hat"],
                    "pcn": {**result[name]["pcn"], "mean": chains[0], "error": chains[1]},
                }
            )
    return {"cells": cells, "worst_r_hat": worst(cells)}


def row(record: Record, model: str, n_modes: int) -> list[dict[str, Any]]:
    """The cells of a model and a number of modes, in the order of the pairs."""
    chosen = [c for c in record.values["cells"] if c["model"] == model and c["n_modes"] == n_modes]
    return sorted(chosen, key=lambda cell: record.config["pairs"].index(cell["pair"]))


def converged(cell: dict[str, Any]) -> bool:
    """Whether the chains of every label draw agree."""
    return cell["r_hat"] is not None and cell["r_hat"] < 1.05


def draw(record: Record) -> Any:
    figure, axes = style.subplots(1, 2, size=(5, 3.8), sharey=True)
    pairs, colors = record.config["pairs"], (style.BLUE, style.VERMILION, style.GREEN, style.PURPLE)
    for ax, name in zip(axes, PAPER, strict=True):
        for i, (pair, color, marker) in enumerate(zip(pairs, colors, "os^D", strict=True)):
            cells = [row(record, name, n)[i] for n in record.config["n_modes"]]
            x = record.config["n_modes"]
            settings = {"color": color, "marker": marker, "markersize": 5, "capsize": 2.5, "linewidth": 1.3}
            label = f"({pair[0]}, {pair[1]})"
            ax.errorbar(x, [c["mean"] for c in cells], [c["error"] for c in cells], label=label, **settings)
            for c in cells:
                if not converged(c):
                    ax.plot(c["n_modes"], c["mean"], "o", markersize=11, fillstyle="none", color=color)
            ax.plot(
                x, [c["pcn"]["mean"] for c in cells], ":", color=color, marker=marker, markersize=3, linewidth=1
            )
            ax.axhline(PAPER[name][i], color=color, linewidth=0.8, dashes=(6, 4))
        style.log_ticks(ax, record.config["n_modes"])
        ax.set(yscale="log", xlabel=r"number of modes $\ell$", title=style.NAMES[name])
    axes[0].set_ylabel("mean posterior variance Var(l)")
    axes[1].plot([], [], color=style.GRAY, label="ours")
    axes[1].plot([], [], "o", markersize=11, fillstyle="none", color=style.GRAY, label="R-hat above 1.05")
    axes[1].plot([], [], ":", color=style.GRAY, label=r"one pCN chain, $\beta = 0.3$")
    axes[1].plot([], [], color=style.GRAY, linewidth=0.8, dashes=(6, 4), label="the paper")
    figure.legend(*axes[1].get_legend_handles_labels(), loc="outside right upper", fontsize=9)
    return figure


def claims(record: Record) -> list[Claim]:
    from experiments.problems import rises

    lines = []
    for name in PAPER:
        rows = {n: row(record, name, n) for n in record.config["n_modes"]}
        sure = [n for n in rows if all(converged(c) for c in rows[n])]
        good = [n for n in sure if rises([-c["mean"] for c in rows[n]], [c["error"] for c in rows[n]])]
        ours = f"holds with {_list(good)} modes; chains converged with {_list(sure)}"
        what = f"{style.NAMES[name]}: order of the pairs"
        lines.append(Claim(what, "(4, 9) > (3, 8) > (0, 6) > (5, 7)", ours, good == sure and bool(sure)))
        for i, (first, second) in enumerate(record.config["pairs"]):
            ours = "; ".join(f"{n}: {_shown(rows[n][i])}" for n in rows)
            note = "The paper does not say how many modes it used; ours are listed by number of modes."
            what = f"{style.NAMES[name]}, ({first}, {second}): Var(l)"
            lines.append(Claim(what, f"{PAPER[name][i]:.4f}", ours, None, note))
        hard = rows[max(n for n in rows if n <= 300)][0]
        pcn = hard["pcn"]
        r_hat = "infinite" if pcn["r_hat"] is None else f"{pcn['r_hat']:.2f}"
        ours = f"accepts {pcn['acceptance']:.2%} of its moves; R-hat {r_hat}; one chain reports {pcn['mean']:.3f}"
        note = f"The chain has not converged. Our result, with R-hat {hard['r_hat']:.3f}, is {hard['mean']:.3f}."
        what = f"{style.NAMES[name]}, (4, 9), {hard['n_modes']} modes: the paper's pCN, beta = 0.3, 10,000 steps"
        lines.append(Claim(what, f"{PAPER[name][0]:.4f}", ours, None, note))
    return lines


def _shown(cell: dict[str, Any]) -> str:
    from experiments.problems import show

    return show(cell["mean"], cell["error"]) + ("" if converged(cell) else " (not converged)")


def _list(numbers: Any) -> str:
    return ", ".join(f"{n:,}" for n in numbers) or "no number of"
