"""What is kept of how attempts end, where the model's strategy learns from it."""

from __future__ import annotations

import asyncio

import pytest

from gateway.admission.claims import Claim, Claims
from gateway.admission.outcomes import note_cut_off, note_failure, note_success
from gateway.admission.settlement import Settlement
from gateway.core.outcome import Outcome
from gateway.core.request import Usage
from gateway.state.outcomes import Ended, read_ended, write_ended
from gateway.state.policy import Policy
from tests.fakes.builders import route
from tests.fakes.failure import Failed
from tests.fakes.rig import admission_over
from tests.fakes.store import MemoryStore


def claim(**values: object) -> Claim:
    usual = {"outcomes_kept": 1000, "sent_s": 0.0}
    return Claim(id="r.1", route=route("a"), policy=Policy(), dropped={}, **{**usual, **values})


def kept(noted: str) -> Ended | None:
    keep, _, words = noted.partition(" ")
    assert keep == "1000"
    return read_ended("7-0", words)


def test_of_a_stream_its_first_output_and_its_tokens() -> None:
    ended = claim(ttft_ms=250, usage=Usage(prompt_tokens=9, completion_tokens=4))

    assert kept(note_success(ended)) == Ended(
        location="a", is_ok=True, at_ms=7, ttft_ms=250, prompt_tokens=9, output_tokens=4
    )


def test_of_a_whole_answer_the_time_that_it_took() -> None:
    found = kept(note_success(claim()))

    assert found
    assert found.ttft_ms > 0


@pytest.mark.parametrize("outcome", [Outcome.FAILURE, Outcome.AUTH, Outcome.CONNECT])
def test_of_a_failure_that_it_was_one(outcome: Outcome) -> None:
    assert kept(note_failure(claim(ttft_ms=9), Failed(outcome=outcome))) == Ended(
        location="a", is_ok=False, at_ms=7
    )


def test_of_a_mistake_of_the_clients_nothing() -> None:
    assert note_failure(claim(), Failed(outcome=Outcome.NEUTRAL)) == ""


def test_of_one_that_was_cut_off_its_first_output_if_it_had_one() -> None:
    assert kept(note_cut_off(claim(ttft_ms=250))) == Ended(
        location="a", is_ok=True, at_ms=7, ttft_ms=250
    )
    assert note_cut_off(claim()) == ""


def test_of_other_models_nothing() -> None:
    other = claim(outcomes_kept=0, ttft_ms=9)

    assert note_success(other) == note_failure(other, Failed()) == note_cut_off(other) == ""


@pytest.mark.parametrize(
    "ended",
    [
        Ended(location="a b/ü=:%", is_ok=True, at_ms=7, ttft_ms=1, prompt_tokens=2),
        Ended(location="a", is_ok=False, at_ms=7, is_probe=True),
    ],
)
def test_it_is_read_as_it_was_written(ended: Ended) -> None:
    assert read_ended("7-3", write_ended(ended)) == ended


@pytest.mark.parametrize(
    "words", ["", "x", "at=a how=so ttft_ms=1 prompt=1 output=1", "at=a how=ok ttft_ms=-1"]
)
def test_nonsense_is_none(words: str) -> None:
    assert read_ended("7-0", words) is None
    assert read_ended("x", write_ended(Ended(location="a", is_ok=True))) is None


async def test_how_fast_the_endpoint_prefills_is_not_learned_as_well() -> None:
    store, claims = MemoryStore(), Claims("r")
    settlement = Settlement(store, claims, lease_ms=1000)  # type: ignore[arg-type]
    admission = admission_over(store, claims, settlement)
    held = claim()
    claims.add(held)
    store.standing[held.id] = "a"
    await asyncio.sleep(0.002)
    admission.first_token(held)
    await settlement.drain(1)

    assert held.ttft_ms > 0
    assert store.ttfts_ms == [0]
