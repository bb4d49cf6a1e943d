from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import Settings, load
from gateway.config.schema import Priorities
from gateway.core.route import Timeouts

MODELS = 'models: [{id: m, name: M, provider: vllm, base_url: "http://localhost:1"}]'


def test_without_a_file_the_defaults_hold(load_texts) -> None:
    assert load_texts(MODELS).config.settings == Settings()


def test_every_key_is_accepted(load_texts) -> None:
    # When
    loaded = load_texts(
        MODELS,
        routing="""
        auth: none
        circuit: {failure_threshold: 1, cooldown_seconds: 0.5, min_availability: 0, ewma_alpha: 1}
        affinity: {enabled: false, max_age_seconds: 0, session_ids: [X-Session-ID]}
        prefill: {enabled: false, intervene_tokens: 1, elephant_tokens: 2, elephant_limit: 3,
                  affinity_ceiling: 4, hint_ttl_seconds: 5,
                  priorities: {interactive: 3, large: 2, elephant: -1}}
        timeouts: {connect: 1, first_byte: 0, idle: 0.5, total: 2}
        server: {max_body_bytes: 1000, sse_keepalive_s: 0.1, drain_delay_s: 0, drain_timeout_s: 0.5,
                 trusted_proxies: [10.0.0.0/8, "::1"], endpoint_header: false, abort_grace_ms: 0}
        state: {lease_s: 0.5, socket_timeout_ms: 50, namespace: t-1, heartbeat_s: 0.2,
                replica_ttl_s: 0.6}
        default_router: fixed
        local_fraction: 0.25
        timeout: 3
        health_check: 10
        probe_effect: circuit
        probe_concurrency: 2
        recovery_probes: true
        coordinator: {lease_s: 1.5}
        logging: {level: info}
        local_deployment: [{endpoint: "http://localhost:1/", models: [m]}]
        remote_deployment: [{endpoint: "http://localhost:1", models: [m]}]
        """,
    )

    # Then
    assert not loaded.problems
    settings = loaded.config.settings
    assert settings.auth == "none"
    assert settings.circuit.cooldown_seconds == 0.5
    assert settings.affinity.session_ids == ("x-session-id",)
    assert settings.prefill.elephant_limit == 3
    assert settings.prefill.priorities == Priorities(interactive=3, large=2, elephant=-1)
    assert settings.timeouts == Timeouts(connect=1, first_byte=None, idle=0.5, total=2)
    assert settings.server.trusted_proxies == ("10.0.0.0/8", "::1")
    assert (settings.state.lease_s, settings.state.namespace) == (0.5, "t-1")
    assert settings.local_deployment[0].endpoint == "http://localhost:1"
    assert (settings.probe_effect, settings.probe_concurrency) == ("circuit", 2)
    assert settings.coordinator.lease_s == 1.5


@pytest.mark.parametrize(
    ("routing", "model", "route", "tried"),
    [
        ("", "", "", False),
        ("recovery_probes: true", "", "", True),
        ("recovery_probes: true", "recovery_probes: false,", "", False),
        ("", "recovery_probes: true,", "", True),
        ("", "recovery_probes: true,", ", recovery_probes: false", False),
    ],
    ids=["by default", "everywhere", "but here", "a model's", "but this route"],
)
def test_recovery_probes_are_as_the_nearest_place_says(
    load_texts, routing: str, model: str, route: str, tried: bool
) -> None:
    loaded = load_texts(
        f"models: [{{id: m, name: M, provider: vllm, {model} "
        f"route: [{{base_url: 'http://localhost:1'{route}}}]}}]",
        routing=routing,
    )
    assert not loaded.problems
    assert loaded.config.models["m"].routes[0].recovery_probes is tried


def test_session_ids_are_headers_in_any_case_and_body_fields_as_they_are_spelt(load_texts) -> None:
    loaded = load_texts(
        MODELS,
        routing="affinity: {session_ids: [Session-ID, session, metadata.user_id, user, x-9]}",
    )
    assert not loaded.problems
    assert loaded.config.settings.affinity.session_ids == (
        "session-id",
        "session",
        "metadata.user_id",
        "user",
        "x-9",
    )


