"""One coordinator of several works, whatever happens to it, and no request needs any."""

from __future__ import annotations

import contextlib
import http.server
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import redis
import yaml

from gateway.state.server import PrivateRedis
from tests.cluster.harness import ADMIN_KEY, HTTP, Cluster, Coordinator, wait_until
from tests.cluster.load import Load, clients, until

LEASE_S = 2.0
PROBE_S = 1
FAST = {"ttft_ms": 0, "tokens_per_s": 0, "prefill_tokens_per_s": 0, "output_tokens": 5}


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, mortal_redis: PrivateRedis
) -> Iterator[Cluster]:
    """Three replicas and two coordinators, who probe two engines every second."""
    cluster = Cluster(
        tmp_path_factory.mktemp("coordinated"),
        mortal_redis.url,
        engines={"engine-a": FAST, "engine-b": FAST},
        coordinators=2,
    )
    deployments = [{"endpoint": engine.url, "models": ["m"]} for engine in cluster.engines]
    cluster.write(
        "routing.yaml",
        {
            "affinity": {"enabled": False},
            "health_check": PROBE_S,
            "local_deployment": deployments,
            "state": {"lease_s": 1.5, "socket_timeout_ms": 400},
            "coordinator": {"lease_s": LEASE_S},
        },
    )
    with cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    """The shared cluster with all its processes well, and one leader."""
    for coordinator in shared.coordinators:
        if not coordinator.is_running:
            coordinator.start()
    shared.reset()
    for coordinator in shared.coordinators:
        wait_until(coordinator.readiness, "a coordinator that answers")
    wait_until(lambda: leader(shared), "a leader")
    return shared


def leader(cluster: Cluster) -> Coordinator | None:
    """The one that leads, by its own word and by that of the lease."""
    found = [one for one in cluster.coordinators if one.leads()]
    if len(found) != 1 or lease(cluster).get("holder") != found[0].id:
        return None
    return found[0]


def lease(cluster: Cluster) -> dict[str, str]:
    found: dict[str, str] = cluster.redis.hgetall("gw:{cluster}:lease")
    return found


def epoch(cluster: Cluster) -> int:
    return int(lease(cluster)["epoch"])


def status(cluster: Cluster) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    answer = HTTP.get(f"{cluster.replicas[0].url}/admin/status", headers=headers)
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


