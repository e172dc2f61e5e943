"""From the spectrum of a Laplacian to a Gaussian on the nodes: `Spectrum -> N(0, C)` (Sec. 2.3, 4.2, 4.3)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphuq._columns import packed, unpacked
from graphuq._expect import (
    LARGEST_COUNT,
    expect,
    expect_count,
    expect_field,
    expect_flag,
    expect_generator,
    expect_nodes,
    expect_number,
    expect_numbers,
    expect_whole,
    put,
)
from graphuq._recipe import recipe
from graphuq.new_rows import NewRows
from graphuq.spectrum.result import Spectrum
from graphuq.tall import spread

Array = NDArray[np.float64]

# A component of u outside the support of the prior is treated as rounding error up to this fraction of |u|.
SUPPORT_TOLERANCE = 1e-8
# Computed eigenvectors, possibly in single precision, have inner products this close to 0 and 1.
ORTHONORMAL_TOLERANCE = 1e-4


@dataclass(frozen=True, eq=False)
class GaussianPrior:
    """A Gaussian ``N(0, C)`` with one variance per kept eigenvector and one for their orthogonal complement.

        C = sum_j v_j q_j q_j^T + v_tail (I - Q Q^T),    tr C = N.

    The constructors `full`, `project`, `approximate` and `matern` differ only in the variances. C is never formed.

    Attributes:
        vectors: the kept eigenvectors Q as columns, shape (n_nodes, n_modes).
        variances: their variances v_j, shape (n_modes,); zero removes a direction.
        tail_variance: v_tail, the variance of every direction orthogonal to Q.
        name: the constructor and its settings.
        first: index of the first column of `vectors` in the basis that several priors may share, and `NewRows` have.

    The columns of a learned prior include features and a constant; without a tail they need not be orthonormal.
    """

    vectors: Array = field(repr=False)
    variances: Array = field(repr=False)
    tail_variance: float = 0.0
    name: str = "custom"
    first: int = 0

    def __post_init__(self) -> None:
        variances, tail = (
            expect_numbers(self.variances, "variances"),
            expect_numbers(self.tail_variance, "tail_variance"),
        )
        put(self, variances=variances, tail_variance=float(tail))
        if variances.shape != self.vectors.shape[1:]:
            raise ValueError(
                f"A prior needs one variance for each of its {self.vectors.shape[1]} vectors, got the shape "
                f"{variances.shape}."
            )
        for each in (*variances, tail):
            if not 0 <= each < np.inf:
                raise ValueError(f"Variances of a prior must be finite and 0 or above, got {each:.4g}.")

    def __repr__(self) -> str:
        return f"GaussianPrior({self.n_nodes:,} nodes, {self.n_modes:,} modes, {self.name})"

    def __getstate__(self) -> dict[str, Any]:
        """Replace a slice of a larger matrix by a reference, so that priors sharing the matrix pickle it once."""
        return {**self.__dict__, "vectors": packed(self.vectors)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the column slice."""
        self.__dict__.update(state | {"vectors": unpacked(state["vectors"])})

    @property
    def n_nodes(self) -> int:
        """Number of nodes N."""
        return self.vectors.shape[0]

    @property
    def n_modes(self) -> int:
        """Number of kept eigenvectors, q_0 included."""
        return self.vectors.shape[1]

    @property
    def columns(self) -> slice:
        """The columns of the shared basis that `vectors` are."""
        return slice(self.first, self.first + self.n_modes)

    def sample(self, n_draws: int = 1, *, seed: int | np.random.Generator = 0) -> Array:
        """Draw u by the Karhunen-Loeve expansion (2.5), (4.2), (4.4); shape (n_draws, n_nodes)."""
        expect_whole(n_draws, "n_draws", most=LARGEST_COUNT)
        rng = expect_generator(seed)
        u = (rng.standard_normal((n_draws, self.n_modes)) * np.sqrt(self.variances)) @ self.vectors.T
        if self.tail_variance > 0:
            tail = rng.standard_normal((n_draws, self.n_nodes))
            tail -= (tail @ self.vectors) @ self.vectors.T  # removes every kept mode, q_0 included
            u += np.sqrt(self.tail_variance) * tail
        return u

    def covariance(self, rows: ArrayLike | NewRows, columns: ArrayLike | NewRows) -> Array:
        """The block ``C[rows, columns]`` of ``C = Q (v - v_tail) Q^T + v_tail I``; no tail term with new rows."""
        block = (self.rows(rows) * (self.variances - self.tail_variance)) @ self.rows(columns).T
        if isinstance(rows, NewRows) or isinstance(columns, NewRows):
            return block
        i, j = (expect_nodes(nodes, self.n_nodes) for nodes in (rows, columns))
        return block + self.tail_variance * (i[:, None] == j)

    def marginal_variance(self, where: ArrayLike | NewRows | None = None) -> Array:
        """The diagonal of C at the given nodes (all by default), or at new rows."""
        vectors = self.vectors if where is None else self.rows(where)
        # A fixed summation order per row: a node's variance does not depend on which other nodes are requested.
        squares = np.square(vectors, order="C")
        return np.einsum("ij,j->i", squares, self.variances - self.tail_variance) + self.tail_variance

    def unit_scale(self) -> GaussianPrior:
        """The same prior times a constant, with ``tr C = N`` as the paper's priors have."""
        square = float(self.marginal_variance().mean())
        name = f"({self.name}) / {np.sqrt(square):.4g}"
        return replace(
            self, variances=self.variances / square, tail_variance=self.tail_variance / square, name=name
        )

    def rows(self, where: ArrayLike | NewRows) -> Array:
        """Rows of Q at the given nodes or new rows, shape (n, n_modes)."""
        if isinstance(where, NewRows):
            return where.within(self.columns).values
        return self.vectors[_as_slice(expect_nodes(where, self.n_nodes))]

    def own_variance(self, where: ArrayLike | NewRows) -> Array:
        """The variance of u at new rows that neither nodes nor tail explain, see `NewRows`; zero at nodes."""
        if not isinstance(where, NewRows):
            return np.zeros(len(expect_nodes(where, self.n_nodes)))
        rows = where.within(self.columns)
        excess = np.maximum(self.variances - self.tail_variance, 0.0)
        counted = np.where(rows.has_value, excess, 0.0)
        own = np.full(len(rows), (excess - counted).sum() / self.n_nodes)
        if rows.least_quantile is not None:
            least = self._quantile(counted, rows.least_quantile)
            own += np.maximum(least - np.square(rows.values) @ counted, 0.0)
        if rows.beyond is not None:
            own += rows.beyond * self.variances[rows.slope]
        return own

    def _quantile(self, counted: Array, share: float) -> float:
        """The quantile of the nodes' variances, from a representative subset of nodes; cached."""
        key = share, counted.tobytes()
        if key not in self._quantiles:
            sample = self.vectors[spread(self.n_nodes)]
            self._quantiles[key] = float(np.quantile(np.square(sample) @ counted, share))
        return self._quantiles[key]

    @cached_property
    def _quantiles(self) -> dict[tuple[float, bytes], float]:
        return {}

    def precision(self, u: ArrayLike) -> Array:
        """``P u`` with P the inverse of C on its support; ``P = L / c`` for the paper's prior."""
        return self._orthonormal()._power(-1.0, u)

    def energy(self, u: ArrayLike) -> float:
        """``<u, P u> / 2``, infinite if u lies outside the support of the prior."""
        u, prior = expect_field(u, self.n_nodes), self._orthonormal()
        if np.linalg.norm(u - prior._power(0.0, u)) > SUPPORT_TOLERANCE * np.linalg.norm(u):
            return float("inf")
        return 0.5 * float(np.vdot(u, prior._power(-1.0, u)))

    def _power(self, power: float, u: ArrayLike) -> Array:
        """``C^power u`` on the support of C, for one field u or several as columns."""
        u, v = expect_field(u, self.n_nodes), np.append(self.variances, self.tail_variance)
        to_power = np.power(v, power, out=np.zeros_like(v), where=v > 0)
        modes, tail = to_power[:-1], to_power[-1]
        return (((modes - tail) * (u.T @ self.vectors)) @ self.vectors.T).T + tail * u

    def _orthonormal(self) -> GaussianPrior:
        """The same C with orthonormal columns, for a learned prior by singular value decomposition."""
        if self._is_orthonormal:
            return self
        if self.tail_variance > 0:
            raise ValueError(
                "The columns of this prior are not orthonormal, and it has a tail: only without one does it have an "
                "energy and a precision."
            )
        active = self.variances > 0
        factor = self.vectors[:, active] * np.sqrt(self.variances[active])
        vectors, deviations, _ = np.linalg.svd(factor, full_matrices=False)
        kept = deviations > np.finfo(float).eps * self.n_nodes * deviations[0]
        return GaussianPrior(vectors[:, kept], np.square(deviations[kept]), name=self.name)

    @cached_property
    def _is_orthonormal(self) -> bool:
        error = np.abs(self.vectors.T @ self.vectors - np.eye(self.n_modes))
        return bool(error.max(initial=0) < ORTHONORMAL_TOLERANCE)


