"""Many clients: the convex program at one total and general solvers, certified payments by size, and other players.

One federation per size: clusters of clients whose costs differ by cluster and by client, a budget that binds, 64 features (128 from
10,000 clients on). Everything is processor time on one core. A peer that took longer than :data:`PATIENCE` at one size is not asked
at the next; growth is the exponent fitted over the sizes that it did.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

import stackfu as sf
from stackfu_bench.peers.leader import by_evolution, by_ipopt, federation, judged
from stackfu_bench.peers.slices import Slice
from stackfu_bench.peers.table import Row, fitted_exponent

#: Processor seconds after which a peer is not asked about more clients.
PATIENCE = 60.0
#: A peer is done when value and constraints are this close, relative to the optimal value.
CLOSE = 1e-3
#: Clients, and the seconds that are wanted for a thousandth of the unpaid loss.
WANTED = {300: 15, 1_000: 15, 3_000: 30, 10_000: 60, 100_000: 120}


def clusters(clients: int, share: float = 0.05) -> tuple[sf.StackelbergGame, float]:
    """Clusters of clients with heterogeneous costs, and a budget that binds."""
    from stackfu_bench.benchmarks.leader import federation_of

    game, _ = federation_of(clients, 64 if clients < 10_000 else 128)
    return game, share * game.full_participation_price


def programs(quick: bool) -> list[Row]:
    """Time to ``CLOSE`` on the program at one S, by size."""
    took: dict[str, dict[int, float]] = {}
    notes: dict[tuple[str, int], str] = {}
    for clients in (300, 1_000) if quick else (300, 1_000, 3_000, 10_000):
        case = Slice.of(*clusters(clients, 0.02))
        case.by_stackfu(0.0)  # compile
        began = time.process_time()
        answer = case.by_stackfu(0.0)
        took.setdefault("stackfu", {})[clients] = time.process_time() - began
        best = case.judged(answer.z)[0]
        limits = {"eps_abs": 1e-6, "eps_rel": 1e-6, "max_iters": 10**6, "time_limit_secs": PATIENCE}
        peers: dict[str, Callable[[], tuple[float, np.ndarray | None]]] = {
            "Clarabel": partial(case.by_cone_solver, "CLARABEL", time_limit=PATIENCE),
            "SCS": partial(case.by_cone_solver, "SCS", **limits),
            "ECOS": partial(case.by_cone_solver, "ECOS"),
            "PDHG (restarted, NumPy)": partial(case.by_pdhg, PATIENCE, best, CLOSE * best),
        }
        for name, solve in peers.items():
            before = took.setdefault(name, {})
            if any(s >= PATIENCE for s in before.values()):
                continue
            try:
                seconds, z = solve()
            except Exception as error:  # a peer that is not installed, or gives up
                notes[name, clients] = f"failed: {type(error).__name__}"
                continue
            before[clients] = seconds
            value, broken = (np.inf, np.inf) if z is None else case.judged(z)
            off = max(abs(value - best), broken) / best
            notes[name, clients] = f"off by {off:.1e}" if np.isfinite(off) else "gave up"
    rows = []
    for name, times in took.items():
        if name == "stackfu":
            continue
        for clients, seconds in times.items():
            note = notes.get((name, clients), "")
            if clients == max(times) and len(times) > 1:
                mine = fitted_exponent(list(times), [took["stackfu"][n] for n in times])
                note += f"; growth N^{fitted_exponent(list(times), list(times.values())):.2f}, stackfu N^{mine:.2f}"
            rows.append(
                Row(
                    f"program at one S, {clients} clients", name, took["stackfu"][clients], seconds, note=note
                )
            )
    return rows


def payments(quick: bool) -> list[Row]:
    """Certified payments to a thousandth of the unpaid loss."""
    rows, times = [], {}
    for clients, wanted in WANTED.items():
        if quick and clients > 1_000:
            continue
        game, budget = clusters(clients)
        unpaid = game.equilibrium().server_loss
        if not times:
            game.solve(budget, gap=0.1)  # compile
        began = time.process_time()
        solution = game.solve(budget, gap=1e-3, time_limit=10.0 * wanted)
        times[clients] = time.process_time() - began
        note = f"gap {solution.gap / unpaid:.1e} of the unpaid loss, {solution.status.name.lower()}"
        if len(times) > 1:
            note += f"; growth so far N^{fitted_exponent(list(times), list(times.values())):.2f}"
        rows.append(
            Row(f"certified payments, {clients} clients", "time allowed", times[clients], float(wanted), target=1.0, note=note,
                extra={"relative_gap": solution.gap / unpaid})
        )  # fmt: skip
    return rows


def searches(quick: bool) -> list[Row]:
    """Return the results of searches without a bound at sizes they can handle."""
    rows = []
    for clients in (12,) if quick else (12, 30):
        game, budget = federation(np.random.default_rng([5, clients, 0]), clients)
        game.solve(budget)
        began = time.process_time()
        best = game.solve(budget)
        ours = time.process_time() - began
        for name, solve in (
            ("differential evolution", by_evolution),
            ("Ipopt, 5 starts", by_ipopt(clients, 5)),
        ):
            began = time.process_time()
            found = judged(game, budget, *solve(game, budget))
            took = time.process_time() - began
            rows.append(
                Row(f"payments, {clients} clients", name, ours, took,
                    note=f"loss x{found / best.server_loss:.3f} of the certified one; never a bound")
            )  # fmt: skip
    return rows


def run(quick: bool = False) -> list[Row]:
    """All three tables."""
    return programs(quick) + payments(quick) + searches(quick)
