"""`python -m tests.bench.replay`: a trace through routing policies, in virtual time.

Every decision is the real scripts', on a Redis of the replay's own.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.bench.machine import Unfit
from tests.bench.replay import report
from tests.bench.replay.policies import CONTENDERS
from tests.bench.replay.run import Replay, Result
from tests.bench.replay.scenes import Setting, scenes
from tests.bench.replay.trace import Request, TraceError, read
from tests.bench.replay.virtual import VirtualStore, private_redis

NAMES = [one.name for one in CONTENDERS]


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay what is asked for: 0 when done, 1 when it cannot be, 130 when interrupted."""
    args = _parse(arguments)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # even where a shell ignores it
    setting = Setting(
        speeds=args.speeds,
        cache_blocks=args.cache_blocks,
        block_tokens=args.block_tokens,
        uncached_share=args.uncached_share,
        decode_tokens_per_s=args.decode_tokens_per_s,
        loads=args.loads,
        seed=args.seed,
    )
    try:
        requests = read(args.trace, args.block_tokens)[: args.requests]
        print(report.about(setting, requests), end="\n\n", flush=True)
        found = _replay(setting, requests, args.only, args.scenes)
    except (TraceError, Unfit) as error:
        print(f"replay: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("replay: interrupted", file=sys.stderr)
        return 130
    print(report.main_table(found), end="\n\n")
    print(report.troubles_table(found), end="\n\n")
    if args.results:
        args.results.write_bytes(msgspec.json.encode(found))
    return 0


def _replay(
    setting: Setting, requests: Sequence[Request], only: Sequence[str], wanted: Sequence[str]
) -> dict[str, dict[str, Result]]:
    found: dict[str, dict[str, Result]] = {}
    every = dict(scenes(setting, requests))
    if unknown := set(wanted) - every.keys():
        raise Unfit(
            f"no scene is called {', '.join(sorted(unknown))}: there are {', '.join(every)}"
        )
    with private_redis() as client:
        for name in wanted or every:
            scene = every[name]
            for contender in CONTENDERS:
                if contender.name not in only:
                    continue
                began_s, store = time.monotonic(), VirtualStore(client)
                result = asyncio.run(Replay(scene, contender, store).run())
                found.setdefault(name, {})[contender.name] = result
                took_s = time.monotonic() - began_s
                print(
                    f"{name}, {contender.name}: mean {report.mean_s(result):.2f} s "
                    f"({store.time.calls:,} scripts in {took_s:.0f} s)",
                    file=sys.stderr,
                    flush=True,
                )
                if scene.known_rates and contender.name == report.OURS:
                    print(report.rates_table(scene, result), end="\n\n", flush=True)
    return found


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.replay", description=__doc__)
    parser.add_argument(
        "--trace", type=Path, required=True, help="Mooncake's .jsonl or Azure's .csv"
    )
    parser.add_argument("--requests", type=_count, metavar="N", help="only the first N")
    parser.add_argument(
        "--loads", type=_positive, nargs="+", default=[0.5, 0.8, 0.95, 1.0], metavar="L"
    )
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, help="some policies")
    parser.add_argument("--scenes", nargs="+", default=[], metavar="NAME", help="some rows")
    parser.add_argument(
        "--speeds",
        type=_positive,
        nargs="+",
        default=[8000.0] * 6 + [4000.0] * 2,
        metavar="TOKENS_PER_S",
        help="of prefill, one for each engine (six of 8000, two of 4000)",
    )
    parser.add_argument("--cache-blocks", type=_count, default=4000, metavar="N", help="(4000)")
    parser.add_argument("--block-tokens", type=_count, default=512, metavar="N", help="(512)")
    parser.add_argument(
        "--uncached-share",
        type=_positive,
        default=0.64,
        help="the share of prompt tokens that load counts (0.64)",
    )
    parser.add_argument("--decode-tokens-per-s", type=_positive, default=40.0, help="(40)")
    parser.add_argument("--seed", type=int, default=1, help="of the requests' ids (1)")
    parser.add_argument("--results", type=Path, metavar="FILE", help="write all for the picture")
    return parser.parse_args(arguments)


def _count(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def _positive(text: str) -> float:
    if not 0 < (number := float(text)) < float("inf"):
        raise ValueError(text)
    return number


if __name__ == "__main__":
    sys.exit(main())
