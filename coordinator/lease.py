"""Leadership: at most one coordinator works at a time, in a scope that losing the lease cancels.

The lease is a record in Redis with a time of its own; its holder renews it, and stops working well
before it ends unless that has been heard of. Should a holder be frozen in between and go on later,
the epoch that all its writes carry is an old one by then, and they are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable

from gateway.errors import ScriptBug, StateUnavailable
from gateway.state.coordinator_store import CoordinatorStore, Fenced
from gateway.telemetry.logs import event


class LeaseLost(Exception):
    """Another coordinator has the lease, or this one has it anew."""


class Lease:
    """One process's part in the election.

    It asks every fifth of `lease_s`, and as the leader works until four fifths have passed since
    it last asked in time. `call_s` is the longest that one question takes. Raises `ValueError` when
    no second question could be answered before the work has to stop.
    """

    def __init__(
        self,
        store: CoordinatorStore,
        holder: str,
        *,
        about: Callable[[], str],
        lease_s: float,
        call_s: float,
    ) -> None:
        self._store = store
        self._about = about
        self._lease_ms = round(lease_s * 1000)
        self._renew_s = lease_s / 5
        self._hold_s = lease_s * 4 / 5
        if 2 * (self._renew_s + call_s) > self._hold_s:
            raise ValueError(
                f"a lease of {lease_s:g} s is too short for questions that take up to "
                f"{call_s:g} s: it must be at least five times as long"
            )
        self.holder = holder
        self.leader = ""
        """Who had the lease when this process last asked; empty when nobody answered."""
        self.epoch: int | None = None
        """That of this process's work, while it leads."""
        self.until_s = 0.0
        """Until when that may go on, on the loop's clock."""
        self._last_epoch = 0

    @property
    def is_held(self) -> bool:
        """Whether work may be done right now.

        To be asked before what must not be done twice: a process that was frozen goes on where it
        was, and is cancelled a moment later.
        """
        return asyncio.get_running_loop().time() < self.until_s

    async def lead(self, work: Callable[[int], Awaitable[None]]) -> None:
        """Whenever nobody leads, become the leader and do `work` under that epoch. Never returns.

        The work MUST go on until it is cancelled. It may raise `Fenced`.
        """
        while True:
            until_s = await self._ask()
            if until_s is not None:
                await self._serve(until_s, work)
            await asyncio.sleep(self._renew_s * random.uniform(0.8, 1.2))

    async def leave(self) -> None:
        """Give the lease up, so that another need not wait for its end."""
        with contextlib.suppress(StateUnavailable, ScriptBug):
            await self._store.leave(self.holder)

    async def _serve(self, until_s: float, work: Callable[[int], Awaitable[None]]) -> None:
        """Work until the lease is lost."""
        epoch = self.epoch = self._last_epoch
        self.until_s = until_s
        event("leadership_gained", epoch=epoch)
        why = ""
        try:
            async with asyncio.timeout_at(until_s) as scope, asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep(epoch, scope))
                await work(epoch)
        except TimeoutError:
            why = "it could not be renewed in time"
        except ExceptionGroup as ended:
            if ended.subgroup((LeaseLost, Fenced)) is None:
                raise
            why = "another has it, or has been here"
            if ended.subgroup(Fenced) is not None:
                # There is a higher epoch. Should the lease be ours all the same, as where Redis was
                # put back to an old backup, it is to be had under one above that.
                self._last_epoch = max(self._last_epoch, epoch + 1)
        finally:
            level = logging.WARNING if why else logging.INFO
            event("leadership_lost", level=level, epoch=epoch, why=why or "stopped")
            self.epoch, self.until_s = None, 0.0

    async def _keep(self, epoch: int, scope: asyncio.Timeout) -> None:
        """Renew the lease, and put the end of the work off by that."""
        while True:
            await asyncio.sleep(self._renew_s)
            until_s = await self._ask()
            if until_s is not None and self._last_epoch == epoch:
                if not scope.expired():
                    scope.reschedule(until_s)
                    self.until_s = until_s
            elif self.leader:
                raise LeaseLost

    async def _ask(self) -> float | None:
        """Ask for the lease: until when, on the loop's clock, work may be done under it.

        `None` when another has it, or nobody has answered.
        """
        asked_s = asyncio.get_running_loop().time()
        try:
            reply = await self._store.lease(
                self.holder, epoch=self._last_epoch, lease_ms=self._lease_ms, about=self._about()
            )
        except (StateUnavailable, ScriptBug) as error:
            if isinstance(error, ScriptBug):  # such as a record that is something else by now
                event("script_bug", level=logging.ERROR, error=str(error))
            self.leader = ""
            return None
        self.leader = reply.holder
        if not reply.is_held:
            return None
        self._last_epoch = reply.epoch
        return asked_s + self._hold_s
