"""Equilibria as a differentiable function of torch tensors, in batches.

:func:`equilibrium_of` computes an equilibrium of every game of a batch and an output of it; its gradients are those of
:mod:`stackfu.sensitivity.equilibrium_derivatives`, one transposed system per game. torch is imported when a function of this
module is first called (``pip install 'stackfu[torch]'``).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..embedding import MeanEmbeddings
from ..errors import InputError
from ..followers import find_equilibrium
from ..followers.path import follow_path
from ..followers.solve import LARGEST_PATH
from ..model import Array, GameModel, frozen
from .equilibrium_derivatives import EquilibriumDerivatives, Side, require_known
from .outputs import OUTPUTS, partials_of

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["DIFFERENTIABLE", "equilibrium_of"]

#: Parameters that may be tensors, with the number of their axes in one game.
DIFFERENTIABLE: dict[str, int] = {
    "payments": 1,
    "costs": 1,
    "caps": 1,
    "sizes": 1,
    "embeddings": 2,
    "lambda_q": 0,
    "lambda_v": 0,
    "lambda_s": 0,
    "loss_constant": 0,
    "sampling_constant": 0,
}
#: Profiles with a larger residual are recomputed by the solver with proofs.
ROUGH = 1e-9


def equilibrium_of(
    game: GameModel, *, of: str = "participation", side: Side | None = None, **parameters: Tensor
) -> Tensor:
    """Return an output of the clients' equilibrium as a differentiable tensor.

    Parameters
    ----------
    game
        The game that says everything that is not given as a tensor.
    of
        "participation", "samples", "utilities", "total", "server_loss" or "spend".
    side
        The side of one-sided derivatives where clients are at a threshold ("up" or "down"); by default the backward pass raises an
        error there.
    parameters
        Tensors by name: payments, costs, caps, sizes, embeddings (feature rows or inner products, as the game has them), lambda_q,
        lambda_v, lambda_s, loss_constant, sampling_constant. Any of them may have one axis more than in a single game: the batch.

    Returns
    -------
    A tensor with one entry per client (or a single number), after an axis for the batch if there is one; float64 on the CPU.

    Notes
    -----
    Where a game has several equilibria, the one with the largest total is returned, as by
    :meth:`stackfu.StackelbergGame.equilibrium`, without the proofs that a result carries.

    Examples
    --------
    A gradient step on payments of a batch of games::

        payments = torch.tensor([[0.1, 0.1], [0.2, 0.0]], dtype=torch.float64, requires_grad=True)
        samples = equilibrium_of(game, of="samples", payments=payments)
        samples.sum().backward()
        payments.grad  # how many more samples one more unit of each payment brings
    """
    require_known("of", of, OUTPUTS)
    for name in parameters:
        require_known("parameters", name, DIFFERENTIABLE)
    tensors = []
    batch = 0
    for name, value in parameters.items():
        axes = value.dim() - DIFFERENTIABLE[name]
        if axes not in (0, 1):
            raise InputError(
                name, f"needs {DIFFERENTIABLE[name]} axes, or one more for a batch", value=tuple(value.shape)
            )
        if axes == 1:
            if batch and value.shape[0] != batch:
                raise InputError(
                    name, f"needs a batch of {batch}, as the other tensors", value=value.shape[0]
                )
            batch = int(value.shape[0])
            if batch == 0:
                raise InputError(name, "is an empty batch", value=tuple(value.shape))
        tensors.append(value)
    found: Tensor = _function().apply(game, of, side, batch, tuple(parameters), *tensors)
    return found


def _entry(value: Array, name: str, i: int) -> Array:
    """Return one game's values of a parameter."""
    return np.asarray(value[i] if value.ndim > DIFFERENTIABLE[name] else value)


