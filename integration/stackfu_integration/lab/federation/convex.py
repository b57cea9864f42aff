"""Train an l2-regularised softmax head to its optimum in rounds of summed gradients.

Over the samples ``(z_j, y_j)`` of a cohort, with ``z`` the features and a constant 1, and ``W`` the head with its
biases, the clients minimise together

    F(W) = 1/n sum_j [ log sum_k exp(W_k z_j) - W_{y_j} z_j ] + l2/2 ||W||^2 + <B, W>

(``B`` is zero unless noise is asked for). A round is one pass: every client sends the sums of its losses, its
gradients and its class covariances ``diag(p) - p p'`` at the current head, and the server sums them. Sums do not care
who holds a sample, so the result is that of training on the pooled data, whatever the heterogeneity.

Where the head is small the clients send the sum of their Hessians too, and the server takes Newton's step. Elsewhere
its step is limited-memory BFGS around the Kronecker model of the Hessian

    H ~ S x A + l2 I,    S = 1/n sum_j (diag(p_j) - p_j p_j'),    A = 1/n sum_j z_j z_j',

which is inverted in the eigenbases of ``S`` and ``A``; ``A`` is sent once. The model leaves out that classes and features go
together, and from zero its steps are far too long where classes are rare. So the first steps are taken around
``1/2 (I - 1 1'/K) x A + l2 I``, which lies above every Hessian (Böhning 1992): such a step cannot fail. A mixture of the two
then moves towards ``S`` while full steps succeed, and back when one has to be shortened. ``F`` is ``l2``-strongly convex, so

    ||W - W*|| <= ||grad F(W)|| / l2

holds at every ``W``, however it was reached (:class:`Certificate`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Literal

import torch
from torch import Tensor

from stackfu.errors import ConvergenceError, InputError
from stackfu_integration.lab.federation.clients import LabelledTensors
from stackfu_integration.lab.federation.effort import Effort

__all__ = [
    "Certificate",
    "Curvature",
    "Optimum",
    "SoftmaxSums",
    "certify",
    "largest_norm",
    "minimise_softmax",
    "second_moment",
    "softmax_sums",
]

Curvature = Literal["hessian", "kronecker"]

_CHUNK = 4096  # samples at a time: the class scores of a large client need not fit into memory at once
_UNIT = 2.0**-53  # of rounding in double precision
_SINGLE = 2.0**-24  # and in single
# Passes are made in single precision, at half the price, while the gradient is so many times what that may hide of it
_VISIBLE = 1e4


@dataclass(frozen=True)
class SoftmaxSums:
    """Message of one client in a round: sums over its samples at the current head."""

    count: int
    loss: float
    gradient: Tensor  # (classes, features + 1)
    covariance: Tensor  # (classes, classes)


def softmax_sums(data: LabelledTensors, head: Tensor) -> SoftmaxSums:
    """Sum losses, gradients and class covariances of a client's samples, in the precision of ``head``.

    >>> sums = softmax_sums(LabelledTensors(torch.zeros(3, 2), torch.tensor([0, 1, 1])), torch.zeros(2, 3))
    >>> sums.count, round(sums.loss, 4), sums.gradient[:, -1].tolist()
    (3, 2.0794, [0.5, -0.5])
    """
    loss = 0.0
    gradient, covariance = torch.zeros_like(head), torch.zeros(len(head), len(head), dtype=head.dtype)
    for x, y in zip(data.x.split(_CHUNK), data.y.split(_CHUNK), strict=True):
        features = x.to(head.dtype)
        scores = torch.addmm(head[:, -1], features, head[:, :-1].t()).log_softmax(1)
        rows = torch.arange(len(y))
        loss -= float(scores[rows, y].double().sum())
        chances = scores.exp_()
        covariance -= chances.t() @ chances
        covariance.diagonal().add_(chances.sum(0))
        chances[rows, y] -= 1.0
        gradient[:, :-1] += chances.t() @ features
        gradient[:, -1] += chances.sum(0)
    return SoftmaxSums(len(data), loss, gradient, covariance)


def softmax_hessian(data: LabelledTensors, head: Tensor) -> Tensor:
    """Sum the Hessians of a client's samples, ``(diag(p) - p p') x z z'``, as one square matrix."""
    classes, width = head.shape
    hessian = torch.zeros(classes, width, classes, width, dtype=head.dtype)
    for x in data.x.split(_CHUNK):
        features = torch.cat([x.to(head.dtype), torch.ones(len(x), 1, dtype=head.dtype)], 1)
        chances = (features @ head.t()).softmax(1)
        spread = (chances[:, :, None] * features[:, None, :]).reshape(len(x), -1)  # p_k z, class by class
        hessian -= (spread.t() @ spread).view_as(hessian)
        for k in range(classes):
            hessian[k, :, k] += features.t() @ (features * chances[:, k, None])
    return hessian.view(classes * width, classes * width)


