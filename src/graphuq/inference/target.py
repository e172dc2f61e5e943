"""A whitened prior and a model in; the density every sampler targets out: N(0, I) reweighted by exp(-Phi(B z))."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from graphuq._pytree import pytree, static, traced
from graphuq.models.base import Model


@pytree
class Linear:
    """The map ``z -> B z`` from whitened coordinates to one field at the nodes a model sees."""

    matrix: jax.Array  # (n_seen, n_latent)

    @property
    def n_latent(self) -> int:
        """Length of z."""
        return self.matrix.shape[1]

    def padded(self, n_latent: int) -> Linear:
        """The same map with at least this many coordinates, of which the added ones have no effect."""
        spare = max(0, n_latent - self.n_latent)
        return Linear(jnp.asarray(np.pad(self.matrix, ((0, 0), (0, spare)))))

    def scaled(self, scale: jax.Array) -> Linear:
        """The map to u times a factor at each node."""
        return Linear(self.matrix * scale[:, None])

    def __call__(self, z: jax.Array) -> jax.Array:
        """``B z``, computed as ``z^T B^T`` so that vmapped chains become the rows of one matrix product."""
        return z @ self.matrix.T


@pytree
class LinearWithTail:
    """The same map for a prior with a tail, which adds an independent component at every node.

        u = F z_modes + tail * (z_nodes - q0 (<q0, z_nodes> + sqrt(1 - |q0|^2) zeta)),

    z = (z_modes, z_nodes, zeta), q0 the part of the removed eigenvector at the seen nodes (zero
    where none is removed). It costs O(n_seen n_modes), not O(n_seen^2).
    """

    factor: jax.Array  # (n_seen, n_modes)
    q0: jax.Array  # (n_seen,)
    unseen: jax.Array  # sqrt(1 - |q0|^2), which a rounded q0 does not determine
    tail: jax.Array  # standard deviation of the tail, of all nodes or of each

    @property
    def n_latent(self) -> int:
        """Length of z."""
        return self.factor.shape[1] + self.factor.shape[0] + 1

    def scaled(self, scale: jax.Array) -> LinearWithTail:
        """The map to u times a factor at each node."""
        return replace(self, factor=self.factor * scale[:, None], tail=self.tail * scale)

    def __call__(self, z: jax.Array) -> jax.Array:
        """Evaluate the formula above; leading axes of z are batch axes."""
        n_modes = self.factor.shape[1]
        z_modes, z_nodes, zeta = z[..., :n_modes], z[..., n_modes:-1], z[..., -1:]
        removed = z_nodes @ self.q0[:, None] + self.unseen * zeta
        return z_modes @ self.factor.T + self.tail * (z_nodes - self.q0 * removed)


@pytree
class Fields:
    """One or several independent fields; z is the concatenation of their coordinates."""

    one: Any  # Linear | LinearWithTail
    n_fields: int = static()

    @property
    def n_latent(self) -> int:
        """Length of z."""
        return self.n_fields * int(self.one.n_latent)

    def __call__(self, z: jax.Array) -> jax.Array:
        """u, of shape (n_seen,) for one field and (n_seen, n_fields) for several."""
        return self.one(z) if self.n_fields == 1 else self.one(z.reshape(self.n_fields, -1)).T


@pytree
class Target:
    """The posterior in whitened coordinates: ``exp(-potential(z)) N(dz; 0, I)``.

    Any sampler that leaves the standard normal invariant and corrects for the potential samples
    the posterior of any model, prior and graph.
    """

    field: Fields  # z -> u at the nodes the model sees
    phi: Any  # Partial: u -> Phi(u; y)
    reduced: Any = None  # z -> Phi(B z; y), if the model has a faster way than through u

    @classmethod
    def of(
        cls, field: Linear | LinearWithTail, model: Model, dtype: str = "float32", progress: bool | None = False
    ) -> Target:
        """Build the target of a model, with all floating-point arrays cast to `dtype`."""
        reduced = model.reduced(np.asarray(field.matrix, dtype), progress) if isinstance(field, Linear) else None

        def cast(x: Any) -> jax.Array:
            x = jnp.asarray(x)
            return x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x

        return jax.tree.map(cast, cls(Fields(field, int(model.n_fields)), traced(model, "phi"), reduced))

    @property
    def n_latent(self) -> int:
        """Length of z."""
        return self.field.n_latent

    @property
    def model(self) -> Any:
        """The model whose Phi this is."""
        return model_of(self.phi)

    def potential(self, z: jax.Array) -> jax.Array:
        """``Phi(B z)``, a scalar."""
        return self.phi(self.field(z)) if self.reduced is None else self.reduced(z)

    def check(self) -> None:
        """Check that JAX can trace phi from u to one real number."""
        u = jax.eval_shape(self.field, jax.ShapeDtypeStruct((self.n_latent,), jnp.float32))
        what = f"phi of {type(self.model).__name__}"
        try:
            value_shape = jax.eval_shape(_value, self.phi, u)
        except Exception as error:
            why = str(error).strip().split("\n")[0].rstrip(".")
            raise TypeError(
                f"{what} fails for u of the shape {u.shape}: {why}. It must be a function of u written with jax.numpy, "
                "without Python's if on values."
            ) from error
        shape, dtype = getattr(value_shape, "shape", None), getattr(value_shape, "dtype", None)
        if shape != () or dtype is None or not jnp.issubdtype(dtype, jnp.floating):
            got = type(value_shape).__name__ if dtype is None else f"{dtype} of the shape {shape}"
            raise TypeError(f"{what} must return one real number, got {got}.")
        if not self.model.offers("default_sampler"):  # a custom model
            value = float(_value(self.phi, jnp.zeros(u.shape, u.dtype)))
            if not np.isfinite(value):
                raise ValueError(f"{what} must be finite, and at u = 0 it is {value}.")


@jax.jit
def _value(phi: Any, u: jax.Array) -> jax.Array:
    """Phi of u; compiled, so that JAX traces it once for all components of a mixture."""
    return phi(u)


def model_of(phi: Any) -> Any:
    """The model whose Phi this is."""
    return phi.args[0] if phi.args else getattr(phi.func, "__self__", phi.func)
