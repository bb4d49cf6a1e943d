"""What is to be known of a cluster's Redis, for whoever runs it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from gateway.state.audit import Family, audit, problems_of
from gateway.state.keys import Keys
from gateway.state.look import Look, Server, look_at


class Diagnosis(Struct, frozen=True, kw_only=True):
    """The server, its keys, and what is wrong with either."""

    redis: Look
    families: Sequence[Family] | None
    """`None` where the keys may not be listed."""
    problems: Sequence[str]


async def examine(server: Server, keys: Keys) -> Diagnosis:
    """Look at everything. Raises `StateUnavailable`."""
    look = await look_at(server)
    families = await audit(server, keys)
    problems = look.warnings()
    if families is None:
        problems.append("the keys cannot be listed: an ACL forbids SCAN")
    else:
        problems += problems_of(families)
    return Diagnosis(redis=look, families=families, problems=problems)
