"""The replica's two loops: renew and reap leases, and say that the replica lives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from gateway.admission.claims import Claim, Claims, batches
from gateway.admission.reservations import Reservations
from gateway.admission.secret import Secret
from gateway.admission.settlement import Settlement
from gateway.admission.supplies import Supplies
from gateway.errors import StateUnavailable
from gateway.state.store import Store
from gateway.telemetry.logs import bug, event


class Upkeep:
    """Runs until cancelled. While Redis is away each round is skipped and the next one tries."""

    def __init__(
        self,
        store: Store,
        claims: Claims,
        reservations: Reservations,
        settlement: Settlement,
        secret: Secret,
        *,
        supplies: Supplies,
        models: Callable[[], Iterable[str]],
        about: Callable[[], str],
        lease_ms: int,
        heartbeat_s: float,
        replica_ttl_ms: int,
    ) -> None:
        self._store = store
        self._claims = claims
        self._reservations = reservations
        self._settlement = settlement
        self._supplies = supplies
        self._secret = secret
        self._models = models
        self._about = about
        self._lease_ms = lease_ms
        self._heartbeat_s = heartbeat_s
        self._replica_ttl_ms = replica_ttl_ms
        self._ever_served: dict[str, None] = {}
        self._live = 1

    async def run(self) -> None:
        """Run both loops."""
        async with asyncio.TaskGroup() as loops:
            loops.create_task(_every(self._lease_ms / 3000, self.renew))
            loops.create_task(_every(self._heartbeat_s, self.beat))

    async def renew(self) -> None:
        """Renew every claim held, make good what the store has lost of them, reap every model.

        Models that have been taken out of the configuration are reaped, too: the streams that they
        had may outlive their replica.
        """
        for model_id, claims in self._claims.by_model():
            for batch in batches(claims):
                known = {claim.id: claim for claim in batch}
                unknown, unheard = await self._store.renew(
                    model_id,
                    claims=list(known),
                    firsts=[claim.id for claim in batch if claim.first],
                    lease_ms=self._lease_ms,
                )
                for claim_id in unheard:
                    if self._claims.holds(known[claim_id]):
                        self._settlement.first_token(known[claim_id])
                lost = [known[claim_id] for claim_id in unknown]
                if lost:
                    await self._reassert(model_id, lost)
        self._ever_served |= dict.fromkeys(self._models())
        for model_id in self._ever_served:
            await self._store.reap(model_id)
        await self._reservations.renew()
        await self._supplies.renew()

    async def beat(self) -> None:
        """Say that this replica lives, and learn how many do.

        Of this beat and the last the larger count stands: when the store was emptied, the others
        are missing from it until they beat again.
        """
        reply = await self._store.beat_replica(
            self._claims.replica_id,
            about=self._about(),
            ttl_ms=self._replica_ttl_ms,
            salt=self._secret.offer,
        )
        self._secret.adopt(reply.salt)
        self._settlement.live_replicas = max(reply.live_replicas, self._live)
        self._live = reply.live_replicas

    async def leave(self) -> None:
        """Say that this replica goes."""
        await self._store.beat_replica(
            self._claims.replica_id, about="", ttl_ms=self._replica_ttl_ms
        )

    async def _reassert(self, model_id: str, lost: list[Claim]) -> None:
        put_back = 0
        for claim in lost:
            if self._claims.holds(claim):  # it may have ended since
                put_back += await self._store.reassert(
                    model_id,
                    claim=claim.id,
                    location=claim.route.location,
                    lease_ms=self._lease_ms,
                    first=claim.first,
                    tokens=claim.tokens if claim.is_prefill else 0,
                    is_elephant=claim.is_elephant and claim.is_prefill,
                    caller=claim.prompt.caller,
                )
        if put_back:
            event("state_regressed", level=logging.WARNING, model=model_id, claims=put_back)


async def _every(interval_s: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    while True:
        try:
            await work()
        except StateUnavailable:
            pass  # the next round tries again
        except Exception:  # whatever it is, a replica that stops renewing loses its claims
            bug(loop=work.__name__)
        await asyncio.sleep(interval_s)
