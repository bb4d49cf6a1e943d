"""Log lines are JSON with flat fields, and repeated ones are thinned out."""

from __future__ import annotations

import json
import logging

import pytest

from gateway.telemetry.logs import JsonFormatter, Thinned, bug, event


class Clock:
    """Time that moves when told."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def _all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


def formatted(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [json.loads(JsonFormatter().format(record)) for record in caplog.records]


def test_a_line_holds_time_level_name_and_fields(caplog: pytest.LogCaptureFixture) -> None:
    event("circuit_opened", level=logging.WARNING, endpoint="m:a", count=3, what='"\n é')
    [line] = formatted(caplog)
    assert str(line.pop("ts")).endswith("+00:00")
    assert line == {
        "level": "warning",
        "msg": "circuit_opened",
        "endpoint": "m:a",
        "count": 3,
        "what": '"\n é',
    }
    assert "\n" not in JsonFormatter().format(caplog.records[0])


def test_lines_of_other_libraries_are_json_too(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("uvicorn.error").warning("started %s", "server")
    assert formatted(caplog)[0]["msg"] == "started server"


def test_a_bug_carries_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        bug(request_id="r-1")
    [line] = formatted(caplog)
    assert (line["msg"], line["level"], line["request_id"]) == ("unexpected_error", "error", "r-1")
    assert "RuntimeError: boom" in str(line["error"])


def test_an_event_is_logged_once_per_interval_with_what_was_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Given an event that happens often
    clock = Clock()
    thinned = Thinned(interval_s=10, clock=clock)
    for _ in range(5):
        thinned.event("noise", n=1)
    # When the interval is over, to the tick
    clock.now += 9.99
    thinned.event("noise")
    clock.now += 0.01
    thinned.event("noise")
    clock.now += 10
    thinned.event("noise")
    # Then each line says how many were left out before it
    assert [line["left_out"] for line in formatted(caplog)] == [0, 5, 0]
    assert formatted(caplog)[0]["level"] == "warning"


def test_each_name_is_thinned_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    thinned = Thinned(clock=Clock())
    for name in ("a", "b", "a"):
        thinned.event(name)
    assert [line["msg"] for line in formatted(caplog)] == ["a", "b"]
