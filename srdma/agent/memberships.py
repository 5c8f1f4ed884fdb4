"""The UD QPs of this agent's programs that use multicast groups, and the agents of peers that ask
for them (agent.md 14)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from srdma import gid as gids
from srdma.agent.accounts import group as all_of_host
from srdma.agent.channel import Channel
from srdma.agent.groups import Group
from srdma.agent.links import check_age
from srdma.agent.meeting import Meeting
from srdma.agent.peers import Peer
from srdma.agent.places import Full, Limit, Limits, Places
from srdma.agent.ports import Own
from srdma.keyex.fields import ExchangeError
from srdma.keyex.groups import MEMBERS_MAX, Ask, Members
from srdma.keyex.messages import encode
from srdma.keyex.pace import Pace
from srdma.keyex.streams import BUSY

# Uses of groups: of all programs, of a user (or of all users of another computer), and of a leg.
USES_MAX, USES_PER_USER, USES_PER_LEG = 1024, 256, 64
# Peers' agents that ask: all, those of an identity, and those of a GID.
ASKING_MAX, ASKING_PER_IDENTITY, ASKING_PER_GID = 4096, 1024, 1024
INBOX = 1024  # bytes of an agent that asks: it sends no second message
CHANGES = 64, 0.1  # MEMBERS to an agent at once, and seconds for one more in the long run
GIVES_WAY = "this use of the group gives way to programs of users with fewer"
CHANGED = "the policy of this group was changed: use it again"


@dataclass(eq=False)
class Use:
    """A UD QP of a program sends to a group, and receives from it if it is a `member`.

    leg: its leg. entry: of the policy, when it began. over: the reason, once the agent ends it.
    """

    channel: Channel
    own: Own
    group: bytes
    qpn: int
    leg: Hashable
    member: bool
    entry: Group
    over: asyncio.Future[ExchangeError] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def admits(self, meeting: Meeting) -> bool:
        """True if the peer may know it: it came to the same identity, which permits the peer's."""
        own = self.own()
        try:
            own.check(meeting.identity)
        except ExchangeError:
            return False
        return own.credentials.identity == meeting.uri

    @property
    def limits(self) -> Limits:
        """By the leg, the user, and the group; "": all."""
        user = all_of_host(self.channel.uid) or self.channel.uid
        holders = (f"user {user}",)
        of_group: Limits = {self.group: Limit(MEMBERS_MAX, holders)} if self.member else {}
        return {
            ("leg", self.leg): Limit(USES_PER_LEG),
            ("user", user): Limit(USES_PER_USER),
            **of_group,
            "": Limit(USES_MAX, holders),
        }


@dataclass(eq=False)
class Asking:
    """A peer's agent that asks. told: the QPNs that it knows; None: it has no answer yet."""

    meeting: Meeting
    ask: Ask
    told: tuple[int, ...] | None = None
    pace: Pace = field(default_factory=lambda: Pace(*CHANGES))
    timer: asyncio.TimerHandle | None = None

    @property
    def limits(self) -> Limits:
        identity, gid = f"identity {self.meeting.identity}", f"GID {gids.text_of(self.ask.of)}"
        return {
            identity: Limit(ASKING_PER_IDENTITY, (gid,)),
            gid: Limit(ASKING_PER_GID, (identity,)),
            "": Limit(ASKING_MAX, (identity, gid)),
        }


