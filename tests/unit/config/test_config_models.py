from __future__ import annotations

import pytest

from gateway.config.strategies import ExpectedTtftParams
from gateway.core.route import Timeouts, UpstreamKey


def one(load_texts, text: str, **options):
    loaded = load_texts(text, **options)
    assert not loaded.errors, loaded.errors
    return loaded.config.models["m"]


def test_a_model_without_routes_is_its_own_route(load_texts) -> None:
    # When
    model = one(
        load_texts,
        "models: [{id: m, name: M, provider: zai, "
        "base_url: 'https://api.z.ai/v4/', api_key: ' abc '}]",
    )

    # Then
    (route,) = model.routes
    assert route.endpoint == "m:zai-api"
    assert (route.kind, route.provider, route.weight) == ("zai", "zai", 1.0)
    assert (route.base_url, route.upstream_model) == ("https://api.z.ai/v4", "m")
    assert route.api_keys == (UpstreamKey("abc"),)
    assert (route.context_length, route.max_output_length) == (None, None)
    assert route.input_modalities == {"text"}
    assert (model.context_length, model.max_output_length) == (8192, 4096)
    assert (model.router, model.required_role, model.model_type) == ("fixed", "free", "chat")


def test_routes_inherit_from_their_model_and_override_it(load_texts) -> None:
    # When
    model = one(
        load_texts,
        """
        models:
          - id: m
            name: M
            provider: vllm
            base_url: http://a:1
            api_key: shared
            provider_model_id: up
            context_length: 1000
            max_output_length: 100
            input_modalities: [text, image]
            supported_params: [temperature, seed]
            extra_body: {a: 1}
            pricing: {prompt: 0.15, completion: "3", request: 1.0e-7}
            route:
              - {weight: 0.7}
              - kind: openrouter[fire-works]
                base_url: https://openrouter.ai/api/v1
                api_keys: [one, two, one]
                provider: fireworks
                provider_model_id: other
                context_length: 500
                input_modalities: [text]
                supported_params: [seed, stop]
                supports_tools: true
                include_usage: false
                extra_body: {b: 2}
                weight: 0
        """,
    )

    # Then
    first, second = model.routes
    assert (first.provider, first.upstream_model) == ("vllm", "up")
    assert first.api_keys == (UpstreamKey("shared"),)
    assert (first.context_length, first.max_output_length) == (1000, 100)
    assert first.input_modalities == {"text", "image"}
    assert (second.provider, second.upstream_model) == ("fireworks", "other")
    assert second.api_keys == (UpstreamKey("one"), UpstreamKey("two"))
    assert (second.context_length, second.max_output_length) == (500, 100)
    assert (second.include_usage, second.extra_body, second.weight) == (False, {"b": 2}, 0.0)
    assert (model.context_length, model.supports_tools) == (500, True)
    assert model.supported_params == ("seed",)
    assert model.input_modalities == ("text", "image")
    assert model.pricing == {"prompt": "0.15", "completion": "3", "request": "0.0000001"}


def test_the_nearest_timeout_wins(load_texts) -> None:
    # When
    model = one(
        load_texts,
        """
        models:
          - id: m
            name: M
            provider: vllm
            timeouts: {first_byte: 30, idle: 0}
            route:
              - {base_url: "http://a:1", timeouts: {first_byte: 10, total: null}}
              - {base_url: "http://b:1"}
        """,
        routing="timeouts: {connect: 2, idle: 60}",
    )

    # Then
    assert model.routes[0].timeouts == Timeouts(connect=2, first_byte=10, idle=None, total=None)
    assert model.routes[1].timeouts == Timeouts(connect=2, first_byte=30, idle=None, total=600)


def test_every_key_of_the_reference_is_accepted(load_texts) -> None:
    one(
        load_texts,
        """
        models:
          - id: m
            name: M
            provider: openai_compat
            type: chat
            quantization: fp8
            output_modalities: [text]
            supports_structured_output: true
            supported_params: [reasoning_effort]
            reasoning_efforts: [low, high]
            on_demand: true
            processor: think_block
            priority_scheduling: true
            route_metadata: {local_quota_fallback: true}
            pricing_schedule: {from: 2026-01-01, windows: [{start: "16:30", end: "00:30"}]}
            embeddings_path: /embeddings
            router: fixed
            router_params: {hybrid_composition: false, local_fraction: 0.5}
            required_role: pro
            route:
              - base_url: https://api.example.com/v1
                provider: example
                provider_display_name: Example
                provider_type: quota
                pricing: {prompt: "1", completion: 2, input_cache_reads: 0, image: "0"}
                quota: {limit: 100}
                quota_source: {provider: example, usage_label: daily, unit: requests}
                concurrency: {limit: 4}
                quota_pool: q
                concurrency_pool: c
                routewise_pool: r
        """,
    )


def test_an_engine_that_starts_when_it_is_used_is_known_as_such(load_texts) -> None:
    loaded = load_texts(
        "models: [{id: m, name: M, provider: vllm, on_demand: true, "
        "route: [{base_url: 'http://a'}, {base_url: 'http://b', on_demand: false}]}]"
    )
    assert [one.starts_when_used for one in loaded.config.models["m"].routes] == [True, False]


