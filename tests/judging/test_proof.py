"""Certificates: what they prove, what they refuse, and that a tampered file is caught."""

import json
from dataclasses import replace

import numpy as np
import pytest

import stackfu as sf
from stackfu.judging import proof
from stackfu.judging.proof import Certificate, check_certificate


def small_game(**options):
    emb = sf.MeanEmbeddings.from_features(np.array([[0.0, 0.0], [1.0, 0.0], [0.25, 1.0], [0.3, 0.2]]))
    return sf.StackelbergGame(emb, [1, 2, 1, 3], **{"costs": [2.0, 4.0, 0.1, 3.0], **options})


def twins():
    emb = sf.MeanEmbeddings.from_features(np.array([[0.0], [0.0], [1.0]]))
    return sf.StackelbergGame(emb, [1, 1, 2], costs=[2.0, 2.0, 4.0])


@pytest.fixture
def equilibrium():
    return small_game().equilibrium()


def test_box_encloses_the_equilibrium(equilibrium, tmp_path):
    certificate = equilibrium.prove()
    assert certificate.exact
    assert certificate.radius < 1e-13
    assert certificate.regret < 1e-24
    assert set(certificate.places) == {"0", "1", "*"} or "*" in certificate.places
    certificate.save(tmp_path / "c.json")
    assert check_certificate(tmp_path / "c.json") == certificate
    assert certificate.check() is certificate
    assert "exactly one equilibrium" in str(certificate)


def test_box_agrees_with_exact_arithmetic():
    """Two equal clients at distance 1 with w = 2: d^2 = 1/4 = S w, so S = 1/8 and x = 1/8 exactly."""
    emb = sf.MeanEmbeddings.from_features(np.array([[0.0], [1.0]]))
    eq = sf.StackelbergGame(emb, [1, 1], costs=[2.0, 2.0]).equilibrium()
    certificate = eq.prove()
    centres = [int(m, 16) * 2.0**e for m, e in certificate.centre]
    assert centres == pytest.approx([1 / 16, 1 / 16], abs=1e-60)
    assert eq.participation == pytest.approx([1 / 8, 1 / 8], abs=1e-15)


@pytest.mark.parametrize("k", range(4))
@pytest.mark.parametrize("step", [1e-6, 1e-4, 0.1])
def test_moved_point_is_refused(equilibrium, k, step):
    x = np.array(equilibrium.participation)
    x[k] += step if x[k] < 0.5 else -step
    with pytest.raises(sf.VerificationError, match="could not be proved"):
        replace(equilibrium, participation=x).prove()


def test_whole_point_moved_is_refused(equilibrium):
    x = np.clip(equilibrium.participation * (1 + 1e-6), 0, 1)
    with pytest.raises(sf.VerificationError):
        replace(equilibrium, participation=x).prove()


def test_wrong_payments_are_refused(equilibrium):
    with pytest.raises(sf.VerificationError):
        replace(equilibrium, payments=equilibrium.payments + 1e-3).prove()


def test_continuum_gets_a_regret_bound_and_refuses_moves_across_it():
    eq = twins().equilibrium()
    certificate = eq.prove()
    assert certificate.kind == "regret"
    assert certificate.regret < 1e-20
    assert check_certificate(certificate) is certificate
    assert "degenerate" in str(certificate)
    x = np.array(eq.participation)
    x[2] -= 1e-6
    with pytest.raises(sf.VerificationError):
        replace(eq, participation=x).prove()
    # along the continuum the twins may trade
    y = np.array(eq.participation)
    moved = min(y[0], 1 - y[1]) / 2
    y[0], y[1] = y[0] - moved, y[1] + moved
    assert replace(eq, participation=y).prove().kind == "regret"


def test_client_exactly_at_its_threshold_gets_a_regret_bound():
    game = small_game()
    x = np.array([0.25, 0.25, 1.0, 0.25])
    p = game.payments_for(x)
    certificate = sf.results.Equilibrium(
        game, p, x, sf.Status.CERTIFIED, sf.Uniqueness.UNKNOWN, "", "", 0.0, 0.0
    ).prove()
    assert certificate.kind == "box"
    threshold = np.array(x)
    threshold[2] = 1.0
    q = np.array(p)
    q[2] = (
        game.costs[2] - 2 * game.lam * game.alpha[2] * game.profile(x).to_clients[2] / game.profile(x).total
    )
    if q[2] >= 0:
        eq = sf.results.Equilibrium(
            game, q, threshold, sf.Status.CERTIFIED, sf.Uniqueness.UNKNOWN, "", "", 0.0, 0.0
        )
        assert eq.prove().radius < 1e-7


