"""keys.yaml: limits of keys, users and teams, and how they are written again."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gateway.config.keys_schema import Limited
from gateway.config.limits import build_limits, write_limits
from gateway.config.problems import Problems
from gateway.config.result import Config, KeyRecord, User
from gateway.config.validate import read
from gateway.core.limits import Limit, Limits

MODELS = """
models:
  - {id: m, name: M, provider: vllm, base_url: "http://localhost:1", aliases: [x]}
  - {id: n, name: N, provider: vllm, base_url: "http://localhost:2"}
"""
DAY_MS = 86_400_000


def config(load_texts, keys: str, **env: str) -> Config:
    loaded = load_texts(MODELS, keys=keys, env=env)
    assert loaded.problems == ()
    return loaded.config


def only_key(load_texts, fields: str, **env: str) -> KeyRecord:
    (record,) = config(load_texts, f"keys: [{{id: a, key: abcdefgh, {fields}}}]", **env).keys
    return record


def limits(**written: object) -> Limits:
    problems = Problems("")
    entry = read(written, Limited, "", problems)
    assert entry
    built = build_limits(entry, "", problems)
    assert not problems.found
    return built


def test_limits_are_numbers_or_say_that_they_are_shadows(load_texts) -> None:
    record = only_key(
        load_texts,
        "rpm: 10, tpm: {limit: 20}, max_parallel_requests: {limit: 3, mode: shadow}, "
        "max_budget: {limit: 0.1, mode: enforce}, budget_duration: 30d",
    )
    assert record.limits == Limits(
        rpm=Limit(10),
        tpm=Limit(20),
        max_parallel_requests=Limit(3, is_shadow=True),
        max_budget=Limit(100_000_000),
        budget_duration_ms=30 * DAY_MS,
    )


def test_a_minute_slides_unless_it_is_fixed(load_texts) -> None:
    record = only_key(
        load_texts, "rpm: {limit: 1, window: fixed}, tpm: {limit: 2, window: sliding}"
    )
    assert record.limits == Limits(rpm=Limit(1, is_fixed=True), tpm=Limit(2))


def test_without_limits_there_are_none(load_texts) -> None:
    record = only_key(load_texts, "role: pro")
    assert record.limits.is_empty
    assert (record.user, record.team, record.model_limits) == (None, None, {})
    assert record.expires_ms is None


def test_limits_may_come_from_variables(load_texts) -> None:
    record = only_key(
        load_texts, 'rpm: "${R}", max_budget: "${B}", tpm: {limit: "${R}"}', R="7", B="1.5"
    )
    assert record.limits == Limits(rpm=Limit(7), tpm=Limit(7), max_budget=Limit(1_500_000_000))


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h", 3_600_000),
        ("1d", DAY_MS),
        ("365d", 365 * DAY_MS),
        ("31536000s", 365 * DAY_MS),
        ("null", 0),
    ],
)
def test_budgets_are_whole_again_after_their_duration(load_texts, written: str, ms: int) -> None:
    record = only_key(load_texts, f"max_budget: 1, budget_duration: {written}")
    assert record.limits.budget_duration_ms == ms


@pytest.mark.parametrize("dollars", [0.000001, 0.1, 1 / 3, 1234.56, 1_000_000])
def test_budgets_are_exact_to_a_billionth_of_a_dollar(dollars: float) -> None:
    (most,) = (limits(max_budget=dollars).max_budget,)
    assert most
    assert most.most == round(dollars * 1_000_000_000) <= 10**15


def test_limits_on_models_are_known_by_the_models_id(load_texts) -> None:
    record = only_key(load_texts, "model_limits: {x: {rpm: 1}, n: {tpm: {limit: 2, mode: shadow}}}")
    assert record.model_limits == {
        "m": Limits(rpm=Limit(1)),
        "n": Limits(tpm=Limit(2, is_shadow=True)),
    }


@pytest.mark.parametrize(
    "written", ["2027-01-31T00:00:00Z", "'2027-01-31T00:00:00Z'", "2027-01-31T01:00:00+01:00"]
)
def test_keys_expire_at_a_moment_quoted_or_not(load_texts, written: str) -> None:
    record = only_key(load_texts, f"expires: {written}")
    assert record.expires_ms == datetime(2027, 1, 31, tzinfo=UTC).timestamp() * 1000


def test_keys_name_users_and_teams(load_texts) -> None:
    found = config(
        load_texts,
        """
        keys:
          - {id: a, key: abcdefgh, user: alice}
          - {id: b, key: ijklmnop, user: alice, team: platform}
          - {id: c, key: qrstuvwx, user: bob}
          - {id: d, key: yzabcdef, team: platform}
        users:
          - {id: alice, team: platform, rpm: 5}
          - {id: bob}
        teams:
          - {id: platform, max_budget: 100, budget_duration: 1d}
        """,
    )
    assert [(key.user, key.team) for key in found.keys] == [
        ("alice", None),
        ("alice", "platform"),
        ("bob", None),
        (None, "platform"),
    ]
    assert found.users == {
        "alice": User(team="platform", limits=Limits(rpm=Limit(5))),
        "bob": User(),
    }
    assert found.teams == {
        "platform": Limits(max_budget=Limit(100 * 10**9), budget_duration_ms=DAY_MS)
    }


def test_limits_enter_the_digest(load_texts) -> None:
    one, two, again = (
        config(load_texts, f"keys: []\nteams: [{{id: t, rpm: {rpm}}}]").digest for rpm in (1, 2, 1)
    )
    assert one == again != two


class TestAnUnsetVariable:
    KEYS = """
    keys:
      - {id: a, key: abcdefgh, rpm: "${NOPE}"}
      - {id: b, key: ijklmnop}
    """

    def test_in_a_keys_limit_leaves_the_key_out_of_what_is_served(self, load_texts) -> None:
        loaded = load_texts(MODELS, keys=self.KEYS, serving=True)
        assert [key.id for key in loaded.config.keys] == ["b"]
        (warning,) = loaded.warnings
        assert (warning.path, "this key is refused" in warning.message) == ("keys[0].rpm", True)

    @pytest.mark.parametrize("kind", ["users", "teams"])
    def test_in_a_limit_of_others_is_an_error_even_when_serving(
        self, load_texts, kind: str
    ) -> None:
        keys = f'keys: []\n{kind}: [{{id: t, rpm: "${{NOPE}}"}}]'
        loaded = load_texts(MODELS, keys=keys, serving=True)
        assert [problem.path for problem in loaded.errors] == [f"{kind}[0].rpm"]


@pytest.mark.parametrize(
    "written",
    [
        {},
        {"rpm": 1, "tpm": 2, "max_parallel_requests": 3},
        {"rpm": {"limit": 1, "mode": "shadow"}},
        {"rpm": {"limit": 1, "window": "fixed"}},
        {"tpm": {"limit": 1, "mode": "shadow", "window": "fixed"}},
        {"max_budget": 0.25},
        {"max_budget": {"limit": 1000000.0, "mode": "shadow"}, "budget_duration": "90s"},
        {"max_budget": 0.1, "budget_duration": "7d"},
        {"max_budget": 0.1, "budget_duration": "36h"},
    ],
    ids=str,
)
def test_limits_are_written_as_they_were(written: dict[str, object]) -> None:
    assert write_limits(limits(**written)) == written


def test_durations_are_written_in_the_largest_unit_that_fits() -> None:
    assert write_limits(limits(max_budget=1, budget_duration="48h"))["budget_duration"] == "2d"


@pytest.mark.parametrize("text", ["30d\n", "²d", "3", "1w", "1.5d", "", " 1d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    problems = Problems("")
    read({"max_budget": 1, "budget_duration": text}, Limited, "", problems)
    (problem,) = problems.found
    assert problem.path == "budget_duration"
