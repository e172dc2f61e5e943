"""A prior and the nodes a model sees in; whitened coordinates z ~ N(0, I) with `u[nodes] = B z` exactly out.

A model sees u at few nodes, and u elsewhere is Gaussian given those. A chain may therefore run on z alone: it has
the same law as a chain over all nodes, at a cost per step that does not depend on the graph. There are three such
reductions; `whiten` picks the cheapest. Each gives the conditional distribution of u at any nodes or new rows j,

    u_j ~ N(M_j z, s_j^2),    M = `matrix`, shape (n_rows, n_latent),    M z = `mean`,    s = `std`, shape (n_rows,).

`conditional` returns M and s together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, qr, solve_triangular

from graphuq._expect import expect, expect_in_graph
from graphuq.inference.target import Linear, LinearWithTail
from graphuq.models.base import expect_model
from graphuq.new_rows import NewRows
from graphuq.prior import GaussianPrior

Array = NDArray[np.float64]
Nodes = NDArray[np.int64]
Where = Nodes | NewRows

# Variances below this fraction of the largest are rounding errors and must not be divided by.
SINGULAR = 1e-10


@dataclass(frozen=True, eq=False)
class OnModes:
    """Case 1, no tail: z are the modal coordinates, which determine u at every node.

    u_j = sum_k q_k(j) sqrt(v_k) z_k
    """

    prior: GaussianPrior
    nodes: Nodes

    @property
    def n_latent(self) -> int:
        """Length of z: the number of modes of positive variance."""
        return int(np.count_nonzero(self.prior.variances))

    def field(self, dtype: str) -> Linear:
        """The map from z to u at the seen nodes."""
        return Linear(jnp.asarray(_factor(self.prior, self.nodes), dtype))

    def matrix(self, where: Where) -> Array:
        """The modes, each scaled by its prior standard deviation, shape (n_rows, n_latent)."""
        return _factor(self.prior, where)

    def mean(self, z: NDArray[Any], where: Where) -> NDArray[Any]:
        """u itself, shape (n_draws, n_rows), for draws z of shape (n_draws, n_latent)."""
        return z @ self.matrix(where).T.astype(z.dtype)

    def std(self, where: Where) -> Array:
        """Zero at nodes; at new rows the deviation of their own independent part."""
        return np.sqrt(self.prior.own_variance(where))

    def conditional(self, where: Where) -> tuple[Array, Array]:
        """`matrix` and `std`."""
        return self.matrix(where), self.std(where)


@dataclass(frozen=True, eq=False)
class OnLabels:
    """Case 2, few seen nodes: z has one coordinate per seen node.

    ``u_seen = B z`` with ``B B^T = C[seen, seen]``, and given z

        E[u_j | z] = K_j z,    Var[u_j | z] = C_jj - |K_j|^2,    K = C[:, seen] B^-T.

    Without a tail ``K = F V`` and ``B = R^T`` come from one QR factorization ``F[seen]^T = V R`` of the modal
    factor ``F = Q sqrt(v)``: without any division, so C[seen, seen] may be arbitrarily close to singular. With a
    tail B is the Cholesky factor or, if C[seen, seen] is singular, ``V sqrt(w)`` from its positive eigenvalues w:
    z then has fewer coordinates than there are seen nodes, and ``B^-1`` is the pseudo-inverse.
    """

    prior: GaussianPrior
    nodes: Nodes
    root: Array  # B, (n_seen, n_latent)
    rotation: Array | None  # V, (n_modes, n_seen); None if the prior has a tail

    @property
    def n_latent(self) -> int:
        """Length of z: the number of seen nodes, or the rank of their covariance."""
        return self.root.shape[1]

    def field(self, dtype: str) -> Linear:
        """The map from z to u at the seen nodes."""
        return Linear(jnp.asarray(self.root, dtype))

    def mean(self, z: NDArray[Any], where: Where) -> NDArray[Any]:
        """``K_j z``."""
        return z @ self.matrix(where).T.astype(z.dtype)

    def std(self, where: Where) -> Array:
        """``sqrt(C_jj - |K_j|^2)``, exactly zero at the seen nodes."""
        return self.conditional(where)[1]

    def conditional(self, where: Where) -> tuple[Array, Array]:
        """`matrix` and `std`, which is computed from it: K is the expensive part of both."""
        K = self.matrix(where)
        left = np.maximum(self.prior.marginal_variance(where) - np.square(K).sum(axis=1), 0.0)
        return K, np.sqrt(np.where(_seen(where, self.nodes), 0.0, left) + self.prior.own_variance(where))

    def matrix(self, where: Where) -> Array:
        """The rows ``K_j``."""
        if self.rotation is not None:
            return _factor(self.prior, where) @ self.rotation
        cross = self.prior.covariance(self.nodes, where)
        if self.n_latent < len(self.nodes):  # the columns of B are orthogonal
            return (cross.T @ self.root) / np.square(self.root).sum(axis=0)
        return np.asarray(solve_triangular(self.root, cross, lower=True)).T


@dataclass(frozen=True, eq=False)
class OnModesAndLabels:
    """Case 3, a tail and many seen nodes: z = (z_modes, z_nodes, zeta), see `LinearWithTail`.

    With ``F = Q sqrt(v - v_tail)``, ``t = <q0[seen], z_nodes>`` and ``a = 1 - |q0[seen]|^2``, at an
    unseen node

        E[u_j | z] = F_j z_modes + sqrt(v_tail) q0_j ((1/sqrt(a) - sqrt(a)) zeta - t),
        Var[u_j | z] = v_tail (1 - q0_j^2 / a).

    q0 is zero if no mode is removed from the tail. If every node is seen, a is zero and u has no component along
    q0, so that q0 contributes nothing at new rows.
    """

    prior: GaussianPrior
    nodes: Nodes

    @property
    def n_latent(self) -> int:
        """Length of z: modes, seen nodes, and one for zeta."""
        return int(np.count_nonzero(self._kept)) + len(self.nodes) + 1

    def field(self, dtype: str) -> LinearWithTail:
        """The map from z to u at the seen nodes."""
        return LinearWithTail(
            factor=jnp.asarray(self._tail_factor(self.nodes), dtype),
            q0=jnp.asarray(self._q0(self.nodes), dtype),
            unseen=jnp.asarray(self._unseen, dtype),
            tail=jnp.asarray(np.sqrt(self.prior.tail_variance), dtype),
        )

    def matrix(self, where: Where) -> Array:
        """The map ``z -> mean(z)`` as a dense matrix."""
        return np.ascontiguousarray(self.mean(np.eye(self.n_latent), where).T)

    def mean(self, z: NDArray[Any], where: Where) -> NDArray[Any]:
        """``E[u_j | z]`` by the formula above at unseen nodes, u itself at seen ones."""
        n_modes = int(np.count_nonzero(self._kept))
        z_modes, z_nodes, zeta = z[:, :n_modes], z[:, n_modes:-1], z[:, -1]
        q0_seen, root = self._q0(self.nodes), self._unseen
        tail = np.sqrt(self.prior.tail_variance)
        t = z_nodes @ q0_seen
        modal = z_modes @ self._tail_factor(where).T.astype(z.dtype)
        seen = _seen(where, self.nodes)
        own = np.empty_like(modal)
        if seen.any():
            which = positions(where[seen], self.nodes)  # type: ignore[index]
            own[:, seen] = z_nodes[:, which] - q0_seen[which] * (t + root * zeta)[:, None]
        if not seen.all():
            shared = 0 * zeta if self._sees_all else (1 / root - root) * zeta - t
            own[:, ~seen] = self._q0(where)[~seen] * shared[:, None]
        return modal + tail * own

    def std(self, where: Where) -> Array:
        """``sqrt(v_tail (1 - q0_j^2 / a))`` at unseen nodes, zero at seen ones."""
        q0_seen = self._q0(self.nodes)
        a = np.inf if self._sees_all else 1 - q0_seen @ q0_seen
        left = self.prior.tail_variance * np.maximum(1 - self._q0(where) ** 2 / a, 0.0)
        return np.sqrt(np.where(_seen(where, self.nodes), 0.0, left) + self.prior.own_variance(where))

    def conditional(self, where: Where) -> tuple[Array, Array]:
        """`matrix` and `std`."""
        return self.matrix(where), self.std(where)

    @property
    def _sees_all(self) -> bool:
        return len(self.nodes) == self.prior.n_nodes

    @property
    def _kept(self) -> NDArray[np.bool_]:
        return self.prior.variances > self.prior.tail_variance

    def _q0(self, where: Where) -> Array:
        """The mode that is removed from the tail, or zero if there is none."""
        removed = self.prior.variances == 0
        return self.prior.rows(where)[:, np.argmax(removed)] if removed.any() else np.zeros(len(where))

    @property
    def _unseen(self) -> float:
        """``sqrt(a)``, the norm of q0 at the unseen nodes."""
        q0_seen = self._q0(self.nodes)
        return 0.0 if self._sees_all else float(np.sqrt(max(1 - float(q0_seen @ q0_seen), 0.0)))

    def _tail_factor(self, where: Where) -> Array:
        scale = np.sqrt(self.prior.variances[self._kept] - self.prior.tail_variance)
        return self.prior.rows(where)[:, self._kept] * scale


Whitening: TypeAlias = OnModes | OnLabels | OnModesAndLabels


def check_problem(prior: GaussianPrior, model: Any) -> None:
    """Check the types of prior and model, and that all labeled nodes exist in the prior."""
    expect(prior, GaussianPrior, "prior", "a prior, as prior.matern(spectrum) makes")
    expect_model(model)
    expect_in_graph(model.nodes, prior.n_nodes)


def whiten(prior: GaussianPrior, nodes: Nodes) -> Whitening:
    """Choose the reduction with the cheapest step: O(n_seen n_modes), or O(n_seen^2) if fewer nodes are seen."""
    nodes = np.asarray(nodes, dtype=np.int64)
    expect_in_graph(nodes, prior.n_nodes)
    n_active = int(np.count_nonzero(prior.variances))
    if len(nodes) < n_active:
        return _on_labels(prior, nodes)
    if prior.tail_variance == 0:
        return OnModes(prior, nodes)
    # `OnModesAndLabels` needs v >= v_tail for every kept mode and at most one removed mode.
    below_tail = (prior.variances < prior.tail_variance) & (prior.variances > 0)
    if below_tail.any() or np.count_nonzero(prior.variances == 0) > 1:
        return _on_labels(prior, nodes)
    return OnModesAndLabels(prior, nodes)


def positions(nodes: Nodes, among: Nodes) -> Nodes:
    """Index of each node in `among`, which must contain all of them."""
    order = np.argsort(among)
    return np.asarray(order[np.searchsorted(among, nodes, sorter=order)])


def _seen(where: Where, nodes: Nodes) -> NDArray[np.bool_]:
    """Boolean mask of the rows that are nodes the model sees; new rows never are."""
    return np.zeros(len(where), dtype=bool) if isinstance(where, NewRows) else np.isin(where, nodes)


def _on_labels(prior: GaussianPrior, nodes: Nodes) -> OnLabels:
    """Factor ``C[seen, seen]``."""
    if prior.tail_variance == 0:
        rotation, upper = qr(_factor(prior, nodes).T, mode="economic")
        return OnLabels(prior, nodes, np.asarray(upper.T, dtype=float), np.asarray(rotation, dtype=float))
    return OnLabels(prior, nodes, _root(prior.covariance(nodes, nodes)), None)


def _root(covariance: Array) -> Array:
    """B with ``B B^T = covariance``: lower triangular or, if numerically singular, with orthogonal columns."""
    least = SINGULAR * np.diag(covariance).max()
    try:
        root = np.asarray(cholesky(covariance, lower=True), dtype=float)
    except LinAlgError:
        root = np.zeros_like(covariance)
    if np.diag(root).min() ** 2 > least:
        return root
    values, vectors = np.linalg.eigh(covariance)
    # Never all are kept: `OnLabels.matrix` recognizes orthogonal columns by their number.
    kept = values > max(least, values[0])
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))


def _factor(prior: GaussianPrior, where: Where) -> Array:
    """Rows of ``F = Q sqrt(v)`` at nodes or new rows, without the modes of zero variance."""
    active = prior.variances > 0
    rows = prior.rows(where)
    return (rows if active.all() else rows[:, active]) * np.sqrt(prior.variances[active]).astype(rows.dtype)
