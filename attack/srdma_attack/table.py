"""All attacks, and the table of docs/attacks.md.

Names in `ids`: sections of RFC 5042; attacks of ReDMArk (USENIX Security 2021) and NeVerMore (CCS
2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from srdma_attack.against_srdma import (
    answers,
    injection,
    local,
    memory,
    on_path,
    overload,
    paths,
    pins,
    quotas,
    sessions,
    unread,
)
from srdma_attack.attack import (
    Attack,
    Attacker,
    Finding,
    KitError,
    Outcome,
    Run,
    Settings,
    Target,
)


def _plain(name: str, module: str = "attacks") -> Run:
    """The attack of a module of against_plain, which needs pyverbs, imported at the first run."""

    def run(settings: Settings) -> Finding:
        attacks = import_module(f"srdma_attack.against_plain.{module}")
        found: Finding = getattr(attacks, name)(settings)
        return found

    return run


ATTACKS: tuple[Attack, ...] = (
    Attack(
        "inject-write",
        "write into a peer's memory by a forged WRITE, under all packet numbers",
        Attacker.NETWORK,
        "RFC 5042 5.1.1, ReDMArk A1",
        "refused_tag",
        injection.inject,
        _plain("inject"),
    ),
    Attack(
        "kill-qp",
        "end a connection by a forged request with a wrong rkey",
        Attacker.NETWORK,
        "RFC 5042 5.1.1, ReDMArk A2",
        "refused_tag",
        injection.kill,
        _plain("kill"),
    ),
    Attack(
        "forge-ack",
        "make a WRITE complete that the peer never got",
        Attacker.PATH,
        "RFC 5042 5.1.3",
        "refused_tag",
        answers.forge_ack,
        _plain("forge_ack"),
    ),
    Attack(
        "forge-nak",
        "end a connection by a forged NAK",
        Attacker.PATH,
        "RFC 5042 5.1.1",
        "refused_tag",
        answers.forge_nak,
        _plain("forge_nak"),
    ),
    Attack(
        "forge-read-response",
        "give an initiator other data than its peer has",
        Attacker.PATH,
        "RFC 5042 5.1.3",
        "refused_tag",
        answers.forge_response,
        _plain("forge_response"),
    ),
    Attack(
        "forge-disconnect",
        "end a connection in the name of the peer",
        Attacker.PATH,
        "RFC 5042 5.1.1",
        "refused_tag",
        answers.forge_close,
        _plain("forge_disconnect", "on_path"),
    ),
    Attack(
        "flip",
        "change bits of packets on their way",
        Attacker.PATH,
        "RFC 5042 5.2",
        "refused_tag",
        on_path.flip,
        _plain("flip", "on_path"),
    ),
    Attack(
        "truncate",
        "cut the payload of packets",
        Attacker.PATH,
        "RFC 5042 5.2",
        "refused_tag",
        on_path.truncate,
        _plain("truncate", "on_path"),
    ),
    Attack(
        "replay",
        "undo a WRITE by repeating an older one",
        Attacker.PATH,
        "RFC 5042 5.4.1",
        "refused_replay",
        on_path.replay,
        _plain("replay", "on_path"),
    ),
    Attack(
        "reorder",
        "place data in the wrong order",
        Attacker.PATH,
        "RFC 5042 5.4.1",
        "kept",
        on_path.reorder,
        _plain("reorder", "on_path"),
    ),
    Attack(
        "reflect",
        "make a host execute its own requests",
        Attacker.PATH,
        "RFC 5042 5.1.3",
        "refused_tag",
        on_path.reflect,
    ),
    Attack(
        "downgrade-packet",
        "have packets without a tag accepted on a protected QP",
        Attacker.PATH,
        "RFC 5042 5.1.3",
        "refused_tag_code",
        on_path.downgrade,
    ),
    Attack(
        "guess-rkey",
        "reach memory under guessed rkeys",
        Attacker.PEER,
        "RFC 5042 6.1.1, ReDMArk A3",
        "reason_BAD_RKEY",
        memory.guess_rkey,
    ),
    Attack(
        "use-rkey-of-other-pd",
        "use the rkey of another program",
        Attacker.PEER,
        "RFC 5042 6.1.1",
        "reason_WRONG_PD",
        memory.use_rkey_of_another_pd,
    ),
    Attack(
        "use-rkey-of-other-qp",
        "use the rkey that another peer of the same program got",
        Attacker.PEER,
        "RFC 5042 6.1.1",
        "reason_QP_SCOPE",
        memory.use_rkey_of_another_qp,
        _plain("use_rkey_of_another_qp"),
    ),
    Attack(
        "waive-proof",
        "use an rkey without the capability that its region demands",
        Attacker.PEER,
        "RFC 5042 6.1.1, ReDMArk A3",
        "reason_PROOF_REQUIRED",
        memory.waive_proof,
    ),
    Attack(
        "over-read",
        "read and write beyond the ends of a region",
        Attacker.PEER,
        "RFC 5042 6.2.1, 6.3.1",
        "reason_OUT_OF_BOUNDS",
        memory.over_read,
        _plain("over_read"),
        Outcome.STOPPED,
    ),
    Attack(
        "exceed-rights",
        "read what is for writes, write what is for reads",
        Attacker.PEER,
        "RFC 5042 6.3.5",
        "reason_NO_RIGHT",
        memory.exceed_rights,
        _plain("exceed_rights"),
        Outcome.STOPPED,
    ),
    Attack(
        "late-access",
        "use an rkey after the region was deregistered",
        Attacker.PEER,
        "RFC 5042 6.2.2, 6.3.3",
        "reason_BAD_RKEY",
        memory.late_access,
        _plain("late_access"),
        Outcome.STOPPED,
    ),
    Attack(
        "stale-read",
        "read what others left in memory that was just allocated",
        Attacker.PEER,
        "RFC 5042 6.3.2",
        "dma_read_bytes",
        memory.stale_read,
    ),
    Attack(
        "remote-invalidate",
        "invalidate the rkey that another peer uses",
        Attacker.PEER,
        "RFC 5042 6.4.5",
        "reason_UNSUPPORTED",
        memory.remote_invalidate,
    ),
    Attack(
        "cq-storm",
        "overrun the completion queue of the victim",
        Attacker.PEER,
        "RFC 5042 6.4.3.2",
        "reason_NO_RECV",
        overload.completion_storm,
    ),
    Attack(
        "read-queue",
        "take all resources for READs",
        Attacker.PEER,
        "RFC 5042 6.4.3.3",
        "kept",
        overload.read_queue,
    ),
    Attack(
        "slow-path-flood",
        "keep a worker busy by packets that take longer than others",
        Attacker.PEER,
        "RFC 5042 6.4.4, ReDMArk A5",
        "refused_gap",
        overload.slow_paths,
    ),
    Attack(
        "pin-reorder-buffers",
        "keep the reorder buffers that all peers share full",
        Attacker.PEER,
        "RFC 5042 6.4.1",
        "refused_gap",
        pins.reorder_buffers,
    ),
    Attack(
        "handshake-flood",
        "shut peers out by silent connections",
        Attacker.NETWORK,
        "RFC 5042 6.4",
        "connections_closed",
        sessions.handshake_flood,
    ),
    Attack(
        "impersonate-peer",
        "connect in the name of another peer",
        Attacker.NETWORK,
        "RFC 5042 5.1.1",
        "exchanges_refused",
        sessions.impersonate,
    ),
    Attack(
        "impersonate-rendezvous",
        "answer for a GID of another identity",
        Attacker.PEER,
        "RFC 5042 5.1.1",
        "exchanges_refused",
        sessions.impersonate_rendezvous,
    ),
    Attack(
        "evade-renewal",
        "go on with secrets after their life",
        Attacker.PEER,
        "RFC 5042 5.4",
        "reason_KEY_LIMIT",
        sessions.evade_renewal,
    ),
    Attack(
        "alias-memory",
        "let peers write memory that another program exposes",
        Attacker.LOCAL,
        "RFC 5042 6.2.3, 6.3.6",
        "registrations_refused",
        local.alias,
    ),
    Attack(
        "inject-as-other-user",
        "act on the legs of another user's program",
        Attacker.LOCAL,
        "NeVerMore",
        "refused_by_kernel",
        local.inject_as_another_user,
    ),
    Attack(
        "amplify",
        "send a victim many times the bytes that the attacker sends",
        Attacker.PEER,
        "RFC 9000 8.1",
        "path_changes_refused",
        paths.reflect,
    ),
    Attack(
        "race",
        "draw the packets for a client to another address",
        Attacker.OBSERVER,
        "RFC 9000 9.3.3",
        "path_changes_refused",
        paths.race,
    ),
    Attack(
        "hog",
        "take all legs, QPs and regions of a worker",
        Attacker.LOCAL,
        "RFC 5042 6.4.1, ReDMArk A4",
        "requests_refused",
        quotas.hog,
    ),
    Attack(
        "exhaust-as-peer",
        "take all QPs that a worker has for peers, and keep them busy",
        Attacker.PEER,
        "RFC 5042 6.4.1, 6.4.3",
        "quota_qps",
        quotas.exhaust_as_peer,
    ),
    Attack(
        "answers-never-taken",
        "fill a worker with answers that are not taken",
        Attacker.LOCAL,
        "RFC 5042 6.4.3",
        "requests_taken",
        unread.never_take,
    ),
)
BY_NAME = {attack.name: attack for attack in ATTACKS}

HEADINGS = ("attack", "aim", "attacker", "after", "plain RoCE", "srdma", "counter")


def named(names: Sequence[str]) -> tuple[Attack, ...]:
    """The attacks of these names; none: all. Raises KitError."""
    if unknown := [name for name in names if name not in BY_NAME]:
        raise KitError(f"no attack {', '.join(unknown)}: `srdma attack --list` lists all")
    return tuple(BY_NAME[name] for name in names) if names else ATTACKS


def cells(attack: Attack) -> tuple[str, ...]:
    """The row of an attack, with the expected outcomes; "-" where it is not run."""
    plain, secure = (
        attack.expected(target).value if attack.run_of(target) else "-"
        for target in (Target.PLAIN, Target.SRDMA)
    )
    return (
        attack.name, attack.aim, attack.attacker.value, attack.ids, plain, secure,
        f"`{attack.counter}`",
    )  # fmt: skip


def markdown() -> str:
    """The table of all attacks as it is in docs/attacks.md."""
    rows = [HEADINGS, ("---",) * len(HEADINGS), *map(cells, ATTACKS)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
