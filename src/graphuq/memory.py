"""The memory that a computation needs in; an error if it exceeds any limit on this process out."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

# Cgroup v2 and v1: root folder, files with the limit and the usage, and the reclaimable page cache in that usage.
_CGROUPS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current", ("inactive_file", "active_file")),
    (
        "/sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_inactive_file", "total_active_file"),
    ),
)

# Address space needed to start: JAX, SciPy and scikit-learn loaded, with their threads, and a small problem.
BEGINNING = 1.5e9
# Field of /proc/self/status with the usage that each limit applies to.
_USED = {"RLIMIT_AS": "VmSize", "RLIMIT_DATA": "VmData"}


class NoRoom(MemoryError):
    """Raised before a computation that needs more memory than is available; the message says how much."""


def room() -> float:
    """Bytes that this process can still allocate: the minimum over the machine, its cgroups and its ulimits."""
    return max(0.0, min([_machine(), *_cgroups(), *_ulimits()]))


def check_room(needed: float, what: str, remedy: str) -> None:
    """Refuse a computation that will not fit before it starts: running out of memory in XLA or BLAS is fatal."""
    if needed > (left := room()):
        raise NoRoom(f"{what} takes {size_in_words(needed)}, but {size_in_words(left)} are free. {remedy}")


def check_beginning() -> None:
    """Refuse a limit on address space too small for the libraries: XLA's threads would abort the process."""
    if (left := min(_ulimits("RLIMIT_AS"), default=float("inf"))) < BEGINNING:
        raise NoRoom(
            f"{size_in_words(BEGINNING)} of addresses are needed to begin with, but {size_in_words(left)} are left: raise ulimit -v."
        )


def check_disk(folder: Path, needed: float, what: str) -> None:
    """Refuse to write more than fits on the disk of a folder, which need not exist yet."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if needed > (left := shutil.disk_usage(existing).free):
        raise OSError(
            f"{what} takes {size_in_words(needed)}, but {size_in_words(left)} are free in {existing}: choose another folder."
        )


def size_in_words(size: float) -> str:
    """Number of bytes as text, in MB or GB."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"


def _machine() -> float:
    """Bytes available on the machine or, where the system does not say, its physical memory."""
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
    """Bytes left by each cgroup that contains the process; inside a container its own is at the root."""
    paths: dict[str, str] = {}
    for line in _lines("/proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    for (root, limit_file, usage_file, cache), controller in zip(_CGROUPS, ("", "memory"), strict=True):
        inner = Path(root + paths.get(controller, "/"))
        for folder in (inner, *(parent for parent in inner.parents if str(parent).startswith(root))):
            try:
                limit = float((folder / limit_file).read_text().replace("max", "inf"))
                used = float((folder / usage_file).read_text())
                stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            except (OSError, ValueError):
                continue
            yield limit - used + sum(float(stat.get(name, 0)) for name in cache)


def _ulimits(*names: str) -> Iterator[float]:
    """Bytes left under each resource limit, by default those on address space and on data."""
    status = dict(line.partition(":")[::2] for line in _lines("/proc/self/status"))
    if not status:
        return
    import resource

    for name in names or _USED:
        limit = resource.getrlimit(getattr(resource, name))[0]
        if limit != resource.RLIM_INFINITY:
            yield limit - 1024.0 * int(status[_USED[name]].split()[0])


def _lines(path: str) -> list[str]:
    """The lines of a file of Linux, whose names may hold anything but a line break; none on another system."""
    try:
        return [line for line in os.fsdecode(Path(path).read_bytes()).split("\n") if line]
    except OSError:
        return []