@recipe
def full(spectrum: Spectrum) -> GaussianPrior:
    """The prior of Algorithm 1: ``v_j = c / lambda_j`` on every mode but the first (2.5), (2.6).

    Requires the whole spectrum, or one whose remaining eigenvalues are known to be equal, as for low-rank weights;
    the tail is then exact too.
    """
    _require_connected(spectrum)
    if spectrum.n_modes == spectrum.n_nodes:
        return _inverse_laplacian(spectrum, None, "full")
    if spectrum.rest is not None:
        return _inverse_laplacian(spectrum, spectrum.rest, "full")
    raise ValueError(
        f"The full prior needs all {spectrum.n_nodes} eigenpairs and this spectrum has {spectrum.n_modes}: "
        "use spectrum.dense, or the priors project or approximate."
    )


@recipe
def project(spectrum: Spectrum, *, n_modes: int | None = None) -> GaussianPrior:
    """The prior of Algorithm 2: ``v_j = c / lambda_j`` for 0 < j < n_modes, zero elsewhere (4.2)."""
    _require_connected(spectrum)
    spectrum = _first(spectrum, n_modes)
    return _inverse_laplacian(spectrum, None, f"project(n_modes={spectrum.n_modes})")


@recipe
def approximate(
    spectrum: Spectrum, *, n_modes: int | None = None, lambda_bar: float | None = None
) -> GaussianPrior:
    """The prior of Algorithm 3: `project` plus variance ``c / lambda_bar`` in all other directions (4.4).

    `lambda_bar` stands in for the eigenvalues that were not computed and defaults to the largest computed one. q_0
    is removed from the tail as well, which (4.4) as printed omits.
    """
    _require_connected(spectrum)
    spectrum = _first(spectrum, n_modes)
    if lambda_bar is None:
        lambda_bar = float(spectrum.values.max())
    lambda_bar = expect_number(lambda_bar, "lambda_bar")
    name = f"approximate(n_modes={spectrum.n_modes}, lambda_bar={lambda_bar:.6g})"
    return _inverse_laplacian(spectrum, lambda_bar, name)


