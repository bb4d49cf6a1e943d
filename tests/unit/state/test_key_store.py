"""The store of made keys: on a real Redis and on the embedded store, and what a record says."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gateway.config.result import KeyRecord
from gateway.core.limits import Limit, Limits
from gateway.core.route import ROLES
from gateway.state.key_store import KeyStore, MadeKey, read_record, write_record
from gateway.state.keys import Keys
from gateway.state.redis import EMBEDDED_URL, connect
from gateway.state.scripts import folder, load_all

SCRIPTS = load_all(folder())
DIGEST = "5f" * 32
ALICE = MadeKey(
    record=KeyRecord(
        id="team@x/alice",
        key_sha256=DIGEST,
        role="internal",
        models=frozenset({"org/m:1", "a b,c"}),
        user="alice",
        team="platform",
        limits=Limits(
            rpm=Limit(10, is_fixed=True),
            tpm=Limit(20, is_shadow=True, is_fixed=True),
            max_parallel_requests=Limit(3),
            max_budget=Limit(10**15),
            budget_duration_ms=86_400_000,
        ),
        model_limits={"org/m:1": Limits(rpm=Limit(1)), "a=b c": Limits(tpm=Limit(2, True))},
        expires_ms=1_800_000_000_000,
    ),
    made_ms=1_700_000_000_000,
    made_by="ip:10.0.0.0/8 root",
)


@pytest.fixture(params=["redis", "embedded"])
async def store(request: pytest.FixtureRequest, keys: Keys) -> AsyncIterator[KeyStore]:
    redis = request.param == "redis"
    url = request.getfixturevalue("redis_server").url if redis else EMBEDDED_URL
    runner = connect(url, SCRIPTS, socket_timeout_s=5.0)
    yield KeyStore(runner, keys)
    await runner.close()


def key(id: str, digest: str = DIGEST, **values: object) -> MadeKey:
    return MadeKey(record=KeyRecord(id=id, key_sha256=digest, **values))


def kept(made: MadeKey) -> MadeKey:
    """As it is read again."""
    return structs.replace(made, text=write_record(made))


async def test_a_key_is_kept_found_changed_and_revoked(store: KeyStore) -> None:
    assert await store.make(ALICE)
    found = await store.of_digest(DIGEST)
    assert found == await store.of_id("team@x/alice") == kept(ALICE)
    assert await store.all() == [found]

    changed = structs.replace(found, record=structs.replace(found.record, role="free"))
    assert await store.change(found, changed) == "done"
    assert await store.change(found, ALICE) == "changed"
    assert await store.of_digest(DIGEST) == kept(changed)

    assert await store.revoke("team@x/alice")
    assert await store.of_digest(DIGEST) is None
    assert not await store.revoke("team@x/alice")
    assert await store.change(found, changed) == "gone"


async def test_no_two_keys_have_one_id(store: KeyStore) -> None:
    assert await store.make(key("a"))
    assert not await store.make(key("a", "07" * 32))
    assert (await store.of_id("a")).record.key_sha256 == DIGEST  # type: ignore[union-attr]


async def test_a_record_with_a_later_versions_word_can_be_changed(store: KeyStore) -> None:
    await store.make(key("a"))
    run, keys = store._runner.run, store._keys
    found = await store.of_id("a")
    assert found
    later = found.text + " later=1"
    await run("key_change", keys, {"id": "a", "before": found.text, "after": later})

    found = await store.of_id("a")
    assert found
    assert await store.change(found, key("a", role="pro")) == "done"


async def test_all_are_listed_however_many_there_are(store: KeyStore) -> None:
    made = [key(f"k{number}", f"{number:064x}") for number in range(250)]
    for one in made:
        await store.make(one)

    listed = await store.all()

    assert sorted(one.record.id for one in listed) == sorted(one.record.id for one in made)


def test_a_record_is_text_that_people_can_read() -> None:
    assert write_record(ALICE) == (
        "id=team@x/alice role=internal models=a%20b%2Cc,org/m:1 user=alice team=platform "
        "rpm=10:fixed tpm=20:fixed:shadow max_parallel_requests=3 max_budget=1000000000000000 "
        "budget_duration_ms=86400000 tpm:a%3Db%20c=2:shadow rpm:org/m:1=1 "
        "expires_ms=1800000000000 made_ms=1700000000000 made_by=ip:10.0.0.0/8%20root"
    )
    assert write_record(key("a")) == "id=a role=free made_ms=0 made_by="


limit = st.builds(Limit, st.integers(1, 10**15), st.booleans(), st.booleans())
limits = st.builds(
    Limits,
    rpm=st.none() | limit,
    tpm=st.none() | limit,
    max_parallel_requests=st.none() | limit,
    max_budget=limit,
    budget_duration_ms=st.sampled_from([0, 1000, 86_400_000]),
)
holder = st.from_regex(r"[A-Za-z0-9._@/-]{1,20}", fullmatch=True)
models = st.text(min_size=1, max_size=10)
made = st.builds(
    MadeKey,
    record=st.builds(
        KeyRecord,
        id=holder,
        key_sha256=st.just(DIGEST),
        role=st.sampled_from(ROLES),
        models=st.none() | st.frozensets(models, max_size=3),
        user=st.none() | holder,
        team=st.none() | holder,
        limits=limits,
        model_limits=st.dictionaries(models, limits, max_size=3),
        expires_ms=st.none() | st.integers(0, 253_402_300_799_999),
    ),
    made_ms=st.integers(0, 253_402_300_799_999),
    made_by=holder,
)


@given(made)
def test_a_record_is_read_as_it_was_written(one: MadeKey) -> None:
    assert read_record(DIGEST, write_record(one)) == kept(one)


def test_words_of_later_versions_are_passed_over() -> None:
    found = read_record(DIGEST, "id=a role=pro later=1 nonsense tpm_daily:m=5")
    assert found
    assert found.record == KeyRecord(id="a", key_sha256=DIGEST, role="pro")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "id=a",
        "role=free",
        "id=a role=root",
        "id=a role=free rpm=",
        "id=a role=free rpm=0",
        "id=a role=free rpm=-1",
        "id=a role=free rpm=1.5",
        "id=a role=free rpm=1e9",
        "id=a role=free rpm=10:shade",
        "id=a role=free rpm = 10",
        "id=a role=free rpm:m=x",
        "id=a role=free max_budget=1 budget_duration_ms=soon",
        "id=a role=free expires_ms=tomorrow",
        "id=a role=free expires_ms=253402300800000",
        "id=a role=free expires_ms=",
        "id=a role=free rpm=٣",
    ],
)
def test_nonsense_is_no_key_and_is_told_of(text: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="concord")
    assert read_record(DIGEST, text) is None
    assert [record.getMessage() for record in caplog.records] == ["made_key_unreadable"]
