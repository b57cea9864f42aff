"""The server's side: training, and removal requests from embeddings to settlement.

    mechanism = UnlearningMechanism(folder, clients=10)
    mechanism.train(grid, initial_arrays, rounds=20)
    audit = mechanism.remove(grid, (0, 1, 2))

Every phase ends with a row in the ledger and begins by looking for it. The server may be killed at any time:
started again with the same folder, it repeats nothing that is closed, and what is open it continues from the
last row.

A client that does not answer, answers nonsense or leaves is named in the ledger. Before the commitments it is
left out of the game and the offers are made anew among the others, so that the certificate always speaks of
the clients that are there; afterwards it is paid for the rounds that it delivered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

import stackfu as sf
from stackfu.errors import InputError, StackfuError
from stackfu_integration.flower.audit import write_audit
from stackfu_integration.flower.ledger import Event, PaymentLedger
from stackfu_integration.flower.models import ModelStore, digest
from stackfu_integration.flower.privacy import gaussian_deviation, largest_norm, nearest_gram, unbiased_gram
from stackfu_integration.flower.protocol import (
    EMBED,
    MEASURE,
    RESPOND,
    SPREAD,
    TRAIN,
    UNLEARN,
    Refusal,
    ask,
    config,
    metric,
    numbers,
    read_numbers,
)
from stackfu_integration.flower.response import Offer
from stackfu_integration.flower.roster import call_the_roll
from stackfu_integration.flower.strategy import Member, ParticipationFedAvg, RoundOutcome

__all__ = ["PHASES", "Terms", "UnlearningMechanism"]

PHASES = (
    "train",
    "request",
    "embeddings",
    "offers",
    "responses",
    "unlearning",
    "settlement",
    "measures",
    "report",
)
FloatArray = NDArray[np.float64]
_ATTEMPTS = 20  # offers made anew at most that often


@dataclass(frozen=True)
class Terms:
    """What the server states before anybody answers.

    ``budget`` is the most that a removal may cost; without it, ``budget_share`` of the price of full
    participation. ``bandwidth`` of ``None`` asks every client for the median squared distance in its own data
    and takes the median of the answers, weighted by size. ``epsilon`` turns on noise (:mod:`.privacy`), and
    then the bandwidth must be given. ``unlearning`` is ``"retrain"`` from the first model, which never meets
    the removed data, or ``"continue"`` from the trained one. ``finite_sample`` lets the loss know how many
    samples take part, so that money left over buys data, and ``min_total`` is a floor on the share of the
    remaining data that takes part. ``tolerance`` is the largest difference in shares that counts as not
    moving.
    """

    budget: float | None = None
    budget_share: float = 0.5
    cost_scale: float = 10.0
    lambda_v: float = 1.0
    lambda_s: float = 1.0
    lambda_q: float = 1.0
    loss_constant: float = 10.0
    features: int = 256
    bandwidth: float | None = None
    epsilon: float | None = None
    delta: float = 1e-5
    seed: int = 0
    unlearning: Literal["retrain", "continue"] = "retrain"
    rounds: int = 10
    method: Literal["certified", "haipo", "uniform"] = "certified"
    finite_sample: bool = False
    min_total: float = 0.0
    time_limit: float = 60.0
    announcements: int = 60
    damping: float = 0.5
    tolerance: float = 1e-6
    most_samples: int = 10_000_000

    def __post_init__(self) -> None:
        if self.budget is not None and not self.budget >= 0:
            raise InputError("budget", "must not be negative", value=self.budget)
        if not 0 < self.budget_share <= 1:
            raise InputError("budget_share", "must be in (0, 1]", value=self.budget_share)
        if self.epsilon is not None and self.bandwidth is None:
            raise InputError(
                "bandwidth", "must be given with epsilon: asking the clients for it is not private"
            )
        if self.rounds < 1:
            raise InputError("rounds", "must be at least 1", value=self.rounds)
        if not 0 <= self.min_total <= 1:
            raise InputError("min_total", "must be in [0, 1]", value=self.min_total)
        if not 0 < self.damping <= 1:
            raise InputError("damping", "must be in (0, 1]", value=self.damping)

    @classmethod
    def from_config(cls, run_config: Mapping[str, Any]) -> Terms:
        """Take the terms out of a Flower run config, where they are written with dashes.

        A run config cannot hold "nothing": 0 stands for an absent budget, bandwidth or epsilon.

        >>> Terms.from_config({"budget-share": 0.25, "epsilon": 0.0, "learning-rate": 0.1}).budget_share
        0.25
        """
        known = {field.name: field.name.replace("_", "-") for field in fields(cls)}
        given = {name: run_config[key] for name, key in known.items() if key in run_config}
        for name in ("budget", "bandwidth", "epsilon"):
            if given.get(name) == 0:
                del given[name]
        return cls(**given)


@dataclass(frozen=True)
class _Board:
    """The game as it stands: the clients that are in it, and what they sent."""

    clients: list[int]  # all that sent an embedding and were not left out, removed ones first or not
    remaining: list[int]
    features: FloatArray  # rows follow ``clients``
    deviations: FloatArray
    sizes: FloatArray
    game: sf.StackelbergGame
    clipped: float  # what the nearest Gram matrix changed

    @cached_property
    def _kept(self) -> list[int]:
        place = {client: k for k, client in enumerate(self.clients)}
        return [place[client] for client in self.remaining]

    @cached_property
    def rows(self) -> FloatArray:
        """Embeddings of the remaining clients."""
        return self.features[self._kept]

    @cached_property
    def noise(self) -> FloatArray:
        """``D sigma_k^2`` of the remaining clients."""
        return np.asarray(self.features.shape[1] * self.deviations[self._kept] ** 2)

    def offers(self, prices: FloatArray, x: FloatArray) -> dict[int, Offer]:
        """What every remaining client is told when ``x`` is announced."""
        y = self.game.alpha * x
        rows, noise = self.rows, self.noise
        aggregate, total, energy = y @ rows, float(y.sum()), float(y**2 @ noise)
        return {
            client: Offer(
                price=float(prices[k]),
                cost=float(self.game.costs[k]),
                alpha=float(self.game.alpha[k]),
                lam=self.game.lam,
                share=float(x[k]),
                total=total,
                aggregate=aggregate,
                own=rows[k],
                noise=energy,
                own_noise=float(noise[k]),
            )
            for k, client in enumerate(self.remaining)
        }


@dataclass
class UnlearningMechanism:
    """A federation of ``clients`` clients with its ledger and its models in ``folder``.

    ``timeout`` is how long the server waits for answers, ``wait`` how long for nodes to appear.
    ``after(phase)`` is called when a phase is closed.
    """

    folder: Path
    clients: int
    terms: Terms = field(default_factory=Terms)
    timeout: float = 300.0
    wait: float = 60.0
    patience: int = 2
    after: Callable[[str], None] = lambda phase: None
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.clients < 2:
            raise InputError("clients", "must be at least 2", value=self.clients)
        self.folder = Path(self.folder)
        self.ledger = PaymentLedger(self.folder / "ledger.sqlite")
        self.models = ModelStore(self.folder / "models")
        self._nodes: dict[int, int] = {}
        self._grid: Grid | None = None

    # ---------------------------------------------------------------- training

    def train(
        self, grid: Grid, initial: ArrayRecord, rounds: int, settings: Mapping[str, Any] | None = None
    ) -> ArrayRecord:
        """Train with everybody by Flower's own ``train`` message, from the last round in the ledger on."""
        run = self.ledger.last("", "run")
        if run is None:
            first = self.models.put(initial)
            self.ledger.add("", "run", clients=self.clients, rounds=rounds, initial=first)
        elif (run.detail["clients"], run.detail["rounds"]) != (self.clients, rounds):
            raise InputError(
                "folder", "holds a run with another number of clients or rounds", value=self.folder
            )
        elif run.detail["initial"] != digest(initial):
            raise InputError("folder", "holds a run that started from another model", value=self.folder)
        last = self.ledger.last("", "round")
        done = 0 if last is None else last.round
        if done < rounds:
            nodes = self._call(grid)
            with self._phase("train"):
                arrays = initial if last is None else self.models.get(last.detail["model"])

                def finished(outcome: RoundOutcome) -> None:
                    name = self.models.put(outcome.arrays)
                    with self.ledger.transaction():
                        for client, problem in outcome.problems.items():
                            self.ledger.add_fault("", client, f"train {outcome.number}", problem)
                        samples = {str(client): n for client, n in outcome.samples.items()}
                        self.ledger.add("", "round", round=outcome.number, model=name, samples=samples)
                    self._forget_models()

                strategy = ParticipationFedAvg(
                    nodes,
                    {client: Member() for client in range(self.clients)},
                    finished=finished,
                    message_type=TRAIN,
                    done=done,
                    patience=self.patience,
                    most_samples=self.terms.most_samples,
                )
                strategy.start(
                    grid,
                    arrays,
                    num_rounds=rounds - done,
                    timeout=self.timeout,
                    train_config=ConfigRecord({"seed": self.terms.seed, **(settings or {})}),
                )
            self.after("train")
        return self.models.get(self._trained())

    def _trained(self) -> str:
        last = self.ledger.last("", "round")
        if last is None:
            raise StackfuError("nothing has been trained yet")
        return str(last.detail["model"])

    # ---------------------------------------------------------------- removal

    def remove(self, grid: Grid, removed: tuple[int, ...], request: str = "r1") -> dict[str, Any]:
        """Carry out a removal request from wherever the ledger says it stands; return the audit."""
        removal = _Removal(self, grid, request)
        removal.open(tuple(sorted(int(c) for c in removed)))
        if self.ledger.last(request, "closed") is None:
            removal.carry_out()
        return write_audit(self.ledger, request, self.folder)

    def model(self, request: str | None = None) -> ArrayRecord:
        """Return the model after a request, or after training."""
        if request is None:
            return self.models.get(self._trained())
        last = self.ledger.last(request, "round")
        if last is None:
            raise InputError("request", "has not unlearned anything yet", value=request)
        return self.models.get(last.detail["model"])

    # ---------------------------------------------------------------- shared

    def _call(self, grid: Grid) -> dict[int, int]:
        if self._grid is not grid or len(self._nodes) < self.clients:
            with self._phase("roll"):
                self._nodes = call_the_roll(
                    grid, self.ledger, self.clients, wait=self.wait, timeout=self.timeout
                )
            self._grid = grid
        return self._nodes

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    def _forget_models(self) -> None:
        """Keep the first model, the last of training, and the last of every request."""
        run = self.ledger.last("", "run")
        kept = {run.detail["initial"]} if run is not None else set()
        for request in ("", *self.ledger.requests()):
            last = self.ledger.last(request, "round")
            if last is not None:
                kept.add(last.detail["model"])
        self.models.keep_only(kept)