def largest_norm(cohort: Mapping[int, LabelledTensors]) -> float:
    """Largest norm of a sample's features, the constant counted: each client sends one number."""
    return max(math.sqrt(float((1.0 + data.x.double().square().sum(1)).max())) for data in cohort.values())


def second_moment(data: LabelledTensors, dtype: torch.dtype) -> Tensor:
    """``sum_j z_j z_j'`` of a client, the constant included."""
    size = data.x.shape[1] + 1
    moment = torch.zeros(size, size, dtype=dtype)
    for x in data.x.split(_CHUNK):
        features = torch.cat([x.to(dtype), torch.ones(len(x), 1, dtype=dtype)], 1)
        moment += features.t() @ features
    return moment


@dataclass(frozen=True)
class Certificate:
    """Bound on the distance of a head from one without the removed data: the optimum on the cohort's data alone.

    ``distance`` bounds ``||W - W*||``. For an input whose features have norm ``||z||`` (the constant counted) every
    class score differs by at most ``distance ||z||``, the difference of two scores by ``sqrt(2)`` times that, and
    the class probabilities (as a vector) by half of it. ``rounding`` is what double precision may hide of the
    gradient; it is part of ``distance``.
    """

    l2: float
    gradient_norm: float
    rounding: float
    largest_feature: float  # the largest ||z|| among the cohort's samples

    @property
    def distance(self) -> float:
        """``(||grad|| + rounding) / l2``."""
        return (self.gradient_norm + self.rounding) / self.l2

    @property
    def score_gap(self) -> float:
        """Bound on the change of any class score on the cohort's own samples."""
        return self.distance * self.largest_feature

    def sure(self, scores: Tensor, features: Tensor) -> Tensor:
        """Return for which inputs the predicted class is provably that of ``W*``: the margin exceeds the bound."""
        top = scores.double().topk(2, 1).values
        reach = (1.0 + features.double().square().sum(1)).sqrt()
        return (top[:, 0] - top[:, 1]) > math.sqrt(2.0) * self.distance * reach

    def as_dict(self) -> dict[str, float]:
        """Plain numbers for a report."""
        return {**asdict(self), "distance": self.distance, "score_gap": self.score_gap}


@dataclass(frozen=True)
class Optimum:
    """A head near the optimum, its objective, its certificate, and the passes over the data that it took."""

    head: Tensor  # (classes, features + 1), single precision, as models store it
    objective: float
    certificate: Certificate
    passes: int


def _checked(cohort: Mapping[int, LabelledTensors], classes: int, l2: float, tolerance: float) -> int:
    """Refuse what cannot be optimised; return the number of samples."""
    if not cohort or any(len(data) == 0 for data in cohort.values()):
        raise InputError("cohort", "needs clients, and every client needs data", value=sorted(cohort))
    for client, data in cohort.items():
        if data.x.dim() != 2 or not bool(torch.isfinite(data.x).all()):
            raise InputError("cohort", "needs one vector of finite features per sample", client=client)
        if int(data.y.min()) < 0 or int(data.y.max()) >= classes:
            raise InputError("cohort", f"labels must be in 0..{classes - 1}", client=client)
    if not (math.isfinite(l2) and l2 > 0):
        raise InputError("l2", "must be positive: without it there is no certificate", value=l2)
    if not (math.isfinite(tolerance) and tolerance > 0):
        raise InputError("tolerance", "must be positive", value=tolerance)
    return sum(len(data) for data in cohort.values())


