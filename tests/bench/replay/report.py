"""The replay's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.bench.replay.policies import CONTENDERS
from tests.bench.replay.run import Result, Scene
from tests.bench.replay.scenes import Setting
from tests.bench.replay.trace import Request, new_share

OURS = "expected_ttft"
Found = Mapping[str, Mapping[str, Result]]
"""Scene to contender to what has come of it."""


def about(setting: Setting, requests: Sequence[Request]) -> str:
    """Everything that the figures depend on, but the trace itself."""
    tokens = sum(one.tokens for one in requests)
    callers = len({one.caller for one in requests})
    new = new_share(requests, setting.block_tokens)
    speeds = ", ".join(f"{speed:,.0f}" for speed in setting.speeds)
    cache = f"{setting.cache_blocks:,} blocks of {setting.block_tokens} tokens"
    return "\n".join(
        (
            f"- {len(requests):,} requests of {callers:,} conversations; prompts of "
            f"{tokens / len(requests):,.0f} tokens on average, {new:.0%} of them new to a cache "
            "without end",
            f"- {len(setting.speeds)} engines: serial prefill at {speeds} tokens/s, each with an "
            f"LRU prefix cache of {cache}, decoding at {setting.decode_tokens_per_s:g} tokens/s",
            f"- load: {setting.uncached_share:g} × all prompt tokens / all prefill rates, as a "
            f"share of the time that arrivals are scaled to; seed {setting.seed}",
        )
    )


def mean_s(result: Result) -> float:
    """The mean time to the first token."""
    return sum(ttft_s for _, ttft_s in result.first_tokens) / len(result.first_tokens)


def quantile_s(result: Result, q: float) -> float:
    """A quantile of the times to the first token."""
    times = sorted(ttft_s for _, ttft_s in result.first_tokens)
    return times[min(int(len(times) * q), len(times) - 1)]


def by_minute(result: Result) -> list[tuple[float, float]]:
    """The mean time to the first token of the requests that came in each minute."""
    minutes: dict[int, list[float]] = {}
    for at_s, ttft_s in result.first_tokens:
        minutes.setdefault(int(at_s // 60), []).append(ttft_s)
    return [(float(m), sum(times) / len(times)) for m, times in sorted(minutes.items())]


def main_table(found: Found) -> str:
    """Seconds to the first token, mean / p99, and cache hit rate; a row per scene."""
    names = [one.name for one in CONTENDERS if any(one.name in row for row in found.values())]
    lines = [
        "| | " + " | ".join(f"`{name}`" for name in names) + " | to the best other |",
        "|---|" + "---:|" * (len(names) + 1),
    ]
    for scene, row in found.items():
        cells = [_cell(row[name]) if name in row else "–" for name in names]
        lines.append(f"| {scene} | " + " | ".join(cells) + f" | {_ratio(row)} |")
    return "\n".join(lines)


def troubles_table(found: Found) -> str:
    """What engines that died have cost, where any did."""
    lines = ["| | attempts made again | answers cut off | refused |", "|---|---:|---:|---:|"]
    for scene, row in found.items():
        for name, one in row.items():
            if one.failovers or one.broken or one.refused:
                lines.append(
                    f"| {scene}: `{name}` | {one.failovers} | {one.broken} | {one.refused} |"
                )
    return "\n".join(lines) if len(lines) > 2 else ""


def rates_table(scene: Scene, result: Result, minutes: Sequence[int] = (0, 1, 2, 5, 10)) -> str:
    """How far what was learned of the engines is from the truth, after so many minutes."""
    shown = [m for m in minutes if m < len(result.rates)]
    lines = [
        "| true tokens/s | " + " | ".join(f"after {m} min" for m in shown) + " |",
        "|---:|" + "---:|" * len(shown),
    ]
    for spec in scene.engines:
        learned = [result.rates[m][1].get(spec.location) for m in shown]
        cells = " | ".join("–" if rate is None else f"{rate:,.0f}" for rate in learned)
        lines.append(f"| {spec.tokens_per_s:,.0f} | {cells} |")
    return "\n".join(lines)


def _cell(result: Result) -> str:
    if not result.first_tokens:
        return "–"
    hits = result.cached_tokens / result.prompt_tokens
    return f"{_seconds(mean_s(result))} / {_seconds(quantile_s(result, 0.99))} · {hits:.2f}"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 20 else f"{seconds:.1f}"


def _ratio(row: Mapping[str, Result]) -> str:
    others = [mean_s(result) for name, result in row.items() if name != OURS]
    if OURS not in row or not others:
        return "–"
    return f"{mean_s(row[OURS]) / min(others):.2f}"
