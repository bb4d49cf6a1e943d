"""What was declared of upstream keys under a secret that nobody has any more.

It counts for nothing: an added key cannot be decrypted, and a key that was kept for a role is
everybody's again, since its digest is another now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.admission.secret import Secret
from gateway.config.result import Config
from gateway.state.heartbeats import Heartbeat
from gateway.state.pool_store import Declared, PoolStore


async def warn_of_void_keys(
    config: Config, store: PoolStore, secret: Secret, replicas: Sequence[Heartbeat]
) -> list[str]:
    """Say it, provider by provider, by the secrets of the replicas that live.

    While none lives it goes by `secret`. Raises `StateUnavailable`.
    """
    marks = {one.secret_mark for one in replicas} - {""} or {secret.mark} - {""}
    if not marks:
        return []
    providers = sorted({route.provider for route in config.routes})
    declared = await asyncio.gather(*map(store.declared, providers))
    voids = [one.void(marks) for one in declared]
    return [
        f"provider {provider}: what was declared under another CONCORD_SECRET counts for nothing: "
        f"{_listed(void)}. Put that secret back; or remove these keys and add them again (DELETE "
        "and POST /admin/provider-keys), and say anew whom keys are kept for (POST "
        "/admin/provider-keys/min-role-env)"
        for provider, void in zip(providers, voids, strict=True)
        if void.added or void.min_roles
    ]


def _listed(void: Declared) -> str:
    added = [one.id for one in void.added]
    kept = [f"{key} for {role}" for key, role in void.min_roles.items()]
    parts = (("added keys", added), ("keys kept for a role", kept))
    return "; ".join(f"{what} ({len(ids)}): {', '.join(ids)}" for what, ids in parts if ids)
