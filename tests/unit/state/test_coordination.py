"""What the coordinator publishes is read back as it was meant, and nonsense is not there."""

from __future__ import annotations

import pytest

from gateway.state.coordination import (
    Coordination,
    probe_name,
    read_coordination,
    write_probe,
)
from gateway.state.coordinator_store import CoordinatorStore, Fenced
from gateway.state.keys import Keys
from gateway.state.redis import EMBEDDED_URL, connect
from gateway.state.replies import CoordinatorReply
from gateway.state.scripts import folder, load_all
from gateway.state.store import Store

NOW = 1_700_000_000_000


def read(
    lease: dict[str, str] | None = None, published: dict[str, str] | None = None
) -> Coordination:
    flat = [[word for pair in (each or {}).items() for word in pair] for each in (lease, published)]
    return read_coordination(CoordinatorReply("done", NOW, *flat))


LEASE = {
    "holder": "c1",
    "epoch": "17",
    "until_ms": str(NOW + 5_000),
    "lease_ms": "10000",
    "about": "host=h version=1 config=abc",
}


def test_there_is_nobody_at_first() -> None:
    found = read()
    assert (found.holder, found.epoch, found.is_led, found.published) == ("", 0, False, {})


def test_holder_is_told_with_what_it_says_of_itself() -> None:
    found = read(LEASE)
    assert (found.holder, found.epoch, found.is_led) == ("c1", 17, True)
    assert found.about == {"host": "h", "version": "1", "config": "abc"}


@pytest.mark.parametrize("until", [str(NOW), str(NOW - 1), str(NOW + 10_001), "junk", ""])
def test_lease_that_has_run_out_or_cannot_be_leads_nobody(until: str) -> None:
    found = read({**LEASE, "until_ms": until})
    assert not found.is_led


def test_values_tell_their_age_and_probes_that_of_the_oldest() -> None:
    found = read(
        LEASE,
        {
            "tick": f"epoch=17 at_ms={NOW - 1_000} ended=0",
            "probe:http://a": f"epoch=17 at_ms={NOW - 2_000} healthy=1",
            "probe:http://b": f"epoch=16 at_ms={NOW - 9_000} healthy=0",
            "junk": "junk",
        },
    )
    assert found.ages_ms() == {"tick": 1_000, "probes": 9_000}


def test_probe_is_read_as_it_was_written() -> None:
    words = write_probe(healthy=False, status=503, error="a b", latency_ms=12, failures=4)
    name = probe_name("http://h:1/v 1")
    found = read(LEASE, {name: f"epoch=17 at_ms={NOW - 500} {words}"})
    (probe,) = found.probes().values()
    assert found.probes().keys() == {"http://h:1/v 1"}
    assert (probe.healthy, probe.status, probe.error) == (False, 503, "a b")
    assert (probe.latency_ms, probe.failures, probe.age_ms) == (12, 4, 500)


async def test_store_takes_the_lease_publishes_and_refuses_who_is_late(keys: Keys) -> None:
    runner = connect(EMBEDDED_URL, load_all(folder()), socket_timeout_s=5)
    leader = CoordinatorStore(runner, keys)
    first = await leader.lease("c1", epoch=0, lease_ms=1, about="host=h")
    assert first.is_held
    await leader.leave("c1")
    second = await leader.lease("c2", epoch=0, lease_ms=60_000, about="host=h")
    assert second.epoch > first.epoch
    await leader.publish(second.epoch, "tick", "ended=1")
    with pytest.raises(Fenced):
        await leader.publish(first.epoch, "tick", "ended=9")
    found = await Store(runner, keys).coordinator()
    assert (found.holder, found.is_led) == ("c2", True)
    assert found.published["tick"].words == {"ended": "1"}
    assert not (await leader.lease("c1", epoch=0, lease_ms=1, about="")).is_held
    await runner.close()