def test_session_ids_may_be_none_at_all(load_texts) -> None:
    loaded = load_texts(MODELS, routing="affinity: {session_ids: []}")
    assert loaded.config.settings.affinity.session_ids == ()


@pytest.mark.parametrize(
    ("routing", "warned"),
    [
        ("", True),
        ("affinity: {enabled: false}", True),
        ("prefill: {enabled: false}", True),
        ("affinity: {enabled: false}\nprefill: {enabled: false}", False),
    ],
    ids=["both", "prefill alone", "affinity alone", "neither"],
)
def test_a_missing_secret_matters_while_callers_are_remembered(
    load_texts, routing: str, warned: bool
) -> None:
    loaded = load_texts(MODELS, routing=routing, env={"CONCORD_SECRET": ""})
    assert [problem.path for problem in loaded.warnings] == ["CONCORD_SECRET"] * warned
    assert all("salt that is kept there" in problem.message for problem in loaded.warnings)


def test_older_spellings_still_work_and_say_so(load_texts) -> None:
    # When
    loaded = load_texts(
        MODELS, routing="routing_strategy: fixed\nrouting_parameter: {local_fraction: 0.75}"
    )

    # Then
    assert loaded.config.settings.local_fraction == 0.75
    assert {problem.path for problem in loaded.warnings} == {
        "routing_parameter",
        "routing_strategy",
    }


def test_the_environment_overrides_the_file(load_texts) -> None:
    # When
    loaded = load_texts(
        MODELS,
        routing="circuit: {failure_threshold: 9, cooldown_seconds: 9}\n"
        "timeouts: {idle: 9, total: 9}",
        env={
            "CIRCUIT_FAILURE_THRESHOLD": "5",
            "CIRCUIT_MIN_AVAILABILITY": "0.5",
            "ROUTER_HEALTH_EWMA_ALPHA": "0.2",
            "ROUTING_AFFINITY_ENABLED": "0",
            "ROUTING_AFFINITY_MAX_AGE_SEC": "60",
            "ROUTING_PREFILL_AWARE_ENABLED": "off",
            "ROUTING_PREFILL_ELEPHANT_TOKENS": "0",
            "ROUTING_PREFILL_AFFINITY_CEILING": "7",
            "ROUTING_PRIORITY_INTERACTIVE": "9",
            "ROUTING_PRIORITY_ELEPHANT": "-9",
            "UPSTREAM_COMPLETION_TIMEOUT_S": "33",
            "STREAM_IDLE_TIMEOUT_SECONDS": "-1",
            "STREAM_FIRST_BYTE_TIMEOUT_SECONDS": "12.5",
            "USER_AUTH_ENABLED": "false",
        },
    )

    # Then
    settings = loaded.config.settings
    assert settings.circuit.failure_threshold == 5
    assert settings.circuit.cooldown_seconds == 9
    assert settings.circuit.min_availability == 0.5
    assert settings.circuit.ewma_alpha == 0.2
    assert (settings.affinity.enabled, settings.affinity.max_age_seconds) == (False, 60)
    assert (settings.prefill.enabled, settings.prefill.elephant_tokens) == (False, 1)
    assert settings.prefill.affinity_ceiling == 7
    assert settings.prefill.priorities == Priorities(interactive=9, large=15, elephant=-9)
    assert settings.timeouts == Timeouts(first_byte=12.5, idle=None, total=33)
    assert settings.auth == "none"
    assert loaded.config.models["m"].routes[0].timeouts == settings.timeouts


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CIRCUIT_FAILURE_THRESHOLD", "0"),
        ("CIRCUIT_FAILURE_THRESHOLD", "three"),
        ("CIRCUIT_COOLDOWN_SECONDS", "nan"),
        ("CIRCUIT_MIN_AVAILABILITY", "1.5"),
        ("ROUTING_AFFINITY_ENABLED", "perhaps"),
        ("ROUTING_AFFINITY_MAX_AGE_SEC", "-1"),
        ("ROUTING_AFFINITY_MAX_AGE_SEC", "soon"),
        ("ROUTING_PREFILL_AWARE_ENABLED", "2"),
        ("ROUTING_PREFILL_INTERVENE_TOKENS", "-1"),
        ("ROUTING_PREFILL_ELEPHANT_TOKENS", "many"),
        ("ROUTING_PREFILL_ELEPHANT_LIMIT", "-1"),
        ("ROUTING_PREFILL_AFFINITY_CEILING", "-1"),
        ("ROUTING_PREFILL_HINT_TTL_SEC", "-1"),
        ("ROUTING_PRIORITY_INTERACTIVE", "high"),
        ("STREAM_IDLE_TIMEOUT_SECONDS", "inf"),
        ("STREAM_IDLE_TIMEOUT_SECONDS", "31536001"),
        ("STREAM_FIRST_BYTE_TIMEOUT_SECONDS", "1e300"),
        ("UPSTREAM_COMPLETION_TIMEOUT_S", "1e9"),
        ("CIRCUIT_COOLDOWN_SECONDS", "86401"),
        ("ROUTING_AFFINITY_MAX_AGE_SEC", "31536001"),
        ("ROUTING_PREFILL_HINT_TTL_SEC", "31536001"),
        ("STREAM_REQUEST_TIMEOUT_SECONDS", "31536001"),
        ("UPSTREAM_CONCURRENCY_MAX_LIMIT", "x"),
        ("ROUTING_PRIORITY_LARGE", "1.5"),
        ("REQUEST_TIMEOUT_SECONDS", "-5"),
        ("WEB_CONCURRENCY", "0"),
        ("ENABLE_ROUTEWISE", "maybe"),
    ],
)
def test_a_value_that_does_not_parse_is_a_warning_and_changes_nothing(
    load_texts, name: str, value: str
) -> None:
    loaded = load_texts(MODELS, env={name: value})
    assert [(problem.file, problem.path) for problem in loaded.problems] == [("environment", name)]
    assert loaded.config.settings == Settings()