class Watch:
    """Looks at the lease and at all that is published, all the while, from a thread of its own.

    Epochs and dates of one name must not fall; a `faults` entry tells of each that has.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.faults: list[str] = []
        self.looks = 0
        self._redis: redis.Redis = redis.Redis.from_url(cluster.redis_url, decode_responses=True)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._redis.close()
        assert self.looks > 10
        assert not self.faults

    def _run(self) -> None:
        last: dict[str, tuple[int, int]] = {}
        while not self._stopping.wait(0.005):
            seen = dict(self._redis.hgetall("gw:{cluster}:published"))
            seen["lease"] = f"epoch={self._redis.hget('gw:{cluster}:lease', 'epoch')} at_ms=0 "
            for name, text in seen.items():
                at, value = _stamps(text), last.get(name, (0, 0))
                if at < value:
                    self.faults.append(f"{name} fell from {value} to {at}")
                last[name] = at
            self.looks += 1


def _stamps(text: str) -> tuple[int, int]:
    """Epoch and date of a published value, as that is what must not fall."""
    epoch, at_ms = (int(word.partition("=")[2]) for word in text.split()[:2])
    return epoch, at_ms


class Counts:
    """How often each engine is asked after its health, from now on."""

    def __init__(self, cluster: Cluster) -> None:
        self._engines = cluster.engines
        self._before = self._read()
        self._since_s = time.monotonic()

    def most(self) -> int:
        """The largest number of probes that one engine has had."""
        return max(now - then for now, then in zip(self._read(), self._before, strict=True))

    def fair(self) -> float:
        """How many an engine may have had that is never probed twice: the jitter is a tenth."""
        return (time.monotonic() - self._since_s) / (0.9 * PROBE_S) + 2

    def _read(self) -> Sequence[int]:
        return [engine.counters()["health_checks"] for engine in self._engines]


def test_one_of_two_leads_and_the_other_says_so(cluster: Cluster) -> None:
    leading = leader(cluster)
    assert leading
    other = next(one for one in cluster.coordinators if one is not leading)
    assert leading.readiness() == {
        "status": "ready",
        "role": "leader",
        "epoch": epoch(cluster),
        "leader": leading.id,
    }
    wait_until(lambda: other.readiness()["leader"] == leading.id, "the other to know of it")
    assert (other.readiness()["status"], other.readiness()["role"]) == ("ready", "standby")
    # And both say in each tick what they are at
    for one, said in ((other, f"stands by: {leading.id} leads"), (leading, "health probes")):
        wait_until(
            lambda one=one, said=said: any(said in line["said"] for line in one.events("tick")),
            f"a tick that says {said!r}",
        )


def test_status_tells_who_coordinates_and_how_old_its_words_are(cluster: Cluster) -> None:
    leading = leader(cluster)
    assert leading

    def is_told() -> dict[str, Any] | None:
        found = status(cluster)["coordinator"]
        return found if found["published"].keys() >= {"probes", "tick", "redis"} else None

    found = wait_until(is_told, "all to be published")
    assert (found["holder"], found["epoch"]) == (leading.id, epoch(cluster))
    assert 0 < found["left_ms"] <= LEASE_S * 1000
    assert found["config_digest"] == cluster.replicas[0].config_digest()
    assert all(age_ms >= 0 for age_ms in found["published"].values())


def test_leader_that_was_frozen_overwrites_nothing_and_nothing_is_probed_twice(
    cluster: Cluster,
) -> None:
    frozen = leader(cluster)
    assert frozen
    before, counts = epoch(cluster), Counts(cluster)
    with Watch(cluster):
        # Given a leader that is frozen for three lease times, in which another takes its place
        frozen.signal(signal.SIGSTOP)
        try:
            other = next(one for one in cluster.coordinators if one is not frozen)
            wait_until(other.leads, "the other one leading", 2 * LEASE_S + 2)
            assert epoch(cluster) > before
            time.sleep(2 * LEASE_S)
        finally:
            # When it goes on
            frozen.signal(signal.SIGCONT)

        # Then it stands by, and the other leads as before
        wait_until(
            lambda: frozen.readiness().get("role") == "standby", "it knows that it does not lead"
        )
        leads_on = epoch(cluster)
        time.sleep(2 * LEASE_S)
        assert leader(cluster) is other
        assert epoch(cluster) == leads_on > before
    # And the engines were asked no more often than by one coordinator
    assert counts.most() <= counts.fair()
    assert frozen.events("leadership_lost")[-1]["epoch"] == before


class QuickHealth(http.server.BaseHTTPRequestHandler):
    """Tells of its health at once, and counts how often it has."""

    protocol_version = "HTTP/1.1"  # a connection that is kept takes the next request at once
    asked = 0

    def do_GET(self) -> None:
        QuickHealth.asked += 1
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def listening(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of an engine that does what a handler says."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def coordinators(folder: Path, redis_url: str, engine: str, count: int) -> list[Coordinator]:
    """So many, who probe one engine."""
    (folder / "config").mkdir()
    route = {"id": "m", "name": "M", "provider": "vllm", "base_url": engine}
    files = {
        "models.yaml": {"models": [route]},
        "routing.yaml": {
            "health_check": PROBE_S,
            "local_deployment": [{"endpoint": engine, "models": ["m"]}],
            "coordinator": {"lease_s": LEASE_S},
            "state": {"socket_timeout_ms": 400},
        },
    }
    for name, content in files.items():
        (folder / "config" / name).write_text(yaml.safe_dump(content), "utf-8")
    return [
        Coordinator(f"coordinator-{n}", folder, folder / "config", redis_url)
        for n in range(1, count + 1)
    ]


def test_leader_that_was_frozen_when_a_probe_was_due_does_not_send_it(
    tmp_path: Path, private_redis: str
) -> None:
    with listening(QuickHealth) as engine:
        (frozen,) = coordinators(tmp_path, private_redis, engine, 1)
        frozen.start()
        try:
            wait_until(lambda: frozen.leads() and QuickHealth.asked, "a first probe")
            # Given a leader that is frozen until its lease is over, and longer than between probes
            frozen.signal(signal.SIGSTOP)
            time.sleep(LEASE_S)
            asked = QuickHealth.asked
            with redis.Redis.from_url(private_redis) as client:
                until_ms = int((time.time() + 60) * 1000)
                taken = {"holder": "another", "until_ms": until_ms, "lease_ms": 120_000}
                client.hset("gw:{cluster}:lease", mapping=taken)
            # When it goes on
            frozen.signal(signal.SIGCONT)
            wait_until(lambda: frozen.readiness().get("role") == "standby", "it stands by")
            # Then it has asked nobody any more
            assert QuickHealth.asked == asked
        finally:
            frozen.stop()


class SlowHealth(http.server.BaseHTTPRequestHandler):
    """Tells of its health after a while."""

    asked = threading.Event()

    def do_GET(self) -> None:
        self.asked.set()
        time.sleep(0.6)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def slow_health() -> Iterator[str]:
    """The address of an engine that takes its time."""
    with listening(SlowHealth) as address:
        yield address


def test_last_word_of_a_leader_that_was_frozen_while_it_probed_is_refused(
    tmp_path: Path, private_redis: str, slow_health: str
) -> None:
    both = coordinators(tmp_path, private_redis, slow_health, 2)
    said: list[str] = []
    with redis.Redis.from_url(private_redis, decode_responses=True) as client:
        try:
            for one in both:
                one.start()
            wait_until(lambda: all(one.readiness() for one in both), "both up")
            frozen = wait_until(lambda: next((c for c in both if c.leads()), None), "a leader")
            other = next(one for one in both if one is not frozen)
            old = str(client.hget("gw:{cluster}:lease", "epoch"))
            # Given a leader that is frozen while it waits for an answer, and another in its place
            SlowHealth.asked.clear()
            assert SlowHealth.asked.wait(10)
            time.sleep(0.2)
            frozen.signal(signal.SIGSTOP)
            wait_until(other.leads, "the other one leading")
            name = f"probe:{slow_health}"

            def others_word() -> bool:
                word = client.hget("gw:{cluster}:published", name)
                return bool(word) and f"epoch={old} " not in str(word)

            wait_until(others_word, "its first word")
            # When it goes on, with what it takes for an answer that did not come
            listening = threading.Thread(target=listen, args=(private_redis, said), daemon=True)
            listening.start()
            wait_until(lambda: said, "somebody listening")
            frozen.signal(signal.SIGCONT)
            wait_until(lambda: frozen.readiness().get("role") == "standby", "it stands by")
            time.sleep(PROBE_S)
            client.echo("done")
            listening.join()
        finally:
            for one in both:
                one.stop()
        published = client.hget("gw:{cluster}:published", name)
    # Then it has said so under its old epoch, and that has not been heard
    assert any(f" {old} {name} " in line for line in said)
    assert " healthy=1 " in published
    assert not published.startswith(f"epoch={old} ")


def listen(redis_url: str, said: list[str]) -> None:
    """Note every command that a Redis is sent, until it is told that it is done."""
    with (
        redis.Redis.from_url(redis_url, decode_responses=True) as client,
        client.monitor() as monitor,
    ):
        said.append("listening")
        for line in monitor.listen():
            said.append(line["command"])
            if line["command"] == "ECHO done":
                return


def test_another_leads_within_two_lease_times_of_a_leaders_death(cluster: Cluster) -> None:
    dying = leader(cluster)
    assert dying
    before, counts = epoch(cluster), Counts(cluster)
    with Watch(cluster):
        dying.kill()

        other = wait_until(lambda: leader(cluster), "another leader", 2 * LEASE_S)

        assert other is not dying
        assert epoch(cluster) > before
        time.sleep(2 * PROBE_S)
    # And it went on where the other one had stopped
    assert 0 < counts.most() <= counts.fair()


def test_leader_that_is_told_to_stop_lets_another_lead_at_once(cluster: Cluster) -> None:
    leaving = leader(cluster)
    assert leaving
    assert leaving.stop() == 0
    assert "until_ms" not in lease(cluster) or lease(cluster)["holder"] != leaving.id
    wait_until(lambda: leader(cluster), "another leader", LEASE_S)


@pytest.mark.parametrize("how", ["emptied", "restarted"])
def test_redis_that_has_lost_all_has_one_leader_again_under_a_higher_epoch(
    cluster: Cluster, mortal_redis: PrivateRedis, how: str
) -> None:
    before = epoch(cluster)
    if how == "emptied":
        cluster.redis.flushall()
    else:
        assert mortal_redis.process is not None
        mortal_redis.process.kill()
        mortal_redis.process.wait()
        time.sleep(LEASE_S)
        mortal_redis.start()

    wait_until(lambda: lease(cluster) and leader(cluster), "one leader")

    assert epoch(cluster) > before
    holders = {one.id for one in cluster.coordinators if one.leads()}
    assert holders == {lease(cluster)["holder"]}


async def test_without_a_coordinator_no_request_suffers_and_its_words_age_visibly(
    cluster: Cluster,
) -> None:
    wait_until(lambda: status(cluster)["coordinator"]["published"].get("probes"), "probes told")
    async with clients(cluster.replicas) as https:
        load = Load(https, workers_each=1)
        await load.reach(50)
        # Given that all coordinators are dead
        for coordinator in cluster.coordinators:
            coordinator.kill()
        await until(lambda: not status(cluster)["coordinator"]["left_ms"], "a lease that ran out")
        first = status(cluster)["coordinator"]["published"]["probes"]

        # When requests come for some time
        await load.reach(200)
        await until(
            lambda: status(cluster)["coordinator"]["published"]["probes"] > first + 3000, "age"
        )
        answers = await load.stop()

    # Then all are answered, and operators see that nobody coordinates
    assert {answer.status for answer in answers} == {200}
    assert any("no coordinator" in warning for warning in status(cluster)["warnings"])
    routing = HTTP.get(
        f"{cluster.replicas[0].url}/routing", headers={"authorization": f"Bearer {ADMIN_KEY}"}
    ).json()
    assert all(one["age_ms"] > 3000 for one in routing["endpoint_health"].values())