class _Removal:
    """One removal request."""

    def __init__(self, mechanism: UnlearningMechanism, grid: Grid, request: str) -> None:
        if not request:
            raise InputError("request", "needs a name")
        self.mechanism, self.grid, self.name = mechanism, grid, request
        self.ledger, self.models, self.terms = mechanism.ledger, mechanism.models, mechanism.terms

    def open(self, removed: tuple[int, ...]) -> None:
        """Write the request down, or check that it is the one in the ledger."""
        stated: dict[str, Any] = {"removed": list(removed), "terms": asdict(self.terms)}
        known = self.ledger.last(self.name, "request")
        if known is not None:
            if {key: known.detail[key] for key in stated} != stated:
                raise InputError(
                    "request", "is in the ledger with other clients or other terms", value=self.name
                )
            return
        earlier = self.ledger.requests()
        unfinished = [name for name in earlier if self.ledger.last(name, "closed") is None]
        if unfinished:
            raise InputError("request", f"must wait: {unfinished[0]} is not closed", value=self.name)
        gone = {c for name in earlier for c in self._detail(name, "request")["removed"]}
        present = set(range(self.mechanism.clients)) - gone
        if not removed or not set(removed) < present:
            raise InputError(
                "removed", f"must name some, not all, of clients {sorted(present)}", value=removed
            )
        before = self._detail(earlier[-1], "round")["model"] if earlier else self.mechanism._trained()
        self.ledger.add(self.name, "request", before=before, gone=sorted(gone), **stated)
        self.mechanism.after("request")

    def carry_out(self) -> None:
        """Run all phases that are not closed."""
        nodes = self.mechanism._call(self.grid)
        steps: tuple[tuple[str, str, Callable[[dict[int, int]], None]], ...] = (
            ("embeddings", "game", self._collect_embeddings),
            ("offers", "solution", self._make_offers),
            ("responses", "committed", self._negotiate),
            ("unlearning", "unlearned", self._unlearn),
            ("settlement", "settled", self._settle),
            ("measures", "measured", self._measure),
            ("report", "closed", self._close),
        )
        for phase, closing, step in steps:
            if self.ledger.last(self.name, closing) is None:
                with self.mechanism._phase(phase):
                    step(nodes)
                self.mechanism.after(phase)

    # ---------------------------------------------------------------- embeddings

    def _collect_embeddings(self, nodes: dict[int, int]) -> None:
        terms, request = self.terms, self._detail(self.name, "request")
        model = self.models.get(request["before"])
        present = [c for c in range(self.mechanism.clients) if c not in request["gone"]]
        for client in present:
            if client not in nodes:
                self._leave_out(client, "embeddings", "has no node")
        bandwidth = self._bandwidth(nodes, model, present)
        settings = config(request=self.name, bandwidth=bandwidth, features=terms.features, seed=terms.seed)
        if terms.epsilon is not None:
            settings["epsilon"], settings["delta"] = terms.epsilon, terms.delta
        have = self.ledger.by_client(self.name, "embedding")
        out = self.ledger.by_client(self.name, "excluded")
        asked = [c for c in present if c in nodes and c not in have and c not in out]
        contents = {client: RecordDict({"arrays": model, "config": settings}) for client in asked}
        answers, trained = self._ask(nodes, EMBED, contents), self._samples_in_training()
        with self.ledger.transaction():
            for client, answer in answers.items():
                checked = (
                    answer
                    if isinstance(answer, Refusal)
                    else self._check_embedding(answer, trained.get(client))
                )
                if isinstance(checked, Refusal):
                    self._leave_out(client, "embeddings", checked.problem)
                else:
                    mean, size, deviation = checked
                    self.ledger.add(
                        self.name,
                        "embedding",
                        client=client,
                        amount=size,
                        payload=mean.tobytes(),
                        deviation=deviation,
                        numbers=len(mean),
                    )
        self._found_game(bandwidth)

    def _bandwidth(self, nodes: dict[int, int], model: ArrayRecord, present: list[int]) -> float:
        if self.terms.bandwidth is not None:
            return self.terms.bandwidth
        known = self.ledger.last(self.name, "bandwidth")
        if known is not None:
            assert known.amount is not None
            return known.amount
        out = self.ledger.by_client(self.name, "excluded")
        contents = {c: RecordDict({"arrays": model}) for c in present if c in nodes and c not in out}
        squares, sizes = [], []
        for client, answer in self._ask(nodes, SPREAD, contents).items():
            try:
                if isinstance(answer, Refusal):
                    raise TypeError(answer.problem)
                square, size = float(metric(answer, "squared")), metric(answer, "size")
                if not (np.isfinite(square) and square >= 0 and isinstance(size, int) and size >= 1):
                    raise TypeError(f"says that the median squared distance of {size} samples is {square}")
            except (KeyError, TypeError) as error:
                self._leave_out(client, "embeddings", str(error))
                continue
            if square > 0:
                squares.append(square)
                sizes.append(min(size, self.terms.most_samples))
        if not squares:
            raise StackfuError("no client could say how far apart its samples are")
        order = np.argsort(squares, kind="stable")
        middle = np.searchsorted(np.cumsum(np.array(sizes)[order]), sum(sizes) / 2)
        value = float(np.sqrt(np.array(squares)[order][middle]))
        self.ledger.add(self.name, "bandwidth", amount=value)
        return value

    def _check_embedding(
        self, answer: RecordDict, used: int | None
    ) -> tuple[FloatArray, int, float] | Refusal:
        """Return embedding, size and noise of a sound answer, or say what is wrong with it."""
        terms = self.terms
        try:
            mean = read_numbers(answer.array_records["arrays"], "mean")
            size, deviation = metric(answer, "size"), float(metric(answer, "deviation"))
        except (KeyError, TypeError, ValueError) as error:
            return Refusal(f"the reply is incomplete ({error})")
        if not isinstance(size, int) or not 1 <= size <= terms.most_samples:
            return Refusal(f"claims {size} samples")
        if used is not None and size != used:
            return Refusal(f"claims {size} samples after training with {used}")
        if mean.shape != (terms.features,):
            return Refusal(f"sent an embedding of shape {list(mean.shape)}, not [{terms.features}]")
        if not np.isfinite(mean).all():
            return Refusal("sent an embedding with numbers that are not finite")
        expected = 0.0
        if terms.epsilon is not None:
            expected = gaussian_deviation(terms.epsilon, terms.delta, size)
        if not np.isclose(deviation, expected, rtol=1e-6, atol=0.0):
            return Refusal(f"added noise of deviation {deviation:.6g}, {expected:.6g} was asked for")
        norm = float(np.linalg.norm(mean))
        if norm > largest_norm(expected, terms.features):
            return Refusal(f"sent an embedding of norm {norm:.6g}; a mean of unit vectors has at most 1")
        return mean, size, deviation

    def _samples_in_training(self) -> dict[int, int]:
        sizes: dict[int, int] = {}
        for event in self.ledger.events("", "round"):
            sizes.update({int(client): n for client, n in event.detail["samples"].items()})
        return sizes

    def _found_game(self, bandwidth: float) -> None:
        """Fix what does not change any more, whoever leaves: costs, and the budget."""
        rows = self.ledger.by_client(self.name, "embedding")
        sizes = {client: event.amount or 0.0 for client, event in rows.items()}
        total = sum(sizes.values())
        costs = {c: self.terms.cost_scale * n / total for c, n in sizes.items()}
        board = self._board(costs)
        budget = self.terms.budget
        full = float(board.game.full_participation_price)
        if budget is None:
            budget = self.terms.budget_share * full
        self.ledger.add(
            self.name,
            "game",
            amount=budget,
            bandwidth=bandwidth,
            costs={str(c): cost for c, cost in costs.items()},
            full_price=full,
            clipped=board.clipped,
        )

    def _board(self, costs: Mapping[int, float] | None = None) -> _Board:
        """Rebuild the game from the ledger, among the clients that are not left out."""
        if costs is None:
            costs = {int(c): cost for c, cost in self._detail(self.name, "game")["costs"].items()}
        out = self.ledger.by_client(self.name, "excluded")
        rows = {c: e for c, e in self.ledger.by_client(self.name, "embedding").items() if c not in out}
        removed = set(self._detail(self.name, "request")["removed"])
        clients = sorted(rows)
        remaining = [c for c in clients if c not in removed]
        if len(remaining) < 2:
            raise StackfuError(f"{self.name}: a game needs two remaining clients, there are {remaining}")
        features = np.array([np.frombuffer(rows[c].payload or b"", dtype=np.float64) for c in clients])
        deviations = np.array([rows[c].detail["deviation"] for c in clients])
        sizes = np.array([rows[c].amount or 0.0 for c in clients])
        clipped = 0.0
        if deviations.any():
            gram, clipped = nearest_gram(unbiased_gram(features, deviations))
            embeddings = sf.MeanEmbeddings.from_gram(gram)
        else:
            embeddings = sf.MeanEmbeddings.from_features(features)
        terms = self.terms
        game = sf.StackelbergGame(
            embeddings,
            sizes,
            removed=[k for k, c in enumerate(clients) if c in removed],
            costs=[costs[c] for c in remaining],
            lambda_v=terms.lambda_v,
            lambda_s=terms.lambda_s,
            lambda_q=terms.lambda_q,
            loss_constant=terms.loss_constant,
        )
        return _Board(clients, remaining, features, deviations, sizes, game, clipped)

    # ---------------------------------------------------------------- offers and responses

    def _make_offers(self, nodes: dict[int, int] | None = None, limit: float | None = None) -> None:
        """Solve the game among the clients that are there, and post prices."""
        last = self.ledger.last(self.name, "solution")
        attempt = 0 if last is None else last.round + 1
        if attempt >= _ATTEMPTS:
            raise StackfuError(f"{self.name}: {attempt} rounds of offers ended without commitments")
        budget = self.ledger.last(self.name, "game")
        assert budget is not None
        assert budget.amount is not None
        limit = budget.amount if limit is None else limit
        board = self._board()
        options: dict[str, Any] = {}
        if self.terms.method == "certified":
            options["time_limit"] = self.terms.time_limit
            if self.terms.finite_sample:
                options["finite_sample"] = True
            if self.terms.min_total > 0:
                options["min_total"] = self.terms.min_total
        began = time.perf_counter()
        solution = board.game.solve(limit, self.terms.method, **options)
        seconds = time.perf_counter() - began
        equilibrium = solution.equilibrium
        bound = float(solution.lower_bound)
        certificate: dict[str, Any] = {
            "method": self.terms.method,
            "status": solution.status.name,
            "meaning": solution.status.value,
            "server_loss": float(solution.server_loss),
            "lower_bound": bound if np.isfinite(bound) else None,
            "gap": float(solution.gap) if np.isfinite(solution.gap) else None,
            "spend": float(solution.spend),
            "regret": float(equilibrium.regret),
            "residual": float(equilibrium.residual),
            "uniqueness": equilibrium.uniqueness.name,
            "total": float(equilibrium.total),
            "seconds": seconds,
        }
        with self.ledger.transaction():
            self.ledger.add(
                self.name,
                "solution",
                round=attempt,
                amount=limit,
                participation={
                    str(c): float(x) for c, x in zip(board.remaining, solution.participation, strict=True)
                },
                **certificate,
            )
            for client, price in zip(board.remaining, solution.payments, strict=True):
                self.ledger.add(self.name, "offer", client=client, round=attempt, amount=float(price))

    def _negotiate(self, nodes: dict[int, int]) -> None:
        """Announce, listen, and make offers anew until the clients that are there are committed."""
        while self.ledger.last(self.name, "committed") is None:
            solution = self.ledger.last(self.name, "solution")
            assert solution is not None
            board = self._board()
            if [str(c) for c in board.remaining] != list(_by_number(solution.detail["participation"])):
                self._make_offers()  # somebody was left out since
                continue
            limit = self._hear_responses(nodes, board, solution)
            if limit is not None:
                self._make_offers(limit=limit)

    def _hear_responses(self, nodes: dict[int, int], board: _Board, solution: Event) -> float | None:
        """Let the clients react to each other until nobody moves; return a budget if offers must be new."""
        terms = self.terms
        limit = solution.amount
        assert limit is not None
        attempt = solution.round
        offers = {
            e.client: e.amount or 0.0 for e in self.ledger.events(self.name, "offer") if e.round == attempt
        }
        prices = np.array([offers[c] for c in board.remaining])
        predicted = np.array([solution.detail["participation"][str(c)] for c in board.remaining])
        x = predicted.copy()
        last = self.ledger.last(self.name, "announced")
        first = 0 if last is None else last.round + 1
        deviating: dict[int, str] = {}
        move = np.inf
        for number in range(first, first + terms.announcements):
            told = board.offers(prices, x)
            replies = self._ask(nodes, RESPOND, {c: _offer_content(self.name, o) for c, o in told.items()})
            shares: dict[int, float] = {}
            for client, answer in replies.items():
                share = _read_share(answer)
                if isinstance(share, Refusal):
                    self._leave_out(client, "responses", share.problem)
                else:
                    shares[client] = share
            with self.ledger.transaction():
                self.ledger.add(
                    self.name, "announced", round=number, amount=float(board.game.alpha @ x), attempt=attempt
                )
                for client, share in shares.items():
                    self.ledger.add(self.name, "response", client=client, round=number, amount=share)
            if len(shares) < len(board.remaining):
                return limit  # somebody is gone
            answered = np.array([shares[c] for c in board.remaining])
            best = {c: offer.best_response() for c, offer in told.items()}
            deviating = {
                c: f"took {shares[c]:.6g} where {best[c]:.6g} is its best response"
                for c in board.remaining
                if abs(shares[c] - best[c]) > terms.tolerance
            }
            move = float(np.abs(answered - x).max())
            if move <= terms.tolerance:
                break
            stubborn = np.array([c in deviating for c in board.remaining])
            x = np.where(stubborn, answered, x + terms.damping * (answered - x))
        settled = move <= terms.tolerance
        spend = float(prices @ x)
        over = spend > limit * (1.0 + 1e-9)
        for client, problem in deviating.items():
            if over or not settled:
                self._leave_out(
                    client, "responses", f"{problem}, and the others cannot settle within the budget"
                )
            else:
                self.ledger.add_fault(self.name, client, "responses", problem)
        if deviating and (over or not settled):
            return limit
        if over:
            return limit * limit / spend * (1.0 - 1e-9)
        self._commit(
            board,
            prices,
            x,
            settled=settled,
            move=move,
            predicted=predicted,
            announcements=number + 1 - first,
        )
        return None

    def _commit(
        self,
        board: _Board,
        prices: FloatArray,
        x: FloatArray,
        *,
        settled: bool,
        move: float,
        predicted: FloatArray,
        announcements: int,
    ) -> None:
        sizes = dict(zip(board.clients, board.sizes, strict=True))
        samples = {
            c: round(float(share) * int(sizes[c])) for c, share in zip(board.remaining, x, strict=True)
        }
        if not any(samples.values()):
            raise StackfuError(f"{self.name}: nobody takes part with a whole sample")
        game = board.game
        with self.ledger.transaction():
            for client, price, share in zip(board.remaining, prices, x, strict=True):
                if samples[client] > 0:
                    self.ledger.add(
                        self.name,
                        "commitment",
                        client=client,
                        amount=float(share),
                        price=float(price),
                        samples=samples[client],
                        rounds=self.terms.rounds,
                    )
            self.ledger.add(
                self.name,
                "committed",
                amount=float(prices @ x),
                settled=settled,
                move=move,
                from_certified=float(np.abs(x - predicted).max()),
                regret=game.regret(prices, x),
                residual=game.residual(prices, x),
                server_loss=game.server_loss(x),
                announcements=announcements,
            )

    # ---------------------------------------------------------------- unlearning, settlement

    def _unlearn(self, nodes: dict[int, int]) -> None:
        commitments = self.ledger.by_client(self.name, "commitment")
        cohort = {c: Member(e.amount or 0.0, e.detail["samples"]) for c, e in commitments.items()}
        last = self.ledger.last(self.name, "round")
        done = 0 if last is None else last.round
        if last is not None:
            start = last.detail["model"]
        elif self.terms.unlearning == "retrain":
            start = self._detail("", "run")["initial"]
        else:
            start = self._detail(self.name, "request")["before"]

        def finished(outcome: RoundOutcome) -> None:
            name = self.models.put(outcome.arrays)
            with self.ledger.transaction():
                for client, used in outcome.samples.items():
                    self.ledger.add(self.name, "work", client=client, round=outcome.number, amount=used)
                for client, problem in outcome.problems.items():
                    self.ledger.add_fault(self.name, client, f"unlearning {outcome.number}", problem)
                self.ledger.add(self.name, "round", round=outcome.number, model=name)
            self.mechanism._forget_models()

        if done < self.terms.rounds:
            strategy = ParticipationFedAvg(
                nodes,
                cohort,
                finished=finished,
                message_type=UNLEARN,
                done=done,
                patience=self.mechanism.patience,
                most_samples=self.terms.most_samples,
            )
            strategy.start(
                self.grid,
                self.models.get(start),
                num_rounds=self.terms.rounds - done,
                timeout=self.mechanism.timeout,
                train_config=config(request=self.name, seed=self.terms.seed),
            )
        self.ledger.add(self.name, "unlearned", model=self._detail(self.name, "round")["model"])

    def _settle(self, nodes: dict[int, int]) -> None:
        delivered: dict[int, int] = {}
        for event in self.ledger.events(self.name, "work"):
            delivered[event.client] = delivered.get(event.client, 0) + 1
        total = 0.0
        with self.ledger.transaction():
            for client, commitment in self.ledger.by_client(self.name, "commitment").items():
                terms = commitment.detail
                full = terms["price"] * (commitment.amount or 0.0)
                amount = full / terms["rounds"] * delivered.get(client, 0)
                if amount > 0.0:
                    self.ledger.add(
                        self.name,
                        "payment",
                        client=client,
                        amount=amount,
                        delivered=delivered[client],
                        agreed=terms["rounds"],
                    )
                    total += amount
            self.ledger.add(self.name, "settled", amount=total)

    def _measure(self, nodes: dict[int, int]) -> None:
        """Tell clients what they were paid, and let them look at the models. Nobody has to answer."""
        before = self.models.get(self._detail(self.name, "request")["before"])
        after = self.models.get(self._detail(self.name, "unlearned")["model"])
        have = self.ledger.by_client(self.name, "measure")
        gone = self._detail(self.name, "request")["gone"]
        payments = self.ledger.by_client(self.name, "payment")
        final = f"unlearning {self.terms.rounds}"
        faults = self.ledger.events(self.name, "fault")
        silent = {e.client for e in faults if e.detail["phase"] == final}  # nobody waits for the dead twice
        asked = {}
        for client in nodes:
            if client not in have and client not in gone and client not in silent:
                told = config(request=self.name)
                if client in payments:
                    told["amount"] = payments[client].amount or 0.0
                asked[client] = RecordDict({"before": before, "after": after, "config": told})
        answers = self._ask(nodes, MEASURE, asked)
        with self.ledger.transaction():
            for client, answer in answers.items():
                if isinstance(answer, Refusal):
                    continue
                self.ledger.add(self.name, "measure", client=client, measures=_read_measures(answer))
        distance = sum(
            float(((after[name].numpy() - before[name].numpy()).astype(np.float64) ** 2).sum())
            for name in before
        )
        self.ledger.add(self.name, "measured", amount=float(np.sqrt(distance)))

    def _close(self, nodes: dict[int, int]) -> None:
        self.ledger.add(self.name, "closed")
        write_audit(self.ledger, self.name, self.mechanism.folder)

    # ---------------------------------------------------------------- small things

    def _ask(
        self, nodes: dict[int, int], message_type: str, contents: Mapping[int, RecordDict]
    ) -> dict[int, RecordDict | Refusal]:
        return ask(self.grid, nodes, message_type, contents, self.mechanism.timeout)

    def _detail(self, request: str, kind: str) -> dict[str, Any]:
        event = self.ledger.last(request, kind)
        if event is None:
            raise StackfuError(f"{request or 'the run'}: no {kind} in the ledger")
        return event.detail

    def _leave_out(self, client: int, phase: str, problem: str) -> None:
        """Name a client and leave it out of the game, once; a removed client owes nobody an answer."""
        if client in self.ledger.by_client(self.name, "excluded"):
            return
        left = client in self._detail(self.name, "request")["removed"] and problem in (
            "did not answer",
            "has no node",
        )
        with self.ledger.transaction():
            if not left:
                self.ledger.add_fault(self.name, client, phase, problem)
            self.ledger.add(self.name, "excluded", client=client, phase=phase, problem=problem)


