"""The game as users meet it: the model, with every solver, judge and file format behind one-line methods.

This is the only module of the library that faces upward: the model below knows no solver, and the solvers know the model only.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from .embedding import MeanEmbeddings
from .embedding.names import PerClient, rows_by_name
from .errors import InputError, warn
from .model import Array, GameModel, ServerLoss
from .model.arguments import number, numbers
from .model.impacts import guessed
from .progress import Callback
from .results.facade import faces_upward

if TYPE_CHECKING:
    from .calibration import Calibration
    from .judging.diagnostics import Diagnostics
    from .judging.proof import Certificate
    from .model.offers import Offers
    from .model.revealed import CostIntervals
    from .results import Equilibria, Equilibrium, Frontier, Solution, Verification, WholePlan
    from .results.departures import Cascade
    from .results.manipulation import Manipulation, Manipulations
    from .sensitivity.marginal import MarginalEffects
    from .values import ClientValues

__all__ = ["StackelbergGame"]


@faces_upward
class StackelbergGame(GameModel):
    """Federated unlearning as a Stackelberg game. Immutable.

    Parameters
    ----------
    embeddings
        Mean embeddings of all original clients, removed ones included.
    sizes
        Amount of data of every original client: positive numbers, usually counts. Like all that is one number per client: in
        their order, or by name (a dictionary, a pandas series). By default the number of samples that were embedded.
    removed
        The clients to be forgotten: one or several names. A number means the client of that name;
        without names it is a position, from 0.
    names
        Names of the clients; by default those of the embeddings, or the clients' numbers.
    costs
        What taking part with all of its data costs each client: money, in any unit, which is that of all payments and budgets
        then. One number per remaining client (by name also for all original clients, of which the removed are ignored with a
        :class:`~stackfu.StackfuWarning`); by default ``cost_scale * n_k / n_O``.
    cost_scale
        What all data of all original clients together would cost, where no costs are given.
    lambda_v, lambda_s
        Weights of unlearning effectiveness and global stability in the server's loss.
    lambda_q
        Price that clients put on a unit of their own loss: money per unit of loss. ``lambda_q * loss_constant`` is what one unit
        of squared embedding distance costs a client, in the unit of the costs.
    loss_constant
        C, loss per squared embedding distance.
    sampling_constant
        A, loss per ``1 / n_used``: what using fewer samples costs clients and server alike; 0 is the paper.
    calibrated
        Whether C and A were fitted to observed trainings (:meth:`calibrate`); otherwise predictions are said to be guesses.
    server_loss
        An objective of your own instead of the paper's: any weighted sum of squared distances to given embeddings
        (:class:`~stackfu.ServerLoss`; its weights are in units of loss, C does not multiply them).
    currency
        The unit of costs, payments and budgets as tables, pages and files name it, "EUR" for instance. Nothing is converted.

    Examples
    --------
    >>> import numpy as np, stackfu as sf
    >>> emb = sf.MeanEmbeddings.from_features(np.array([[0.0, 0.6], [0.0, 0.0], [0.8, 0.0], [0.1, 0.9]]))
    >>> game = sf.StackelbergGame(emb, sizes=[100, 100, 200, 100], removed=[0], cost_scale=0.1)
    >>> game
    StackelbergGame(4 clients, removed (0,), 3 remaining, largest share 50%, diameter 1.14)
    >>> game.alpha
    array([0.25, 0.5 , 0.25])
    """

    __slots__ = ()

    def __init__(
        self,
        embeddings: MeanEmbeddings,
        sizes: PerClient | None = None,
        removed: Iterable[int | str] | int | str = (),
        *,
        names: Sequence[str] | None = None,
        costs: PerClient | None = None,
        cost_scale: float = 10.0,
        lambda_v: float = 1.0,
        lambda_s: float = 1.0,
        lambda_q: float = 1.0,
        loss_constant: float = 1.0,
        sampling_constant: float = 0.0,
        calibrated: bool = False,
        server_loss: ServerLoss | None = None,
        currency: str | None = None,
    ) -> None:
        super().__init__(
            embeddings,
            sizes,
            removed,
            names=names,
            costs=costs,
            cost_scale=cost_scale,
            lambda_v=lambda_v,
            lambda_s=lambda_s,
            lambda_q=lambda_q,
            loss_constant=loss_constant,
            sampling_constant=sampling_constant,
            calibrated=calibrated,
            server_loss=server_loss,
            currency=currency,
        )

    # ---------------------------------------------------------------- the clients

    def equilibrium(
        self,
        payments: PerClient | None = None,
        *,
        caps: PerClient | None = None,
        start: PerClient | None = None,
        method: Literal["auto", "path", "sweeps", "qp"] = "auto",
        tolerance: float | None = None,
        max_iterations: int = 500,
        seed: int = 0,
        callback: Callback | None = None,
        progress: bool | None = None,
    ) -> Equilibrium:
        """Return one Nash equilibrium of the clients, verified; see :mod:`stackfu.followers`.

        Parameters
        ----------
        payments : per client, optional
            Payment for full participation; default 0.
        caps : per client, optional
            Largest participation accepted of each client; default 1.
        start : per client, optional
            Participation from which best responses start; returns the equilibrium they lead to.
        method : {"auto", "path", "sweeps", "qp"}
            Algorithm; "auto" chooses by size.
        tolerance : float, optional
            Largest residual of an accepted answer.
        max_iterations : int
            Limit of the iterative methods.
        seed : int
            Seed of random choices.
        callback : callable, optional
            Called with a record per iteration.
        progress : bool, optional
            Show a progress line; by default on a terminal.

        Returns
        -------
        Equilibrium
            Participation with residual, regret, status and uniqueness.

        Raises
        ------
        NoEquilibriumError
            If no profile with a participant is an equilibrium.
        """
        from .followers import SearchOptions, find_equilibrium

        checked = self.check_payments(payments)
        origin = None if start is None else self.check_participation(start)
        options = SearchOptions(origin, method, tolerance, max_iterations, seed, callback, progress)
        return find_equilibrium(self, checked, options, caps=None if caps is None else self.check_caps(caps))

    def equilibria(
        self,
        payments: PerClient | None = None,
        *,
        caps: PerClient | None = None,
        offers: Offers | None = None,
    ) -> Equilibria:
        """Return every Nash equilibrium of the clients, ordered by total participation; see :mod:`stackfu.followers.path`.

        Parameters
        ----------
        payments : per client, optional
            Payment for full participation; default 0.
        caps : per client, optional
            Largest participation accepted of each client; default 1.
        offers : Offers, optional
            All that a solution posts (``solution.offers``), in place of payments and caps; contracts too, see
            :mod:`stackfu.leader.acceptance`.

        Returns
        -------
        Equilibria
            The equilibria; ``complete`` is True if a proof excludes others.

        Examples
        --------
        >>> import numpy as np, stackfu as sf
        >>> game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(2)), [1, 1], costs=[1.0, 1.0])
        >>> game.equilibria()[0].participation, game.equilibria(caps=[0.25, 1.0])[0].participation.round(3)
        (array([0.5, 0.5]), array([0.25, 0.38]))
        """
        from .followers import enumerate_equilibria

        if offers is not None:
            for name, value in (("payments", payments), ("caps", caps)):
                if value is not None:
                    raise InputError(name, "are part of the offers; give either them or the offers")
            from .leader.outcomes import outcomes

            return outcomes(self, offers)
        taken = None if caps is None else self.check_caps(caps)
        return enumerate_equilibria(self, self.check_payments(payments), taken)

    def dynamics(
        self,
        payments: PerClient | None = None,
        start: PerClient | None = None,
        *,
        caps: PerClient | None = None,
        kind: Literal["simultaneous", "sequential", "damped"] = "sequential",
        damping: float | None = None,
    ) -> Iterator[Array]:
        """Best-response dynamics, one participation profile after another; see :mod:`stackfu.followers.dynamics`.

        Parameters
        ----------
        payments : per client, optional
            Payment for full participation; default 0.
        start : per client, optional
            First profile; default full participation.
        caps : per client, optional
            Largest participation accepted of each client; default 1.
        kind : {"sequential", "simultaneous", "damped"}
            Order of the responses.
        damping : float, optional
            Step of damped rounds; default one half.

        Returns
        -------
        iterator of ndarray
            A profile per round, beginning with ``start``.
        """
        from .followers.dynamics import best_response_dynamics

        origin = np.ones(self.count) if start is None else start
        return best_response_dynamics(
            self,
            self.check_payments(payments),
            self.check_participation(origin),
            caps=None if caps is None else self.check_caps(caps),
            kind=kind,
            damping=damping,
        )

    # ---------------------------------------------------------------- the server

    def solve(
        self,
        budget: float | None = None,
        method: str | Callable[..., Any] = "certified",
        *,
        payment_weight: float | None = None,
        loss_weight: float | None = None,
        max_loss: float | None = None,
        min_total: float | None = None,
        min_samples: float | None = None,
        finite_sample: bool | None = None,
        gap: float | None = None,
        time_limit: float | None = None,
        max_nodes: int | None = None,
        robust: bool | None = None,
        start: PerClient | None = None,
        offers: Literal["linear", "capped", "contract"] = "linear",
        costs_between: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
        outside: PerClient | None = None,
        groups: Sequence[Any] | npt.ArrayLike | None = None,
        others: Literal["equilibrium", "full"] | None = None,
        solver: Literal["closed", "cvxpy"] | None = None,
        tolerance: float | None = None,
        max_iterations: int | None = None,
        public_cost: float | None = None,
        progress: bool | None = None,
        callback: Callback | None = None,
        warn_below: float | None = None,
        **own: Any,
    ) -> Solution:
        """Return payments that minimise the server's loss within a budget; see :mod:`stackfu.leader`.

        An option that the method does not use is refused. ``None`` means the default.

        Parameters
        ----------
        budget
            Largest total payment ``p . x``; None for no limit (sensible with ``payment_weight``).
        method
            "certified" (global optimum with a lower bound), "haipo", "uniform", "grouped", "posted", "shapley",
            "leave-one-out", a registered mechanism, or a
            function ``f(game, budget)`` that returns payments; its keyword-only parameters are options.
        payment_weight
            certified: minimise ``loss_weight * loss + payment_weight * spend`` (default 0).
        loss_weight
            certified: weight of the server's loss (default 1).
        max_loss
            certified: largest server loss allowed (default: none).
        min_total
            certified: least share S of the remaining data that must take part (default 0).
        min_samples
            certified: the same floor as a number of samples (default 0).
        finite_sample
            certified: count the variance of the used samples' embedding, so that leftover budget buys data.
        gap
            certified, grouped: gap to close, relative both to the objective that is reached and to the one without payments
            (default by size: 1e-6, 1e-5, 1e-3).
        time_limit
            certified, grouped: seconds (default 60).
        max_nodes
            certified: boxes (default 100,000).
        robust
            certified: prefer payments with the best worst-case equilibrium.
        start
            certified: participation profiles to start from.
        offers
            What is posted: "linear" (the paper: a price per unit), "capped" (a price and the most that is taken: any plan as
            the only equilibrium, see :mod:`stackfu.model.offers`) or "contract" (all or nothing).
        costs_between
            capped: lower and upper ends of the costs, if they are not known; the plan is then safe for every cost in between.
            The solution's ``game`` has the upper ends as costs, for which it is optimal.
        outside
            capped, contract: the utility of each client outside the federation; with these offers no client gains by leaving.
        groups
            grouped: a label for every remaining client; clients with one label are offered one price per sample.
        others
            haipo: what its bisection holds fixed, "equilibrium" (default) or "full".
        solver
            haipo: "closed" (default) or the published "cvxpy" bisection.
        tolerance
            haipo, uniform: when payments count as unchanged.
        max_iterations
            haipo, uniform: iteration limit.
        public_cost
            posted: a cost per share that is known without asking, so that no offer depends on any report (default: the others').
        progress
            certified: a progress line (default: on a terminal).
        callback
            certified: called with a record per box.
        warn_below
            Warn where all clients together bring fewer samples than this (default: one for each client that takes part).
        own
            Options of a registered mechanism of your own.

        Returns
        -------
        Solution
            Payments with the resulting equilibrium, the status, and a lower bound if the method proves one.
        """
        given = _given(locals())
        from .leader import solve
        from .results.cautions import cautions_of, check_floor

        least = check_floor(given.pop("warn_below", None))
        found = solve(self, budget, method, given)
        _warn_of_units(self, [found.budget], outside is not None)
        for caution in cautions_of(found, least):
            warn(caution)
        return found

    def cheapest(
        self,
        max_loss: float,
        *,
        min_total: float | None = None,
        min_samples: float | None = None,
        finite_sample: bool | None = None,
        gap: float | None = None,
        time_limit: float | None = None,
        max_nodes: int | None = None,
        robust: bool | None = None,
        start: PerClient | None = None,
        offers: Literal["linear", "capped", "contract"] = "linear",
        costs_between: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
        outside: PerClient | None = None,
        progress: bool | None = None,
        callback: Callback | None = None,
        warn_below: float | None = None,
        **other: Any,
    ) -> Solution:
        """Return the least spend for a server loss of at most ``max_loss``, certified; options are as in :meth:`solve`.

        Parameters
        ----------
        max_loss : float
            Largest server loss allowed.
        min_total, min_samples, finite_sample, gap, time_limit, max_nodes, robust, start
            As in :meth:`solve`.
        offers, costs_between, outside, progress, callback, warn_below, other
            As in :meth:`solve`.

        Returns
        -------
        Solution
            ``objective`` is the spend; ``lower_bound`` bounds the spend of all offers of this kind.

        Examples
        --------
        >>> import numpy as np, stackfu as sf
        >>> game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(3)), [1, 2, 1], removed=[0], costs=[1.0, 1.0])
        >>> f"{game.equilibrium().server_loss:.3f}"
        '0.110'
        >>> least = game.cheapest(max_loss=0.1, progress=False)
        >>> least.status.name, least.server_loss <= 0.1, 0 < least.lower_bound <= least.spend
        ('CERTIFIED', True, True)
        """
        given = _given(locals())
        _refuse(other, self.cheapest)
        number(max_loss, "max_loss")
        return self.solve(None, payment_weight=1.0, loss_weight=0.0, **given)

    def frontier(
        self,
        budgets: Sequence[float] | npt.ArrayLike,
        method: str | Callable[..., Any] = "certified",
        *,
        payment_weight: float | None = None,
        loss_weight: float | None = None,
        max_loss: float | None = None,
        min_total: float | None = None,
        min_samples: float | None = None,
        finite_sample: bool | None = None,
        gap: float | None = None,
        time_limit: float | None = None,
        max_nodes: int | None = None,
        robust: bool | None = None,
        start: PerClient | None = None,
        offers: Literal["linear", "capped", "contract"] = "linear",
        costs_between: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
        outside: PerClient | None = None,
        groups: Sequence[Any] | npt.ArrayLike | None = None,
        others: Literal["equilibrium", "full"] | None = None,
        solver: Literal["closed", "cvxpy"] | None = None,
        tolerance: float | None = None,
        max_iterations: int | None = None,
        public_cost: float | None = None,
        progress: bool | None = None,
        callback: Callback | None = None,
        warn_below: float | None = None,
        **own: Any,
    ) -> Frontier:
        """Return solutions along a list of budgets, each starting from its neighbours; options are as in :meth:`solve`.

        Parameters
        ----------
        budgets : sequence of float
            The budgets.
        method, payment_weight, loss_weight, max_loss, min_total, min_samples, finite_sample
            As in :meth:`solve`.
        gap, time_limit, max_nodes, robust, start, offers, costs_between, outside, groups
            As in :meth:`solve`.
        others, solver, tolerance, max_iterations, public_cost, progress, callback, warn_below, own
            As in :meth:`solve`.

        Returns
        -------
        Frontier
            A solution per budget, with losses, bounds and spends as arrays.
        """
        given = _given(locals())
        from .leader.budget_sequence import trace_frontier
        from .results.cautions import caution_of_frontier, check_floor

        least = check_floor(given.pop("warn_below", None))
        traced = trace_frontier(self, budgets, method, given)
        _warn_of_units(self, traced.budgets.tolist(), outside is not None)
        if caution := caution_of_frontier(traced, least):
            warn(caution)
        return traced

    # ---------------------------------------------------------------- who leaves, what costs are, what lying pays

    def cascade(
        self,
        payments: PerClient | None = None,
        caps: PerClient | None = None,
        *,
        outside: PerClient,
        retainers: PerClient | None = None,
        offers: Offers | None = None,
        order: Literal["sequential", "simultaneous"] = "sequential",
    ) -> Cascade:
        """Return the departures in their order, until no client gains by leaving; see :mod:`stackfu.followers.cascade`.

        Parameters
        ----------
        payments : per client, optional
            Prices per unit; default 0.
        caps : per client, optional
            Largest participation accepted of each client.
        outside : per client or float
            Utility of each client outside the federation.
        retainers : per client, optional
            Fixed payments for staying.
        offers : Offers, optional
            All that a solution posts (``solution.offers``), in place of the three; contracts are paid for the whole quantity or
            not at all.
        order : {"sequential", "simultaneous"}
            One departure per round, or all at once.

        Returns
        -------
        Cascade
            The departures in their order, and the clients that stay.

        Examples
        --------
        >>> from stackfu.demo import digits_game
        >>> game = digits_game(sampling_constant=30.0)
        >>> posted = game.solve(0.06, "posted")
        >>> game.cascade(offers=posted.offers, outside=-0.1)
        Cascade(sequential: 7 of 7 clients depart (8, 6, 3, 4, 5, 9, 7), 0 stay)
        """
        from .followers.cascade import cascade
        from .model.offers import Kind, Offers, check_offers, check_outside

        apart = check_outside(self, outside)
        if apart is None:
            raise InputError("outside", "must say what each client has outside the federation")
        if offers is None:
            kept = self.no_payments if retainers is None else self.check_amounts(retainers, "retainers")
            kind: Kind = "linear" if caps is None else "capped"
            posted = Offers(kind, self.check_payments(payments), self.check_caps(caps), kept)
        else:
            for name, value in (("payments", payments), ("caps", caps), ("retainers", retainers)):
                if value is not None:
                    raise InputError(name, "are part of the offers; give either them or the offers")
            posted = check_offers(self, offers)
        return cascade(self, posted, apart, order)

    def costs_from(
        self, payments: PerClient, participation: PerClient, caps: PerClient | None = None
    ) -> CostIntervals:
        """Return the costs revealed by observed answers: an interval per client; see :mod:`stackfu.model.revealed`.

        Parameters
        ----------
        payments : per client, or a row per request
            Posted prices.
        participation : per client, or a row per request
            The clients' answers.
        caps : per client, or a row per request, optional
            Posted caps; default 1.

        Returns
        -------
        CostIntervals
            Lower and upper ends of each client's cost.

        Raises
        ------
        InputError
            If a client's answers contradict each other; names the client.
        """
        from .model.revealed import CostIntervals, revealed_costs

        paid, done = (
            np.atleast_2d(numbers(rows_by_name(values, name, self.client_names), name, who=self.label))
            for values, name in ((payments, "payments"), (participation, "participation"))
        )
        if len(paid) != len(done):
            raise InputError(
                "participation", f"needs {len(paid)} rows, one per vector of payments", value=len(done)
            )
        most = np.atleast_2d(
            self.no_caps
            if caps is None
            else numbers(rows_by_name(caps, "caps", self.client_names, 1.0), "caps", who=self.label)
        )
        if len(most) not in (1, len(paid)):
            raise InputError(
                "caps", f"needs one row, or {len(paid)}, one per vector of payments", value=len(most)
            )
        known = CostIntervals(np.zeros(self.count), np.full(self.count, np.inf))
        for p, x, taken in zip(paid, done, np.broadcast_to(most, (len(paid), most.shape[1])), strict=True):
            told = revealed_costs(self, self.check_payments(p), self.profile(x), self.check_caps(taken))
            known = known.meet(told, self)
        return known

    def manipulation(
        self,
        result: Solution,
        *,
        kinds: Sequence[str] | None = None,
        clients: Iterable[int | str] | None = None,
        factors: Sequence[float] | None = None,
        **other: Any,
    ) -> Manipulation:
        """Return each client's gain from misreporting under the mechanism that made a solution.

        See :mod:`stackfu.leader.misreports`.

        Parameters
        ----------
        result : Solution
            A solution of this game.
        kinds : sequence of str, optional
            Kinds of lies: "cost", "size", "embedding"; default all.
        clients : iterable, optional
            Clients that may lie; default all.
        factors : sequence of float, optional
            Factors of reported costs and sizes.
        other
            Refused; names the nearest option.

        Returns
        -------
        Manipulation
            The largest gain of each client.
        """
        from .leader.misreports import manipulation
        from .leader.repeating import offers_like

        if getattr(result, "game", None) != self or not hasattr(result, "offers"):
            raise InputError("result", "must be a solution of this game", value=type(result).__name__)
        name = f"{result.method}, {result.offers.kind}"
        _refuse(other, self.manipulation)
        asked = {"kinds": kinds, "clients": clients, "factors": factors}
        given: dict[str, Any] = {option: value for option, value in asked.items() if value is not None}
        return manipulation(self, offers_like(result), name, **given)

    def manipulations(self, *results: Solution, **options: Any) -> Manipulations:
        """Return the gains from misreporting under the mechanisms of several solutions of this game, as one table.

        Options are those of :func:`stackfu.leader.misreports.manipulation`.
        """
        from .results.manipulation import Manipulations

        if not results:
            raise InputError("results", "at least one solution is needed")
        for result in results:
            if getattr(result, "game", None) is not self:
                raise InputError("results", "a solution of another game", value=repr(result))
        return Manipulations(
            tuple(self.manipulation(result, **options) for result in results),
            np.array([result.server_loss for result in results]),
            np.array([result.spend for result in results]),
        )

    # ---------------------------------------------------------------- calibration

    def calibrate(
        self, participation: npt.ArrayLike, changes: npt.ArrayLike, *, level: float = 0.95
    ) -> Calibration:
        """Return C and A from pilot trainings: profiles and observed changes of every remaining client's loss; a row per pilot.

        Parameters
        ----------
        participation : array_like
            A profile per pilot.
        changes : array_like
            Observed change of every remaining client's loss, a row per pilot.
        level : float
            Confidence level of the intervals.

        Returns
        -------
        Calibration
            C and A with intervals; :meth:`recalibrated` gives the game with them.
        """
        from .calibration import calibrate

        return calibrate(self, participation, changes, level=level)

    def recalibrated(self, constants: Calibration) -> StackelbergGame:
        """Return this game with the constants of pilots; refused if the pilots do not distinguish C from zero.

        A :class:`~stackfu.StackfuWarning` says where the fit does not predict the pilots that it has not seen.
        """
        if not constants.identified:
            raise InputError(
                "constants", "the pilots do not tell C from zero; run more of them", value=str(constants)
            )
        if not constants.predicts:
            warn(
                "the constants do not predict: changes of a pilot that the fit has not seen are missed by more than their mean "
                "misses them; were all changes measured against the original model, with a higher loss as a positive change?"
            )
        return self.replace(
            loss_constant=constants.loss_constant,
            sampling_constant=constants.sampling_constant,
            calibrated=True,
        )

    # ---------------------------------------------------------------- derivatives and values

    def sensitivity(
        self,
        result: Equilibrium | Solution,
        parameter: str,
        of: str | None = None,
        side: Literal["up", "down"] | None = None,
    ) -> Array:
        """Return the derivative of a result of this game.

        See :meth:`stackfu.Equilibrium.sensitivity` and :meth:`stackfu.Solution.sensitivity`.

        Parameters
        ----------
        result : Equilibrium or Solution
            A result of this game.
        parameter : str
            Name of the changed quantity.
        of : str, optional
            Name of the output; default "participation", for a solution "payments".
        side : {"up", "down"}, optional
            One-sided derivative of an equilibrium.

        Returns
        -------
        ndarray
            The derivative, a row per output.
        """
        from .results import Solution
        from .sensitivity import sensitivity_of_equilibrium
        from .sensitivity.optimum import sensitivity_of_optimum

        self._refuse_others(result)
        if isinstance(result, Solution):
            if side is not None:
                raise InputError(
                    "side", "is for equilibria; a solution has two-sided derivatives only", value=repr(side)
                )
            return sensitivity_of_optimum(result, parameter, "payments" if of is None else of)
        return sensitivity_of_equilibrium(result, parameter, "participation" if of is None else of, side)

    def marginal_effects(self, result: Equilibrium | Solution) -> MarginalEffects:
        """Return what a little more money for each client brings, at the rates of a result of this game.

        Examples
        --------
        >>> from stackfu.demo import digits_game
        >>> game = digits_game()
        >>> effects = game.marginal_effects(game.equilibrium())
        >>> effects.step, effects.names[int(effects.together.argmax())]
        (0.0001, '4')
        """
        from .sensitivity.marginal import marginal_effects

        self._refuse_others(result)
        return marginal_effects(result)

    def values(
        self,
        participation: PerClient | None = None,
        *,
        empty: float | None = None,
        orders: int | None = None,
        confidence: float = 0.95,
        seed: int = 0,
    ) -> ClientValues:
        """Return what each client contributes to the fall of the server's loss: Shapley and leave-one-out values.

        A coalition of clients is worth the loss of the empty coalition less its own loss. Its members bring their participation,
        the other clients nothing; see :mod:`stackfu.values`. For measures of your own, such as an accuracy, use
        :func:`stackfu.values.values_of_measure`.

        Parameters
        ----------
        participation
            What each client brings; by default all of its data.
        empty
            Loss of the empty coalition; by default the largest loss of any coalition, which is that of a single client.
        orders
            Random orders to estimate from; by default all coalitions are evaluated for up to 20 clients that take part.
        confidence
            Probability with which all intervals of estimated values hold at once.
        seed
            Seed of the random orders.

        Returns
        -------
        ClientValues
            Both values of every client, exact or with intervals.

        Examples
        --------
        >>> from stackfu.demo import digits_game
        >>> found = digits_game().values()
        >>> found.exact, bool(abs(found.shapley.sum() - found.whole) < 1e-12)
        (True, True)
        """
        from .values import values_of_clients

        return values_of_clients(
            self, participation, empty=empty, orders=orders, confidence=confidence, seed=seed
        )

    # ---------------------------------------------------------------- judges and files

    def verify(self, result: Equilibrium | Solution, tolerance: float = 1e-9) -> Verification:
        """Recompute a result from this game by other means than those that found it; see :mod:`stackfu.judging`.

        A result of another game is refused, unless it is a plan of capped offers for costs that are nowhere below this game's
        (``costs_between``): it is the only equilibrium here too, at the same spend (Theorem 2 of the theory of offers). Its lower
        bound is one for the costs it was made for.
        """
        from .judging import verify_equilibrium, verify_plan, verify_solution
        from .results import Solution

        if isinstance(result, Solution) and self._is_planned_for_more(result):
            check = verify_plan(result, tolerance)
            more = "; made for larger costs, it holds for these as well" if check else ""
            return replace(check, message=check.message + more)
        self._refuse_others(result)
        if isinstance(result, Solution):
            if result.offers.kind != "linear":
                return verify_plan(result, tolerance)
            return verify_solution(result, tolerance)
        return verify_equilibrium(result, tolerance)

    def prove(self, result: Equilibrium, precision: int = 256) -> Certificate:
        """Prove in ball arithmetic that an exact equilibrium lies in a tiny box around a point."""
        from .judging.proof import prove_equilibrium

        self._refuse_others(result)
        return prove_equilibrium(result, precision)

    def whole_samples(self, result: Solution) -> WholePlan:
        """Return a solution rounded to whole samples, with its exact spend and loss; see :class:`stackfu.results.WholePlan`."""
        from .judging.whole_samples import judge_whole_samples

        self._refuse_others(result)
        return judge_whole_samples(result)

    def diagnose(self, result: Equilibrium) -> Diagnostics:
        """Return contraction diagnostics at an equilibrium; see :mod:`stackfu.judging.diagnostics`."""
        from .judging.diagnostics import diagnose

        self._refuse_others(result)
        return diagnose(result)

    def _refuse_others(self, result: Any) -> None:
        """An error if a result is not one of this game."""
        game = getattr(result, "game", None)
        if game is not self and game != self:
            raise InputError("result", "belongs to another game", value=repr(result))

    def _is_planned_for_more(self, result: Any) -> bool:
        """Return True for a plan of capped offers for this game with costs nowhere below this game's."""
        game = getattr(result, "game", None)
        if not isinstance(game, GameModel) or game is self or not hasattr(result, "offers"):
            return False
        if result.offers.kind != "capped" or game.count != self.count or np.any(game.costs < self.costs):
            return False
        return game != self and game.replace(costs=self.costs) == self

    def clients_frame(self, payments: PerClient | None, participation: PerClient) -> Any:
        """Return a DataFrame with one row per remaining client: what it owns, is paid, does and gets (needs pandas)."""
        from .html import data_frame

        paid, x = self.check_payments(payments), self.check_participation(participation)
        columns = {
            "samples": self.sizes,
            "cost": self.costs,
            "payment": paid,
            "participation": x,
            "samples_used": self.sizes * x,
            "receives": paid * x,
            "utility": self.client_utilities(paid, x),
            "predicted_change": self.impacts(x).clients,
        }
        return data_frame(columns, self.names, currency=self.currency)

    def to_pandas(self) -> Any:
        """A DataFrame with one row per remaining client: what it owns, what taking part costs it, how far it is (needs pandas)."""
        from .html import data_frame

        return data_frame(
            {"samples": self.sizes, "share": self.alpha, "cost": self.costs, "distance": self.heterogeneity},
            self.names,
            currency=self.currency,
        )

    def plot(
        self,
        result: Equilibrium | Equilibria | Solution | Frontier | Cascade | None = None,
        ax: Any = None,
        **options: Any,
    ) -> Any:
        """Draw a result of this game, by default the clients as their distances lay them out.

        ``options`` are those of the function of :mod:`stackfu.plot` that draws it, such as ``labels``.
        """
        from . import plot
        from .results import Cascade, Equilibria, Frontier

        if result is None:
            return plot.distance_map(self, ax, **options)
        if isinstance(result, Frontier):
            return plot.frontier(result, ax, **options)
        if isinstance(result, Equilibria):
            return plot.level(result, ax, **options)
        if isinstance(result, Cascade):
            return plot.cascade(result, ax, **options)
        return plot.participation(result, ax, **options)

    def _repr_html_(self) -> str:
        from .html import MOST_ROWS, card, money, table

        shown = min(self.count, MOST_ROWS)
        rows = [
            [self.label(k), float(self.sizes[k]), f"{self.alpha[k]:.1%}", float(self.costs[k])]
            for k in range(shown)
        ]
        gone = ", ".join(map(self.called, self.removed[:8])) or "nobody"
        price = money(self.full_participation_price, self.currency)
        note = f"forgotten: {gone}; full participation costs {price}. {guessed(self)}".strip()
        head = ["client", "samples", "share", "cost"]
        return card(
            f"Game of {self.count} remaining clients",
            table(head, rows, self.count - shown, self.currency),
            note=note,
        )

    def save(self, path: Any, result: Equilibrium | Solution | None = None) -> None:
        """Write the game (or a result of it) to a ``.json`` or ``.npz`` file, without loss; read it with :func:`stackfu.load`."""
        from .io import save

        if result is not None and result.game is not self:
            raise InputError("result", "belongs to another game", value=repr(result))
        save(self if result is None else result, path)


#: The options that ``solve`` has by name.
_OPTIONS = tuple(
    name
    for name, parameter in inspect.signature(StackelbergGame.solve).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY
)


def _given(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the request: non-default options of ``solve`` among a method's arguments, and a mechanism's own."""
    named = {
        name: arguments[name] for name in _OPTIONS if name == "offers" or arguments.get(name) is not None
    }
    if isinstance(named["offers"], str) and named["offers"] == "linear":
        del named["offers"]
    return {**named, **arguments.get("own", {})}


def _warn_of_units(game: GameModel, budgets: Sequence[float], keeping: bool) -> None:
    """Warn of budgets and costs that do not seem to be in one unit."""
    from .model.units import unit_doubts

    for doubt in unit_doubts(game, budgets, keeping=keeping):
        warn(doubt)


def _refuse(other: dict[str, Any], method: Callable[..., Any]) -> None:
    """An error that names the first option that a method does not have."""
    for name, value in other.items():
        known = ", ".join(
            p.name for p in inspect.signature(method).parameters.values() if p.kind is p.KEYWORD_ONLY
        )
        raise InputError(name, f"is not an option of {method.__name__}; those are {known}", value=repr(value))
