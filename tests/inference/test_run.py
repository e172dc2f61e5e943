import os
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from graphuq import prior as priors
from graphuq.inference import run
from graphuq.inference.checkpoint import CheckpointError
from graphuq.inference.diagnostics import diagnose, split_r_hat, standard_error
from graphuq.inference.ep import Gaussian
from graphuq.inference.orthant import Orthant
from graphuq.inference.pcn import PCN
from graphuq.inference.reference import Referenced
from graphuq.inference.run import sample
from graphuq.inference.stopping import EffectiveSize, Progress, SteadyMean, TimeLimit
from graphuq.inference.whiten import whiten
from graphuq.models import LevelSet, Model, Probit
from graphuq.posterior import draws, load
from tests.oracles import four_priors, random_spectrum

PRIOR = four_priors(random_spectrum(seed=2))["full"]
MODEL = Probit(np.array([4, 9, 21]), np.array([1.0, -1.0, 1.0]), gamma=0.5)
QUICK = {"n_steps": 400, "n_warmup": 100, "n_chains": 8, "seed": 3}


@pytest.fixture(scope="module")
def reference():
    return sample(PRIOR, MODEL, PCN(), **QUICK)


def test_same_seed_same_draws(reference):
    again = sample(PRIOR, MODEL, PCN(), **QUICK)
    assert np.array_equal(again.z, reference.z)
    other = sample(PRIOR, MODEL, PCN(), **(QUICK | {"seed": 4}))
    assert not np.array_equal(other.z, reference.z)


def test_the_bar_counts_the_warm_up_too(reference, capsys):
    again = sample(PRIOR, MODEL, PCN(), **QUICK, progress=True)
    told = capsys.readouterr().err
    assert np.array_equal(again.z, reference.z)
    assert all(f"warm-up: {n:3d}%" in told and f"{n}/100" in told for n in (20, 60, 100))
    assert "400/400" in told


def test_shapes_and_settings(reference):
    assert reference.z.shape == (8, 400, 3)
    assert reference.acceptance.shape == reference.work.shape == (8, 400)
    thinned = sample(PRIOR, MODEL, PCN(), **(QUICK | {"thin": 3, "n_steps": 401 * 3}))
    assert thinned.z.shape == (8, 401, 3)
    assert thinned.work.mean() == 1


def test_beta_is_adapted_in_the_warm_up_and_then_frozen():
    strict = Probit(MODEL.nodes, MODEL.y, gamma=0.05)
    adapted = sample(PRIOR, strict, PCN(beta=1.0, target_acceptance=0.4), n_steps=1000, n_warmup=1000, seed=1)
    assert adapted.acceptance.mean() == pytest.approx(0.4, abs=0.06)
    fixed = sample(PRIOR, strict, PCN(beta=1.0, target_acceptance=None), n_steps=1000, n_warmup=1000, seed=1)
    assert fixed.acceptance.mean() < 0.25


@pytest.mark.filterwarnings("ignore:Not converged", "ignore:Cannot say")
def test_one_compilation_serves_the_warm_up_and_the_draws():
    compiled = run._block._cache_size()
    sample(PRIOR, MODEL, PCN(beta=0.123), n_steps=40, n_warmup=20, n_chains=2)
    assert run._block._cache_size() == compiled + 1


def test_of_one_chain_no_number_is_told_that_takes_two():
    with pytest.warns(ConvergenceWarning, match="converged: run at least 2 chains"):
        alone = sample(PRIOR, MODEL, n_steps=40, n_warmup=0, n_chains=1)
    assert "nan" not in str(alone.diagnostics())


@pytest.mark.parametrize("thin", [1, 3])
def test_the_warm_up_has_as_many_steps_as_asked_for_or_a_few_more(thin):
    for n_warmup in (0, 1, 4, 49, 150, 151, 500, 3000, 3001, 10_000):
        n_blocks, n_draws, gap = run._Chains(PCN(), None, 0, 8, n_warmup, thin, (1, 3)).warmup(50)
        assert n_warmup <= n_blocks * n_draws * gap < n_warmup + max(5, n_draws * gap)
        assert n_blocks <= run.N_BLOCKS