class _Rounds:
    """The federation as the server sees it: one call is one round, with its work and traffic counted."""

    def __init__(
        self, cohort: Mapping[int, LabelledTensors], l2: float, linear: Tensor | None, effort: Effort
    ) -> None:
        self.cohort, self.l2, self.linear, self.effort = cohort, l2, linear, effort
        self.count = sum(len(data) for data in cohort.values())
        self.passes = 0
        self.coarse = False  # whether the clients may compute in single precision

    def __call__(self, head: Tensor) -> tuple[float, Tensor, Tensor]:
        """Objective, gradient and mean class covariance at ``head``."""
        loss, gradient = 0.0, torch.zeros_like(head)
        covariance = torch.zeros(len(head), len(head), dtype=head.dtype)
        for client in sorted(self.cohort):  # in one order, so that one seed gives one result
            with self.effort.client_work():
                sums = softmax_sums(self.cohort[client], head.float() if self.coarse else head)
            self.effort.samples += sums.count
            self.effort.exchange(head.numel(), gradient.numel() + covariance.numel() + 1)
            loss, gradient, covariance = (
                loss + sums.loss,
                gradient + sums.gradient,
                covariance + sums.covariance,
            )
        self.passes += 1
        self.effort.rounds += 1
        objective = loss / self.count + 0.5 * self.l2 * float(head.square().sum())
        slope = gradient / self.count + self.l2 * head
        if self.linear is not None:
            objective, slope = objective + float((self.linear * head).sum()), slope + self.linear
        return objective, slope, covariance / self.count

    def mean_of(self, matrix: Callable[[LabelledTensors], Tensor]) -> Tensor:
        """Sum a matrix of second order over the clients and divide by the samples: more to send, no round more."""
        total: Tensor | None = None
        for client in sorted(self.cohort):
            with self.effort.client_work():
                part = matrix(self.cohort[client])
            self.effort.exchange(0, part.numel())
            total = part if total is None else total + part
        assert total is not None  # a cohort has clients
        return total / self.count


_Inverse = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class _Step:
    """Result of the last step: its share of the full step, the gradient's change along it, and the remaining gradient."""

    length: float
    moved: Tensor
    change: Tensor
    shrunk: float

    @property
    def bends(self) -> float:
        """``<moved, change>``, positive for a convex objective unless rounding drowns it."""
        return max(0.0, float((self.moved * self.change).sum()))


class _KroneckerModel:
    """``(S x A + l2 I)^-1`` on matrices, by the eigenvectors of ``S`` and ``A``; ``S`` mixed with its upper bound."""

    def __init__(self, rounds: _Rounds, classes: int, dtype: torch.dtype) -> None:
        values, self._right = torch.linalg.eigh(rounds.mean_of(lambda data: second_moment(data, dtype)))
        self._moment, self._l2 = values.clamp_min(0.0), rounds.l2
        self._bound = 0.5 * (torch.eye(classes, dtype=dtype) - 1.0 / classes)
        self._caution = 1.0  # the share of the bound

    def at(self, head: Tensor, covariance: Tensor, last: _Step | None) -> tuple[_Inverse, bool]:
        """Return the inverse at the current class covariance; steps made under an earlier one stay useful."""
        if last is not None:
            self._caution = 0.5 * self._caution if last.length == 1.0 else min(1.0, 2.0 * self._caution)
        values, left = torch.linalg.eigh(torch.lerp(covariance, self._bound, self._caution))
        scale = values.clamp_min(0.0)[:, None] * self._moment[None, :] + self._l2

        def inverse(matrix: Tensor) -> Tensor:
            solved: Tensor = left @ ((left.t() @ matrix @ self._right) / scale) @ self._right.t()
            return solved

        if last is None or not last.bends:
            return inverse, False
        # the length that the last step's change of the gradient asks for, as in every limited-memory BFGS
        size = last.bends / float((last.change * inverse(last.change)).sum())
        return lambda matrix: size * inverse(matrix), False


