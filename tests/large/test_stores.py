"""Matrices written to Zarr arrays, read back and compared."""

import numpy as np
import pytest

from graphuq import graph, laplacian, models, prior, sample, spectrum, tall
from graphuq.large import stores

zarr = pytest.importorskip("zarr")

X = np.random.default_rng(0).standard_normal((700, 30))


@pytest.fixture
def short_blocks(monkeypatch):
    monkeypatch.setattr(tall, "_BLOCK_BYTES", 8 * 30 * 64)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_written_matrix_is_the_same_in_several_chunks(tmp_path, short_blocks, dtype):
    given = X.astype(dtype)
    written = stores.write_zarr(given, tmp_path / "x.zarr")
    stored = zarr.open_array(tmp_path / "x.zarr", mode="r")
    assert stored.dtype == dtype
    assert stored.nchunks > 3
    np.testing.assert_array_equal(stored[:], given)
    np.testing.assert_array_equal(written.rows([3, 650, 64]), given[[3, 650, 64]])


def test_a_computed_matrix_is_written_as_its_blocks_are(tmp_path, short_blocks):
    made = tall.tall(X).mapped(np.square, 30)
    np.testing.assert_array_equal(np.asarray(stores.write_zarr(made, str(tmp_path / "x.zarr"))), X**2)


def test_what_cannot_be_finished_leaves_nothing(tmp_path, short_blocks):
    def fails_late(block):
        if np.isin(X[600, 0], block):
            raise RuntimeError("too late")
        return block

    with pytest.raises(RuntimeError, match="too late"):
        stores.write_zarr(tall.tall(X).mapped(fails_late, 30), tmp_path / "x.zarr")
    assert list(tmp_path.iterdir()) == []


def test_what_exists_is_not_written_over(tmp_path):
    (tmp_path / "x.zarr").mkdir()
    with pytest.raises(ValueError, match="exists already: choose another name"):
        stores.write_zarr(X, tmp_path / "x.zarr")


def test_a_disk_too_small_is_told_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    with pytest.raises(OSError, match=r"The Zarr array takes 0.2 MB, but 0.0 MB are free"):
        stores.write_zarr(X, tmp_path / "x.zarr")


def test_eigenvectors_in_zarr_give_the_same_posterior(tmp_path, short_blocks):
    S = spectrum.leading(laplacian.normalized(graph.knn(X[:, :3])), n_modes=30)
    stored = S.to_zarr(tmp_path / "vectors.zarr")
    assert isinstance(stored.vectors, tall.Tall)
    nodes = np.arange(0, 700, 35)
    model = models.Probit(nodes, (X[nodes, 0] > 0).astype(int), gamma=0.1)
    asked = [0, 35, 699]
    answers = []
    for each in (S, stored):
        posterior = sample(prior.matern(each, tau=0.3, alpha=2), model, n_steps=400, n_chains=4, seed=0)
        answers.append((posterior.probability(), posterior.probability(asked)))
    for ours, theirs in zip(*answers, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)
