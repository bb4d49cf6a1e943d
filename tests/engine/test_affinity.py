"""What affinity is for: a session that stays where it was finds its prompt cached.

The turns of a session go to the replicas in turn, past nginx, with request ids of their own: these
decide every draw, so that both tests are drawn alike on each run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Struct
from openai.types.chat import ChatCompletionMessageParam

from tests.cluster.conftest import own_redis
from tests.engine.installing import LlamaCpp
from tests.engine.llama import MODEL, LlamaCluster

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240, func_only=True)]

TURNS = 10
ANSWER_TOKENS = 24
LOOSE_TOKENS = 8
"""The end of a prompt opens the answer, and an answer may be tokenized anew in the next prompt."""
UNIFORM = {"affinity": {"enabled": False}, "prefill": {"enabled": False}}


class Turn(Struct, frozen=True):
    """What the engine said of one prompt."""

    endpoint: str
    prompt_tokens: int
    cached_tokens: int


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest, llama: LlamaCpp, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LlamaCluster]:
    """Fresh engines, nothing cached, with the routing that the test asks for."""
    folder = tmp_path_factory.mktemp("affinity")
    with own_redis() as server, LlamaCluster(folder, server.url, llama, request.param) as cluster:
        yield cluster


async def converse(cluster: LlamaCluster) -> list[Turn]:
    """A session of growing turns, each at the next replica."""
    messages: list[ChatCompletionMessageParam] = []
    turns = []
    for n, replica in zip(range(TURNS), itertools.cycle(cluster.replicas), strict=False):
        question = f"Question {n}: " + "tell me more about the sea, the wind and the ships. " * 6
        messages.append({"role": "user", "content": question})
        headers = {"x-concord-session": "a-session", "x-request-id": f"turn-{n}"}
        async with cluster.sdk(base_url=f"{replica.url}/v1", default_headers=headers) as sdk:
            fields: dict[str, Any] = {"max_tokens": ANSWER_TOKENS, "temperature": 0}
            raw = await sdk.chat.completions.with_raw_response.create(
                model=MODEL, messages=messages, **fields
            )
        answer = raw.parse()
        messages.append({"role": "assistant", "content": answer.choices[0].message.content})
        usage = answer.usage
        assert usage
        assert usage.prompt_tokens_details
        turns.append(
            Turn(
                raw.headers["x-concord-endpoint"],
                usage.prompt_tokens,
                usage.prompt_tokens_details.cached_tokens or 0,
            )
        )
        print(turns[-1])
    return turns


def found(turns: list[Turn]) -> list[bool]:
    """For each turn but the first, whether its engine had the whole of the turn before cached."""
    return [
        turn.cached_tokens >= before.prompt_tokens - LOOSE_TOKENS
        for before, turn in itertools.pairwise(turns)
    ]


@pytest.mark.parametrize("cluster", [{}], indirect=True, ids=["affinity"])
async def test_a_session_finds_its_last_prompt_cached_at_every_turn(cluster: LlamaCluster) -> None:
    turns = await converse(cluster)
    cached = [turn.cached_tokens for turn in turns]
    assert len({turn.endpoint for turn in turns}) == 1
    assert all(found(turns))
    assert all(later > earlier for earlier, later in itertools.pairwise(cached))


@pytest.mark.parametrize("cluster", [UNIFORM], indirect=True, ids=["uniform"])
async def test_a_session_that_is_drawn_anew_keeps_losing_its_cache(cluster: LlamaCluster) -> None:
    turns = await converse(cluster)
    cached = [turn.cached_tokens for turn in turns]
    assert len({turn.endpoint for turn in turns}) == 2
    assert not all(found(turns))
    assert any(later <= earlier for earlier, later in itertools.pairwise(cached))
