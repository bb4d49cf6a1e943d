"""The operator's commands, each over HTTP and on Redis itself: the same answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.commands.running import Running, publish, running_file
from tests.cluster.harness import ADMIN_KEY, ROOT, SECRET, body, wait_until
from tests.integration.conftest import Gateway, Make

PATH = "/v1/chat/completions"

Concord = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def loyal_gateway(make_gateway: Make) -> Gateway:
    """Keeps callers where they were."""
    return make_gateway({"affinity": {"enabled": True}})


@pytest.fixture
def gateway(loyal_gateway: Gateway) -> Iterator[Gateway]:
    loyal_gateway.reset()
    yield loyal_gateway
    wait_until(loyal_gateway.is_idle, "nothing claimed or in flight", 5)


@pytest.fixture(params=["over http", "on redis"])
def concord(request: pytest.FixtureRequest, gateway: Gateway, tmp_path: Path) -> Concord:
    """Run a command against the gateway, in either way."""
    cluster = gateway.cluster
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "CONCORD_SECRET": SECRET}
    options: list[str] = []
    if request.param == "on redis":
        options = ["--config", str(cluster.config)]
        environ["REDIS_URL"] = cluster.redis_url
    else:
        running = Running(
            base_url=f"{cluster.url}/v1",
            replicas=(cluster.url,),
            redis="unix:///nowhere",
            admin_key=ADMIN_KEY,
            config="/nowhere",
        )
        publish(running_file(environ), running)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "gateway", *words, *options],
            env=environ,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    return run


def answer(concord: Concord, *words: str) -> dict[str, Any]:
    done = concord(*words, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def test_explain_tells_where_a_request_goes(
    concord: Concord, http: httpx.AsyncClient, gateway: Gateway
) -> None:
    words = ["explain", "chat", "--caller", "ip:127.0.0.1", "--request-id", "the-id"]
    told = answer(concord, *words)
    assert (told["model"], told["request_id"]) == ("vendor/team/chat", "the-id")
    served = await http.post(
        PATH, json=body(model="chat"), headers={"x-request-id": "the-id", "x-session-id": ""}
    )
    assert served.headers["x-concord-endpoint"] == told["drawn"]
    # And afterwards, that its caller stays there
    assert answer(concord, *words)["pin"] == "kept"
    assert answer(concord, *words, "--session", "other")["pin"] == "made"
    shown = concord(*words)
    assert f"goes to {told['drawn']}" in shown.stdout
    assert shown.stderr == ""


async def test_status_and_reset_tell_of_an_open_circuit(
    concord: Concord, http: httpx.AsyncClient, gateway: Gateway
) -> None:
    # Given an endpoint whose circuit is open
    at = gateway.first.location
    gateway.fault(status=503)
    for _ in range(3):
        await http.post(PATH, json=body(model="alone"))
    # Then both commands say so
    assert answer(concord, "status")["endpoints"][f"alone:{at}"]["circuit"] == "open"
    assert "open" in concord("status").stdout
    found = answer(concord, "explain", "alone")
    assert (found["drawn"], found["candidates"][0]["reason"]) == (None, "circuit_open")
    # When it is reset
    reset = concord("circuit", "reset", "alone", at)
    # Then it is closed
    assert (reset.returncode, reset.stdout) == (0, f"alone:{at}: closed, was open\n")
    assert answer(concord, "status")["endpoints"][f"alone:{at}"]["circuit"] == "closed"


def test_limits_and_pauses_are_told_with_what_is_left_of_them(
    concord: Concord, gateway: Gateway
) -> None:
    # Given an endpoint that has a limit, and pauses
    at = f"pro-only:{gateway.first.location}"
    now_ms = gateway.cluster.redis.time()[0] * 1000
    pause = f"until_ms={now_ms + 99_000} length_ms=99000 reason=retry_after"
    key = "gw:{m:pro-only}:endpoints"
    gateway.cluster.redis.hset(key, f"{gateway.first.location}:cooldown", pause)
    # When both commands are asked
    asked = ["explain", "pro-only", "--prompt-tokens", "60", "--max-tokens", "40"]
    told = answer(concord, *asked)
    # Then they tell it alike
    assert (told["prompt_tokens"], told["output_tokens"], told["drawn"]) == (60, 40, None)
    for found in (told["candidates"][0], answer(concord, "status")["endpoints"][at]):
        assert found["cooldown"]["reason"] == "retry_after"
        assert 0 < found["cooldown"]["left_s"] <= 99
        (tpm,) = found["limits"]
        assert (tpm["limit"], tpm["most"], tpm["left"]) == ("tpm", 100_000, 100_000)
    for shown in (concord(*asked).stdout, concord("status").stdout):
        assert " s more (retry_after)" in " ".join(shown.split())
        assert [line.split() for line in shown.splitlines() if " tpm " in line] == [
            [at, "tpm", "100000", "0", "100000"]
        ]
        table = shown.partition("warning: ")[0]  # of a script that was slow once, which is long
        assert max(map(len, table.splitlines())) <= 100


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["explain", "pairs"], "There is no model 'pairs'. Near: pair"),
        (["explain", "pair", "--request-id", "a b"], "No request has such an id"),
        (
            ["explain", "pair", "--max-tokens", "few"],
            "The parameters are not as they must be: Expected `int | null`",
        ),
        (["circuit", "reset", "chat", "x"], "'chat' is an alias: say 'vendor/team/chat'."),
        (["circuit", "reset", "pair", "x"], "Model 'pair' has no endpoint 'x'. Its endpoints:"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_misspelt_names_are_told_in_one_line(concord: Concord, words: list[str], told: str) -> None:
    done = concord(*words)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"concord {words[0]}: {told}")
    assert done.stdout == ""


@pytest.fixture
def nonsense(gateway: Gateway) -> Iterator[None]:
    """Something else in place of the overrides of a model."""
    key = "gw:{m:alone}:overrides"
    gateway.cluster.redis.rpush(key, "nonsense")
    yield
    gateway.cluster.redis.delete(key)


@pytest.mark.usefixtures("nonsense")
def test_a_store_that_cannot_be_read_is_told_in_one_line(concord: Concord) -> None:
    done = concord("status")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("concord status: ")
    assert done.stdout == ""
