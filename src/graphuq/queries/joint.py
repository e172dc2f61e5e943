"""A posterior and two lists of rows in; joint probabilities of classes at one and answers at the other out.

Nothing is refitted: the prediction at row j given the answer at row c follows from their joint distribution,

    P(y_j = k | y_c = a) = P(y_j = k, y_c = a) / P(y_c = a).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, softmax

from graphuq._threads import blas_threads
from graphuq.inference.ep import EP
from graphuq.inference.fields import drawn_fields, left_open
from graphuq.inference.largest import LEAST_PROBABILITY, independent_probability, largest_probability_matched
from graphuq.inference.star_ep import StarEP
from graphuq.inference.stars import lone_stars
from graphuq.posterior.base import Posterior
from graphuq.posterior.draws import Draws
from graphuq.posterior.gaussian import GaussianPosterior
from graphuq.posterior.mixture import Mixture

Array = NDArray[Any]
Nodes = NDArray[np.int64]

# Only the heaviest components of a mixture are used: those that together have this weight, up to a maximum number.
# The others would each cost as much and have little influence on the choice of a row.
HEAVY, MOST_COMPONENTS, MOST_COMPONENTS_MANY = 0.9, 4, 2
# Sampler draws used: an uninformative answer then seems to change a row by 1 / sqrt(n_draws) standard deviations.
N_DRAWS = 768
# With several fields only the most probable answers are considered, this many in `next_queries` and in `expected_gain`,
# and none less probable than UNLIKELY. The others are treated as uninformative, which hardly affects the choice of a
# row but lowers the expected gain.
N_ANSWERS, N_ANSWERS_TOLD, UNLIKELY = 4, 10, 2e-3
# Rank of the variance reduction by an answer, and the minimum fraction of a variance that remains.
N_DIRECTIONS, LEAST_LEFT = 3, 0.05
# Quadrature points for several fields, enough for equal noise and for differences of two; rows per block.
N_POINTS, BLOCK_ROWS = 16, 2**14
# Lower bound on a variance after an answer, relative to the variance before.
JITTER = 1e-10


class Joint(NamedTuple):
    """The joint distribution of the classes of some rows and the answers at others, pair by pair."""

    probability: Array  # P(y_j = k), shape (n_rows, n_classes)
    answer: Array  # P(answer a at c), shape (n_asked, n_classes)
    # P(y_j = k, answer a at c) less the product of the two, shape (n_rows, n_classes, n_asked, n_classes)
    covariance: Array
    # covariance from draws in which rows and answers are independent: gains that it implies are subtracted
    spurious: Array | None = None


def joint(
    posterior: Posterior,
    rows: Nodes,
    asked: Nodes,
    *,
    n_answers: int = N_ANSWERS,
    n_draws: int = N_DRAWS,
    seed: int = 0,
) -> Joint:
    """The joint distribution of classes and answers, in closed form or from draws, averaged over components."""
    parts, weights = heaviest(posterior)
    joints = []
    for part, weight in zip(parts, weights, strict=True):
        if isinstance(part, Draws):
            n = max(2, round(n_draws * weight))
            draws = _class_draws(part, np.append(rows, asked), n, seed)
            draws[:, len(rows) :] = _answer_probability(part, draws[:, len(rows) :])
            joints.append(_of_draws(draws, len(rows)))
        elif isinstance(part.fit, EP):
            joints.append(_of_one_field(part, rows, asked))
        else:
            joints.append(_of_several_fields(part, rows, asked, n_answers))
    averaged = _averaged(joints, weights)
    if not isinstance(posterior, Mixture) or (posterior.temperature == 1 and posterior.class_weights is None):
        return averaged
    return _adjusted(averaged, posterior)


def _answer_probability(posterior: Draws | GaussianPosterior, p: Array) -> Array:
    """The probability of each answer from that of each class: a mistaken answer is any other class, equally likely."""
    mistakes = float(posterior.model.mistake_rate)
    return np.asarray((1 - mistakes) * p + mistakes * (1 - p) / (p.shape[-1] - 1))


def _averaged(joints: list[Joint], weights: NDArray[np.float64]) -> Joint:
    """The joint distribution under a mixture of components, by the law of total covariance."""
    probability = sum(w * each.probability for w, each in zip(weights, joints, strict=True))
    answer = sum(w * each.answer for w, each in zip(weights, joints, strict=True))
    covariance: Any = 0.0
    for weight, each in zip(weights, joints, strict=True):
        dtype = each.covariance.dtype
        deviations = ((each.probability - probability).astype(dtype), (each.answer - answer).astype(dtype))
        covariance = covariance + dtype.type(weight) * (each.covariance + np.multiply.outer(*deviations))
    drawn = [(w, each.spurious) for w, each in zip(weights, joints, strict=True) if each.spurious is not None]
    spurious = sum(each.dtype.type(w) * each for w, each in drawn) if drawn else None
    return Joint(np.asarray(probability), np.asarray(answer), covariance, spurious)


def heaviest(posterior: Posterior) -> tuple[tuple[Any, ...], NDArray[np.float64]]:
    """The heaviest components of a posterior and their normalized weights."""
    most = MOST_COMPONENTS if posterior.n_classes == 2 else MOST_COMPONENTS_MANY
    n = min(most, 1 + int(np.searchsorted(np.cumsum(posterior.weights), HEAVY)))
    return posterior.components[:n], posterior.weights[:n] / posterior.weights[:n].sum()


def _of_one_field(posterior: GaussianPosterior, rows: Nodes, asked: Nodes) -> Joint:
    """The joint distribution under a single Gaussian field, by moment matching.

    With ``s^2 = Sigma_cc + gamma^2``, ``z = y m_c / s`` and ``r = (1 - 2 delta) psi(z) / Z``, the answer y at row
    c has probability ``Z = delta + (1 - 2 delta) Psi(z)`` and changes mean and variance at row j to

        m_j + y Sigma_jc r / s,    Sigma_jj - Sigma_jc^2 r (z + r) / s^2.
    """
    noise, flip = float(posterior.model.noise) ** 2, np.exp(posterior.model.sites().log_flip)
    mean, variance = (each[:, 0] for each in posterior.moments(rows))
    mean_c, variance_c = (each[:, 0] for each in posterior.moments(asked))
    s = np.sqrt(variance_c + noise)
    score = covariance(posterior, rows, asked) / s
    p_second, total = ndtr(mean / np.sqrt(variance + noise)), variance[:, None] + noise
    answer, joint_second = [], []
    for y in (-1.0, 1.0):
        z = y * mean_c / s
        Z = flip + (1 - 2 * flip) * ndtr(z)
        r = (1 - 2 * flip) * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) / np.maximum(Z, 1e-300)
        remaining = np.maximum(total - np.square(score) * (r * (z + r)), JITTER * total)
        answer.append(Z)
        joint_second.append(Z * ndtr((mean[:, None] + y * score * r) / np.sqrt(remaining)))
    # Moment matching does not exactly preserve the mean over the two answers: they share the discrepancy.
    excess = (joint_second[0] + joint_second[1] - p_second[:, None]) / 2
    above = np.stack([(joint_second[i] - excess) - p_second[:, None] * answer[i] for i in (0, 1)], axis=-1)
    probability = np.column_stack([1 - p_second, p_second])
    return Joint(probability, np.column_stack(answer), np.stack([-above, above], axis=1))


def covariance(posterior: GaussianPosterior, rows: Nodes, columns: Nodes) -> NDArray[np.float64]:
    """Posterior covariance ``Sigma[rows, columns]`` of one field: ``C - M (I - S) M^T`` with C of the prior."""
    fit: Any = posterior.fit
    left, right = (posterior.whitening.matrix(each) @ fit.basis for each in (rows, columns))
    return np.asarray(
        posterior.prior.covariance(rows, columns) - left @ right.T + (left @ fit.root) @ (right @ fit.root).T
    )


class Moved(NamedTuple):
    """The effect of the n most probable answers at each row on the fields there, see `_of_several_fields`."""

    probability: Array  # of every answer, (n_asked, n_classes)
    answer: NDArray[np.int64]  # the n most probable classes, (n_asked, n)
    push: Array  # V_c^-1 (m_ca - m_c), (n_asked, n, n_classes)
    # low-rank square roots of V_c^-1 (V_c - V_ca) V_c^-1, (n_asked, n, n_classes, N_DIRECTIONS or less)
    root: Array


def _of_several_fields(posterior: GaussianPosterior, rows: Nodes, asked: Nodes, n_answers: int) -> Joint:
    """The joint distribution under K Gaussian fields, by expectation propagation.

    The answer a at row c is a star of sites on the K fields there (`lone_stars`), which changes N(m_c, V_c) to
    N(m_ca, V_ca). With the K x K matrix ``G = Cov(u_j, u_c)``, the moments at row j become

        m_j + G V_c^-1 (m_ca - m_c),    Sigma_jj - G V_c^-1 (V_c - V_ca) V_c^-1 G^T.

    Class probabilities are those of independent fields with the variances of `matched_variances` less the diagonal
    of the last term.
    """
    fit: Any = posterior.fit
    whitening, noise = posterior.whitening, float(posterior.model.noise)
    at, deviation = whitening.conditional(rows)
    mean, variance = at @ fit.z_mean.T, fit.independent_variances(at, deviation, noise)
    n_rows, n_classes = mean.shape
    before = _class_probabilities(mean, variance)
    with blas_threads(0):  # many small systems
        moved = _answers(posterior, asked, noise, n_answers)
    with blas_threads(n_rows * len(asked) * n_classes**2 * fit.shared.shape[2]):
        cross = cross_covariance(posterior, rows, asked)
    chance = np.take_along_axis(moved.probability, moved.answer, 1)
    likely = chance >= np.minimum(UNLIKELY, chance[:, :1])  # the first one at least
    means = np.empty((np.count_nonzero(likely), n_rows, n_classes), np.float32)
    variances, first = np.empty_like(means), 0
    push, root = moved.push.astype(np.float32), moved.root.astype(np.float32)
    with blas_threads(0):  # many small products
        for c, answers in enumerate(likely):
            pairs = slice(first, first := first + int(answers.sum()))
            G = np.ascontiguousarray(cross[:, :, c]).reshape(-1, n_classes)
            shift = (G @ push[c, answers].T).reshape(n_rows, n_classes, -1)
            means[pairs] = mean + np.moveaxis(shift, 2, 0)
            taken = (
                np.square(G @ np.hstack(root[c, answers]))
                .reshape(n_rows, n_classes, -1, root.shape[3])
                .sum(axis=3)
            )
            variances[pairs] = np.maximum(variance - np.moveaxis(taken, 2, 0), LEAST_LEFT * variance)
    after = _class_probabilities(means.reshape(-1, n_classes), variances.reshape(-1, n_classes))
    change = np.zeros((*chance.shape, n_rows, n_classes), np.float32)
    change[likely] = chance[likely][:, None, None] * (after.reshape(means.shape) - before)
    # Moment matching does not exactly preserve the mean over answers: the answers share the discrepancy.
    share = chance / chance.sum(axis=1, keepdims=True)
    change -= change.sum(axis=1, keepdims=True) * share.astype(np.float32)[:, :, None, None]
    covariance = np.zeros((len(asked), n_classes, n_rows, n_classes), np.float32)
    covariance[np.arange(len(asked))[:, None], moved.answer] = change
    covariance = covariance.transpose(2, 3, 0, 1)
    return Joint(before, moved.probability, covariance)


def _class_probabilities(mean: Array, variance: Array) -> Array:
    """Class probabilities of independent fields."""
    return independent_probability(mean, variance, n_points=N_POINTS, block_rows=BLOCK_ROWS)


def _answers(posterior: GaussianPosterior, asked: Nodes, noise: float, n_answers: int) -> Moved:
    """The most probable answers at each row and their effect on the fields there."""
    fit: Any = posterior.fit
    mean, alone, cross = fit.fields_at(*posterior.whitening.conditional(asked))
    n_classes = mean.shape[1]
    probability = _answer_probability(posterior, largest_probability_matched(mean, alone + noise**2, cross))
    answer = np.argsort(-probability, axis=1, kind="stable")[:, :n_answers]
    n = answer.shape[1]
    V = np.repeat(cross + (alone + noise**2)[:, None, None] * np.eye(n_classes), n, axis=0)
    m = np.repeat(mean, n, axis=0)
    sites = replace(posterior.model.sites(), labels=answer.ravel())
    precision, shift = lone_stars(sites, m, V)
    arms = np.eye(n_classes)[answer.ravel()][:, None] - np.eye(n_classes)
    inverse = np.linalg.inv(V)
    V_after = np.linalg.inv(inverse + arms.swapaxes(1, 2) @ (precision[:, :, None] * arms))
    force = (shift[:, None] @ arms)[:, 0] - ((precision * (arms @ m[:, :, None])[..., 0])[:, None] @ arms)[:, 0]
    move = (V_after @ force[:, :, None])[..., 0]  # m_ca - m_c
    push = (inverse @ move[:, :, None])[..., 0]
    values, vectors = np.linalg.eigh(inverse - inverse @ V_after @ inverse)
    root = (vectors * np.sqrt(np.maximum(values, 0))[:, None])[:, :, -N_DIRECTIONS:]
    by_answer = (each.reshape(len(asked), n, *each.shape[1:]) for each in (push, root))
    return Moved(probability, answer, *by_answer)


def cross_covariance(posterior: GaussianPosterior, rows: Nodes, columns: Nodes) -> Array:
    """Posterior covariances ``Cov(u_jk, u_cl)``, shape (n_rows, n_classes, n_columns, n_classes)."""
    fit: StarEP = posterior.fit  # type: ignore[assignment]
    at = [posterior.whitening.matrix(each) @ fit.basis for each in (rows, columns)]
    left, right, shared, alone = (each.astype(np.float32) for each in (*at, fit.shared, fit.alone))
    halves = [(each @ shared).swapaxes(0, 1) for each in (left, right)]  # (n, n_classes, any)
    cross = np.tensordot(halves[0], halves[1], (2, 2))
    outside = posterior.prior.covariance(rows, columns) - left @ right.T
    for k in range(len(shared)):
        cross[:, k, :, k] += outside + (left @ alone[k]) @ (right @ alone[k]).T
    return np.asarray(cross)


def _class_draws(posterior: Draws, rows: Nodes, n_draws: int, seed: int) -> Array:
    """Class probabilities given each joint draw of the fields at all rows, shape (n_draws, n_rows, n_classes)."""
    u = _field_draws(posterior, rows, n_draws, seed)
    noise = float(posterior.model.noise)
    if u.shape[2] == 1:
        second = ndtr(u[..., 0] / noise) if noise > 0 else (u[..., 0] >= 0).astype(np.float32)
        return np.stack([1 - second, second], axis=-1)
    flat = u.reshape(-1, u.shape[2]).astype(np.float64)
    return _class_probabilities(flat, np.full(flat.shape, noise**2)).reshape(u.shape).astype(np.float32)


def _field_draws(posterior: Draws, rows: Nodes, n_draws: int, seed: int) -> Array:
    """Joint draws of the fields at rows, shape (n_draws, n_rows, n_fields)."""
    whitening, flat = posterior.whitening, np.concatenate(posterior.z)
    thinned = np.linspace(0, len(flat) - 1, min(n_draws, len(flat))).astype(int)
    z = flat[None, thinned].astype(np.float32)
    u = drawn_fields(whitening, z, rows, posterior.n_fields)[0].astype(np.float32, copy=False)
    return u + left_open(whitening, rows, np.random.default_rng(seed).standard_normal(u.shape, dtype=np.float32))


def _of_draws(draws: Array, n_rows: int) -> Joint:
    """Sample covariances over draws of the class probabilities at the rows and at those asked.

    For `spurious` the draws at the rows asked are shifted by half their number, which makes them independent of
    those at the other rows.
    """
    mean = draws.mean(axis=0)
    draws = draws - mean
    rows = draws[:, :n_rows].reshape(len(draws), -1)
    asked = draws[:, n_rows:].reshape(len(draws), -1)
    shape = (n_rows, mean.shape[1], len(mean) - n_rows, mean.shape[1])
    pairs = (asked, np.roll(asked, len(draws) // 2, axis=0))
    both = ((rows.T @ each / np.float32(len(draws))).reshape(shape) for each in pairs)
    return Joint(mean[:n_rows], mean[n_rows:], *both)


def _adjusted(bare: Joint, posterior: Mixture) -> Joint:
    """Apply temperature and class weights to the average over components or draws, given each answer.

    A row that they make certain is not worth a query.
    """
    probability, answer = posterior.adjusted(bare.probability), posterior.adjusted(bare.answer)
    log_weights = 0.0 if posterior.class_weights is None else np.log(posterior.class_weights)

    def moved(covariance: Array) -> Array:
        dtype = covariance.dtype
        p, q = probability.astype(dtype)[:, None, None], answer.astype(dtype)[:, :, None]
        together = covariance + np.multiply.outer(bare.probability, bare.answer).astype(dtype)
        # Shape (n_rows, n_asked, answers, classes).
        log_together = np.log(np.maximum(np.moveaxis(together, 1, 3), LEAST_PROBABILITY))
        change = q * (softmax(log_together / posterior.temperature + log_weights, axis=3).astype(dtype) - p)
        # The mean over answers is not exactly preserved: the answers share the discrepancy.
        change -= change.sum(axis=2, keepdims=True) * q
        return np.moveaxis(change, 3, 1)

    spurious = None if bare.spurious is None else moved(bare.spurious)
    return Joint(probability, answer, moved(bare.covariance), spurious)