def test_steps_that_adapt_are_not_used_for_draws():
    sampler = PCN()
    state = sampler.init(None, jnp.zeros(3), _target())
    import jax

    after, _ = sampler.step(jax.random.key(0), state, _target(), False)
    assert after.log_beta == state.log_beta
    after, _ = sampler.step(jax.random.key(0), state, _target(), True)
    assert after.log_beta != state.log_beta


def _target():
    from graphuq.inference.target import Target
    from graphuq.inference.whiten import whiten

    return Target.of(whiten(PRIOR, MODEL.nodes).field("float32"), MODEL)


def test_effective_size_ends_a_run_early():
    posterior = sample(PRIOR, MODEL, PCN(), n_steps=20_000, n_chains=8, stop=EffectiveSize(300, r_hat=1.02))
    assert posterior.n_draws < 20_000
    assert posterior.diagnostics().ess_bulk.min() >= 300
    assert posterior.settings["stopped_by"].startswith("EffectiveSize")


@pytest.mark.parametrize("settled", [False, True])
def test_a_run_goes_on_until_phi_has_settled_too(settled):
    """Phi is among what is judged at the end: runs must not end by the rule, and then be said to have ended too early."""
    u = np.random.default_rng(0).standard_normal((8, 1000, 3))
    phi = u[..., :1] + (0 if settled else np.arange(8)[:, None, None])
    drawn = SimpleNamespace(diagnostics=lambda: diagnose(np.concatenate([u, phi], axis=2)))
    assert EffectiveSize().reached(SimpleNamespace(watched=lambda: u, drawn=lambda: drawn)) == settled


def test_all_draws_of_long_chains_count_towards_their_end():
    """Only some of them are diagnosed at the end: a rule that asks for more than these must hold at some time."""
    u = np.random.default_rng(0).standard_normal((2, 2 * draws.MOST_DIAGNOSED, 1))
    drawn = SimpleNamespace(diagnostics=lambda: diagnose(u[:, ::2]))
    assert EffectiveSize(60_000).reached(SimpleNamespace(watched=lambda: u, drawn=lambda: drawn))


def test_draws_so_far_are_let_go_before_they_are_put_together_anew():
    class Blocks(dict):
        n_draws = 8

        def __getitem__(self, name):
            assert not progress._drawn
            return np.zeros((2, self.n_draws, 3))

    progress = Progress(whiten(PRIOR, MODEL.nodes), MODEL, Blocks(), 1, 0.0, 100)
    first = progress.drawn()
    assert progress.drawn() is first
    progress.log.n_draws = 16
    assert progress.drawn().n_draws == 16


def test_a_run_is_diagnosed_once_for_its_end_and_its_verdict(monkeypatch):
    n_draws, bare = [], draws.diagnose
    monkeypatch.setattr(
        draws, "diagnose", lambda z, *args, **more: n_draws.append(z.shape[1]) or bare(z, *args, **more)
    )
    posterior = sample(PRIOR, MODEL, Orthant(), n_steps=4000, n_chains=4, stop=EffectiveSize(100))
    assert posterior.settings["stopped_by"] == repr(EffectiveSize(100))
    assert posterior.diagnostics().converged
    assert n_draws[-1] == posterior.n_draws
    assert len(set(n_draws)) == len(n_draws)


def test_steady_mean_is_the_rule_of_the_paper():
    posterior = sample(PRIOR, MODEL, PCN(), n_steps=20_000, n_chains=4, seed=1, stop=SteadyMean(0.02, window=2000))
    u = posterior.whitening.mean(posterior.z.reshape(-1, 3), np.arange(30)).reshape(4, -1, 30)
    n = posterior.n_draws
    assert 4000 <= n < 20_000
    moved = np.linalg.norm(u.mean(axis=(0, 1)) - u[:, : n - 2000].mean(axis=(0, 1)))
    assert moved <= 0.02
    before = np.linalg.norm(u[:, : n - 1000].mean(axis=(0, 1)) - u[:, : n - 3000].mean(axis=(0, 1)))
    assert before > 0.02  # the block before had not met the rule


