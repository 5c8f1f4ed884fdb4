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
from srdma.keyex.messages import decode, encode
from srdma.keyex.pace import Pace
from srdma.keyex.streams import BUSY

# Uses of groups: of all programs, of a user (or of all users of another computer), and of a leg.
USES_MAX, USES_PER_USER, USES_PER_LEG = 1024, 256, 64
# Peers' agents that ask: all, those of an identity, those of a GID, and these for one group.
ASKING_MAX, ASKING_PER_IDENTITY, ASKING_PER_GID, ASKING_TWICE = 4096, 1024, 1024, 16
INBOX = 1024  # bytes of an agent that asks: it waits for the answer to each question
CHANGES = 64, 0.1  # times that a group is told at once, and seconds for once more in the long run
COMPARED_MAX = 128  # identities of peers of which a use knows whether they are permitted
GIVES_WAY = "this use of the group gives way to programs of users with fewer"
CHANGED = "the policy of this group was changed: use it again"
OTHER_QP = "the worker has given the QPN to another program"


@dataclass(eq=False)
class Use:
    """A UD QP of a program sends to a group, and receives from it if it is a `member`.

    leg: worker and token of its leg, whose number may be that of a former one. entry: of the
    policy, since used(). over: the reason, once the agent ends it.
    """

    channel: Channel
    own: Own
    group: bytes
    qpn: int
    leg: Hashable
    member: bool
    entry: Group = field(init=False)
    over: asyncio.Future[ExchangeError] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    _compared: dict[str, bool] = field(default_factory=dict)  # see permits()

    def permits(self, identity: str) -> bool:
        """True if the program and the policy permit a peer. The identity is compared once until
        policy_changed(): a program can give so many patterns that it takes 20 ms."""
        if identity not in self._compared:
            if len(self._compared) >= COMPARED_MAX:
                self._compared.clear()
            self._compared[identity] = self._compare(identity)
        return self._compared[identity]

    def policy_changed(self) -> None:
        """It may permit other peers."""
        self._compared.clear()

    def _compare(self, identity: str) -> bool:
        try:
            self.own().check(identity)
        except ExchangeError:
            return False
        return True

    def admits(self, meeting: Meeting) -> bool:
        """True if the peer may know it: it came to the same identity, which permits the peer's."""
        return self.own().credentials.identity == meeting.uri and self.permits(meeting.identity)

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
    """A peer's agent that asks. asks and answered: number of its questions, and of those that it
    knows to have arrived. told: the QPNs that it knows."""

    meeting: Meeting
    ask: Ask
    asks: int = 1
    answered: int = 0
    told: tuple[int, ...] = ()

    @property
    def limits(self) -> Limits:
        identity, gid = f"identity {self.meeting.identity}", f"GID {gids.text_of(self.ask.of)}"
        return {
            identity: Limit(ASKING_PER_IDENTITY, (gid,)),
            gid: Limit(ASKING_PER_GID, (identity,)),
            (gid, self.ask.group): Limit(ASKING_TWICE, (identity,)),
            "": Limit(ASKING_MAX, (identity, gid)),
        }


