"""What a benchmark found in; docs/reproduction/performance.json, item by item, and one table of it, out."""

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path

from graphuq.files import whole_file

# A run whose R-hat is not below this has no effective draws to speak of.
CONVERGED = 1.05
DRAWS = "effective draws, "
PATH = Path(__file__).parents[1] / "docs" / "reproduction" / "performance.json"
COLUMNS = ("ours", "peer", "ratio", "peak_gb")


def read() -> dict:
    """Everything found so far, on this or another machine."""
    return json.loads(PATH.read_text()) if PATH.exists() else {}


def record(
    item: str, *, ours: float | None, peer: float | None = None, peak_gb: float | None = None, **more
) -> None:
    """Keep seconds of ours and of a peer, in the place of those of an earlier run."""
    ratio = None if peer is None or ours is None else peer / ours
    found = {"ours": ours, "peer": peer, "ratio": ratio, "peak_gb": peak_gb, **more}
    found |= {"cores": os.cpu_count(), "machine": platform.processor() or platform.machine()}
    with whole_file(PATH) as part:
        part.write_text(json.dumps(read() | {item: found}, indent=1, sort_keys=True) + "\n")


def best_rates(found: dict[str, tuple[float, float]], peers: Sequence[str]) -> tuple[float, float]:
    """The largest effective draws a second of ours and of the peers, 0 if no run has converged.

    `found` has the rate and the R-hat of each sampler.
    """
    converged = {label: rate for label, (rate, r_hat) in found.items() if r_hat < CONVERGED}
    ours = max((rate for label, rate in converged.items() if label not in peers), default=0.0)
    return ours, max((rate for label, rate in converged.items() if label in peers), default=0.0)


def record_draws(item: str, found: dict[str, tuple[float, float]], peers: Sequence[str]) -> None:
    """Keep the effective draws a second and the R-hat of each sampler; `ours` and `peer` are seconds a draw."""
    ours, theirs = (1 / rate if rate else None for rate in best_rates(found, peers))
    samplers = {label: [float(rate), float(r_hat)] for label, (rate, r_hat) in found.items()}
    record(f"{DRAWS}{item}", ours=ours, peer=theirs, samplers=samplers, peers=list(peers))


def table() -> str:
    """One line an item."""
    lines = [f"{'item':<52}" + "".join(f"{name:>10}" for name in COLUMNS)]
    for item, found in read().items():
        numbers = ("-" if found[name] is None else f"{found[name]:.3g}" for name in COLUMNS)
        lines.append(f"{item:<52}" + "".join(f"{number:>10}" for number in numbers))
    return "\n".join(lines)