def test_time_limit():
    began = time.perf_counter()
    with pytest.warns(ConvergenceWarning):
        posterior = sample(
            PRIOR, MODEL, PCN(beta=1e-4, target_acceptance=None), n_steps=10**7, n_chains=4, thin=1000,
            n_warmup=0, stop=[EffectiveSize(1e9), TimeLimit(1.0)],
        )  # fmt: skip
    assert posterior.settings["stopped_by"] == "TimeLimit(seconds=1.0)"
    assert time.perf_counter() - began < 60
    assert posterior.n_draws < 10_000


def test_a_time_limit_leaves_the_warm_up_whole(tmp_path, reference):
    path = tmp_path / "run.checkpoint"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        stopped = sample(PRIOR, MODEL, PCN(), **QUICK, stop=TimeLimit(0), checkpoint=path)
    assert stopped.settings["stopped_by"] == "TimeLimit(seconds=0)"
    assert stopped.n_draws == -(-reference.n_draws // 20)
    assert np.array_equal(sample(PRIOR, MODEL, PCN(), **QUICK, checkpoint=path).z, reference.z)


KILLED = """
import sys, numpy as np
from graphuq.inference.orthant import Orthant
from graphuq.inference.pcn import PCN
from graphuq.inference.run import sample
from tests.inference.test_run import MODEL, PRIOR, QUICK
sample(PRIOR, MODEL, PCN(), **(QUICK | {"n_steps": 40_000, "thin": 100}), checkpoint=sys.argv[1])
"""


def test_a_killed_run_resumes_bit_for_bit(tmp_path):
    settings = QUICK | {"n_steps": 40_000, "thin": 100}
    whole = sample(PRIOR, MODEL, PCN(), **settings)
    path = tmp_path / "run.checkpoint"
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], cwd=os.getcwd())
    deadline = time.time() + 120
    while time.time() < deadline and child.poll() is None and (not path.exists() or path.stat().st_size < 12_000):
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert path.stat().st_size > 0
    resumed = sample(PRIOR, MODEL, PCN(), **settings, checkpoint=path)
    assert np.array_equal(resumed.z, whole.z)
    assert np.array_equal(resumed.acceptance, whole.acceptance)


# Draws half of them, says so, and goes on when told to.
WAITING = """
import pathlib, sys, time
from tests.inference.test_run import MODEL, PCN, PRIOR, QUICK, sample

class Wait:
    def reached(self, progress):
        if progress.n_steps >= 200:
            print("half", flush=True)
            sys.stdin.readline()
        return False

print(sample(PRIOR, MODEL, PCN(), **QUICK, stop=Wait(), checkpoint=sys.argv[1]).z.sum(dtype=float), flush=True)
"""


def test_two_processes_on_one_checkpoint(tmp_path, reference):
    """The second is told in a sentence and changes nothing; the first ends with a whole result."""
    path = tmp_path / "run.checkpoint"
    words = [sys.executable, "-W", "ignore", "-c", WAITING, path]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, **pipes) as first:
        assert first.stdout.readline() == "half\n"
        before = path.read_bytes()
        with pytest.raises(CheckpointError, match="in use by another process: wait for it") as caught:
            sample(PRIOR, MODEL, PCN(), **QUICK, checkpoint=path)
        assert "\n" not in str(caught.value)
        assert path.read_bytes() == before
        told, _ = first.communicate("go on\n" * 50)
    assert float(told.split()[-1]) == reference.z.sum(dtype=float)
    assert np.array_equal(sample(PRIOR, MODEL, PCN(), **QUICK, checkpoint=path).z, reference.z)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("share", [0.05, 0.3, 0.55, 0.9, 0.999])
