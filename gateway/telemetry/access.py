"""The access log: one line per request, written when it has ended."""

from __future__ import annotations

import time

from msgspec import Struct, field, structs

from gateway.core.limits import NO_ROOM, Room
from gateway.core.request import Usage
from gateway.telemetry.logs import tell


class AttemptRecord(Struct, kw_only=True, omit_defaults=True):
    """One attempt, as the log tells it."""

    endpoint: str
    status: int | None = None
    error_type: str | None = None
    probe: bool = False
    dropped: dict[str, str] = field(default_factory=dict)
    """Location to reason, of the endpoints passed over before this one was chosen."""
    pin: str = ""
    """What became of the caller's pin: `kept`, `made`, or nothing."""
    queue_ms: float = 0.0
    """For how long it stood in line at gates."""
    rotated: list[int] = field(default_factory=list)
    """Statuses with which it failed under other keys before, 0 where there was none."""
    hedge: bool = False
    """Whether it was sent beside another that had no output; the one that loses ends as
    `hedge_lost`."""


class RequestRecord(Struct, kw_only=True):
    """What is known of a request; filled in along its way, in the units the names say."""

    request_id: str
    route: str
    trace_id: str | None = None
    caller: str | None = None
    model: str | None = None
    config_digest: str | None = None
    """Of the configuration that it was served under."""
    endpoint: str | None = None
    stream: bool = False
    attempts: list[AttemptRecord] = field(default_factory=list)
    offload: str | None = None
    """Why it has gone to the offload route, if it has."""
    offload_endpoint: str | None = None
    """Which that was."""
    refused: dict[str, str] = field(default_factory=dict)
    """Location to reason, when failover ended because no other endpoint could be used."""
    status: int = 0
    error_type: str | None = None
    ttft_ms: float | None = None
    overhead_ms: float | None = None
    """From the first byte of the request to sending it upstream for the first time."""
    usage: Usage | None = None
    room: Room = NO_ROOM
    """What is left of the caller's limits, for the headers."""
    limited_by: str | None = None
    """The limit that has refused it, such as `team:acme rpm`."""
    malformed_chunks: int = 0
    client_cancelled: bool = False
    bytes_out: int = 0
    started_s: float = field(default_factory=time.perf_counter)

    def elapsed_ms(self) -> float:
        """Milliseconds since the request began, to a hundredth."""
        return round((time.perf_counter() - self.started_s) * 1000, 2)


def write(record: RequestRecord) -> None:
    """Write the line."""
    usage = record.usage or Usage()
    tell(
        "request",
        {
            "request_id": record.request_id,
            "trace_id": record.trace_id,
            "caller": record.caller,
            "route": record.route,
            "model": record.model,
            "endpoint": record.endpoint,
            "stream": record.stream,
            "attempts": len(record.attempts),
            "attempt_log": [structs.asdict(attempt) for attempt in record.attempts],
            "refused": record.refused,
            "offload": record.offload,
            "offload_endpoint": record.offload_endpoint,
            "status": record.status,
            "error_type": record.error_type,
            "limited_by": record.limited_by,
            "ttft_ms": record.ttft_ms,
            "total_ms": record.elapsed_ms(),
            "overhead_ms": record.overhead_ms,
            "tokens_in": usage.prompt_tokens,
            "tokens_out": usage.completion_tokens,
            "tokens_cached": usage.cached_tokens,
            "malformed_chunks": record.malformed_chunks,
            "client_cancelled": record.client_cancelled,
            "bytes": record.bytes_out,
        },
    )
