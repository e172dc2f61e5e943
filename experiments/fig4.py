"""Fig. 4: the fours and nines that the probit posterior is least and most sure of."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments import style
from experiments.experiment import Claim, Record, Trial

TITLE = "hard and easy fours and nines"


@dataclass(frozen=True)
class Config:
    """The paper's values; the number of modes is ours, the paper does not say."""

    share_labeled: float = 0.04
    gamma: float = 0.1
    n_modes: int = 300
    n_images: int = 8
    n_steps: int = 500


FULL = Config()
QUICK = Config(n_steps=200)


def trials(config: Config) -> list[Trial]:
    return [{"seed": 0}]


def run(config: Config, trial: Trial) -> dict[str, Any]:
    from experiments import problems
    from graphuq import prior

    pair, modes = problems.mnist(4, 9, config.n_modes)
    nodes = problems.choose(pair.y, config.share_labeled, trial["seed"])
    model = problems.LIKELIHOODS["probit"](nodes, pair.y[nodes], gamma=config.gamma)
    posterior = problems.draw(prior.project(modes), model, n_steps=config.n_steps, seed=trial["seed"])
    s = posterior.label_mean()
    found: dict[str, Any] = {**problems.measured(posterior), "groups": {}}
    for digit, label in ((4, 1), (9, -1)):
        mine = np.setdiff1d(np.flatnonzero(pair.y == label), nodes)
        order = mine[np.argsort(label * s[mine])]
        typical = pair.X[pair.y == label].mean(axis=0)
        for name, chosen in (("hard", order[: config.n_images]), ("easy", order[::-1][: config.n_images])):
            found["groups"][f"{name} {digit}"] = {
                "s": s[chosen],
                "images": _packed(pair.X[chosen]),
                "distance": np.linalg.norm(pair.X[chosen] - typical, axis=1).mean(),
            }
    return found


def _packed(images: Any) -> str:
    return base64.b64encode(zlib.compress(np.round(255 * images).astype(np.uint8).tobytes(), 9)).decode()


def _unpacked(text: str) -> Any:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).reshape(-1, 28, 28)


def summarize(config: Config, results: list[dict[str, Any]]) -> dict[str, Any]:
    return {"groups": results[0]["groups"], "worst_r_hat": results[0]["r_hat"]}


def draw(record: Record) -> Any:
    groups = record.values["groups"]
    n = record.config["n_images"]
    figure, axes = style.subplots(4, n, size=(1.0, 1.25))
    for row, (name, group) in zip(axes, groups.items(), strict=True):
        for ax, image, s in zip(row, _unpacked(group["images"]), group["s"], strict=True):
            ax.imshow(255 - image, cmap="gray", vmin=0, vmax=255)
            ax.set(xticks=[], yticks=[])
            ax.grid(visible=False)
            ax.set_title(f"s = {s:+.2f}", fontsize=8, pad=2)
        row[0].set_ylabel(name + "s", fontsize=10)
    return figure


def claims(record: Record) -> list[Claim]:
    groups = record.values["groups"]
    lines = []
    for digit in (4, 9):
        hard, easy = (groups[f"{name} {digit}"]["distance"] for name in ("hard", "easy"))
        lines.append(
            Claim(
                f"hard {digit}s look odd, easy ones alike",
                "by eye",
                f"mean distance to the mean {digit}: {hard:.2f} hard, {easy:.2f} easy",
                hard > easy,
            )
        )
    return lines