def _solved(game: GameModel, given: dict[str, Array]) -> EquilibriumDerivatives:
    """Return the derivatives at the equilibrium of one game of a batch."""
    changes: dict[str, Any] = {}
    for name, value in given.items():
        if name in ("payments", "caps"):
            continue
        if name == "embeddings":
            make = (
                MeanEmbeddings.from_gram if game.embeddings.features is None else MeanEmbeddings.from_features
            )
            changes[name] = make(value)
        else:
            changes[name] = float(value) if value.ndim == 0 else value
    if changes:
        game = game.replace(**{"costs": game.costs, **changes})
    payments = game.check_payments(given.get("payments"))
    caps = game.check_caps(given["caps"]) if "caps" in given else None
    if caps is None and not game.is_homogeneous and game.count <= LARGEST_PATH:
        path = follow_path(game, payments)
        if path.complete and path.roots:
            x = path.roots[-1].participation
            if game.judge(payments, x)[0] <= ROUGH:
                return EquilibriumDerivatives(game, payments, frozen(x))
    found = find_equilibrium(game, payments, caps=caps)
    return EquilibriumDerivatives(game, payments, found.participation, caps)


def _value(derivatives: EquilibriumDerivatives, of: str) -> Array:
    """Return an output at an equilibrium."""
    at, game = derivatives.at, derivatives.game
    x = np.clip(at.x, 0.0, 1.0)
    if of == "participation":
        return x
    if of == "samples":
        return np.asarray(game.sizes * x)
    if of == "utilities":
        return game.client_utilities(at.payments, x)
    values = {
        "total": lambda: at.total,
        "spend": lambda: float(at.payments @ x),
        "server_loss": lambda: game.server_loss(x),
    }
    return np.asarray(values[of]())


@cache
def _function() -> Any:
    """Return the autograd function, made when torch is first needed."""
    import torch

    class EquilibriumFunction(torch.autograd.Function):  # type: ignore[misc]
        """Equilibria forward, transposed systems backward."""

        @staticmethod
        def forward(
            ctx: Any,
            game: GameModel,
            of: str,
            side: Side | None,
            batch: int,
            names: tuple[str, ...],
            *tensors: Any,
        ) -> Any:
            arrays = {
                name: t.detach().to("cpu", torch.float64).numpy()
                for name, t in zip(names, tensors, strict=True)
            }
            ctx.solved = [
                _solved(game, {name: _entry(value, name, i) for name, value in arrays.items()})
                for i in range(max(batch, 1))
            ]
            ctx.asked = (of, side, names)
            ctx.kinds = [(t.dtype, t.device, tuple(t.shape)) for t in tensors]
            values = np.stack([_value(each, of) for each in ctx.solved])
            return torch.from_numpy(np.array(values if batch else values[0]))

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            of, side, names = ctx.asked
            incoming = gradients[0].detach().to("cpu", torch.float64).numpy()
            incoming = incoming.reshape(len(ctx.solved), -1)
            wanted = [name for i, name in enumerate(names) if ctx.needs_input_grad[5 + i]]
            parts = [
                _pulled(each, of, side, rows, wanted) for each, rows in zip(ctx.solved, incoming, strict=True)
            ]
            out: list[Any] = [None] * 5
            for name, (dtype, device, shape) in zip(names, ctx.kinds, strict=True):
                if name not in wanted:
                    out.append(None)
                    continue
                stacked = np.stack([part[name] for part in parts])
                if len(shape) == DIFFERENTIABLE[name]:
                    stacked = stacked.sum(axis=0)
                out.append(torch.from_numpy(np.array(stacked)).to(device, dtype))
            return tuple(out)

    return EquilibriumFunction


def _pulled(
    derivatives: EquilibriumDerivatives, of: str, side: Side | None, weights: Array, wanted: list[str]
) -> dict[str, Array]:
    """Return the gradients of the weighted sum of an output's entries."""
    at = derivatives.at
    if len(at.at_threshold):
        found = {}
        for name in wanted:
            jacobian = derivatives.derivative(name, of, side)
            found[name] = np.tensordot(
                weights, jacobian.reshape(len(weights), *jacobian.shape[OUTPUTS[of] :]), 1
            )
        return found
    at.require_regular(at.inside)
    rows = partials_of(at, of).weighted(weights[None])
    return {name: value[0] for name, value in derivatives.pull(rows, tuple(wanted), at.inside).items()}
