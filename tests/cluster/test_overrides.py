"""What an operator changes through one replica holds in all of them, from that moment on."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import httpx
import pytest
from msgspec import Struct

from tests.cluster.harness import ADMIN_KEY, Cluster, Engine, wait_until
from tests.cluster.load import Load, ask, clients, idle, until

FAST = {"ttft_ms": 0, "tokens_per_s": 100000, "output_tokens": 1}
ADMIN = {"authorization": f"Bearer {ADMIN_KEY}"}
WEIGHTS = "/admin/routing/weights"
PROVIDERS = "/admin/routing/providers"
ROUTING = {
    # On two cores the processes take turns, and a turn can last longer than the usual timeout.
    "state": {"socket_timeout_ms": 1000}
}


def described(engines: list[Engine]) -> list[dict[str, Any]]:
    """`m` and `n` on both engines, each of a provider of its own; `lone` on the first alone."""
    routes = [
        {"kind": "vllm", "base_url": engine.url, "provider": label}
        for engine, label in zip(engines, ("acme", "other"), strict=True)
    ]
    usual = {"provider": "vllm", "route": routes}
    return [
        {"id": "m", "name": "M", **usual},
        {"id": "n", "name": "N", **usual},
        {"id": "lone", "name": "Lone", **usual, "route": routes[:1]},
    ]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, module_redis: str) -> Iterator[Cluster]:
    with Cluster(
        tmp_path_factory.mktemp("overrides"),
        module_redis,
        engines={"engine-a": FAST, "engine-b": FAST},
        models=described,
        routing=ROUTING,
    ) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    shared.reset()
    return shared


class Admitted(Struct, frozen=True):
    """A claim as `admit` has written it, and the epoch that stood at that moment."""

    location: str
    epoch: int
    epoch_in_force: int


class Monitor:
    """Every command of the server, in the order in which it ran them: scripts' own, too."""

    _EPOCH = re.compile(rb'"SET" "gw:\{m:m\}:epoch" "(\d+)"')
    _CLAIM = re.compile(rb'"HSET" "gw:\{m:m\}:claimed" "([^"]+)" "location=(\S+)([^"]*)"')

    _END = b"the monitor's end"

    def __init__(self, cluster: Cluster) -> None:
        self._redis = cluster.redis
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(cluster.redis_url.removeprefix("unix://"))
        self._seen = bytearray()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._socket.sendall(b"MONITOR\r\n")
        assert self._socket.recv(5) == b"+OK\r\n"
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        began = len(self._seen)
        self._redis.echo(self._END.decode())
        wait_until(lambda: self._END in self._seen[began:], "the monitor's end")
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _read(self) -> None:
        while part := self._socket.recv(1 << 20):
            self._seen += part

    def admitted(self) -> list[Admitted]:
        """The claims granted meanwhile. Call it when the monitor has ended."""
        granted: dict[bytes, Admitted] = {}
        in_force = 0
        for line in self._seen.splitlines():
            if raised := self._EPOCH.search(line):
                in_force = int(raised[1])
            elif claim := self._CLAIM.search(line):
                epoch = re.search(rb" epoch=(\d+)", claim[3])
                one = Admitted(claim[2].decode(), int(epoch[1]) if epoch else 0, in_force)
                granted.setdefault(claim[1], one)
        return list(granted.values())


