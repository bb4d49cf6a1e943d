from __future__ import annotations

import pytest

from gateway.config.upstream_schema import UpstreamConcurrency

MODELS = 'models: [{id: m, name: M, provider: vllm, base_url: "http://localhost:1"}]'


def test_every_key_is_accepted(load_texts) -> None:
    loaded = load_texts(
        MODELS,
        routing="upstream_concurrency: {enabled: false, initial: 2, max: 3, success_interval: 4,"
        " acquire_timeout: 0.5}",
    )

    assert not loaded.problems
    assert loaded.config.settings.upstream_concurrency == UpstreamConcurrency(
        enabled=False, initial=2, max=3, success_interval=4, acquire_timeout=0.5
    )


def test_the_environment_has_the_last_word(load_texts) -> None:
    loaded = load_texts(
        MODELS,
        routing="upstream_concurrency: {initial: 2, max: 3}",
        env={
            "UPSTREAM_CONCURRENCY_ENABLED": "0",
            "UPSTREAM_CONCURRENCY_INITIAL_LIMIT": "5",
            "UPSTREAM_CONCURRENCY_MAX_LIMIT": "6",
            "UPSTREAM_CONCURRENCY_PROBE_SUCCESS_INTERVAL": "7",
            "UPSTREAM_CONCURRENCY_ACQUIRE_TIMEOUT_SEC": "1.5",
        },
    )

    assert not loaded.problems
    assert loaded.config.settings.upstream_concurrency == UpstreamConcurrency(
        enabled=False, initial=5, max=6, success_interval=7, acquire_timeout=1.5
    )


@pytest.mark.parametrize(
    ("written", "path", "is_now"),
    [
        ("initial: 0", "initial", {"initial": 1}),
        ("max: 0, initial: 1", "max", {"initial": 1, "max": 1}),
        ("success_interval: 0", "success_interval", {"success_interval": 1}),
        ("initial: 9, max: 4", "initial", {"initial": 4, "max": 4}),
    ],
)
def test_a_limit_out_of_its_bounds_is_brought_into_them_with_a_warning(
    load_texts, written: str, path: str, is_now: dict[str, int]
) -> None:
    loaded = load_texts(MODELS, routing=f"upstream_concurrency: {{{written}}}")

    assert [problem.path for problem in loaded.problems] == [f"upstream_concurrency.{path}"]
    assert not loaded.errors
    assert loaded.config.settings.upstream_concurrency == UpstreamConcurrency(**is_now)


@pytest.mark.parametrize("written", ["initial: -1", "max: 1.5", "max: 100001", "limit: 8"])
def test_what_is_no_limit_is_an_error(load_texts, written: str) -> None:
    loaded = load_texts(MODELS, routing=f"upstream_concurrency: {{{written}}}")

    assert [problem.path for problem in loaded.errors] == [
        f"upstream_concurrency.{written.partition(':')[0]}"
    ]
