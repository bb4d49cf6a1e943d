"""Each script's happy path, so that every script is put to the same trials."""

from __future__ import annotations

from collections.abc import Callable

from tests.lua.caller_rig import CallerRig, scope
from tests.lua.gate_rig import CONFIRM_MS, GateRig
from tests.lua.pool_rig import MUTE_MS, PoolRig
from tests.lua.rig import CALLER, DAY, HOUR, LEASE_MS, Rig, prompt
from tests.lua.supply_rig import SupplyRig

Step = Callable[[Rig], object]
SAID = prompt(300_000, fingerprint="f1", anchor="9:a1")
COOLING = "tally=failed length_ms=1000 reason=r mostly=1"
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


NOTED = "1000 at=a how=ok ttft_ms=200 prompt=10 output=5"


def settle_each(rig: Rig) -> None:
    rig.settle("r.1", "success", prompt=SAID, noted=NOTED)
    rig.settle("r.2", "connect", prompt=SAID)
    rig.settle("dead.0", "auth", status=401, prompt=SAID, cooling=COOLING)


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


EPOCH = 2_000_000_000


def take_lease(rig: Rig) -> None:
    args = {"holder": "c1", "epoch": 0, "lease_ms": LEASE_MS, "about": "host=h"}
    assert rig.run("lease", **args)[0] == "held"


def publish(rig: Rig) -> None:
    assert rig.run("publish", epoch=EPOCH, what="tick", value="ended=0")[0] == "done"


def fail_probe(rig: Rig) -> None:
    reply = rig.run(
        "record_probe",
        epoch=EPOCH,
        prober="c1",
        location="a",
        outcome="failed",
        live_replicas=2,
        rules=rig.policy.to_record,
    )
    assert reply == ["done", "opened"]


def tidy(rig: Rig) -> None:
    """Of a model that is not configured any more, all of whose claims have expired."""
    args = {"locations": "", "replicas": "", "limit": 128}
    assert rig.run("tidy_model", epoch=EPOCH, **args)[:2] == ["done", 4]


def pinned(rig: Rig) -> None:
    rig.put_pin("gone")


def drop_stale_pin(rig: Rig) -> None:
    assert rig.run("drop_stale_pin", epoch=EPOCH, location="gone") == ["done"]


def know_pool(rig: Rig) -> None:
    PoolRig.beside(rig)


def bind_key(rig: Rig) -> None:
    assert PoolRig.beside(rig).take().key == "k0"


def refuse_keys(rig: Rig) -> None:
    pool = PoolRig.beside(rig)
    assert pool.release("k0").is_rotated
    assert pool.release("k1").status == "propagate"


def serve_keys(rig: Rig) -> None:
    pool = PoolRig.beside(rig)
    pool.later(2 * MUTE_MS)
    assert pool.release("k1", "none").status == "served"
    assert pool.release("k0").is_rotated


def add_key(rig: Rig) -> None:
    assert PoolRig.beside(rig).add() == "done"


def retier_keys(rig: Rig) -> None:
    pool = PoolRig.beside(rig)
    assert pool.retier("added:a1", "internal") == pool.retier("hash:k0", "pro") == "done"


def note(rig: Rig) -> None:
    """The end of an attempt, for the coordinator."""
    rig.admit("r.1")
    rig.settle("r.1", noted=NOTED)


def read_outcomes(rig: Rig) -> None:
    args = {"epoch": EPOCH, "reader": "c1", "limit": 10}
    words = NOTED.partition(" ")[2]
    assert rig.run("read_outcomes", **{"from": "0"}, **args)[1][1] == words
    rig.run("note_probe", epoch=EPOCH, words=words, keep=1000)
    assert rig.run("read_outcomes", **{"from": "next"}, **args)[1][1] == words


def publish_profile(rig: Rig) -> None:
    read = rig.client.xrange(rig.keys["outcomes"])[-1][0]
    assert rig.run("publish_profile", epoch=EPOCH, value="{}", read=read)[0] == "done"


def note_probe(rig: Rig) -> None:
    words = "at=a how=error ttft_ms=0 prompt=0 output=0 by=probe"
    assert rig.run("note_probe", epoch=EPOCH, words=words, keep=1000) == ["done"]


def note_and_read(rig: Rig) -> None:
    note(rig)
    read_outcomes(rig)


def note_and_publish(rig: Rig) -> None:
    note_and_read(rig)
    publish_profile(rig)


def one_granted(rig: Rig) -> None:
    """A full gate, whose first in line has been granted a place that it has not confirmed."""
    gate = GateRig.beside(rig)
    gate.fill("b.0", "a.1")
    gate.line_up("b.1", "c.1")
    assert gate.leave("b.0").granted == "b.1"


def one_frozen(rig: Rig) -> None:
    """And does not, so that the place goes on, to one that cannot be told."""
    one_granted(rig)
    rig.later(CONFIRM_MS)


def left_behind(rig: Rig) -> None:
    """A gate with nobody in it, but for what some have been known by."""
    gate = GateRig.beside(rig)
    gate.answered(429)
    rig.client.hset(rig.keys["gate_tickets"], "dead.1", "lease_ms=15000")
    rig.client.sadd(rig.keys["gate_frozen"], "dead")


def forget_gate(rig: Rig) -> None:
    assert GateRig.beside(rig).forget() == "done"


def stand_in_line(rig: Rig) -> None:
    gate = GateRig.beside(rig)
    gate.limit = 1
    assert gate.enter("a.2").status == "waiting"


