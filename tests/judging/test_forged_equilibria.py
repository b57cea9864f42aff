"""A forger's test of saved equilibria and their games: every leaf of the file is moved, and is caught or shown to be still true.

The file itself is walked, so that a field which is added to it and not classified here fails. *Caught* means that the file does
not load or that ``verify`` refuses it. What passes must be effort or free text, must have moved by less than is claimed, or must
have left every claim true: that is shown by an independent search for gains and by enumerating the equilibria again.
"""

import json

import numpy as np
import pytest
from forging import changed, forgeries, leaves, name_of, read_unclaimed

import stackfu as sf

#: Leaves by the end of their name, and what a change of them means.
EFFORT = ("iterations", "seconds", "reason", "method", "version")
#: Claims about the profile: any change that shows is caught.
CLAIMS = (
    "participation", "regret", "residual", "status", "uniqueness", "face.clients", "face.lower", "face.upper",
    "face.dimension", "face.spend", "face.points", "face",
)  # fmt: skip
#: Context of the claims: another game, other payments, other caps, for which all claims must be true where they pass.
SUBJECT = (
    "payments", "caps", "game.embeddings.features", "game.embeddings.gram", "game.embeddings.complement", "game.sizes",
    "game.costs", "game.lambda_q", "game.loss_constant", "game.sampling_constant", "game.removed",
)  # fmt: skip
#: Parts of the game that no client's utility depends on, and labels.
SERVER = (
    "game.lambda_v", "game.lambda_s", "game.calibrated", "game.server_loss", "game.names", "game.embeddings.bandwidth",
    "game.embeddings.names", "game.embeddings.self_similarity", "game.embeddings.kernel", "game.currency",
)  # fmt: skip
#: Words that say how the file is to be read.
READING = ("format", "kind", "dtype", "shape", "form")
#: Undetectable changes of a number, because the claim has no more digits.
DIGITS = {
    "regret": 1e-11,
    "residual": 1.1e-9,
    "face.lower": 1.1e-7,
    "face.upper": 1.1e-7,
    "face.spend": 1.1e-7,
}


def plain():
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.25, 1.0]])
    return sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(points), [1, 2, 1], costs=[2.0, 4.0, 2.0]
    ).equilibrium([0.1, 0.0, 0.2])


def capped():
    gram = np.array([[1.0, 0.2, 0.1, 0.3], [0.2, 1.0, 0.0, 0.1], [0.1, 0.0, 1.0, 0.4], [0.3, 0.1, 0.4, 1.0]])
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_gram(gram), [3, 2, 4, 1], (3,), costs=[0.5, 0.8, 1.5], sampling_constant=0.2
    )
    return game.equilibrium([0.1, 0.2, 0.0], caps=[0.9, 0.5, 1.0])


def twins():
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(np.array([[0.0], [0.0], [1.0]])),
        [1.0, 1.0, 1.0],
        costs=[0.3, 0.4, 0.3],
    )
    return game.equilibrium([0.0, 0.1, 0.0])


def family(name):
    """Return the kind of a field; None if it has none yet."""
    last = name.rsplit(".", 1)[-1]
    if last in READING:
        return "reading"
    for kind, names in (("effort", EFFORT), ("claim", CLAIMS), ("subject", SUBJECT), ("server", SERVER)):
        if name in names:
            return kind
    return None


def claims_less(name, forged):
    """UNKNOWN and a status without proof claim less than is proved."""
    return (name == "uniqueness" and forged == "UNKNOWN") or (name == "status" and forged != "CERTIFIED")


def still_true(eq):
    """By an independent search: no client gains, and there are as many equilibria as claimed."""
    game, x, most = eq.game, eq.participation, eq.game.check_caps(eq.caps)
    now = game.client_utilities(eq.payments, x)
    stakes = np.maximum(np.maximum(game.costs, eq.payments), game.lam * game.profile(x).to_clients)
    for k in range(game.count):
        for share in np.linspace(0.0, most[k], 41):
            other = np.array(x)
            other[k] = share
            if other.any() and game.client_utilities(eq.payments, other)[k] > now[k] + 1e-8 * stakes[k]:
                return False
    return eq.uniqueness in (sf.Uniqueness.UNKNOWN, game.equilibria(eq.payments, caps=eq.caps).uniqueness)


@pytest.mark.parametrize("make", [plain, capped, twins])
def test_every_leaf_of_a_saved_equilibrium_is_caught_or_still_true(make, tmp_path):
    make().save(tmp_path / "true.json")
    record = read_unclaimed(tmp_path / "true.json")
    assert sf.load(tmp_path / "true.json").verify()
    caught, wrong = 0, []
    for path, value in leaves(record):
        name = name_of(path)
        kind = family(name)
        assert kind is not None, f"{name} is in the file, and no test says what a forged one means"
        if kind in ("effort", "reading", "server"):
            continue
        for forged in forgeries(value):
            (tmp_path / "forged.json").write_text(json.dumps(changed(record, path, forged)))
            try:
                eq = sf.load(tmp_path / "forged.json")
            except sf.StackfuError:
                caught += 1
                continue
            if not eq.verify():
                caught += 1
            elif kind == "claim":
                small = isinstance(forged, float) and abs(forged - value) <= DIGITS.get(name, 0.0)
                if not small and not claims_less(name, forged):
                    wrong.append((name, value, forged))
            elif not still_true(eq):
                wrong.append((name, value, forged))
    assert not wrong, wrong[:20]
    assert caught > 60


@pytest.mark.parametrize("make", [plain, capped, twins])
def test_what_no_client_cares_about_changes_no_claim(make, tmp_path):
    """Weights of the server's loss, labels: the same clients' game, so every claim stands."""
    make().save(tmp_path / "true.json")
    record = read_unclaimed(tmp_path / "true.json")
    for path, value in leaves(record):
        if family(name_of(path)) != "server" or not isinstance(value, float):
            continue
        (tmp_path / "other.json").write_text(json.dumps(changed(record, path, value * 2 + 1)))
        assert sf.load(tmp_path / "other.json").verify()
