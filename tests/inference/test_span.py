"""Directions that next to no label sees, counted as noise, against expectation propagation with all of them."""

from dataclasses import replace

import numpy as np
import pytest

from graphuq.inference.span import span
from graphuq.inference.stars import StarSites
from tests.oracles import probit_sites

SHAPES = [(60, 90), (90, 60)]


def smooth(n_labeled, n_latent, *, seed=0):
    """Rows of a smooth function: later coordinates have less and less variance."""
    rng = np.random.default_rng(seed)
    return 2 * rng.normal(size=(n_labeled, n_latent)) * 0.9 ** np.arange(n_latent)


def sites_of(B, n_classes, *, seed=1):
    """Labels that follow B, through noise of variance 1."""
    rng = np.random.default_rng(seed)
    fields = B @ rng.normal(size=(B.shape[1], n_classes)) + rng.normal(size=(len(B), n_classes))
    if n_classes == 2:
        return probit_sites(np.where(fields[:, 0] > fields[:, 1], 1.0, -1.0), 1.0)
    return StarSites(fields.argmax(axis=1), n_classes, 1.0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("negligible", [0.0, 1e-2, 0.3])
def test_what_is_left_out_is_what_was_allowed(shape, negligible):
    B = smooth(*shape)
    basis, at, cut = span(B, negligible)
    np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-10)
    rest = B - at @ basis.T
    np.testing.assert_allclose(np.square(rest).sum(axis=0) / len(B), cut, atol=1e-12)
    assert cut.sum() <= negligible * (1 + 1e-9) + 1e-12
    if negligible:
        assert basis.shape[1] < 0.8 * min(shape)
        fewer = span(B, 1.5 * negligible + np.square(rest).sum())
        assert fewer.basis.shape[1] < basis.shape[1]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_a_field_that_is_all_but_absent(shape, n_classes):
    """One direction stays, though all together are negligible."""
    B = 1e-3 * smooth(*shape)
    sites = sites_of(B, n_classes)
    near = sites.fit(B, negligible=1e-2)
    assert near.basis.shape[1] == 1
    assert near.log_evidence == pytest.approx(sites.fit(B).log_evidence, abs=1e-3)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_evidence_gradient_and_answers_are_those_of_all_directions(shape, n_classes):
    """Errors are of second order: a hundredth of the noise moves the evidence by far less than a hundredth of its slope."""
    B = smooth(*shape)
    sites = sites_of(B, n_classes)
    exact, near = sites.fit(B), sites.fit(B, negligible=1e-2)
    assert near.basis.shape[1] < 0.8 * exact.basis.shape[1]
    assert near.log_evidence == pytest.approx(exact.log_evidence, abs=0.05)
    wanted, found = (each.gradient().log_variances for each in (exact, near))
    np.testing.assert_allclose(found, wanted, atol=0.1)
    assert found.sum() == pytest.approx(wanted.sum(), abs=0.05)
    new = smooth(200, shape[1], seed=5)
    answers = [each.classes(new, np.zeros(len(new)), 1.0) for each in (exact, near)]
    np.testing.assert_allclose(*answers, atol=0.02)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_gradient_knows_of_the_cut(n_classes):
    """Along the scale of all columns the slope is that of differences, where the cut is a tenth of the noise."""
    B = smooth(60, 90)
    sites = sites_of(B, n_classes)

    def at(log_scale):
        return sites.fit(B * np.exp(log_scale / 2), negligible=0.1, tolerance=1e-10)

    slope = (at(1e-2).log_evidence - at(-1e-2).log_evidence) / 2e-2
    here = at(0.0)
    assert here.gradient().log_variances.sum() == pytest.approx(slope, rel=1e-3)
    blind = replace(here, cut=np.zeros_like(here.cut))
    assert blind.gradient().log_variances.sum() != pytest.approx(slope, rel=0.05)
