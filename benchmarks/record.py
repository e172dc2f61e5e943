"""What a benchmark found in; docs/reproduction/performance.json, item by item, and one table of it, out."""

import json
import os
import platform
from pathlib import Path

from graphuq.files import whole_file

PATH = Path(__file__).parents[1] / "docs" / "reproduction" / "performance.json"
COLUMNS = ("ours", "peer", "ratio", "peak_gb")


def read() -> dict:
    """Everything found so far, on this or another machine."""
    return json.loads(PATH.read_text()) if PATH.exists() else {}


def record(item: str, *, ours: float, peer: float | None = None, peak_gb: float | None = None, **more) -> None:
    """Keep seconds of ours and of a peer, in the place of those of an earlier run."""
    ratio = None if peer is None else peer / ours
    found = {"ours": ours, "peer": peer, "ratio": ratio, "peak_gb": peak_gb, **more}
    found |= {"cores": os.cpu_count(), "machine": platform.processor() or platform.machine()}
    with whole_file(PATH) as part:
        part.write_text(json.dumps(read() | {item: found}, indent=1, sort_keys=True) + "\n")


def table() -> str:
    """One line an item."""
    lines = [f"{'item':<52}" + "".join(f"{name:>10}" for name in COLUMNS)]
    for item, found in read().items():
        numbers = ("-" if found[name] is None else f"{found[name]:.3g}" for name in COLUMNS)
        lines.append(f"{item:<52}" + "".join(f"{number:>10}" for number in numbers))
    return "\n".join(lines)
