"""The SSE decoder: fields, line ends, splits, bounds."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols.sse import Decoder, Event, EventTooLarge


def decode(*chunks: bytes) -> list[Event]:
    decoder = Decoder()
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return events + decoder.end()


lines = st.sampled_from(
    [
        b"",
        b"",
        b"data: a",
        b"data:b",
        b"data",
        b": ping",
        b"event: error",
        b"id: 1",
        b"data:  \xc3\xa9",
    ]
)
line_ends = st.sampled_from([b"\n", b"\r\n", b"\r"])
streams = st.lists(st.tuples(lines, line_ends)).map(
    lambda parts: b"".join(line + end for line, end in parts)
)


@given(stream=streams, cuts=st.lists(st.integers(0, 200)))
def test_any_split_of_a_stream_gives_the_same_events(stream: bytes, cuts: list[int]) -> None:
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    chunks = [stream[a:b] for a, b in itertools.pairwise(places)]
    by_byte = [stream[i : i + 1] for i in range(len(stream))]

    whole = decode(stream)

    assert decode(*chunks) == whole
    assert decode(*by_byte) == whole


@given(stream=streams)
def test_the_events_cut_to_their_sizes_say_the_same_and_leave_nothing(stream: bytes) -> None:
    events, start = decode(stream), 0

    for event in events:
        assert decode(stream[start : start + event.size]) == [event]
        start += event.size

    assert not stream[start:].strip(b"\r\n")


@given(stream=streams)
def test_every_data_line_is_in_an_event_in_order(stream: bytes) -> None:
    lines = [line.partition(b":") for line in stream.splitlines()]
    values = [value.removeprefix(b" ") for name, _, value in lines if name == b"data"]

    datas = [event.data for event in decode(stream) if event.data is not None]

    assert b"\n".join(datas) == b"\n".join(values)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
def test_data_lines_are_joined_whatever_ends_the_lines(end: bytes) -> None:
    stream = end.join([b"event: x", b"data: one", b"data:two", b"", b"data: three", b"", b""])

    events = decode(stream)

    assert [(event.name, event.data) for event in events] == [(b"x", b"one\ntwo"), (None, b"three")]


def test_a_comment_is_an_event_without_data() -> None:
    assert decode(b": ping\n\n") == [Event(size=8, data=None)]


def test_blank_lines_alone_are_no_event() -> None:
    assert decode(b"\n\r\n\n") == []


def test_a_field_without_a_colon_has_an_empty_value() -> None:
    assert [event.data for event in decode(b"data\n\n")] == [b""]


def test_a_byte_order_mark_is_passed_over() -> None:
    assert [event.data for event in decode(b"\xef\xbb", b"\xbfdata: x\n\n")] == [b"x"]


@pytest.mark.parametrize("tail", [b"data: last", b"data: last\n", b"data: last\r"])
def test_the_end_returns_an_unterminated_event(tail: bytes) -> None:
    events = decode(b"data: first\n\n", tail)

    assert events[-1] == Event(size=len(tail), data=b"last")


def test_an_event_above_the_bound_is_refused() -> None:
    decoder = Decoder(max_event_bytes=100)
    decoder.feed(b"data: " + b"x" * 92 + b"\n\n")

    decoder.feed(b"data: " + b"x" * 90)
    with pytest.raises(EventTooLarge):
        decoder.feed(b"x" * 10)


def test_a_large_event_in_small_chunks_takes_linear_time() -> None:
    decoder = Decoder()
    began = time.process_time()

    decoder.feed(b"data: ")
    for _ in range(60_000):
        decoder.feed(b"x" * 256)
    events = decoder.feed(b"\n\n")

    assert len(events) == 1
    assert time.process_time() - began < 2  # a rescan of the buffer would take minutes