def test_a_checkpoint_cut_anywhere_resumes_from_the_last_whole_block(tmp_path, reference, share):
    path = tmp_path / "run.checkpoint"
    sample(PRIOR, MODEL, PCN(), **QUICK, checkpoint=path)
    whole = path.read_bytes()
    path.write_bytes(whole[: max(300, int(share * len(whole)))])
    resumed = sample(PRIOR, MODEL, PCN(), **QUICK, checkpoint=path)
    assert np.array_equal(resumed.z, reference.z)
    assert path.read_bytes() == whole
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    path.write_bytes(bytes(damaged))
    assert np.array_equal(sample(PRIOR, MODEL, PCN(), **QUICK, checkpoint=path).z, reference.z)


def test_a_finished_checkpoint_can_be_made_longer(tmp_path, reference):
    path = tmp_path / "run.checkpoint"
    sample(PRIOR, MODEL, PCN(), **QUICK, checkpoint=path)
    longer = sample(PRIOR, MODEL, PCN(), **(QUICK | {"n_steps": 600}), checkpoint=path)
    assert longer.n_draws == 600
    assert np.array_equal(longer.z[:, :400], reference.z)


def test_a_checkpoint_of_another_problem_is_refused_and_the_difference_named(tmp_path):
    path = tmp_path / "run.checkpoint"
    sample(PRIOR, MODEL, PCN(), **QUICK, checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match="seed was 3 and is now 9"):
        sample(PRIOR, MODEL, PCN(), **(QUICK | {"seed": 9}), checkpoint=path)
    with pytest.raises(CheckpointError, match=r"problem: labels and settings of the model differ\."):
        sample(PRIOR, Probit(MODEL.nodes, 1 - MODEL.y, gamma=0.5), PCN(), **QUICK, checkpoint=path)
    with pytest.raises(CheckpointError, match=r"problem: labels and settings of the model differ\."):
        sample(PRIOR, replace(MODEL, delta=0.4), PCN(), **QUICK, checkpoint=path)
    with pytest.raises(CheckpointError, match=r"problem: prior and labeled nodes differ\."):
        sample(four_priors(random_spectrum(seed=5))["full"], MODEL, PCN(), **QUICK, checkpoint=path)
    with pytest.raises(CheckpointError, match=r"model was .*Probit.* and is now .*LevelSet"):
        sample(PRIOR, LevelSet(MODEL.nodes, MODEL.y, gamma=0.5), PCN(), **QUICK, checkpoint=path)
    with pytest.raises(CheckpointError, match="sampler was 'PCN"):
        sample(PRIOR, MODEL, PCN(beta=0.9), **QUICK, checkpoint=path)
    assert path.read_bytes() == before
    path.write_text("my thesis")
    with pytest.raises(CheckpointError, match="not a checkpoint of this version"):
        sample(PRIOR, MODEL, PCN(), **QUICK, checkpoint=path)
    assert path.read_text() == "my thesis"


def test_a_checkpoint_of_a_model_of_ones_own_belongs_to_its_labels(tmp_path):
    @dataclass(frozen=True)
    class Logistic(Model):
        nodes: np.ndarray
        y: np.ndarray
        weight: float = 1.0

        def phi(self, u):
            return self.weight * jnp.sum(jnp.logaddexp(0.0, -(2 * self.y - 1) * u))

    path, model = tmp_path / "run.checkpoint", Logistic(np.array([4, 9, 21]), np.array([1, 0, 1]))
    first = sample(PRIOR, model, PCN(), **QUICK, checkpoint=path)
    again = sample(PRIOR, replace(model, y=model.y.copy()), PCN(), **QUICK, checkpoint=path)
    assert np.array_equal(again.z, first.z)
    for other in (replace(model, y=1 - model.y), replace(model, weight=3.0)):
        with pytest.raises(CheckpointError, match="labels and settings of the model differ"):
            sample(PRIOR, other, PCN(), **QUICK, checkpoint=path)


