"""`python -m tests.bench.mixture`: whether requests cost and take what RouteWise's program says.

The example `config/examples/routewise` as it ships, by `concord up` with three replicas: two
simulated engines, one fast and dear, one slow and cheap. For each alpha the same requests go
through all replicas; their cost, from the usage that the engine tells, and the time to their first
token, as the client sees it, are compared with what the profiles say that the mixture comes to.
Then the cheap engine, fast at first, is made slow while requests go on.

Ids are chosen so that the numbers which they draw are spread evenly: else chance alone would make
a twentieth of the cost with an alpha of 0.25 and 2,000 requests.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import httpx
import yaml
from msgspec import Struct

from gateway.admission.draws import draws

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "config" / "examples" / "routewise"
PORT = 14000
REPLICAS = 3
ALPHAS = (0.0, 0.25, 0.5, 1.0)
PROMPT = "word " * 800
MOST_TOKENS = 16
WARM_S = 15.0


class Answer(Struct, frozen=True):
    """How one request fared."""

    engine: str
    cost_usd: float
    ttft_ms: float
    sent_s: float


class Running(Struct, frozen=True):
    """A cluster that is up."""

    folder: Path
    admin_key: str
    prices: dict[str, tuple[float, float]]
    """By engine: of a prompt's token and an answer's."""

    def explain(self) -> dict[str, Any]:
        """What would become of a request like ours."""
        query = {"model": "chat", "prompt_tokens": len(PROMPT) // 4, "max_tokens": MOST_TOKENS}
        answer = httpx.get(
            f"http://127.0.0.1:{PORT + 1}/admin/routing/explain",
            params=query,
            headers={"authorization": f"Bearer {self.admin_key}"},
        )
        return answer.raise_for_status().json()

    def told(self) -> tuple[float, float, dict[str, float], dict[str, float]]:
        """Cost and time of the mixture, and shares and times of endpoints, as it is told now."""
        each = {one["endpoint"].partition(":")[2]: one for one in self.explain()["candidates"]}
        shares = {at: one["share"] for at, one in each.items()}
        cost = sum(one["share"] * one["cost_usd"] for one in each.values())
        times = {at: one["score"] for at, one in each.items()}
        return cost, sum(shares[at] * times[at] for at in each), shares, times


@contextmanager
def cluster(
    alpha: float, *, window_s: float, engines: dict[str, Any], **more: Any
) -> Iterator[Running]:
    """The example, with another alpha and window, `more` parameters and engines of other speeds."""
    with tempfile.TemporaryDirectory(prefix="concord-mixture-") as name:
        folder = Path(shutil.copytree(EXAMPLE, Path(name) / "config"))
        models = yaml.safe_load((folder / "models.yaml").read_text())
        params = models["models"][0]["router_params"]
        params |= {"budget_alpha": alpha, "latency_window_sec": window_s, **more}
        (folder / "models.yaml").write_text(yaml.safe_dump(models))
        # Other work on this machine is not what is measured.
        patient = {"state": {"socket_timeout_ms": 2000}}
        (folder / "routing.yaml").write_text(yaml.safe_dump(patient))
        described = yaml.safe_load((folder / "engines.yaml").read_text())
        for one in described["engines"]:
            one |= engines.get(one["name"], {})
        (folder / "engines.yaml").write_text(yaml.safe_dump(described))
        prices = {
            route["location"]: (
                float(route["pricing"]["prompt"]) / 1e6,
                float(route["pricing"]["completion"]) / 1e6,
            )
            for route in models["models"][0]["route"]
        }
        command = [sys.executable, "-m", "gateway", "up", "--config", str(folder)]
        command += ["--port", str(PORT), "--replicas", str(REPLICAS)]
        env = {**os.environ, "XDG_RUNTIME_DIR": name}
        with (Path(name) / "log").open("w") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=log, text=True
            )
            try:
                yield Running(folder, _admin_key(process, Path(log.name)), prices)
            finally:
                process.terminate()
                process.wait(30)


def _admin_key(process: subprocess.Popen[str], log: Path) -> str:
    assert process.stdout is not None
    key = ""
    for line in process.stdout:
        if found := re.match(r"admin_key: (\S+)", line):
            key = found[1]
        if line == "ready\n":
            return key
    raise SystemExit(f"bench: `concord up` did not come up: {log.read_text()[-2000:]}")


def even_ids(count: int) -> list[str]:
    """Ids whose first numbers are one in each of so many equal parts."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < count:
        id = f"mixture-{number}"
        found.setdefault(int(draws(id, 1, 1)[0] * count), id)
        number += 1
    # In the order of their making, which is none of the draw's.
    return sorted(found.values(), key=lambda id: int(id.rpartition("-")[2]))


