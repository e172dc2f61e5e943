"""Kill -9 at random moments and before every file operation: nothing of the user's may be lost or half-written.

    python -m benchmarks.kills          50 random kills of each of three commands, and one before each file operation
    python -m benchmarks.kills 5        fewer

After each kill the folder is looked at, the command is run again, and what it leaves is compared with what a run that was
never interrupted makes. Prints how many kills met which state, and exits with 1 if any was wrong.
"""

import hashlib
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np

from graphuq import PCN, GraphClassifier, graph, laplacian, models, prior, spectrum
from graphuq.app import folder
from graphuq.app.fitting import fit_folder
from graphuq.app.question import Question
from graphuq.inference.run import sample

OPERATIONS = ("open", "os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.truncate", "fcntl.flock")


def main() -> int:
    n_random = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    home = Path(mkdtemp())
    rng = np.random.default_rng(0)
    bad = 0
    try:
        write_table(home / "table.csv")
        for task in (Fit(home), Replace(home), Checkpoint(home)):
            states, n_kills = Counter[str](), 0
            seconds = task.whole()
            moments: list[tuple[float, int]] = [(t, -1) for t in rng.uniform(0, seconds, n_random)]
            moments += [(np.inf, n) for n in range(in_child(task.prepare, task.run, home, np.inf, 10**9)[1])]
            for moment, operation in moments:
                n_kills += in_child(task.prepare, task.run, home, moment, operation)[0]
                found = task.look()
                states[found] += 1
                bad += found.startswith("WRONG")
            told = ", ".join(f"{n} x {state}" for state, n in sorted(states.items()))
            print(f"{type(task).__name__}: {n_kills} kills of {len(moments)} runs: {told}", flush=True)
    finally:
        shutil.rmtree(home)
    return bool(bad)


def in_child(
    prepare: Callable[[], None], run: Callable[[], None], home: Path, moment: float, operation: int
) -> tuple[bool, int]:
    """Run in a process of its own and kill it; whether it was killed, and how many file operations in `home` it made."""
    prepare()
    (read, write), began = os.pipe(), time.monotonic()
    if (child := os.fork()) == 0:
        count = 0

        def hook(event: str, arguments: Any) -> None:
            nonlocal count
            where = str(arguments[0]) if arguments else ""
            if event in OPERATIONS and (where.startswith(str(home)) or "/" not in where):
                if count == operation:
                    os.kill(os.getpid(), signal.SIGKILL)
                count += 1

        sys.addaudithook(hook)
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 2)
        try:
            run()
            os.write(write, str(count).encode())
        finally:
            os._exit(0 if count else 1)
    os.close(write)
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() - began > moment:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.001)
    _, status = os.waitpid(child, 0)
    said = os.read(read, 100)
    os.close(read)
    if not os.WIFSIGNALED(status) and not said:
        raise RuntimeError("The command failed.")
    return os.WIFSIGNALED(status), int(said or 0)


def write_table(path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) + np.repeat([[0], [3]], 100, axis=0)
    lines = [f"{x[0]},{x[1]},{x[2]},{['a', 'b'][k // 100] if k % 20 == 0 else ''}" for k, x in enumerate(X)]
    path.write_text("\n".join(["x,y,z,kind", *lines]))


class Fit:
    """`graphuq fit`: the folder is there whole or not at all, and the next run makes it."""

    replace = False

    def __init__(self, home: Path) -> None:
        self.home, self.out = home, home / "out"
        self.reference: dict[str, str] = {}
        self.size = 0

    def prepare(self) -> None:
        """What stands there before."""
        for path in self.home.iterdir():
            if path.name != "table.csv":
                shutil.rmtree(path)

    def run(self) -> None:
        """The command."""
        question = Question(table=self.home / "table.csv", label="kind")
        classifier = GraphClassifier(prior="matern", gamma=0.5, inference="ep", n_modes=30, random_state=1)
        fit_folder(question, classifier, self.out, replace=self.replace)

    def whole(self) -> float:
        """A run that is not interrupted; its seconds."""
        began = time.monotonic()
        in_child(self.prepare, self.run, self.home, np.inf, -1)
        seconds = time.monotonic() - began
        self.reference = contents(self.out)
        return seconds

    def look(self) -> str:
        """What the kill left, and whether the next run puts it right."""
        state = "new" if self.out.exists() else "nothing"
        if state == "new" and contents(self.out) != self.reference:
            return "WRONG: half a folder"
        if state == "nothing":
            in_child(lambda: None, self.run, self.home, np.inf, -1)
        return state if self.right() else "WRONG after the next run"

    def right(self) -> bool:
        """Whether what stands there now is what it should be."""
        left = sorted(path.name for path in self.home.iterdir())
        return left == ["out", "table.csv"] and contents(self.out) == self.reference


class Replace(Fit):
    """`graphuq fit --force` over an old result: the old or the new, and the next run finds it."""

    replace = True

    def prepare(self) -> None:
        """What stands there before."""
        super().prepare()
        self.out.mkdir()
        for name in (folder.MODEL, folder.RUN, folder.REPORT, folder.ANSWERS):
            (self.out / name).write_text("old")

    def look(self) -> str:
        """What the kill left, and whether the next run puts it right."""
        hidden = self.home / ".out.part" / "old"
        kept = self.out if self.out.exists() else hidden
        old = {path.name for path in kept.iterdir() if path.read_bytes() == b"old"}
        state = "old" if len(old) == 4 else "WRONG: half a folder" if old else "new"
        if state == "new" and contents(kept) != self.reference:
            return "WRONG: half a folder"
        in_child(lambda: None, self.run, self.home, np.inf, -1)
        return state + (", moved away" if kept == hidden else "") if self.right() else "WRONG after the next run"


class Checkpoint(Fit):
    """`sample` with a checkpoint: the next run ends with the same draws."""

    def prepare(self) -> None:
        """What stands there before."""
        if self.out.is_file():
            self.out.unlink()
        super().prepare()

    def run(self) -> None:
        """The command."""
        weights = graph.gaussian(np.random.default_rng(0).normal(size=(40, 2)), tau=1.0)
        mu0 = prior.matern(spectrum.dense(laplacian.normalized(weights)), tau=0.1, alpha=2)
        model = models.Probit(np.arange(6), np.arange(6) % 2, gamma=0.5)
        sample(mu0, model, PCN(), n_steps=40_000, thin=100, n_warmup=100, n_chains=4, checkpoint=self.out)

    def look(self) -> str:
        """What the kill left, and whether the next run puts it right."""
        state = (
            "nothing"
            if not self.out.exists()
            else f"{10 * (self.out.stat().st_size * 10 // self.size)}% of the file"
        )
        in_child(lambda: None, self.run, self.home, np.inf, -1)
        return state if self.right() else "WRONG after the next run"

    def whole(self) -> float:
        """A run that is not interrupted; its seconds."""
        seconds = super().whole()
        self.size = self.out.stat().st_size
        return seconds


def contents(path: Path) -> dict[str, str]:
    """A digest of every file; run.json and the page tell seconds, and so does the model's record."""
    files = [path] if path.is_file() else sorted(path.iterdir())
    found = {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in files}
    if path.is_dir() and folder.ANSWERS in found:
        found |= dict.fromkeys((folder.RUN, folder.REPORT, folder.MODEL), "present")
        classifier, _, _ = folder.read(path) if (path / folder.MODEL).stat().st_size > 3 else (None, None, None)
        if classifier is not None:
            found[folder.MODEL] = hashlib.sha256(classifier.label_distributions_.tobytes()).hexdigest()
    return found


if __name__ == "__main__":
    sys.exit(main())
