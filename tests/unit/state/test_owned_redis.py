"""The Redis that tests use: nothing is deleted on a server that has not been proven to be ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tests import redis_servers
from tests.redis_servers import MARKER, NAMESPACE, NotOurs, OwnServer, claim_db, given, missing


@pytest.fixture
def db(own_server: OwnServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(own_server().url, decode_responses=True) as client:
        yield client


def test_empty_db_is_marked_and_given_back_empty(own_server: OwnServer, db: redis.Redis) -> None:
    with given(own_server().url) as server:
        assert server.version >= (2, 8)

    assert db.dbsize() == 0


def test_db_with_foreign_keys_is_refused_and_left_as_it_is(db: redis.Redis) -> None:
    db.set("customers", 7)

    with pytest.raises(NotOurs, match="customers"):
        claim_db(db)

    assert db.keys() == ["customers"]


def test_marked_db_with_foreign_keys_is_refused_too(db: redis.Redis) -> None:
    claim_db(db)
    db.set("customers", 7)

    with pytest.raises(NotOurs):
        claim_db(db)
    assert db.get("customers") == "7"


def test_keys_like_ours_without_the_mark_are_not_ours(db: redis.Redis) -> None:
    db.set(f"{NAMESPACE}:x", 1)

    with pytest.raises(NotOurs):
        claim_db(db)


def test_what_an_earlier_run_left_is_cleared(db: redis.Redis) -> None:
    claim_db(db)
    db.set(f"{NAMESPACE}:x", 1)

    claim_db(db)

    assert db.keys() == [MARKER]


def test_server_of_our_own_runs_in_the_process_that_we_started(own_server: OwnServer) -> None:
    assert own_server("maxmemory 100mb").is_private


def test_docker_without_an_engine_is_no_docker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert not redis_servers.docker_answers()


@pytest.mark.parametrize(
    ("ci", "outcome"),
    [("", pytest.skip.Exception), ("true", pytest.fail.Exception), ("1", pytest.fail.Exception)],
)
def test_what_is_missing_is_skipped_here_and_fails_in_ci(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)

    with pytest.raises(outcome, match="no Redis"):
        missing("no Redis")
