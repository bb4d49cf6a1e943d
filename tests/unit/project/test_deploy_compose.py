"""docker-compose.yml names only what exists: commands, files, variables, addresses, checks."""

from __future__ import annotations

import ipaddress
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from gateway.config.load import load
from gateway.config.result import Config
from gateway.engine.app import engine_app
from gateway.engine.settings import EngineSettings
from tests.unit.project.deployment import (
    COMPOSE,
    DEPLOY,
    ROOT,
    compose,
    dockerfile,
    healthcheck,
    is_understood,
    listed_in,
    options,
    required,
    variables,
)

SERVICES: dict[str, dict[str, Any]] = compose()["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}
REPLICAS = {name: one for name, one in OURS.items() if one["command"][0] == "serve"}
ENGINES = {name: one for name, one in OURS.items() if one["command"][0] == "engine"}
COORDINATORS = {name: one for name, one in OURS.items() if one["command"][0] == "coordinator"}
CONFIGURED = REPLICAS | COORDINATORS
CONFIG_FILES = ("models.yaml", "routing.yaml", "keys.yaml")


def mounts(service: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Where in the container -> what of ours, how."""
    parts = [volume.split(":") for volume in service.get("volumes", ())]
    return {to: (source, "".join(mode)) for source, to, *mode in parts}


def config_folder(service: dict[str, Any]) -> Path:
    """The folder here that a replica there reads."""
    source, _ = mounts(service)[options(service["command"])["--config"]]
    return ROOT / source


def loaded(service: dict[str, Any]) -> Config:
    """A replica's configuration, which has no problem."""
    environment = service["environment"]
    result = load(config_folder(service), environment, redis_url=environment["REDIS_URL"])
    assert not result.problems
    assert result.config is not None
    return result.config


def address(name: str) -> str:
    """A service's fixed address."""
    return str(SERVICES[name]["networks"]["default"]["ipv4_address"])


def test_it_runs_three_replicas_two_coordinators_two_engines_and_what_they_need() -> None:
    assert (len(REPLICAS), len(COORDINATORS), len(ENGINES)) == (3, 2, 2)
    assert SERVICES.keys() - OURS.keys() == {"nginx", "redis", "otel-collector"}


# Commands


@pytest.mark.parametrize("name", OURS)
def test_commands_are_understood(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = OURS[name]["command"]
    assert all(isinstance(word, str) for word in command), "YAML has read a word as a number"
    assert is_understood(command, monkeypatch, capsys)


def test_the_image_s_own_command_is_understood(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [command] = [json.loads(rest) for word, rest in dockerfile() if word == "CMD"]
    assert is_understood(command, monkeypatch, capsys)


def test_a_command_line_that_is_wrong_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for wrong in (
        ["serv"],
        ["serve"],
        ["serve", "--confg", "/etc/concord"],
        ["coordinator", "--port", "4090"],
        ["engine", "--port=x"],
    ):
        assert not is_understood(wrong, monkeypatch, capsys)


def test_coordinators_read_what_replicas_read() -> None:
    replica = next(iter(REPLICAS.values()))
    for one in COORDINATORS.values():
        assert one["environment"] == replica["environment"]
        assert config_folder(one) == config_folder(replica)
        assert loaded(one).digest == loaded(replica).digest


@pytest.mark.parametrize("name", REPLICAS)
def test_replicas_have_a_configuration_without_problems_that_may_leave_loopback(name: str) -> None:
    config = loaded(REPLICAS[name])
    assert options(REPLICAS[name]["command"])["--host"] == "0.0.0.0"
    assert config.settings.auth == "keys"
    assert config.keys


@pytest.mark.parametrize("name", REPLICAS)
def test_replicas_are_given_time_to_drain(name: str) -> None:
    server = loaded(REPLICAS[name]).settings.server
    for service in (REPLICAS[name], SERVICES["nginx"]):  # streams end through nginx
        grace_s = float(service["stop_grace_period"].removesuffix("s"))
        assert grace_s > server.drain_delay_s + server.drain_timeout_s


def test_all_replicas_are_alike() -> None:
    own = {"hostname", "networks"}
    alike = [{k: v for k, v in one.items() if k not in own} for one in REPLICAS.values()]
    assert all(one == alike[0] for one in alike)


# Files


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_mounted_exists_and_cannot_be_written(name: str) -> None:
    volumes = compose()["volumes"]
    for source, mode in mounts(SERVICES[name]).values():
        if source.startswith("./"):
            assert (ROOT / source).exists(), source
            assert mode == "ro"
        else:
            assert source in volumes


@pytest.mark.parametrize("name", ["nginx", "redis", "otel-collector"])
def test_servers_are_started_with_the_file_that_is_mounted(name: str) -> None:
    service = SERVICES[name]
    started = " ".join([*service.get("entrypoint", ()), *service.get("command", ())])
    [at] = [to for to, (source, _) in mounts(service).items() if source.startswith("./")]
    assert at in started


def test_images_are_built_from_a_dockerfile_or_pinned() -> None:
    for service in SERVICES.values():
        if "build" in service:
            build = service["build"]
            assert (ROOT / build["context"] / build["dockerfile"]).is_file()
        else:
            assert re.fullmatch(r"[a-z/-]+:\d+\.\d+[\w.-]*", service["image"])


# Variables


def test_every_variable_has_a_default_or_is_required_and_documented() -> None:
    readme = (DEPLOY / "README.md").read_text("utf-8")
    for one in variables():
        assert one.operator in (":-", ":?"), one
        assert one.rest, one
        assert f"`{one.name}`" in readme or f" {one.name}" in readme, one
    assert "CONCORD_TAG" not in required()


def test_no_secret_is_written_down() -> None:
    found = re.findall(r"^ *(\w*(?:KEY|SECRET|PASSWORD|AUTH)): *(.*)$", COMPOSE, re.M)
    assert len(found) >= len(required())
    for name in CONFIG_FILES:
        text = (DEPLOY / "compose" / name).read_text("utf-8")
        found += re.findall(r"(key|api_key): *(.*)$", text, re.M)
    assert {name for name, _ in found} >= {"REDIS_PASSWORD", "CONCORD_ADMIN_KEY", "key"}
    assert all(re.match(r"\$\{[A-Z_]+(:\?|\}$)", value) for _, value in found), found


@pytest.mark.parametrize("name", REPLICAS)
def test_replicas_are_given_variables_that_something_reads(name: str) -> None:
    code = "".join(path.read_text("utf-8") for path in (ROOT / "gateway").rglob("*.py"))
    files = "".join((DEPLOY / "compose" / name).read_text("utf-8") for name in CONFIG_FILES)
    environment = REPLICAS[name]["environment"]
    for variable in environment:
        is_standard = variable.startswith("OTEL_")
        assert is_standard or f'"{variable}"' in code or f"${{{variable}}}" in files, variable
    asked = set(re.findall(r"\$\{(\w+)\}", files))
    assert asked <= environment.keys()


# Addresses


def port_of(name: str) -> int:
    """Where a service of this file listens."""
    if name in OURS:
        return int(options(OURS[name]["command"])["--port"])
    files = {
        "nginx": ("nginx.conf", r"^ *listen (\d+);"),
        "redis": ("redis.conf", r"^port (\d+)$"),
        "otel-collector": ("otel-collector.yaml", r"^ *endpoint: 0\.0\.0\.0:(\d+)$"),
    }
    [port] = listed_in(*files[name])
    return int(port)


def test_every_url_leads_to_a_service() -> None:
    replica = next(iter(REPLICAS.values()))
    urls = [replica["environment"][name] for name in ("REDIS_URL", "OTEL_EXPORTER_OTLP_ENDPOINT")]
    models = yaml.safe_load((config_folder(replica) / "models.yaml").read_text("utf-8"))["models"]
    urls += [route["base_url"] for model in models for route in model["route"]]
    reached = {(urlsplit(url).hostname, urlsplit(url).port) for url in urls}
    expected = {"redis", "otel-collector", *ENGINES}
    assert reached == {(name, port_of(name)) for name in expected}


@pytest.mark.parametrize(
    ("file", "pattern"),
    [("nginx.conf", r"^ *server ([\d.]+:\d+);"), ("haproxy.cfg", r"^ *server \S+ (\S+)$")],
)
def test_load_balancers_know_every_replica(file: str, pattern: str) -> None:
    assert listed_in(file, pattern) == [f"{address(name)}:{port_of(name)}" for name in REPLICAS]


def test_replicas_trust_nginx_alone() -> None:
    for service in REPLICAS.values():
        assert loaded(service).settings.server.trusted_proxies == (address("nginx"),)


def test_fixed_addresses_are_of_the_network_and_never_given_to_others() -> None:
    [pool] = compose()["networks"]["default"]["ipam"]["config"]
    subnet, given_out = (ipaddress.ip_network(pool[key]) for key in ("subnet", "ip_range"))
    assert given_out.subnet_of(subnet)
    fixed = [ipaddress.ip_address(address(name)) for name in ("nginx", *REPLICAS)]
    assert len(set(fixed)) == 4
    assert all(one in subnet and one not in given_out for one in fixed)


def test_only_nginx_is_published_and_only_to_this_host() -> None:
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["nginx"]
    port = port_of("nginx")
    assert SERVICES["nginx"]["ports"] == [f"127.0.0.1:{port}:{port}"]


# Health


def test_whatever_is_waited_for_has_a_health_check() -> None:
    waited = set()
    for service in SERVICES.values():
        after = service.get("depends_on", {})
        assert set(after) <= SERVICES.keys()
        if isinstance(after, dict):
            waited |= {n for n, how in after.items() if how["condition"] == "service_healthy"}
    assert waited == {"redis", *ENGINES}
    assert all(healthcheck(SERVICES[name]) for name in waited)


def test_all_but_the_collector_tell_their_health() -> None:
    assert [name for name, one in SERVICES.items() if not healthcheck(one)] == ["otel-collector"]


@pytest.mark.parametrize("name", OURS)
def test_health_is_asked_where_the_command_listens(name: str) -> None:
    command = healthcheck(OURS[name])
    assert command
    found = re.search(r"'127\.0\.0\.1', (\d+),.*'GET', '(/\w+)'", command[2])
    assert found
    assert int(found[1]) == port_of(name)
    engine = {getattr(route, "path", None) for route in engine_app(EngineSettings()).routes}
    assert found[2] in ({"/readyz"} if name in CONFIGURED else engine)


def test_nginx_is_well_when_a_replica_answers_through_it() -> None:
    command = healthcheck(SERVICES["nginx"])
    assert command
    assert command[-1] == f"http://127.0.0.1:{port_of('nginx')}/readyz"


# Rights


@pytest.mark.parametrize("name", SERVICES)
def test_services_have_no_rights_that_they_do_not_need(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    users = [rest for word, rest in dockerfile() if word == "USER"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", service.get("user") or users[-1])
