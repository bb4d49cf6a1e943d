"""Keys of attempts by the real scripts: which is sent, when another follows, what it costs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from gateway.admin.provider_keys import NewKey
from gateway.admission.secret import Secret
from gateway.config.models_schema import UpstreamKeyEntry
from gateway.config.upstream_keys import roles_by_key
from gateway.core.digests import upstream_key_id
from gateway.core.outcome import Outcome
from gateway.core.route import ROLES, Route, Timeouts, UpstreamKey
from gateway.dispatch.classify import UpstreamFailure
from gateway.dispatch.declarations import Declarations, ProviderKeys
from gateway.dispatch.gating import UNWATCHED, Line, Unwatched
from gateway.dispatch.keypool import OURSELVES, Asker, KeyPools, RouteKeys
from gateway.dispatch.kinds import Kind
from gateway.dispatch.sealing import Seal
from gateway.dispatch.send import Dispatcher
from gateway.errors import StateUnavailable
from gateway.state.keys import Keys
from gateway.state.pool_store import AddedKey, Declared, PoolStore
from gateway.state.redis import EMBEDDED_URL, connect
from gateway.state.scripts import folder, load_all
from tests.fakes import builders
from tests.fakes.gates import ScriptedGates
from tests.fakes.upstreams import (
    ROLE,
    Answer,
    Upstreams,
    empty_stream,
    event,
    status,
    stream,
    unreachable,
    whole,
)

SECRET = "of the tests"
FREE, PRO = Asker("free", "c1"), Asker("pro", "c2")
SCRIPTS = load_all(folder())
GOOD = whole("hi")
REFUSED = status(429)


class ByKey(Upstreams):
    """Upstreams that answer by the key they are sent; `asked` lists these."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        key = request.headers.get("authorization", "Bearer nokey").removeprefix("Bearer ")
        request.url = httpx.URL(f"http://{key}.invalid")
        return await super().handle_async_request(request)


