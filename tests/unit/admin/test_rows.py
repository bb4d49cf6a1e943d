"""Rows are anybody's to edit."""

from __future__ import annotations

import pytest

from gateway.admin.rows import plain, read_row


def test_absent_fields_are_a_healthy_endpoint() -> None:
    row = read_row({})
    assert (row.circuit, row.availability, row.last_status) == ("closed", 1.0, None)
    assert (row.failures, row.inflight, row.prefill_tokens, row.elephants) == (0, 0, 0, 0)
    assert row.unreachable_from == {}
    assert (row.cooldown, row.limits) == (None, ())


@pytest.mark.parametrize("typed", ["junk", "", "nan", "inf", "1e999"])
def test_nonsense_reads_as_absent(typed: str) -> None:
    names = ("circuit", "availability", "failures", "last_status", "auth_rejections", "inflight")
    others = ("prefill_tokens", "elephants", "conn")
    assert read_row(dict.fromkeys((*names, *others), typed)) == read_row({})


def test_what_the_scripts_write_is_read() -> None:
    row = read_row(
        {
            "circuit": "half_open",
            "availability": "0.72900000000000009",
            "failures": "3",
            "last_status": "503",
            "auth_rejections": "2",
            "inflight": "7",
            "prefill_tokens": "52000",
            "elephants": "1",
            "conn": "r1:2:1700000000000 r2:0:1700000000000",
        }
    )
    assert (row.circuit, row.availability, row.failures) == ("half_open", 0.729, 3)
    assert (row.last_status, row.auth_rejections, row.inflight) == (503, 2, 7)
    assert (row.prefill_tokens, row.elephants) == (52000, 1)
    assert row.unreachable_from == {"r1": 2}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("0.5", 0.5),
        ("-3", -3),
        ("open", "open"),
        ("", ""),
        ("nan", "nan"),
        ("1e999",) * 2,
    ],
)
def test_text_is_a_number_where_it_is_one(text: str, value: object) -> None:
    found = plain(text)
    assert (found, type(found)) == (value, type(value))
