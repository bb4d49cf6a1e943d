"""The upstream keys of an attempt: which one a request is sent with, and when another may follow.

A route with one key that is kept for nobody has nothing to decide and asks nobody. Any other asks
the store for each key, and tells it how that went; so all replicas leave a refused key alone.

No attempt goes out twice with one key. Failover to another route is another attempt: engines may
all have one key, and what is refused at one address may be served at another.
"""

from __future__ import annotations

import itertools
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from urllib.parse import urlsplit

from msgspec import Struct, structs

from gateway.admission.secret import Secret
from gateway.config.upstream_keys import stricter
from gateway.core.digests import upstream_key_id
from gateway.core.route import ROLES, Route, UpstreamKey
from gateway.dispatch.classify import UpstreamFailure
from gateway.dispatch.declarations import Declarations, ProviderKeys
from gateway.dispatch.kinds import KeyFault, Kind
from gateway.errors import StateUnavailable
from gateway.state.keys import encode_id
from gateway.state.pool_store import Pool, PoolStore, ReleaseReply, TakeReply
from gateway.telemetry.logs import event

MOST_REREADS = 3
"""How often a key may be asked for when operators declare something else meanwhile."""
Deliver = Callable[[Callable[[], Awaitable[object]]], None]
"""Makes a call in the background, until it has been heard."""


class Asker(Struct, frozen=True):
    """Whose request it is."""

    role: str | None = None
    """`None` is our own traffic, which may use every key."""
    caller: str = ""
    """Keyed digest, empty when the caller is not known."""

    @property
    def rank(self) -> int:
        """Of the role, in ascending order."""
        return len(ROLES) - 1 if self.role is None else ROLES.index(self.role)


OURSELVES = Asker()


class OnlyKey:
    """The attempt's key where there is no choice, or no key at all."""

    may_rotate = False

    def __init__(self, route: Route) -> None:
        self.route = route

    async def next(self) -> str | None:
        """The key to send; `None` for none."""
        keys = self.route.api_keys
        return keys[0].secret if keys else None

    async def rotates(self, failure: UpstreamFailure) -> bool:
        """Whether the request may be sent with another key: there is none."""
        return False

    def passes_over(self, wait: UpstreamFailure) -> bool:
        """Whether another key may be tried where this one's account had no room: there is none."""
        return False

    def served(self) -> None:
        """Nobody counts."""


class RouteKeys(Struct, frozen=True, kw_only=True):
    """The keys of a route under one declaration."""

    configured: Route
    known: ProviderKeys
    secret: bytes | None
    route: Route
    """The same with all its keys, so that none of them gets into an error."""
    secrets: Mapping[str, str]
    """Digest to key."""
    pool: Pool
    is_plain: bool
    """Whether nothing is to be decided."""

    def __repr__(self) -> str:
        """Leave the secrets out."""
        return f"RouteKeys({self.pool!r})"

    @classmethod
    def of(
        cls,
        route: Route,
        known: ProviderKeys,
        secret: bytes | None,
        configured: Mapping[str, str],
    ) -> RouteKeys:
        """Put them together; of one that is given twice, the stricter role counts.

        `configured` has the roles of all keys that routes of this provider list, also of others.
        Raises `StateUnavailable` while what keys are digested with is not known, unless there is
        nothing to decide.
        """
        keys: dict[str, UpstreamKey] = {}
        added = [
            UpstreamKey(key.secret, stricter(key.min_role, configured.get(key.secret, "free")))
            for key in (known.added if route.takes_account_keys else ())
        ]
        given = (*route.api_keys, *added)
        is_plain = len(given) <= 1 and not known.min_roles and _are_free(given)
        if secret is not None:
            for key in given:
                id = upstream_key_id(secret, key.secret)
                roles = [key.min_role, known.min_roles.get(id, "free")]
                if id in keys:
                    roles.append(keys[id].min_role)
                keys[id] = UpstreamKey(key.secret, max(roles, key=ROLES.index))
            is_plain = len(keys) <= 1 and _are_free(keys.values())
        elif not is_plain:
            raise StateUnavailable
        pool = Pool(
            provider=route.provider,
            endpoint=route.endpoint,
            at=_address(route.base_url),
            epoch=known.epoch,
            keys=tuple((id, ROLES.index(key.min_role)) for id, key in keys.items()),
        )
        return cls(
            configured=route,
            known=known,
            secret=secret,
            route=structs.replace(route, api_keys=given) if added else route,
            secrets={id: key.secret for id, key in keys.items()},
            pool=pool,
            is_plain=is_plain,
        )

    def hold(self, route: Route, known: ProviderKeys, secret: bytes | None) -> bool:
        """Whether they are still those of the route."""
        return route is self.configured and known is self.known and secret == self.secret


