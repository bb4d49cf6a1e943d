"""The draw: exactly filtering first and renormalising, without judging whom nobody drew."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.state.keys import Keys
from gateway.state.policy import Policy
from tests.lua.drawing import (
    Endpoint,
    Instance,
    by_numbers,
    chances_filtering_first,
    chances_lazily,
)
from tests.lua.rig import Rig, prompt
from tests.redis_servers import ScriptStore

PROMPT_TOKENS = 300_000
ALWAYS_THE_SAME = settings(
    max_examples=150,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

endpoints = st.builds(
    Endpoint,
    weight=st.sampled_from([0.1, 0.5, 1, 2.5, 9]),
    is_blocked=st.sampled_from([False, False, True]),
    backlog=st.sampled_from([0, 1, 49_999, 50_000, 60_000, 150_000, 150_001, 400_000]),
    elephants=st.sampled_from([0, 0, 1, 2]),
    uncached=st.sampled_from([0, 199_999, 200_000, PROMPT_TOKENS]),
)
policies = st.builds(
    Policy,
    prefill=st.sampled_from([True, True, True, False]),
    intervene_tokens=st.sampled_from([0, 1, 50_000]),
    elephant_limit=st.sampled_from([1, 2]),
)
numbers = st.sampled_from([0.0, 0.5, 1 - 2**-53]) | st.integers(0, 2**53 - 1).map(
    lambda bits: bits / 2**53
)


@st.composite
def instances(draw: st.DrawFn, most: int) -> Instance:
    names = ["a", "b", "c", "d", "e", "f"][: draw(st.integers(1, most))]
    found = {at: draw(endpoints) for at in names}
    return Instance(found, draw(policies), pinned=draw(st.sampled_from(["", *names])))


def arrange(rig: Rig, instance: Instance) -> str:
    """Put an instance into Redis. Returns the candidates as `admit` takes them."""
    rig.policy = instance.policy
    for at, endpoint in instance.endpoints.items():
        rig.put({f"{at}:prefill_tokens": endpoint.backlog, f"{at}:elephants": endpoint.elephants})
        if endpoint.is_blocked:
            rig.put({f"{at}:circuit": "open", f"{at}:opened_at_ms": rig.now_ms})
        rig.put_hint(at, PROMPT_TOKENS - endpoint.uncached)
    if instance.pinned:
        rig.put_pin(instance.pinned)
    return packed({at: endpoint.weight for at, endpoint in instance.endpoints.items()})


def packed(weights: dict[str, float]) -> str:
    return " ".join(f"{at} {weight:.17g}" for at, weight in weights.items())


@given(instances(most=4))
@settings(ALWAYS_THE_SAME, max_examples=200)
def test_drawing_lazily_has_exactly_the_chances_of_filtering_first(instance: Instance) -> None:
    assert chances_lazily(instance) == chances_filtering_first(instance)


models = itertools.count()


@given(instance=instances(most=6), u=st.lists(numbers, min_size=8, max_size=8))
@ALWAYS_THE_SAME
def test_any_instance_is_drawn_as_the_reference_draws(
    store_server: ScriptStore, keys: Keys, instance: Instance, u: list[float]
) -> None:
    rig = Rig(store_server, keys, f"m{next(models)}")
    candidates = arrange(rig, instance)

    reply = rig.admit("r.1", candidates, u=u, prompt=prompt(PROMPT_TOKENS))

    location, used = by_numbers(instance, u)
    assert ((reply.location or None), reply.drawn) == (location, used)
    assert reply.pin == ("" if location is None else "kept" if instance.kept else "made")
    if location is None:
        assert reply.passed_over().keys() == instance.endpoints.keys(), (
            "a refusal knows all reasons"
        )


@given(instance=instances(most=6), u=st.lists(numbers, min_size=8, max_size=8))
@settings(ALWAYS_THE_SAME, max_examples=60)
def test_one_number_for_each_candidate_and_two_more_always_suffice(
    store_server: ScriptStore, keys: Keys, instance: Instance, u: list[float]
) -> None:
    rig = Rig(store_server, keys, f"m{next(models)}")
    candidates = arrange(rig, instance)

    enough = len(instance.endpoints) + 2

    assert not rig.admit("r.1", candidates, u=u[:enough], prompt=prompt(PROMPT_TOKENS)).is_short


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
    reply = rig.admit("r.1", "a 1 b 1 c 1 d 1", u=(0.9, 0.0, 0.9, 0.0), tried="a d")

    assert (reply.location, reply.drawn) == ("c", 3)
    assert list(reply.passed_over()) == ["a", "d"], "in the order in which they are declared"


def test_same_numbers_and_same_state_give_the_same_endpoint(rig: Rig) -> None:
    rng = random.Random(3)
    u = [rng.random() for _ in range(4)]

    drawn = {rig.admit(f"r.{i}", "a 1 b 2 c 3 d 4", u=u, tried="c").location for i in range(10)}

    assert len(drawn) == 1
