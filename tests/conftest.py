"""What all tests share: quick compilation, and the tests marked mnist run when the digits can be had."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from graphuq.datasets import DatasetUnavailable, mnist_pair

# Compiled programs take a few memory maps each, of which a process may have 65,530 on Linux; without one XLA crashes.
MOST_MAPS = 30_000


def pytest_configure() -> None:
    """Problems of tests are small: most of the time would go into optimizing code that hardly runs."""
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")


@pytest.fixture(scope="session")
def mnist_available() -> None:
    try:
        mnist_pair(4, 9, n_per_digit=1)
    except DatasetUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def _skip_without_mnist(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("mnist"):
        request.getfixturevalue("mnist_available")


@pytest.fixture(autouse=True, scope="module")
def _room_for_programs() -> Iterator[None]:
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
        gc.collect()
