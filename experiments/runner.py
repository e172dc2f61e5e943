"""Names of experiments in; their trials run side by side, and records and figures out.

Every finished trial is a JSON file of its own, so a run that was killed goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import multiprocessing
import os
import platform
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from experiments.experiment import Claim, Experiment, Record, Trial
from graphuq import __version__
from graphuq.files import whole_file

# The paper's order, then what goes beyond it.
ORDER = (
    "fig1", "fig2", "fig3", "fig4", "fig5", "table1", "fig6", "fig7", "approx", "fig8", "table2", "fig9", "fig10",
    "learned", "variance_error", "mode_sweep", "calibration", "ep_accuracy",
)  # fmt: skip
# Trials keep what they share, such as eigenvectors, in the folder that this variable names.
WORK = "GRAPHUQ_REPRODUCTION"
# A page with all figures should load at once.
LARGEST_FIGURE = 300_000
# Enough for any table, and records stay small.
DIGITS = 7


@dataclass(frozen=True)
class Outcome:
    """What became of one experiment.

    Attributes:
        name: of the experiment.
        record: None where it could not be made.
        claims: from the record.
        missing: what could not be had, in a sentence: data or a package.
        errors: the tracebacks of broken trials, each with its trial.
    """

    name: str
    record: Record | None = None
    claims: tuple[Claim, ...] = ()
    missing: str = ""
    errors: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether nothing broke and every claim that should hold does."""
        return not self.errors and all(claim.agrees is not False for claim in self.claims)


@dataclass(frozen=True)
class Job:
    """One trial of one experiment, the module that runs it, and the file of its result."""

    name: str
    module: str
    config: Any
    trial: Trial
    path: Path


def available() -> list[str]:
    """The experiments that are here, in order."""
    return [name for name in ORDER if Path(__file__).with_name(f"{name}.py").exists()]


def load(name: str) -> Experiment:
    """The module of an experiment; a name with a dot is that of the module."""
    module: Any = import_module(name if "." in name else f"experiments.{name}")
    return module


def reproduce(
    names: Sequence[str],
    *,
    level: str,
    jobs: int,
    out: Path,
    work: Path,
    figures: bool = True,
    seconds: float = math.inf,
) -> list[Outcome]:
    """Run experiments at the level "full" or "quick"; write `out`/name.json and `out`/name.png of each.

    Args:
        names: the experiments.
        level: "full" or "quick".
        jobs: processes.
        out: folder for records and figures.
        work: folder for finished trials.
        figures: False to leave figures out.
        seconds: after which no more trials are begun; records are then made of those that are done.
    """
    out.mkdir(parents=True, exist_ok=True)
    (work / "trials").mkdir(parents=True, exist_ok=True)
    plan = {name: _jobs(name, level, work) for name in names}
    # The first trial of each, then the second of each: what one compiles serves the next.
    rounds = zip_longest(*plan.values())
    answers = _run([job for each in rounds for job in each if job is not None], jobs, work, seconds)
    done = {name: [answers[job.path] for job in plan[name] if job.path in answers] for name in names}
    return [_outcome(name, level, done[name], out, figures) for name in names]


def results_of(
    name: str, wanted: Callable[[Trial], bool], *, jobs: int, work: Path, seconds: float = math.inf
) -> list[dict[str, Any]]:
    """The results of some trials of an experiment at its full level, as many as time allows; those on disk are read."""
    (work / "trials").mkdir(parents=True, exist_ok=True)
    some = [job for job in _jobs(name, "full", work) if wanted(job.trial)]
    answers = _run(some, jobs, work, seconds)
    if errors := [answer["error"] for answer in answers.values() if "error" in answer]:
        raise RuntimeError(errors[0])
    return [answers[job.path]["result"] for job in some if "result" in answers.get(job.path, {})]


def read_record(path: Path) -> Record:
    """A record from its JSON file."""
    return Record(**json.loads(path.read_text(encoding="utf-8")))


