"""Recovery probes: which endpoints are tried, when, and that no client can come before."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from coordinator.current import Known
from coordinator.lease import Lease
from coordinator.recovery import Recovery
from gateway.admission.secret import Secret
from gateway.config.result import Config
from gateway.config.schema import Circuit
from gateway.core.digests import upstream_key_id
from gateway.core.limits import EndpointLimits, Limit
from gateway.core.prompt import NO_PROMPT
from gateway.core.route import UpstreamKey
from gateway.dispatch.declarations import Declarations
from gateway.dispatch.keypool import KeyPools
from gateway.dispatch.sealing import Seal
from gateway.dispatch.send import Dispatcher
from gateway.state.decision import Decision
from gateway.state.pool_store import AddedKey, PoolStore
from gateway.state.replies import AdmitReply
from tests.fakes.builders import config, model, route
from tests.unit.coordinator.conftest import Over, Rig, current, held, until

COOLDOWN_S = 2
SECRET = "of the tests"
ANSWER = {
    "id": "x",
    "object": "chat.completion",
    "model": "theirs",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "p"},
            "finish_reason": "length",
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
}
WELL = httpx.Response(200, json=ANSWER)


def tried(*, cooldown_s: float = COOLDOWN_S, **values: Any) -> Config:
    """A model with an endpoint that is tried, and one that is not."""
    routes = (route("a", **{"recovery_probes": True, **values}), route("b"))
    return config(model(*routes), circuit=Circuit(cooldown_seconds=cooldown_s))


class Upstream(httpx.AsyncBaseTransport):
    """Answers each request by what a test says, when it says so."""

    def __init__(self) -> None:
        self.answer: Callable[[], httpx.Response] = lambda: WELL
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.open = asyncio.Event()
        self.open.set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(json.loads(await request.aread()))
        self.keys.append(request.headers.get("authorization", "").removeprefix("Bearer "))
        await self.open.wait()
        answer = self.answer()
        return httpx.Response(answer.status_code, content=answer.content, headers=answer.headers)


@pytest.fixture
def upstream() -> Upstream:
    return Upstream()


def keyed(*keys: str) -> Config:
    """The same with keys of the provider `p`."""
    listed = tuple(map(UpstreamKey, keys))
    address = "https://a.invalid/v1"
    return tried(cooldown_s=30, provider="p", base_url=address, api_keys=listed)


def key_id(key: str) -> str:
    secret = Secret(SECRET).key
    assert secret
    return upstream_key_id(secret, key)


def pools_of(rig: Rig, secret: Secret | None = None) -> KeyPools:
    store = PoolStore(rig.runner, rig.keys)
    return KeyPools(
        store,
        Declarations(store, Seal(SECRET), Secret(SECRET)),
        secret or Secret(SECRET),
        lambda _: None,
        configured={},
        mute_ms=20_000,
    )


class Recovering:
    """Has endpoints recover while the context is open."""

    def __init__(
        self,
        rig: Rig,
        known: Known,
        upstream: Upstream,
        pools: KeyPools | None = None,
        lease: Lease | None = None,
    ) -> None:
        dispatcher = Dispatcher({"http1": upstream}, pools=pools)
        self._recovery = Recovery(rig.store, dispatcher, known, rig.tally, lease=lease or held(rig))

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._recovery.run())

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.result()


def open_circuit(rig: Rig, known: Known, *, ago_s: float = 0.0, at: str = "a") -> None:
    fields = {f"{at}__circuit": "open", f"{at}__opened_at_ms": known.now_ms() - int(ago_s * 1000)}
    rig.put("m", **fields, **{f"{at}__failures": 3, f"{at}__availability": "0.729"})


async def ask_as_client(rig: Rig, known: Known, claim: str) -> AdmitReply:
    """What a client's request would meet at the endpoint now."""
    decision = Decision(
        policy=known.current.policy,
        epoch=0,
        candidates=(("a", 1.0),),
        limited=(),
        tried=(),
        order="declared",
        draws=(),
        prompt=NO_PROMPT,
    )
    return await rig.store.admit("m", decision, claim=claim, lease_ms=60_000)


