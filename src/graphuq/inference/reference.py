"""A sampler and a Gaussian close to the posterior in; the sampler with the Gaussian in place of the prior out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from numpy.typing import NDArray

from graphuq._expect import expect, expect_sampler
from graphuq._pytree import pytree, static
from graphuq.inference.ep import Gaussian
from graphuq.inference.orthant import Orthant
from graphuq.inference.pcn import PCN
from graphuq.inference.sampler import Info, Sampler
from graphuq.inference.target import Target

_LARGEST = 5000  # coordinates; with more, factoring the reference takes minutes


@pytree
class RelativeTarget:
    """The posterior relative to N(m, S): ``exp(-potential(zeta)) N(d zeta; 0, I)``, z = m + L zeta.

        potential(zeta) = Phi(B m + B L zeta) + (|m + L zeta|^2 - |m|^2 - |zeta|^2) / 2.

    L = U diag(scale) with U orthogonal, which makes the Gaussian terms O(n_latent). If fields with the same S are
    independent under the reference, B L and U are those of one field, see `_by_block`.
    """

    offset: jax.Array  # B m
    matrix: jax.Array  # B L
    phi: Any  # Partial: u -> Phi(u; y)
    reduced: Any  # None, or zeta -> Phi
    slope: jax.Array  # L^T m
    scale: jax.Array
    n_fields: int = static(default=1)

    @property
    def n_latent(self) -> int:
        """Length of zeta."""
        return self.slope.size

    def field(self, zeta: jax.Array) -> jax.Array:
        """u at the nodes the model sees."""
        u = self.offset + _by_block(self.matrix, zeta)
        return u if self.n_fields == 1 else u.reshape(self.n_fields, -1).T

    def prior_energy(self, zeta: jax.Array) -> jax.Array:
        """``(|z|^2 - |m|^2) / 2``."""
        return self.slope @ zeta + jnp.square(self.scale * zeta).sum() / 2

    def potential(self, zeta: jax.Array) -> jax.Array:
        """``potential(zeta)`` as above, a scalar."""
        phi = self.phi(self.field(zeta)) if self.reduced is None else self.reduced(zeta)
        return phi + self.prior_energy(zeta) - zeta @ zeta / 2


@pytree
class ReferencedProblem:
    """The prepared problem of the inner sampler, and the map from zeta back to z."""

    inner: Any
    mean: jax.Array  # m
    rotation: jax.Array  # U
    scale: jax.Array


@dataclass(frozen=True)
class Referenced:
    """Run `inner` with a Gaussian N(m, S) close to the posterior in place of the prior.

    In the coordinates zeta of ``z = m + L zeta``, ``L L^T = S``, the posterior is close to N(0, I), which pCN
    proposes from: with many labels it accepts nearly every step at beta = 1. The chain leaves the posterior
    invariant for any Gaussian; a poor one only makes it slow. If Phi is bounded (level-set, or probit with
    mistakes), the posterior has the tails of the prior, which proposals from a narrower Gaussian seldom reach:
    prefer `Orthant` where these matter.

    Attributes:
        inner: any sampler that uses only `potential` and `n_latent` of its target.
        reference: N(m, S) on z; by default that of the model, or of expectation propagation. A custom model needs
            one, for example a Laplace approximation.
    """

    inner: Sampler = field(default_factory=PCN)
    reference: Gaussian | None = None

    def __post_init__(self) -> None:
        expect_sampler(self.inner, "inner")
        if isinstance(self.inner, (Orthant, Referenced)):
            raise TypeError(
                f"inner must be a sampler such as PCN() or NUTS(), which looks at the potential alone; {self.inner} asks the "
                "model itself: use it without Referenced."
            )
        expect(self.reference, (Gaussian, type(None)), "reference", "a Gaussian of a mean and a factor, or None")

    def prepare(self, target: Target) -> ReferencedProblem:
        """Fit the reference and rewrite the target relative to it."""
        n_latent = target.n_latent
        if n_latent > _LARGEST:
            raise ValueError(
                f"Referenced factors a matrix over all {n_latent} coordinates; at most {_LARGEST} are allowed. "
                "Use Orthant or PCN, or a prior without a tail."
            )
        dtype = jax.tree.leaves(target.field)[0].dtype
        one, n_fields = target.field.one, target.field.n_fields
        dense = np.asarray(one(jnp.eye(one.n_latent, dtype=dtype)).T, float)
        reference = target.model.reference(dense) if self.reference is None else self.reference
        of_one = reference.factor.shape == (one.n_latent, one.n_latent)
        if reference.mean.shape != (n_latent,) or not (of_one or reference.factor.shape == (n_latent, n_latent)):
            raise ValueError(
                f"The reference has shapes {reference.mean.shape} and {reference.factor.shape}; z has {n_latent} "
                f"coordinates, so they must be ({n_latent},) and ({n_latent}, {n_latent})."
            )
        if not of_one:
            dense = np.kron(np.eye(n_fields), dense)  # z concatenates the fields
        rotation, scale, _ = np.linalg.svd(reference.factor)
        if not scale[-1] > 0:
            raise ValueError("The reference is singular: its factor must have full rank.")
        factor, scale = rotation * scale, np.tile(scale, n_latent // len(scale))

        def cast(x: NDArray[Any]) -> jax.Array:
            return jnp.asarray(x, dtype)

        reduced = target.reduced
        if reduced is not None:
            reduced = Partial(_at_z, reduced, cast(reference.mean), cast(factor))
        relative = RelativeTarget(
            offset=cast(_by_block(dense, reference.mean)),
            matrix=cast(dense @ factor),
            phi=target.phi,
            reduced=reduced,
            slope=cast(_by_block(factor.T, reference.mean)),
            scale=cast(scale),
            n_fields=n_fields,
        )
        inner: Any = self.inner
        return ReferencedProblem(inner.prepare(relative), cast(reference.mean), cast(rotation), cast(scale))

    def init(self, key: jax.Array, z: jax.Array, problem: ReferencedProblem) -> Any:
        """The initial state, at z, or shrunk towards m to the typical radius of the reference.

        Far outside, the ratio of posterior to reference is so large that no step back would be accepted.
        """
        zeta = _by_block(problem.rotation.T, z - problem.mean) / problem.scale
        shrink = jnp.sqrt(zeta.size / jnp.maximum(zeta @ zeta, zeta.size))
        return self.inner.init(key, shrink * zeta, problem.inner)

    def step(
        self, key: jax.Array, state: Any, problem: ReferencedProblem, warm: bool | jax.Array
    ) -> tuple[Any, Info]:
        """One step of the inner sampler."""
        return self.inner.step(key, state, problem.inner, warm)

    def draw(self, state: Any, problem: ReferencedProblem) -> jax.Array:
        """``z = m + L zeta``."""
        zeta = self.inner.draw(state, problem.inner)
        return problem.mean + _by_block(problem.rotation, problem.scale * zeta)


def _at_z(function: Any, m: jax.Array, L: jax.Array, zeta: jax.Array) -> jax.Array:
    """A function of z, evaluated at ``z = m + L zeta``."""
    return function(m + L @ zeta)


def _by_block(matrix: Any, vector: Any) -> Any:
    """Apply a matrix to the vector or, if the vector is several times as long as the matrix is wide, to each part."""
    return (vector.reshape(-1, matrix.shape[1]) @ matrix.T).ravel()
