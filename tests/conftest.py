"""What all tests share: the tests marked mnist run when the digits can be had, and are skipped when not."""

import pytest

from graphuq.datasets import DatasetUnavailable, mnist_pair


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