class KeyPools:
    """Finds the keys of attempts under one configuration."""

    def __init__(
        self,
        store: PoolStore,
        declarations: Declarations,
        secret: Secret,
        deliver: Deliver,
        *,
        configured: Mapping[str, Mapping[str, str]],
        mute_ms: int,
    ) -> None:
        """`configured` has the roles of keys by provider (`roles_by_key`)."""
        self.store = store
        self.deliver = deliver
        self._declarations = declarations
        self._secret = secret
        self._known: dict[tuple[str, str], RouteKeys] = {}
        self._process, self._uses = secrets.token_hex(4), itertools.count(1)
        self.follow(configured, mute_ms=mute_ms)

    def follow(self, configured: Mapping[str, Mapping[str, str]], *, mute_ms: int) -> None:
        """Go by another configuration from now on."""
        self._configured = configured
        self.mute_ms = mute_ms

    async def walk(self, route: Route, asker: Asker) -> OnlyKey | Walk:
        """Begin an attempt. Raises `StateUnavailable`."""
        keys = await self.keys(route)
        return OnlyKey(keys.route) if keys.is_plain else Walk(self, keys, asker)

    async def serves(self, route: Route, role: str | None) -> bool:
        """Whether a role would get a key of this route now. Raises `StateUnavailable`."""
        rank = Asker(role).rank
        keys = await self.keys(route)
        for _ in range(MOST_REREADS):
            if keys.is_plain:
                return True
            status = (await self.store.serves(keys.pool, rank=rank)).status
            if status != "stale":
                return status == "serves"
            keys = await self.keys(route, anew=True)
        raise StateUnavailable

    async def keys(self, route: Route, *, anew: bool = False) -> RouteKeys:
        """The keys of a route; `anew` asks what has been declared. Raises `StateUnavailable`."""
        known = self._declarations.of(route.provider)
        if known is None or anew:
            known = await self._declarations.read(route.provider)
        place = (route.model_id, route.location)
        keys = self._known.get(place)
        if keys is None or not keys.hold(route, known, self._secret.key):
            configured = self._configured.get(route.provider, {})
            keys = RouteKeys.of(route, known, self._secret.key, configured)
            self._known[place] = keys
        return keys

    def lease(self) -> str:
        """A name for one use of a key."""
        return f"{self._process}.{next(self._uses)}"


class Walk:
    """The keys of one attempt, each taken once."""

    may_rotate = True

    def __init__(self, pools: KeyPools, keys: RouteKeys, asker: Asker) -> None:
        self._pools = pools
        self._keys = keys
        self._asker = asker
        self._key = self._lease = ""
        self._tried: list[str] = []
        self._failure: UpstreamFailure | None = None

    @property
    def route(self) -> Route:
        """The attempt's route, with all the keys that it has now."""
        return self._keys.route

    async def next(self) -> str | None:
        """The key to send next; `None` where all were taken away before one was sent.

        Raises `UpstreamFailure` when there is none for this caller now, and `StateUnavailable`.
        """
        store, asker = self._pools.store, self._asker
        for _ in range(MOST_REREADS):
            pool = self._keys.pool
            if not pool.keys:
                if self._failure is not None:
                    raise self._failure
                return None
            reply = await store.take(pool, caller=asker.caller, rank=asker.rank, tried=self._tried)
            if reply.key:
                self._key, self._lease = reply.key, self._pools.lease()
                self._tried.append(reply.key)
                return self._keys.secrets[reply.key]
            if not reply.is_stale:
                raise self._failure or self._refusal(reply)
            self._keys = await self._pools.keys(self._keys.configured, anew=True)
        raise StateUnavailable

    async def rotates(self, failure: UpstreamFailure) -> bool:
        """Tell how the key has failed; returns whether the request may be sent with another."""
        fault, self._failure = failure.key_fault, failure
        if fault is None or not self._key:
            return False
        try:
            reply = await self._release(fault.value, failure.status or 0)
        except StateUnavailable:
            return False
        if reply.muted_for_ms:
            event(
                "upstream_key_muted",
                level=logging.WARNING,
                endpoint=self.route.endpoint,
                provider=self.route.provider,
                key=self._key,
                status=failure.status,
                for_ms=reply.muted_for_ms,
            )
        failure.is_of_key = fault is KeyFault.KEY and bool(reply.serves_others)
        return reply.is_rotated

    def passes_over(self, wait: UpstreamFailure) -> bool:
        """Leave the key for another, if there is one, since its account had no room in time."""
        self._failure = wait
        return True

    def served(self) -> None:
        """Tell, in the background, that the key serves."""
        if self._key:
            self._pools.deliver(lambda: self._release("none", 200))

    async def _release(self, fault: str, status: int) -> ReleaseReply:
        return await self._pools.store.release(
            self._keys.pool,
            key=self._key,
            lease=self._lease,
            fault=fault,
            status=status,
            rank=self._asker.rank,
            tried=self._tried,
            mute_ms=self._pools.mute_ms,
        )

    def _refusal(self, reply: TakeReply) -> UpstreamFailure:
        """Say that there is no key to send, and who may have one."""
        kind = Kind.KEYS_RESERVED if reply.status == "restricted" else Kind.KEYS_EXHAUSTED
        return UpstreamFailure(
            self.route,
            kind,
            error_type=kind.value,
            retry_after_ms=reply.retry_after_ms or None,
        )


def _are_free(keys: Iterable[UpstreamKey]) -> bool:
    return all(key.min_role == ROLES[0] for key in keys)


def _address(base_url: str) -> str:
    """Host and port, fit for a field's name."""
    parts = urlsplit(base_url)
    return encode_id(f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}")
