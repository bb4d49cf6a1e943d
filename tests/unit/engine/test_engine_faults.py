"""Which faults the control surface takes, whom they strike and what they do to a stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.engine.faults import BadControl, Fault, Faults, spoil
from gateway.engine.generate import Frame

STREAM = [
    Frame(b'data: {"role": 1}\n\n'),
    Frame(b'data: {"tok": 0}\n\n', paced=True),
    Frame(b'data: {"tok": 1}\n\n', paced=True),
    Frame(b'data: {"finish": 1}\n\n'),
    Frame(b"data: [DONE]\n\n"),
]


def control(**fault: Any) -> bytes:
    return json.dumps({"fault": fault}).encode()


def strikes(faults: Faults, requests: int) -> list[bool]:
    return [faults.take() is not None for _ in range(requests)]


@pytest.mark.parametrize(
    ("fault", "struck"),
    [
        ({"status": 503}, [True] * 5),
        ({"status": 503, "count": 2}, [True, True, False, False, False]),
        ({"status": 503, "after": 3}, [False, False, False, True, True]),
        ({"status": 503, "after": 1, "count": 2}, [False, True, True, False, False]),
        ({"status": 503, "every": 2, "after": 1}, [False, False, True, False, True]),
        ({"status": 503, "every": 2, "count": 1}, [False, True, False, False, False]),
    ],
    ids=["until-cleared", "count", "after", "after-and-count", "every", "every-and-count"],
)
def test_fault_strikes_the_requests_it_names(fault: dict[str, Any], struck: list[bool]) -> None:
    faults = Faults()
    faults.set(control(**fault))

    assert strikes(faults, 5) == struck


def test_another_fault_replaces_the_one_before() -> None:
    faults = Faults()
    faults.set(control(status=503, count=1))
    faults.take()

    faults.set(control(silent=True, count=1))

    assert faults.take() == Fault(silent=True, count=1)
    assert faults.take() is None


def test_cleared_fault_strikes_nobody() -> None:
    faults = Faults()
    faults.set(control(empty=True))

    faults.clear()

    assert faults.take() is None


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "truncated"),
        (b"[]", "Expected `object`"),
        (b"{}", "missing required field `fault`"),
        (b'{"silent": true}', "unknown field `silent`"),
        (control(), "this body has none"),
        (control(silent=False), "this body has none"),
        (control(crash=True), "unknown field `crash`"),
        (control(status=99), ">= 200"),
        (control(status="503"), "Expected `int"),
        (control(status=503, delay_ms=5), "this body has status and delay_ms"),
        (control(delay_ms=5, body={}), "`body` belongs to a fault with `status`"),
        (control(empty=True, after_tokens=1), "`after_tokens` belongs"),
        (control(status=503, count=0), ">= 1"),
    ],
)
def test_bad_control_is_refused_and_changes_nothing(body: bytes, said: str) -> None:
    faults = Faults()
    faults.set(control(empty=True))

    with pytest.raises(BadControl, match=said):
        faults.set(body)

    assert faults.current == Fault(empty=True)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault(delay_ms=5), STREAM),
        (Fault(silent=True), []),
        (Fault(cut_after_tokens=0), STREAM[:1]),
        (Fault(cut_after_tokens=1), STREAM[:2]),
        (Fault(cut_after_tokens=9), STREAM[:3]),
        (Fault(no_done=True), STREAM[:4]),
        (Fault(error_frame={"code": "x"}), [Frame(b'data: {"error":{"code":"x"}}\n\n')]),
        (
            Fault(error_frame={"code": "x"}, after_tokens=1),
            [*STREAM[:2], Frame(b'data: {"error":{"code":"x"}}\n\n')],
        ),
    ],
    ids=["late", "silent", "cut-0", "cut-1", "cut-9", "no-done", "error-first", "error-later"],
)
def test_fault_shapes_the_stream(fault: Fault, expected: list[Frame]) -> None:
    assert spoil(STREAM, fault) == expected


def test_malformed_chunk_is_broken_in_its_place() -> None:
    spoilt = spoil(STREAM, Fault(malformed_chunk=2))

    assert [*spoilt[:1], *spoilt[2:]] == [*STREAM[:1], *STREAM[2:]]
    assert spoilt[1].data.endswith(b"\n\n")
    with pytest.raises(json.JSONDecodeError):
        json.loads(spoilt[1].data.removeprefix(b"data: "))