class Counted:
    """Runs scripts, and remembers which."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self.ran: list[str] = []
        self.is_away = False

    async def run(self, name: str, keys: Any, args: Any) -> list[Any]:
        if self.is_away:
            raise StateUnavailable
        self.ran.append(name)
        found: list[Any] = await self._runner.run(name, keys, args)
        return found


@pytest.fixture
async def runner() -> AsyncIterator[Counted]:
    embedded = connect(EMBEDDED_URL, SCRIPTS, socket_timeout_s=5)
    yield Counted(embedded)
    await embedded.close()


@pytest.fixture
def store(runner: Counted, keys: Keys) -> PoolStore:
    return PoolStore(runner, keys)


class Rig:
    """A replica's dispatcher over one provider's keys."""

    def __init__(
        self,
        store: PoolStore,
        upstreams: ByKey,
        secret: Secret | None = None,
        gates: ScriptedGates | None = None,
        listed: tuple[Route, ...] = (),
    ) -> None:
        self.upstreams = upstreams
        self.told: list[asyncio.Task[Any]] = []
        secret = secret or Secret(SECRET)
        self.declarations = Declarations(store, Seal(SECRET), secret)
        self.pools = KeyPools(
            store,
            self.declarations,
            secret,
            self._deliver,
            configured=roles_by_key(listed),
            mute_ms=20_000,
        )
        self.dispatcher = Dispatcher({"http1": upstreams}, pools=self.pools, gates=gates)

    def _deliver(self, call: Callable[[], Awaitable[object]]) -> None:
        self.told.append(asyncio.ensure_future(call()))

    async def ask(
        self,
        route: Route,
        asker: Asker = FREE,
        *,
        streamed: bool = False,
        line: Line = UNWATCHED,
    ) -> str:
        """Make an attempt; returns the keys that were sent."""
        before = len(self.upstreams.asked)
        who: Any = {"request_id": "r", "asker": asker, "line": line}
        if streamed:
            opened = self.dispatcher.open_stream(route, builders.chat(stream=True), **who)
            async with opened as frames:
                async for _ in frames:
                    pass
        else:
            await self.dispatcher.complete(route, builders.chat(), **who)
        await asyncio.gather(*self.told)
        return " ".join(self.upstreams.asked[before:])

    async def fail(
        self, route: Route, asker: Asker = FREE, *, streamed: bool = False
    ) -> UpstreamFailure:
        with pytest.raises(UpstreamFailure) as failed:
            await self.ask(route, asker, streamed=streamed)
        assert self.upstreams.open == 0
        return failed.value


def routed(*keys: str, **values: Any) -> Route:
    """A route with these keys, `<key>` or `<key>:<role>`."""
    listed = tuple(UpstreamKey(*key.split(":")) for key in keys)
    return builders.route(**{"provider": "p", "api_keys": listed, **values})


streamed_or_not = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


def good(streamed: bool) -> Answer:
    return stream("hi") if streamed else GOOD


class TestARouteWithOneKeyForEverybody:
    @pytest.mark.parametrize("given", [(), ("k0",), ("k0", "k0")])
    async def test_asks_the_store_nothing_but_once_what_is_declared(
        self, store: PoolStore, runner: Counted, given: tuple[str, ...]
    ) -> None:
        rig, route = Rig(store, ByKey(k0=GOOD, nokey=GOOD)), routed(*given)

        sent = [await rig.ask(route) for _ in range(3)]

        assert sent == ["k0" if given else "nokey"] * 3
        assert runner.ran == ["pool_declared"]

    async def test_needs_no_secret(self, store: PoolStore) -> None:
        rig = Rig(store, ByKey(k0=GOOD), Secret(None))

        assert await rig.ask(routed("k0")) == "k0"

    async def test_fails_as_ever_and_mutes_nothing(self, store: PoolStore, runner: Counted) -> None:
        rig = Rig(store, ByKey(k0=status(401)))

        failed = await rig.fail(routed("k0"))

        assert (failed.outcome, failed.status) == (Outcome.AUTH, 401)
        assert "pool_release" not in runner.ran

    async def test_becomes_one_of_several_when_a_key_is_added(self, store: PoolStore) -> None:
        rig, route = Rig(store, ByKey(k0=REFUSED, k1=GOOD)), routed("k0")
        await rig.fail(route)
        await added(store, "k1")

        await rig.declarations.read("p")

        assert await rig.ask(route) == "k0 k1"

    async def test_joins_a_pool_when_it_is_kept_for_a_role(self, store: PoolStore) -> None:
        rig, route = Rig(store, ByKey(k0=GOOD)), routed("k0")
        assert await rig.ask(route, FREE) == "k0"
        await store.retier("p", key_id("k0"), "pro")

        await rig.declarations.read("p")

        assert (await rig.fail(route, FREE)).kind is Kind.KEYS_RESERVED
        assert await rig.ask(route, PRO) == "k0"


def key_id(key: str) -> str:
    secret = Secret(SECRET).key
    assert secret
    return upstream_key_id(secret, key)


async def added(store: PoolStore, key: str, min_role: str = "free", seal: str = SECRET) -> str:
    id = f"p/{key}"
    sealed = Seal(seal).close(key, id)
    record = AddedKey(id=id, key=key_id(key), min_role=min_role, sealed=sealed, made_ms=1)
    assert await store.add("p", record)
    return id


@streamed_or_not
class TestAnAttempt:
    async def test_is_sent_with_another_key_when_one_is_refused(
        self, store: PoolStore, streamed: bool
    ) -> None:
        rig = Rig(store, ByKey(k0=REFUSED, k1=status(503), k2=good(streamed)))

        assert await rig.ask(routed("k0", "k1", "k2"), streamed=streamed) == "k0 k1 k2"

    async def test_is_never_sent_twice_with_one_key(self, store: PoolStore, streamed: bool) -> None:
        rig = Rig(store, ByKey(k0=status(500), k1=status(502)))

        failed = await rig.fail(routed("k0", "k1", "k0"), streamed=streamed)

        assert rig.upstreams.asked == ["k0", "k1"]
        assert failed.status == 502

    async def test_at_another_address_may_have_the_key_that_failed_at_the_first(
        self, store: PoolStore, streamed: bool
    ) -> None:
        rig = Rig(store, ByKey(k0=[status(429), good(streamed)], k1=status(429)))
        await rig.fail(routed("k0", "k1", location="a"), streamed=streamed)

        elsewhere = routed("k0", "k1", location="b", base_url="http://b.invalid:1/v1")
        assert await rig.ask(elsewhere, streamed=streamed) == "k0"

    @pytest.mark.parametrize("code", [400, 404, 409, 413, 415, 422, 451, 499, 201])
    async def test_that_would_fare_alike_with_any_key_ends(
        self, store: PoolStore, runner: Counted, streamed: bool, code: int
    ) -> None:
        rig = Rig(store, ByKey(k0=status(code), k1=good(streamed)))

        failed = await rig.fail(routed("k0", "k1"), streamed=streamed)

        assert (failed.status, rig.upstreams.asked) == (code, ["k0"])
        assert "pool_release" not in runner.ran

    async def test_that_has_not_left_tries_no_other_key(
        self, store: PoolStore, streamed: bool
    ) -> None:
        rig = Rig(store, ByKey(k0=unreachable(), k1=good(streamed)))

        failed = await rig.fail(routed("k0", "k1"), streamed=streamed)

        assert (failed.outcome, rig.upstreams.asked) == (Outcome.CONNECT, ["k0"])

    async def test_of_which_the_store_cannot_be_told_ends_as_it_failed(
        self, store: PoolStore, runner: Counted, streamed: bool
    ) -> None:
        rig = Rig(store, ByKey(k0=REFUSED, k1=good(streamed)))
        await rig.pools.keys(routed("k0", "k1"))
        upstream = rig.upstreams.handle_async_request

        async def go_away(request: httpx.Request) -> httpx.Response:
            runner.is_away = True
            return await upstream(request)

        rig.upstreams.handle_async_request = go_away  # type: ignore[method-assign]

        assert (await rig.fail(routed("k0", "k1"), streamed=streamed)).status == 429

    async def test_without_a_store_is_refused(
        self, store: PoolStore, runner: Counted, streamed: bool
    ) -> None:
        rig = Rig(store, ByKey(k0=good(streamed)))
        runner.is_away = True

        with pytest.raises(StateUnavailable):
            await rig.ask(routed("k0", "k1"), streamed=streamed)
        assert rig.upstreams.asked == []

    async def test_follows_what_is_declared_meanwhile_at_once(
        self, store: PoolStore, streamed: bool
    ) -> None:
        rig = Rig(store, ByKey(k0=good(streamed), k1=good(streamed), k2=good(streamed)))
        route = routed("k0", "k1")
        assert await rig.ask(route, streamed=streamed) == "k0"

        await store.retier("p", key_id("k0"), "pro")
        assert await rig.ask(route, streamed=streamed) == "k1"
        id = await added(store, "k2", "pro")
        assert await rig.ask(route, PRO, streamed=streamed) == "k0"
        await store.retier("p", key_id("k0"), "free")
        assert await rig.ask(route, PRO, streamed=streamed) == "k2"
        await store.remove("p", id)
        assert await rig.ask(route, PRO, streamed=streamed) == "k0"


@streamed_or_not
async def test_who_follows_an_attempt_is_told_what_it_has_failed_with_under_other_keys(
    store: PoolStore, streamed: bool
) -> None:
    said: list[int | None] = []

    class Noted(Unwatched):
        def rotated(self, failure: UpstreamFailure) -> None:
            said.append(failure.status)

    rig = Rig(store, ByKey(k0=REFUSED, k1=status(503), k2=good(streamed)))

    keys = routed("k0", "k1", "k2")
    assert (await rig.ask(keys, streamed=streamed, line=Noted())).endswith("k2")
    assert said == [429, 503]


class TestTheGateOfAKey:
    @streamed_or_not
    async def test_that_has_no_room_in_time_is_passed_by_for_a_siblings(
        self, store: PoolStore, streamed: bool
    ) -> None:
        gates = ScriptedGates(a=[Kind.SATURATED])
        rig = Rig(store, ByKey(k1=good(streamed)), gates=gates)

        assert await rig.ask(routed("k0", "k1"), streamed=streamed) == "k1"
        assert gates.left == [("a", 200)]

    @streamed_or_not
    async def test_that_has_room_takes_out_of_line_what_has_waited_for_anothers(
        self, store: PoolStore, streamed: bool
    ) -> None:
        said: list[str] = []

        class Noted(Unwatched):
            def queued(self) -> None:
                said.append("queued")

            def passed(self, queued_s: float, *, has_place: bool) -> None:
                said.append("sent" if has_place else "given up")

        gates = ScriptedGates(a=[Kind.SATURATED])
        rig = Rig(store, ByKey(k1=good(streamed)), gates=gates)

        assert await rig.ask(routed("k0", "k1"), streamed=streamed, line=Noted()) == "k1"
        assert said == ["queued", "given up", "sent"]

    async def test_is_the_last_word_where_no_key_has_room(self, store: PoolStore) -> None:
        gates = ScriptedGates(a=[Kind.SATURATED, Kind.QUEUE_WAIT])
        rig = Rig(store, ByKey(), gates=gates)

        failure = await rig.fail(routed("k0", "k1"))

        assert (failure.kind, gates.left) == (Kind.QUEUE_WAIT, [])
        # No key is blamed for that.
        assert await store.mutes("p") == []

    async def test_is_left_with_the_keys_own_status(self, store: PoolStore) -> None:
        gates = ScriptedGates()
        rig = Rig(store, ByKey(k0=REFUSED, k1=GOOD), gates=gates)

        assert await rig.ask(routed("k0", "k1")) == "k0 k1"
        assert gates.left == [("a", 429), ("a", 200)]


class TestAStream:
    FRAME = event({"error": {"message": "slow down", "code": 429}})

    async def test_that_reports_an_error_before_output_is_sent_with_another_key(
        self, store: PoolStore
    ) -> None:
        rig = Rig(store, ByKey(k0=Answer([ROLE, self.FRAME]), k1=stream("hi")))

        assert await rig.ask(routed("k0", "k1"), streamed=True) == "k0 k1"
        assert await rig.ask(routed("k0", "k1"), streamed=True) == "k1"

    async def test_that_breaks_before_output_is_sent_with_another_key(
        self, store: PoolStore
    ) -> None:
        rig = Rig(store, ByKey(k0=Answer([ROLE, httpx.ReadError("cut")]), k1=stream("hi")))

        assert await rig.ask(routed("k0", "k1"), streamed=True) == "k0 k1"

    async def test_that_reports_an_error_after_output_is_not(self, store: PoolStore) -> None:
        broken = Answer([*stream("hi").steps[:2], self.FRAME])
        rig = Rig(store, ByKey(k0=broken, k1=stream("hi")))

        failed = await rig.fail(routed("k0", "k1"), streamed=True)

        assert (failed.status, rig.upstreams.asked) == (429, ["k0"])

    async def test_that_is_empty_is_passed_on_with_its_frames(self, store: PoolStore) -> None:
        rig = Rig(store, ByKey(k0=empty_stream(), k1=stream("hi")))
        opened = rig.dispatcher.open_stream(
            routed("k0", "k1"), builders.chat(stream=True), request_id="r"
        )
        async with opened as found:
            frame = await anext(found)
            with pytest.raises(UpstreamFailure) as failed:
                await anext(found)

        assert b"finish_reason" in frame.data
        assert failed.value.kind is Kind.EMPTY

    async def test_gives_the_frames_before_its_first_output_with_it(self, store: PoolStore) -> None:
        rig = Rig(store, ByKey(k0=stream("a", "b")))
        opened = rig.dispatcher.open_stream(
            routed("k0", "k1"), builders.chat(stream=True), request_id="r"
        )
        async with opened as found:
            data = b"".join([frame.data async for frame in found])

        assert data.index(b'"assistant"') < data.index(b'"a"') < data.index(b'"b"')

    async def test_has_no_more_time_for_several_keys_than_for_one(self, store: PoolStore) -> None:
        route = routed("k0", "k1", timeouts=Timeouts(first_byte=0.2))
        rig = Rig(store, ByKey(k0=Answer([None]), k1=stream("hi")))

        failed = await rig.fail(route, streamed=True)

        assert (failed.kind, rig.upstreams.asked) == (Kind.TIMEOUT, ["k0"])


async def test_a_whole_answer_has_no_more_time_for_several_keys_than_for_one(
    store: PoolStore,
) -> None:
    route = routed("k0", "k1", timeouts=Timeouts(total=0.2))
    rig = Rig(store, ByKey(k0=Answer([None]), k1=GOOD))

    failed = await rig.fail(route)

    assert (failed.error_type, rig.upstreams.asked) == ("total_timeout", ["k0"])


class TestOneMute:
    async def test_holds_for_all_replicas_and_models_of_the_account(self, store: PoolStore) -> None:
        upstreams = ByKey(k0=REFUSED, k1=GOOD)
        one, other = Rig(store, upstreams), Rig(store, upstreams)

        assert await one.ask(routed("k0", "k1")) == "k0 k1"

        assert await other.ask(routed("k0", "k1"), Asker("free", "c9")) == "k1"
        assert await other.ask(routed("k0", "k1", model_id="n"), Asker("free", "c9")) == "k1"

    async def test_is_of_one_address(self, store: PoolStore) -> None:
        rig = Rig(store, ByKey(k0=REFUSED, k1=GOOD))
        await rig.ask(routed("k0", "k1"), OURSELVES)
        elsewhere = routed("k0", "k1", base_url="http://b.invalid:1/v1")

        assert await rig.ask(elsewhere, OURSELVES) == "k0 k1"
        assert await rig.ask(routed("k0", "k1"), OURSELVES) == "k1"

    async def test_is_logged_by_the_keys_digest(
        self, store: PoolStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        rig = Rig(store, ByKey(k0=status(401), k1=GOOD))
        with caplog.at_level(logging.WARNING, "concord"):
            await rig.ask(routed("k0", "k1"))

        (record,) = caplog.records
        fields = record.fields  # type: ignore[attr-defined]
        assert record.getMessage() == "upstream_key_muted"
        assert (fields["key"], fields["status"], fields["for_ms"]) == (key_id("k0"), 401, 20_000)


class TestWhatAFailureSaysOfTheEndpoint:
    async def test_a_key_of_many_that_is_refused_says_nothing(self, store: PoolStore) -> None:
        """A free caller's only key: a burst of its refusals must not cost the others theirs."""
        rig, route = Rig(store, ByKey(k0=REFUSED, k1=GOOD)), routed("k0", "k1:pro")

        outcomes = [(await rig.fail(route)).outcome for _ in range(4)]

        assert outcomes == [Outcome.NEUTRAL] * 4
        assert await rig.ask(route, PRO) == "k1"

    async def test_a_last_key_that_is_refused_counts(self, store: PoolStore) -> None:
        rig, route = Rig(store, ByKey(k0=REFUSED, k1=REFUSED)), routed("k0", "k1")

        assert (await rig.fail(route)).outcome is Outcome.FAILURE
        assert rig.upstreams.asked == ["k0", "k1"]

    async def test_a_fault_counts_whatever_keys_there_are(self, store: PoolStore) -> None:
        rig = Rig(store, ByKey(k0=status(500), k1=GOOD))

        assert (await rig.fail(routed("k0", "k1:pro"))).outcome is Outcome.FAILURE

    async def test_reserved_keys_do_not_count_and_exhausted_ones_do(self, store: PoolStore) -> None:
        rig, route = Rig(store, ByKey(k0=REFUSED, k1=REFUSED)), routed("k0:pro", "k1:pro")

        reserved = await rig.fail(route, FREE)
        for _ in range(3):
            await rig.fail(route, PRO)
        exhausted = await rig.fail(route, FREE)

        assert (reserved.kind, reserved.outcome) == (Kind.KEYS_RESERVED, Outcome.NEUTRAL)
        assert (exhausted.kind, exhausted.outcome) == (Kind.KEYS_EXHAUSTED, Outcome.FAILURE)
        assert not reserved.was_sent
        assert not exhausted.was_sent

    async def test_a_caller_is_told_when_its_keys_are_back_and_nothing_of_them(
        self, store: PoolStore
    ) -> None:
        rig, route = Rig(store, ByKey(k0=REFUSED)), routed("k0", "k1:pro")
        for _ in range(3):
            await rig.fail(route)

        error = (await rig.fail(route)).to_client("m")

        assert (error.status, error.code) == (503, "upstream_keys_reserved")
        assert error.retry_after_s is not None
        assert 0 < error.retry_after_s <= 15


