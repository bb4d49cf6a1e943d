"""Simulated engines: serial prefill, and a prefix cache that forgets what was used longest ago."""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct

from tests.bench.replay.trace import Request


class EngineSpec(Struct, frozen=True):
    """An engine as it is built."""

    location: str
    tokens_per_s: float
    cache_blocks: int
    joins_s: float = 0.0
    """When it is added to the cluster."""


class Engine:
    """Takes prompts one after the other. What the gateway must not see is in here."""

    def __init__(self, spec: EngineSpec, block_tokens: int) -> None:
        self.spec = spec
        self.is_up = True
        self.life = 0
        """Raised when it dies: what it had promised before is void."""
        self._block_tokens = block_tokens
        self._cache: OrderedDict[int, None] = OrderedDict()
        self._free_s = 0.0

    def prefill(self, now_s: float, request: Request) -> tuple[float, int]:
        """Take in a prompt. Returns when its first token comes, and the tokens found cached.

        Prompts are taken in turn, so that all of it is known when one joins the line.
        """
        known = 0
        for block in request.blocks:
            if block not in self._cache:
                break
            known += 1
        # The last token is always computed: the first output follows from it.
        cached = min(known * self._block_tokens, request.tokens - 1)
        self._remember(request.blocks)
        self._free_s = max(now_s, self._free_s)
        self._free_s += (request.tokens - cached) / self.spec.tokens_per_s
        return self._free_s, cached

    def die(self) -> None:
        """Lose the line and the cache."""
        self.is_up = False
        self.life += 1
        self._cache.clear()
        self._free_s = 0.0

    def come_back(self) -> None:
        """Serve again, with nothing cached."""
        self.is_up = True

    def _remember(self, blocks: tuple[int, ...]) -> None:
        for block in reversed(blocks):  # of one prompt the end is forgotten first
            self._cache[block] = None
            self._cache.move_to_end(block)
        while len(self._cache) > self.spec.cache_blocks:
            self._cache.popitem(last=False)
