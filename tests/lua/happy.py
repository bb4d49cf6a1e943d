"""Each script's happy path, so that every script is put to the same trials."""

from __future__ import annotations

from collections.abc import Callable

from tests.lua.rig import CALLER, LEASE_MS, Rig, prompt

Step = Callable[[Rig], object]
SAID = prompt(300_000, fingerprint="f1", anchor="9:a1")


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
}
"""By script: what comes before, as anybody; and the call itself."""
