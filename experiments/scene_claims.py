"""The runs of Fig. 8 in; what the paper says of its video, asked of every scene and kind of labels, out."""

from __future__ import annotations

import math
from typing import Any

from experiments.experiment import Claim
from experiments.scene_maps import TITLES
from experiments.scenes import EDGE, METHODS


def claims(run: dict[str, Any]) -> list[Claim]:
    """The claims on one scene with one kind of labels; those on the first are the paper's."""
    name = TITLES[run["scene"], run["labels"]]
    if "missing" in run:
        return [Claim(name, "not in the paper", run["missing"], None)]
    as_in_paper = (run["scene"], run["labels"]) == ("plume", "clusters")
    found, distance = run["methods"], run["distance"]
    reds = ", ".join(f"{method} {found[method]['red']:.1%}" for method in ("projection", "approximation", "exact"))
    apart = ", ".join(
        f"{m} {d['mean']:.2g} (Monte Carlo alone {d['monte_carlo']:.1g})" for m, d in distance.items()
    )
    more = found["approximation"]["red"] > found["projection"]["red"]
    closer = distance["approximation"]["mean"] < distance["projection"]["mean"]
    r_hats = {m: found[m]["r_hat"] or math.inf for m in METHODS}  # None in a record: not finite
    unconverged = [f"{METHODS[m]}, R-hat {r_hat:.2f}" for m, r_hat in r_hats.items() if r_hat >= 1.05]
    stuck = f" Not converged: {'; '.join(unconverged)}." if unconverged else ""
    paper = "" if as_in_paper else "not in the paper"
    return [
        Claim(
            f"{name}: share of unlabeled pixels in red (uncertain)",
            paper or "more for the approximation than for the projection",
            reds,
            more if as_in_paper else None,
            f"All eigenvalues after 0 lie between {run['lambda_1']:.4f} and 1, so the exact prior puts "
            f"{found['exact']['modal_variance']:.2%} of its variance on {run['n_modes_exact'] - 1} modes and the rest on "
            f"white noise. It therefore learns nothing about a pixel without a label, and neither does the approximation.{stuck}",
        ),
        Claim(
            f"{name}: mean |s_j - s_j*| to the exact posterior",
            paper or "conjecture: the approximation is closer than the projection",
            apart,
            closer if as_in_paper else None,
            "The conjecture holds literally, because the exact posterior knows next to nothing either.",
        ),
        Claim(
            f"{name}: red pixels within {EDGE} pixels of an edge between the labeled classes, compared with all pixels",
            paper or "red lies mainly on the edges of the plume",
            "; ".join(f"{METHODS[m]} {_edges(found[m]['edges']['own'])}" for m in ("projection", "constant")),
            None,
            _about(run),
        ),
        Claim(
            f"{name}: pixels where the Ginzburg-Landau mode and the sign of s_j by projection agree",
            paper or "consistent",
            f"{run['gl']['as_projection']:.1%}",
            None,
            "The paper does not give the settings of its Ginzburg-Landau mode here; we use those of its appendix.",
        ),
    ]


def _edges(near: dict[str, Any]) -> str:
    return "no red pixels" if near["red"] is None else f"{near['red']:.0%} against {near['all']:.0%}"


def _about(run: dict[str, Any]) -> str:
    """What the labels are about."""
    if run["labels"] == "clusters":
        about = f"The two clusters agree with the truth at {run['clusters_and_truth']:.0%} of the pixels"
        if run["scene"] == "pines":
            return f"{about}."
        gas = _edges(run["methods"]["projection"]["edges"]["true"])
        return f"{about}: they separate kinds of ground, not the gas from the rest. For the edge of the gas, the shares are {gas} (projection)."
    return (
        f"Class +1 has {run['positive']:.0%} of the pixels. The paper's prior has no constant mode q_0, so u has "
        "mean zero and has to split the scene into halves. With q_0, "
        f"{run['methods']['constant']['wrong']:.1%} instead of {run['methods']['projection']['wrong']:.1%} of the pixels are wrong."
    )
