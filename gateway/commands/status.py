"""`concord status`: endpoints, replicas and store of a cluster, and what looks wrong."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gateway.commands.asking import add_options, answer
from gateway.commands.standing import budgets, cooling, gates, limits
from gateway.commands.table import table

if TYPE_CHECKING:
    from gateway.admin.status import CoordinatorStatus, EndpointStatus, Status
    from gateway.state.heartbeats import Heartbeat
    from gateway.state.look import Look

MIB = 1024 * 1024
MINUTE_MS = 60_000


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Register the command."""
    parser = subparsers.add_parser("status", help="show a cluster's endpoints, replicas and store")
    add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the status. Exit codes as of `answer`."""
    return answer(args, lambda cluster: cluster.status(), _text)


def _text(status: Status) -> str:
    claims = ", ".join(f"{model} {count}" for model, count in status.claims.items() if count)
    rest = [
        f"claims       {claims or 'none'}",
        f"coordinator  {_coordinator(status.coordinator)}",
        f"redis        {redis(status.redis)}",
        *(f"warning: {warning}" for warning in status.warnings),
    ]
    heads = ("ENDPOINT", "CIRCUIT", "AVAILABLE", "INFLIGHT", "PREFILL", "WEIGHT", "NOTES")
    endpoints = table(heads, [_endpoint(id, one) for id, one in status.endpoints.items()])
    return "\n\n".join(
        [
            endpoints,
            *limits((id, one.limits) for id, one in status.endpoints.items()),
            *budgets(status.retry_budgets.items()),
            *gates(status.gates),
            _replicas(status.replicas),
            "\n".join(rest),
        ]
    )


def _endpoint(id: str, one: EndpointStatus) -> tuple[str, ...]:
    notes = [*one.reasons, *cooling(one.cooldown)]
    if one.last_status:
        notes.append(f"last error {one.last_status}")
    if one.unreachable_from:
        notes.append(f"unreachable from {', '.join(one.unreachable_from)}")
    return (
        id,
        one.circuit,
        f"{one.availability:.1%}",
        str(one.inflight),
        str(one.prefill_tokens),
        f"{one.weight:g}",
        ", ".join(notes),
    )


def _replicas(replicas: Sequence[Heartbeat]) -> str:
    if not replicas:
        return "no replica lives"
    rows = [
        (one.id, one.host, one.version, one.config_digest, f"{one.silent_ms / 1000:.1f} s ago")
        for one in replicas
    ]
    listed = table(("REPLICA", "HOST", "VERSION", "CONFIG", "SEEN"), rows)
    verb = "differ" if len({one.config_digest for one in replicas}) > 1 else "agree"
    return f"{listed}\nconfigurations {verb}"


def _coordinator(one: CoordinatorStatus | None) -> str:
    if one is None:
        return "none"
    lease = f"lease {one.left_ms / 1000:.1f} s" if one.left_ms else "lease has run out"
    ages = [f"{name} {_ago(age_ms)}" for name, age_ms in one.published.items()]
    return ", ".join([f"{one.holder} on {one.host}", f"epoch {one.epoch}", lease, *ages])


def _ago(ms: int) -> str:
    return f"{ms / 1000:.1f} s ago" if ms < MINUTE_MS else f"{ms // MINUTE_MS} min ago"


def redis(look: Look) -> str:
    """Tell of the store in a line."""
    if look.version is None:
        return "does not tell of itself"
    memory = f"{(look.memory_bytes or 0) / MIB:.1f} MiB"
    if look.max_memory_bytes:
        memory += f" of {look.max_memory_bytes / MIB:.1f}"
    words = [look.version, look.policy, look.persistence, memory]
    return ", ".join(word for word in words if word)
