"""What an attempt counts for against its endpoint's limits, however its answer has ended."""

from __future__ import annotations

import httpx
import pytest

from gateway.core.limits import EndpointLimits, Limit
from tests.fakes.builders import route
from tests.fakes.holds import Hold
from tests.fakes.rig import Rig
from tests.fakes.upstreams import ROLE, Answer, Upstreams, delta, event, status

JSON = {"content-type": "application/json"}
LIMITED = route(limits=EndpointLimits(rpm=Limit(9), tpm=Limit(9000)))
SAID = "x" * 400
PROMPT = 100
ERROR = event({"error": {"message": "no", "code": 500}})
BROKEN = httpx.ReadError("reset")
NOBODY_KNOWS = ""


def over(answer: Answer) -> Rig:
    return Rig(Upstreams(a=answer), LIMITED)


async def leave(rig: Rig, hold: Hold, *, stream: bool) -> None:
    """Ask, and hang up once the answer has come as far as the hold."""
    call = rig.call(content=SAID, stream=stream, max_tokens=50)
    await hold.reached.wait()
    call.leave()
    await call.finished()
    hold.go()
    await rig.settled()


@pytest.mark.parametrize("end", [ERROR, BROKEN], ids=["error frame", "broken off"])
async def test_a_stream_that_fails_after_output_has_used_what_came(end: bytes | Exception) -> None:
    rig = over(Answer([ROLE, *map(delta, "abc"), end]))
    await rig.ask(content=SAID, stream=True, max_tokens=50)
    assert rig.store.used == [f"{PROMPT} 3"]


@pytest.mark.parametrize(
    ("end", "used"), [(ERROR, "0 0"), (BROKEN, f"{PROMPT} 0")], ids=["error frame", "broken off"]
)
async def test_a_stream_that_fails_before_output_has_used_its_prompt_unless_refused(
    end: bytes | Exception, used: str
) -> None:
    rig = over(Answer([ROLE, end]))
    await rig.ask(content=SAID, stream=True, max_tokens=50)
    assert rig.store.used == [used]


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        (lambda hold: Answer(before=[hold]), 0),
        (lambda hold: Answer([ROLE, hold]), 0),
        (lambda hold: Answer([ROLE, *map(delta, "abc"), hold]), 3),
    ],
    ids=["sent", "begun", "under way"],
)
async def test_a_stream_that_its_client_left_has_used_what_came(
    answer: object, output: int
) -> None:
    hold = Hold()
    rig = over(answer(hold))  # type: ignore[operator]
    await leave(rig, hold, stream=True)
    assert rig.store.used == [f"{PROMPT} {output}"]


async def test_a_stream_that_its_client_left_has_used_no_less_than_what_came() -> None:
    """Its upstream has said at the beginning what it had used by then."""
    hold = Hold()
    begun = event({"choices": [], "usage": {"prompt_tokens": 90, "completion_tokens": 1}})
    rig = over(Answer([begun, ROLE, *map(delta, "abc"), hold]))
    await leave(rig, hold, stream=True)
    assert rig.store.used == ["90 3"]


async def test_a_whole_answer_that_its_client_did_not_wait_for_leaves_all_taken() -> None:
    """How much of it was made by then, nobody knows."""
    hold = Hold()
    rig = over(Answer(before=[hold]))
    await leave(rig, hold, stream=False)
    assert rig.store.used == [NOBODY_KNOWS]


@pytest.mark.parametrize(
    "answer",
    [
        Answer(before=[httpx.ReadTimeout("slow")]),
        Answer([b"{", BROKEN], headers=JSON),
        Answer([b"{}"], headers=JSON),
    ],
    ids=["too late", "broken off", "malformed"],
)
async def test_a_whole_answer_that_did_not_come_leaves_all_taken(answer: Answer) -> None:
    rig = over(answer)
    await rig.ask(content=SAID, max_tokens=50)
    assert rig.store.used == [NOBODY_KNOWS]


async def test_an_error_in_place_of_an_answer_has_used_nothing() -> None:
    rig = over(status(500))
    await rig.ask(content=SAID, max_tokens=50)
    assert rig.store.used == ["0 0"]
