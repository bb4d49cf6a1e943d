from __future__ import annotations

import pytest

from gateway.config.location import is_shared, locate


@pytest.mark.parametrize(
    ("kind", "base_url", "location"),
    [
        ("openai_compat", "http://localhost:12003", "local-12003"),
        ("zai", "http://127.0.0.1:8000/v1", "local-8000"),
        ("vllm", "http://0.0.0.0:8000", "local-8000"),
        ("vllm", "http://host.docker.internal:8000", "local-8000"),
        ("vllm", "http://[::1]:8000", "local-8000"),
        ("vllm", "http://localhost", "local"),
        ("vllm", "http://127.0.0.2:8000", "127.0.0.2-8000"),
        ("vllm", "http://10.0.0.5:8000", "10.0.0.5-8000"),
        ("zai", "http://10.0.0.5:8000", "10.0.0.5-8000"),
        ("vllm", "https://10.0.0.5", "10.0.0.5-443"),
        ("vllm", "http://[2001:db8::1]:8000", "2001.db8..1-8000"),
        ("openai_compat", "https://api.minimax.io/v1", "minimax-api"),
        ("openai_compat", "https://llm.example.org", "example-api"),
        ("openai_compat", "https://api.ai", "ai"),
        ("sglang", "http://engine-0.engines.svc:30000", "engine-0-api"),
        ("zai", "https://api.z.ai/v4", "zai-api"),
        ("openrouter[fireworks]", "https://openrouter.ai/api/v1", "openrouter[fireworks]-api"),
    ],
)
def test_a_location_comes_from_kind_and_address(kind: str, base_url: str, location: str) -> None:
    assert locate(kind, base_url, host_id="a", shared_redis=False) == location


@pytest.mark.parametrize(
    ("base_url", "location"),
    [
        ("http://localhost:8000", "local-8000@host-a"),
        ("http://127.0.0.2:8000", "127.0.0.2-8000@host-a"),
        ("http://10.0.0.5:8000", "10.0.0.5-8000"),
        ("https://api.minimax.io/v1", "minimax-api"),
    ],
)
def test_on_a_shared_redis_local_locations_carry_their_host(base_url: str, location: str) -> None:
    assert locate("vllm", base_url, host_id="host-a", shared_redis=True) == location


@pytest.mark.parametrize(
    ("redis_url", "shared"),
    [
        (None, False),
        ("embedded", False),
        ("unix:///run/redis.sock", False),
        ("redis://localhost:6379/0", False),
        ("redis://:secret@127.0.0.1:6379", False),
        ("redis://[::1]:6379", False),
        ("rediss://redis.internal:6379", True),
        ("redis://10.0.0.9", True),
        ("redis://[broken", True),
    ],
)
def test_redis_is_shared_unless_it_is_on_this_host(redis_url: str | None, shared: bool) -> None:
    assert is_shared(redis_url) is shared


def test_a_route_may_name_its_location(load_texts) -> None:
    # When
    loaded = load_texts(
        """
        models:
          - id: m
            name: M
            provider: vllm
            route:
              - {base_url: "http://localhost:8000"}
              - {base_url: "http://localhost:8000", location: second@rack-1}
        """,
        redis_url="redis://redis.internal:6379",
    )

    # Then
    assert [route.endpoint for route in loaded.config.models["m"].routes] == [
        "m:local-8000@host-a",
        "m:second@rack-1",
    ]


def test_the_host_id_defaults_to_the_hostname_and_is_validated(load_texts) -> None:
    models = 'models: [{id: m, name: M, provider: vllm, base_url: "http://localhost:1"}]'

    # When
    unset = load_texts(models, env={"CONCORD_HOST_ID": ""}, redis_url="redis://far")
    bad = load_texts(models, env={"CONCORD_HOST_ID": "a b"})

    # Then
    assert unset.config.models["m"].routes[0].location.startswith("local-1@")
    assert [problem.path for problem in bad.errors] == ["CONCORD_HOST_ID"]