async def test_endpoint_is_tried_before_its_cooldown_ends_and_closed_when_it_answers(
    rig: Rig, upstream: Upstream
) -> None:
    known = await rig.known(tried())
    open_circuit(rig, known)
    async with Recovering(rig, known, upstream):
        await until(lambda: "a:circuit" not in rig.row())
    assert upstream.asked == [
        {
            "model": "theirs",
            "messages": [{"role": "user", "content": "ping"}],
            "max_tokens": 1,
        }
    ]
    assert not rig.client.exists(rig.keys.model("m")["claims"])
    assert "a:inflight" not in rig.row()
    counts = rig.tally.take()
    assert (counts["tried"], counts["recovered"]) == (1, 1)


async def test_leader_whose_lease_is_over_tries_nobody_and_keeps_no_client_away(
    rig: Rig, upstream: Upstream
) -> None:
    known, lease = await rig.known(tried()), Over(rig)
    open_circuit(rig, known, ago_s=COOLDOWN_S)
    async with Recovering(rig, known, upstream, lease=lease):
        await until(lambda: lease.asked and "a:inflight" not in rig.row())
    assert upstream.asked == []
    assert (await ask_as_client(rig, known, "r1.1")).is_admitted


async def test_while_it_is_tried_no_client_comes_near_it(rig: Rig, upstream: Upstream) -> None:
    known = await rig.known(tried())
    open_circuit(rig, known)
    upstream.open.clear()
    async with Recovering(rig, known, upstream):
        # Given a client that asks without pause from the first moment on
        reasons = set()
        for number in range(10_000):
            reply = await ask_as_client(rig, known, f"r1.{number}")
            assert not reply.is_admitted
            reasons |= set(reply.passed_over().values())
            if "probe_in_flight" in reasons:
                break
            await asyncio.sleep(0.002)
        # Then it is kept away by the circuit, and from then on by the probe
        assert reasons == {"circuit_open", "probe_in_flight"}
        assert len(upstream.asked) == 1
        upstream.open.set()
        await until(lambda: "a:circuit" not in rig.row())
    assert (await ask_as_client(rig, known, "r1.last")).is_admitted


@pytest.mark.parametrize("status", [500, 429, 401])
async def test_endpoint_that_fails_stays_out_for_another_cooldown(
    rig: Rig, upstream: Upstream, status: int
) -> None:
    known = await rig.known(tried())
    open_circuit(rig, known)
    before_ms = int(rig.row()["a:opened_at_ms"])
    upstream.answer = lambda: httpx.Response(status, json={"error": {"message": "no"}})
    async with Recovering(rig, known, upstream):
        await until(lambda: int(rig.row().get("a:opened_at_ms", 0)) > before_ms)
        assert rig.row()["a:circuit"] == "open"
        refused = await ask_as_client(rig, known, "r1.1")
        assert refused.passed_over()["a"] in ("circuit_open", "cooldown")
    assert len(upstream.asked) == 1


async def test_endpoint_that_cannot_be_reached_stays_out_though_nobody_else_has_noticed(
    rig: Rig, upstream: Upstream
) -> None:
    known = await rig.known(tried(), replicas=3)
    open_circuit(rig, known)
    before_ms = int(rig.row()["a:opened_at_ms"])

    def refuse() -> httpx.Response:
        raise httpx.ConnectError("refused")

    upstream.answer = refuse
    async with Recovering(rig, known, upstream):
        await until(lambda: int(rig.row().get("a:opened_at_ms", 0)) > before_ms)
    assert rig.row()["a:circuit"] == "open"


async def test_endpoint_that_keeps_silent_is_given_up_while_clients_are_still_kept_away(
    rig: Rig, upstream: Upstream
) -> None:
    known = await rig.known(tried())
    open_circuit(rig, known)
    before_ms = int(rig.row()["a:opened_at_ms"])
    upstream.open.clear()
    async with Recovering(rig, known, upstream):
        await until(lambda: int(rig.row().get("a:opened_at_ms", 0)) > before_ms)
    assert rig.row()["a:circuit"] == "open"
    assert "a:inflight" not in rig.row()


