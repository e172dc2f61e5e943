"""Settings and a way to compute in; a spectrum out, computed once and kept beside the trials."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from experiments.runner import WORK
from graphuq.files import whole_file
from graphuq.spectrum import Spectrum


def cached(settings: str, compute: Callable[[], Spectrum]) -> Spectrum:
    """The spectrum with these settings, from the shared folder of the run if it is there already."""
    if WORK not in os.environ:
        return compute()
    key = hashlib.sha256(settings.encode()).hexdigest()[:12]
    path = Path(os.environ[WORK]) / "spectra" / f"{settings.split()[0]}-{key}.npz"
    if path.exists():
        return Spectrum.load(path)
    found = compute()
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as part:  # two processes may write it at once
        found.save(part)
    return found
