"""The rules by which endpoints pause, as models.yaml and routing.yaml come to them."""

from __future__ import annotations

import pytest
import yaml

from gateway.config.cooldown_schema import AllowedFailsPolicy
from gateway.config.problems import Problems
from gateway.config.validate import read
from gateway.core.cooldown import HYBRID, Cooldown
from gateway.core.outcome import ErrorClass

LITELLMS_STEMS = (
    "BadRequest",
    "Authentication",
    "Timeout",
    "RateLimit",
    "ContentPolicyViolation",
    "InternalServer",
    "ServiceUnavailable",
    "NotFound",
    "BadGateway",
)


def rules(load_texts, *routes: dict, routing: dict | None = None, **model: object):
    """The rules of each route of a model with these keys."""
    named = {"id": "m", "name": "M", "provider": "vllm"}
    listed = [{"base_url": f"http://host-{n}:1", **one} for n, one in enumerate(routes or [{}])]
    text = yaml.safe_dump({"models": [{**named, **model, "route": listed}]})
    loaded = load_texts(text, routing=yaml.safe_dump(routing or {}))
    assert loaded.problems == ()
    return [route.cooldown for route in loaded.config.models["m"].routes]


def test_without_a_key_of_its_own_a_model_is_hybrid(load_texts) -> None:
    assert rules(load_texts) == [HYBRID]


@pytest.mark.parametrize(
    "keys",
    [
        {"cooldown_time": 7},
        {"cooldown_time": 0},
        {"allowed_fails": 3},
        {"allowed_fails": 0},
        {"allowed_fails_policy": {"TimeoutErrorAllowedFails": 1}},
        {"cooldown_policy": "litellm"},
    ],
    ids=lambda keys: " ".join(keys),
)
def test_a_model_with_a_key_of_litellms_follows_litellm(load_texts, keys: dict) -> None:
    found = rules(load_texts, {}, {}, **keys)

    assert {one.policy for one in found} == {"litellm"}


def test_a_route_with_a_key_of_litellms_takes_its_model_along(load_texts) -> None:
    found = rules(load_texts, {}, {"cooldown_time": 7})

    assert found == [Cooldown(policy="litellm"), Cooldown(policy="litellm", time_ms=7_000)]


def test_a_time_for_all_models_changes_no_policy(load_texts) -> None:
    [found] = rules(load_texts, routing={"cooldown_time": 7, "max_cooldown": 60})

    assert found == Cooldown(policy="hybrid", time_ms=7_000, max_ms=60_000)


def test_a_hybrid_model_may_have_a_time(load_texts) -> None:
    [found] = rules(load_texts, cooldown_policy="hybrid", cooldown_time=7)

    assert found == Cooldown(policy="hybrid", time_ms=7_000)


def test_the_nearest_time_counts(load_texts) -> None:
    found = rules(
        load_texts,
        {},
        {"cooldown_time": 2.5},
        {"cooldown_time": 0},
        routing={"cooldown_time": 60},
        cooldown_time=7,
    )

    assert [one.time_ms for one in found] == [7_000, 2_500, 0]


def test_a_time_of_less_than_a_millisecond_is_not_taken_for_none(load_texts) -> None:
    [found] = rules(load_texts, cooldown_time=0.0001)

    assert found.time_ms == 1


def test_allowed_fails_of_a_route_are_its_own_and_its_models(load_texts) -> None:
    found = rules(
        load_texts,
        {},
        {
            "allowed_fails": 0,
            "allowed_fails_policy": {
                "RateLimitErrorAllowedFails": 9,
                "BadGatewayErrorAllowedFails": 0,
            },
        },
        allowed_fails=3,
        allowed_fails_policy={"RateLimitErrorAllowedFails": 5, "NotFoundErrorAllowedFails": 1},
    )

    assert [one.allowed_fails for one in found] == [3, 0]
    assert [one.allowed_fails_by_class for one in found] == [
        {ErrorClass.RATE_LIMIT: 5, ErrorClass.NOT_FOUND: 1},
        {ErrorClass.RATE_LIMIT: 9, ErrorClass.NOT_FOUND: 1, ErrorClass.BAD_GATEWAY: 0},
    ]


@pytest.mark.parametrize(
    ("allowed", "counts"),
    [
        ({}, False),
        ({"allowed_fails": 0}, True),
        ({"allowed_fails": 3}, True),
        ({"allowed_fails_policy": {"TimeoutErrorAllowedFails": 0}}, True),
        ({"allowed_fails_policy": {}}, False),
    ],
)
def test_a_number_that_is_given_counts_also_where_it_is_the_usual_one(
    load_texts, allowed: dict, counts: bool
) -> None:
    [found] = rules(load_texts, **allowed)

    assert found.counts_fails is counts


@pytest.mark.parametrize("stem", LITELLMS_STEMS)
def test_classes_are_named_as_litellm_names_them(stem: str) -> None:
    problems = Problems("")
    policy = read({f"{stem}ErrorAllowedFails": 4}, AllowedFailsPolicy, "", problems)

    assert not problems.found
    given = [name for name in AllowedFailsPolicy.__struct_fields__ if getattr(policy, name) == 4]
    assert [str(ErrorClass(name)) for name in given] == given
    assert "".join(given).replace("_", "") == stem.lower()


def test_there_are_no_other_classes() -> None:
    assert len(AllowedFailsPolicy.__struct_fields__) == len(LITELLMS_STEMS)