def digest(name: str, config: Any, trial: Trial) -> str:
    """What a result belongs to: the experiment, the code of its `run`, its config, the trial, the library's version."""
    code = inspect.getsource(load(name).run)
    text = json.dumps([name, code, plain(asdict(config)), plain(trial), __version__], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def plain(value: Any) -> Any:
    """JSON values: arrays as lists, numbers to seven digits, None for what is not finite."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def write(path: Path, value: Any) -> None:
    text = json.dumps(plain(value), allow_nan=False)
    with whole_file(path) as part:
        part.write_text(text + "\n", encoding="utf-8")


def _jobs(name: str, level: str, work: Path) -> list[Job]:
    experiment = load(name)
    config = experiment.FULL if level == "full" else experiment.QUICK
    return [
        Job(
            name,
            experiment.__name__,
            config,
            trial,
            work / "trials" / f"{name}-{digest(name, config, trial)}.json",
        )
        for trial in experiment.trials(config)
    ]


def _run(todo: Sequence[Job], jobs: int, work: Path, seconds: float) -> dict[Path, dict[str, Any]]:
    """The answer to every trial that time allows, by the name of its file; those on disk are read."""
    end = time.monotonic() + seconds
    answers = {job.path: json.loads(job.path.read_text(encoding="utf-8")) for job in todo if job.path.exists()}
    left = [job for job in todo if job.path not in answers] if seconds > 0 else []
    # Trials that time something get the machine to themselves, after the others.
    alone = [job for job in left if getattr(load(job.name), "ALONE", False)]
    beside = [job for job in left if job not in alone]
    with tqdm(total=len(todo), initial=len(answers), unit="trial", disable=not left) as bar:
        cores = os.cpu_count() or 1
        for some, processes, threads in ((beside, jobs, min(2, max(1, cores // jobs))), (alone, 1, cores)):
            for job, answer in _in_processes(some, processes, threads, work):
                answers[job.path] = answer
                bar.set_postfix_str(job.name)
                bar.update()
                if time.monotonic() > end:
                    break
    return answers


def _in_processes(
    todo: Sequence[Job], jobs: int, threads: int, work: Path
) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Answers as they come, from processes that share the cores without getting in each other's way."""
    if not todo:
        return
    context = multiprocessing.get_context("spawn")  # JAX has threads, which do not survive a fork
    pool = ProcessPoolExecutor(min(jobs, len(todo)), mp_context=context, initializer=_end_with_parent)
    with environment(threads, work), pool:
        futures: dict[Future[dict[str, Any]], Job] = {pool.submit(run_trial, job): job for job in todo}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as error:
            raise MemoryError(
                "A process was killed, most likely for want of memory. What is done is kept: run the same command "
                f"again, with fewer than {jobs} --jobs."
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _end_with_parent() -> None:
    """A process that works for a run that was killed ends too."""

    def watch() -> None:
        if (parent := multiprocessing.parent_process()) is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def environment(threads: int, work: Path) -> Iterator[None]:
    """What new processes read when they start: threads, the shared folder, compiled programs to be used again."""
    settings = {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    settings[WORK] = str(work.absolute())
    settings["JAX_COMPILATION_CACHE_DIR"] = str(work.absolute() / "compiled")
    settings["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
    settings["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # processes may have to share a GPU's memory
    if threads == 1:
        settings["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def run_trial(job: Job) -> dict[str, Any]:
    """One trial, in a process of its own; what it found is on disk when this returns."""
    from graphuq.datasets import DatasetUnavailable

    began = time.perf_counter()
    try:
        result = import_module(job.module).run(job.config, job.trial)
    except Exception as error:
        if isinstance(error, DatasetUnavailable) or _needs_a_package(error):
            return {"missing": " ".join(str(error).split())}  # it says what is missing and what to do
        return {"error": f"{job.name}, trial {json.dumps(job.trial)}:\n{traceback.format_exc()}"}
    answer = {
        "experiment": job.name,
        "trial": job.trial,
        "result": result,
        "seconds": time.perf_counter() - began,
        "machine": machine(),
    }
    write(job.path, answer)
    return plain(answer)


def _needs_a_package(error: Exception) -> bool:
    """Whether a package is not installed, rather than a name of ours being wrong."""
    ours = ("graphuq", "experiments", "benchmarks")
    return isinstance(error, ImportError) and (error.name or "").split(".")[0] not in ours


def machine() -> str:
    """Processor, cores and accelerator, in words."""
    import jax

    name = platform.processor() or platform.machine()
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    accelerators = [device.device_kind for device in jax.devices() if device.platform != "cpu"]
    return ", ".join([f"{name}, {os.cpu_count()} cores", *accelerators[:1]])


def _outcome(name: str, level: str, answers: Sequence[dict[str, Any]], out: Path, figures: bool) -> Outcome:
    """From the answers of all trials to the record, the figure and the claims."""
    missing = next((answer["missing"] for answer in answers if "missing" in answer), "")
    errors = tuple(answer["error"] for answer in answers if "error" in answer)
    if missing or errors:
        return Outcome(name, missing=missing, errors=errors)
    experiment = load(name)
    config = experiment.FULL if level == "full" else experiment.QUICK
    try:
        record = Record(
            name=name,
            level=level,
            config=plain(asdict(config)),
            values=plain(experiment.summarize(config, [answer["result"] for answer in answers])),
            seconds=round(sum(answer["seconds"] for answer in answers), 1),
            version=__version__,
            machine="; ".join(sorted({answer["machine"] for answer in answers})),
        )
        claims = tuple(experiment.claims(record))
        stem = name.rpartition(".")[2]
        if figures:
            save_figure(experiment.draw(record), out / f"{stem}.png")
        write(out / f"{stem}.json", asdict(record))
    except Exception:  # one experiment must not take the others down with it
        return Outcome(name, errors=(f"{name}, after its trials:\n{traceback.format_exc()}",))
    return Outcome(name, record, claims)


def save_figure(figure: Any, path: Path) -> None:
    """Write a PNG file, as sharp as its largest size allows."""
    import matplotlib.pyplot as plt

    with whole_file(path) as part:
        for dpi in (160, 130, 100, 80, 60):
            figure.savefig(part, format="png", dpi=dpi, metadata={"Software": None}, pil_kwargs={"optimize": True})
            if part.stat().st_size <= LARGEST_FIGURE:
                break
    plt.close(figure)
