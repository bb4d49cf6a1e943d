"""How long an upstream asks to be left alone: in milliseconds here, in seconds for clients."""

from __future__ import annotations

import httpx
import pytest

from gateway.core.route import Route
from gateway.dispatch import failures
from gateway.dispatch.failures import from_response

DATE = "Wed, 21 Oct 2015 07:28:30 GMT"
BEFORE = "Wed, 21 Oct 2015 07:28:00 GMT"


@pytest.mark.parametrize(
    ("headers", "milliseconds", "seconds"),
    [
        pytest.param({}, None, None, id="none"),
        pytest.param({"retry-after": "7"}, 7_000, 7, id="seconds"),
        pytest.param({"retry-after": "1.5"}, 1_500, 2, id="fraction"),
        pytest.param({"retry-after": "1.0005"}, 1_001, 2, id="fraction of a millisecond"),
        pytest.param({"retry-after": "1.2345678329467773"}, 1_235, 2, id="a printed float"),
        pytest.param({"retry-after": " 7 "}, 7_000, 7, id="spaces"),
        pytest.param({"retry-after": "0"}, 0, 0, id="zero"),
        pytest.param({"retry-after": "-3"}, 0, 0, id="negative"),
        pytest.param({"retry-after-ms": "800"}, 800, 1, id="milliseconds"),
        pytest.param({"retry-after-ms": "0.5"}, 1, 1, id="fraction of milliseconds"),
        pytest.param({"retry-after-ms": "1500", "retry-after": "9"}, 1_500, 2, id="finer wins"),
        pytest.param({"retry-after-ms": "x", "retry-after": "9"}, 9_000, 9, id="nonsense loses"),
        pytest.param({"retry-after": "99999999"}, 86_400_000, 86_400, id="a day at the most"),
        pytest.param({"retry-after": "soon"}, None, None, id="word"),
        pytest.param({"retry-after": "inf"}, None, None, id="inf"),
        pytest.param({"retry-after": "1" * 400}, None, None, id="too long"),
        pytest.param({"retry-after": DATE, "date": BEFORE}, 30_000, 30, id="date"),
        pytest.param({"retry-after": DATE}, 0, 0, id="past date"),
        pytest.param({"retry-after": "Wed, 99 Oct 2015"}, None, None, id="no date"),
    ],
)
def test_retry_after_is_read(
    route: Route, headers: dict[str, str], milliseconds: int | None, seconds: int | None
) -> None:
    failed = from_response(route, httpx.Response(429, headers=headers), b"")

    assert failed.retry_after_ms == milliseconds
    assert failed.to_client("m").retry_after_s == seconds


def test_a_date_is_held_against_our_clock_where_the_upstream_does_not_tell_its_own(
    route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures.time, "time", lambda: 1_445_412_500.25)

    failed = from_response(route, httpx.Response(503, headers={"retry-after": DATE}), b"")

    assert failed.retry_after_ms == 9_750
