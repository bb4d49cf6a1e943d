"""A rig whose streams are asked of a second endpoint when they have no output in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal

from gateway.config.result import Config
from gateway.config.routewise_schema import RoutewiseParams
from gateway.core.limits import EndpointLimits, Limit, Limits
from gateway.core.outcome import Outcome
from gateway.core.profile import Profile, Speed
from gateway.core.route import Route
from gateway.telemetry.tracing import Tracer
from tests.fakes import builders
from tests.fakes.calls import Call
from tests.fakes.gates import ScriptedGates
from tests.fakes.holds import Hold
from tests.fakes.rig import ADMIN, Rig
from tests.fakes.upstreams import ROLE, Answer, Upstreams

SECRET = "sk-alice"
PROMPT = 100
SAID = "x" * 4 * PROMPT
QUICK = Speed(mean_ms=1, source="profile", count=101, cdf_ms=(1.0,) * 101)
"""So the second is sent after 34 of the 40 ms."""
LIMITED = EndpointLimits(tpm=Limit(9000))


class Hedged(Rig):
    """Endpoints that are known to be quick; the first of them gets the request."""

    def __init__(
        self,
        *,
        gates: ScriptedGates | None = None,
        tracer: Tracer | None = None,
        fallback_mode: Literal["policy", "strict"] = "policy",
        **answers: Answer,
    ) -> None:
        routes = [builders.route(at, limits=LIMITED) for at in answers]
        super().__init__(
            Upstreams(**answers),
            *routes,
            config=_config(routes, fallback_mode),
            gates=gates,
            tracer=tracer,
            profile=Profile(speeds=dict.fromkeys(answers, QUICK)),
        )

    def start(self, *, headers: dict[str, str] | None = None, **fields: Any) -> Call:
        """Ask for a stream."""
        headers = headers or {"authorization": f"Bearer {SECRET}"}
        return self.call(headers=headers, **{"content": SAID, "stream": True, **fields})

    async def end(self, call: Call) -> Call:
        """Wait for the end of a request, and see that all of it has ended once."""
        await call.finished()
        await self.settled()
        self.assert_all_ended_once()
        return call

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds."""
        async with asyncio.timeout(10):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async def ended_at(self, location: str) -> None:
        """Wait until the store knows of the end of an attempt there."""
        await self.until(lambda: location in self.ends)

    @property
    def ends(self) -> dict[str, Outcome]:
        """By location, of its last attempt."""
        return {at: outcome for at, outcome, _ in self.store.outcomes}

    @property
    def uses(self) -> dict[str, str]:
        """What of limits each has used, by location."""
        ended = zip(self.store.outcomes, self.store.used, strict=True)
        return {at: used for (at, _, _), used in ended}


def _config(routes: list[Route], fallback_mode: Literal["policy", "strict"]) -> Config:
    params = RoutewiseParams(
        latency_slo_sec=0.04, latency_hedge_mode="probability_target", fallback_mode=fallback_mode
    )
    model = builders.model(*routes, router="routewise", router_params=params, counts_tokens=True)
    keys = [builders.key(SECRET, "alice", limits=Limits(tpm=Limit(100_000)))]
    return builders.config(model, keys=keys, admin_key=ADMIN)


def stalled(*then: bytes | Exception) -> tuple[Answer, Hold]:
    """A stream that announces its role, and goes on as told when it is let go."""
    hold = Hold()
    return Answer([ROLE, hold, *then]), hold


async def both_stalled(
    first: Sequence[bytes | Exception], second: Sequence[bytes | Exception], **more: Any
) -> tuple[Hedged, Call, Hold, Hold]:
    """A stream asked of two endpoints, `a` and `b`, of which neither has output.

    Each goes on as told when its hold, the third and the fourth, is let go.
    """
    a, hold = stalled(*first)
    b, other = stalled(*second)
    rig = Hedged(a=a, b=b, **more)
    call = rig.start()
    await other.reached.wait()
    return rig, call, hold, other
