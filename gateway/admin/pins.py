"""Pins: which endpoint a caller stays on, and how to let it go."""

from __future__ import annotations

import re
from urllib.parse import unquote

from msgspec import Struct

from gateway.admission.secret import Secret
from gateway.core.caller import Caller
from gateway.core.route import Model
from gateway.errors import InvalidRequest, StateUnavailable
from gateway.routing.affinity import affinity_key
from gateway.state.replies import PinReply
from gateway.state.store import Store

_PIN = re.compile(r"location=(\S+) created_ms=(\d+) until_ms=\d+")


class SessionQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which of a caller's conversations is meant."""

    session: str | None = None


class Pin(Struct, frozen=True, kw_only=True):
    """A caller's pin; everything below is `None` where there is none."""

    model: str
    caller: str
    session: str | None
    endpoint: str | None = None
    location: str | None = None
    created_ms: int | None = None
    """By the clock of Redis."""
    expires_in_ms: int | None = None
    """`None` also of a pin that has just been dropped."""


class Pins:
    """Finds pins by the callers' public ids. Each method raises `StateUnavailable`."""

    def __init__(self, store: Store, secret: Secret) -> None:
        self._store = store
        self._secret = secret

    async def of(self, model: Model, caller: str, session: str | None) -> Pin:
        """Read a pin. Raises `InvalidRequest` for a caller who cannot have one."""
        reply = await self._store.pin(model.id, caller=self._digest(caller, session))
        gone = reply.left_ms <= 0
        return _pin(model, caller, session, None if gone else reply, reply.left_ms)

    async def drop(self, model: Model, caller: str, session: str | None) -> Pin:
        """Forget a pin, and tell what it was. Raises `InvalidRequest` as `of`."""
        reply = await self._store.drop_pin(model.id, caller=self._digest(caller, session))
        return _pin(model, caller, session, reply, None)

    def _digest(self, caller: str, session: str | None) -> str:
        if self._secret.key is None:
            raise StateUnavailable
        digest = affinity_key(Caller(id=caller), session, self._secret.key)
        if digest is None:
            raise InvalidRequest(f"'{caller}' stands for callers who cannot be told apart.")
        return digest


def _pin(
    model: Model,
    caller: str,
    session: str | None,
    reply: PinReply | None,
    expires_in_ms: int | None,
) -> Pin:
    match = _PIN.fullmatch(reply.pin) if reply else None
    if match is None:
        return Pin(model=model.id, caller=caller, session=session)
    location = unquote(match[1])
    return Pin(
        model=model.id,
        caller=caller,
        session=session,
        endpoint=f"{model.id}:{location}",
        location=location,
        created_ms=int(match[2]),
        expires_in_ms=expires_in_ms,
    )
