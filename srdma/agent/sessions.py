"""The sessions of an agent that a peer may resume (protocol.md 8.6)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from srdma.agent.meeting import Meeting
from srdma.agent.resumption import UNKNOWN
from srdma.keyex.exchange import Role
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import Resume

if TYPE_CHECKING:
    from srdma.agent.upkeep import Upkeep


class Sessions:
    """The sessions that a peer may resume, by transcript hash."""

    def __init__(self) -> None:
        self._by_hash: dict[tuple[bytes, Role], Upkeep] = {}  # and role of this end
        self._places: dict[Upkeep, str] = {}  # where its peer was last
        self._at: Counter[str] = Counter()  # sessions of an address

    def add(self, upkeep: Upkeep) -> None:
        self._by_hash[_key(upkeep)] = upkeep
        self.moved(upkeep)

    def remove(self, upkeep: Upkeep) -> None:
        if self._by_hash.get(_key(upkeep)) is upkeep:
            del self._by_hash[_key(upkeep)]
        self._place(upkeep, "")

    def moved(self, upkeep: Upkeep) -> None:
        """The record of a session may name another address. No effect before add()."""
        if self._by_hash.get(_key(upkeep)) is upkeep:
            self._place(upkeep, (upkeep.record.address or ("", 0))[0])

    def know(self, address: str) -> bool:
        """True if the peer of a session was last at this IP address."""
        return address in self._at

    def _place(self, upkeep: Upkeep, address: str) -> None:
        if before := self._places.pop(upkeep, ""):
            self._at[before] -= 1
            if not self._at[before]:
                del self._at[before]
        if address:
            self._places[upkeep] = address
            self._at[address] += 1

    def wake(self, meeting: Meeting, transcript: bytes) -> None:
        """A server wants an exchange of a session. Raises ExchangeError as resume()."""
        self._found(meeting, transcript, "client").wake()
        meeting.drop()

    def resume(self, meeting: Meeting, peers: Resume) -> None:
        """Give a peer's RESUME to its session, which owns the meeting from now on.

        Raises ExchangeError: no session of these identities has this hash (`resume`), `rate`.
        """
        self._found(meeting, peers.hash, "server").offer(meeting, peers)

    def _found(self, meeting: Meeting, transcript: bytes, role: Role) -> Upkeep:
        upkeep = self._by_hash.get((transcript, role))
        if upkeep is None or not upkeep.may_resume(meeting):
            raise ExchangeError("resume", UNKNOWN)
        return upkeep


def _key(upkeep: Upkeep) -> tuple[bytes, Role]:
    return upkeep.record.agreement.hash, upkeep.record.agreement.role
