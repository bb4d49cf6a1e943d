"""Reservations of a replica: renewed while they run, put back when they are lost."""

from __future__ import annotations

import json

import pytest

from gateway.admission.reservations import LOOKED_AFTER_LEASES, Reservation, Reservations
from gateway.core.prices import Prices
from gateway.errors import StateUnavailable
from gateway.state.caller_store import Need
from tests.fakes.caller_store import MemoryCallerStore


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def store() -> MemoryCallerStore:
    return MemoryCallerStore()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def held(store: MemoryCallerStore, clock: Clock) -> Reservations:
    return Reservations(store, "r1", lease_ms=1000, clock=clock)  # type: ignore[arg-type]


def reservation(held: Reservations, tag: str = "key:a") -> Reservation:
    made = Reservation(
        id=held.next_id(),
        tag=tag,
        scopes=(),
        need=Need(tokens=1, nanousd=0),
        caller="a",
        prompt_tokens=1,
        images=0,
        prices=Prices(),
        held="text",
    )
    held.add(made)
    return made


def test_ids_are_the_replicas_own_and_never_repeat(held: Reservations) -> None:
    assert [held.next_id() for _ in range(3)] == ["r1.1", "r1.2", "r1.3"]


async def test_all_are_renewed_by_tag_at_most_128_in_a_call(
    held: Reservations, store: MemoryCallerStore
) -> None:
    calls: list[tuple[str, int]] = []

    async def renew(tag: str, *, reservations: list[str], lease_ms: int) -> list[str]:
        calls.append((tag, len(reservations)))
        assert lease_ms == 1000
        return []

    store.renew = renew  # type: ignore[method-assign]
    for _ in range(300):
        reservation(held)
    reservation(held, "key:b")
    await held.renew()
    assert calls == [("key:a", 128), ("key:a", 128), ("key:a", 44), ("key:b", 1)]


async def test_an_ended_one_is_renewed_no_more(
    held: Reservations, store: MemoryCallerStore
) -> None:
    held.end(reservation(held))
    store.raising["renew"] = [StateUnavailable()]
    await held.renew()
    assert len(held) == 0


async def test_a_lost_one_is_put_back_while_it_runs_and_that_is_logged(
    held: Reservations, store: MemoryCallerStore, caplog: pytest.LogCaptureFixture
) -> None:
    # Given two that the store has lost, of which one ends while it is asked
    running, ended = reservation(held), reservation(held)
    store.lost = {running.id, ended.id}
    renew = store.renew

    async def ending(tag: str, **values: object) -> list[str]:
        held.end(ended)
        return await renew(tag, **values)  # type: ignore[arg-type]

    store.renew = ending  # type: ignore[method-assign]
    # When leases are renewed
    with caplog.at_level("WARNING"):
        await held.renew()
    # Then only the running one is back
    assert store.lost == {ended.id}
    [line] = [record for record in caplog.records if record.msg == "state_regressed"]
    assert json.loads(json.dumps(line.fields)) == {"limits": "key:a", "reservations": 1}  # type: ignore[attr-defined]


async def test_tags_are_reaped_for_a_few_leases_after_their_last_reservation(
    held: Reservations, store: MemoryCallerStore, clock: Clock
) -> None:
    held.end(reservation(held))
    clock.now_s = LOOKED_AFTER_LEASES
    await held.renew()
    assert store.reaped == ["key:a"]
    clock.now_s += 0.1
    await held.renew()
    assert store.reaped == ["key:a"]


async def test_nothing_is_kept_of_tags_that_are_idle_or_never_held_anything(
    held: Reservations, clock: Clock
) -> None:
    held.end(reservation(held))
    stranger = reservation(Reservations(None, "r2", lease_ms=1), "key:z")  # type: ignore[arg-type]
    held.end(stranger)
    clock.now_s = 1000.0
    await held.renew()
    assert (held._held, held._used_s) == ({}, {})


async def test_a_tag_is_reaped_for_as_long_as_a_reservation_runs(
    held: Reservations, store: MemoryCallerStore, clock: Clock
) -> None:
    running = reservation(held)
    clock.now_s = 1000.0
    await held.renew()
    assert store.reaped == ["key:a"]
    held.end(running)
    await held.renew()
    assert store.reaped == ["key:a"]
