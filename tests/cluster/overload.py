"""More requests than the limits of an endpoint and of callers let pass, and what must hold then."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import Sequence

import httpx
from msgspec import Struct

from tests.cluster.admits import Admits
from tests.cluster.load import Answer, ask

_REFUSED = re.compile(r"No endpoint of model '\S+' can take the request now \(1 (\w+)_limit\)\.")


class Asked(Struct, frozen=True):
    """A kind of request."""

    key: str | None = None
    prompt_tokens: int = 10
    max_tokens: int | None = 5
    """`None` leaves it to the engine how much it answers."""


class Overload(Struct, frozen=True, kw_only=True):
    """So many requests per second, whatever becomes of them, to one endpoint with limits."""

    asked: Sequence[Asked]
    rate: float
    seconds: float
    window_ms: int
    limits: dict[str, int]
    """Of the endpoint, by kind."""
    key_limits: dict[str, int]
    """Requests per window, by the secret of the key."""
    model: str = "m"

    async def run(self, https: Sequence[httpx.AsyncClient], *, seed: int = 1) -> list[Answer]:
        """Ask all replicas, each request one of them and of one kind, by chance."""
        numbers = random.Random(seed)
        answers: list[Answer] = []
        began_s = time.monotonic()

        async def one(http: httpx.AsyncClient, asked: Asked, answer: Answer) -> None:
            fields = {} if asked.max_tokens is None else {"max_tokens": asked.max_tokens}
            prompt = "x" * (4 * asked.prompt_tokens)
            await ask(http, prompt, key=asked.key, into=answer, model=self.model, **fields)

        async with asyncio.TaskGroup() as asking:
            for number in range(int(self.rate * self.seconds)):
                await asyncio.sleep(max(began_s + number / self.rate - time.monotonic(), 0))
                answers.append(Answer())
                http, asked = numbers.choice(https), numbers.choice(self.asked)
                asking.create_task(one(http, asked, answers[-1]))
        return answers

    def faults(self, answers: Sequence[Answer], admits: Admits) -> list[str]:
        """What is not as it must be."""
        found = [
            f"{kind}: {most} in a window, and the limit is {self.limits[kind]}"
            for kind in self.limits
            if (most := admits.fullest(kind, self.window_ms)) > self.limits[kind]
        ]
        served = Counter(answer.status for answer in answers)
        sent = sum(admit.used != "unsent" for admit in admits.all())
        if served[200] != sent or set(served) > {200, 429}:
            found.append(f"{dict(served)} were answered, and {sent} have been sent")
        for answer in answers:
            if answer.status == 429 and (fault := self._fault(answer, admits)):
                found.append(f"{fault}: {answer}")
        return found

    def kinds(self, answers: Sequence[Answer]) -> Counter[str]:
        """How often each limit of the endpoint has refused; `key` are those of callers."""
        refused = [answer.message for answer in answers if answer.status == 429]
        return Counter(match[1] if (match := _REFUSED.match(text)) else "key" for text in refused)

    def _fault(self, refused: Answer, admits: Admits) -> str:
        """What is wrong with a refusal: its name, or when it says to come again."""
        again_s = refused.retry_after or 0
        if refused.code != "rate_limit_exceeded":
            return "another code"
        if not 1 <= again_s <= self.window_ms * 31 / 30_000 + 1:
            return "comes again out of reach"
        match = _REFUSED.match(refused.message)
        if match is None:
            known = (f"The limit of {most} requests per" for most in self.key_limits.values())
            return "" if refused.message.startswith(tuple(known)) else "not named"
        if match[1] not in self.limits:
            return "no such limit"
        if match[1] != "rpm":
            return ""
        # It was decided between asking and answering, by what had been admitted until then.
        began_ms, ended_ms = refused.began_s * 1000, (refused.began_s + refused.took_s) * 1000
        most, window_ms = self.limits["rpm"], self.window_ms
        after, before = ended_ms + again_s * 1000, began_ms + (again_s - 1) * 1000
        sent = admits.counted(after, until_ms=began_ms, window_ms=window_ms)
        if sum(admit.used != "unsent" for admit in sent) + 1 > most:
            return "comes again too early"
        if len(admits.counted(before, until_ms=ended_ms, window_ms=window_ms)) + 1 <= most:
            return "could come again earlier"
        return ""
