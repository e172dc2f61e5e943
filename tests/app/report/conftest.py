import pytest

from tests.app.report.fits import KINDS, drawn, of_kind


@pytest.fixture(scope="package")
def classifier():
    """Two classes, with draws."""
    return drawn(2)


@pytest.fixture(scope="package")
def three():
    """Three classes, with draws."""
    return drawn(3)


@pytest.fixture(params=[(n, kind) for n in (2, 3) for kind in KINDS], ids=lambda case: f"{case[0]} {case[1]}")
def any_kind(request, classifier, three):
    """Two and three classes, with beliefs of every kind."""
    n_classes, kind = request.param
    return of_kind(kind, classifier if n_classes == 2 else three)
