"""Fig. 2: the eigenvalues of the Laplacians of the four data sets, in order; the plume is the synthetic one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments import style
from experiments.experiment import Claim, Record, Trial

TITLE = "spectra of the four Laplacians"
NAMES = {"mnist": "MNIST 4/9", "moons": "two moons", "plume": "synthetic plume", "voting": "voting records"}
# A spectrum saturates if it has come this close to 1 after as many modes as the paper keeps of voting.
N_KEPT, DISTANCE = 150, 0.1


@dataclass(frozen=True)
class Config:
    """How much of each spectrum is shown, and of how many pixels the plume is made."""

    n_shown: int = 300
    n_pixels: int | None = None  # None: all 286,720
    noise: float = 0.06


FULL = Config()
QUICK = Config(n_pixels=20_000)


def trials(config: Config) -> list[Trial]:
    return [{"data": name} for name in NAMES]


def run(config: Config, trial: Trial) -> dict[str, Any]:
    """The first eigenvalues, and quantiles of all of them."""
    from experiments import problems
    from graphuq import datasets, graph, spectrum

    if trial["data"] == "plume":  # cosine weights have rank 129 at most: all other eigenvalues are 1 exactly
        X = datasets.plume().X
        rows = np.linspace(0, len(X) - 1, config.n_pixels or len(X)).astype(int)
        found = spectrum.low_rank(graph.cosine(X[rows]))
        values = np.concatenate([found.values, np.ones(found.n_nodes - found.n_modes)])
    else:
        make = {
            "mnist": lambda: problems.mnist(4, 9, None),
            "moons": lambda: problems.two_moons(config.noise, 0),
            "voting": problems.voting,
        }[trial["data"]]
        values = make()[1].values
    return {
        "data": trial["data"],
        "n_nodes": len(values),
        "values": values[: config.n_shown],
        "quantiles": np.quantile(values, np.linspace(0, 1, 201)),
        "largest": values.max(),
    }


def summarize(config: Config, results: list[dict[str, Any]]) -> dict[str, Any]:
    return {result["data"]: result for result in results}


def draw(record: Record) -> Any:
    figure, axes = style.subplots(2, 4, size=(3.1, 2.5))
    for (top, bottom), (name, title) in zip(axes.T, NAMES.items(), strict=True):
        found = record.values[name]
        top.plot(found["values"], ".", markersize=3, color=style.BLUE)
        top.set(title=f"{title}, N = {found['n_nodes']:,}", ylim=(-0.05, 1.6))
        top.set_xlabel(f"index j, the first {len(found['values'])}")
        bottom.plot(np.linspace(0, 1, len(found["quantiles"])), found["quantiles"], color=style.BLUE)
        bottom.set(xlabel="j / N, all eigenvalues", ylim=(-0.05, 1.6))
    for ax in axes[:, 0]:
        ax.set_ylabel(r"eigenvalue $\lambda_j$")
    return figure


def claims(record: Record) -> list[Claim]:
    lines = []
    for name, title in NAMES.items():
        value = record.values[name]["values"][N_KEPT]
        flat = abs(value - 1) < DISTANCE
        ours = f"eigenvalue {value:.3f} after {N_KEPT} modes"
        if name == "mnist":
            lines.append(
                Claim(
                    f"{title}: eigenvalues do not accumulate near 1", "the exception (Appendix A)", ours, not flat
                )
            )
        else:
            lines.append(Claim(f"{title}: eigenvalues accumulate near 1", "they do (Appendix A)", ours, flat))
    largest = max(record.values[name]["largest"] for name in NAMES)
    lines.append(Claim("all eigenvalues lie in [0, 2]", "in [0, 2]", f"largest {largest:.3f}", largest <= 2))
    return lines
