"""Terms that the server states before the first answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from decimal import ROUND_DOWN, Decimal
from typing import Any, Literal, get_args

from stackfu.cli.parsing import words
from stackfu.embedding.names import name_of
from stackfu.errors import InputError
from stackfu_integration.flower.methods import METHODS, Unlearning, degradation_rounds
from stackfu_integration.flower.naming import Naming, one_line
from stackfu_integration.lab.mechanisms import CERTIFIED, known_options

__all__ = ["EPSILON", "LEAST_COSINE", "Terms"]

OfferKind = Literal["linear", "capped"]
Aggregation = Literal["mean", "clipped", "trimmed", "krum", "secure"]

EPSILON = 4.0  # privacy of one embedding, unless the terms say otherwise: docs/howto/private_embeddings.md measures it
LEAST_COSINE = -0.1  # mean cosine of a client's updates: measured by stackfu_integration.flower.directions

_OPTIONAL = ("budget", "bandwidth", "epsilon", "decimals", "certify_l2")
_EMBEDDING = (
    "features",
    "bandwidth",
    "bandwidth_epsilon",
    "epsilon",
    "delta",
    "seed",
    "secure_sum",
    "sizes",
    "size_factor",
)


@dataclass(frozen=True)
class Terms:
    """Terms that the server states before the first answer.

    ``budget`` is the most that a removal may cost; without it, ``budget_share`` of the price of full
    participation. A client's cost of full participation is ``cost_scale`` times its share of all data, unless
    ``costs`` states it or ``cost_intervals`` states two ends, of which the upper one is planned with: a client
    with a lower cost only brings more. Both are by client name, or by number if there are no names.
    Payments are in ``currency``,
    rounded down to ``decimals`` places where that is given.

    ``epsilon`` and ``delta`` are the privacy of one embedding (:mod:`.privacy`); ``None`` asks for no noise.
    ``bandwidth`` of ``None`` asks every client for the median distance in its own data, with privacy of
    ``bandwidth_epsilon``, and takes the median of the answers, weighted by size. ``secure_sum`` lets the server
    see the embeddings of removed clients as a sum only, where several leave; ``erase`` deletes all embeddings
    when the request is settled.

    ``sizes`` states how many samples the operator expects of clients, each as one number or as two ends: a client that claims
    another number is left out. Of all others, a client that claims more than ``size_factor`` times the median of the claims is.

    ``unlearning`` is one of :mod:`.methods`: ``"retrain"`` from the first model, which never meets the removed data,
    ``"continue"`` from the trained one, and others, of which some need work of those who leave. ``head`` names the arrays that
    ``"head"`` and ``"shards"`` train on and ``"convex-head"`` and ``"newton"`` bring to their optimum; ``recovery_noise`` is the
    deviation of the noise of ``"fedrecovery"``, and ``shards`` how many models ``"shards"`` trains.

    ``finite_sample`` lets the loss know how many samples take part, so that money
    left over buys data, and ``min_total`` is a floor on the share of the remaining data that takes part. ``offers`` are
    ``"linear"``, a price for any share, or ``"capped"``, a price for shares up to a cap: then the plan is the only
    equilibrium, and no behaviour and no lower cost can spend more than planned. Capped is the default of the certified
    method, linear that of the others: where their payments lead can be posted as capped offers too. ``tolerance`` is the
    largest difference in shares that counts as not moving. ``method`` is a mechanism registered with stackfu.

    ``aggregation`` is how updates become a model (:mod:`.robust`), ``clip_factor`` and ``trim`` its parameters;
    ``"secure"`` is the mean, of which the server sees the sum alone (:mod:`.secure_sum`) and can therefore check nothing.
    Work passes when its update is at least ``least_norm`` of the median norm, and the client's cosines with the
    reference are at least ``least_cosine`` on average; -1 refuses no direction. The default refuses flipped signs, and
    next to no honest client unless clients hardly share a label (:mod:`.directions` has the rates; -1 is right there).
    ``spot_checks`` is the share of work that is asked for again.

    ``certify_l2`` asks the participants for the gradient of their loss at the unlearned model, a softmax head: the audit
    then bounds how far it is from the head that minimises their mean loss plus ``certify_l2 / 2 |w|^2``, and has never
    met the removed data (:mod:`.phases.evidence`). ``"convex-head"`` and ``"newton"`` train that head, and stop when it is within
    ``certify_distance`` of the optimum. What ``"newton"`` releases has enough noise that readers cannot distinguish it from the
    optimum with the same noise: by more than ``removal_epsilon``, but for a probability of ``removal_delta``.

    ``strategy`` names the strategy of Flower's that chooses clients in the rounds of unlearning;
    :meth:`.UnlearningMechanism.remove` states it. Without one no client is paid for a round in which it was not asked.

    ``deadline`` is how many seconds a request may take in all, ``attempt_seconds`` how many the clients have to agree
    to one set of offers.
    """

    budget: float | None = None
    budget_share: float = 0.5
    cost_scale: float = 10.0
    costs: Mapping[str, float] = field(default_factory=dict)
    cost_intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    size_factor: float = 100.0
    currency: str = ""
    decimals: int | None = None
    lambda_v: float = 1.0
    lambda_s: float = 1.0
    lambda_q: float = 1.0
    loss_constant: float = 10.0
    features: int = 64
    bandwidth: float | None = None
    bandwidth_epsilon: float = 0.5
    epsilon: float | None = EPSILON
    delta: float = 1e-5
    seed: int = 0
    secure_sum: bool = True
    erase: bool = True
    unlearning: Unlearning = "retrain"
    head: tuple[str, ...] = ()
    recovery_noise: float = 0.02
    shards: int = 3
    rounds: int = 10
    method: str = CERTIFIED
    offers: OfferKind | None = None
    finite_sample: bool = True
    min_total: float = 0.0
    time_limit: float = 60.0
    announcements: int = 60
    damping: float = 0.5
    tolerance: float = 1e-6
    most_samples: int = 10_000_000
    aggregation: Aggregation = "clipped"
    clip_factor: float = 4.0
    trim: float = 0.2
    least_norm: float = 0.01
    least_cosine: float = LEAST_COSINE
    spot_checks: float = 0.0
    certify_l2: float | None = None
    certify_distance: float = 0.01
    removal_epsilon: float = 1.0
    removal_delta: float = 1e-5
    deadline: float = 7 * 86_400.0
    attempt_seconds: float = 86_400.0
    strategy: str = ""

    def __post_init__(self) -> None:
        self._make_plain()
        self._check_choices()
        self._check_money()
        self._check_embeddings()
        self._check_offers()
        self._check_rounds()
        self._check_unlearning()

    def _make_plain(self) -> None:
        object.__setattr__(self, "costs", _stated(self.costs, "costs", float))
        object.__setattr__(
            self,
            "cost_intervals",
            _stated(self.cost_intervals, "cost_intervals", lambda ends: (float(ends[0]), float(ends[1]))),
        )
        object.__setattr__(self, "sizes", _stated(self.sizes, "sizes", _two_ends))
        object.__setattr__(self, "head", tuple(str(name) for name in self.head))

    def _check_choices(self) -> None:
        known_options(self.method)  # refuses what nobody registered
        if self.offers is None:
            object.__setattr__(self, "offers", "capped" if self.method == CERTIFIED else "linear")
        for name, allowed in (
            ("unlearning", Unlearning),
            ("offers", OfferKind),
            ("aggregation", Aggregation),
        ):
            if getattr(self, name) not in get_args(allowed):
                raise InputError(
                    name, f"must be one of {', '.join(get_args(allowed))}", value=getattr(self, name)
                )

    def _check_money(self) -> None:
        if self.budget is not None and not 0 <= self.budget < math.inf:
            raise InputError("budget", "must be a number that is not negative", value=self.budget)
        if not 0 < self.budget_share <= 1:
            raise InputError("budget_share", "must be in (0, 1]", value=self.budget_share)
        for client, cost in self.costs.items():
            if not 0 <= cost < math.inf:
                raise InputError(
                    "costs", f"of client {client} must be a number that is not negative", value=cost
                )
        for client, ends in self.cost_intervals.items():
            if not 0 <= ends[0] <= ends[1] < math.inf:
                raise InputError(
                    "cost_intervals", f"of client {client} must be two ends in order", value=ends
                )
            if client in self.costs:
                raise InputError("cost_intervals", f"client {client} has a cost already", value=ends)
        for client, (least, most) in self.sizes.items():
            if not 1 <= least <= most:
                raise InputError(
                    "sizes", f"of client {client} must be positive, in order", value=(least, most)
                )
        if not 1 <= self.size_factor < math.inf:
            raise InputError("size_factor", "must be at least 1, and finite", value=self.size_factor)
        for name in ("currency", "strategy"):
            if one_line(getattr(self, name)) != getattr(self, name):
                raise InputError(
                    name,
                    "is one line without control characters and marks of Markdown",
                    value=getattr(self, name),
                )
        if self.decimals is not None and not 0 <= self.decimals <= 12:
            raise InputError("decimals", "must be between 0 and 12", value=self.decimals)

    def _check_embeddings(self) -> None:
        if self.epsilon is not None and not 0 < self.epsilon < math.inf:
            raise InputError("epsilon", "must be positive; None asks for no noise", value=self.epsilon)
        if self.bandwidth is not None and not 0 < self.bandwidth < math.inf:
            raise InputError("bandwidth", "must be positive", value=self.bandwidth)
        if not 0 < self.bandwidth_epsilon < math.inf:
            raise InputError("bandwidth_epsilon", "must be positive", value=self.bandwidth_epsilon)
        if not 0 < self.delta < 1:
            raise InputError("delta", "must be between 0 and 1", value=self.delta)
        if self.features < 1:
            raise InputError("features", "must be at least 1", value=self.features)

    def _check_offers(self) -> None:
        if not 0 <= self.min_total <= 1:
            raise InputError("min_total", "must be in [0, 1]", value=self.min_total)
        least = self.method != CERTIFIED or self.finite_sample or self.min_total > 0.0
        if self.offers == "capped" and not least:
            raise InputError(
                "finite_sample",
                "capped offers need it, or a floor (min_total): a mixture alone is reached with next to no data",
                value=self.finite_sample,
            )
        if self.announcements < 1:
            raise InputError("announcements", "must be at least 1", value=self.announcements)
        if not 0 < self.damping <= 1:
            raise InputError("damping", "must be in (0, 1]", value=self.damping)

    def _check_rounds(self) -> None:
        """Return the terms of training: rounds, aggregation, checks of updates, and waiting times."""
        if self.rounds < 1:
            raise InputError("rounds", "must be at least 1", value=self.rounds)
        if not self.clip_factor >= 1:
            raise InputError("clip_factor", "must be at least 1", value=self.clip_factor)
        if not 0 <= self.trim < 0.5:
            raise InputError("trim", "must be in [0, 0.5)", value=self.trim)
        if not -1 <= self.least_cosine <= 1:
            raise InputError("least_cosine", "must be in [-1, 1]", value=self.least_cosine)
        if self.aggregation == "secure" and self.spot_checks > 0:
            raise InputError(
                "spot_checks",
                "show single updates; with secure aggregation it must be 0",
                value=self.spot_checks,
            )
        if not 0 <= self.spot_checks <= 1:
            raise InputError("spot_checks", "must be in [0, 1]", value=self.spot_checks)
        for name in ("deadline", "attempt_seconds"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(name, "must be positive and finite", value=getattr(self, name))

    def _check_unlearning(self) -> None:
        method = METHODS[self.unlearning]
        if self.aggregation == "secure" and method.single:
            raise InputError(
                "aggregation", f"{method.name} needs to see single updates", value=self.aggregation
            )
        if method.head != bool(self.head):
            known = ", ".join(name for name, other in METHODS.items() if other.head)
            raise InputError(
                "head",
                f"names the arrays that are trained, where unlearning is one of {known}",
                value=self.head,
            )
        if method.gradients and self.certify_l2 is None:
            raise InputError("certify_l2", f"is the penalty of {self.unlearning}, and must be stated")
        if method.gradients and self.aggregation not in ("mean", "clipped", "secure"):
            raise InputError(
                "aggregation",
                f"of {self.unlearning} is mean, clipped or secure: other rules are no sum of gradients, and where they stop is no "
                "optimum of anybody's loss",
                value=self.aggregation,
            )
        if not 0 < self.removal_epsilon < math.inf or not 0 < self.removal_delta < 1:
            raise InputError(
                "removal_epsilon",
                "must be positive, and removal_delta between 0 and 1",
                value=(self.removal_epsilon, self.removal_delta),
            )
        if self.shards < 2:
            raise InputError("shards", "must be at least 2", value=self.shards)
        if not 0 < self.certify_distance < math.inf:
            raise InputError("certify_distance", "must be positive", value=self.certify_distance)
        if not 0 <= self.recovery_noise < math.inf:
            raise InputError("recovery_noise", "must not be negative", value=self.recovery_noise)
        if self.unlearning == "mode" and degradation_rounds(self.rounds) < 1:
            raise InputError("rounds", "MoDe needs at least 3", value=self.rounds)
        if self.certify_l2 is not None and not 0 < self.certify_l2 < math.inf:
            raise InputError("certify_l2", "must be positive; None asks for no bound", value=self.certify_l2)

    def shard_of(self, client: int) -> int:
        """Return the shard that a client is dealt to."""
        return client % self.shards

    def stated(self) -> dict[str, Any]:
        """Return the terms as plain values, as the ledger keeps them."""
        plain = asdict(self)
        plain["cost_intervals"] = {client: list(ends) for client, ends in self.cost_intervals.items()}
        plain["sizes"] = {client: list(ends) for client, ends in self.sizes.items()}
        return plain

    @classmethod
    def restated(cls, stated: Mapping[str, Any]) -> Terms:
        """Read terms back from the ledger; terms of another version are refused."""
        known = {f.name for f in fields(cls)}
        other = sorted(set(stated) - known)
        if other:
            raise InputError("terms", f"of another version: nothing is known of {', '.join(other)}")
        return cls(**stated)

    def concern_embeddings(self, other: Terms) -> list[str]:
        """Return the differences between two terms in the embeddings, which an amendment cannot change."""
        return [name for name in _EMBEDDING if getattr(self, name) != getattr(other, name)]

    def cost_of(self, client: int, who: Naming, share_of_data: float) -> float:
        """Return the cost that is planned with for a client that holds this share of all data.

        >>> terms = Terms(costs={"York": 5.0}, cost_intervals={"2": (1.0, 3.0)})
        >>> terms.cost_of(1, Naming(("2", "York")), 0.1), terms.cost_of(0, Naming(("2", "York")), 0.1)
        (5.0, 3.0)
        """
        for key in _keys(client, who):
            if key in self.costs:
                return self.costs[key]
            if key in self.cost_intervals:
                return self.cost_intervals[key][1]
        return self.cost_scale * share_of_data

    def refused_size(self, client: int, who: Naming, size: int, median: float | None) -> str | None:
        """Return why a number of samples that a client claims does not count, or ``None``; without a median none is too large.

        >>> terms = Terms(sizes={"York": (400, 500)}, size_factor=10.0)
        >>> terms.refused_size(1, Naming(("Leeds", "York")), 9_000, 300.0)
        'claims 9000 samples, and 400 to 500 are expected of it'
        >>> terms.refused_size(0, Naming(("Leeds", "York")), 9_000, 300.0)
        'claims 9000 samples, more than 10 times the median of all clients (300)'
        """
        for key in _keys(client, who):
            if key in self.sizes:
                least, most = self.sizes[key]
                expected = f"{least}" if least == most else f"{least} to {most}"
                return (
                    None
                    if least <= size <= most
                    else f"claims {size} samples, and {expected} are expected of it"
                )
        if median is not None and size > self.size_factor * median:
            return f"claims {size} samples, more than {self.size_factor:g} times the median of all clients ({median:g})"
        return None

    def least_cost_of(self, client: int, who: Naming) -> float | None:
        """Return the lower end of a client's cost interval, if it has one."""
        for key in _keys(client, who):
            if key in self.cost_intervals:
                return self.cost_intervals[key][0]
        return None

    def rounded(self, amount: float) -> float:
        """Return an amount of money as it is paid: rounded down to the least coin, so that no rule is broken by rounding.

        >>> Terms(decimals=2).rounded(1.019), Terms().rounded(1.019)
        (1.01, 1.019)
        """
        if self.decimals is None:
            return amount
        return float(Decimal(repr(amount)).quantize(Decimal(1).scaleb(-self.decimals), rounding=ROUND_DOWN))

    @property
    def stated_decimals(self) -> int:
        """``decimals`` as messages state it, in which there is no "nothing": -1."""
        return -1 if self.decimals is None else self.decimals

    @classmethod
    def from_config(cls, run_config: Mapping[str, Any]) -> Terms:
        """Take the terms out of a Flower run config, where they are written with dashes.

        A run config cannot hold "nothing". For ``budget``, ``bandwidth``, ``epsilon``, ``decimals`` and ``certify_l2``, empty text
        stands for what holds when nothing is said, and ``"none"`` for ``None``; a number is a number, and 0 is 0.
        ``head`` is written as ``"fc.weight,fc.bias"``, ``costs`` as ``"Leeds=3.5,York=2"``, intervals as ``"Leeds=3:4"``,
        ``sizes`` as ``"Leeds=450,York=300:320"``; an entry that holds a comma stands in quotation marks.

        >>> Terms.from_config({"budget": "0", "epsilon": "none", "learning-rate": 0.1}).budget
        0.0
        """
        known = {field.name: field.name.replace("_", "-") for field in fields(cls)}
        given = {name: run_config[key] for name, key in known.items() if key in run_config}
        for name in _OPTIONAL:
            if name in given and isinstance(given[name], str):
                text = given[name].strip().lower()
                if text == "":
                    del given[name]
                else:
                    number = int if name == "decimals" else float
                    given[name] = None if text == "none" else _number(name, text, number)
        if isinstance(given.get("head"), str):
            given["head"] = tuple(words(given["head"]))
        for name in ("costs", "cost_intervals", "sizes"):
            if isinstance(given.get(name), str):
                pairs = [pair.rpartition("=") for pair in words(given[name])]
                values = dict[str, list[Any]]()
                for client, _, text in pairs:
                    if client.strip() in values:
                        raise InputError(name, "is given twice", client=client.strip())
                    number = int if name == "sizes" else float
                    values[client.strip()] = [_number(name, part, number) for part in text.split(":")]
                allowed = {"costs": (1,), "cost_intervals": (2,), "sizes": (1, 2)}[name]
                if any(len(value) not in allowed for value in values.values()):
                    raise InputError(
                        name, "must look like Leeds=3.5 or, for intervals, Leeds=3:4", value=given[name]
                    )
                given[name] = {k: v[0] for k, v in values.items()} if name == "costs" else values
        return cls(**given)


