"""What the coordinator's jobs share, and what its process tells of itself."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from coordinator.current import Current
from coordinator.rounds import every
from coordinator.serve import health_app
from coordinator.tally import Tally, sentence
from gateway.config.result import Loaded
from gateway.errors import StateUnavailable
from gateway.state.coordinator_store import Fenced
from tests.fakes.builders import config, model, route
from tests.unit.coordinator.conftest import Rig, until


def rounds(
    *outcomes: Exception | None,
) -> tuple[list[int], Callable[[], Coroutine[Any, Any, None]]]:
    """Work whose first rounds end so, and all others well; and the numbers of those done."""
    done: list[int] = []
    each = itertools.chain(outcomes, itertools.repeat(None))

    async def work() -> None:
        done.append(len(done))
        if (outcome := next(each)) is not None:
            raise outcome

    return done, work


async def test_work_goes_on_after_a_round_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    done, work = rounds(RuntimeError("broken"), ExceptionGroup("", [ValueError()]))
    task = asyncio.create_task(every(0.001, work))
    await until(lambda: len(done) > 3)
    task.cancel()
    assert [record.message for record in caplog.records] == ["unexpected_error"] * 2


@pytest.mark.parametrize(
    "away",
    [StateUnavailable(), ExceptionGroup("", [ExceptionGroup("", [StateUnavailable()])])],
    ids=["alone", "in a task of the round"],
)
async def test_round_that_redis_kept_from_its_work_is_tried_again_soon_and_no_fault_of_ours(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, away: Exception
) -> None:
    monkeypatch.setattr("coordinator.rounds.RETRY_S", 0.001)
    done, work = rounds(away, away)
    task = asyncio.create_task(every(3600, work))
    await until(lambda: len(done) == 3)
    await asyncio.sleep(0.05)
    task.cancel()
    assert len(done) == 3  # the third was well, and the next is due in an hour
    assert caplog.records == []


@pytest.mark.parametrize(
    "fenced",
    [Fenced("publish"), ExceptionGroup("", [ExceptionGroup("", [Fenced("publish")])])],
    ids=["alone", "among others"],
)
async def test_work_ends_where_there_is_a_newer_leader(fenced: Exception) -> None:
    done, work = rounds(None, fenced)
    with pytest.raises(type(fenced)):
        await asyncio.wait_for(every(0.001, work), 10)
    assert len(done) == 2


def test_tally_says_what_was_done_and_begins_anew() -> None:
    tally = Tally()
    tally.add("probed", 12)
    tally.add("failed")
    tally.add("ended", 3)
    counts = tally.take()
    assert sentence(counts) == "12 health probes, 1 of them failed, 3 expired claims ended"
    assert sentence(tally.take()) == "nothing to do"


@pytest.mark.parametrize(
    ("models", "routes", "is_complete"), [(1, 2, True), (2, 2, False), (1, 3, False)]
)
def test_configuration_is_complete_when_nothing_of_the_files_was_left_out(
    models: int, routes: int, is_complete: bool
) -> None:
    of = config(model(route("a"), route("b")))
    loaded = Loaded(config=of, problems=(), models=models, routes=routes)
    assert Current.of(loaded, of).is_complete is is_complete


async def test_of_two_looks_the_larger_number_of_replicas_counts(rig: Rig) -> None:
    known = await rig.known(config(), replicas=3)
    assert known.live_replicas == 3
    # Given a store that was emptied, to which one has come back
    rig.client.delete(rig.keys.cluster()["replicas"])
    await rig.beat(1)
    await known.look()
    assert (known.live, known.live_replicas) == (["r1"], 3)
    await known.look()
    assert known.live_replicas == 1


@pytest.mark.parametrize(
    ("is_available", "epoch", "leader", "answer"),
    [
        (True, 7, "c1", {"status": "ready", "role": "leader", "epoch": 7, "leader": "c1"}),
        (True, None, "c2", {"status": "ready", "role": "standby", "epoch": None, "leader": "c2"}),
        (False, None, "", {"status": "degraded", "role": "standby", "epoch": None, "leader": None}),
    ],
    ids=["leader", "standby", "without redis"],
)
async def test_process_tells_what_it_is(
    is_available: bool, epoch: int | None, leader: str, answer: dict[str, Any]
) -> None:
    lease = SimpleNamespace(epoch=epoch, leader=leader)
    coordinator = SimpleNamespace(lease=lease, state_is_available=is_available)
    app = health_app(coordinator)  # type: ignore[arg-type]
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://c") as http:
        assert (await http.get("/livez")).json() == {"status": "alive"}
        found = await http.get("/readyz")
    assert (found.status_code, found.json()) == (200, answer)