def test_ctrl_c_returns_what_has_been_drawn(monkeypatch):
    original, calls = run._block, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 12:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(run, "_block", interrupted)
    with pytest.warns(ConvergenceWarning):
        posterior = sample(PRIOR, MODEL, PCN(), **QUICK)
    assert posterior.n_draws == 6 * 20
    assert posterior.settings["stopped_by"] == "Ctrl-C"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_steps": 0}, "n_steps must be a whole number of at least 1"),
        ({"n_chains": 0}, "n_chains must be a whole number of at least 1"),
        ({"thin": 0}, "thin must be a whole number of at least 1"),
        ({"n_warmup": -1}, "n_warmup must be a whole number of at least 0"),
        ({"thin": 401}, "would keep none"),
        ({"dtype": "float16"}, "dtype must be"),
    ],
)
def test_bad_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        sample(PRIOR, MODEL, PCN(), **(QUICK | changes))


def test_bad_samplers_and_labels_are_refused():
    for beta in (0.0, 1.2, -0.1, np.nan):
        with pytest.raises(ValueError, match="beta must lie in"):
            PCN(beta=beta)
    with pytest.raises(ValueError, match="target_acceptance"):
        PCN(target_acceptance=1.0)
    with pytest.raises(ValueError, match="Node 30 is not in the graph, whose nodes are 0 to 29"):
        sample(PRIOR, LevelSet([1, 30], [1, -1]), PCN(), **QUICK)


def test_chains_that_never_move_are_not_called_converged():
    with pytest.warns(ConvergenceWarning, match="Not converged"):
        stuck = sample(PRIOR, MODEL, PCN(beta=1e-4, target_acceptance=None), **QUICK)
    assert not stuck.diagnostics().converged
    frozen = diagnose(np.ones((4, 50, 1)), np.array([0]))
    assert not frozen.converged
    assert frozen.worst_r_hat == np.inf


def test_standard_error_of_an_autoregression():
    """AR(1): the variance of the mean is (1 + rho) / (1 - rho) / n."""
    rho, n = 0.8, 4000
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(n, 16, 200)) * np.sqrt(1 - rho**2)
    x = np.empty_like(noise)
    x[0] = rng.normal(size=(16, 200))
    for i in range(1, n):
        x[i] = rho * x[i - 1] + noise[i]
    x = x.transpose(1, 0, 2)
    expected = np.sqrt((1 + rho) / (1 - rho) / (16 * n))
    found = standard_error(x)
    assert found.mean() == pytest.approx(expected, rel=0.1)
    assert (np.abs(x.mean(axis=(0, 1)) / found) > 2).mean() < 0.1
    np.testing.assert_allclose(split_r_hat(x), 1.0, atol=0.02)
    x[0] += 3
    assert split_r_hat(x).min() > 1.1


def test_rules_and_samplers_of_another_kind_are_refused():
    with pytest.raises(TypeError, match="stop takes rules"):
        sample(PRIOR, MODEL, stop=60)
    with pytest.raises(TypeError, match="sampler takes a sampler such as"):
        sample(PRIOR, MODEL, PCN)
    with pytest.raises(TypeError, match="sampler takes a sampler such as"):
        sample(PRIOR, MODEL, "nuts")
    halves = type("Halves", (), {name: staticmethod(lambda *given: None) for name in ("prepare", "init")})
    with pytest.raises(TypeError, match="a Halves has no step and no draw"):
        sample(PRIOR, MODEL, halves())
    with pytest.raises(ValueError, match="a finite number, 0 or above"):
        TimeLimit(-1)
    for make in (lambda: EffectiveSize(target=-1), lambda: EffectiveSize(r_hat=1.0), lambda: SteadyMean(0)):
        with pytest.raises(ValueError, match=r"must be (a finite number )?above"):
            make()