class Memberships:
    """See the description of the module."""

    def __init__(
        self,
        audit: Callable[..., None],
        peer_at: Callable[[bytes], Peer],
        group_at: Callable[[bytes], Group],
        gid: Callable[[], bytes],
    ) -> None:
        """peer_at: see Peers.at(); group_at: see Groups.at(). gid: of the worker of this agent, or
        gids.NONE."""
        self._audit, self._peer_at, self._group_at, self._gid = audit, peer_at, group_at, gid
        self._uses: dict[tuple[bytes, int], Use] = {}  # by group and QPN
        self._members: dict[bytes, set[int]] = {}  # QPNs of each group
        self._asking: dict[bytes, dict[Asking, None]] = {}  # by group
        self._use_places, self._ask_places = Places[Use](), Places[Asking]()

    @contextmanager
    def used(self, use: Use) -> Iterator[None]:
        """A program uses a group. Raises ExchangeError (`quota`)."""
        if former := self._uses.get((use.group, use.qpn)):  # its end was not noticed yet
            self._leave(former, ExchangeError("taken", "a newer use of this UD QP replaces it"))
        self._make_room(use)
        self._uses[use.group, use.qpn] = use
        self._use_places.add(use, use.limits)
        if use.member:
            self._members.setdefault(use.group, set()).add(use.qpn)
            self._audit("joined", uid=use.channel.uid, group=gids.text_of(use.group), qpn=use.qpn)
        self._changed(use.group)
        try:
            yield
        finally:
            self._leave(use)

    def asked(self, meeting: Meeting, ask: Ask) -> None:
        """An ASK has arrived. Raises ExchangeError if it is refused."""
        if meeting.stream.version == 1:
            raise ExchangeError("version", "multicast needs srdma/2")
        asking = Asking(meeting, ask)
        self._check(asking)
        if ask.gid != self._gid():
            raise ExchangeError("closed", f"the GID here is not {gids.text_of(ask.gid)}")
        try:
            gone = self._ask_places.make_room(asking.limits)
        except Full:
            raise ExchangeError("busy", "too many agents ask for groups here") from None
        for former in gone:
            self._refuse(former, ExchangeError("busy", "other agents have asked for fewer groups"))
        self._asking.setdefault(ask.group, {})[asking] = None
        self._ask_places.add(asking, asking.limits)
        meeting.stream.most = INBOX
        meeting.stream.watch(partial(self._heard, asking))
        self._tell(asking, self._known_to(asking))

    def policy_changed(self) -> None:
        """End the uses that the policy permits no longer, or whose hosts are others, and refuse
        the agents that may ask no longer."""
        for use in [*self._uses.values()]:
            try:
                entry = self._group_at(use.group)
                entry.check_own(use.own().name)
                if entry.hosts != use.entry.hosts:
                    raise ExchangeError("policy", CHANGED)
            except ExchangeError as error:
                self._leave(use, error)
        for asking in [asking for each in self._asking.values() for asking in each]:
            self._may_ask(asking)
        for group in [*self._asking]:
            self._changed(group)

    # Internal ---------------------------------------------------------------

    def _make_room(self, use: Use) -> None:
        try:
            gone = self._use_places.make_room(use.limits)
        except Full as full:
            raise ExchangeError("quota", _full(use, full.at)) from None
        for former in gone:
            self._leave(former, ExchangeError("quota", GIVES_WAY))

    def _leave(self, use: Use, error: ExchangeError | None = None) -> None:
        """End a use, with a reason if it is not the program's; without effect the second time."""
        if self._uses.get((use.group, use.qpn)) is not use:
            return
        del self._uses[use.group, use.qpn]
        self._use_places.remove(use, use.limits)
        if error and not use.over.done():  # else the program ends it too
            use.over.set_result(error)
        if not use.member:
            return
        members = self._members[use.group]
        members.remove(use.qpn)
        if not members:
            del self._members[use.group]
        self._changed(use.group)

    def _check(self, asking: Asking) -> None:
        """Raise ExchangeError unless a peer may ask for a group."""
        meeting, ask = asking.meeting, asking.ask
        self._peer_at(ask.of).check(ask.of, meeting.identity, meeting.certificate)
        self._group_at(ask.group).check_host(ask.of)
        check_age(meeting, None)

    def _may_ask(self, asking: Asking) -> bool:
        """Refuse an agent that may ask no longer. False: it may not."""
        try:
            self._check(asking)
        except ExchangeError as error:
            self._refuse(asking, error)
            return False
        return True

    def _changed(self, group: bytes) -> None:
        """Tell the agents that ask. Agents with the same identities may know the same members."""
        known: dict[tuple[str, str], tuple[int, ...]] = {}
        for asking in [*self._asking.get(group, ())]:
            ends = asking.meeting.identity, asking.meeting.uri
            if ends not in known:
                known[ends] = self._known_to(asking)
            self._tell(asking, known[ends])

    def _tell(self, asking: Asking, qpns: tuple[int, ...]) -> None:
        """Send the members to an agent that does not know them, at once or when it is due. Its
        certificate, or its connection, may have become too old since it asked."""
        if qpns == asking.told or asking.timer:
            return
        if not asking.pace.take(time.monotonic()):
            loop = asyncio.get_running_loop()
            asking.timer = loop.call_later(CHANGES[1], self._due, asking)
        elif self._may_ask(asking):
            asking.told = qpns
            asking.meeting.stream.send(encode(Members(qpns)))

    def _due(self, asking: Asking) -> None:
        asking.timer = None
        self._tell(asking, self._known_to(asking))

    def _known_to(self, asking: Asking) -> tuple[int, ...]:
        """The members that a peer may know."""
        group = asking.ask.group
        uses = (self._uses[group, qpn] for qpn in sorted(self._members.get(group, ())))
        return tuple(use.qpn for use in uses if use.admits(asking.meeting))

    def _heard(self, asking: Asking) -> None:
        """The peer has ended the stream, or has sent a second message."""
        if asking.meeting.stream.connected():
            self._refuse(asking, ExchangeError("state", "ASK is the only message of its stream"))
        else:
            self._remove(asking)
            asking.meeting.drop()
        if not asking.meeting.stream.link.end:
            asking.meeting.stream.link.refused(BUSY)

    def _refuse(self, asking: Asking, error: ExchangeError) -> None:
        self._remove(asking)
        address = asking.meeting.stream.link.address
        self._audit("refused", address=address, code=error.code, text=error.text)
        asking.meeting.refuse(error)

    def _remove(self, asking: Asking) -> None:
        group = asking.ask.group
        del self._asking[group][asking]
        if not self._asking[group]:
            del self._asking[group]
        self._ask_places.remove(asking, asking.limits)
        if asking.timer:
            asking.timer.cancel()


def _full(use: Use, at: Hashable) -> str:
    """Why a use has no place. at: a key of its limits."""
    what = "this group" if at == use.group else at[0] if isinstance(at, tuple) else "this agent"
    where = {"leg": "this program", "user": f"user {use.channel.uid}"}.get(what, what)
    return f"{where} has {use.limits[at].most} uses of groups already: end some of them first"
