"""What is left under every kind of limit, and refusals before any work."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from graphuq import graph, laplacian, memory, models, prior, sample, spectrum
from graphuq.inference import run


def test_what_is_left_here_is_known_and_no_more_than_the_machine_has():
    assert 1e6 < memory.room() < 1.1 * memory._machine()


@pytest.mark.parametrize("option", ["-v", "-d"])
def test_a_ulimit_counts(option):
    script = "from graphuq import memory; print(memory.room())"
    told = subprocess.run(
        ["bash", "-c", f'ulimit {option} 3000000 && exec {sys.executable} -c "{script}"'],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert 0 < float(told.stdout) < 3_000_000 * 1024


@pytest.mark.parametrize("name", [b"a: b", b"\xff"])
def test_a_ulimit_counts_whatever_the_process_is_called(name, tmp_path, monkeypatch):
    told = tmp_path / "status"
    told.write_bytes(b"Name:\t" + name + b"\nVmSize:\t  2 kB\nVmData:\t  1 kB\n")
    monkeypatch.setattr(memory, "Path", lambda path: told)
    monkeypatch.setattr("resource.getrlimit", lambda which: (10_000, 10_000))
    assert list(memory._ulimits()) == [10_000 - 2048, 10_000 - 1024]


@pytest.mark.parametrize("group", ["mine", "my own", "x:cri-containerd:1", "\u00e9\x85", os.fsdecode(b"\xff")])
@pytest.mark.parametrize(("kind", "line"), [(0, "0::/"), (1, "4:memory:/"), (1, "4:cpu,memory:/")])
def test_a_cgroup_counts_and_its_cache_does_not(kind, line, group, tmp_path, monkeypatch):
    top, most, now, cache = tmp_path / "cgroup", *memory._CGROUPS[kind][1:]
    mine = top / group
    mine.mkdir(parents=True)
    stat = "\n".join(f"{name} 100" for name in cache)
    for name, text in ((most, "1000"), (now, "700"), ("memory.stat", stat)):
        (mine / name).write_text(text)
    for name, text in ((most, "max" if kind == 0 else "1e18"), (now, "700"), ("memory.stat", stat)):
        (top / name).write_text(text)
    told = tmp_path / "self"
    told.write_bytes(os.fsencode(f"1:cpuset:/\n{line}{group}\n"))
    groups = list(memory._CGROUPS)
    groups[kind] = (str(top), most, now, cache)
    groups[1 - kind] = (str(tmp_path / "none"), *groups[1 - kind][1:])
    monkeypatch.setattr(memory, "_CGROUPS", tuple(groups))
    monkeypatch.setattr(memory, "Path", lambda path: told if path == "/proc/self/cgroup" else Path(path))
    assert min(memory._cgroups()) == 1000 - 700 + 200


def test_what_does_not_fit_is_refused_with_how_much_it_takes(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "room", lambda: 2e9)
    memory.check_room(1.9e9, "That", "")
    with pytest.raises(MemoryError, match=r"That takes 3\.0 GB, but 2\.0 GB are free\. Do less\."):
        memory.check_room(3e9, "That", "Do less.")
    with pytest.raises(OSError, match=r"That takes 1,000,000\.0 GB, but .* are free in .*another folder"):
        memory.check_disk(tmp_path / "not" / "yet", 1e15, "That")


def test_draws_that_do_not_fit_are_refused_before_the_first(monkeypatch):
    X = np.random.default_rng(0).standard_normal((30, 2))
    S = spectrum.dense(laplacian.normalized(graph.gaussian(X, tau=1.0)))
    model = models.Probit([0, 9], [0, 1])
    monkeypatch.setattr(memory, "room", lambda: 10_000.0)
    monkeypatch.setattr(run, "_block", lambda *given: pytest.fail("work began before the check"))
    with pytest.raises(
        MemoryError, match=r"Drawing 500 times from 8 chains that see 2 nodes takes 0\.1 MB.*fewer draws"
    ):
        sample(prior.matern(S, tau=0.3, alpha=2), model, n_steps=500, n_chains=8)
