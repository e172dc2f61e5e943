"""The likelihoods: labels y at a few nodes -> Phi(u; y), minus the log likelihood of u (Sec. 3)."""

from typing import Any

from graphuq._pytree import pytree, static
from graphuq.models.base import Curvature, Model, Walls
from graphuq.models.ginzburg_landau import GinzburgLandau, double_well, relaxed_sign, simplex_wells
from graphuq.models.level_set import LevelSet
from graphuq.models.probit import Probit

MODELS: dict[str, Any] = {"probit": Probit, "level_set": LevelSet, "ginzburg_landau": GinzburgLandau}

__all__ = [
    "Curvature",
    "GinzburgLandau",
    "LevelSet",
    "Model",
    "Probit",
    "Walls",
    "double_well",
    "pytree",
    "relaxed_sign",
    "simplex_wells",
    "static",
]


def unlabeled(model: Any, settings: Any) -> Any:
    """The model of a name, with those of its numbers that the settings give; one of a user's own as it is."""
    if not isinstance(model, str):
        return model
    kind = MODELS[model]
    given = {name: getattr(settings, name) for name in kind.numbers}
    return kind(**{name: float(value) for name, value in given.items() if value is not None})
