"""Run every benchmark in turn: `python -m benchmarks`, or some: `python -m benchmarks spectrum step_cost`.

It ends with a table of docs/reproduction/performance.json, which benchmarks that keep a record add to.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks.record import table

HELPERS = {"__init__", "__main__", "exact_answers", "page", "problems", "record", "small_problems"}


def main() -> int:
    everything = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in HELPERS)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Run every benchmark in turn, or some."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(everything)}")
    chosen = parser.parse_args().names or everything
    unknown = sorted(set(chosen) - set(everything))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}: choose from {', '.join(everything)}.")
    failed = []
    for name in chosen:
        print(f"\n== {name}", flush=True)
        # A process each: peak memory and thread pools of one must not show in the next.
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"]).returncode:
            failed.append(name)
    print(f"\n{table()}")
    if failed:
        print(f"\nFailed: {', '.join(failed)}.", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