def test_the_longest_durations_are_accepted(load_texts) -> None:
    loaded = load_texts(
        MODELS,
        routing="timeouts: {total: 31536000}\nserver: {abort_grace_ms: 31536000000}",
        env={"CIRCUIT_COOLDOWN_SECONDS": "86400"},
    )
    assert not loaded.problems
    assert loaded.config.settings.circuit.cooldown_seconds == 86_400
    assert loaded.config.settings.timeouts.total == 31_536_000


def test_an_unreadable_auth_switch_keeps_the_door_closed(load_texts) -> None:
    loaded = load_texts(MODELS, routing="auth: none", env={"USER_AUTH_ENABLED": "nope!"})
    assert loaded.config.settings.auth == "keys"


@pytest.mark.parametrize(
    ("routing", "router"), [("", "routewise"), ("default_router: expected_ttft", "expected_ttft")]
)
def test_routewise_by_environment_is_the_default_where_no_other_is(
    load_texts, routing: str, router: str
) -> None:
    loaded = load_texts(MODELS, routing=routing, env={"ENABLE_ROUTEWISE": "true"})

    assert {model.router for model in loaded.config.models.values()} == {router}


def test_the_environment_may_move_the_files(tmp_path: Path) -> None:
    # Given
    (tmp_path / "elsewhere.yaml").write_text(MODELS, encoding="utf-8")
    (tmp_path / "legacy.yaml").write_text("timeout: 7", encoding="utf-8")

    # When
    loaded = load(
        tmp_path,
        {
            "MODELS_CONFIG_PATH": str(tmp_path / "elsewhere.yaml"),
            "ROUTING_CONFIG": str(tmp_path / "legacy.yaml"),
        },
    )
    lost = load(tmp_path, {"MODELS_CONFIG_PATH": str(tmp_path / "nowhere.yaml")})

    # Then
    assert list(loaded.config.models) == ["m"]
    assert loaded.config.settings.timeout == 7
    assert [problem.path for problem in lost.errors] == ["MODELS_CONFIG_PATH"]