def test_homogeneous_clients_paid_their_cost_are_indifferent():
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.ones((2, 1))), [1, 2], costs=[1.0, 2.0])
    eq = game.equilibrium([1.0, 2.0])
    certificate = eq.prove()
    assert certificate.kind == "regret"
    assert certificate.regret < 1e-26
    assert game.equilibrium([2.0, 0.0]).prove().kind == "box"


def test_sole_participant_below_cost_is_refused():
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(np.array([[0.0], [1.0]])), [1, 1], costs=[1.0, 1.0]
    )
    lonely = sf.results.Equilibrium(
        game, np.zeros(2), np.array([0.5, 0.0]), sf.Status.CONVERGED, sf.Uniqueness.UNKNOWN, "", "", 0.0, 0.0
    )
    with pytest.raises(sf.VerificationError):
        lonely.prove()


def test_three_equilibria_of_the_paper_counterexample_are_proved():
    found = sf.lemmas.ALL["uniqueness"].refute()
    certificates = [e.prove() for e in found.game.equilibria(found.payments)]
    assert [c.kind for c in certificates] == ["box", "box", "box"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda r: r.update(radius=r["radius"] / 1e3),
        lambda r: r.update(regret=r["regret"] / 1e3),
        lambda r: r.update(places=r["places"].replace("0", "1", 1).replace("*", "0", 1)),
        lambda r: r.update(costs=[(2 * float.fromhex(c)).hex() for c in r["costs"]]),
        lambda r: r.update(payments=[(0.1).hex() for _ in r["payments"]]),
        lambda r: r.update(participation=[(0.5).hex() for _ in r["participation"]]),
        lambda r: r.update(sizes=r["sizes"][::-1]),
        lambda r: r.update(width=[["0x0", 0] for _ in r["width"]]),
        lambda r: r.update(centre=r["centre"][:-1]),
        lambda r: r.update(embeddings=r["embeddings"][::-1]),
        lambda r: r.update(kind="belief"),
        lambda r: r.update(precision=8),
        lambda r: r.update(lambda_q=(-1.0).hex()),
        lambda r: r.update(costs=["nan" for _ in r["costs"]]),
        lambda r: r.update(costs=["not a number" for _ in r["costs"]]),
    ],
)
def test_tampered_certificate_is_caught(equilibrium, tmp_path, damage):
    path = tmp_path / "c.json"
    equilibrium.prove().save(path)
    record = json.loads(path.read_text())
    damage(record)
    path.write_text(json.dumps(record))
    with pytest.raises(sf.VerificationError):
        check_certificate(path)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"format": "other"}', '{"format": "stackfu-certificate", "version": "x"}', "{}"]
)
def test_other_files_are_no_certificates(tmp_path, text):
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(sf.FileFormatError):
        Certificate.load(tmp_path / "c.json")


def test_newer_or_incomplete_certificates_are_named(equilibrium, tmp_path):
    path = tmp_path / "c.json"
    equilibrium.prove().save(path)
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "version": 99}))
    with pytest.raises(sf.FileFormatError, match="newer"):
        Certificate.load(path)
    del record["sizes"]
    path.write_text(json.dumps(record))
    with pytest.raises(sf.FileFormatError, match="damaged"):
        Certificate.load(path)
    with pytest.raises(FileNotFoundError):
        Certificate.load(tmp_path / "nothing.json")
    with pytest.raises(sf.InputError):
        equilibrium.prove().save(tmp_path / "c.txt")


@pytest.mark.parametrize("precision", [8, 1.5, -3, 10**9])
def test_precision_is_checked_first(equilibrium, precision):
    with pytest.raises(sf.InputError, match="precision"):
        equilibrium.prove(precision)


@pytest.mark.parametrize("precision", [64, 128, 1024])
def test_every_precision_proves_the_same(equilibrium, precision):
    assert equilibrium.prove(precision).check().exact


def test_too_many_clients_are_refused():
    rng = np.random.default_rng(0)
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(rng.normal(size=(proof.LARGEST + 1, 2))), np.ones(proof.LARGEST + 1)
    )
    x = np.full(game.count, 0.5)
    eq = sf.results.Equilibrium(
        game, np.zeros(game.count), x, sf.Status.CONVERGED, sf.Uniqueness.UNKNOWN, "", "", 0.0, 0.0
    )
    with pytest.raises(sf.InputError, match="up to"):
        eq.prove()


def test_gram_that_rounding_made_indefinite_is_proved_all_the_same():
    """The proof takes the stored numbers at face value and needs no positive semidefiniteness."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(6, 2))
    gram = rows @ rows.T - 1e-12 * np.eye(6)
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_gram(gram), np.arange(1, 7), costs=rng.exponential(size=6)
    )
    assert game.equilibrium().prove().check()
