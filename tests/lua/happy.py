"""Each script's happy path, so that every script is put to the same trials."""

from __future__ import annotations

from collections.abc import Callable

from gateway.core.prompt import Prompt
from tests.lua.rig import LEASE_MS, Rig


def one_claim(rig: Rig) -> None:
    rig.admit("r.1")


def expired_claims(rig: Rig) -> None:
    """Enough that something is ended, forgotten and recalled."""
    for i in range(6):
        rig.admit(f"dead.{i}")
    rig.later(LEASE_MS)
    rig.reap(2)


def probing(rig: Rig) -> None:
    rig.open_circuit()
    rig.later(30_000)
    rig.admit("r.1")


def nothing(_: Rig) -> None:
    """On an empty store."""


def settle_each(rig: Rig) -> None:
    rig.settle("r.1", "connect")
    rig.settle("dead.0", "auth", status=401)


def set_weight(rig: Rig, location: str, weight: str) -> None:
    routes = "a one 1 b two 1"
    rig.run("override", field=f"weight:{location}", value=weight, routes=routes, force=0)


SESSION = Prompt(caller="0123456789abcdef", tokens=60_000, fingerprint="f1")


def pinned(rig: Rig) -> None:
    rig.admit("r.1", prompt=SESSION)


Step = Callable[[Rig], object]

HAPPY: dict[str, tuple[Step, Step]] = {
    "admit": (expired_claims, lambda rig: rig.admit("new.1", "a 1 b 1")),
    "first_token": (probing, lambda rig: rig.first_token("r.1")),
    "settle": (lambda rig: (expired_claims(rig), one_claim(rig)), settle_each),
    "renew": (one_claim, lambda rig: rig.renew("r.1", "lost.1")),
    "reassert": (nothing, lambda rig: rig.reassert("r.1")),
    "reap": (expired_claims, lambda rig: rig.reap()),
    "beat_replica": (nothing, lambda rig: rig.beat("r1")),
    "rows": (one_claim, lambda rig: rig.run("rows")),
    "explain": (expired_claims, lambda rig: rig.explain("a 1 b 1")),
    "override": (nothing, lambda rig: set_weight(rig, "a", "0.5")),
    "overrides": (lambda rig: set_weight(rig, "a", "0.5"), lambda rig: rig.run("overrides")),
    "reset_circuit": (
        lambda rig: rig.open_circuit(),
        lambda rig: rig.run("reset_circuit", location="a"),
    ),
    "replicas": (lambda rig: rig.beat("r1"), lambda rig: rig.run("replicas")),
    "pin": (pinned, lambda rig: rig.run("pin", of=SESSION.caller)),
    "drop_pin": (pinned, lambda rig: rig.run("drop_pin", of=SESSION.caller)),
}
"""By script: what comes before, as anybody; and the call itself."""
