"""models.yaml: the limits of endpoints. routing.yaml: what they are counted by, and the budget."""

from __future__ import annotations

import pytest

from gateway.config.result import Config
from gateway.core.limits import UNLIMITED, EndpointLimits, Limit
from gateway.core.plan import Candidates
from gateway.core.route import Model
from gateway.state.packing import packed_candidates, packed_limits
from gateway.state.policy import Policy

A, B = "http://localhost:1", "http://localhost:2"


def config(load_texts, fields: str = "", routes: str = "[]", **texts: str) -> Config:
    models = f"""
    models:
      - {{id: m, name: M, provider: vllm, {fields} route: {routes}}}
    """
    loaded = load_texts(models, **texts)
    assert loaded.problems == ()
    return loaded.config


def model(load_texts, fields: str, routes: str, **texts: str) -> Model:
    return config(load_texts, fields, routes, **texts).models["m"]


def test_limits_are_numbers_or_say_more_than_their_number(load_texts) -> None:
    found = model(
        load_texts,
        "",
        f"""[{{base_url: "{A}", rpm: 10, tpm: {{limit: 20}}, itpm: {{limit: 30, mode: shadow}},
        otpm: {{limit: 40, window: fixed}},
        max_parallel_requests: {{limit: 5, mode: shadow}}}}]""",
    )
    assert found.routes[0].limits == EndpointLimits(
        rpm=Limit(10),
        tpm=Limit(20),
        itpm=Limit(30, is_shadow=True),
        otpm=Limit(40, is_fixed=True),
        max_parallel_requests=Limit(5, is_shadow=True),
    )


def test_routes_inherit_limits_one_by_one_and_each_has_its_own(load_texts) -> None:
    found = model(
        load_texts, "rpm: 10, tpm: 100,", f'[{{base_url: "{A}"}}, {{base_url: "{B}", rpm: 3}}]'
    )
    assert [route.limits for route in found.routes] == [
        EndpointLimits(rpm=Limit(10), tpm=Limit(100)),
        EndpointLimits(rpm=Limit(3), tpm=Limit(100)),
    ]


def test_without_limits_there_are_none(load_texts) -> None:
    found = model(load_texts, "", f'[{{base_url: "{A}"}}]')
    assert found.routes[0].limits == UNLIMITED
    assert found.routes[0].limits.is_empty


def test_limits_may_come_from_variables(load_texts) -> None:
    fields = 'rpm: "${R}", tpm: {limit: "${T:-70}", mode: "${M}"},'
    found = model(load_texts, fields, f'[{{base_url: "{A}"}}]', env={"R": "7", "M": "shadow"})
    assert found.routes[0].limits == EndpointLimits(rpm=Limit(7), tpm=Limit(70, is_shadow=True))


@pytest.mark.parametrize(
    ("limit", "counts"),
    [
        ("rpm: 1", False),
        ("max_parallel_requests: 1", False),
        ("tpm: 1", True),
        ("itpm: 1", True),
        ("otpm: {limit: 1, mode: shadow}", True),
    ],
)
def test_prompts_are_sized_where_any_route_counts_tokens(
    load_texts, limit: str, counts: bool
) -> None:
    found = model(load_texts, "", f'[{{base_url: "{A}"}}, {{base_url: "{B}", {limit}}}]')
    assert found.counts_tokens is counts


def test_limits_enter_the_digest(load_texts) -> None:
    one, two, again = (
        config(load_texts, f"rpm: {rpm},", f'[{{base_url: "{A}"}}]').digest for rpm in (1, 2, 1)
    )
    assert one == again != two


def test_candidates_carry_the_limits_of_those_that_have_some(load_texts) -> None:
    found = model(
        load_texts,
        "",
        f"""[{{base_url: "{A}"}}, {{base_url: "{B}", rpm: {{limit: 5, window: fixed}},
        otpm: {{limit: 7, mode: shadow, window: fixed}}, max_parallel_requests: 2}}]""",
    )
    candidates = Candidates.of(0, [(route, route.weight) for route in found.routes], {})
    one, two = (route.location for route in found.routes)
    assert packed_candidates(candidates.table, candidates.limited) == (
        f"{one} 1 {two} 1|rpm=5f,otpm=7fs,parallel=2"
    )
    assert packed_limits(candidates.limited) == f"{two}|rpm=5f,otpm=7fs,parallel=2"


def test_windows_and_the_budget_of_failover_are_told_to_the_scripts(load_texts) -> None:
    routing = """
    limits: {window_seconds: 3.5}
    retry_budget: {percent: 30, floor: 5}
    """
    settings = config(load_texts, "", f'[{{base_url: "{A}"}}]', routing=routing).settings
    policy = Policy.of(settings)
    assert (policy.window_ms, policy.retry_percent, policy.retry_floor) == (3500, 30, 5)


def test_failover_may_do_without_a_budget(load_texts) -> None:
    settings = config(
        load_texts, "", f'[{{base_url: "{A}"}}]', routing="retry_budget: {enabled: false}"
    ).settings
    assert Policy.of(settings).retry_percent == -1


def test_a_minute_and_a_fifth_are_the_defaults(load_texts) -> None:
    policy = Policy.of(config(load_texts, "", f'[{{base_url: "{A}"}}]').settings)
    assert policy == Policy()
    assert (policy.window_ms, policy.retry_percent, policy.retry_floor) == (60_000, 20, 3)