class _HessianModel:
    """The exact inverse Hessian at a head, computed anew when the last step did not shrink the gradient tenfold."""

    def __init__(self, rounds: _Rounds) -> None:
        self._rounds = rounds
        self._inverse: _Inverse | None = None

    def at(self, head: Tensor, covariance: Tensor, last: _Step | None) -> tuple[_Inverse, bool]:
        """Return the inverse, and whether it is new (then earlier steps have nothing to add to it)."""
        if self._inverse is not None and last is not None and last.shrunk < 0.1:
            return self._inverse, False
        hessian = self._rounds.mean_of(lambda data: softmax_hessian(data, head))
        hessian.diagonal().add_(self._rounds.l2)
        factor = torch.linalg.cholesky(hessian)
        self._inverse = lambda matrix: torch.cholesky_solve(matrix.reshape(-1, 1), factor).view_as(matrix)
        return self._inverse, True


def _direction(gradient: Tensor, steps: deque[_Step], inverse: _Inverse) -> Tensor:
    """Return two-loop recursion of limited-memory BFGS with ``inverse`` as the first guess of the inverse Hessian."""
    wanted, kept = gradient.clone(), []
    for step in reversed(steps):
        weight = float((step.moved * wanted).sum()) / step.bends
        wanted -= weight * step.change
        kept.append(weight)
    wanted = inverse(wanted)
    for step, weight in zip(steps, reversed(kept), strict=True):
        wanted += step.moved * (weight - float((step.change * wanted).sum()) / step.bends)
    return -wanted