def test_standard_error_of_chains_that_only_just_converged():
    """Eight chains of 10,000 draws, 400 of them effective; a hundred short batches a chain would claim .6 of the error."""
    n_draws, n_effective, rng = 10_000, 400, np.random.default_rng(0)
    slowness = 8 * n_draws / n_effective
    rho = (slowness - 1) / (slowness + 1)
    x = rng.standard_normal((8, n_draws, 80)) * np.sqrt(1 - rho**2)
    x[:, 0] = rng.standard_normal((8, 80))
    for i in range(1, n_draws):
        x[:, i] += rho * x[:, i - 1]
    error = np.sqrt(np.square(x.mean(axis=(0, 1))).mean())  # of means that are 0
    assert np.sqrt(np.square(standard_error(x)).mean()) == pytest.approx(error, rel=0.25)


def test_numbers_of_numpy_are_numbers(tmp_path):
    """What `np.arange` and grids are made of: the same draws, saved and resumed."""
    few, settings = {"n_steps": 40, "n_warmup": 10, "n_chains": 2}, {"thin": 2, "seed": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        plain = sample(PRIOR, MODEL, PCN(beta=0.25), **few, **settings)
        numbers = {name: np.int64(value) for name, value in (few | settings).items()}
        sampler = PCN(beta=np.float64(0.25), target_acceptance=np.float64(0.3))
        for _ in range(2):
            found = sample(PRIOR, MODEL, sampler, **numbers, checkpoint=tmp_path / "run")
            assert np.array_equal(found.z, plain.z)
        assert found.settings == plain.settings | {"seconds": found.settings["seconds"]}
    found.save(tmp_path / "posterior.npz")
    assert np.array_equal(load(tmp_path / "posterior.npz").z, plain.z)


def test_a_checkpoint_of_another_reference_is_refused(tmp_path):
    """Matrices that differ in one number of many, which their text leaves out."""
    n_latent = whiten(PRIOR, MODEL.nodes).n_latent
    factor = np.eye(n_latent)
    factor[-1, -1] = 1.001
    quick: Any = {"n_steps": 20, "n_warmup": 5, "n_chains": 2, "checkpoint": tmp_path / "run"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        sample(PRIOR, MODEL, Referenced(reference=Gaussian(np.zeros(n_latent), np.eye(n_latent))), **quick)
        with pytest.raises(CheckpointError, match="settings of the sampler"):
            sample(PRIOR, MODEL, Referenced(reference=Gaussian(np.zeros(n_latent), factor)), **quick)


def test_many_labels_of_probit_on_few_modes_are_sampled_from_their_gaussian():
    """There the orthant sampler meets a wall at every turn; level-set and mistakes have tails that a Gaussian misses."""
    S = random_spectrum(140, seed=3)
    few, many = priors.project(S, n_modes=6), priors.project(S, n_modes=40)
    nodes = np.arange(120)
    noise = 0.3 * S.vectors[:, 1].std() * np.random.default_rng(0).standard_normal(120)
    y = (S.vectors[nodes, 1] + noise > 0).astype(int)
    probit = Probit(nodes, y, gamma=0.5)
    found = sample(few, probit, n_steps=400, n_warmup=200, seed=0)
    assert found.settings["sampler"].startswith("Referenced(")
    own = sample(few, probit, Orthant(), n_steps=400, n_warmup=200, seed=1)
    z = (found.classes().probability - own.classes().probability) / np.hypot(
        found.classes().error, own.classes().error
    )
    assert np.abs(z).max() < 5
    for prior, model in ((many, probit), (few, LevelSet(nodes, y)), (few, replace(probit, delta=0.05))):
        with pytest.warns(ConvergenceWarning):  # after 20 steps
            kept = sample(prior, model, n_steps=20, n_warmup=0, n_chains=2, seed=0)
        assert kept.settings["sampler"].startswith("Orthant(")