def test_keys_are_in_no_repr() -> None:
    secret = Secret(SECRET).key
    known = ProviderKeys(declared=Declared(), added=(UpstreamKey("canary-1"),))
    keys = RouteKeys.of(routed("canary-2", "canary-3:pro"), known, secret, {"canary-4": "pro"})

    shown = (keys, keys.pool, keys.route, known, NewKey(provider="p", key="canary-5"))
    assert "canary" not in repr((*shown, UpstreamKeyEntry(key="canary-6")))


class TestAddedKeys:
    async def test_are_kept_for_the_role_that_any_route_of_the_provider_says(
        self, store: PoolStore
    ) -> None:
        elsewhere = routed("kx:pro", location="z")
        rig = Rig(store, ByKey(k0=REFUSED, kx=GOOD), listed=(elsewhere,))
        await added(store, "kx", "free")

        assert (await rig.fail(routed("k0"), FREE)).status == 429
        assert await rig.ask(routed("k0"), PRO) == "kx"

    @streamed_or_not
    async def test_that_are_all_removed_meanwhile_leave_the_attempt_with_its_failure(
        self, store: PoolStore, streamed: bool
    ) -> None:
        ids = [await added(store, "kx"), await added(store, "ky")]

        class Removing(ByKey):
            async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
                for id in ids:
                    await store.remove("p", id)
                return await super().handle_async_request(request)

        rig = Rig(store, Removing(kx=REFUSED, ky=GOOD, nokey=GOOD))

        failed = await rig.fail(routed(base_url="https://a.invalid/v1"), streamed=streamed)

        assert (failed.status, rig.upstreams.asked) == (429, ["kx"])

    async def test_that_are_all_removed_before_anything_was_sent_mute_nothing(
        self, store: PoolStore
    ) -> None:
        rig = Rig(store, ByKey(kx=GOOD, nokey=status(401)))
        ids = [await added(store, "kx"), await added(store, "ky")]
        route = routed(base_url="https://a.invalid/v1")
        await rig.ask(route)
        for id in ids:
            await store.remove("p", id)

        assert (await rig.fail(route)).status == 401
        assert await store.mutes("p") == []

    async def test_are_taken_out_of_what_upstreams_say(self, store: PoolStore) -> None:
        await added(store, "secretkey")
        rig = Rig(store, ByKey(secretkey=status(400, "who is secretkey")))

        error = (await rig.fail(routed(base_url="https://a.invalid"))).to_client("m")

        assert error.message == "who is [key]"

    async def test_do_not_go_in_plain_text_where_no_key_is_configured(
        self, store: PoolStore
    ) -> None:
        await added(store, "secretkey")
        rig = Rig(store, ByKey(nokey=GOOD, k0=GOOD))

        assert await rig.ask(routed(base_url="http://a.invalid")) == "nokey"
        assert await rig.ask(routed("k0", base_url="http://a.invalid")) == "k0"

    async def test_that_cannot_be_opened_are_left_out_and_logged(
        self, store: PoolStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        await added(store, "k1", seal="another secret")
        rig = Rig(store, ByKey(k0=GOOD))

        assert await rig.ask(routed("k0")) == "k0"
        await added(store, "k2")
        await rig.declarations.read("p")
        assert [record.getMessage() for record in caplog.records] == ["upstream_key_unreadable"]

    async def test_of_one_that_is_configured_the_stricter_role_counts(
        self, store: PoolStore
    ) -> None:
        await added(store, "k0", "pro")
        rig = Rig(store, ByKey(k0=GOOD))

        assert (await rig.fail(routed("k0"), FREE)).kind is Kind.KEYS_RESERVED
        assert await rig.ask(routed("k0"), PRO) == "k0"


@pytest.mark.parametrize("role", [*ROLES, None])
async def test_roles_are_served_from_their_rank_on_and_our_own_traffic_always(
    store: PoolStore, role: str | None
) -> None:
    rig, route = Rig(store, ByKey(k0=GOOD)), routed("k0:internal")

    served = await rig.pools.serves(route, role)

    assert served == (role in ("internal", "admin", None))
    if served:
        assert await rig.ask(route, Asker(role)) == "k0"


async def test_whether_a_role_is_served_follows_what_is_declared(store: PoolStore) -> None:
    rig, route = Rig(store, ByKey()), routed("k0", "k1")
    assert await rig.pools.serves(route, "free")

    for key in ("k0", "k1"):
        await store.retier("p", key_id(key), "pro")

    assert not await rig.pools.serves(route, "free")
    assert await rig.pools.serves(routed("k0", provider="another"), "free")


async def test_whom_a_key_was_kept_for_under_another_secret_is_logged_once(
    store: PoolStore, caplog: pytest.LogCaptureFixture
) -> None:
    other = Secret("another secret").key
    assert other
    void = upstream_key_id(other, "k0")
    await store.retier("p", void, "pro")
    await store.retier("p", key_id("k1"), "pro")
    rig = Rig(store, ByKey(k0=GOOD))

    assert await rig.ask(routed("k0"), FREE) == "k0"
    await store.retier("p", key_id("k2"), "pro")
    await rig.declarations.read("p")

    (record,) = caplog.records
    assert record.getMessage() == "upstream_tier_void"
    fields = record.fields  # type: ignore[attr-defined]
    assert fields == {"provider": "p", "key": void, "min_role": "pro"}


async def test_a_pool_waits_for_the_salt(store: PoolStore) -> None:
    rig = Rig(store, ByKey(k0=GOOD), Secret(None))

    with pytest.raises(StateUnavailable):
        await rig.ask(routed("k0", "k1"))


async def test_what_is_watched_is_read_again(
    store: PoolStore, runner: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.dispatch.declarations.WATCH_S", 0.001)
    rig = Rig(store, ByKey(k0=GOOD))
    await rig.ask(routed("k0"))
    known = rig.declarations.of("p")
    await store.retier("p", key_id("k0"), "pro")
    runner.is_away = True

    watching = asyncio.create_task(rig.declarations.watch())
    await asyncio.sleep(0.01)  # some rounds without a store
    runner.is_away = False
    async with asyncio.timeout(10):
        while rig.declarations.of("p") is known:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    watching.cancel()

    assert (await rig.fail(routed("k0"), FREE)).kind is Kind.KEYS_RESERVED


def test_our_own_traffic_is_unrestricted() -> None:
    assert OURSELVES.rank == Asker("admin").rank
