"""One replica's way to Redis, with a breaker whose clock stands until it is moved."""

from __future__ import annotations

import asyncio

import pytest

from gateway.errors import StateUnavailable
from gateway.state.breaker import Breaker
from gateway.state.keys import Keys
from gateway.state.policy import Policy
from gateway.state.redis import RedisRunner, make_link
from gateway.state.scripts import folder, load_all

SCRIPTS = load_all(folder())
PATIENT_S = 2.0
"""A timeout that no busy machine reaches."""
HASTY_S = 0.1
"""A timeout to be waited for."""
SOON_S = 5.0
"""Far beyond any wait that is meant; what takes longer hangs."""


class Clock:
    """A clock that stands until it is moved."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Caller:
    """One replica's runner and the keys of a model."""

    def __init__(self, url: str, keys: Keys, *, timeout_s: float = PATIENT_S) -> None:
        self.clock = Clock()
        self.breaker = Breaker(self.clock, jitter=lambda low, high: high)
        self.runner = RedisRunner(make_link(url, timeout_s=timeout_s), SCRIPTS, self.breaker)
        self.keys = keys

    async def beat(self) -> int:
        args: dict[str, str | int] = {
            "replica": "r1",
            "about": "host=h",
            "ttl_ms": 6_000,
            "salt": "",
        }
        return (await self.runner.run("beat_replica", self.keys.cluster(), args))[1]

    async def admit(self, claim: str, location: str = "a") -> str:
        args: dict[str, str | int] = {
            "epoch": 0,
            "candidates": f"{location} 1",
            "tried": "",
            "order": "declared",
            "draws": "",
            "caller": "",
            "prompt_tokens": 0,
            "fingerprint": "",
            "output_tokens": 0,
            "offers": "",
            "rules": f"{Policy().to_decide} 0",
            "claim": claim,
            "lease_ms": 15_000,
        }
        return (await self.runner.run("admit", self.keys.caller("x", ""), args))[1]

    async def reap(self) -> int:
        return (await self.runner.run("reap", self.keys.model("x"), {"limit": 9}))[1]


async def fails(caller: Caller) -> StateUnavailable:
    async with asyncio.timeout(SOON_S):
        with pytest.raises(StateUnavailable) as raised:
            await caller.beat()
    return raised.value
