"""Nothing in; the spectra and ground truth of the Indian Pines scene, as kept by TensorLy, out."""

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
    """A real airborne scene: 145 x 145 pixels, 200 channels from 400 to 2,500 nm, 16 kinds of ground.

    X has a row for each pixel, row by row of the image. Label 0 marks the pixels that nobody labeled.
    Nothing is downloaded: TensorLy carries the data.
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