@recipe
def matern(
    spectrum: Spectrum,
    *,
    tau: float,
    alpha: float,
    n_modes: int | None = None,
    tail: bool = False,
    lambda_bar: float | None = None,
    constant: float = 1.0,
) -> GaussianPrior:
    """The Matern prior: ``v_j = c (lambda_j + tau^2)^-alpha`` on every mode.

    Its scale and smoothness can be learned. It keeps q_0 and is defined on disconnected graphs too.

    Args:
        spectrum: the eigenpairs.
        tau: inverse length scale on the graph, unlike the `tau` of weights; modes with ``lambda_j < tau^2`` have
            nearly equal variance.
        alpha: smoothness; alpha = 1 with tau -> 0 and constant = 0 is the paper's prior. With constant = 1 and a small
            tau, q_0 has most of the variance and the other modes hardly any.
        n_modes: number of modes to use; all of the spectrum's by default.
        tail: whether directions that were not computed have the variance ``c (lambda_bar + tau^2)^-alpha`` each.
        lambda_bar: the eigenvalue assumed for them; by default `spectrum.rest` or the largest.
        constant: factor on the variance of the modes with eigenvalue zero; 0 removes them.
    """
    tau, alpha = expect_number(tau, "tau"), expect_number(alpha, "alpha")
    expect_flag(tail, "tail")
    constant = expect_number(constant, "constant", zero=True)
    spectrum = _first(spectrum, n_modes)
    # Relative to the largest weight, to prevent overflow of the powers; c restores the scale.
    with np.errstate(over="ignore", invalid="ignore"):  # `_scaled` rejects what overflows nevertheless
        square = np.square(tau)
        base = spectrum.values[0] + square
        weights = ((spectrum.values + square) / base) ** -alpha
    weights[: spectrum.n_zero] *= constant
    tail_weight = 0.0
    if tail and spectrum.n_modes < spectrum.n_nodes:
        if lambda_bar is None:
            lambda_bar = spectrum.rest if spectrum.rest is not None else float(spectrum.values.max())
        lambda_bar = expect_number(lambda_bar, "lambda_bar", zero=True)
        with np.errstate(over="ignore", invalid="ignore"):
            tail_weight = float(((lambda_bar + square) / base) ** -alpha)
    label = f"matern(tau={tau:.6g}, alpha={alpha:.6g}, n_modes={spectrum.n_modes})"
    return _scaled(spectrum, weights, tail_weight, label)


