"""What is to be known of a cluster's Redis, for whoever runs it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from gateway.admin.void_keys import warn_of_void_keys
from gateway.admission.secret import Secret
from gateway.config.result import Config
from gateway.state.audit import Family, audit, problems_of
from gateway.state.heartbeats import read_heartbeats
from gateway.state.keys import Keys
from gateway.state.look import Look, Server, look_at
from gateway.state.pool_store import PoolStore
from gateway.state.store import Store


class Diagnosis(Struct, frozen=True, kw_only=True):
    """The server, its keys, and what is wrong with either."""

    redis: Look
    families: Sequence[Family] | None
    """`None` where the keys may not be listed."""
    problems: Sequence[str]


async def examine(
    config: Config, server: Server, store: Store, pool_store: PoolStore, secret: Secret
) -> Diagnosis:
    """Look at everything. Raises `StateUnavailable`."""
    state = config.settings.state
    look = await look_at(server)
    families = await audit(server, Keys(state.namespace))
    live, _ = read_heartbeats(await store.replicas(), ttl_ms=state.replica_ttl_s * 1000)
    problems = [*look.warnings(), *await warn_of_void_keys(config, pool_store, secret, live)]
    if families is None:
        problems.append("the keys cannot be listed: an ACL forbids SCAN")
    else:
        problems += problems_of(families)
    return Diagnosis(redis=look, families=families, problems=problems)
