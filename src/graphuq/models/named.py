"""The name of a model, or one of a user's own, in; a model that still has no labels out."""

from __future__ import annotations

from typing import Any

from graphuq.models.ginzburg_landau import GinzburgLandau
from graphuq.models.level_set import LevelSet
from graphuq.models.probit import Probit

MODELS: dict[str, Any] = {"probit": Probit, "level_set": LevelSet, "ginzburg_landau": GinzburgLandau}


def unlabeled(model: Any, settings: Any) -> Any:
    """The model of a name, with those of its numbers that the settings give; one of a user's own as it is."""
    if not isinstance(model, str):
        return model
    kind = MODELS[model]
    given = {name: getattr(settings, name) for name in kind.numbers}
    return kind(**{name: float(value) for name, value in given.items() if value is not None})