async def test_endpoint_whose_cooldown_has_ended_is_tried_as_by_a_replica(
    rig: Rig, upstream: Upstream
) -> None:
    known = await rig.known(tried(cooldown_s=30))
    open_circuit(rig, known, ago_s=40)
    async with Recovering(rig, known, upstream):
        await until(lambda: "a:circuit" not in rig.row())
    assert len(upstream.asked) == 1


async def test_clients_trial_is_left_to_it(rig: Rig, upstream: Upstream) -> None:
    known = await rig.known(tried(cooldown_s=30))
    open_circuit(rig, known, ago_s=40)
    assert (await ask_as_client(rig, known, "r1.1")).probe
    async with Recovering(rig, known, upstream):
        await asyncio.sleep(1.5)
    assert upstream.asked == []


@pytest.mark.parametrize(
    "of",
    [
        tried(recovery_probes=False),
        tried(weight=0.0, configured_weight=0.0),
        tried(cooldown_s=60),
    ],
    ids=["not asked for", "out of service", "long before its time"],
)
async def test_endpoint_is_not_tried(rig: Rig, upstream: Upstream, of: Config) -> None:
    known = await rig.known(of)
    open_circuit(rig, known, ago_s=1.9 if of.settings.circuit.cooldown_seconds < 60 else 5)
    async with Recovering(rig, known, upstream):
        await asyncio.sleep(0.4)
    assert upstream.asked == []
    assert rig.row()["a:circuit"] == "open"


async def test_healthy_endpoints_are_not_tried(rig: Rig, upstream: Upstream) -> None:
    known = await rig.known(tried())
    rig.put("m", a__failures=2, a__availability="0.9", b__circuit="open")
    async with Recovering(rig, known, upstream):
        await asyncio.sleep(0.4)
    assert upstream.asked == []


async def test_what_says_nothing_of_the_endpoint_is_not_repeated_at_once(
    rig: Rig, upstream: Upstream
) -> None:
    known = await rig.known(tried())
    open_circuit(rig, known)
    upstream.answer = lambda: httpx.Response(403, json={"error": {"message": "no"}})
    async with Recovering(rig, known, upstream):
        await until(lambda: upstream.asked)
        await asyncio.sleep(0.6 * COOLDOWN_S)
    assert len(upstream.asked) == 1


async def test_paused_endpoint_is_tried_shortly_before_its_pause_ends_and_stays_paused(
    rig: Rig, upstream: Upstream
) -> None:
    known = await rig.known(tried())

    def pause(left_ms: int) -> None:
        until_ms = known.now_ms() + left_ms
        rig.put("m", a__cooldown=f"until_ms={until_ms} length_ms=20000 reason=rate_limited")

    pause(9_000)
    async with Recovering(rig, known, upstream):
        await asyncio.sleep(0.4)
        assert upstream.asked == []
        pause(3_000)
        await until(lambda: upstream.asked)
    refused = await ask_as_client(rig, known, "r1.1")
    assert refused.passed_over() == {"a": "cooldown"}


async def test_paused_endpoint_that_is_still_refused_stays_paused_for_as_long_as_it_says(
    rig: Rig, upstream: Upstream
) -> None:
    known = await rig.known(tried())
    until_ms = known.now_ms() + 1_000
    rig.put("m", a__cooldown=f"until_ms={until_ms} length_ms=20000 reason=http_429")
    refusal = {"error": {"message": "slow down"}}
    upstream.answer = lambda: httpx.Response(429, json=refusal, headers={"retry-after": "9"})

    async with Recovering(rig, known, upstream):
        await until(lambda: "length_ms=9000" in rig.row()["a:cooldown"])

    assert len(upstream.asked) == 1


