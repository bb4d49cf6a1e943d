"""The examples in the READMEs do what they say, against a `concord up`."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.test_up import END_S, Up, up
from tests.redis_servers import missing

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.usefixtures("redis_binary")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("demo")) as running:
        running.wait_until_ready()
        yield running
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(END_S) == 0


def blocks(name: str) -> list[tuple[str, str]]:
    """Language and text of the fenced blocks of a page."""
    return re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / name).read_text("utf-8"), re.S | re.M)


def lines(name: str, command: str) -> list[str]:
    """The lines of a page's blocks that begin with a command, without their comments."""
    found = [line for _, text in blocks(name) for line in text.splitlines()]
    return [line.partition("  #")[0].strip() for line in found if line.startswith(command + " ")]


def at(demo: Up, text: str) -> str:
    """An example moved from the usual ports to the running cluster's."""
    for offset in (100, 101, 1, 2, 0):
        text = text.replace(f"127.0.0.1:{4000 + offset}", f"127.0.0.1:{demo.port + offset}")
    return text


def run(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_the_sdk_example_prints_an_answer(demo: Up) -> None:
    [example] = [text for language, text in blocks("README.md") if language == "python"]
    assert run(sys.executable, "-c", at(demo, example)).startswith("tok0 ")


def test_the_engine_fails_as_told_and_the_other_one_answers(demo: Up) -> None:
    [line] = lines("README.md", "curl")
    run(*shlex.split(at(demo, line)))
    fault = httpx.get(at(demo, "http://127.0.0.1:4100/control")).json()["fault"]
    assert fault == {"status": 503, "count": 3}
    for _ in range(8):
        assert run(*shlex.split(demo.lines["curl"].replace("curl -s", "curl -sf")))


@pytest.mark.parametrize("page", ["deploy/README.md", "lua/README.md"])
def test_the_lines_for_redis_cli_are_understood(page: str, demo: Up) -> None:
    cli = shutil.which("redis-cli")
    if cli is None:
        missing("needs redis-cli")
    assert cli is not None
    found = lines(page, "redis-cli")
    assert len(found) >= 4
    for line in found:
        line = line.replace("MODEL", "demo").replace("LOCATION", f"local-{demo.port + 100}")
        answer = run(*shlex.split(demo.lines["redis"]), *shlex.split(line)[1:])
        assert "ERR" not in answer, line
    assert "host=" in run(*shlex.split(demo.lines["redis"]), "HGETALL", "gw:{cluster}:replicas")


@pytest.mark.parametrize("folder", ["config", "config/examples/hybrid"])
def test_the_configurations_that_ship_are_fine(folder: str) -> None:
    run(sys.executable, "-m", "gateway", "check", folder, "--allow-missing-env")
