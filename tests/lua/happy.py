"""Each script's happy path, so that every script is put to the same trials."""

from __future__ import annotations

from collections.abc import Callable

from tests.lua.caller_rig import CallerRig, scope
from tests.lua.rig import CALLER, HOUR, LEASE_MS, Rig, prompt

Step = Callable[[Rig], object]
SAID = prompt(300_000, fingerprint="f1", anchor="9:a1")
DIGEST = "5f" * 32
RECORD = "id=alice role=pro rpm=10 made_ms=0 made_by=root"


def nothing(_: Rig) -> None:
    """On an empty store."""


def beats(rig: Rig) -> None:
    rig.beat("r1", salt="s")


def override(rig: Rig) -> None:
    assert rig.override("weight:a", "0.5")[0] == "done"


def one_claim(rig: Rig) -> None:
    rig.admit("r.1", prompt=SAID)


def expired_claims(rig: Rig) -> None:
    """Enough that something is ended, forgotten and recalled."""
    for i in range(6):
        rig.admit(f"dead.{i}", prompt=SAID)
    rig.later(LEASE_MS)
    rig.reap(2)


def claims_and_expired_ones(rig: Rig) -> None:
    expired_claims(rig)
    rig.admit("r.1", prompt=SAID)
    rig.admit("r.2", prompt=SAID)


def probing(rig: Rig) -> None:
    rig.open_circuit()
    rig.later(30_000)
    rig.admit("r.1", prompt=SAID)


def settle_each(rig: Rig) -> None:
    rig.settle("r.1", "success", prompt=SAID)
    rig.settle("r.2", "connect", prompt=SAID)
    rig.settle("dead.0", "auth", status=401, prompt=SAID)


LIMITED = (
    scope(rpm=9, tpm=900, max_parallel_requests=9, max_budget=900, budget_duration_ms=HOUR),
    scope("team", "acme", rpm=9),
)


def one_reservation(rig: Rig) -> None:
    """That has been held for long."""
    CallerRig.beside(rig).reserve("r.1", *LIMITED, tokens=9, nanousd=9)
    rig.client.pexpire(rig.keys["limits"], HOUR)


def expired_reservations(rig: Rig) -> None:
    """Enough that something is ended, forgotten and recalled."""
    callers = CallerRig.beside(rig)
    for i in range(6):
        callers.reserve(f"dead.{i}", *LIMITED, tokens=9, nanousd=9)
    rig.later(LEASE_MS)
    callers.later(LEASE_MS)
    callers.reap_caller(2)


def reserve_another(rig: Rig) -> None:
    reply = CallerRig.beside(rig).reserve("new.1", *LIMITED, tokens=9, nanousd=9)
    assert reply.is_reserved


def end_reservations(rig: Rig) -> None:
    callers = CallerRig.beside(rig)
    held = "lease_ms=15000 at_ms=1700000000000 tokens=9 nanousd=9 tpm=key:alice budget=key:alice"
    assert callers.settle_caller("dead.0", held=held, tokens=1, nanousd=1) == "late"
    assert callers.settle_caller("dead.5", outcome="unused") == "done"


def put_back(rig: Rig) -> None:
    held = "lease_ms=15000 at_ms=1700000000000 tokens=9 nanousd=9 parallel=key:alice"
    assert CallerRig.beside(rig).reassert_caller("dead.0", held) == "done"


def make_key(rig: Rig) -> None:
    assert rig.run("key_make", id="alice", digest=DIGEST, record=RECORD) == ["done"]


def change_key(rig: Rig) -> None:
    changed = RECORD.replace("pro", "free")
    assert rig.run("key_change", id="alice", before=RECORD, after=changed) == ["done"]


HAPPY: dict[str, tuple[Step, Step]] = {
    "admit": (expired_claims, lambda rig: rig.admit("new.1", "a 1 b 1", prompt=SAID)),
    "explain": (expired_claims, lambda rig: rig.explain("a 1 b 1", prompt=SAID)),
    "first_token": (probing, lambda rig: rig.first_token("r.1", prompt=SAID)),
    "settle": (claims_and_expired_ones, settle_each),
    "renew": (one_claim, lambda rig: rig.renew("r.1", "lost.1")),
    "reassert": (nothing, lambda rig: rig.reassert("r.1", tokens=7, elephant=1, caller=CALLER)),
    "reap": (expired_claims, lambda rig: rig.reap()),
    "rows": (one_claim, lambda rig: rig.run("rows")),
    "override": (nothing, override),
    "overrides": (override, lambda rig: rig.run("overrides")),
    "reset_circuit": (Rig.open_circuit, lambda rig: rig.run("reset_circuit", location="a")),
    "pin": (one_claim, lambda rig: rig.run("pin")),
    "drop_pin": (one_claim, lambda rig: rig.run("drop_pin")),
    "beat_replica": (nothing, beats),
    "replicas": (beats, lambda rig: rig.run("replicas")),
    "reserve_caller": (expired_reservations, reserve_another),
    "settle_caller": (expired_reservations, end_reservations),
    "renew_caller": (one_reservation, lambda rig: CallerRig.beside(rig).renew_caller("r.1", "l.1")),
    "reassert_caller": (expired_reservations, put_back),
    "reap_caller": (expired_reservations, lambda rig: CallerRig.beside(rig).reap_caller()),
    "caller_limits": (one_reservation, lambda rig: CallerRig.beside(rig).uses(*LIMITED)),
    "key_make": (nothing, make_key),
    "key_change": (make_key, change_key),
    "key_revoke": (make_key, lambda rig: rig.run("key_revoke", id="alice")),
    "key_find": (make_key, lambda rig: rig.run("key_find", digest=DIGEST, id="")),
    "key_list": (make_key, lambda rig: rig.run("key_list", cursor="0", count=10)),
}
"""By script: what comes before, as anybody; and the call itself."""