class Client:
    """Sends requests through all replicas in turn."""

    def __init__(self, running: Running) -> None:
        self._running = running
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=200)
        self._http = httpx.AsyncClient(timeout=60, limits=limits)
        self._body = {
            "model": "chat",
            "messages": [{"role": "user", "content": PROMPT}],
            "max_tokens": MOST_TOKENS,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def ask(self, id: str, number: int) -> Answer:
        """Send one, and read its answer to the end."""
        url = f"http://127.0.0.1:{PORT + 1 + number % REPLICAS}/v1/chat/completions"
        sent_s, ttft_ms, engine, usage = time.monotonic(), 0.0, "", {}
        request = self._http.stream("POST", url, json=self._body, headers={"x-request-id": id})
        async with request as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                chunk = json.loads(line[6:])
                engine = chunk.get("system_fingerprint") or engine
                usage = chunk.get("usage") or usage
                if not ttft_ms and chunk["choices"] and chunk["choices"][0]["delta"].get("content"):
                    ttft_ms = (time.monotonic() - sent_s) * 1000
        prompt, completion = self._running.prices[engine]
        cost = usage["prompt_tokens"] * prompt + usage["completion_tokens"] * completion
        return Answer(engine, cost, ttft_ms, sent_s)

    async def at_rate(self, ids: Sequence[str], per_s: float) -> list[Answer]:
        """Send all at a constant rate."""
        begun_s = time.monotonic()
        tasks = []
        for number, id in enumerate(ids):
            await asyncio.sleep(max(begun_s + number / per_s - time.monotonic(), 0))
            tasks.append(asyncio.create_task(self.ask(id, number)))
        return list(await asyncio.gather(*tasks))


async def measure(alpha: float, count: int, per_s: float) -> str:
    """One row: what was to be expected, and what came of it."""
    with cluster(alpha, window_s=600, engines={}) as running:
        client = Client(running)
        await asyncio.sleep(WARM_S)
        await client.at_rate([f"warm-{n}" for n in range(30)], 10)
        answers = await client.at_rate(even_ids(count), per_s)
        await asyncio.sleep(3)  # the coordinator publishes once a second
        cost, ttft_ms, shares, _ = running.told()
        await client.close()
    seen_cost, seen_ms = fmean(a.cost_usd for a in answers), fmean(a.ttft_ms for a in answers)
    fast = sum(a.engine == "fast" for a in answers) / len(answers)
    return (
        f"| {alpha:g} | {shares['fast']:.1%} / {fast:.1%} | {cost * 1e6:.1f} / "
        f"{seen_cost * 1e6:.1f} ({seen_cost / cost - 1:+.1%}) | {ttft_ms:.0f} / {seen_ms:.0f} "
        f"({seen_ms / ttft_ms - 1:+.1%}) |"
    )


def slow_down(engine: str, delay_ms: int) -> None:
    """Have an engine take longer from now on."""
    fault = {"fault": {"delay_ms": delay_ms}}
    httpx.post(f"{engine}/control", json=fault).raise_for_status()


async def follow(window_s: float, per_s: float) -> list[str]:
    """Rows of time: the cheap engine is the faster one for a window, then it is slow."""
    engines = {"cheap": {"ttft_ms": 100}}
    with cluster(0.5, window_s=window_s, engines=engines) as running:
        client = Client(running)
        await asyncio.sleep(WARM_S)
        rows, begun_s = [], time.monotonic()
        ids = even_ids(round(per_s * 3.5 * window_s))
        sending = asyncio.create_task(client.at_rate(ids, per_s))
        seen: list[tuple[float, dict[str, float]]] = []
        slow_s = 0.0
        while not sending.done():
            now_s = time.monotonic() - begun_s
            if now_s > window_s and not slow_s:
                slow_s = now_s
                await asyncio.to_thread(slow_down, "http://127.0.0.1:4101", 500)
            seen.append((now_s, (await asyncio.to_thread(running.told))[3]))
            await asyncio.sleep(1)
        answers = await sending
        await client.close()
    for start in range(0, round(3.5 * window_s), round(window_s / 4)):
        end = start + window_s / 4
        sent = [a for a in answers if start <= a.sent_s - begun_s < end]
        known = [times for at, times in seen if start <= at < end]
        fast = sum(a.engine == "fast" for a in sent) / len(sent)
        rows.append(
            f"| {start - slow_s:+.0f} s | {known[-1]['cheap']:.0f} | {known[-1]['fast']:.0f} | "
            f"{fast:.0%} | {fmean(a.ttft_ms for a in sent):.0f} |"
        )
    return rows


async def main() -> int:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.mixture")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--per-s", type=float, default=40.0)
    parser.add_argument("--alphas", type=float, nargs="*", default=ALPHAS)
    parser.add_argument("--window", type=float, default=20.0, help="of the run that changes, in s")
    args = parser.parse_args()
    print("| alpha | fast: told / seen | µ$ a request: told / seen | TTFT ms: told / seen |")
    print("|---:|---:|---:|---:|", flush=True)
    for alpha in args.alphas:
        print(await measure(alpha, args.requests, args.per_s), flush=True)
    print("\n| since cheap is slow | TTFT of cheap, known | of fast | sent to fast | TTFT seen |")
    print("|---:|---:|---:|---:|---:|")
    for row in await follow(args.window, args.per_s):
        print(row)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