@dataclass(eq=False)
class Roll:
    """A group. uses: by QPN. timer: until the agents that ask may be told of changes."""

    uses: dict[int, Use] = field(default_factory=dict)
    asking: dict[Asking, None] = field(default_factory=dict)
    pace: Pace = field(default_factory=lambda: Pace(*CHANGES))
    timer: asyncio.TimerHandle | None = None

    def known_to(self, meeting: Meeting) -> tuple[int, ...]:
        """The members that a peer may know."""
        members = (use for use in self.uses.values() if use.member)
        return tuple(sorted(use.qpn for use in members if use.admits(meeting)))


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
        self._rolls: dict[bytes, Roll] = {}  # by group; of those that are used or asked for
        self._use_places, self._ask_places = Places[Use](), Places[Asking]()

    @contextmanager
    def used(self, use: Use) -> Iterator[None]:
        """A program uses a group by its QP; see given_out(). Raises ExchangeError (`config`,
        `policy`, `quota`)."""
        if self._gid() == gids.NONE:
            raise ExchangeError(
                "config", "multicast needs a worker with a GID: srdma-offload --gid ADDRESS"
            )
        use.entry = self._permitted(use)
        if former := self._found(use.group, use.qpn):  # its end was not noticed yet
            self._leave(former, ExchangeError("taken", "a newer use of this UD QP replaces it"))
        self._make_room(use)
        self._roll(use.group).uses[use.qpn] = use
        self._use_places.add(use, use.limits)
        if use.member:
            self._audit("joined", uid=use.channel.uid, group=gids.text_of(use.group), qpn=use.qpn)
            self._changed(use.group)
        try:
            yield
        finally:
            self._leave(use)

    def given_out(self, qpn: int, leg: Hashable) -> None:
        """The worker says that a QP is of this leg. Uses of other legs were of a former QP."""
        for use in [self._found(group, qpn) for group in self._rolls]:
            if use and use.leg != leg:
                self._leave(use, ExchangeError("taken", OTHER_QP))

    def asked(self, meeting: Meeting, ask: Ask) -> None:
        """An ASK has arrived. Raises ExchangeError if it is refused."""
        if meeting.stream.version == 1:
            raise ExchangeError("version", "multicast needs srdma/2")
        asking = Asking(meeting, ask)
        self._check(asking)
        check_age(meeting, None)
        if ask.gid != self._gid():
            raise _closed(ask)
        try:
            gone = self._ask_places.make_room(asking.limits)
        except Full:
            raise ExchangeError("busy", "too many agents ask for groups here") from None
        for former in gone:
            self._refuse(former, ExchangeError("busy", "other agents have asked for fewer groups"))
        roll = self._roll(ask.group)
        roll.asking[asking] = None
        self._ask_places.add(asking, asking.limits)
        meeting.stream.most = INBOX
        meeting.stream.replaceable = True
        meeting.stream.watch(partial(self._heard, asking))
        self._tell(asking, roll.known_to(meeting))

    def policy_changed(self) -> None:
        """End the uses that the policy permits no longer, or whose hosts are others, and refuse
        the agents that may ask no longer."""
        uses = [use for roll in self._rolls.values() for use in roll.uses.values()]
        for use in uses:
            use.policy_changed()
        for use in uses:
            try:
                if self._permitted(use).hosts != use.entry.hosts:
                    raise ExchangeError("policy", CHANGED)
            except ExchangeError as error:
                self._leave(use, error)
        for asking in self._all_asking():
            try:
                self._check(asking)
            except ExchangeError as error:
                self._refuse(asking, error)
        for group in [*self._rolls]:
            self._changed(group)

    def know(self, gid: bytes) -> None:
        """The GID of the worker of this agent; see Rendezvous.know()."""
        for asking in self._all_asking():
            if gid not in (gids.NONE, asking.ask.gid):
                self._refuse(asking, _closed(asking.ask))

    def silence(self) -> None:
        """The agent ends: peers' agents do not learn that its programs leave, which come back."""
        for asking in self._all_asking():
            self._remove(asking)
            asking.meeting.drop()

    # Internal ---------------------------------------------------------------

    def _roll(self, group: bytes) -> Roll:
        return self._rolls.setdefault(group, Roll())

    def _found(self, group: bytes, qpn: int) -> Use | None:
        roll = self._rolls.get(group)
        return roll.uses.get(qpn) if roll else None

    def _all_asking(self) -> list[Asking]:
        return [asking for roll in self._rolls.values() for asking in roll.asking]

    def _permitted(self, use: Use) -> Group:
        """The entry of the policy for a use. Raises ExchangeError (`policy`)."""
        entry = self._group_at(use.group)
        entry.check_own(use.own().name)
        return entry

    def _make_room(self, use: Use) -> None:
        try:
            gone = self._use_places.make_room(use.limits)
        except Full as full:
            raise ExchangeError("quota", _full(use, full.at)) from None
        for former in gone:
            self._leave(former, ExchangeError("quota", GIVES_WAY))

    def _leave(self, use: Use, error: ExchangeError | None = None) -> None:
        """End a use, with a reason if it is not the program's; without effect the second time."""
        if self._found(use.group, use.qpn) is not use:
            return
        del self._rolls[use.group].uses[use.qpn]
        self._use_places.remove(use, use.limits)
        if error and not use.over.done():  # else the program ends it too
            use.over.set_result(error)
        if use.member:
            self._changed(use.group)
        self._tidy(use.group)

    def _check(self, asking: Asking) -> None:
        """Raise ExchangeError unless the policy permits a peer to ask for a group."""
        meeting, ask = asking.meeting, asking.ask
        self._peer_at(ask.of).check(ask.of, meeting.identity, meeting.certificate)
        self._group_at(ask.group).check_host(ask.of)

    def _changed(self, group: bytes) -> None:
        """Tell the agents that ask, at once or when it is due."""
        roll = self._rolls.get(group)
        if roll is None or roll.timer:
            return
        if roll.pace.take(time.monotonic()):
            self._tell_all(roll)
        else:
            loop = asyncio.get_running_loop()
            roll.timer = loop.call_later(CHANGES[1], self._due, group)

    def _due(self, group: bytes) -> None:
        self._rolls[group].timer = None
        self._changed(group)

    def _tell_all(self, roll: Roll) -> None:
        """Agents with the same identities may know the same members."""
        known: dict[tuple[str, str], tuple[int, ...]] = {}
        for asking in [*roll.asking]:
            ends = asking.meeting.identity, asking.meeting.uri
            if ends not in known:
                known[ends] = roll.known_to(asking.meeting)
            self._tell(asking, known[ends])

    def _tell(self, asking: Asking, qpns: tuple[int, ...]) -> None:
        """Send the members to an agent that does not know them. Its connection may have become too
        old since it asked."""
        if qpns == asking.told and asking.asks == asking.answered:
            return
        try:
            check_age(asking.meeting, None)
        except ExchangeError as error:
            self._refuse(asking, error)
            return
        asking.told, asking.answered = qpns, asking.asks
        asking.meeting.stream.send(encode(Members(qpns, asking.asks)))

    def _heard(self, asking: Asking) -> None:
        """The peer has ended the stream, or has sent a further message."""
        stream = asking.meeting.stream
        if stream.connected():
            try:
                self._asked_again(asking)
                return
            except ExchangeError as error:
                self._refuse(asking, error)
        else:
            self._remove(asking)
            asking.meeting.drop()
        if not stream.link.end:
            stream.link.refused(BUSY)

    def _asked_again(self, asking: Asking) -> None:
        """Raises ExchangeError."""
        while (raw := asking.meeting.stream.take()) is not None:
            if decode(raw) != asking.ask or asking.asks > asking.answered:
                raise ExchangeError("state", "only the same ASK may follow, after the answer")
            asking.asks += 1
        self._changed(asking.ask.group)

    def _refuse(self, asking: Asking, error: ExchangeError) -> None:
        self._remove(asking)
        address = asking.meeting.stream.link.address
        self._audit("refused", address=address, code=error.code, text=error.text)
        asking.meeting.refuse(error)

    def _remove(self, asking: Asking) -> None:
        del self._rolls[asking.ask.group].asking[asking]
        self._ask_places.remove(asking, asking.limits)
        self._tidy(asking.ask.group)

    def _tidy(self, group: bytes) -> None:
        """Forget a group without uses and without agents that ask; no effect the second time."""
        roll = self._rolls.get(group)
        if roll and not roll.uses and not roll.asking:
            del self._rolls[group]
            if roll.timer:
                roll.timer.cancel()


def _closed(ask: Ask) -> ExchangeError:
    return ExchangeError("closed", f"the GID here is not {gids.text_of(ask.gid)}")


def _full(use: Use, at: Hashable) -> str:
    """Why a use has no place. at: a key of its limits."""
    what = "this group" if at == use.group else at[0] if isinstance(at, tuple) else "this agent"
    where = {"leg": "this program", "user": f"user {use.channel.uid}"}.get(what, what)
    return f"{where} has {use.limits[at].most} uses of groups already: end some of them first"
