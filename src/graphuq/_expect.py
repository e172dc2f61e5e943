"""What a person gave in; the same if it is of the right kind, or one sentence that says what was expected, out."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


class AboutSetting(Exception):
    """What is told of a setting: its name, which may be another at a shell, and the rest of the sentence."""

    def __init__(self, name: str, told: str) -> None:
        super().__init__(f"{name} {told}")
        self.name, self.told = name, told

    def __reduce__(self) -> Any:
        return type(self), (self.name, self.told)


class SettingError(AboutSetting, ValueError):
    """A setting that is refused."""


class SettingWarning(AboutSetting, UserWarning):
    """A setting that is not taken as it was given."""


class SettingTypeError(SettingError, TypeError):
    """A setting of another kind than expected."""


class AboutRows(Exception):
    """What is told of rows, counted from 0: `told` has {} where each of them stands, for those who know their names."""

    def __init__(self, told: str, *rows: int) -> None:
        super().__init__(told.format(*rows))
        self.told, self.rows = told, rows

    def __reduce__(self) -> Any:
        return type(self), (self.told, *self.rows)


class RowError(AboutRows, ValueError):
    """Rows that are refused."""

    def after(self, n_rows: int) -> RowError:
        """The same of rows that come after so many others."""
        return RowError(self.told, *(n_rows + row for row in self.rows))


class RowWarning(AboutRows, UserWarning):
    """Rows to look at."""


LARGEST_SEED = 2**63 - 1  # of JAX
LARGEST_COUNT = 2**31 - 1  # of anything that is drawn or stepped
LARGEST_SCALE = 1e150  # whose square, and one over it, are numbers too


def called(value: object) -> str:
    """What an object is called in an error: its type, not its contents."""
    if value is None or isinstance(value, str | bool | int | float | complex):
        return repr(value)[:60]
    kind = value.__name__ + " itself" if isinstance(value, type) else type(value).__name__
    return f"{'an' if kind[0].lower() in 'aeio' else 'a'} {kind}"


def why(error: BaseException) -> str:
    """What an error of another library says, in one line."""
    return " ".join(str(error).rstrip(".").split())[:200] or type(error).__name__


def expect(value: object, kind: type | tuple[type, ...], name: str, such_as: str) -> None:
    """Refuse an object of another kind."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {such_as}, got {called(value)}.")


def expect_sampler(sampler: object, name: str = "sampler") -> None:
    """Refuse what is no sampler."""
    if isinstance(sampler, type) or not hasattr(sampler, "prepare"):
        raise TypeError(f"{name} takes a sampler such as PCN() or NUTS(), got {called(sampler)}.")
    lacking = [
        each for each in ("init", "warm_step", "step", "draw") if not callable(getattr(sampler, each, None))
    ]
    if lacking:
        raise TypeError(
            f"{name} must have the functions prepare, init, warm_step, step and draw, and {called(sampler)} has no "
            f"{' and no '.join(lacking)}. One whose warm-up adapts nothing says warm_step = step."
        )


def expect_posterior(posterior: object) -> None:
    """Refuse what is no posterior."""
    if isinstance(posterior, type) or not hasattr(posterior, "label_mean"):
        raise TypeError(f"posterior must be a Posterior, as sample(prior, model) makes, got {called(posterior)}.")


def expect_path(path: Any, name: str = "path") -> Path:
    """The name of a file."""
    expect(path, (str, PathLike), name, "the name of a file")
    return Path(path)


def expect_one_of(value: Any, allowed: Iterable[str], name: str) -> str:
    """One of a few words."""
    *others, last = map(repr, allowed)
    if not isinstance(value, str) or repr(value) not in (*others, last):
        kind = SettingError if isinstance(value, str) else SettingTypeError
        raise kind(name, f"must be {', '.join(others)} or {last}, got {called(value)}.")
    return value


def expect_between(value: Any, name: str, most: float, *, included: bool = False) -> float:
    """A number above 0 and below, or up to, so much."""
    allowed = f"(0, {most:g}{']' if included else ')'}"
    expect(value, Real, name, f"a number in {allowed}")
    if not 0 < value < most and not (included and value == most):
        raise SettingError(name, f"must lie in {allowed}, got {value}.")
    return float(value)


def expect_numbers(values: Any, name: str) -> NDArray[np.float64]:
    """Real numbers as float64: neither text, times or complex numbers, nor entries that are masked."""
    refuse_masked(values, name)
    if values is None:
        raise TypeError(f"{name} must be real numbers, got None.")
    found = _array(values)
    try:
        if found.dtype.kind not in "biuf":
            if found.dtype.kind != "O" or any(isinstance(each, str | complex) for each in found.ravel()[:1000]):
                raise TypeError
            found = found.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        what = f"{found.dtype}" if found.ndim else called(values)
        raise TypeError(f"{name} must be real numbers, got {what}.") from None
    return np.asarray(found, dtype=np.float64)


