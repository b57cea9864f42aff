"""Add noise to a head near its optimum, so that the released head cannot be distinguished from the optimum with the same noise.

Certified removal after Guo et al. (2020), with noise on what is released and not in the loss. At the head w that Newton steps
ended with, the participants sign their gradients, and ``|w - w*| <= |grad F(w)| / l2 <= certify_distance`` follows, w* being the
optimum on their data alone. Released is ``w + sigma z``, z normal: for ``removal_epsilon`` and ``removal_delta``, sigma is the
least deviation by which two heads that are ``certify_distance`` apart cannot be told apart (Balle and Wang, 2018). It follows
from the terms, and not from what was removed. Where the distance is not reached nothing is released, and the request ends.

The server draws the noise and knows the head without it. The noise is made of a key with its public part in the ledger before the
first round, and of the hash of a row that comes after all signed work, that of the bound; with the key it can be drawn
again. With the key, or the head without noise, the noise can also be removed. So with ``erase`` both are deleted when the
request is closed, and the gradients at that head as well, and from then on the noise is the server's word. A server that means to
cheat can always show the head without noise to whom it likes, or write the row again until the noise suits it.
"""

from __future__ import annotations

from pathlib import Path

from flwr.app import ArrayRecord

from stackfu.embedding.privacy import gaussian_deviation
from stackfu_integration.flower.convex import flat, head_of, with_head
from stackfu_integration.flower.events import DistanceBounded, NoiseDrawn, NoisePromised, RoundFinished
from stackfu_integration.flower.keys import SigningKey, fingerprint
from stackfu_integration.flower.ledger import PaymentLedger
from stackfu_integration.flower.phases import evidence
from stackfu_integration.flower.phases.session import Removal, StuckError
from stackfu_integration.flower.privacy import noise_generator
from stackfu_integration.flower.terms import Terms

__all__ = ["deviation_of", "forget_noise", "key_file", "promise", "release", "with_noise"]


def key_file(folder: Path, request: str) -> Path:
    """Return the file of the key of a request's noise, until it is erased."""
    return folder / "keys" / f"noise-{fingerprint(request)[:16]}.key"


def deviation_of(terms: Terms) -> float:
    """Return the deviation of the noise, as the terms have it."""
    return float(gaussian_deviation(terms.removal_epsilon, terms.removal_delta, terms.certify_distance))


def promise(removal: Removal) -> None:
    """Draw the key that noise will be made of, and write down its public part, once."""
    if not removal.ledger.has(removal.name, NoisePromised):
        key = SigningKey.load_or_create(key_file(removal.folder, removal.name))
        removal.ledger.add(removal.name, NoisePromised(key.public))


def with_noise(
    model: ArrayRecord, head: tuple[str, ...], deviation: float, key: SigningKey, row: str
) -> ArrayRecord:
    """Return the model with noise in its head, drawn from a key and the hash of a row."""
    values = flat(head_of(model, head))
    drawn = noise_generator(key.secret, "release", row).standard_normal(len(values))
    return with_head(model, head, values + deviation * drawn)


def release(removal: Removal) -> str:
    """Ask for the gradients at the last head, add noise if it is near enough, and return the name of what is released."""
    ledger, terms, name = removal.ledger, removal.terms, removal.name
    drawn = ledger.last(name, NoiseDrawn)
    if drawn is not None:
        return drawn.model
    evidence.gather(removal)
    bound = ledger.last(name, DistanceBounded)
    if bound is None or bound.distance > terms.certify_distance:
        reached = "nobody signed a gradient there" if bound is None else f"within {bound.distance:.4g}"
        raise StuckError(
            f"after {ledger.need(name, RoundFinished).number} rounds the head is not known to be within "
            f"{terms.certify_distance:g} of its optimum ({reached}), and noise would not hide what is left: nothing is released"
        )
    noiseless, seq = ledger.need(name, RoundFinished).model, ledger.place_of(name, DistanceBounded)
    key = SigningKey.load(key_file(removal.folder, name))
    made = with_noise(
        removal.models.get(noiseless), terms.head, deviation_of(terms), key, str(ledger.hash_at(seq))
    )
    released = removal.models.put(made)
    ledger.add(name, NoiseDrawn(deviation_of(terms), noiseless, released, seq))
    return released


def forget_noise(ledger: PaymentLedger, request: str) -> None:
    """Delete the key of the noise."""
    path = key_file(ledger.path.parent, request)
    for file in (path, path.with_suffix(".pub")):
        file.unlink(missing_ok=True)
