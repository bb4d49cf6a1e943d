"""Real servers accept the files in `deploy/`, and real processes the commands of compose."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import redis

from tests.cluster.harness import Cluster, body, free_port, wait_until
from tests.conftest import OwnServer
from tests.redis_servers import missing
from tests.unit.project.deployment import DEPLOY, compose, healthcheck, required

SERVICES = compose()["services"]
PASSWORD = required()["REDIS_PASSWORD"]


def installed(name: str) -> str:
    """A server program that this machine has."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if found is None:
        missing(f"needs {name}")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "check"),
    [("nginx", ["-t", "-p", ".", "-e", "stderr", "-c"]), ("haproxy", ["-c", "-f"])],
)
def test_load_balancers_accept_their_files_as_they_are(
    name: str, check: list[str], tmp_path: Path
) -> None:
    [file] = DEPLOY.glob(f"{name}.*")
    done = subprocess.run(
        [installed(name), *check, file], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "warn" not in (done.stdout + done.stderr).lower()


# Redis


def own_redis_conf(folder: Path) -> Path:
    """redis.conf with only the place changed: a socket instead of a port, a folder of ours."""
    text = (DEPLOY / "redis.conf").read_text("utf-8")
    for pattern, line in [
        (r"^port .*", f"port 0\nunixsocket {folder}/socket"),
        (r"^bind .*", ""),
        (r"^dir .*", f"dir {folder}"),
    ]:
        text, count = re.subn(pattern, line, text, flags=re.M)
        assert count == 1, pattern
    file = folder / "redis.conf"
    file.write_text(text, "utf-8")
    return file


@contextmanager
def running(command: list[str], folder: Path, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server process of ours; killed at the end."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            command, env={**os.environ, **environ}, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def answers(client: redis.Redis) -> bool:
    """Whether a server has come up."""
    try:
        return bool(client.ping())
    except (redis.ConnectionError, redis.BusyLoadingError):
        return False


@pytest.mark.parametrize("binary", ["redis_binary", "old_redis_binary"])
def test_redis_evicts_nothing_and_finds_everything_after_a_kill(
    binary: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    command = [str(request.getfixturevalue(binary)), str(own_redis_conf(tmp_path))]
    with redis.Redis(unix_socket_path=f"{tmp_path}/socket", decode_responses=True) as client:
        with running(command, tmp_path):
            wait_until(lambda: answers(client), "redis up")
            in_force = client.config_get("*")
            assert in_force["maxmemory-policy"] == "noeviction"
            assert in_force["appendonly"] == "yes"
            assert int(in_force["maxmemory"]) > 0
            assert in_force["save"] == ""
            client.hset("gw:{m:m}:overrides", "weight:a", "0")
        with running(command, tmp_path):
            wait_until(lambda: answers(client), "redis up again")
            assert client.hgetall("gw:{m:m}:overrides") == {"weight:a": "0"}


def test_redis_answers_nobody_beyond_this_host_without_a_password() -> None:
    text = (DEPLOY / "redis.conf").read_text("utf-8")
    assert re.search(r"^protected-mode yes$", text, re.M)


def test_redis_runs_by_compose_s_command_with_its_password_out_of_sight(tmp_path: Path) -> None:
    service = SERVICES["redis"]
    installed("redis-server")
    cli = installed("redis-cli")
    # Given compose's own command line, with the file in a place of ours
    file = own_redis_conf(tmp_path)
    command = [word.replace("/etc/redis/redis.conf", str(file)) for word in service["command"]]
    environ = dict(service["environment"])
    check = healthcheck(service)
    assert check
    asked = [cli, "-s", f"{tmp_path}/socket", *check[1:]]

    def is_healthy(env: dict[str, str]) -> bool:
        known = {k: v for k, v in os.environ.items() if k != "REDISCLI_AUTH"}
        return not subprocess.run(
            asked, env={**known, **env}, capture_output=True, check=False
        ).returncode

    # Then it is up as its health check sees it, and only for those who know the password
    assert not is_healthy(environ)
    with running(command, tmp_path, **environ) as process:
        wait_until(lambda: is_healthy(environ), "redis healthy")
        assert not is_healthy({})
        with redis.Redis(unix_socket_path=f"{tmp_path}/socket", password=PASSWORD) as client:
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        # And ps does not show it; the shell has given its place, and the signals, to the server
        shown = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert b"redis-server" in shown
        assert PASSWORD.encode() not in shown


async def test_replicas_need_no_more_than_the_rights_that_the_runbook_gives_them(
    tmp_path: Path, own_server: OwnServer
) -> None:
    # Given a Redis with the runbook's user and no other
    readme = (DEPLOY / "README.md").read_text("utf-8")
    [line] = re.findall(r"^user concord on >PASSWORD .*$", readme, re.M)
    rights = line.replace("PASSWORD", "secret")
    whole = own_server(rights)
    url = whole.url.replace("unix://", "unix://concord:secret@")
    with Cluster(tmp_path, url, replicas=1) as cluster:
        [replica] = cluster.replicas
        wait_until(replica.is_ready, "ready")
        # When it serves, fails over and sees its claims through
        cluster.engines[0].fault(status=503)
        async with httpx.AsyncClient(base_url=replica.url, timeout=30) as http:
            for stream in (False, True) * 4:
                answer = await http.post(
                    "/v1/chat/completions", json=body(stream=stream, max_tokens=1)
                )
                assert answer.status_code == 200
        assert replica.stop() == 0
        # Then nothing was denied
        denials = ("script_bug", "state_unavailable", "unexpected_error", "state_regressed")
        for event in (*denials, "grants_unheard"):
            assert not replica.events(event)
        with redis.Redis.from_url(whole.url, decode_responses=True) as client:
            row = client.hgetall("gw:{m:m}:endpoints")
            assert row[f"{cluster.engines[0].location}:last_status"] == "503"
            assert not client.exists("gw:{m:m}:claims")
            assert all("denied" not in str(entry) for entry in client.acl_log())


# Health checks


def test_health_checks_tell_the_ready_from_those_that_are_not(
    tmp_path: Path, own_server: OwnServer
) -> None:
    free = free_port()
    with Cluster(tmp_path, own_server().url, replicas=1, drain_delay_s=30) as cluster:
        [replica] = cluster.replicas
        for name, port, usual in [
            ("replica-1", replica.port, 4000),
            ("engine-a", cluster.engines[0].port, 8000),
        ]:
            assert is_well(name, usual, port)
            assert not is_well(name, usual, free)
        replica.signal(2)
        wait_until(lambda: replica.readiness()[1] == "draining", "draining")
        assert not is_well("replica-1", 4000, replica.port)


def is_well(service: str, usual: int, port: int) -> bool:
    """Run a service's health check against a port here."""
    command = healthcheck(SERVICES[service])
    assert command
    assert f", {usual}," in command[2]
    moved = [*command[:2], command[2].replace(f", {usual},", f", {port},")]
    return not subprocess.run(moved, capture_output=True, check=False, timeout=20).returncode
