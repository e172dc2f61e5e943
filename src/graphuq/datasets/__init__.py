"""Data sets of the paper, and synthetic substitutes for those that are not public."""

from .cache import DatasetUnavailable, data_folder
from .dataset import Dataset, few_labels
from .digits import mnist, mnist_pair
from .moons import two_moons
from .pines import indian_pines
from .plume_video import Plume, plume
from .voting import voting_records

__all__ = [
    "Dataset",
    "DatasetUnavailable",
    "Plume",
    "data_folder",
    "few_labels",
    "indian_pines",
    "mnist",
    "mnist_pair",
    "plume",
    "two_moons",
    "voting_records",
]