async def test_limits_of_an_endpoint_hold_for_tries_too(rig: Rig, upstream: Upstream) -> None:
    known = await rig.known(tried(limits=EndpointLimits(max_parallel_requests=Limit(1))))
    open_circuit(rig, known, ago_s=1.8)
    rig.put("m", a__inflight=1)
    async with Recovering(rig, known, upstream):
        await asyncio.sleep(0.5)
        assert upstream.asked == []
        rig.client.hdel(rig.keys.model("m")["endpoints"], "a:inflight")
        await until(lambda: upstream.asked)


async def test_circuit_that_keeps_nobody_away_is_left_to_clients(
    rig: Rig, upstream: Upstream
) -> None:
    known = await rig.known(tried(cooldown_s=0))
    open_circuit(rig, known)
    upstream.answer = lambda: httpx.Response(500)
    async with Recovering(rig, known, upstream):
        await asyncio.sleep(0.4)
    assert upstream.asked == []


async def test_try_that_is_broken_off_leaves_the_endpoint_to_whoever_comes_next(
    rig: Rig, upstream: Upstream
) -> None:
    known = await rig.known(tried(cooldown_s=30))
    open_circuit(rig, known, ago_s=40)
    upstream.open.clear()
    async with Recovering(rig, known, upstream):
        await until(lambda: upstream.asked)
    assert not rig.client.exists(rig.keys.model("m")["claims"])
    assert (await ask_as_client(rig, known, "r1.1")).probe


class TestAKey:
    async def test_that_is_muted_is_not_sent(self, rig: Rig, upstream: Upstream) -> None:
        known = await rig.known(keyed("k0", "k1"))
        open_circuit(rig, known, ago_s=40)
        until_ms = known.now_ms() + 60_000
        mute = f"failures=0 for_ms=90000 until_ms={until_ms} status=401 by=x"
        rig.client.hset(rig.keys.pool("p")["mutes"], f"{key_id('k0')}@a.invalid:443", mute)

        async with Recovering(rig, known, upstream, pools_of(rig)):
            await until(lambda: "a:circuit" not in rig.row())

        assert upstream.keys == ["k1"]

    async def test_that_is_refused_is_followed_by_another(
        self, rig: Rig, upstream: Upstream
    ) -> None:
        known = await rig.known(keyed("k0", "k1"))
        open_circuit(rig, known, ago_s=40)
        refused = httpx.Response(401, json={"error": {"message": "no"}})
        upstream.answer = lambda: refused if upstream.keys == ["k0"] else WELL

        async with Recovering(rig, known, upstream, pools_of(rig)):
            await until(lambda: "a:circuit" not in rig.row())

        assert upstream.keys == ["k0", "k1"]

    async def test_that_was_added_is_sent(self, rig: Rig, upstream: Upstream) -> None:
        known = await rig.known(keyed())
        open_circuit(rig, known, ago_s=40)
        sealed = Seal(SECRET).close("kx", "p/1")
        record = AddedKey(id="p/1", key=key_id("kx"), min_role="pro", sealed=sealed)
        await PoolStore(rig.runner, rig.keys).add("p", record)

        async with Recovering(rig, known, upstream, pools_of(rig)):
            await until(lambda: "a:circuit" not in rig.row())

        assert upstream.keys == ["kx"]

    async def test_is_not_sent_while_nobody_knows_what_keys_are_digested_with(
        self, rig: Rig, upstream: Upstream
    ) -> None:
        known = await rig.known(keyed("k0", "k1"))
        open_circuit(rig, known, ago_s=40)

        async with Recovering(rig, known, upstream, pools_of(rig, Secret(None))):
            await until(lambda: rig.row().get("a:circuit") == "half_open")
            await until(lambda: "a:probe" not in rig.row())

        assert upstream.keys == []
        assert (await ask_as_client(rig, known, "r1.1")).probe


async def test_another_configuration_is_followed(rig: Rig, upstream: Upstream) -> None:
    known = await rig.known(tried(recovery_probes=False))
    open_circuit(rig, known)
    async with Recovering(rig, known, upstream):
        known.replace(current(tried()))
        await until(lambda: upstream.asked)
