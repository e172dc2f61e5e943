"""Fig. 8: maps and edges by hand, and a tiny scene from end to end."""

from dataclasses import asdict

import numpy as np
import pytest
from experiments import fig8, runner, scenes
from experiments.experiment import Record

TINY = fig8.Config(
    n_frames=3,
    height=8,
    width=20,
    share_labeled=0.1,
    n_modes=10,
    n_chains=2,
    n_draws_projection=20,
    n_draws_tail=20,
)


@pytest.fixture(scope="module")
def results():
    found = runner.plain(fig8.run(TINY, {"scene": "plume", "labels": "clusters"}))
    missing = {"scene": "pines", "labels": "truth", "missing": "not installed"}
    return [found, found | {"labels": "truth"}, missing]


def record(results):
    return Record("fig8", "quick", runner.plain(asdict(TINY)), fig8.summarize(TINY, results), 0.0, "", "")


def test_maps_survive_packing():
    s = np.random.default_rng(0).uniform(-1, 1, (2, 3, 4))
    np.testing.assert_allclose(scenes.unpack(scenes.pack(s), s.shape), s, atol=0.00501)


def test_edges_are_within_a_frame():
    frames = -np.ones((2, 5, 7), dtype=int)
    frames[0, :, 3:] = 1
    near = scenes.near_edge(frames.ravel(), frames.shape, 1).reshape(frames.shape)
    assert not near[1].any()
    assert np.array_equal(np.flatnonzero(near[0].all(axis=0)), [2, 3])


def test_clusters_are_named_after_the_truth_they_overlap_with():
    scene = scenes.plume(3, 8, 20)
    assert np.sum(scene.labels("clusters") * scene.truth) >= 0


def test_a_run_gives_the_same_twice(results):
    again = runner.plain(fig8.run(TINY, {"scene": "plume", "labels": "clusters"}))
    for method in scenes.METHODS:
        assert again["methods"][method]["map"] == results[0]["methods"][method]["map"]


def test_the_exact_posterior_is_closer_to_the_approximation(results):
    distance = results[0]["distance"]
    assert distance["approximation"]["mean"] < distance["projection"]["mean"]


def test_claims_follow_the_record(results):
    paper = [claim for claim in fig8.claims(record(results)) if claim.agrees is not None]
    assert [claim.agrees for claim in paper] == [True, True]
    distance = {**results[0]["distance"], "approximation": {"mean": 2.0, "monte_carlo": 0.0}}
    farther = [results[0] | {"distance": distance}, *results[1:]]
    assert [claim.agrees for claim in fig8.claims(record(farther)) if claim.agrees is not None] == [True, False]


def test_the_figure_does_without_a_scene_that_is_missing(results):
    assert fig8.draw(record(results)).axes
