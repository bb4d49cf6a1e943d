"""Work that is done again and again, whatever becomes of one round."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from gateway.errors import StateUnavailable
from gateway.state.coordinator_store import Fenced
from gateway.telemetry.logs import bug

RETRY_S = 1.0
"""How soon a round that Redis has kept from its work is tried again, if not sooner anyway."""


async def every(interval_s: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run until cancelled, or until a newer leader is met: raises what `is_fenced`."""
    while True:
        pause_s = interval_s
        try:
            await work()
        except Exception as failure:
            if is_fenced(failure):
                raise
            if _is_away(failure):
                pause_s = min(interval_s, RETRY_S)
            else:
                bug(loop=work.__name__)  # the other work must go on, and this may next time
        await asyncio.sleep(pause_s)


def is_fenced(failure: Exception) -> bool:
    """Whether it says, alone or among others, that there is a newer leader."""
    if isinstance(failure, ExceptionGroup):
        return failure.subgroup(Fenced) is not None
    return isinstance(failure, Fenced)


def _is_away(failure: Exception) -> bool:
    """Whether it says, alone or in all of its tasks, that Redis is away."""
    if isinstance(failure, ExceptionGroup):
        return failure.split(StateUnavailable)[1] is None
    return isinstance(failure, StateUnavailable)
