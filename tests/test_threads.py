import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from graphuq import _threads, graph, laplacian
from graphuq._threads import MANY_MULTIPLICATIONS, alone, blas_threads, in_threads
from graphuq.graph import features
from graphuq.spectrum import lapack


def numbers():
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def several():
    """More than one thread to begin with, on any machine."""
    with threadpool_limits(3, "blas"):
        yield


def test_small_products_have_one_thread_and_large_ones_all():
    with blas_threads(MANY_MULTIPLICATIONS + 1):
        assert numbers() == {3}
    with blas_threads(0):
        assert numbers() == {1}
    assert numbers() == {3}


def test_who_leaves_last_restores_the_threads():
    first, second = blas_threads(0), blas_threads(0)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert numbers() == {1}
    second.__exit__(None, None, None)
    assert numbers() == {3}


def test_threads_that_come_and_go_leave_what_they_found():
    def work():
        for _ in range(50):
            with pytest.raises(KeyError), blas_threads(0), blas_threads(0):
                raise KeyError

    workers = [threading.Thread(target=work) for _ in range(4)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert numbers() == {3}


def test_parts_are_made_by_several_threads_in_order_and_not_far_ahead(monkeypatch):
    monkeypatch.setattr("graphuq._threads.n_cores", lambda: 3)
    begun, meet = [], threading.Barrier(3)

    def work(part):
        begun.append(part)
        if part < 3:
            meet.wait(10)  # all three threads are at work at once
        return part, numbers()

    made = in_threads(work, iter(range(30)))
    assert next(made) == (0, {1})
    assert len(begun) <= 4
    assert list(made) == [(part, {1}) for part in range(1, 30)]
    assert numbers() == {3}


def test_parts_of_a_part_have_no_threads_of_their_own(monkeypatch):
    monkeypatch.setattr("graphuq._threads.n_cores", lambda: 3)

    def work(part):
        return threading.get_ident(), list(in_threads(lambda _: (threading.get_ident(), numbers()), range(4)))

    for thread, within in in_threads(work, range(5)):
        assert within == [(thread, {1})] * 4
    me = threading.get_ident()
    assert me not in in_threads(lambda _: threading.get_ident(), range(5))  # this thread may have others again
    with alone():
        assert list(in_threads(lambda _: threading.get_ident(), range(2))) == [me, me]
    assert numbers() == {3}


def test_what_goes_wrong_in_a_thread_is_told_and_the_threads_restored():
    with pytest.raises(ZeroDivisionError):
        list(in_threads(lambda part: 1 / part, [1, 0, 2]))
    assert numbers() == {3}


def test_a_user_that_ctrl_c_kept_from_leaving_does_not_count():
    blas_threads(0).__enter__()
    assert numbers() == {1}
    with blas_threads(0):
        pass
    assert numbers() == {3}


@pytest.mark.parametrize("cut_short", ["on the way in", "on the way out"])
def test_ctrl_c_leaves_no_limit_behind(cut_short, monkeypatch):
    """Whatever the interrupt cut short is repaired by the next use."""
    libraries = _threads._blas().lib_controllers
    before = [each.num_threads for each in libraries]
    one, last = _threads._OneThread(), libraries[-1]
    bare, calls = type(last).set_num_threads, []

    def interrupted(self, n_threads):
        calls.append(n_threads)
        if self is last and (n_threads == 1) == (cut_short == "on the way in"):
            raise KeyboardInterrupt
        return bare(self, n_threads)

    with monkeypatch.context() as patch:
        patch.setattr(type(last), "set_num_threads", interrupted)
        with pytest.raises(KeyboardInterrupt), one:
            pass
    assert calls
    with one:
        assert {each.num_threads for each in libraries} == {1}
    assert [each.num_threads for each in libraries] == before


@pytest.mark.parametrize(
    ("module", "many", "solve"),
    [
        (features, 2e3, lambda X: features.principal(X, X.mean(axis=0), 2)),  # after a product of 3e3
        (lapack, 1e3, lambda X: lapack.dense(laplacian.normalized(graph.gaussian(X, tau=1.0)))),
    ],
)
def test_eigenproblems_of_few_rows_have_one_thread(module, many, solve, monkeypatch):
    """On a busy machine two threads of LAPACK took ten times as long as one."""
    seen, bare = [], module.eigh
    monkeypatch.setattr(_threads, "MANY_MULTIPLICATIONS", many)
    monkeypatch.setattr(module, "eigh", lambda *args, **more: seen.append(numbers()) or bare(*args, **more))
    solve(np.random.default_rng(0).standard_normal((30, 10)))
    assert seen == [{1}]
