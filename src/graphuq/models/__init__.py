"""Labels y at a few nodes in; Phi(u; y), the negative log likelihood of the field u, out (Sec. 3)."""

from typing import Any

from graphuq._pytree import pytree, static
from graphuq.inference.sites import Sites
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
    "Sites",
    "Walls",
    "double_well",
    "pytree",
    "relaxed_sign",
    "simplex_wells",
    "static",
]


def unlabeled(model: Any, settings: Any) -> Any:
    """The model with this name, its parameters taken from the settings where given; a custom model as it is."""
    if not isinstance(model, str):
        return model
    kind = MODELS[model]
    given = {name: getattr(settings, name) for name in kind.numbers}
    return kind(**{name: float(value) for name, value in given.items() if value is not None})