def minimise_softmax(
    cohort: Mapping[int, LabelledTensors],
    classes: int,
    *,
    l2: float,
    tolerance: float = 1e-5,
    start: Tensor | None = None,
    linear: Tensor | None = None,
    curvature: Curvature = "kronecker",
    memory: int = 12,
    passes: int | None = None,
    max_passes: int = 500,
    effort: Effort | None = None,
) -> Optimum:
    """Minimise ``F`` over the cohort's features until ``||grad F|| <= tolerance``.

    ``start`` of ``None`` is the zero head, which has seen no data; any other start gives the same optimum and may
    save passes. ``curvature`` is what the server knows of the second derivative: the Kronecker model, or the clients'
    summed Hessians, which take fewer passes and suit small heads only. The certificate is evaluated at the
    single-precision head that is returned, by a pass of its own. ``passes``, that one included, stop earlier, wherever the
    head is then; its certificate says how far that is from the optimum.

    >>> x, y = torch.tensor([[0.0], [1.0], [2.0], [3.0]]), torch.tensor([0, 0, 1, 1])
    >>> found = minimise_softmax({0: LabelledTensors(x, y)}, 2, l2=0.1)
    >>> found.certificate.distance < 1e-4, bool(found.head[1, 0] > 0)
    (True, True)
    """
    _checked(cohort, classes, l2, tolerance)
    features = next(iter(cohort.values())).x.shape[1]
    effort = Effort() if effort is None else effort
    rounds = _Rounds(cohort, l2, linear, effort)
    head = torch.zeros(classes, features + 1, dtype=torch.float64) if start is None else start.double()
    if head.shape != (classes, features + 1) or not bool(torch.isfinite(head).all()):
        raise InputError(
            "start", f"must be a finite {classes} x {features + 1} matrix", value=tuple(head.shape)
        )
    model = _HessianModel(rounds) if curvature == "hessian" else _KroneckerModel(rounds, classes, head.dtype)
    visible = _VISIBLE * _SINGLE * largest_norm(cohort)
    steps: deque[_Step] = deque(maxlen=memory)
    last: _Step | None = None
    objective, gradient, covariance = rounds(head)
    # the head is returned in single precision, which moves it by up to 2^-24 of every weight: leave room for that
    while float(gradient.norm()) > 0.9 * tolerance and (passes is None or rounds.passes < passes - 1):
        if rounds.passes >= max_passes:
            raise ConvergenceError(
                f"the gradient's norm is {float(gradient.norm()):.1e} after {rounds.passes} passes, "
                f"above the tolerance {tolerance:.1e}"
            )
        # what single precision, of this round or of the one before, may add to a difference of two objectives
        before, rounds.coarse = rounds.coarse, float(gradient.norm()) > visible
        blur = 4.0 * _SINGLE * abs(objective) if before or rounds.coarse else 0.0
        inverse, fresh = model.at(head, covariance, last)
        if fresh:
            steps.clear()
        direction = _direction(gradient, steps, inverse)
        slope = float((direction * gradient).sum())
        length = 1.0
        while True:
            moved = head + length * direction
            value, new_gradient, covariance = rounds(moved)
            # near the optimum a decrease drowns in rounding; there a smaller gradient shows progress
            enough = value <= objective + 1e-4 * length * slope + blur
            if enough or float(new_gradient.norm()) < float(gradient.norm()) <= 1e3 * tolerance:
                break
            if passes is not None and rounds.passes >= passes - 1:
                moved, value, new_gradient = (
                    head,
                    objective,
                    gradient,
                )  # no pass is left to look for a shorter step
                break
            length *= max(
                0.1, min(0.5, -0.5 * length * slope / max(value - objective - length * slope, _UNIT))
            )
            if length < 1e-10 or rounds.passes >= max_passes:
                raise ConvergenceError(
                    f"no step lowers the objective; the gradient's norm is {float(gradient.norm()):.1e}, "
                    f"the tolerance {tolerance:.1e} is below what double precision resolves"
                )
        last = _Step(
            length, moved - head, new_gradient - gradient, float(new_gradient.norm() / gradient.norm())
        )
        if last.bends:
            steps.append(last)
        head, objective, gradient = moved, value, new_gradient
    stored = head.float()
    certificate = certify(cohort, stored, l2=l2, linear=linear, effort=effort)
    if passes is None and certificate.gradient_norm > tolerance:
        raise ConvergenceError(
            f"single precision moves the gradient's norm to {certificate.gradient_norm:.1e}, "
            f"above the tolerance {tolerance:.1e}"
        )
    return Optimum(stored, objective, certificate, rounds.passes + 1)


def certify(
    cohort: Mapping[int, LabelledTensors],
    head: Tensor,
    *,
    l2: float,
    linear: Tensor | None = None,
    effort: Effort | None = None,
) -> Certificate:
    """Evaluate the gradient at a stored head, by one pass that needs no trust in how the head was found.

    Rounding: with unit roundoff ``u``, ``n`` samples, ``d`` features and ``K`` classes, a score is off by at most
    ``(d + 2) u ||W|| ||z||``, the probabilities by as much again (the softmax contracts by 1/2, over ``K`` classes)
    and their sum over samples by ``(n + 4) u`` of its terms, whose norm is at most ``sqrt(2) ||z||``.
    """
    _checked(cohort, len(head), l2, 1.0)
    exact = head.double()
    _, gradient, _ = _Rounds(cohort, l2, linear, Effort() if effort is None else effort)(exact)
    count = sum(len(data) for data in cohort.values())
    largest, size = largest_norm(cohort), float(exact.norm())
    classes, width = exact.shape
    scores = math.sqrt(classes) * (width + 2) * size * largest
    rounding = _UNIT * (largest * (scores + math.sqrt(2.0) * (count + classes + 8)) + 4 * l2 * size)
    return Certificate(l2, float(gradient.norm()), rounding, largest)
