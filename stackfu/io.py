"""Files: games, equilibria and solutions, without loss.

``.json`` for people and other programs, ``.npz`` for large games. Both hold the same record with a format name, a kind and a
version; numbers survive to the last bit. A file appears under its name only when it is complete.
"""

from __future__ import annotations

import io
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .atomic import replace_atomically, write_atomically
from .embedding import MeanEmbeddings
from .embedding.names import Position
from .embedding.samples import check_bandwidth
from .errors import FileFormatError, InputError
from .game import StackelbergGame
from .model import Limits, Objective, ServerLoss, Target, frozen
from .model.offers import KINDS, Offers
from .results import Equilibrium, Face, Solution, Status, Uniqueness
from .results.certificate import LeaderCertificate
from .results.claim import claim_digest
from .results.contract_certificate import ContractCertificate
from .results.plan_certificate import PlanCertificate

__all__ = ["VERSION", "load", "loads", "record_of", "save", "write_atomically"]

FORMAT = "stackfu"
VERSION = 3
#: From this version on a certificate names its claim.
_CLAIMED = 3
#: Relative agreement of stored sums with their terms: they are added up in another order.
_LAST_DIGITS = 1e-12
#: The gap of solutions of version 1, which does not name it where it was the default of that time.
_FORMER_GAP = 1e-3


def save(thing: StackelbergGame | Equilibrium | Solution, path: str | os.PathLike[str]) -> None:
    """Write a game, an equilibrium or a solution; the ending of the name, ``.json`` or ``.npz``, chooses the format."""
    target = _path(path)
    if target.suffix == ".json":
        write_atomically(target, json.dumps(record_of(thing), indent=1, allow_nan=False).encode())
    elif target.suffix == ".npz":
        arrays: dict[str, np.ndarray] = {}
        skeleton = _detach(_record(thing), arrays, "")
        arrays["record"] = np.array(json.dumps(_plain(skeleton), allow_nan=False))
        replace_atomically(target, lambda file: np.savez_compressed(file, **arrays))  # type: ignore[arg-type]
    else:
        raise InputError("path", "must end in .json or .npz", value=str(target))


def record_of(thing: StackelbergGame | Equilibrium | Solution) -> dict[str, Any]:
    """Return what a ``.json`` file holds, as plain values."""
    plain: dict[str, Any] = _plain(_record(thing))
    return plain


def _record(thing: object) -> dict[str, Any]:
    return {"format": FORMAT, "version": VERSION, **_encode(thing)}


