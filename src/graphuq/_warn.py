"""A warning in; it is told at a line of the caller's own code, however deep in this package it arose."""

from __future__ import annotations

import sys
import warnings


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """`warnings.warn` at the innermost frame that is not of this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
