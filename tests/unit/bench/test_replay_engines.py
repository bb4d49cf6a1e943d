"""The engines that a replay routes to."""

from __future__ import annotations

from tests.bench.replay.engines import Engine, EngineSpec
from tests.bench.replay.trace import Request

BLOCK = 100


def engine(cache_blocks: int = 10) -> Engine:
    return Engine(EngineSpec("e", 1000.0, cache_blocks), BLOCK)


def prompt(*blocks: int, tokens: int | None = None) -> Request:
    return Request(0.0, tokens or BLOCK * len(blocks), 0, blocks, "c")


def test_prompts_are_taken_in_turn() -> None:
    one = engine()
    assert one.prefill(5.0, prompt(1, 2)) == (5.2, 0)
    assert one.prefill(5.1, prompt(3)) == (5.3, 0)
    assert one.prefill(9.0, prompt(4)) == (9.1, 0)


def test_cached_is_the_prefix_that_it_has_seen() -> None:
    one = engine()
    one.prefill(0.0, prompt(1, 2, 3))
    assert one.prefill(1.0, prompt(1, 2, 9, 3)) == (1.2, 200)


def test_last_token_is_computed_whatever_is_cached() -> None:
    one = engine()
    one.prefill(0.0, prompt(1, 2))
    assert one.prefill(1.0, prompt(1, 2)) == (1.001, 199)


def test_what_was_used_longest_ago_is_forgotten_from_its_end() -> None:
    one = engine(cache_blocks=4)
    one.prefill(0.0, prompt(1, 2, 3))
    one.prefill(1.0, prompt(7, 8))
    assert one.prefill(2.0, prompt(1, 2, 3))[1] == 200


def test_dead_engine_comes_back_with_nothing_cached_and_no_line() -> None:
    one = engine()
    one.prefill(0.0, prompt(1, 2, 3, 4, 5))
    life = one.life
    one.die()
    assert not one.is_up
    assert one.life != life
    one.come_back()
    assert one.is_up
    assert one.prefill(0.1, prompt(1)) == (0.2, 0)