def _two_ends(stated: Any) -> tuple[int, int]:
    """Return the two ends of a number of samples that is stated as one number or as two."""
    ends = stated if isinstance(stated, (list, tuple)) else (stated, stated)
    if not 1 <= len(ends) <= 2 or any(int(end) != end for end in ends):
        raise ValueError("whole numbers, one or two")
    return int(ends[0]), int(ends[-1])


def _stated(stated: Any, argument: str, plain: Callable[[Any], Any]) -> dict[str, Any]:
    """Return what is stated of clients by name; a client of whom two things are stated is refused."""
    if not hasattr(stated, "items"):
        raise InputError(argument, "must be by client name: a dictionary or a series", value=repr(stated))
    found: dict[str, Any] = {}
    for key, value in stated.items():
        name = name_of(key, argument)
        if name in found:
            raise InputError(argument, "is given twice", client=name)
        try:
            found[name] = plain(value)
        except (TypeError, ValueError, LookupError):
            raise InputError(
                argument, "must be a number, or two for an interval", client=name, value=repr(value)
            ) from None
    return found


def _keys(client: int, who: Naming) -> tuple[str, ...]:
    """Return the keys under which terms may state a client's cost: its name, and its number where no client has that name.

    New requests name clients; ledgers of earlier versions may hold numbers of clients that have names.
    """
    number = str(client)
    return (who(client),) if number in who.names else (who(client), number)


def _number(name: str, text: str, kind: type[float] | type[int]) -> float:
    try:
        return kind(text)
    except ValueError as error:
        raise InputError(name, "must be a number, empty, or none", value=text) from error
