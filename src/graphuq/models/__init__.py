"""The likelihoods: labels y at a few nodes -> Phi(u; y), minus the log likelihood of u (Sec. 3)."""

from graphuq.models.base import Curvature, Model, Walls
from graphuq.models.ginzburg_landau import GinzburgLandau, double_well, relaxed_sign, simplex_wells
from graphuq.models.level_set import LevelSet
from graphuq.models.probit import Probit

__all__ = [
    "Curvature",
    "GinzburgLandau",
    "LevelSet",
    "Model",
    "Probit",
    "Walls",
    "double_well",
    "relaxed_sign",
    "simplex_wells",
]
