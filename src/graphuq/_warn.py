"""A warning in; it is issued at the line of the user's code that led to it, however deep in this package, out."""

from __future__ import annotations

import sys
import warnings


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Call `warnings.warn` with the stack level of the innermost frame outside this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
