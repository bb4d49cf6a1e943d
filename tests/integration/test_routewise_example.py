"""`config/examples/routewise`, unedited: two engines, measured, and mixed as it says."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.test_up import up

pytestmark = pytest.mark.usefixtures("redis_binary")

EXAMPLE = Path(__file__).resolve().parents[2] / "config" / "examples" / "routewise"
ENGINES = (4100, 4101)
SLICE_S = 60


def explained(running: Any, admin_key: str) -> dict[str, dict[str, Any]]:
    """Candidates by location, as a replica tells of them."""
    answer = httpx.get(
        f"{running.url(1)}/admin/routing/explain",
        params={"model": "chat", "prompt_tokens": 1000},
        headers={"authorization": f"Bearer {admin_key}"},
    )
    candidates = answer.raise_for_status().json()["candidates"]
    return {one["endpoint"].partition(":")[2]: one for one in candidates}


@pytest.mark.timeout(240)
def test_the_example_starts_its_engines_measures_them_and_mixes(tmp_path: Path) -> None:
    try:
        for port in ENGINES:
            socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        pytest.skip(f"port {port}, which the example names, is taken")
    with up(tmp_path, "--config", str(EXAMPLE)) as running:
        running.wait_until_ready()
        key = running.lines["admin_key"]
        assert running.lines["watch"] == "watch -n 1 concord explain chat --prompt-tokens 1000"

        # Samples show how fast both are, without a request of anybody's.
        deadline = time.monotonic() + SLICE_S
        while {one["latency_source"] for one in explained(running, key).values()} != {"profile"}:
            assert time.monotonic() < deadline, running.log
            time.sleep(0.2)
        found = explained(running, key)
        assert {at: one["share"] for at, one in found.items()} == {"fast": 0.5, "cheap": 0.5}
        assert found["fast"]["score"] < found["cheap"]["score"]
        assert found["fast"]["cost_usd"] > found["cheap"]["cost_usd"]

        body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}
        with httpx.Client(timeout=30) as http:
            answers = [
                http.post(f"{running.lines['base_url']}/chat/completions", json=body)
                for _ in range(24)
            ]
        engines = Counter(one.raise_for_status().json()["system_fingerprint"] for one in answers)
        assert engines.keys() == {"fast", "cheap"}

        told = subprocess.run(
            [sys.executable, "-m", "gateway", "explain", "chat", "--prompt-tokens", "1000"],
            env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert "mixed: $" in told.stdout
        assert "50.0%" in told.stdout
        running.process.terminate()
        assert running.process.wait(30) == 0