def test_aliases_lead_to_their_model(load_texts) -> None:
    loaded = load_texts(
        "models: [{id: m, name: M, provider: vllm, base_url: 'http://a', aliases: [x, y/z]}]"
    )
    assert loaded.config.names == {"m": "m", "x": "m", "y/z": "m"}
    assert loaded.config.models["m"].aliases == ("x", "y/z")


def test_admin_only_means_role_admin_and_is_deprecated(load_texts) -> None:
    loaded = load_texts(
        "models: [{id: m, name: M, provider: vllm, base_url: 'http://a', admin_only: true}]"
    )
    assert loaded.config.models["m"].required_role == "admin"
    assert [problem.path for problem in loaded.warnings] == ["models[0].admin_only"]


def test_a_model_whose_weights_are_all_0_is_not_served(load_texts) -> None:
    # When
    loaded = load_texts(
        "models: [{id: m, name: M, provider: vllm, aliases: [x],"
        " route: [{base_url: 'http://a', weight: 0}, {base_url: 'http://b', weight: 0.0}]}]",
        keys="keys: [{id: k, key: abcdefgh, models: [x]}]",
    )

    # Then
    assert not loaded.errors
    assert not loaded.config.models
    assert not loaded.config.names
    assert "weights" in loaded.warnings[0].message


@pytest.mark.parametrize("weight", ["1.0e-9", "1.0e+9", "0.5"])
def test_weights_reach_from_a_billionth_to_a_billion(load_texts, weight: str) -> None:
    model = one(
        load_texts,
        "models: [{id: m, name: M, provider: vllm,"
        f" route: [{{base_url: 'http://a', weight: {weight}}}]}}]",
    )
    assert model.routes[0].weight == float(weight)


@pytest.mark.parametrize(
    "url",
    [
        "http://münchen.example/v1",
        "http://xn--mnchen-3ya.example/v1",
        "http://engine_1:8000/v1é",
        "http://a.b./v1",
        f"http://{'a' * 63}.example",
        "http://[2001:db8::1]:8000",
        "HTTP://API.Example.com",
    ],
)
def test_addresses_that_the_client_takes_are_accepted(load_texts, url: str) -> None:
    one(load_texts, f"models: [{{id: m, name: M, provider: vllm, base_url: '{url}'}}]")


@pytest.mark.parametrize("kind", ["vllm", "kimi", "openrouter", "openrouter[a.b_c-D]", "staging"])
def test_openai_shaped_kinds_are_spoken(load_texts, kind: str) -> None:
    model = one(
        load_texts,
        f"models: [{{id: m, name: M, provider: acme, kind: '{kind}', base_url: 'https://a.example'}}]",
    )
    assert (model.routes[0].kind, model.routes[0].provider) == (kind, "acme")


def test_a_route_shows_no_key(load_texts) -> None:
    loaded = load_texts(
        "models: [{id: m, name: M, provider: vllm, base_url: 'http://a', api_key: secret-key}]",
        env={"CONCORD_ADMIN_KEY": "secret-admin", "CONCORD_SECRET": "secret-salt"},
    )
    assert "secret" not in repr(loaded)
    assert "secret" not in repr(loaded.config.models)


EXPECTED_TTFT = """
models:
  - {id: m, name: M, provider: vllm, base_url: "http://a", router: expected_ttft%s}
"""


@pytest.mark.parametrize(
    ("given", "rate"), [("", 8000), (", router_params: {prefill_tokens_per_s: 500}", 500)]
)
def test_parameters_of_the_strategy_stand_in_its_model(load_texts, given: str, rate: int) -> None:
    model = one(load_texts, EXPECTED_TTFT % given)

    assert model.router == "expected_ttft"
    assert model.router_params == ExpectedTtftParams(prefill_tokens_per_s=rate)


def test_parameters_are_read_by_the_default_strategy_of_models_without_one(load_texts) -> None:
    model = one(
        load_texts,
        "models: [{id: m, name: M, provider: vllm, base_url: 'http://a', "
        "router_params: {prefill_tokens_per_s: 7}}]",
        routing="default_router: expected_ttft",
    )

    assert model.router_params == ExpectedTtftParams(prefill_tokens_per_s=7)


@pytest.mark.parametrize("given", ["0", "-1", "0.5", "fast", "true"])
def test_a_rate_that_is_none_is_refused(load_texts, given: str) -> None:
    loaded = load_texts(EXPECTED_TTFT % f", router_params: {{prefill_tokens_per_s: {given}}}")

    assert [problem.path for problem in loaded.errors] == [
        "models[0].router_params.prefill_tokens_per_s"
    ]


def test_comparing_without_counting_prefill_is_warned_of(load_texts) -> None:
    assert not load_texts(EXPECTED_TTFT % "").warnings

    loaded = load_texts(EXPECTED_TTFT % "", routing="prefill: {enabled: false}")

    assert [problem.path for problem in loaded.warnings] == ["models[0].router"]