async def put(http: httpx.AsyncClient, path: str, **body: Any) -> dict[str, Any]:
    answer = await http.put(path, json=body, headers=ADMIN)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def change(http: httpx.AsyncClient, what: str, engine: Engine, *, out: bool) -> int:
    """Take the first route of `m` out, or put it back. Returns the model's epoch since."""
    if what == "weight":
        changed = await put(http, f"{WEIGHTS}/m/{engine.location}", weight=0 if out else 2)
        return int(changed["epoch"])
    changed = await put(http, f"{PROVIDERS}/acme", disabled=out, force=True)
    return int(next(one["epoch"] for one in changed["models"] if one["model_id"] == "m"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", ["weight", "provider"])
async def test_no_replica_admits_under_what_held_before_a_change(
    cluster: Cluster, what: str
) -> None:
    # Given load through three replicas
    engine = cluster.engines[0]
    out: set[int] = set()
    async with clients(cluster.replicas) as https:
        with Monitor(cluster) as monitor:
            load = Load(https)
            await load.reach(200)
            # When a route is taken out and put back again and again, through one after another
            epochs = [0]
            for n in range(6):
                epochs.append(await change(https[n % 3], what, engine, out=n % 2 == 0))
                if n % 2 == 0:
                    out.add(epochs[-1])
                await load.reach(200)
            answers = await load.stop()
        await idle(cluster)

    # Then no client has noticed
    assert Counter(answer.status for answer in answers) == {200: len(answers)}
    # And every claim was granted under the epoch that stood when it was, on a route then in service
    admitted = monitor.admitted()
    assert len(admitted) == len(answers)
    assert epochs == sorted(set(epochs))
    assert [one for one in admitted if one.epoch != one.epoch_in_force] == []
    assert [one for one in admitted if one.epoch in out and one.location == engine.location] == []
    # And each of these epochs has seen load, and the route has served in each of the others
    by_epoch = Counter(one.epoch for one in admitted)
    assert by_epoch.keys() == set(epochs)
    assert min(by_epoch.values()) > 50
    served = {one.epoch for one in admitted if one.location == engine.location}
    assert served == set(epochs) - out


async def test_change_is_seen_by_every_replica_at_once(cluster: Cluster) -> None:
    first, second = (f"m:{engine.location}" for engine in cluster.engines)
    async with clients(cluster.replicas) as https:
        for n, http in enumerate(https):
            out, stays = (first, second) if n % 2 else (second, first)
            await put(http, f"{WEIGHTS}/m/{stays}", weight=1)
            await put(http, f"{WEIGHTS}/m/{out}", weight=0)
            answers = [await ask(other) for other in https for _ in range(10)]
            assert {answer.endpoint for answer in answers} == {stays}
            for other in https:
                listed = (await other.get(f"{WEIGHTS}/m", headers=ADMIN)).json()["routes"]
                zeroed = [one["endpoint_id"] for one in listed if one["effective_weight"] == 0]
                assert zeroed == [out]


async def test_provider_is_out_in_all_its_models_and_back_again(cluster: Cluster) -> None:
    first, second = (engine.location for engine in cluster.engines)
    async with clients(cluster.replicas) as https:
        # Given a model that has no other provider
        refused = await https[0].put(f"{PROVIDERS}/acme", json={"disabled": True}, headers=ADMIN)
        assert refused.status_code == 400
        assert "no route is left for lone." in refused.json()["error"]["message"]
        assert not cluster.redis.keys("gw:{m:*}:epoch")
        # When the other provider is disabled
        await put(https[0], f"{PROVIDERS}/other", disabled=True)
        # Then its models go on without it, through every replica
        for model in ("m", "n"):
            answers = [await ask(http, model=model) for http in https for _ in range(10)]
            assert {answer.endpoint for answer in answers} == {f"{model}:{first}"}
        # When it is enabled through another replica
        await https[1].delete(f"{PROVIDERS}/other", headers=ADMIN)
        # Then it serves again
        for model in ("m", "n"):
            answers = [await ask(http, model=model) for http in https for _ in range(10)]
            assert {answer.endpoint for answer in answers} == {
                f"{model}:{first}",
                f"{model}:{second}",
            }


async def test_two_operators_cannot_zero_a_model_together(cluster: Cluster) -> None:
    paths = [f"{WEIGHTS}/m/{engine.location}" for engine in cluster.engines]
    async with clients(cluster.replicas) as https:
        for _ in range(20):
            # When each takes another route out, at once and through different replicas
            answers = await asyncio.gather(
                *(
                    http.put(path, json={"weight": 0}, headers=ADMIN)
                    for http, path in zip(https, paths, strict=False)
                )
            )
            # Then exactly one of them is refused, and the model is served
            assert sorted(answer.status_code for answer in answers) == [200, 400]
            message = next(a for a in answers if a.status_code == 400).json()["error"]["message"]
            assert message == "cannot zero all routes for model 'm'"
            assert (await ask(https[2])).status == 200
            for path in paths:
                await put(https[2], path, weight=1)


async def test_replica_that_starts_later_goes_by_what_holds(cluster: Cluster) -> None:
    first, second = (f"m:{engine.location}" for engine in cluster.engines)
    late = cluster.replicas[2]
    assert late.stop() == 0
    async with clients(cluster.replicas[:1]) as (http,):
        await put(http, f"{WEIGHTS}/m/{first}", weight=0)
    late.start()
    await until(late.is_ready, "the replica ready")
    async with clients([late]) as (http,):
        answers = [await ask(http) for _ in range(10)]
    assert {answer.endpoint for answer in answers} == {second}
