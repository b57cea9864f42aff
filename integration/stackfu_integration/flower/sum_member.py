"""A client's part in secure sums, and what it remembers of them so that no second question gives its summand away.

Of one sum a client makes shares for one group, sends one vector, behind masks for one set of members, and opens for one set of
those who delivered. The same question again, after a crash of either side, gets the same answer; another one is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stackfu.errors import InputError
from stackfu_integration.arrays import FloatArray, UIntArray
from stackfu_integration.flower.chain import Head
from stackfu_integration.flower.client_state import ClientState
from stackfu_integration.flower.policy import PolicyError
from stackfu_integration.flower.receipts import SUM_KEYS, Receipt, fingerprint_of
from stackfu_integration.flower.secure_sum import Keys, Member, SumName
from stackfu_integration.flower.wire.sums import (
    KeysAnswer,
    OpenAnswer,
    OpenQuestion,
    SharesAnswer,
    SharesQuestion,
)

__all__ = ["SumMember"]


@dataclass(frozen=True)
class SumMember:
    """One client in the sums of all requests."""

    client: int
    secret: bytes
    records: ClientState

    def _member(self, name: SumName) -> Member:
        return Member(self.secret, self.client, name)

    def _known(self, name: SumName) -> dict[str, Any]:
        sums = self.records.about(name.request).setdefault("sums", {})
        found: dict[str, Any] = sums.setdefault(f"{name.what} {name.number}", {})
        return found

    def _keep(self, name: SumName, what: str, value: Any, problem: str) -> None:
        """Remember the first answer, and refuse another one."""
        known = self._known(name)
        if what in known and known[what] != value:
            raise InputError("sum", problem, value=f"{name.what} {name.number}")
        if what not in known:
            known[what] = value
            self.records.save()

    def keys(self, name: SumName, head: Head | None) -> KeysAnswer:
        """Return the keys for a sum, signed."""
        keys = self._member(name).keys
        facts = {"request": name.request, "sum": name.what, "number": name.number, "keys": str(keys)}
        return KeysAnswer(keys, self.records.sign(SUM_KEYS, head, client=self.client, **facts))

    def shares(self, asked: SharesQuestion) -> SharesAnswer:
        """Sealed shares for the others, once the group is one that this client accepts."""
        sealed = self._member(asked.name).sealed_shares(asked.group, asked.threshold)
        self._check_peers(asked)
        group = {str(client): str(keys) for client, keys in sorted(asked.group.items())}
        told = {"members": group, "threshold": asked.threshold}
        self._keep(asked.name, "group", told, "this client has made shares for another group")
        return SharesAnswer(sealed)

    def _check_peers(self, asked: SharesQuestion) -> None:
        """Refuse other members if the policy names the other clients' keys."""
        peers = self.records.policy.peers
        if not peers:
            return
        for client, keys in asked.group.items():
            if client == self.client:
                continue
            try:
                receipt = Receipt.read(asked.signatures[client])
            except (KeyError, TypeError) as error:
                raise PolicyError(f"client {client} did not sign its keys for the sum") from error
            name = asked.name
            facts = {"request": name.request, "sum": name.what, "number": name.number, "keys": str(keys)}
            other = receipt.differs_from(SUM_KEYS, client=client, **facts)
            if receipt.key not in peers or not receipt.is_signed or other is not None:
                raise PolicyError(
                    f"the keys of client {client} are not signed by a peer that this client knows"
                )

    def _group(self, name: SumName) -> tuple[dict[int, Keys], int]:
        told = self._known(name).get("group")
        if told is None:
            raise InputError(
                "sum", "this client has made no shares for it", value=f"{name.what} {name.number}"
            )
        return {int(c): Keys.read(keys) for c, keys in told["members"].items()}, int(told["threshold"])

    def masked(self, name: SumName, vector: FloatArray, bits: int, members: Mapping[int, Keys]) -> UIntArray:
        """This client's vector behind masks for ``members``, those of the group that made shares."""
        group, threshold = self._group(name)
        if any(group.get(client) != keys for client, keys in members.items()) or len(members) < threshold:
            raise InputError("group", "is not the one that this client made shares for", client=self.client)
        hidden = self._member(name).masked(vector, bits, members)
        sent = {"members": sorted(members), "vector": fingerprint_of(hidden)}
        self._keep(name, "sent", sent, "this client has sent another vector, or to other members")
        return hidden

    def opened(self, asked: OpenQuestion) -> OpenAnswer:
        """Return one share per member: of its seed if it delivered, of its mask key if not."""
        group, threshold = self._group(asked.name)
        sent = self._known(asked.name).get("sent")
        if sent is None:
            raise InputError(
                "sum", "this client has sent nothing", value=f"{asked.name.what} {asked.name.number}"
            )
        masked = {client: group[client] for client in sent["members"]}
        shares = self._member(asked.name).opened(asked.sealed, group, masked, threshold, asked.alive)
        self._keep(asked.name, "alive", sorted(asked.alive), "this client has opened it for other members")
        return OpenAnswer(shares)
