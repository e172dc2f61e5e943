import threading

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from graphuq._threads import MANY_MULTIPLICATIONS, blas_threads


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
