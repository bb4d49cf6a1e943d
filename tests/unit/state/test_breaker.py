"""The breaker between a replica and Redis."""

from __future__ import annotations

import pytest

from gateway.state.breaker import Breaker


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    """Opens at five, for exactly one second."""
    return Breaker(clock, threshold=5, pause_s=1.0, jitter=lambda low, high: high)


def allows(breaker: Breaker) -> bool:
    return breaker.begin() is not None


def fail(breaker: Breaker, times: int) -> None:
    for _ in range(times):
        number = breaker.begin()
        assert number is not None
        breaker.failed(number)


def test_fewer_failures_than_the_threshold_open_nothing(breaker: Breaker) -> None:
    fail(breaker, 4)

    assert not breaker.is_open
    assert allows(breaker)


def test_success_in_between_starts_the_count_again(breaker: Breaker) -> None:
    fail(breaker, 4)
    breaker.succeeded()
    fail(breaker, 4)

    assert not breaker.is_open


def test_failures_in_a_row_open_it(breaker: Breaker) -> None:
    fail(breaker, 5)

    assert breaker.is_open
    assert not allows(breaker)


@pytest.mark.parametrize(("after_s", "allowed"), [(0.0, False), (0.999, False), (1.0, True)])
def test_nothing_is_let_through_before_the_pause_is_over(
    breaker: Breaker, clock: Clock, after_s: float, allowed: bool
) -> None:
    fail(breaker, 5)
    clock.now += after_s

    assert allows(breaker) is allowed


def test_one_trial_is_let_through_per_pause(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 5)
    clock.now += 1.0

    assert [allows(breaker) for _ in range(3)] == [True, False, False]
    clock.now += 1.0
    assert allows(breaker), "the first trial never came back"


def test_trial_that_succeeds_closes_it(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 5)
    clock.now += 1.0
    allows(breaker)
    breaker.succeeded()

    assert not breaker.is_open
    assert all(allows(breaker) for _ in range(3))


def test_trial_that_fails_starts_another_pause(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 5)
    clock.now += 1.0
    fail(breaker, 1)

    clock.now += 0.999
    assert not allows(breaker)
    clock.now += 0.001
    assert allows(breaker)


def test_pause_is_jittered_so_that_replicas_do_not_return_together(clock: Clock) -> None:
    asked: list[tuple[float, float]] = []

    def jitter(low: float, high: float) -> float:
        asked.append((low, high))
        return low

    breaker = Breaker(clock, threshold=1, pause_s=4.0, jitter=jitter)
    fail(breaker, 1)

    assert asked == [(0.5, 1.0)]
    clock.now += 2.0
    assert allows(breaker)


def test_calls_that_share_one_stall_count_once(breaker: Breaker) -> None:
    # Given twenty calls under way when Redis stalls
    numbers = [breaker.begin() for _ in range(20)]
    for number in numbers:
        assert number is not None
        breaker.failed(number)

    # Then that was one failure, and it takes four more, each begun after the last
    assert not breaker.is_open
    fail(breaker, 3)
    assert not breaker.is_open
    fail(breaker, 1)
    assert breaker.is_open
