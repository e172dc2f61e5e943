"""A user's argument in; its validated value out, or an error that says in one sentence what was expected."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


class AboutSetting(Exception):
    """A message about a parameter: its name, which the command line translates, and the rest, `text`."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name} {text}")
        self.name, self.text = name, text

    def __reduce__(self) -> Any:
        return type(self), (self.name, self.text)


class SettingError(AboutSetting, ValueError):
    """A parameter has an invalid value."""


class SettingWarning(AboutSetting, UserWarning):
    """A parameter is not used as given."""


class SettingTypeError(SettingError, TypeError):
    """A parameter has the wrong type."""


class MarkWarning(UserWarning):
    """A word that elsewhere marks missing values is taken as a class."""

    def __init__(self, word: str, n_rows: int) -> None:
        super().__init__(
            f"y holds {word!r} in {n_rows:,} rows, which are taken as a class. If they are unlabeled, leave them empty "
            "(None)."
        )
        self.word, self.n_rows = word, n_rows

    def __reduce__(self) -> Any:
        return type(self), (self.word, self.n_rows)


class AboutRows(Exception):
    """A message about rows, numbered from 0.

    `template` has {} in place of each row, so that row names can be filled in instead.
    """

    def __init__(self, template: str, *rows: int) -> None:
        super().__init__(template.format(*rows))
        self.template, self.rows = template, rows

    def __reduce__(self) -> Any:
        return type(self), (self.template, *self.rows)


class RowError(AboutRows, ValueError):
    """Rows are invalid."""

    def after(self, n_rows: int) -> RowError:
        """The same error with row numbers shifted by `n_rows`."""
        return RowError(self.template, *(n_rows + row for row in self.rows))


class RowWarning(AboutRows, UserWarning):
    """Rows that deserve a look."""


LARGEST_SEED = 2**63 - 1  # the largest that JAX takes
LARGEST_COUNT = 2**31 - 1  # of draws, steps and the like
LARGEST_SCALE = 1e150  # its square and the reciprocal of that are finite and nonzero


def called(value: object) -> str:
    """How an error message names an object: scalars by value, anything else by its type."""
    if value is None or isinstance(value, str | bool | int | float | complex):
        return repr(value)[:60]
    kind = value.__name__ + " itself" if isinstance(value, type) else type(value).__name__
    return f"{'an' if kind[0].lower() in 'aeio' else 'a'} {kind}"


def why(error: BaseException) -> str:
    """The message of another library's error, in one line."""
    return " ".join(str(error).rstrip(".").split())[:200] or type(error).__name__


def expect(value: object, kind: type | tuple[type, ...], name: str, such_as: str) -> None:
    """Raise a TypeError unless the value has the given type."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {such_as}, got {called(value)}.")


def put(instance: object, **values: object) -> None:
    """Set fields of a frozen dataclass to their validated values."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def expect_sampler(sampler: object, name: str = "sampler") -> None:
    """Raise a TypeError unless the object has the methods of a sampler."""
    if isinstance(sampler, type) or not hasattr(sampler, "prepare"):
        raise TypeError(f"{name} takes a sampler such as PCN() or NUTS(), got {called(sampler)}.")
    missing = [method for method in ("init", "step", "draw") if not callable(getattr(sampler, method, None))]
    if missing:
        raise TypeError(
            f"{name} must have the functions prepare, init, step and draw, and {called(sampler)} has no "
            f"{' and no '.join(missing)}."
        )


def expect_path(path: Any, name: str = "path") -> Path:
    """Validate a file name; return it as a `Path`."""
    expect(path, (str, PathLike), name, "the name of a file")
    if "\0" in str(path):
        raise ValueError(f"{name} must be the name of a file, got {str(path)[:60]!r}, which holds a zero byte.")
    return Path(path)


