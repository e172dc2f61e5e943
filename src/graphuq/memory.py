"""What a computation will take in; whether this process may have it, by any limit that it is under, out."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

# Cgroups name their limit, their use, and the cache in it that is given up when asked for, differently.
_CGROUPS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current", ("inactive_file", "active_file")),
    (
        "/sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_inactive_file", "total_active_file"),
    ),
)

# Of addresses: JAX, SciPy and scikit-learn loaded, with their threads, and a small problem.
BEGINNING = 1.5e9
# What a process has of what a limit is on.
_USED = {"RLIMIT_AS": "VmSize", "RLIMIT_DATA": "VmData"}


class NoRoom(MemoryError):
    """What will take more memory than there is, in a sentence that says how much."""


def room() -> float:
    """Bytes that this process can still have: the least that the machine, its cgroups and its ulimits leave."""
    return max(0.0, min([_machine(), *_cgroups(), *_ulimits()]))


def check_room(needed: float, what: str, remedy: str) -> None:
    """Refuse what will not fit, before it is begun: to run out of memory inside XLA or BLAS ends the process."""
    if needed > (left := room()):
        raise NoRoom(f"{what} takes {size_in_words(needed)}, but {size_in_words(left)} are free. {remedy}")


def check_beginning() -> None:
    """Refuse a limit on addresses in which the libraries would not find room: XLA's threads then end the process."""
    if (left := min(_ulimits("RLIMIT_AS"), default=float("inf"))) < BEGINNING:
        raise NoRoom(
            f"{size_in_words(BEGINNING)} of addresses are needed to begin with, but {size_in_words(left)} are left: raise ulimit -v."
        )


def check_disk(folder: Path, needed: float, what: str) -> None:
    """Refuse what a disk has no space for."""
    there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    if needed > (left := shutil.disk_usage(there).free):
        raise OSError(
            f"{what} takes {size_in_words(needed)}, but {size_in_words(left)} are free in {there}: choose another folder."
        )


def size_in_words(size: float) -> str:
    """Bytes for a person."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"


def _machine() -> float:
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            return 1024.0 * int(dict(line.split(":") for line in lines)["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        pass
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return float("inf")


def _cgroups() -> Iterator[float]:
    """What each cgroup that the process is in leaves; inside a container its own is at the root."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="ascii").split()
    except OSError:  # not Linux
        return
    paths = {line.split(":")[1]: line.split(":")[2] for line in lines}
    for (top, most, now, cache), kind in zip(_CGROUPS, ("", "memory"), strict=True):
        inner = Path(top + paths.get(kind, "/"))
        for folder in (inner, *(each for each in inner.parents if str(each).startswith(top))):
            try:
                limit = float((folder / most).read_text().replace("max", "inf"))
                used = float((folder / now).read_text())
                stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            except (OSError, ValueError):
                continue
            yield limit - used + sum(float(stat.get(each, 0)) for each in cache)


def _ulimits(*names: str) -> Iterator[float]:
    """What each limit leaves, by default those on addresses and on data."""
    try:
        import resource

        status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    except (ImportError, OSError, ValueError):  # not Linux
        return
    for name in names or _USED:
        most = resource.getrlimit(getattr(resource, name))[0]
        if most != resource.RLIM_INFINITY:
            yield most - 1024.0 * int(status[_USED[name]].split()[0])