def _by_number(shares: Mapping[str, float]) -> list[str]:
    return [str(number) for number in sorted(int(client) for client in shares)]


def _offer_content(request: str, offer: Offer) -> RecordDict:
    settings = config(
        request=request,
        price=offer.price,
        cost=offer.cost,
        alpha=offer.alpha,
        lam=offer.lam,
        share=offer.share,
        total=offer.total,
        noise=offer.noise,
        own_noise=offer.own_noise,
    )
    return RecordDict({"config": settings, "arrays": numbers(aggregate=offer.aggregate, own=offer.own)})


def _read_share(answer: RecordDict | Refusal) -> float | Refusal:
    if isinstance(answer, Refusal):
        return answer
    try:
        share = float(metric(answer, "share"))
    except (KeyError, TypeError) as error:
        return Refusal(f"the reply is incomplete ({error})")
    if not (np.isfinite(share) and 0.0 <= share <= 1.0):
        return Refusal(f"takes part with a share of {share}")
    return share


def _read_measures(answer: RecordDict) -> dict[str, float]:
    """Take what a client measured, as long as it is numbers about the two models."""
    found: dict[str, float] = {}
    for name, value in answer.metric_records.get("metrics", MetricRecord()).items():
        about = name.partition(".")
        if (
            about[0] in ("before", "after")
            and about[2]
            and not isinstance(value, list)
            and np.isfinite(value)
        ):
            found[name] = float(value)
    return found
