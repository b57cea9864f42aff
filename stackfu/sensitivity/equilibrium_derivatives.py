"""Derivatives of an equilibrium by the implicit function theorem on its active set.

Clients that are out stay out, clients at their caps stay there, and the conditions ``g_k = 0`` of the clients inside determine how
these move. One linear system per output gives its derivatives with respect to every parameter. The proofs, the two causes of a
singular system and the one-sided derivatives at thresholds are in ``docs/theory/sensitivity.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import combinations
from typing import Any, Literal

import numpy as np

from ..errors import InputError, NotDifferentiableError
from ..model import Array, GameModel, frozen
from ..model.losses import Target
from .conditions import Conditions, Places, conditions_at, digits_of
from .outputs import OUTPUTS, Partials, conditions_as_outputs, partials_of

__all__ = ["PARAMETERS", "EquilibriumDerivatives", "Side", "require_known", "sensitivity_of_equilibrium"]

Side = Literal["up", "down"]

#: Parameters of a game and of what is offered in it, with what their derivatives are arranged by.
PARAMETERS: dict[str, str] = {
    "payments": "one per remaining client",
    "costs": "one per remaining client",
    "caps": "one per remaining client",
    "sizes": "one per original client, costs unchanged",
    "embeddings": "one per entry of the feature rows, or of the Gram matrix, of all original clients",
    "lambda_q": "one number",
    "lambda_v": "one number",
    "lambda_s": "one number",
    "loss_constant": "one number",
    "sampling_constant": "one number",
}
#: One-sided derivatives try every subset of the clients at a threshold, so there are at most this many of them.
MOST_AT_THRESHOLDS = 10


def sensitivity_of_equilibrium(
    equilibrium: Any, parameter: str, of: str = "participation", side: Side | None = None
) -> Array:
    """Return the derivative of an output of an equilibrium; see :meth:`stackfu.Equilibrium.sensitivity`."""
    return EquilibriumDerivatives.of(equilibrium).derivative(parameter, of, side)


class EquilibriumDerivatives:
    """Derivatives of one equilibrium; the active set is found once, and serves every parameter and output.

    Parameters
    ----------
    game
        The game.
    payments, participation, caps
        An equilibrium of it.

    Examples
    --------
    >>> import numpy as np, stackfu as sf
    >>> game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(3)), [1, 2, 1], costs=[1.0, 1.0, 1.0])
    >>> derivatives = EquilibriumDerivatives.of(game.equilibrium())
    >>> derivatives.derivative("payments", "total").shape, derivatives.derivative("embeddings").shape
    ((3,), (3, 3, 3))
    """

    def __init__(
        self, game: GameModel, payments: Array, participation: Array, caps: Array | None = None
    ) -> None:
        self.game = game
        self.at: Conditions = conditions_at(game, payments, participation, caps)

    @classmethod
    def of(cls, equilibrium: Any) -> EquilibriumDerivatives:
        """Return the derivatives of an equilibrium that a solver returned."""
        return cls(equilibrium.game, equilibrium.payments, equilibrium.participation, caps=equilibrium.caps)

    # ---------------------------------------------------------------- arrays

    def derivative(self, parameter: str, of: str = "participation", side: Side | None = None) -> Array:
        """Return the derivative of an output with respect to a parameter: axes of the output, then of the parameter.

        Raises
        ------
        InputError
            If there is no parameter or output of that name, or the game's loss does not depend on it in this form.
        NotDifferentiableError
            If clients are at a threshold and no side is given, or if the equilibrium has no (one-sided) derivative.
        """
        require_known("parameter", parameter, PARAMETERS)
        require_known("of", of, OUTPUTS)
        if side not in (None, "up", "down"):
            raise InputError("side", 'must be "up", "down" or None', value=repr(side))
        if parameter in ("lambda_v", "lambda_s") and not self.game.has_paper_loss:
            raise InputError(
                "parameter", "weighs the paper's loss; this game has a loss of its own", value=parameter
            )
        outputs = partials_of(self.at, of)
        if len(self.at.at_threshold):
            if side is None:
                raise self._kink()
            found = self._one_sided(outputs, parameter, 1.0 if side == "up" else -1.0)
        else:
            self.at.require_regular(self.at.inside)
            found = self.pull(outputs, (parameter,), self.at.inside)[parameter]
        return frozen(found if OUTPUTS[of] else found[0])

    def _kink(self) -> NotDifferentiableError:
        at = self.at
        parts = []
        if len(at.at_zero):
            parts.append(f"{at.names_of(at.at_zero)[0]} out, but about to take part")
        if len(at.at_cap):
            parts.append(
                f"{at.names_of(at.at_cap)[0]} taking part as much as possible, but about to hold back"
            )
        return NotDifferentiableError(
            f"participation: at a threshold ({'; '.join(parts)}), so raising and lowering a parameter have different effects; "
            'side="up" or side="down" asks for one of them',
            at.names_of(at.at_threshold)[1],
        )

    # ---------------------------------------------------------------- the adjoint of the linear system

    def pull(self, outputs: Partials, parameters: tuple[str, ...], moving: Places) -> dict[str, Array]:
        """Return the derivatives of outputs with respect to parameters if exactly the clients ``moving`` can move.

        One system with the transposed slopes of their conditions per output; clients at their caps follow the caps.
        """
        at, game = self.at, self.game
        held = np.setdiff1d(np.concatenate([at.full, at.at_cap]), moving)
        multipliers, ends = self._multipliers(outputs, moving, held)
        drift = outputs.of("drift") + multipliers
        reluctance = outputs.of("reluctance") - at.total * multipliers
        sampling = outputs.of("sampling") + multipliers.sum(axis=1) / (2.0 * at.total)
        price = reluctance / game.drift_weight
        alpha = outputs.of("alpha") - reluctance * at.w / game.alpha
        alpha[:, held] += ends * at.caps[held]
        lam = outputs.of("lam") - reluctance @ at.w / game.lam
        found: dict[str, Array] = {}
        for name in parameters:
            if name == "payments":
                found[name] = outputs.of("payments") - price
            elif name == "costs":
                found[name] = outputs.of("costs") + price
            elif name == "caps":
                found[name] = np.zeros((outputs.rows, game.count))
                found[name][:, held] = ends * game.alpha[held]
            elif name == "sizes":
                found[name] = self._sizes(outputs, alpha, sampling)
            elif name == "embeddings":
                found[name] = self._embeddings(outputs, drift)
            elif name == "lambda_q":
                found[name] = lam * game.loss_constant
            elif name == "loss_constant":
                found[name] = lam * game.lambda_q - sampling * game.sampling / game.loss_constant
                if game.has_paper_loss:
                    found[name] = found[name] + outputs.of("weights") @ [game.lambda_v, game.lambda_s]
            elif name == "sampling_constant":
                found[name] = sampling / (game.loss_constant * float(game.sizes.sum()))
            else:  # lambda_v or lambda_s
                place = ("lambda_v", "lambda_s").index(name)
                found[name] = outputs.of("weights")[:, place] * game.loss_constant
        return found

    def _multipliers(self, outputs: Partials, moving: Places, held: Places) -> tuple[Array, Array]:
        """Return the solutions of the transposed systems, and how outputs change with y of clients that are held."""
        at = self.at
        slope = (
            outputs.of("y")
            + outputs.of("drift") @ at.drift_slopes
            + outputs.of("distances") @ self._target_slopes
        )
        multipliers = np.zeros((outputs.rows, self.game.count))
        if len(moving):
            block = at.slopes[np.ix_(moving, moving)]
            multipliers[:, moving] = -np.linalg.solve(block.T, slope[:, moving].T).T
        return multipliers, slope[:, held] + multipliers[:, moving] @ at.slopes[np.ix_(moving, held)]

    def _sizes(self, outputs: Partials, alpha: Array, sampling: Array) -> Array:
        """Derivatives with respect to the sizes of all original clients."""
        game, keep = self.game, self.game.remaining
        count = float(game.sizes.sum())
        found = np.zeros((outputs.rows, len(game.all_sizes)))
        found[:, keep] = (alpha - (alpha @ game.alpha)[:, None]) / count
        found[:, keep] += (outputs.of("samples") - sampling * game.sampling / count)[:, None]
        if game.embeddings.sample_counts is None and "noise" in outputs.given:
            found[:, keep] += outputs.of("noise") * self._noise_slopes[0]
        for j, target in enumerate(game.loss.targets):
            if target.kind not in ("remaining", "original"):
                continue  # the shares of other targets are given, not made from sizes
            group = keep if target.kind == "remaining" else np.arange(len(game.all_sizes))
            shares = self._shares(target)
            pull = self._gaps_to_all[j]
            change = -2.0 * (pull - shares @ pull) / float(game.all_sizes[group].sum())
            found[:, group] += outputs.of("distances")[:, [j]] * change[group]
        return found

    def _embeddings(self, outputs: Partials, drift: Array) -> Array:
        """Derivatives with respect to feature rows (outputs, clients, features), or to inner products (outputs, clients, clients).

        Those with respect to inner products are symmetric: the change of an output is the sum of its entries times those of a
        symmetric change of the Gram matrix.
        """
        game, keep = self.game, self.game.remaining
        everybody = len(game.all_sizes)
        z = np.zeros(everybody)
        z[keep] = self.at.z
        distances, features = outputs.of("distances"), game.embeddings.features
        norms = outputs.of("noise") * self._noise_slopes[1] if "noise" in outputs.given else None
        if features is None:
            own = np.zeros((game.count, everybody))
            own[np.arange(game.count), keep] = 1.0
            apart = z - own
            found = np.einsum("qk,ki,kj->qij", drift, apart, apart, optimize=True)
            for j, target in enumerate(game.loss.targets):
                gap = z - self._shares(target)
                found += distances[:, j, None, None] * np.outer(gap, gap)
            if norms is not None:
                found[:, keep, keep] += norms
            return np.asarray(found)
        rows, mixture = self._rows
        gaps = mixture - rows[keep]
        found = 2.0 * (drift @ gaps)[:, None, :] * z[:, None]
        found[:, keep] -= 2.0 * drift[:, :, None] * gaps
        for j, target in enumerate(game.loss.targets):
            moved = z - self._shares(target)
            found += 2.0 * distances[:, j, None, None] * np.outer(moved, self._target_gaps[j])
        if norms is not None:
            found[:, keep] += 2.0 * norms[:, :, None] * rows[keep]
        return found

    # ---------------------------------------------------------------- targets of the loss

    def _shares(self, target: Target) -> Array:
        """Return the shares of all original clients in a target; a given point holds none of them."""
        game = self.game
        shares = np.zeros(len(game.all_sizes))
        if target.kind == "remaining":
            shares[game.remaining] = game.alpha
        elif target.kind == "original":
            shares = game.all_sizes / game.all_sizes.sum()
        elif target.kind == "mixture":
            shares = np.array(target.values)
        return shares

    @cached_property
    def _target_slopes(self) -> Array:
        """``d ||m - t||^2 / d y_j = (2 / S) <mu_j - m, m - t>``, one row per target."""
        game, z = self.game, self.at.z
        inner = game.geometry.inner(z)
        along = np.array([inner - game.geometry.target(t)[0] for t in game.loss.targets])
        return 2.0 / self.at.total * (along - (along @ z)[:, None])

    @cached_property
    def _rows(self) -> tuple[Array, Array]:
        """Feature rows of all original clients, and of the mixture."""
        rows = np.asarray(self.game.embeddings.features, dtype=np.float64)
        return rows, self.at.z @ rows[self.game.remaining]

    @cached_property
    def _target_gaps(self) -> Array:
        """Feature rows of ``m - t``, one per target."""
        rows, mixture = self._rows
        points = [
            np.array(t.values) if t.kind == "point" else self._shares(t) @ rows
            for t in self.game.loss.targets
        ]
        return np.array([mixture - point for point in points])

    @cached_property
    def _gaps_to_all(self) -> Array:
        """``<m - t, mu_i>`` of every original client i up to a number per target, which cancels."""
        game = self.game
        if game.embeddings.features is not None:
            rows, mixture = self._rows
            return np.asarray(self._target_gaps @ (rows - mixture).T)
        z = np.zeros(len(game.all_sizes))
        z[game.remaining] = self.at.z
        gaps = np.array([z - self._shares(t) for t in game.loss.targets])
        return np.asarray(gaps @ game.embeddings._inner_products)

    @cached_property
    def _noise_slopes(self) -> tuple[Array, Array]:
        """Derivatives of a sample's variance with respect to its client's size, and to its squared norm."""
        game = self.game
        if game.is_homogeneous:
            raise InputError(
                "parameter", "the noise of clients with equal data is shared; it has no such derivative"
            )
        counts, norms = game.noise_counts, game.embeddings.squared_norms[game.remaining]
        loose = (counts > 1.0) & (game.sampling_noise < 1.0) & (norms < 1.0)
        less = np.where(counts > 1.0, counts - 1.0, 1.0)
        by_size = np.where(loose, -(1.0 - norms) / less**2, 0.0)
        return by_size, np.where(loose, -counts / less, 0.0)

    # ---------------------------------------------------------------- one-sided derivatives

    def _one_sided(self, outputs: Partials, parameter: str, sign: float) -> Array:
        """Derivatives from one side, where clients are at a threshold.

        How far these clients move inwards, s, solves a linear complementarity problem: each of them either stays, and its condition
        changes to the side that keeps it there, or moves, and its condition stays zero. Every subset of moving clients is tried.
        """
        at, doubtful = self.at, self.at.at_threshold
        self._require_one_sided(doubtful)
        inward = np.where(np.isin(doubtful, at.at_cap), -1.0, 1.0)
        conditions = conditions_as_outputs(at).weighted(np.eye(self.game.count)[doubtful])
        slopes = self._multipliers(conditions, at.inside, doubtful)[1]
        matrix = -inward[:, None] * slopes * inward
        own = np.abs(at.slopes[doubtful]).max(axis=1)
        if not _determines_one_side(matrix / own[:, None], digits_of(self.game)):
            named, numbers = at.names_of(doubtful)
            raise NotDifferentiableError(
                f"participation: {named} at a threshold, and the equilibrium may jump or split there: it has no one-sided "
                "derivative",
                numbers,
            )
        changes = self.pull(conditions, (parameter,), at.inside)[parameter].reshape(len(doubtful), -1)
        moved = _complementary(matrix / own[:, None], -sign * inward[:, None] * changes / own[:, None])
        found = self.pull(outputs, (parameter,), at.inside)[parameter]
        ends = self._multipliers(outputs, at.inside, doubtful)[1]
        return np.asarray(found + sign * (ends @ (inward[:, None] * moved)).reshape(found.shape))

    def _require_one_sided(self, doubtful: Places) -> None:
        """Raise an error where one-sided derivatives are not computed."""
        at = self.at
        named, numbers = at.names_of(doubtful)
        if len(doubtful) > MOST_AT_THRESHOLDS:
            raise NotDifferentiableError(
                f"participation: {len(doubtful)} clients are at a threshold ({named}); one-sided derivatives are computed for "
                f"at most {MOST_AT_THRESHOLDS}",
                numbers,
            )
        if len(shut := doubtful[at.caps[doubtful] == 0.0]):
            named, numbers = at.names_of(shut)
            raise NotDifferentiableError(
                f"participation: {named} about to take part with a cap of 0, which are two thresholds at once: there are no "
                "one-sided derivatives",
                numbers,
            )
        at.require_regular(at.inside)


def _subsets(count: int) -> Iterator[list[int]]:
    """Return all subsets of the first numbers, as lists."""
    return (list(chosen) for size in range(count + 1) for chosen in combinations(range(count), size))


def _determines_one_side(matrix: Array, digits: float) -> bool:
    """Return True if all principal minors are positive, far enough from zero for rounding."""
    for chosen in _subsets(len(matrix)):
        block = matrix[np.ix_(chosen, chosen)]
        if len(block) and not (
            np.linalg.slogdet(block)[0] > 0 and np.linalg.svd(block, compute_uv=False)[-1] > np.sqrt(digits)
        ):
            return False
    return True


def _complementary(matrix: Array, start: Array) -> Array:
    """Return s >= 0 with ``start + matrix s >= 0``, one of the two zero in each place, for every column of ``start``."""
    best, least = np.zeros_like(start), np.full(start.shape[1], np.inf)
    for chosen in _subsets(len(matrix)):
        found = np.zeros_like(start)
        if chosen:
            found[chosen] = -np.linalg.solve(matrix[np.ix_(chosen, chosen)], start[chosen])
        broken = np.where(np.isin(np.arange(len(matrix)), chosen)[:, None], -found, -(start + matrix @ found))
        worst = broken.max(axis=0)
        better = worst < least
        best[:, better], least[better] = found[:, better], worst[better]
    return np.maximum(best, 0.0)


def require_known(argument: str, name: object, known: dict[str, Any]) -> None:
    """Raise an error that lists the names there are, unless this is one of them."""
    if not isinstance(name, str) or name not in known:
        raise InputError(argument, f"must be one of {', '.join(known)}", value=repr(name))