def queue_up(rig: Rig) -> None:
    assert rig.run("queue", claim="r.1", queued=1) == ["done"]


def note_offload(rig: Rig) -> None:
    rig.run("note_offload", words="request=q reason=queue_wait", most=9, ttl_ms=7 * DAY)


def know_quota(rig: Rig) -> None:
    assert SupplyRig.beside(rig).report(used=1, limit=9) == "done"


def take_supply(rig: Rig) -> None:
    supply = SupplyRig.beside(rig)
    assert supply.take("r.1") == supply.take("r.1", "places") == "taken"


def take_supply_known(rig: Rig) -> None:
    know_quota(rig)
    rig.later(1)
    take_supply(rig)
    rig.later(1)


def a_dead_place(rig: Rig) -> None:
    assert SupplyRig.beside(rig).place("dead.1") == "taken"
    rig.later(LEASE_MS)


def reap_places(rig: Rig) -> None:
    assert SupplyRig.beside(rig).reap() == 1


HAPPY: dict[str, tuple[Step, Step]] = {
    "admit": (expired_claims, lambda rig: rig.admit("new.1", "a 1 b 1", prompt=SAID)),
    "explain": (expired_claims, lambda rig: rig.explain("a 1 b 1", prompt=SAID)),
    "first_token": (probing, lambda rig: rig.first_token("r.1", prompt=SAID)),
    "queue": (one_claim, queue_up),
    "settle": (claims_and_expired_ones, settle_each),
    "renew": (one_claim, lambda rig: rig.renew("r.1", "lost.1")),
    "reassert": (nothing, lambda rig: rig.reassert("r.1", tokens=7, elephant=1, caller=CALLER)),
    "reap": (expired_claims, lambda rig: rig.reap()),
    "rows": (one_claim, lambda rig: rig.rows()),
    "override": (nothing, override),
    "overrides": (override, lambda rig: rig.run("overrides")),
    "reset_circuit": (Rig.open_circuit, lambda rig: rig.run("reset_circuit", location="a")),
    "pin": (one_claim, lambda rig: rig.run("pin")),
    "drop_pin": (one_claim, lambda rig: rig.run("drop_pin")),
    "beat_replica": (nothing, beats),
    "replicas": (beats, lambda rig: rig.run("replicas")),
    "lease": (take_lease, take_lease),
    "publish": (nothing, publish),
    "coordinator": (publish, lambda rig: rig.run("coordinator")),
    "note_offload": (nothing, note_offload),
    "offloads": (note_offload, lambda rig: rig.run("offloads", within_ms=HOUR, most=9)),
    "record_probe": (nothing, fail_probe),
    "tidy_model": (expired_claims, tidy),
    "note_probe": (nothing, note_probe),
    "read_outcomes": (note, read_outcomes),
    "publish_profile": (note_and_read, publish_profile),
    "profile": (note_and_publish, lambda rig: rig.run("profile")),
    "supply_take": (know_quota, take_supply),
    "supply_release": (take_supply_known, lambda rig: SupplyRig.beside(rig).release("r.1", 1)),
    "supply_renew": (take_supply_known, lambda rig: SupplyRig.beside(rig).renew("r.1")),
    "supply_reap": (a_dead_place, reap_places),
    "supply_report": (take_supply_known, know_quota),
    "supply_state": (take_supply_known, lambda rig: SupplyRig.beside(rig).run("supply_state")),
    "drop_stale_pin": (pinned, drop_stale_pin),
    "reserve_caller": (expired_reservations, reserve_another),
    "settle_caller": (expired_reservations, end_reservations),
    "renew_caller": (one_reservation, lambda rig: CallerRig.beside(rig).renew_caller("r.1", "l.1")),
    "reassert_caller": (expired_reservations, put_back),
    "reap_caller": (expired_reservations, lambda rig: CallerRig.beside(rig).reap_caller()),
    "caller_limits": (one_reservation, lambda rig: CallerRig.beside(rig).uses(*LIMITED)),
    "gate_enter": (one_frozen, stand_in_line),
    "gate_confirm": (one_granted, lambda rig: GateRig.beside(rig).confirm("b.1")),
    "gate_poll": (one_frozen, lambda rig: GateRig.beside(rig).poll("a", held="a.1")),
    "gate_leave": (one_frozen, lambda rig: GateRig.beside(rig).leave("a.1", 429)),
    "gate_forget": (left_behind, forget_gate),
    "gate_state": (one_frozen, lambda rig: GateRig.beside(rig).gate()),
    "key_make": (nothing, make_key),
    "key_change": (make_key, change_key),
    "key_revoke": (make_key, lambda rig: rig.run("key_revoke", id="alice")),
    "key_find": (make_key, lambda rig: rig.run("key_find", digest=DIGEST, id="")),
    "key_list": (make_key, lambda rig: rig.run("key_list", cursor="0", count=10)),
    "pool_take": (know_pool, bind_key),
    "pool_release": (refuse_keys, serve_keys),
    "pool_serves": (refuse_keys, lambda rig: PoolRig.beside(rig).serves(0)),
    "pool_mutes": (refuse_keys, lambda rig: PoolRig.beside(rig).run("pool_mutes")),
    "pool_declared": (add_key, lambda rig: PoolRig.beside(rig).run("pool_declared", epoch=-1)),
    "pool_add": (know_pool, add_key),
    "pool_retier": (add_key, retier_keys),
    "pool_remove": (add_key, lambda rig: PoolRig.beside(rig).remove()),
}
"""By script: what comes before, as anybody; and the call itself."""
