"""Answers of a gateway, taken apart byte by byte."""

from __future__ import annotations

import json
from typing import Any

import httpx
from msgspec import Struct

from tests.cluster.harness import body
from tests.integration.conftest import TEXT
from tests.integration.scripted import DONE

PATH = "/v1/chat/completions"


class Answered(Struct):
    """An answer, taken apart."""

    status: int
    content: bytes
    headers: httpx.Headers

    @property
    def events(self) -> list[dict[str, Any]]:
        """Its events but `[DONE]`; each MUST be a line of data and a blank one."""
        *blocks, end = self.content.split(b"\n\n")
        assert end == b""
        assert all(block.startswith((b"data: ", b":")) for block in blocks)
        found = [block.removeprefix(b"data: ") for block in blocks if block[:1] != b":"]
        return [json.loads(data) for data in found if data != b"[DONE]"]

    @property
    def is_done(self) -> bool:
        """Whether it ends with `[DONE]`, which MUST NOT be anywhere else."""
        assert self.content.count(b"[DONE]") == self.content.endswith(DONE)
        return self.content.endswith(DONE)

    @property
    def text(self) -> str:
        """What the tokens say."""
        choices = [choice for chunk in self.events for choice in chunk.get("choices", [])]
        return "".join(choice["delta"].get("content") or "" for choice in choices)

    @property
    def error(self) -> dict[str, Any] | None:
        """The error it is or ends with."""
        last = json.loads(self.content) if self.status != 200 else self.events[-1]
        found: dict[str, Any] | None = last.get("error")
        return found


async def ask(http: httpx.AsyncClient, model: str, *, stream: bool = True) -> Answered:
    answer = await http.post(PATH, json=body(model=model, stream=stream))
    kind = "text/event-stream; charset=utf-8" if stream and answer.is_success else None
    assert answer.headers["content-type"] == (kind or "application/json")
    return Answered(answer.status_code, answer.content, answer.headers)


def assert_good(answer: Answered) -> None:
    """One complete stream, from one engine."""
    assert answer.status == 200
    assert answer.text == TEXT
    assert answer.is_done
    assert answer.error is None
    assert len({chunk["id"] for chunk in answer.events}) == 1