def _path(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        raise InputError("path", "must be a file name", value=repr(path))
    return Path(path)


def load(path: str | os.PathLike[str]) -> Any:
    """Read back what :func:`save` wrote.

    Raises
    ------
    FileFormatError
        If the file is broken, is something else, or was written by a newer version.
    """
    source = _path(path)
    if not source.exists():
        raise FileNotFoundError(f"no such file: {source}")
    return loads(source.read_bytes(), str(source))


def loads(content: bytes, source: str) -> Any:
    """Return the object in the content of a file, as :func:`load`; ``source`` names the file in errors."""
    try:
        if content.startswith(b"PK"):  # an .npz file is a zip archive
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                record = _attach(json.loads(str(arrays["record"])), arrays)
        else:
            record = _revive(json.loads(content.decode()))
    except Exception as error:  # a damaged archive can fail in any layer: zipfile, zlib, numpy, json
        raise FileFormatError(f"{source}: not a readable stackfu file ({error})") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise FileFormatError(f"{source}: this is not a stackfu file")
    version = record.get("version")
    if not isinstance(version, int) or version < 1:
        raise FileFormatError(f"{source}: the version {version!r} is not one this library wrote")
    if version > VERSION:
        raise FileFormatError(
            f"{source}: written by a newer stackfu (file version {version}, this one reads {VERSION})"
        )
    try:
        return _decode(record)
    except FileFormatError as error:
        raise FileFormatError(f"{source}: {error}") from error
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise FileFormatError(f"{source}: the record is damaged ({type(error).__name__}: {error})") from error


# -------------------------------------------------------------------- records


def _encode(thing: object) -> dict[str, Any]:
    if isinstance(thing, StackelbergGame):
        return {
            "kind": "game",
            "embeddings": _encode_embeddings(thing.embeddings),
            "sizes": thing.all_sizes,
            "removed": list(thing.removed),
            "names": list(thing.all_names) if thing.has_names else None,
            "costs": thing.costs,
            "lambda_v": thing.lambda_v,
            "lambda_s": thing.lambda_s,
            "lambda_q": thing.lambda_q,
            "loss_constant": thing.loss_constant,
            "sampling_constant": thing.sampling_constant,
            "calibrated": thing.calibrated,
            "currency": thing.currency,
            "server_loss": None if thing.has_paper_loss else _encode_loss(thing.loss),
        }
    if isinstance(thing, Equilibrium):
        return {"kind": "equilibrium", "game": _encode(thing.game), **thing.stated()}
    if isinstance(thing, Solution):
        return {
            "kind": "solution",
            "equilibrium": _encode(thing.equilibrium),
            **thing.stated(),
            "certificate": _encode_certificate(thing),
        }
    raise InputError("thing", "must be a game, an equilibrium or a solution", value=type(thing).__name__)


def _encode_embeddings(embeddings: MeanEmbeddings) -> dict[str, Any]:
    bandwidth, features, gram, complement, names, kernel, self_similarity, counts = embeddings.__reduce__()[
        1
    ][:8]
    return {
        "bandwidth": None if bandwidth is None else float(bandwidth),
        "features": features,
        "gram": gram if features is None else None,
        "complement": complement,
        "names": None if names is None else list(names),
        "kernel": kernel,
        "self_similarity": self_similarity,
        # files written before this was kept say nothing: their clients' sizes stand in
        **({} if counts is None else {"sample_counts": list(counts)}),
    }


def _whole(value: Any) -> int:
    if isinstance(value, bool) or int(value) != value:
        raise ValueError(f"{value!r} is no client number")
    return int(value)


def _encode_loss(loss: ServerLoss) -> dict[str, Any]:
    return {
        "targets": [{"kind": target.kind, "values": np.array(target.values)} for target in loss.targets],
        "weights": list(loss.weights),
        "sampling": loss.sampling,
    }


_CERTIFICATES: dict[str, Any] = {
    "linear": LeaderCertificate,
    "capped": PlanCertificate,
    "contract": ContractCertificate,
}


def _encode_certificate(solution: Solution) -> dict[str, Any] | None:
    certificate = solution.certificate
    if certificate is None:
        return None
    kind = next(name for name, reader in _CERTIFICATES.items() if type(certificate) is reader)
    return {"kind": kind, "claim": claim_digest(solution), **certificate.to_record()}


def _decode_certificate(record: dict[str, Any] | None) -> Any:
    if record is None:
        return None
    return _CERTIFICATES[record["kind"]].from_record(
        {k: v for k, v in record.items() if k not in ("kind", "claim")}
    )


def _check_claim(solution: Solution, record: dict[str, Any] | None, version: int) -> None:
    """Refuse a certificate of another game, objective, offers or bound; files before version 3 do not name their claim."""
    if record is None or ("claim" not in record and version < _CLAIMED):
        return
    claim = claim_digest(solution)
    if record.get("claim") != claim:
        named = str(record.get("claim"))[:64]
        raise FileFormatError(
            f"the certificate is for another claim, {named!r}: game, objective, offers and bound of this file make {claim!r}"
        )


def _decode_offers(record: dict[str, Any] | None) -> Any:
    if record is None:
        return None
    if record["kind"] not in KINDS:
        raise ValueError(f"unknown kind of offers {record['kind']!r}")
    offers = Offers(record["kind"], *(frozen(record[name]) for name in ("prices", "caps", "retainers")))
    if not math.isclose(float(record["most"]), offers.most, rel_tol=_LAST_DIGITS):
        raise ValueError(f"the offers can cost {offers.most!r}, not {record['most']!r}")
    return offers


def _decode_loss(record: dict[str, Any] | None) -> ServerLoss | None:
    if record is None:
        return None
    targets = tuple(Target(t["kind"], t["values"]) for t in record["targets"])
    return ServerLoss(targets, record["weights"], record["sampling"])


def _decode_embeddings(stored: dict[str, Any]) -> MeanEmbeddings:
    """Return the embeddings of a file; where inner products are stored twice, both must tell of the same distances."""
    bandwidth = stored["bandwidth"]
    # files without a kernel hold the RBF kernel, or a kernel without a name
    kernel = stored.get("kernel", None if bandwidth is None else "rbf")
    if not isinstance(kernel, (str, type(None))):
        raise TypeError("the kernel must have a name")
    known: dict[str, Any] = {
        "bandwidth": None if bandwidth is None else check_bandwidth(bandwidth),
        "kernel": kernel,
    }
    described: dict[str, Any] = {
        "names": stored.get("names"),
        "self_similarity": stored.get("self_similarity"),
    }
    if stored["features"] is not None:
        checked = MeanEmbeddings.from_features(stored["features"], **described)
        known["features"] = checked.features
    else:
        checked = MeanEmbeddings.from_gram(stored["gram"], **described)
        known["gram"] = checked.gram
        if stored["complement"] is not None:
            known["complement"] = _complement(checked.gram, stored["complement"])
    own = checked.mean_self_similarity
    counts = stored.get("sample_counts")
    if counts is not None and (len(counts) != len(checked) or min(map(_whole, counts)) < 1):
        raise ValueError("sample_counts must hold a positive whole number per client")
    return MeanEmbeddings._make(names=checked.names, self_similarity=own, counts=counts, **known)


def _complement(gram: np.ndarray, stored: Any) -> np.ndarray:
    complement = np.asarray(stored, dtype=np.float64)
    if complement.shape != gram.shape or not np.allclose(
        _squares(-complement),
        _squares(gram),
        rtol=0.0,
        atol=_LAST_DIGITS * max(1.0, float(np.abs(gram).max())),
    ):
        raise ValueError("the inner products and their complement contradict each other")
    return complement


def _squares(gram: np.ndarray) -> np.ndarray:
    """Return squared distances, before anything is clipped."""
    own = np.diagonal(gram)
    return np.asarray((own[:, None] - gram) + (own[None, :] - gram.T))


def _decode(record: dict[str, Any]) -> Any:
    kind = record["kind"]
    if kind == "game":
        return StackelbergGame(
            _decode_embeddings(record["embeddings"]),
            record["sizes"],
            removed=[Position(_whole(k)) for k in record["removed"]],
            names=record.get("names"),
            costs=record["costs"],
            lambda_v=record["lambda_v"],
            lambda_s=record["lambda_s"],
            lambda_q=record["lambda_q"],
            loss_constant=record["loss_constant"],
            sampling_constant=record.get("sampling_constant", 0.0),
            calibrated=record.get("calibrated", False),
            currency=record.get("currency"),
            server_loss=_decode_loss(record.get("server_loss")),
        )
    if kind == "equilibrium":
        game = _decode(record["game"])
        face = record["face"]
        return Equilibrium(
            game=game,
            payments=game.check_payments(record["payments"]),
            participation=game.check_participation(record["participation"]),
            status=Status[record["status"]],
            uniqueness=Uniqueness[record["uniqueness"]],
            reason=record["reason"],
            method=record["method"],
            regret=record["regret"],
            residual=record["residual"],
            iterations=record["iterations"],
            seconds=record["seconds"],
            face=None
            if face is None
            else Face(
                tuple(_whole(k) for k in face["clients"]),
                frozen(face["lower"]),
                frozen(face["upper"]),
                face["dimension"],
                None if face.get("spend") is None else (float(face["spend"][0]), float(face["spend"][1])),
                tuple(frozen(x) for x in face.get("points", ())),
            ),
            caps=None if record.get("caps") is None else game.check_caps(record["caps"]),
            retainers=None
            if record.get("retainers") is None
            else game.check_amounts(record["retainers"], "retainers"),
        )
    if kind == "solution":
        equilibrium = _decode(record["equilibrium"])
        posted = _decode_offers(record.get("offers"))
        if posted is not None and posted.retainers.any() and "retainers" not in record["equilibrium"]:
            # earlier files keep them with the offers only
            equilibrium = replace(equilibrium, retainers=posted.retainers)
        solution = Solution(
            game=equilibrium.game,
            budget=float(record["budget"]),
            payments=equilibrium.payments,
            equilibrium=equilibrium,
            status=Status[record["status"]],
            method=record["method"],
            objective=float(record["objective"]),
            lower_bound=float(record["lower_bound"]),
            **_decode_request(record),
            certificate=_decode_certificate(record.get("certificate")),
            message=str(record["message"]),
            nodes=int(record["nodes"]),
            seconds=float(record["seconds"]),
            posted=posted,
            outside=None if record.get("outside") is None else frozen(record["outside"]),
        )
        _check_claim(solution, record.get("certificate"), record.get("version", _CLAIMED))
        return solution
    raise FileFormatError(f"unknown kind of record: {kind!r}")


def _decode_request(record: dict[str, Any]) -> dict[str, Any]:
    """Return the request of a solution; files of version 1 hold it as a dictionary of options."""
    if "goal" in record:
        limits = record["limits"]
        if limits is None and record["method"] == "certified":
            raise ValueError("a certified solution has limits")
        return {
            "goal": Objective(**record["goal"]),
            "limits": None if limits is None else Limits(**limits),
            "robust": bool(record["robust"]),
            "own_options": dict(record["own_options"]),
        }
    options = dict(record["options"])
    names = ("payment_weight", "loss_weight", "max_loss", "min_total", "finite_sample")
    goal = Objective(budget=float(record["budget"]), **{n: options.pop(n) for n in names if n in options})
    certified = record["method"] == "certified"
    return {
        "goal": goal,
        "limits": Limits(gap=options.pop("gap", _FORMER_GAP)) if certified else None,
        "robust": bool(options.pop("robust", False)),
        "own_options": options,
    }


# -------------------------------------------------------------------- numbers


def _plain(value: Any) -> Any:
    """Values that JSON can hold: arrays with their type, and the numbers that JSON has no word for."""
    if isinstance(value, np.ndarray):
        return {"array": _plain(value.tolist()), "dtype": str(value.dtype), "shape": list(value.shape)}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": repr(value)}
    return value


def _revive(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"array", "dtype", "shape"}:
            if np.dtype(value["dtype"]).kind not in "fiub":
                raise ValueError(f"an array of numbers cannot have the type {value['dtype']!r}")
            return np.array(_revive(value["array"]), dtype=value["dtype"]).reshape(value["shape"])
        if value.keys() == {"number"}:
            return float(value["number"])
        return {key: _revive(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_revive(item) for item in value]
    return value


def _detach(value: Any, arrays: dict[str, np.ndarray], name: str) -> Any:
    """Return the record with its arrays moved out under their paths."""
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {"stored": name}
    if isinstance(value, dict):
        return {key: _detach(item, arrays, f"{name}.{key}" if name else key) for key, item in value.items()}
    if isinstance(value, list):
        return [_detach(item, arrays, f"{name}.{i}") for i, item in enumerate(value)]
    return value


def _attach(value: Any, arrays: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"stored"}:
            return arrays[value["stored"]]
        if value.keys() == {"number"}:
            return float(value["number"])
        return {key: _attach(item, arrays) for key, item in value.items()}
    if isinstance(value, list):
        return [_attach(item, arrays) for item in value]
    return value
