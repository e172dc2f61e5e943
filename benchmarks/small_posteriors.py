"""How often does a posterior say "Converged" and is wrong? Small posteriors with known answers, every sampler, eight seeds.

A claim is false if any class probability at any node, with or without noise, is off by more than 0.05 and by more than
five Monte-Carlo errors. The problems are in small_problems.py.

    python -m benchmarks.small_posteriors --jobs 16                 # docs/reproduction/small_posteriors.json
    python -m benchmarks.small_posteriors --jobs 16 --seconds 400   # the same command goes on later
    python -m benchmarks.small_posteriors --quick                   # one seed of some problems
"""

import sys
import warnings
from dataclasses import dataclass

import numpy as np
from experiments import command
from experiments import experiment as experiments
from experiments.refractive import Refractive
from sklearn.exceptions import ConvergenceWarning

from benchmarks.small_problems import problems
from graphuq import NUTS, PCN, EllipticalSlice, Orthant, Referenced, Tempered, sample
from graphuq.models import GinzburgLandau, LevelSet

TITLE = "does Converged mean that the answer is right? small posteriors with known answers"
TOLERANCE = 0.05
N_ERRORS = 5

LENGTH = {"n_steps": 1000, "n_warmup": 500, "n_chains": 8}
SHORT = {"n_steps": 300, "n_warmup": 200, "n_chains": 8}  # of samplers whose steps are long


def samplers(problem):
    """Every sampler that knows the model, with how long it runs."""
    model = problem.model
    found = {"PCN": (PCN(), LENGTH), "EllipticalSlice": (EllipticalSlice(), LENGTH)}
    if model.offers("walls"):
        found["Orthant"] = (Orthant(), LENGTH)
    if model.offers("sites") or model.offers("reference"):
        found["Referenced(PCN)"] = (Referenced(), LENGTH)
    if isinstance(model, LevelSet):
        if model.n_fields == 1:
            found["Referenced(Refractive)"] = (Referenced(Refractive()), LENGTH)
        return found
    found["NUTS"] = (NUTS(max_doublings=7), SHORT)
    if model.offers("sites") or model.offers("reference"):
        found["Referenced(NUTS)"] = (Referenced(NUTS(max_doublings=7)), SHORT)
    if isinstance(model, GinzburgLandau):
        found["Referenced(Tempered)"] = (Referenced(Tempered()), SHORT)
    return found


@dataclass(frozen=True)
class Claim:
    """What a posterior says of itself, and what is true."""

    converged: bool
    off: float  # the worst class probability at any node
    false: bool  # it says that it has converged, and is off by more than it may


def judge(problem, posterior):
    """Compare every class probability at every node with the answer."""
    answer = problem.answer()
    worst, wrong = 0.0, False
    for truth, noise in ((answer.plain, False), (answer.predictive, True)):
        found = posterior.classes(noise=noise)
        off = np.abs(found.probability - truth)
        wrong |= bool(np.any(off > np.maximum(TOLERANCE, N_ERRORS * np.hypot(found.error, answer.error))))
        worst = max(worst, float(off.max()))
    converged = posterior.diagnostics().converged
    return Claim(converged, worst, converged and wrong)


def claim(problem, sampler, length, seed, **settings):
    """Sample and judge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return judge(problem, sample(problem.prior, problem.model, sampler, seed=seed, **length, **settings))


@dataclass(frozen=True)
class Config:
    """What is run: so many seeds of every sampler, on every `stride`-th problem."""

    n_seeds: int = 8
    stride: int = 1


FULL = Config()
QUICK = Config(n_seeds=1, stride=20)


def trials(config):
    """A problem and a sampler each, with all seeds, so that chains are compiled once."""
    return [
        {"kind": problem.kind, "problem": problem.name, "sampler": name}
        for problem in problems()[:: config.stride]
        for name in samplers(problem)
    ]


def run(config, trial):
    """What was said with each seed, and whether it is true."""
    (problem,) = (each for each in problems() if (each.kind, each.name) == (trial["kind"], trial["problem"]))
    sampler, length = samplers(problem)[trial["sampler"]]
    try:
        found = [claim(problem, sampler, length, seed) for seed in range(config.n_seeds)]
    except TypeError as error:
        if "piecewise constant" not in str(error):
            raise
        return {**trial, "refused": str(error)}  # NUTS refuses a Phi that is flat wherever they look
    answer_error = problem.answer().error
    return {**trial, "answer_error": answer_error, "claims": [vars(each) for each in found]}


def summarize(config, results):
    """Counts for each sampler, and every claim."""
    samplers = {}
    for each in results:
        mine = samplers.setdefault(each["sampler"], dict.fromkeys(("runs", "converged", "false", "refused"), 0))
        claims = each.get("claims", [])
        mine["refused"] += "refused" in each
        mine["runs"] += len(claims)
        for key in ("converged", "false"):
            mine[key] += sum(claim[key] for claim in claims)
    names = dict.fromkeys((each["kind"], each["problem"]) for each in results)
    return {
        "n_problems": len(names),
        "samplers": samplers,
        "largest_answer_error": max(each.get("answer_error", 0.0) for each in results),
        "trials": results,
    }


def claims(record):
    """No sampler may make a false claim."""
    return [
        experiments.Claim(
            f"{name}, {record.values['n_problems']} problems: says Converged and is wrong",
            "not in the paper",
            f"{each['false']} of {each['converged']} that say Converged, of {each['runs']} runs",
            each["false"] == 0,
        )
        for name, each in record.values["samplers"].items()
    ]


def draw(record):
    """How far off each run is, those that say Converged and those that do not."""
    from experiments import style

    figure, ax = style.subplots(size=(7.0, 3.4))
    names = list(record.values["samplers"])
    for converged, color in ((False, style.GRAY), (True, style.BLUE)):
        points = [
            (claim["off"], names.index(each["sampler"]))
            for each in record.values["trials"]
            for claim in each.get("claims", [])
            if claim["converged"] == converged
        ]
        off, row = np.array(points).reshape(-1, 2).T
        shift = 0.15 if converged else -0.15
        ax.plot(np.maximum(off, 1e-4), row + shift, "|", color=color, label="Converged" if converged else "not")
    ax.axvline(TOLERANCE, linestyle="--", color=style.VERMILION, linewidth=0.8)
    ax.set(xscale="log", xlabel="worst class probability is off by")
    ax.set_yticks(range(len(names)), names)
    ax.legend(fontsize=8)
    return figure


def main(arguments=None) -> int:
    """The command line; 1 where a claim is false."""
    return command.main("benchmarks.small_posteriors", __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
