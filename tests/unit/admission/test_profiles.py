"""The profiles that a replica knows: read off the way of requests, used however old they are."""

from __future__ import annotations

import logging

import pytest

from gateway.admission import profiles
from gateway.admission.profiles import OLD_MS, KnownProfiles
from gateway.config.routewise_schema import RoutewiseParams
from gateway.core.profile import NO_PROFILE, Profile
from gateway.errors import StateUnavailable
from gateway.state.profiles import PublishedProfile, read_profile, write_profile
from tests.fakes.builders import model, route

M = model(router="routewise", router_params=RoutewiseParams())
OTHER = model(route(model_id="other"), id="other")


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


class ProfileStore:
    def __init__(self) -> None:
        self.found: PublishedProfile | None = None
        self.is_away = False
        self.asked: list[str] = []

    async def profile(self, model_id: str) -> PublishedProfile | None:
        self.asked.append(model_id)
        if self.is_away:
            raise StateUnavailable
        return self.found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(profiles, "time", clock)
    return clock


@pytest.fixture
def store() -> ProfileStore:
    return ProfileStore()


@pytest.fixture
def known(store: ProfileStore, clock: Clock) -> KnownProfiles:
    return KnownProfiles(store, lambda: (M, OTHER))  # type: ignore[arg-type]


def published(output: float, age_ms: int = 0) -> PublishedProfile:
    return PublishedProfile(profile=Profile(output=output), epoch=1, at_ms=7, age_ms=age_ms)


async def test_only_models_that_go_by_one_are_asked_after(
    known: KnownProfiles, store: ProfileStore
) -> None:
    await known.read()

    assert store.asked == ["m"]
    assert known.of(M) == NO_PROFILE


async def test_the_last_one_stays_when_there_is_no_other(
    known: KnownProfiles, store: ProfileStore
) -> None:
    store.found = published(5)
    await known.read()
    store.found = None
    await known.read()
    store.is_away = True
    with pytest.raises(StateUnavailable):
        await known.read()

    assert known.of(M).output == 5


async def test_its_age_goes_on_after_it_was_read(
    known: KnownProfiles, store: ProfileStore, clock: Clock
) -> None:
    assert known.age_ms(M) is None
    store.found = published(5, age_ms=300)
    await known.read()
    clock.now_s += 2

    assert known.age_ms(M) == 2300


async def test_one_that_is_missing_or_old_is_said_once(
    known: KnownProfiles, store: ProfileStore, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def said(after_s: float) -> list[str]:
        caplog.clear()
        clock.now_s += after_s
        await known.read()
        return [record.message for record in caplog.records]

    assert await said(0) == []
    assert await said(OLD_MS / 1000 + 1) == ["profile_old"]
    assert await said(1) == []
    store.found = published(5)
    assert await said(1) == ["profile_fresh"]
    store.found = published(5, age_ms=OLD_MS + 1)
    assert await said(1) == ["profile_old"]


class TestText:
    PROFILE = Profile(output=5.5, outputs={3: 7.0})

    def test_is_read_as_it_was_written(self) -> None:
        text = f"epoch=4 at_ms=900 {write_profile(self.PROFILE)}"

        assert read_profile(text, 1000) == PublishedProfile(
            profile=self.PROFILE, epoch=4, at_ms=900, age_ms=100
        )

    @pytest.mark.parametrize(
        "text",
        ["", "{}", "epoch=1 at_ms=1 ", "epoch=1 at_ms=1 {", 'epoch=1 at_ms=1 {"output":"x"}'],
    )
    def test_that_makes_no_sense_is_none(self, text: str) -> None:
        assert read_profile(text, 1000) is None

    def test_of_a_newer_release_is_read_as_far_as_it_is_known(self) -> None:
        found = read_profile('epoch=1 at_ms=1 {"output":5,"news":[1]}', 1000)

        assert found
        assert found.profile == Profile(output=5)
