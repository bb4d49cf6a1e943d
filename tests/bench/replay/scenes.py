"""What the policies are put through: loads, an hour at full load, and engines that come and go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from tests.bench.replay.engines import EngineSpec
from tests.bench.replay.run import Happening, Scene
from tests.bench.replay.trace import Request, prolong, scale

HOUR_S = 3600.0
TROUBLED_LOAD = 0.8


class Setting(Struct, frozen=True, kw_only=True):
    """The parameters of a replay. All of them are told beside its figures."""

    speeds: Sequence[float]
    """Prefill tokens/s, one for each engine."""
    cache_blocks: int
    block_tokens: int
    uncached_share: float
    """Load is this share of all prompt tokens, through all prefill rates, in the time given."""
    decode_tokens_per_s: float
    loads: Sequence[float]
    seed: int

    def engines(self) -> list[EngineSpec]:
        """All engines, in the cluster from the start."""
        return [
            EngineSpec(f"engine-{number}", speed, self.cache_blocks)
            for number, speed in enumerate(self.speeds, 1)
        ]

    def at_load(self, requests: Sequence[Request], load: float) -> list[Request]:
        """Scale the arrivals to a load."""
        work_s = self.uncached_share * sum(one.tokens for one in requests) / sum(self.speeds)
        return scale(requests, work_s / load)


def scenes(setting: Setting, requests: Sequence[Request]) -> Iterator[tuple[str, Scene]]:
    """All of them, by name."""

    def scene(requests: Sequence[Request], **more: object) -> Scene:
        return Scene(
            requests=requests,
            block_tokens=setting.block_tokens,
            decode_tokens_per_s=setting.decode_tokens_per_s,
            seed=setting.seed,
            **({"engines": setting.engines()} | more),  # type: ignore[arg-type]
        )

    for load in setting.loads:
        yield f"load {load:g}", scene(setting.at_load(requests, load))
    yield "load 1, an hour", scene(prolong(setting.at_load(requests, 1.0), HOUR_S))
    troubled = setting.at_load(requests, TROUBLED_LOAD)
    engines, span_s = setting.engines(), troubled[-1].at_s
    falls = (Happening(0.4 * span_s, engines[0].location, "dies"),)
    rises = (Happening(0.6 * span_s, engines[0].location, "returns"),)
    yield "one dies, returns", scene(troubled, happenings=falls + rises)
    first = engines[0]
    cold = EngineSpec(first.location, first.tokens_per_s, first.cache_blocks, 0.5 * span_s)
    yield "one added cold", scene(troubled, engines=[cold, *engines[1:]])
    middle = sum(setting.speeds) / len(setting.speeds)
    wrong = {
        one.location: one.tokens_per_s * (0.5 if one.tokens_per_s > middle else 2.0)
        for one in engines
    }
    yield "rates wrong twofold", scene(troubled, known_rates=wrong)
