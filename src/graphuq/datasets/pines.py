"""Nothing in; the spectra and ground truth of the Indian Pines scene, as shipped with TensorLy, out."""

from __future__ import annotations

import numpy as np

from .dataset import Dataset

_CLASSES = (
    "unlabeled",
    "alfalfa",
    "corn, no till",
    "corn, minimum till",
    "corn",
    "grass, pasture",
    "grass, trees",
    "grass, pasture mowed",
    "hay, windrowed",
    "oats",
    "soybean, no till",
    "soybean, minimum till",
    "soybean, clean",
    "wheat",
    "woods",
    "buildings, grass, trees, drives",
    "stone, steel towers",
)


def indian_pines() -> Dataset:
    """A real airborne hyperspectral scene: 145 x 145 pixels, 200 channels from 400 to 2,500 nm, 16 land covers.

    X has one row per pixel, in row-major order. Label 0 marks unlabeled pixels.
    Nothing is downloaded: TensorLy ships the data.
    """
    try:
        from tensorly.datasets.data_imports import load_indian_pines
    except ImportError as error:
        raise ImportError(
            "indian_pines needs TensorLy 0.9 or later, which carries the data: pip install 'graphuq[indian-pines]'"
        ) from error
    scene = load_indian_pines()
    cube = np.asarray(scene.tensor, dtype=np.float64)
    truth, wavelengths = scene.ticks
    height, width, n_channels = cube.shape
    return Dataset(
        X=cube.reshape(height * width, n_channels),
        y=np.asarray(truth, dtype=np.int64).ravel(),
        class_names=dict(enumerate(_CLASSES)),
        source=str(scene.reference),
        feature_names=tuple(f"{wavelength:.2f} nm" for wavelength in wavelengths),
        grid_shape=(height, width),
    )
