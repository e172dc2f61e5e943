"""Messages of the library in; their command-line wording, with options for parameters and names for rows, out."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from shlex import quote

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from graphuq._expect import AboutRows, AboutSetting, MarkWarning
from graphuq.app.shell import printable
from graphuq.inference.diagnostics import ESS_LIMIT, R_HAT_LIMIT, Diagnostics
from graphuq.inference.run import ENOUGH
from graphuq.posterior.base import Diagnosis
from graphuq.posterior.mixture import MixtureDiagnosis

# Parameter names in Python and their command-line options.
OPTIONS = {
    "n_neighbors": "--neighbors",
    "n_components": "--components",
    "n_modes": "--modes",
    "n_steps": "--draws",
    "time_limit": "--time-limit",
    "class_shares": "--class-share",
    **{
        name: f"--{name}"
        for name in ("graph", "prior", "model", "inference", "scale", "width", "tau", "alpha", "gamma", "epsilon")
    },
}


def percent(probability: float) -> str:
    """Format a probability, without claiming more certainty than draws can give."""
    text = f"{probability:.1%}"
    return {"100.0%": "> 99.9%", "0.0%": "< 0.1%"}.get(text, text)


def share(part: float, digits: int = 0) -> str:
    """Format a share in percent; only exactly 0 is shown as 0% and only exactly 1 as 100%."""
    text, least = f"{part:.{digits}%}", 10.0 ** -(digits + 2)
    if part > 0 and text == f"{0:.{digits}%}":
        return f"under {least:.{digits}%}"
    if part < 1 and text == f"{1:.{digits}%}":
        return f"over {1 - least:.{digits}%}"
    return text


def verdict(diagnosis: Diagnosis) -> str:
    """Say whether a posterior can be trusted, and which options would help."""
    if isinstance(diagnosis, MixtureDiagnosis):
        worst = next((part for part in diagnosis.components if not part.converged), diagnosis.components[0])
        return f"An average over {len(diagnosis.components)} choices of hyper-parameters. {verdict(worst)}"
    if not isinstance(diagnosis, Diagnostics):
        return str(diagnosis)
    numbers = f"R-hat up to {diagnosis.worst_r_hat:.3f}, effective draws from {diagnosis.ess_bulk.min():.0f}"
    if diagnosis.converged:
        advice = " More --draws, or a larger --time-limit, make numbers steadier."
        return f"{diagnosis}{'' if ENOUGH.holds(diagnosis) else advice}"
    if diagnosis.mixed or (not diagnosis.balanced and diagnosis.worst_r_hat < R_HAT_LIMIT):
        return str(diagnosis)
    if np.isnan(diagnosis.worst_r_hat):
        return "Cannot say whether the chains converged: that takes at least 8 --draws."
    return (
        f"Not converged ({numbers}; it takes R-hat under {R_HAT_LIMIT} and {ESS_LIMIT:.0f} effective draws): ask for "
        "more --draws or a larger --time-limit; a larger --gamma, too, makes sampling easier."
    )


def as_the_shell_says(message: BaseException | str, names: Sequence[str]) -> str:
    """The text of an error or warning, with options instead of parameters and row names instead of numbers."""
    if isinstance(message, AboutSetting):
        return f"{OPTIONS.get(message.name, message.name)} {_with_options(message.text)}"
    if isinstance(message, MarkWarning):
        return (
            f"{message.word!r} is taken as a class, in {message.n_rows:,} rows. If these are unlabeled, leave them empty, or "
            f"say what marks them in a table: --unlabeled {quote(message.word)}."
        )
    if isinstance(message, AboutRows):
        return message.template.format(*(printable(names[row]) if names else row for row in message.rows))
    return _with_options(str(message))


def _with_options(sentence: str) -> str:
    """Replace parameters by options, such as scale="none" by --scale none."""
    sentence = sentence.replace("force=True", "--force")
    return re.sub(rf'\b({"|".join(OPTIONS)})="(\w+)"', lambda match: f"{OPTIONS[match[1]]} {match[2]}", sentence)


@contextmanager
def words_of_the_shell(names: Sequence[str] = ()) -> Iterator[list[str]]:
    """Yield a list that collects warnings in command-line wording, and reword errors likewise.

    Convergence warnings are dropped: the verdict on the draws covers them.
    """
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield notes
        except (ValueError, TypeError, MemoryError) as error:  # a TypeError if a model lacks a capability
            raise ValueError(as_the_shell_says(error, names)) from error
    messages = [
        as_the_shell_says(warning.message, names)
        for warning in caught
        if issubclass(warning.category, UserWarning) and not issubclass(warning.category, ConvergenceWarning)
    ]
    notes += dict.fromkeys(messages)
