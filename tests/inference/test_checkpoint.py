"""A checkpoint on its own, without chains: whatever happens to the file, what is read of it is what was written."""

import resource
import threading
from copy import deepcopy
from functools import partial

import numpy as np
import pytest
from scipy.sparse import coo_array

from graphuq.inference.checkpoint import CheckpointError, Log, fingerprint

PROBLEM = {"seed": 3, "sampler": "PCN()"}


def written(path, n_blocks=6):
    rng = np.random.default_rng(0)
    with Log(path, PROBLEM, block_size=4) as log:
        for _ in range(n_blocks):
            log.append({"z": rng.normal(size=3)}, {"z": rng.normal(size=(2, 4, 3))})
        return log


def first_blocks(found, whole):
    """Whether records are the first of those that were written."""
    return len(found.records) <= len(whole.records) and all(
        each.keys() == other.keys() and all(np.array_equal(each[name], other[name]) for name in each)
        for each, other in zip(found.records, whole.records, strict=False)
    )


def test_it_goes_on_where_it_stopped(tmp_path):
    log = written(tmp_path / "log")
    with Log(tmp_path / "log", PROBLEM, block_size=99) as again:
        assert (again.block_size, again.n_blocks, again.n_draws) == (4, 6, 24)
        assert np.array_equal(again["z"], log["z"])
        stored = log.records[-1]["state0"].astype(np.float32)
        assert np.array_equal(again.state_like({"z": np.zeros(3)})["z"], stored)


def test_200_flips_and_50_cuts_change_nothing_that_is_read(tmp_path):
    path = tmp_path / "log"
    whole = written(path)
    content = path.read_bytes()
    rng, refused = np.random.default_rng(1), 0
    damaged = [content[:cut] for cut in rng.integers(0, len(content), 50)]
    head = content.index(b"\n", content.index(b"\n") + 1)
    places = [
        *rng.integers(0, len(content), 120),
        *rng.integers(0, head + 30, 80),
    ]  # many where it is told how to read
    for place in places:
        flipped = bytearray(content)
        flipped[place] ^= 1 << rng.integers(8)
        damaged.append(bytes(flipped))
    for each in damaged:
        path.write_bytes(each)
        try:
            with Log(path, PROBLEM, block_size=4) as log:
                assert log.block_size == 4
                assert first_blocks(log, whole)
        except CheckpointError:
            refused += 1
            assert path.read_bytes() == each
    assert 20 < refused < 120


def test_a_file_that_cannot_grow_is_named_and_gone_on_from(tmp_path):
    path, limits = tmp_path / "log", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"log could not be written: File too large\. A run with it goes on"):
            written(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with Log(path, PROBLEM, block_size=4) as again:
        assert 0 < again.n_blocks < 6
        assert first_blocks(again, written(tmp_path / "whole"))


def test_records_have_their_place(tmp_path):
    """A record that stands twice, as two processes would have written it, is read once."""
    path = tmp_path / "log"
    whole = written(path, n_blocks=1)
    one = path.read_bytes()
    record = one[one.index(b"\n", one.index(b"\n") + 1) + 1 :]
    path.write_bytes(one + record)
    with Log(path, PROBLEM, block_size=4) as log:
        assert log.n_blocks == 1
        assert first_blocks(log, whole)
    assert path.read_bytes() == one


def test_one_process_at_a_time(tmp_path):
    path = tmp_path / "log"
    with Log(path, PROBLEM, block_size=4) as first:
        with pytest.raises(CheckpointError, match="in use by another process: wait for it"):
            Log(path, PROBLEM, block_size=4)
        first.append({"z": np.ones(1)}, None)
    with Log(path, PROBLEM, block_size=4) as second:
        assert second.n_blocks == 1
    with pytest.raises(CheckpointError, match="seed was 3 and is now 4"):
        Log(path, PROBLEM | {"seed": 4}, block_size=4)
    with Log(path, PROBLEM, block_size=4):  # what was refused holds no lock
        pass


def test_what_is_no_checkpoint_stays_as_it_is(tmp_path):
    path = tmp_path / "thesis"
    for content in (b"years of work", b"graphuq checkpoint 2\n{}\n"):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="not a checkpoint of this version of graphuq"):
            Log(path, PROBLEM, block_size=4)
        assert path.read_bytes() == content
    with pytest.raises(CheckpointError, match="not a regular file"):
        Log(tmp_path, PROBLEM, block_size=4)


class Plain:
    def __init__(self, **inside):
        self.__dict__.update(inside)


def test_a_fingerprint_is_of_all_that_an_object_holds():
    """Of equal ones equal, whatever memory they are in; every other is another, and what cannot be told is refused."""
    X = np.arange(6.0).reshape(2, 3)
    different = [
        *(Plain(), Plain(a=1), Plain(b=1), Plain(a=1.0), Plain(a="1"), Plain(a=None), Plain(a=True), Plain(a=[1])),
        *(
            Plain(a=X),
            Plain(a=X.T),
            Plain(a=X + 0.0, b=1),
            Plain(a=X.astype("f4")),
            Plain(a=X.ravel()),
            Plain(a=-X),
        ),
        *(Plain(a=np.array([1, "x"], dtype=object)), Plain(a=np.array([2, "x"], dtype=object))),
        *(Plain(a={"b": 1}), Plain(a={"b": 2}), Plain(a=Plain(b=2)), Plain(a=(1, (2, 3))), Plain(a=((1, 2), 3))),
        *(
            Plain(a=partial(np.sort, axis=0)),
            Plain(a=partial(np.sort, axis=1)),
            Plain(a=coo_array(X)),
            Plain(a=Plain),
        ),
    ]
    found = [fingerprint(each) for each in different]
    assert len(set(found)) == len(found)
    assert found == [fingerprint(deepcopy(each)) for each in different]
    for other in (Plain(a=lambda u: u), Plain(a=threading.Lock())):
        with pytest.raises(
            CheckpointError, match="Keep nothing else in the model and the sampler, or run without checkpoint"
        ):
            fingerprint(other)
