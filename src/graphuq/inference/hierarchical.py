"""A spectrum and labels in; draws of the hyper-parameters together with u, exact, out."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning

from graphuq._pytree import pytree
from graphuq.hyperprior import Family, Hyperparameters, Hyperprior
from graphuq.inference.diagnostics import Diagnostics, diagnose
from graphuq.inference.gradient import NUTS
from graphuq.learning import spectrum_and_family
from graphuq.models.base import Model
from graphuq.models.probit import Probit
from graphuq.spectrum.result import Spectrum

Array = NDArray[np.float64]


@dataclass(frozen=True)
class HyperparameterDraws:
    """Draws from the joint posterior of the hyper-parameters and u.

    Attributes:
        spectrum: the eigenpairs; on a disconnected graph turned so that q_0 comes first.
        model: the likelihood; its gamma was not used.
        theta: log (diffusion, alpha, gamma, offset), shape (n_chains, n_draws, 4), see `Hyperprior`.
        modes: coefficients of u in the eigenvectors, shape (n_chains, n_draws, n_modes).
        hyperparameters: tau, alpha, gamma and constant, each of shape (n_chains, n_draws).
    """

    spectrum: Spectrum = field(repr=False)
    model: Probit = field(repr=False)
    theta: Array = field(repr=False)
    modes: Array = field(repr=False)
    hyperparameters: Hyperparameters = field(repr=False)

    def probability(self, nodes: ArrayLike) -> Array:
        """The share of draws in which u_j >= 0, at some nodes."""
        flat = self.modes.reshape(-1, self.modes.shape[2])
        return np.asarray((flat @ self.spectrum.vectors[np.atleast_1d(nodes)].T >= 0).mean(axis=0))

    def diagnostics(self) -> Diagnostics:
        """R-hat and effective sample sizes of theta; a fixed coordinate is left out."""
        free = np.flatnonzero(np.ptp(self.theta, axis=(0, 1)) > 0)
        return diagnose(self.theta[:, :, free], free)


def sample_hyperparameters(
    spectrum: Spectrum,
    model: Model,
    *,
    hyperprior: Hyperprior | None = None,
    n_steps: int = 1000,
    n_warmup: int = 1000,
    n_chains: int = 4,
    seed: int = 0,
) -> HyperparameterDraws:
    """Sample tau, alpha, gamma and constant with u, by NUTS on coordinates that are white a priori.

    Args:
        spectrum: the eigenpairs.
        model: `Probit` with the labels; its gamma is not used.
        hyperprior: the log-priors, as for `learn`.
        n_steps: draws of each chain.
        n_warmup: steps before that, in which the step size adapts.
        n_chains: independent chains.
        seed: the same seed gives the same draws.
    """
    if not isinstance(model, Probit):
        raise TypeError(
            f"Hyper-parameters are sampled for Probit, not for {type(model).__name__}: NUTS follows the gradient "
            "of a likelihood that is smooth in u and in gamma. Use learn, which knows LevelSet too."
        )
    for name, value, least in (("n_steps", n_steps, 1), ("n_warmup", n_warmup, 0), ("n_chains", n_chains, 1)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}.")
    spectrum, family = spectrum_and_family(spectrum, model, hyperprior)
    joint = jax.tree.map(
        lambda leaf: jnp.asarray(leaf, jnp.float32), _Joint(spectrum.vectors[model.nodes], model.y, family)
    )
    sampler = NUTS()
    keys = jax.random.split(jax.random.key(seed), n_chains)
    x = np.asarray(_chains(sampler, n_warmup, n_steps, keys, sampler.prepare(joint)), dtype=float)
    theta = family.mean + family.deviation * x[:, :, -4:]
    log_variances = np.apply_along_axis(family.log_variances, 2, theta)
    named = np.apply_along_axis(lambda each: np.array(family.hyperparameters(each)), 2, theta)
    draws = HyperparameterDraws(
        spectrum=spectrum,
        model=model,
        theta=theta,
        modes=np.exp(log_variances / 2) * x[:, :, :-4],
        hyperparameters=Hyperparameters(*np.moveaxis(named, 2, 0)),
    )
    found = draws.diagnostics()
    if not found.converged:
        warnings.warn(str(found), ConvergenceWarning, stacklevel=2)
    return draws


@pytree
class _Joint:
    """The posterior of ``x = (z, w)``, non-centered: ``exp(-potential(x)) N(dx; 0, I)``.

        theta = mean + deviation w,    u_labeled = Q_labeled diag(sqrt(v(theta))) z.

    z and w are independent a priori, so that a chain moves freely in both where the labels are few.
    """

    rows: Any  # the eigenvectors at the labeled nodes, (n_labeled, n_modes)
    y: Any
    family: Family

    @property
    def n_latent(self) -> int:
        """Length of x."""
        return int(self.rows.shape[1]) + 4

    def potential(self, x: jax.Array) -> jax.Array:
        """Phi(u; y) at this gamma, and what the hyperprior has beyond independent normals."""
        theta = self.family.mean + self.family.deviation * x[-4:]
        u = self.rows @ (jnp.exp(self.family.log_variances(theta, jnp) / 2) * x[:-4])
        return -jnp.sum(log_ndtr(self.y * u * jnp.exp(-theta[2]))) + self.family.surplus(theta, jnp) ** 2 / 2


@partial(jax.jit, static_argnums=(0, 1, 2))
def _chains(sampler: NUTS, n_warmup: int, n_steps: int, keys: jax.Array, joint: _Joint) -> jax.Array:
    """Draws of every chain, from over-dispersed starts, shape (n_chains, n_steps, n_latent)."""

    def chain(key: jax.Array) -> jax.Array:
        key_start, key_warm, key_run = jax.random.split(key, 3)
        problem: Any = joint
        state = sampler.init(key_start, jax.random.normal(key_start, (joint.n_latent,), joint.rows.dtype), problem)
        warm = jax.random.split(key_warm, n_warmup)
        state, _ = jax.lax.scan(lambda s, k: (sampler.warm_step(k, s, problem)[0], None), state, warm)

        def step(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            state, _ = sampler.step(key, state, problem)
            return state, state.hmc.position

        return jax.lax.scan(step, state, jax.random.split(key_run, n_steps))[1]

    return jax.vmap(chain)(keys)