def expect_field(u: Any, n_nodes: int) -> NDArray[np.float64]:
    """u at all nodes, shape (n_nodes,) or (n_nodes, n_fields)."""
    found = expect_numbers(u, "u")
    if found.ndim == 0 or found.shape[0] != n_nodes or not np.isfinite(found).all():
        raise ValueError(f"u must have a finite value for each of {n_nodes} nodes, got the shape {found.shape}.")
    return found


def _array(values: Any) -> NDArray[Any]:
    """As an array; rows of unequal lengths, and what cannot be one, as objects, which no one takes for numbers."""
    try:
        return np.asarray(values)
    except ValueError:
        return np.array([*values, None], dtype=object)[:-1]
    except Exception:  # an object that says how it becomes an array may fail in any way
        return np.array(object())


def refuse_masked(values: Any, name: str) -> None:
    """Refuse entries that are masked: most functions would read what lies under the mask."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(
            f"{name} has masked entries, {int(np.ma.count_masked(values))} of {values.size}: fill them in."
        )


def expect_number(value: Any, name: str, *, zero: bool = False) -> float:
    """A finite number above 0, or from 0 on."""
    try:
        number = float(value) if isinstance(value, Real) else np.nan
    except OverflowError:  # a whole number of 400 digits
        number = np.inf
    if not 0 <= number < np.inf or (number == 0 and not zero):
        kind = SettingError if isinstance(value, Real) else SettingTypeError
        raise kind(name, f"must be a finite number{', 0 or above' if zero else ' above 0'}, got {called(value)}.")
    return number


def expect_scale(value: Any, name: str) -> float:
    """A number above 0 that can be squared, and divided by."""
    number = expect_number(value, name)
    if not 1 / LARGEST_SCALE <= number <= LARGEST_SCALE:
        raise SettingError(name, f"must lie between {1 / LARGEST_SCALE:g} and {LARGEST_SCALE:g}, got {number:g}.")
    return number


def expect_flag(value: Any, name: str) -> bool:
    """Yes or no."""
    expect(value, (bool, np.bool_), name, "True or False")
    return bool(value)


def expect_whole(value: Any, name: str, least: float = 1, most: float = np.inf) -> int:
    """A whole number of at least, and at most, so much."""
    try:
        if isinstance(value, bool | np.bool_ | np.ndarray):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        kind = SettingError if isinstance(value, Real) else SettingTypeError
        raise kind(name, f"must be a whole number, got {called(value)}.") from None
    if not least <= number <= most:
        one_sided = number < least and most in (np.inf, LARGEST_COUNT)
        allowed = f"of at least {least}" if one_sided else f"between {least} and {most}"
        raise SettingError(name, f"must be a whole number {allowed}, got {number}.")
    return number


def expect_count(value: Any, name: str, most: int, what: str, *, least: int = 1) -> int:
    """A whole number of what there are only so many of."""
    number = expect_whole(value, name, -np.inf)
    if not least <= number <= most:
        raise SettingError(name, f"must lie between {least} and {most}, {what}, got {number}.")
    return number


def expect_nodes(nodes: Any, n_nodes: int, name: str = "Nodes", *, once: bool = False) -> NDArray[np.int64]:
    """Nodes asked for, as numbers, perhaps each once: given as such, or as one yes or no for each node."""
    refuse_masked(nodes, name.lower())
    chosen = np.atleast_1d(_array(nodes))
    if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iub"):
        raise ValueError(
            f"{name} must be a list of node numbers, or one yes or no for each node; got {chosen.dtype} of the shape "
            f"{chosen.shape}."
        )
    if chosen.dtype.kind == "b":
        if chosen.size != n_nodes:
            raise ValueError(f"A mask needs one entry for each of {n_nodes} nodes, got {chosen.size}.")
        return np.flatnonzero(chosen)
    if chosen.size and (chosen.min() < 0 or chosen.max() >= n_nodes):
        raise ValueError(f"{name} must lie between 0 and {n_nodes - 1}, got {chosen.min()} to {chosen.max()}.")
    if once and len(np.unique(chosen)) < len(chosen):
        raise ValueError(f"{name} must differ: each is meant once.")
    return chosen.astype(np.int64)


def expect_in_graph(nodes: NDArray[np.int64], n_nodes: int) -> None:
    """Refuse nodes that a graph does not have."""
    if nodes.max() >= n_nodes:
        raise ValueError(f"Node {nodes.max()} is not in the graph, whose nodes are 0 to {n_nodes - 1}.")


def expect_generator(seed: Any) -> np.random.Generator:
    """Random numbers of a seed, or from a generator that has one."""
    return seed if isinstance(seed, np.random.Generator) else np.random.default_rng(expect_seed(seed))


def expect_seed(seed: Any) -> int:
    """A seed that JAX takes."""
    return expect_whole(seed, "seed", 0, LARGEST_SEED)
