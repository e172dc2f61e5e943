"""The name of an optional dependency in; the module out, or an error that says how to install it."""

from importlib import import_module
from typing import Any


class MissingLibrary(ImportError):
    """An optional dependency is not installed; the message says how to install it."""


def needed(module: str, what: str, extra: str = "large") -> Any:
    """Import an optional dependency, or say how to install it."""
    try:
        return import_module(module)
    except ImportError:
        raise MissingLibrary(f"{what}: pip install 'graphuq[{extra}]'.") from None