def _as_slice(nodes: NDArray[np.integer]) -> slice | NDArray[np.integer]:
    """Consecutive nodes as a slice, which indexes without a copy; other nodes unchanged."""
    if nodes.ndim != 1 or nodes.size < 2 or nodes[0] < 0 or nodes[-1] - nodes[0] != nodes.size - 1:
        return nodes
    return slice(int(nodes[0]), int(nodes[-1]) + 1) if np.all(np.diff(nodes) == 1) else nodes


def _inverse_laplacian(spectrum: Spectrum, lambda_bar: float | None, name: str) -> GaussianPrior:
    """Variances proportional to ``1 / lambda_j``, 0 for q_0, and to ``1 / lambda_bar`` in the tail."""
    weights = np.zeros(spectrum.n_modes)
    weights[1:] = 1 / spectrum.values[1:]
    return _scaled(spectrum, weights, 0.0 if lambda_bar is None else 1 / lambda_bar, name)


def _scaled(spectrum: Spectrum, weights: Array, tail_weight: float, name: str) -> GaussianPrior:
    """The prior with these relative variances, normalized to ``tr C = N`` (2.6)."""
    n_nodes, n_modes = spectrum.vectors.shape
    with np.errstate(over="ignore"):
        trace = weights.sum() + tail_weight * (n_nodes - n_modes)
    if not 0 < trace < np.inf:
        raise ValueError(f"{name} has variances beyond what numbers of 64 bits hold: use less extreme settings.")
    c = n_nodes / trace
    return GaussianPrior(spectrum.vectors, c * weights, c * tail_weight, name)


def _expect_spectrum(spectrum: object) -> None:
    expect(spectrum, Spectrum, "spectrum", "a Spectrum, as spectrum.dense(laplacian) makes")


def _first(spectrum: Spectrum, n_modes: int | None) -> Spectrum:
    """The spectrum truncated to its first modes."""
    _expect_spectrum(spectrum)
    if n_modes is None or expect_whole(n_modes, "n_modes") == spectrum.n_modes:
        return spectrum
    return spectrum.truncate(expect_count(n_modes, "n_modes", spectrum.n_modes, "the modes computed", least=2))


def _require_connected(spectrum: Spectrum) -> None:
    """Raise if there is no mode j >= 1, or one with ``lambda_j = 0``."""
    _expect_spectrum(spectrum)
    if spectrum.n_modes < 2:
        raise ValueError(
            "The spectrum has one mode only, the constant, which cannot tell classes apart: every row is alike."
        )
    if spectrum.n_components > 1:
        raise ValueError(
            f"The graph has {spectrum.n_components} connected components, and this prior exists on a connected "
            "graph only: use more neighbors, connect the graph, or use the matern prior."
        )
    if spectrum.n_zero > 1:
        raise ValueError(
            f"{spectrum.n_zero} eigenvalues are zero to rounding: the graph falls into {spectrum.n_zero} pieces that barely touch. "
            "Use more neighbors or a wider kernel, or the matern prior."
        )