def expect_whole_letters(texts: Iterable[str], name: str) -> None:
    """Raise for half of a surrogate pair, which Python's text may hold and UTF-8 may not."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise ValueError(f"{name} holds {half!r}, half a letter, which no file can hold: remove it.") from None


def expect_one_of(value: Any, allowed: Iterable[str], name: str) -> str:
    """Validate one of the allowed words."""
    *others, last = map(repr, allowed)
    if not isinstance(value, str) or repr(value) not in (*others, last):
        kind = SettingError if isinstance(value, str) else SettingTypeError
        raise kind(name, f"must be {', '.join(others)} or {last}, got {called(value)}.")
    return value


def expect_between(value: Any, name: str, most: float, *, included: bool = False) -> float:
    """Validate a number above 0 and below `most`, or up to it if `included`."""
    allowed = f"(0, {most:g}{']' if included else ')'}"
    expect(value, Real, name, f"a number in {allowed}")
    if not 0 < value < most and not (included and value == most):
        raise SettingError(name, f"must lie in {allowed}, got {value}.")
    return float(value)


def expect_numbers(values: Any, name: str) -> NDArray[np.float64]:
    """Convert real numbers to float64; raise an error for text, times, complex numbers and masked entries."""
    refuse_masked(values, name)
    if values is None:
        raise TypeError(f"{name} must be real numbers, got None.")
    array = _array(values)
    try:
        if array.dtype.kind not in "biuf":
            if array.dtype.kind != "O" or any(isinstance(entry, str | complex) for entry in array.ravel()[:1000]):
                raise TypeError
            array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        given = f"{array.dtype}" if array.ndim else called(values)
        raise TypeError(f"{name} must be real numbers, got {given}.") from None
    return np.asarray(array, dtype=np.float64)


def expect_field(u: Any, n_nodes: int) -> NDArray[np.float64]:
    """Validate u at all nodes, shape (n_nodes,) or (n_nodes, n_fields)."""
    field = expect_numbers(u, "u")
    if field.ndim == 0 or field.shape[0] != n_nodes or not np.isfinite(field).all():
        raise ValueError(f"u must have a finite value for each of {n_nodes} nodes, got the shape {field.shape}.")
    if np.abs(field).max() > LARGEST_SCALE:
        raise ValueError(
            f"u has numbers too large to square, above {LARGEST_SCALE:g}: divide it by a large number."
        )
    return field


def _array(values: Any) -> NDArray[Any]:
    """Convert to an array; of dtype object for rows of unequal lengths and anything that fails to convert."""
    try:
        return np.asarray(values)
    except ValueError:
        return np.array([*values, None], dtype=object)[:-1]
    except Exception:  # a custom __array__ can raise anything
        return np.array(object())


def expect_well_formed(matrix: Any, name: str) -> None:
    """Raise an error for a sparse matrix with indices out of range: SciPy would read beyond its memory."""
    if hasattr(matrix, "indptr"):
        try:
            matrix.check_format(full_check=True)
        except ValueError as error:
            raise ValueError(
                f"{name} must be a well-formed sparse matrix: {why(error)}. Rebuild it from rows, columns and values, as "
                "scipy.sparse.coo_array((values, (rows, columns)))."
            ) from None


def refuse_masked(values: Any, name: str) -> None:
    """Raise an error for masked entries: most functions would read the data under the mask."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(
            f"{name} has masked entries, {int(np.ma.count_masked(values))} of {values.size}: fill them in."
        )


def expect_number(value: Any, name: str, *, zero: bool = False) -> float:
    """Validate a finite number above 0, or also 0 if `zero`."""
    try:
        number = float(value) if isinstance(value, Real) else np.nan
    except OverflowError:  # an integer of 400 digits
        number = np.inf
    if not 0 <= number < np.inf or (number == 0 and not zero):
        kind = SettingError if isinstance(value, Real) else SettingTypeError
        raise kind(name, f"must be a finite number{', 0 or above' if zero else ' above 0'}, got {called(value)}.")
    return number


def expect_scale(value: Any, name: str, most: float = LARGEST_SCALE) -> float:
    """Validate a positive number whose square and reciprocal neither overflow nor underflow."""
    number = expect_number(value, name)
    if not 1 / LARGEST_SCALE <= number <= most:
        raise SettingError(name, f"must lie between {1 / LARGEST_SCALE:g} and {most:g}, got {number:g}.")
    return number


def expect_flag(value: Any, name: str) -> bool:
    """Validate a bool."""
    expect(value, (bool, np.bool_), name, "True or False")
    return bool(value)


def expect_whole(value: Any, name: str, least: float = 1, most: float = np.inf) -> int:
    """Validate an integer between `least` and `most`."""
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
    """Validate an integer up to `most`, the number of things available, described by `what`."""
    number = expect_whole(value, name, -np.inf)
    if not least <= number <= most:
        raise SettingError(name, f"must lie between {least} and {most}, {what}, got {number}.")
    return number


def expect_nodes(nodes: Any, n_nodes: int, name: str = "Nodes", *, once: bool = False) -> NDArray[np.int64]:
    """Validate node numbers, or a boolean mask of all nodes; return numbers, which must be distinct if `once`."""
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
    if (outside := chosen[(chosen < 0) | (chosen >= n_nodes)]).size:
        raise ValueError(f"{name} must lie between 0 and {n_nodes - 1}, got {outside[0]}.")
    if once and len(np.unique(chosen)) < len(chosen):
        raise ValueError(f"{name} must differ: each is meant once.")
    return chosen.astype(np.int64)


def expect_in_graph(nodes: ArrayLike, n_nodes: int) -> None:
    """Raise an error for nodes that are not in the graph."""
    if np.max(nodes) >= n_nodes:
        raise ValueError(f"Node {np.max(nodes)} is not in the graph, whose nodes are 0 to {n_nodes - 1}.")


def expect_generator(seed: Any) -> np.random.Generator:
    """A random generator: the given one, or a new one with the given seed."""
    return seed if isinstance(seed, np.random.Generator) else np.random.default_rng(expect_seed(seed))


def expect_seed(seed: Any) -> int:
    """Validate a seed within the range of JAX."""
    return expect_whole(seed, "seed", 0, LARGEST_SEED)
