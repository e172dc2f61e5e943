"""What all tests share: quick compilation, and the tests marked mnist run when the digits can be had."""

import os

import pytest

from graphuq.datasets import DatasetUnavailable, mnist_pair


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
