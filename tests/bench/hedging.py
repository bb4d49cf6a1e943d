"""`python -m tests.bench.hedging`: what hedging does to late first tokens, and what it costs.

The example `config/examples/routewise` by `concord up` with three replicas and a coordinator, its
engines made a cheap one that stalls every twentieth request for five seconds, and a steady one at
thirty times the price. All goes to the cheap one; hedged are its streams that are late. The same
requests without and with that: time to the first token as the client sees it, and what is to be
paid, the answers by the usage that their engine tells and the streams that were cut off by their
prompts.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import httpx
from msgspec import Struct

from tests.bench.mixture import PROMPT, WARM_S, Answer, Client, cluster, even_ids

STALLS, STEADY = "cheap", "fast"
"""By the names of the example."""
URLS = {STEADY: "http://127.0.0.1:4100", STALLS: "http://127.0.0.1:4101"}
STALL_MS, EVERY = 5000, 20
AT_ONCE = {"prefill_tokens_per_s": 1_000_000, "tokens_per_s": 400}
"""So that samples of one token tell how long a prompt takes."""
ENGINES = {STALLS: {"ttft_ms": 200, **AT_ONCE}, STEADY: {"ttft_ms": 300, **AT_ONCE}}
PROBES = {"routewise_probe_interval_sec": 1, "routewise_probe_idle_threshold_sec": 2}
PROMPT_TOKENS = len(PROMPT) // 4


class Arm(Struct, frozen=True):
    """How the requests have fared in one way."""

    answers: Sequence[Answer]
    cut_off: dict[str, int]
    """By engine: requests that it has not answered to the end, since its client has gone."""
    prices: dict[str, tuple[float, float]]

    def row(self, name: str) -> str:
        """Of the table."""
        ttfts_ms = sorted(answer.ttft_ms for answer in self.answers)
        lost = sum(n * PROMPT_TOKENS * self.prices[at][0] for at, n in self.cut_off.items())
        paid = sum(answer.cost_usd for answer in self.answers)
        by_steady = sum(answer.engine == STEADY for answer in self.answers)
        each = 1e6 / len(self.answers)
        p50, p95, p99 = (_quantile(ttfts_ms, share) for share in (0.5, 0.95, 0.99))
        return (
            f"| {name} | {p50:.0f} | {p95:.0f} | {p99:.0f} | {ttfts_ms[-1]:.0f} | {by_steady} | "
            f"{sum(self.cut_off.values())} | {sum(self.cut_off.values()) * PROMPT_TOKENS} | "
            f"{paid * each:.1f} + {lost * each:.1f} |"
        )


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def _cut_off() -> dict[str, int]:
    return {
        name: httpx.get(f"{url}/control").raise_for_status().json()["cancelled"]
        for name, url in URLS.items()
    }


async def measure(mode: str, count: int, per_s: float, slo_s: float) -> Arm:
    """Send all requests, hedged or not."""
    params: dict[str, Any] = {"latency_hedge_mode": mode, "latency_slo_sec": slo_s, **PROBES}
    with cluster(0.0, window_s=600, engines=ENGINES, **params) as running:
        client = Client(running)
        await asyncio.sleep(WARM_S)
        await client.at_rate([f"warm-{number}" for number in range(40)], 10)
        await asyncio.sleep(3)  # the coordinator publishes once a second
        stall = {"fault": {"delay_ms": STALL_MS, "every": EVERY}}
        await asyncio.to_thread(_set_fault, stall)
        before = await asyncio.to_thread(_cut_off)
        answers = await client.at_rate(even_ids(count), per_s)
        after = await asyncio.to_thread(_cut_off)
        await client.close()
    return Arm(answers, {at: after[at] - before[at] for at in after}, running.prices)


def _set_fault(fault: dict[str, Any]) -> None:
    httpx.post(f"{URLS[STALLS]}/control", json=fault).raise_for_status()


async def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.hedging")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--per-s", type=float, default=15.0)
    parser.add_argument("--slo", type=float, default=1.5, help="in s")
    args = parser.parse_args()
    heads = ("hedging", "TTFT ms: p50", "p95", "p99", "most", "by steady", "cut off", "tokens lost")
    print(f"| {' | '.join(heads)} | µ$ a request: answers + cut off |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    for name, mode in (("off", "disabled"), ("on", "probability_target")):
        arm = await measure(mode, args.requests, args.per_s, args.slo)
        print(arm.row(name), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
