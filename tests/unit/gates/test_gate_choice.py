"""Which gate stands before an attempt: its account's, its engine's, or none."""

from __future__ import annotations

import pytest

from gateway.config.upstream_schema import UpstreamConcurrency
from gateway.dispatch.gating import UNWATCHED, Gates, Waits
from gateway.state.keys import Keys
from gateway.state.redis import EMBEDDED_URL
from gateway.telemetry.tracing import UNTRACED
from tests.fakes import builders
from tests.unit.gates.replica import KEY, GateReplica

HERE, THERE = "http://localhost:8000/v1", "http://10.0.0.5:8000/v1"
ACCOUNT, ENGINE, NONE = (True, False), (False, True), (False, False)
STREAMED, WHOLE = True, False
ON, OFF = True, False


@pytest.mark.parametrize(
    ("base_url", "streamed", "engine_limit", "limiter", "gate"),
    [
        (THERE, WHOLE, None, ON, ACCOUNT),
        (THERE, STREAMED, None, ON, ACCOUNT),
        (THERE, STREAMED, 1, ON, ACCOUNT),
        (THERE, STREAMED, 1, OFF, NONE),
        (HERE, STREAMED, 1, ON, ENGINE),
        (HERE, STREAMED, 1, OFF, ENGINE),
        (HERE, STREAMED, None, ON, NONE),
        (HERE, WHOLE, 1, ON, NONE),
    ],
)
async def test_engines_here_hold_streams_and_accounts_elsewhere_everything(
    keys: Keys,
    base_url: str,
    streamed: bool,
    engine_limit: int | None,
    limiter: bool,
    gate: tuple[bool, bool],
) -> None:
    settings = UpstreamConcurrency(enabled=limiter)
    async with GateReplica(EMBEDDED_URL, keys, settings=settings) as replica:
        gates = Gates(replica.limiter, replica.hold)
        leave = await gates.enter(
            builders.route(base_url=base_url),
            KEY,
            is_stream=streamed,
            waits=Waits(engine_limit=engine_limit),
            line=UNWATCHED,
            trace=UNTRACED,
        )
        assert (leave.account is not None, leave.engine is not None) == gate
        leave.leave(200)
