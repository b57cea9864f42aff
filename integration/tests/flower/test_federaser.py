"""FedEraser on Flower, compared with the lab's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAvg
from hypothesis import given
from hypothesis import strategies as st
from scene import REMOVED, TERMS, TRAINING_ROUNDS, Averager, Scene, initial

from stackfu.errors import InputError
from stackfu_integration.flower import Terms
from stackfu_integration.flower.robust import lengths_of, recalibrated
from stackfu_integration.flower.verification import verify
from stackfu_integration.lab.unlearning.federaser import rescale

REPLAY = replace(TERMS, unlearning="federaser", rounds=TRAINING_ROUNDS, aggregation="mean")


def record(weight, bias, counter=0):
    return ArrayRecord({"w": Array(weight), "b": Array(bias), "seen": Array(np.asarray(counter))})


@given(st.integers(0, 10**6), st.sampled_from([0.0, 1e-3, 1.0, 1e3]))
def test_updates_are_rescaled_as_in_the_lab(seed, scale):
    """Array by array, as the lab does parameter by parameter; counters are left alone."""
    rng = np.random.default_rng(seed)
    sent = record(rng.normal(size=(3, 2)), rng.normal(size=3), 4)
    now = record(
        sent["w"].numpy() + rng.normal(size=(3, 2)), sent["b"].numpy() + scale * rng.normal(size=3), 9
    )
    old = record(sent["w"].numpy() + rng.normal(size=(3, 2)), sent["b"].numpy() + rng.normal(size=3), 7)

    def flat(model):
        return torch.tensor(
            np.concatenate([(model[n].numpy() - sent[n].numpy()).ravel() for n in ("w", "b")])
        )

    ours = recalibrated(now, sent, lengths_of(old, sent))
    theirs = rescale(flat(now), flat(old), (slice(0, 6), slice(6, 9)))
    assert flat(ours).numpy() == pytest.approx(theirs.numpy(), rel=1e-9, abs=1e-9)
    assert ours["seen"].numpy() == 9


def test_a_replay_never_asks_the_removed_clients_and_has_the_lengths_of_training(scene):
    facts = Scene(scene.folder, terms=REPLAY).run()
    assert facts["aborted"] is None
    assert facts["faults"] == []
    assert verify(scene.folder).misfit is None
    assert "the lengths still depend on the removed data" in (scene.folder / "audit-r1.md").read_text()
    # worked out by hand from the clients' data and the agreed shares
    shares = {c["client"]: c["share"] for c in facts["clients"] if c["share"] > 0}
    data = {c: Averager.data_of(c) for c in range(8)}
    sizes = {c: len(d) for c, d in data.items()}
    trained, replayed = np.zeros(3), np.zeros(3)
    for _ in range(TRAINING_ROUNDS):
        old = {c: 0.5 * (d.mean(0) - trained) for c, d in data.items()}
        used = {c: data[c][: round(x * sizes[c])] for c, x in shares.items()}
        new = {c: 0.5 * (d.mean(0) - replayed) for c, d in used.items()}
        steps = {c: u * np.linalg.norm(old[c]) / np.linalg.norm(u) for c, u in new.items()}
        total = sum(len(d) for d in used.values())
        replayed = replayed + sum(len(used[c]) / total * steps[c] for c in steps)
        trained = trained + sum(sizes[c] * old[c] for c in old) / sum(sizes.values())
    mechanism = Scene(scene.folder, terms=REPLAY).mechanism()
    assert mechanism.model("r1")["mean"].numpy() == pytest.approx(replayed, abs=1e-5)


def test_what_was_not_stored_is_not_replayed(scene):
    with pytest.raises(InputError, match="has the lengths of 2"):
        Scene(scene.folder, terms=replace(REPLAY, rounds=3)).run()
    adopting = Scene(scene.folder.parent / "adopted", terms=replace(REPLAY, rounds=1))
    mechanism, grid = adopting.mechanism(), adopting.grid()
    mechanism.adopt(ArrayRecord({"mean": Array(np.ones(3, dtype=np.float32))}), initial())
    with pytest.raises(InputError, match="has the lengths of 0"):
        mechanism.remove(grid, REMOVED)


def test_what_does_not_go_together_is_refused(scene):
    with pytest.raises(InputError, match="single updates"):
        Terms(unlearning="federaser", aggregation="secure")
    replay = Scene(scene.folder, terms=REPLAY)
    mechanism, grid = replay.mechanism(), replay.grid()
    mechanism.train(grid, initial(), TRAINING_ROUNDS)
    with pytest.raises(InputError, match="one of its own"):
        mechanism.remove(grid, REMOVED, strategy=FedAvg())
