"""Calibration against a real Redis: read at least once, learned once, published under the epoch."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator.calibrate import Calibrator
from coordinator.current import Known
from gateway.config.result import Config
from gateway.config.routewise_schema import RoutewiseParams
from gateway.core.prices import Prices
from gateway.core.profile import Profile
from gateway.errors import StateUnavailable
from gateway.state.coordinator_store import Fenced
from gateway.state.outcomes import Ended, write_ended
from gateway.state.supply_store import SupplyStore
from tests.fakes.builders import config, model, route
from tests.unit.coordinator.conftest import EPOCH, Rig, current, until


def calibrated(id: str = "m", **params: Any) -> Config:
    prices = Prices.of({"prompt": "3", "completion": "12"})
    routes = [route(at, model_id=id, prices=prices) for at in ("a", "b")]
    one = model(*routes, id=id, router="routewise", router_params=RoutewiseParams(**params))
    return config(one, model(route("c", model_id="other"), id="other"))


def ends(rig: Rig, ttft_ms: int = 100, *, at: str = "a", model_id: str = "m") -> None:
    """Have an attempt end, as `settle` keeps it."""
    ended = Ended(location=at, is_ok=True, ttft_ms=ttft_ms, prompt_tokens=9, output_tokens=4)
    key = rig.keys.model(model_id)["outcomes"]
    rig.client.xadd(key, {"end": write_ended(ended)})


async def published(rig: Rig, model_id: str = "m") -> Profile | None:
    found = await rig.store.profile(model_id)
    return found.profile if found else None


async def count(rig: Rig) -> int:
    """Of first outputs at `a`, as published."""
    profile = await published(rig)
    speed = profile.speeds.get("a") if profile else None
    return speed.count if speed else 0


class Calibrating:
    """Calibrates while the context is open."""

    def __init__(self, rig: Rig, known: Known, *, epoch: int = EPOCH, reader: str = "c1") -> None:
        self.calibrator = Calibrator(
            rig.coordinator, SupplyStore(rig.runner, rig.keys), known, rig.tally, reader=reader
        )
        self._epoch = epoch

    async def __aenter__(self) -> Calibrator:
        self.task = asyncio.create_task(self.calibrator.run(self._epoch))
        return self.calibrator

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})
        if not self.task.cancelled() and (failure := self.task.exception()):
            raise failure


async def comes_to(rig: Rig, expected: int) -> None:
    """Wait until so many first outputs are in the profile."""
    for _ in range(600):
        if await count(rig) == expected:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{await count(rig)}, not {expected}")


async def test_what_is_stored_is_learned_and_then_what_comes(rig: Rig) -> None:
    known = await rig.known(calibrated())
    for _ in range(3):
        ends(rig)
    async with Calibrating(rig, known):
        await comes_to(rig, 3)
        ends(rig)
        await comes_to(rig, 4)
    assert not rig.client.exists(rig.keys.model("other")["profile"])


async def test_nothing_that_is_stored_is_learned_where_that_is_off(rig: Rig) -> None:
    known = await rig.known(calibrated(db_bootstrap_enabled=False))
    ends(rig)
    await asyncio.sleep(0.01)
    await known.look()
    async with Calibrating(rig, known):
        await until(lambda: rig.client.exists(rig.keys.model("m")["profile"]))
        ends(rig)
        await comes_to(rig, 1)


async def test_what_is_published_is_taken_for_read(rig: Rig) -> None:
    known = await rig.known(calibrated())
    async with Calibrating(rig, known):
        ends(rig)
        await comes_to(rig, 1)
        ends(rig)
        await comes_to(rig, 2)

    (group,) = rig.client.xinfo_groups(rig.keys.model("m")["outcomes"])
    assert group["pending"] == 0
    assert (group["lag"] or 0) == 0


async def test_the_next_coordinator_comes_to_the_same(rig: Rig) -> None:
    known = await rig.known(calibrated())
    async with Calibrating(rig, known):
        for _ in range(5):
            ends(rig)
        await comes_to(rig, 5)
    before = await published(rig)
    ends(rig, 900)
    async with Calibrating(rig, known, epoch=EPOCH + 1, reader="c2"):
        await comes_to(rig, 6)
    after = await published(rig)

    assert before
    assert after
    assert after.speeds["a"].mean_ms == (5 * 100 + 900) / 6
    assert after.outputs == before.outputs


@pytest.mark.parametrize("call", ["read_outcomes", "publish_profile"])
async def test_an_answer_that_is_lost_loses_nothing_and_counts_nothing_twice(
    rig: Rig, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = await rig.known(calibrated())
    ends(rig)
    async with Calibrating(rig, known):
        await comes_to(rig, 1)
        done = getattr(rig.coordinator, call)
        lost = False

        async def loses(*args: Any, **kwargs: Any) -> Any:
            nonlocal lost
            answer = await done(*args, **kwargs)
            if not lost and (answer if call == "read_outcomes" else kwargs["read"]):
                lost = True
                raise StateUnavailable
            return answer

        monkeypatch.setattr(rig.coordinator, call, loses)
        ends(rig)
        ends(rig)
        await until(lambda: lost)
        await comes_to(rig, 3)
        ends(rig)
        await comes_to(rig, 4)


async def test_a_coordinator_of_the_past_publishes_nothing(rig: Rig) -> None:
    known = await rig.known(calibrated())
    async with Calibrating(rig, known, epoch=EPOCH + 1):
        ends(rig)
        await comes_to(rig, 1)
    ends(rig)

    rig.put("m", fence=EPOCH + 1)
    with pytest.raises(Fenced):
        await Calibrating(rig, known).calibrator.run(EPOCH)
    assert await count(rig) == 1


async def test_another_configuration_is_calibrated_by_anew(rig: Rig) -> None:
    known = await rig.known(calibrated(latency_max_samples_per_profile=2))
    for _ in range(5):
        ends(rig)
    async with Calibrating(rig, known) as calibrator:
        await comes_to(rig, 2)
        known.replace(current(calibrated()))
    async with Calibrating(rig, known) as calibrator:
        await comes_to(rig, 5)
        assert list(calibrator.learners) == ["m"]


async def test_nonsense_in_the_stream_is_passed_over(rig: Rig) -> None:
    known = await rig.known(calibrated())
    rig.client.xadd(rig.keys.model("m")["outcomes"], {"end": "at=a how=so"})
    ends(rig)
    async with Calibrating(rig, known):
        await comes_to(rig, 1)
