"""routing.yaml to settings: the rules that reach across fields, and the older spellings."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from typing import TypeVar

import msgspec
from msgspec import Struct

from gateway.config.addresses import judge_base_url
from gateway.config.overrides import apply_environment, wants_routewise
from gateway.config.problems import Problems, did_you_mean
from gateway.config.schema import (
    SESSION_FIELDS,
    Deployment,
    RoutingFile,
    Settings,
    State,
)
from gateway.config.upstream_schema import UpstreamConcurrency
from gateway.core.route import Timeouts

DEFAULT_STRATEGY = "fixed"
S = TypeVar("S", bound=Struct)


def settle_settings(
    file: RoutingFile,
    env: Mapping[str, str],
    strategies: Collection[str],
    problems: Problems,
    env_problems: Problems,
) -> Settings:
    """Apply the environment, judge what no single field can tell, fill in the defaults."""
    file = apply_environment(file, env, env_problems)
    _judge_timing(file.state, problems)
    _judge_proxies(file.server.trusted_proxies, problems)
    return Settings(
        auth=file.auth,
        circuit=file.circuit,
        affinity=msgspec.structs.replace(
            file.affinity, session_ids=_session_ids(file.affinity.session_ids, problems)
        ),
        prefill=_at_least_one(
            file.prefill,
            "prefill",
            ("elephant_tokens", "elephant_limit"),
            problems,
        ),
        upstream_concurrency=_upstream_concurrency(file.upstream_concurrency, problems),
        timeouts=file.timeouts.over(Timeouts()),
        server=file.server,
        state=file.state,
        limits=file.limits,
        upstream_keys=file.upstream_keys,
        retry_budget=file.retry_budget,
        default_router=_default_router(file, env, strategies, problems, env_problems),
        local_fraction=_local_fraction(file, problems),
        timeout=file.timeout,
        health_check=file.health_check,
        probe_effect=file.probe_effect,
        probe_concurrency=file.probe_concurrency,
        recovery_probes=file.recovery_probes,
        cooldown_time=file.cooldown_time,
        max_cooldown=file.max_cooldown,
        coordinator=file.coordinator,
        logging=file.logging,
        local_deployment=_deployments(file.local_deployment, "local_deployment", problems),
        remote_deployment=_deployments(file.remote_deployment, "remote_deployment", problems),
    )


def unknown_strategy(name: str, strategies: Collection[str]) -> tuple[str, str]:
    """Say that a strategy does not exist here, and which do."""
    return f"unknown strategy {name!r}", f"this version has: {', '.join(sorted(strategies))}"


def _judge_timing(state: State, problems: Problems) -> None:
    if state.heartbeat_s * 2 > state.replica_ttl_s:
        problems.error(
            "state.replica_ttl_s",
            f"must be at least twice heartbeat_s ({state.heartbeat_s:g}), "
            "or one late heartbeat makes a live replica look gone",
            f"at least {state.heartbeat_s * 2:g}",
        )
    if state.lease_s * 1000 < state.socket_timeout_ms * 3:
        problems.error(
            "state.lease_s",
            f"must be at least three times socket_timeout_ms ({state.socket_timeout_ms}), "
            "or claims expire while their renewal waits for Redis",
            f"at least {state.socket_timeout_ms * 3 / 1000:g}",
        )


def _judge_proxies(proxies: tuple[str, ...], problems: Problems) -> None:
    for index, proxy in enumerate(proxies):
        try:
            ipaddress.ip_network(proxy, strict=False)
        except ValueError:
            problems.error(
                f"server.trusted_proxies[{index}]",
                "is neither an address nor a network",
                "such as 10.0.0.0/8 or 192.0.2.7",
            )


def _session_ids(names: tuple[str, ...], problems: Problems) -> tuple[str, ...]:
    """Tell body fields, which are spelt exactly so, from headers, which are any other legal name.

    A dot or an underscore is of a field: proxies let no such header through.
    """
    for index, name in enumerate(names):
        if name not in SESSION_FIELDS and not re.fullmatch(r"[A-Za-z0-9-]+", name):
            problems.error(
                f"affinity.session_ids[{index}]",
                f"{name!r} is neither a header name nor a field of the body that can be used",
                did_you_mean(name, SESSION_FIELDS) or f"fields: {', '.join(SESSION_FIELDS)}",
            )
    return tuple(name if name in SESSION_FIELDS else name.lower() for name in names)


def _upstream_concurrency(given: UpstreamConcurrency, problems: Problems) -> UpstreamConcurrency:
    section = "upstream_concurrency"
    names = ("initial", "max", "success_interval")
    found = _at_least_one(given, section, names, problems)
    if found.initial > found.max:
        problems.warning(
            f"{section}.initial",
            f"is more than max, and {found.max} is what the limit begins with",
            "raise max, or lower this",
        )
    return msgspec.structs.replace(found, initial=min(found.initial, found.max))


def _at_least_one(section: S, path: str, names: tuple[str, ...], problems: Problems) -> S:
    for name in names:
        if getattr(section, name) == 0:
            problems.warning(
                f"{path}.{name}", "0 counts as 1", f"{path}.enabled: false switches this off"
            )
    return msgspec.structs.replace(section, **{n: max(1, getattr(section, n)) for n in names})


def _default_router(
    file: RoutingFile,
    env: Mapping[str, str],
    strategies: Collection[str],
    problems: Problems,
    env_problems: Problems,
) -> str:
    if file.routing_strategy is not None:
        problems.warning("routing_strategy", "is an older spelling", "write default_router")
    path = "routing_strategy" if file.default_router is None else "default_router"
    name = file.default_router or file.routing_strategy or DEFAULT_STRATEGY
    if wants_routewise(env, env_problems) and name == DEFAULT_STRATEGY:
        name, path, problems = "routewise", "ENABLE_ROUTEWISE", env_problems
    if name not in strategies:
        problems.error(path, *unknown_strategy(name, strategies))
    return name


def _local_fraction(file: RoutingFile, problems: Problems) -> float:
    if file.routing_parameter is not None:
        problems.warning("routing_parameter", "is an older spelling", "write local_fraction")
    if file.local_fraction is None:
        return file.routing_parameter.local_fraction if file.routing_parameter else 0.5
    if not 0 <= file.local_fraction <= 1:
        problems.error("local_fraction", "must be between 0 and 1")
    return file.local_fraction


def _deployments(
    deployments: tuple[Deployment, ...], path: str, problems: Problems
) -> tuple[Deployment, ...]:
    for index, deployment in enumerate(deployments):
        if wrong := judge_base_url(deployment.endpoint):
            problems.error(f"{path}[{index}].endpoint", *wrong)
    return tuple(
        Deployment(endpoint=deployment.endpoint.rstrip("/"), models=deployment.models)
        for deployment in deployments
    )
