"""The draw: exactly filtering first and renormalising, without judging whom nobody drew."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from tests.lua.rig import Rig


def lazy(weights: Mapping[str, float], blocked: set[str], u: Sequence[float]) -> str | None:
    """The reference: draw, strike out, draw again. First index reached wins, drift falls last."""
    left = list(weights)
    for number in u:
        if not left:
            return None
        total, running, found = sum(weights[at] for at in left), 0.0, left[-1]
        threshold = number * total
        for at in left:
            running += weights[at]
            if total > 0 and threshold <= running:
                found = at
                break
        if found not in blocked:
            return found
        left.remove(found)
    return None


def packed(weights: Mapping[str, float]) -> str:
    return " ".join(f"{at} {weight:.17g}" for at, weight in weights.items())


def instance(rng: random.Random) -> tuple[dict[str, float], set[str]]:
    weights = {f"e{i}": rng.choice([0.1, 0.5, 1, 2.5, 9]) for i in range(rng.randint(1, 7))}
    blocked = {at for at in weights if rng.random() < 0.4}
    return weights, blocked


@pytest.mark.parametrize(
    ("candidates", "u", "location"),
    [
        ("a .5 b .5", 0.0, "a"),
        ("a .5 b .5", 0.99, "b"),
        ("a .5 b .5", 0.5, "a"),
        ("a .5 b .5", 0.5000000000000001, "b"),
        ("a 0 b 0", 0.5, "b"),
        ("a 0 b 0 c 0", 0.0, "c"),
        ("a 0.9 b 0.1", 0.89, "a"),
        ("a 0.9 b 0.1", 0.91, "b"),
        ("a 0.1 b 0.1 c 0.1", 0.9999999999999999, "c"),
    ],
    ids=[
        "zero is the first",
        "near one is the last",
        "the border belongs to the lower",
        "just over the border",
        "zero weights fall to the last",
        "zero weights and zero draw",
        "below a border",
        "above a border",
        "drift stays inside",
    ],
)
def test_one_draw(rig: Rig, candidates: str, u: float, location: str) -> None:
    assert rig.admit("r.1", candidates, u=[u] * 3).location == location


def test_nine_to_one_is_drawn_nine_to_one(rig: Rig) -> None:
    rng = random.Random(2)

    drawn = Counter(
        rig.admit(f"r.{i}", "a 0.9 b 0.1", u=(rng.random(), 0)).location for i in range(400)
    )

    assert drawn["a"] > 3 * drawn["b"] > 0


def test_one_number_is_used_for_each_endpoint_looked_at(rig: Rig) -> None:
    reply = rig.admit("r.1", "a 1 b 1 c 1 d 1", u=(0.0, 0.0, 0.9, 0.0), tried="a b")

    assert (reply.location, reply.drawn) == ("d", 3)
    assert list(reply.passed_over()) == ["a", "b"], "in the order in which they were drawn"


def test_same_numbers_and_same_state_give_the_same_endpoint(rig: Rig) -> None:
    rng = random.Random(3)
    u = [rng.random() for _ in range(4)]

    drawn = {rig.admit(f"r.{i}", "a 1 b 2 c 3 d 4", u=u, tried="c").location for i in range(10)}

    assert len(drawn) == 1


def test_random_instances_are_drawn_as_the_reference_draws(rig: Rig) -> None:
    rng = random.Random(4)
    for number in range(150):
        weights, blocked = instance(rng)
        u = [rng.choice([0.0, rng.random(), 1 - 2**-53]) for _ in weights]

        reply = rig.admit(f"r.{number}", packed(weights), u=u, tried=" ".join(blocked))

        assert (reply.location or None) == lazy(weights, blocked, u)
        assert reply.is_admitted == bool(weights.keys() - blocked)
        if not reply.is_admitted:
            assert reply.passed_over().keys() == blocked, "a refusal knows why of everyone"


def test_the_reference_has_the_distribution_of_filtering_first() -> None:
    rng = random.Random(5)
    draws = 8_000
    for _ in range(12):
        weights, blocked = instance(rng)
        open_to_us = {at: weight for at, weight in weights.items() if at not in blocked}
        if not open_to_us:
            continue

        drawn = Counter(
            lazy(weights, blocked, [rng.random() for _ in weights]) for _ in range(draws)
        )

        total = sum(open_to_us.values())
        for at, weight in open_to_us.items():
            share = weight / total
            spread = (share * (1 - share) / draws) ** 0.5
            assert abs(drawn[at] / draws - share) <= 5 * spread
