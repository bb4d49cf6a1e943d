"""Requests that wait in vain go to the offload route, and what they waited for is not blamed."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from gateway.core.offload import Offload
from gateway.core.outcome import Outcome
from gateway.core.route import Route
from gateway.dispatch.kinds import Kind
from gateway.dispatch.send import Dispatcher
from gateway.errors import StateUnavailable
from tests.fakes.builders import route
from tests.fakes.gates import ScriptedGates
from tests.fakes.holds import Hold
from tests.fakes.rig import ADMIN, Rig
from tests.fakes.upstreams import (
    DONE,
    ROLE,
    STOP,
    Answer,
    Upstreams,
    delta,
    status,
    stream,
    whole,
)

LONG, SHORT = 60.0, 0.05
PIN = {"authorization": f"Bearer {ADMIN}"}
STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


def good(streamed: bool, word: str = "yes") -> Answer:
    return stream(word) if streamed else whole(word)


def rig_of(
    upstreams: Upstreams,
    *locations: str,
    gates: ScriptedGates | None = None,
    wait_s: float = LONG,
    **policy: Any,
) -> Rig:
    offload = Offload(location="o", wait_s=wait_s, **policy)
    routes = [route(at) for at in (*locations, "o")]
    return Rig(upstreams, *routes, gates=gates or ScriptedGates(), offload=offload)


def log_of(caplog: pytest.LogCaptureFixture, name: str) -> list[dict[str, Any]]:
    return [r.fields for r in caplog.records if r.getMessage() == name]  # type: ignore[attr-defined]


@STREAMED
async def test_a_wait_in_line_goes_to_the_offload_route_next(
    streamed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    gates = ScriptedGates(a=[Kind.QUEUE_WAIT])
    rig = rig_of(Upstreams(b=good(streamed), o=good(streamed)), "a", "b", gates=gates)
    with caplog.at_level(logging.INFO, "concord"):
        call = await rig.ask(stream=streamed)
    assert (call.status, rig.upstreams.asked) == (200, ["o"])
    assert call.headers["x-concord-offload"] == "queue_wait"
    # It is asked for by name, and what has waited was not a failure, nor sent, nor left for good.
    assert rig.store.orders == ["draw", "reserve"]
    assert rig.store.outcomes[0] == ("a", Outcome.NEUTRAL, 0)
    assert rig.store.used[0] == "unsent"
    assert rig.store.unpinned == []
    # Only the attempt that could be offloaded had a deadline.
    assert gates.timed == {"a": True, "o": False}
    [line] = log_of(caplog, "route_offload")
    assert (line["reason"], line["endpoint"]) == ("queue_wait", "m:o")
    [line] = log_of(caplog, "request")
    assert (line["offload"], line["offload_endpoint"]) == ("queue_wait", "m:o")
    assert line["attempt_log"][0]["queue_ms"] == 10
    [noted] = rig.offload_log.noted
    assert (noted.reason, noted.attempts) == ("queue_wait", ["m:a=queue_wait", "m:o"])
    rig.assert_all_ended_once()


async def test_a_line_that_lets_nobody_wait_that_long_goes_there_too_but_not_back() -> None:
    gates = ScriptedGates(a=[Kind.SATURATED])
    rig = rig_of(Upstreams(o=status(500)), "a", gates=gates)
    call = await rig.ask()
    assert rig.upstreams.asked == ["o"]
    assert [at for at, _ in gates.waits] == ["a", "o"]
    assert call.status == 503
    assert json.loads(call.body)["error"]["code"] == "upstream_saturated"


@STREAMED
async def test_what_was_cut_short_goes_on_without_a_deadline_when_all_else_has_failed(
    streamed: bool,
) -> None:
    gates = ScriptedGates(a=[Kind.QUEUE_WAIT])
    upstreams = Upstreams(a=good(streamed), b=status(500), o=status(500))
    rig = rig_of(upstreams, "a", "b", gates=gates)
    call = await rig.ask(stream=streamed)
    assert (call.status, upstreams.asked) == (200, ["o", "b", "a"])
    assert gates.timed == {"a": False, "o": False, "b": False}
    assert call.headers["x-concord-offload"] == "queue_wait"
    assert call.headers["x-concord-endpoint"] == "m:a"
    rig.assert_all_ended_once()


async def test_the_failure_of_what_was_tried_again_counts_and_not_its_wait() -> None:
    gates = ScriptedGates(a=[Kind.QUEUE_WAIT])
    rig = rig_of(Upstreams(a=status(502), o=status(500)), "a", gates=gates)
    call = await rig.ask()
    assert (call.status, rig.upstreams.asked) == (502, ["o", "a"])


@STREAMED
async def test_plain_failures_come_to_it_last(streamed: bool) -> None:
    upstreams = Upstreams(a=status(500), b=status(500), o=good(streamed))
    rig = rig_of(upstreams, "a", "b")
    call = await rig.ask(stream=streamed)
    assert upstreams.asked == ["a", "b", "o"]
    assert call.headers["x-concord-offload"] == "last_resort"


async def test_a_sibling_that_serves_is_no_offload_and_had_a_deadline() -> None:
    gates = ScriptedGates()
    rig = rig_of(Upstreams(a=status(500), b=whole("yes")), "a", "b", gates=gates)
    call = await rig.ask()
    assert "x-concord-offload" not in call.headers
    assert gates.timed == {"a": True, "b": True}
    assert rig.offload_log.noted == []


async def test_nothing_is_timed_while_the_offload_route_cannot_take_the_request() -> None:
    gates = ScriptedGates()
    rig = rig_of(Upstreams(a=whole("yes")), "a", gates=gates, engine_queue_limit=3)
    rig.store.closed["o"] = "circuit_open"
    await rig.ask()
    [(_, waits)] = gates.waits
    assert (waits.queue_until_s, waits.engine_wait_s, waits.engine_limit) == (None, None, 3)


async def test_nothing_is_timed_where_the_caller_has_no_key_of_the_offload_route(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, str]] = []

    async def serves(_: Dispatcher, kept: Route, role: str) -> bool:
        asked.append((kept.location, role))
        return False

    monkeypatch.setattr(Dispatcher, "serves", serves)
    gates = ScriptedGates()
    await rig_of(Upstreams(a=whole("yes")), "a", gates=gates, engine_queue_limit=3).ask()
    [(_, waits)] = gates.waits
    assert (waits.queue_until_s, waits.engine_wait_s, waits.engine_limit) == (None, None, 3)
    assert asked == [("o", "free")]


async def test_nothing_is_timed_once_the_prompt_is_known_not_to_fit_the_offload_route() -> None:
    too_long = status(400, "This model's maximum context length is 8192 tokens.")
    gates = ScriptedGates()
    rig = Rig(
        Upstreams(a=too_long, b=whole("yes")),
        route("a", context_length=8192),
        route("b", context_length=65536),
        route("o", context_length=8192),
        gates=gates,
        offload=Offload(location="o", wait_s=LONG),
    )
    call = await rig.ask()
    assert (call.status, rig.upstreams.asked) == (200, ["a", "b"])
    assert gates.timed == {"a": True, "b": False}


async def test_a_last_resort_is_held_before_its_engine_and_not_timed() -> None:
    gates = ScriptedGates()
    rig = rig_of(Upstreams(o=stream("yes")), "a", gates=gates, engine_queue_limit=3)
    rig.store.closed["a"] = "circuit_open"
    call = await rig.ask(stream=True)
    assert call.headers["x-concord-offload"] == "last_resort"
    [(at, waits)] = gates.waits
    assert (at, waits.queue_until_s, waits.engine_wait_s) == ("o", None, None)
    assert waits.engine_limit == 3


async def test_a_pinned_request_waits_as_though_there_were_no_policy() -> None:
    gates = ScriptedGates(a=[Kind.SATURATED])
    rig = rig_of(Upstreams(), "a", gates=gates)
    call = await rig.call(headers={**PIN, "x-route-pin": "a"}).finished()
    assert (call.status, rig.upstreams.asked) == (503, [])
    assert gates.timed == {"a": False}


async def test_a_prompt_above_the_size_is_neither_timed_nor_offloaded() -> None:
    gates = ScriptedGates(a=[Kind.SATURATED])
    rig = rig_of(Upstreams(), "a", gates=gates, max_input_tokens=99)
    call = await rig.call(messages=[{"role": "user", "content": "x" * 400}]).finished()
    assert (call.status, gates.timed) == (503, {"a": False})
    # And where the others are down the client is told why this one is not asked.
    rig.store.closed["a"] = "circuit_open"
    call = await rig.call(messages=[{"role": "user", "content": "x" * 400}]).finished()
    assert call.status == 503
    assert "1 max_input" in json.loads(call.body)["error"]["message"]


async def test_a_prompt_of_the_size_may_be_offloaded() -> None:
    gates = ScriptedGates(a=[Kind.QUEUE_WAIT])
    rig = rig_of(Upstreams(o=whole("yes")), "a", gates=gates, max_input_tokens=100)
    await rig.ask(messages=[{"role": "user", "content": "x" * 400}])
    assert rig.upstreams.asked == ["o"]


async def test_a_stream_without_output_in_time_is_offloaded_and_its_frames_are_forgotten() -> None:
    upstreams = Upstreams(a=Answer([ROLE, None]), o=stream("yes"))
    gates = ScriptedGates()
    rig = rig_of(upstreams, "a", gates=gates, wait_s=SHORT)
    call = await rig.ask(stream=True)
    assert call.body == ROLE + delta("yes") + STOP + DONE
    assert call.headers["x-concord-offload"] == "engine_wait"
    assert rig.store.outcomes[0] == ("a", Outcome.NEUTRAL, 0)
    assert rig.store.unpinned == []
    assert gates.left == [("a", 0), ("o", 200)]
    assert gates.firsts == ["o"]
    # Nothing is remembered: the next request is sent there again.
    await rig.ask(stream=True)
    assert upstreams.asked == ["a", "o", "a", "o"]
    rig.assert_all_ended_once()


async def test_a_stream_that_is_kept_alive_meanwhile_is_offloaded_all_the_same() -> None:
    rig = Rig(
        Upstreams(a=Answer([ROLE, None]), o=stream("yes")),
        route("a"),
        route("o"),
        gates=ScriptedGates(),
        offload=Offload(location="o", wait_s=0.2),
        sse_keepalive_s=0.01,
    )
    call = await rig.ask(stream=True)
    assert call.body.startswith(b": keep-alive")
    assert call.body.endswith(delta("yes") + STOP + DONE)
    assert call.body.count(ROLE) == 1
    assert rig.upstreams.asked == ["a", "o"]


async def test_a_silent_engine_is_offloaded_before_its_headers_too() -> None:
    upstreams = Upstreams(a=Answer(before=[None]), o=stream("yes"))
    rig = rig_of(upstreams, "a", wait_s=SHORT)
    call = await rig.ask(stream=True)
    assert call.headers["x-concord-offload"] == "engine_wait"


async def test_output_in_time_is_never_cut_short() -> None:
    hold = Hold()
    upstreams = Upstreams(a=Answer([ROLE, delta("x"), hold, STOP, DONE]))
    rig = rig_of(upstreams, "a", wait_s=SHORT)
    call = rig.call(stream=True)
    await hold.reached.wait()
    await asyncio.sleep(2 * SHORT)
    hold.go()
    await call.finished()
    assert call.body == ROLE + delta("x") + STOP + DONE
    assert "x-concord-offload" not in call.headers


async def test_after_a_failed_offload_the_engine_gets_all_the_time_it_takes() -> None:
    hold = Hold()
    slow = Answer([ROLE, hold, delta("late"), STOP, DONE])
    upstreams = Upstreams(a=[Answer([ROLE, None]), slow], o=status(500))
    rig = rig_of(upstreams, "a", wait_s=SHORT)
    call = rig.call(stream=True)
    await hold.reached.wait()
    await asyncio.sleep(2 * SHORT)
    hold.go()
    await call.finished()
    await rig.settled()
    assert upstreams.asked == ["a", "o", "a"]
    assert call.body == ROLE + delta("late") + STOP + DONE
    [noted] = rig.offload_log.noted
    assert noted.attempts == ["m:a=engine_wait_expired", "m:o=http_500", "m:a"]
    assert (noted.reason, noted.offload_endpoint, noted.endpoint) == ("engine_wait", "m:o", "m:a")


async def test_an_attempt_in_line_is_no_load_until_it_has_its_place() -> None:
    hold = Hold()
    rig = rig_of(Upstreams(a=whole("yes")), "a", gates=ScriptedGates(a=[hold]))
    call = rig.call(messages=[{"role": "user", "content": "x" * 400}])
    await hold.reached.wait()
    await rig.settled()
    assert rig.store.queued == [("a", True)]
    hold.go()
    await call.finished()
    await rig.settled()
    assert rig.store.queued == [("a", True), ("a", False)]


async def test_what_was_said_of_the_line_too_late_does_not_take_back_that_it_was_left() -> None:
    line, answer = Hold(), Hold()
    slow = Answer([answer, *whole("yes").steps], headers=whole("yes").headers)
    rig = rig_of(Upstreams(a=slow), "a", gates=ScriptedGates(a=[line]))
    rig.store.raising["queue"] = [StateUnavailable()]
    call = rig.call(messages=[{"role": "user", "content": "x" * 400}])
    await line.reached.wait()
    await asyncio.sleep(0)  # the store is told, and does not answer
    line.go()
    await answer.reached.wait()
    await rig.settled()
    assert rig.store.queued == [("a", False), ("a", False)]
    answer.go()
    await call.finished()


@pytest.mark.parametrize("phase", ["line", "engine", "offload", "back"])
async def test_a_client_that_leaves_in_any_phase_leaves_nothing_behind(phase: str) -> None:
    holds = {name: Hold() for name in ("line", "engine", "offload", "back")}
    waiting = {
        "line": ScriptedGates(a=[holds["line"]]),
        "back": ScriptedGates(a=[Kind.QUEUE_WAIT]),
    }
    back = Answer([ROLE, holds["back"], STOP, DONE])
    offloaded = Answer([ROLE, holds["offload"], STOP, DONE])
    upstreams = {
        "line": Upstreams(),
        "engine": Upstreams(a=Answer([ROLE, holds["engine"], STOP, DONE])),
        "offload": Upstreams(a=Answer([ROLE, None]), o=offloaded),
        "back": Upstreams(a=back, o=status(500)),
    }[phase]
    gates = waiting.get(phase, ScriptedGates())
    rig = rig_of(upstreams, "a", gates=gates, wait_s=SHORT if phase == "offload" else LONG)
    call = rig.call(stream=True)
    await holds[phase].reached.wait()
    call.leave()
    await call.finished()
    await rig.settled()
    rig.assert_all_ended_once()
    assert not call.started
    if phase == "line":
        assert rig.store.used == ["unsent"]
    else:
        assert gates.left[-1][1] is None
