"""Run Markov chains: a prior, a model and a sampler in; `Draws` out, a fixed number or until they suffice."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from graphuq._expect import LARGEST_COUNT, called, expect_one_of, expect_sampler, expect_seed, expect_whole
from graphuq._progress import progress_bar, restart
from graphuq._warn import warn
from graphuq.inference.checkpoint import Log, fingerprint
from graphuq.inference.contradictions import needs_double_precision
from graphuq.inference.diagnostics import split_r_hat
from graphuq.inference.independence import sample_independently
from graphuq.inference.orthant import Orthant, is_dense
from graphuq.inference.pcn import PCN
from graphuq.inference.reference import Referenced
from graphuq.inference.sampler import Sampler
from graphuq.inference.stopping import EffectiveSize, Progress, Stop, TimeLimit
from graphuq.inference.target import Linear, Target
from graphuq.inference.whiten import Whitening, check_problem, whiten
from graphuq.memory import check_room
from graphuq.models.base import Model
from graphuq.posterior.draws import Draws
from graphuq.prior import GaussianPrior

# Stopping rules, clock and checkpoint are visited once per block of steps.
N_BLOCKS = 20
N_WARMUP_BLOCKS = 5
# `sample_enough` draws until this holds (Vehtari, Gelman, Simpson, Carpenter, Buerkner 2021).
ENOUGH = EffectiveSize(target=400.0, r_hat=1.01)
# Up to this number of labels, as many coordinates are drawn as there are labels, so that one compiled program serves
# all components of a mixture, some of which have fewer modes.
PADDED_LABELS = 64
# If independent draws are too few, they are repeated with this thinning: still faster than compiling a sampler.
LONGER = 20
# Upper limit on the compiled sampler's steps, as a multiple of `n_steps`.
MOST_ROUNDS = 20


def sample(
    prior: GaussianPrior,
    model: Model,
    sampler: Sampler | None = None,
    *,
    n_steps: int = 1000,
    n_warmup: int = 500,
    thin: int = 1,
    n_chains: int = 8,
    seed: int = 0,
    stop: Stop | Sequence[Stop] = (),
    checkpoint: str | Path | None = None,
    progress: bool | None = None,
    dtype: str = "auto",
) -> Draws:
    """Sample the posterior of u given the labels.

    Ctrl-C ends the run and returns the draws made so far. Chains that have not converged cause a
    `ConvergenceWarning`, and `Draws.diagnostics` gives the reason.

    Args:
        prior: the Gaussian prior of u.
        model: the likelihood of the labels.
        sampler: the sampler; by default the model's own: `Orthant` for probit and level-set,
            `Referenced(Tempered())` for Ginzburg-Landau, `NUTS` for a custom model that names none. For probit
            with 100 labels or more, at least ten per mode, it is `Referenced(PCN())`.
        n_steps: steps of each chain after the warm-up; every `thin`-th is kept as a draw.
        n_warmup: steps of each chain before that, in which the sampler may adapt; rounded up to
            full blocks, a twentieth of `n_steps` or a fifth of `n_warmup`.
        thin: keep one draw every `thin` steps.
        n_chains: number of independent chains, vectorized into one computation.
        seed: the same seed gives the same draws.
        stop: rules that may end the run before `n_steps`: `EffectiveSize`, `SteadyMean`, `TimeLimit`; the first
            one reached ends it.
        checkpoint: a file from which a killed run resumes with the same draws.
        progress: whether to show a progress bar with the acceptance and the worst R-hat; None shows it in a
            terminal or a notebook if the run takes over a second.
        dtype: floating-point type of the chains: "float32", "float64", or "auto", which picks double precision for
            contradictory labels of nearby rows and for small noise, where single precision loses too much.
    """
    n_steps = expect_whole(n_steps, "n_steps", most=LARGEST_COUNT)
    n_warmup = expect_whole(n_warmup, "n_warmup", 0, LARGEST_COUNT)
    thin = expect_whole(thin, "thin", most=LARGEST_COUNT)
    n_chains = expect_whole(n_chains, "n_chains", most=LARGEST_COUNT)
    seed = expect_seed(seed)
    if thin > n_steps:
        raise ValueError(f"thin = {thin} would keep none of n_steps = {n_steps} steps.")
    expect_one_of(dtype, ("auto", "float32", "float64"), "dtype")
    check_problem(prior, model)
    if dtype == "auto":
        dtype = "float64" if needs_double_precision(prior, model) else "float32"
    n_draws, stops = n_steps // thin, _rules(stop)
    whitening = whiten(prior, np.arange(prior.n_nodes) if model.sees_all_nodes else model.nodes)
    sampler = _usual_sampler(model, whitening) if sampler is None else sampler
    expect_sampler(sampler)
    _check_memory(whitening, model.n_fields, n_chains, n_draws, dtype)
    settings = {"sampler": repr(sampler), "seed": seed, "n_warmup": n_warmup, "thin": thin, "dtype": dtype}
    began = time.perf_counter()
    with jax.enable_x64(dtype == "float64"):
        field = whitening.field(dtype)
        if isinstance(sampler, Orthant) and isinstance(field, Linear):
            field = field.padded(min(len(whitening.nodes), PADDED_LABELS))
        target = Target.of(field, model, dtype, progress)
        target.check()
        shape = model.n_fields, whitening.n_latent
        chains = _Chains(sampler, sampler.prepare(target), seed, n_chains, n_warmup, thin, shape)
        z = jnp.asarray(chains.rng(0).standard_normal((n_chains, target.n_latent)), dtype)  # from the prior
        state = _init(sampler, chains.seeds(1), z, chains.problem)
        identity = {
            "model": f"{type(model).__module__}.{type(model).__qualname__}",
            "settings of the sampler": checkpoint and fingerprint(getattr(sampler, "__dict__", sampler)),
            "prior and labeled nodes": checkpoint and fingerprint(target.field.one),
            "labels and settings of the model": checkpoint and fingerprint(vars(model)),
            "n_chains": n_chains,
            **settings,
        }
        with Log(checkpoint, identity, block_size=-(-n_draws // N_BLOCKS)) as log:
            so_far = Progress(whitening, model, log, thin, began, n_draws)
            stopped_by = _run(chains, log.state_like(state), so_far, n_draws, stops, progress)
    posterior = so_far.drawn()
    if not np.isfinite(posterior.z).all():
        raise ValueError(
            f"The draws of {type(sampler).__name__} are not finite: phi of {type(model).__name__} must be finite wherever "
            "draws go, and must not fall without bound."
        )
    posterior.settings.update(settings, prior=prior.name, stopped_by=stopped_by, seconds=so_far.seconds)
    diagnostics = posterior.diagnostics()
    if not diagnostics.converged:
        warn(str(diagnostics), ConvergenceWarning)
    return posterior


def sample_enough(
    prior: GaussianPrior,
    model: Model,
    *,
    n_steps: int = 500,
    time_limit: float = 60.0,
    n_chains: int = 8,
    seed: int = 0,
    progress: bool | None = None,
) -> Draws:
    """Sample until R-hat is below 1.01 with 400 effective draws.

    Tries independent proposals from expectation propagation first (`sample_independently`), for one field with noise
    and without mistakes; if those fall short, runs the usual sampler.

    Args:
        prior, model, n_chains, seed, progress: see `sample`.
        n_steps: draws per chain at first; the model's sampler makes at most twenty times as many steps.
        time_limit: seconds after which the model's sampler stops, with a warning.
    """
    options: dict[str, Any] = {"n_chains": n_chains, "seed": seed}
    if _is_nearly_gaussian(model):
        for thin in (1, LONGER):
            posterior = sample_independently(prior, model, n_steps=n_steps, thin=thin, **options)
            diagnostics = posterior.diagnostics()
            if ENOUGH.holds(diagnostics):
                return posterior
            if LONGER * diagnostics.ess_bulk.min() < ENOUGH.target:
                break
    stop = (ENOUGH, TimeLimit(time_limit))
    posterior = sample(
        prior, model, n_steps=MOST_ROUNDS * n_steps, n_warmup=n_steps, stop=stop, progress=progress, **options
    )
    diagnostics = posterior.diagnostics()
    if diagnostics.converged and not ENOUGH.holds(diagnostics):  # `sample` has already warned of anything worse
        warn(
            f"The draws ended before R-hat was below {ENOUGH.r_hat} with {ENOUGH.target:.0f} effective draws. "
            f"{diagnostics} Raise time_limit ({time_limit:g} seconds) or n_steps for more.",
            ConvergenceWarning,
        )
    return posterior


def _is_nearly_gaussian(model: Model) -> bool:
    """Whether the Gaussian of expectation propagation reaches everywhere that the posterior does.

    Without noise, as in level-set, or with mistakes, every label may be wrong at a bounded cost, and the posterior has
    the tails of the prior, which proposals from that Gaussian hardly ever reach.
    """
    return bool(model.offers("sites") and model.n_fields == 1 and model.noise and not model.mistake_rate)


def _usual_sampler(model: Model, whitening: Whitening) -> Sampler:
    """The model's own sampler; for very many labels on few modes one that meets no walls, where that is exact too.

    For 8,000 labels on 50 modes it makes a hundred times as many effective draws a second as `Orthant`.
    """
    own = model.default_sampler()
    dense = is_dense(len(whitening.nodes), whitening.n_latent)
    return Referenced(PCN()) if isinstance(own, Orthant) and dense and _is_nearly_gaussian(model) else own


def _rules(stop: Stop | Sequence[Stop]) -> tuple[Stop, ...]:
    """Validate the stopping rules and return them as a tuple."""
    stops = tuple(stop) if isinstance(stop, Sequence) else (stop,)
    for rule in stops:
        if not hasattr(rule, "reached"):
            raise TypeError(f"stop takes rules such as EffectiveSize() or TimeLimit(60), got {called(rule)}.")
    return stops


def _check_memory(whitening: Whitening, n_fields: int, n_chains: int, n_draws: int, dtype: str) -> None:
    """Refuse runs that would not fit in memory: XLA aborts the process when it runs out."""
    n_seen = len(whitening.nodes)
    matrix = 2 * n_seen * whitening.n_latent  # B, in NumPy and in XLA
    per_chain = n_fields * (4 * n_seen + 2 * n_draws * whitening.n_latent)  # copies of u, and all draws twice
    check_room(
        (matrix + n_chains * per_chain) * np.dtype(dtype).itemsize,
        f"Drawing {n_draws:,} times from {n_chains} chains that see {n_seen:,} nodes",
        "Use fewer draws, chains or modes.",
    )


@dataclass(frozen=True, eq=False)
class _Chains:
    """A sampler, its prepared target and the run settings; advances all chains block by block."""

    sampler: Sampler
    problem: Any
    seed: int
    n_chains: int
    n_warmup: int
    thin: int
    shape: tuple[int, int]  # number of fields, and of coordinates of each that matter

    def rng(self, number: int) -> np.random.Generator:
        """Number 0 is for the starting points, 1 for the initial states, 2 and up for the blocks.

        A NumPy generator, because every small JAX function would be compiled; spawned from the seed, so that it differs
        from a generator users make from the bare seed.
        """
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(number,)))

    def seeds(self, number: int) -> NDArray[np.uint32]:
        """One seed per chain."""
        return self.rng(number).integers(2**32, size=(self.n_chains, 2), dtype=np.uint32)

    def warmup(self, block_size: int) -> tuple[int, int, int]:
        """Number of blocks of the warm-up, draws per block, and steps per draw.

        Unless the warm-up is far longer or shorter than the later blocks, its blocks have their shape, so that one
        compiled program serves both.
        """
        n_steps = block_size * self.thin
        if n_steps <= self.n_warmup <= N_BLOCKS * n_steps:
            return -(-self.n_warmup // n_steps), block_size, self.thin
        n_blocks = min(N_WARMUP_BLOCKS, self.n_warmup)
        return n_blocks, -(-self.n_warmup // max(n_blocks, 1)), 1

    def advance(self, state: Any, log: Log) -> tuple[Any, NDArray[Any]]:
        """Run one block and append it to the log; return the new states and the acceptance."""
        n_blocks, *shape = self.warmup(log.block_size)
        warm = log.n_blocks < n_blocks
        n_draws, thin = shape if warm else (log.block_size, self.thin)
        seeds = self.seeds(2 + log.n_blocks)
        state, draws, info = _block(self.sampler, n_draws, thin, warm, seeds, state, self.problem)
        fields = np.asarray(draws).reshape(*draws.shape[:2], self.shape[0], -1)[..., : self.shape[1]]
        log.append(state, None if warm else {"z": fields.reshape(*draws.shape[:2], -1), **info._asdict()})
        return state, np.asarray(info.acceptance)


def _run(
    chains: _Chains, state: Any, so_far: Progress, n_draws: int, stops: tuple[Stop, ...], progress: bool | None
) -> str:
    """Run blocks until all draws are made, a stopping rule is reached, or Ctrl-C; return what ended the run."""
    log, n_steps = so_far.log, n_draws * chains.thin
    with progress_bar(n_steps, shown=progress, unit="step", desc="compiling") as bar:
        try:
            while log.n_draws < n_draws:
                for rule in stops if log.n_draws else ():
                    if rule.reached(so_far):
                        return repr(rule)
                state, acceptance = chains.advance(state, log)
                if bar.disable:
                    continue
                if log.n_draws:
                    phase = "sampling, at most" if stops else "sampling"
                    _show(bar, phase, min(so_far.n_steps, n_steps), n_steps, so_far, acceptance)
                else:
                    n_blocks, size, thin = chains.warmup(log.block_size)
                    _show(bar, "warm-up", log.n_blocks * size * thin, n_blocks * size * thin, so_far, acceptance)
        except KeyboardInterrupt:
            if not log.n_draws:
                raise
            return "Ctrl-C"
    return "the last step"


def _show(bar: Any, phase: str, n: int, total: int, so_far: Progress, acceptance: NDArray[Any]) -> None:
    """Update the progress bar; its clock excludes the first block of each phase, which includes compilation."""
    postfix = {"acceptance": f"{float(np.mean(acceptance)):.2f}"}
    if so_far.n_steps:
        postfix["R-hat"] = f"{split_r_hat(so_far.watched()).max():.3f}"
    if bar.desc.rstrip(": ") == phase:
        bar.update(n - bar.n)
    else:
        bar.set_description(phase, refresh=False)
        restart(bar, n, total)
    bar.set_postfix(postfix)


@partial(jax.jit, static_argnums=0)
def _init(sampler: Sampler, seeds: Any, z: jax.Array, problem: Any) -> Any:
    """Return the initial state of every chain."""
    return jax.vmap(sampler.init, in_axes=(0, 0, None))(_key(seeds), z, problem)


# The kind of key is fixed, whatever JAX is configured to use, so that the same seed always gives the same draws.
_key = partial(jax.random.wrap_key_data, impl="threefry2x32")


@partial(jax.jit, static_argnums=(0, 1, 2))
def _block(
    sampler: Sampler, n_draws: int, thin: int, warm: bool, seeds: Any, state: Any, problem: Any
) -> tuple[Any, jax.Array, Any]:
    """Run `n_draws` times `thin` steps of every chain; return final states, draws and the mean `Info` per draw.

    Whether they belong to the warm-up is traced: one compiled program serves both.
    """

    def one_step(at: Any, _: None) -> tuple[Any, Any]:
        seed, state = at
        state, info = sampler.step(_key(seed), state, problem, warm)
        return (seed + jnp.array([0, 1], jnp.uint32), state), info

    def one_draw(at: Any, _: None) -> tuple[Any, Any]:
        at, info = jax.lax.scan(one_step, at, length=thin)
        return at, (sampler.draw(at[1], problem), jax.tree.map(lambda x: x.mean(axis=0), info))

    chain = partial(jax.lax.scan, one_draw, length=n_draws)
    (_, state), (draws, info) = jax.vmap(chain)((seeds, state))
    return state, draws, info
