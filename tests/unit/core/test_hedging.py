"""When a second endpoint is asked, and which: as the reference decides at each of its moments."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_routewise.core import hedging as reference
from llm_routewise.core.latency_profile import RollingLatencyProfile

from coordinator.learning import quantiles
from gateway.core.hedging import Backup, Hedge, plan_hedge, success
from gateway.core.profile import Speed

SLO_MS = 3000.0


def speed(first_outputs_ms: Sequence[int], errors: int = 0, **values: object) -> Speed:
    ordered = sorted(first_outputs_ms)
    usual = {"mean_ms": sum(ordered) / len(ordered), "source": "profile"} if ordered else {}
    return Speed(
        **{"mean_ms": 0.0, "source": "history_prior", **usual, **values},  # type: ignore[arg-type]
        count=len(ordered),
        errors=errors,
        cdf_ms=quantiles(ordered),
    )


def backup(location: str, speed: Speed, cost_usd: float = 1.0) -> Backup:
    return Backup(location=location, speed=speed, cost_usd=cost_usd)


UNIFORM = range(100, 5051, 50)
QUICK = speed(range(100, 596, 5))


def test_the_measured_case_of_the_reference() -> None:
    assert plan_hedge(speed(UNIFORM), [backup("b", QUICK)], SLO_MS) == Hedge(
        after_ms=2400, locations=["b"]
    )


def test_a_backup_that_is_too_slow_at_any_moment_is_not_asked() -> None:
    assert plan_hedge(speed(UNIFORM), [backup("b", speed(UNIFORM))], SLO_MS) is None


def test_of_those_that_are_good_enough_the_cheapest_comes_first() -> None:
    quick = [backup("dear", QUICK, 3), backup("cheap", QUICK, 1), backup("middle", QUICK, 2)]
    slow = backup("slow", speed(UNIFORM), 0)

    found = plan_hedge(speed(UNIFORM), [*quick, slow], SLO_MS)

    assert found is not None
    assert found.locations == ["cheap", "middle", "dear"]


def test_a_cheaper_one_that_is_good_enough_comes_before_one_that_is_better() -> None:
    better, good_enough = speed([100] * 200), speed([100] * 199 + [2900])

    found = plan_hedge(
        speed(UNIFORM), [backup("dear", better, 2), backup("cheap", good_enough, 1)], SLO_MS
    )

    assert found == Hedge(after_ms=2700, locations=["cheap", "dear"])


def test_a_cheaper_backup_does_not_bring_the_moment_forward() -> None:
    slower = backup("cheap", speed(range(1000, 2000, 10)), 1)

    found = plan_hedge(speed(UNIFORM), [slower, backup("dear", QUICK, 9)], SLO_MS)

    assert found == Hedge(after_ms=2400, locations=["dear"])


def test_a_primary_that_has_never_taken_so_long_is_not_counted_on_any_more() -> None:
    never_late = speed([100] * 101)

    assert success(never_late, QUICK, elapsed_ms=2500, slo_ms=SLO_MS) == QUICK.share_within(495)


def test_a_failure_is_an_output_that_never_comes() -> None:
    assert speed([100] * 9, errors=1).share_within(1e9) == 0.9
    assert plan_hedge(speed(UNIFORM), [backup("b", speed([100] * 95, 5))], SLO_MS) is None


@pytest.mark.parametrize(("of_primary", "of_backup"), [(4, 101), (101, 4), (0, 101), (101, 0)])
def test_nothing_is_planned_by_fewer_than_five_first_outputs(
    of_primary: int, of_backup: int
) -> None:
    primary, quick = speed([5000] * of_primary), speed([100] * of_backup)

    assert plan_hedge(primary, [backup("b", quick)], SLO_MS) is None
    assert plan_hedge(None, [backup("b", QUICK)], SLO_MS) is None


# As many as the hundredths tell all of.
COUNTS = st.sampled_from([5, 6, 11, 21, 26, 51, 101])
EACH = COUNTS.flatmap(lambda count: st.lists(st.integers(1, 4000), min_size=count, max_size=count))
SEEN = st.tuples(EACH, st.integers(0, 3))
QUICKER = COUNTS.flatmap(
    lambda count: st.lists(st.integers(1, 900), min_size=count, max_size=count)
)
BACKUPS = st.lists(
    st.tuples(QUICKER, st.sampled_from([0, 0, 0, 1]), st.integers(1, 3)), min_size=1, max_size=4
)
SLOS_MS = st.integers(40, 4000).map(lambda ms: ms + 0.37)
"""No first output comes just when something is decided."""


def profile(first_outputs_ms: Sequence[int], errors: int) -> RollingLatencyProfile:
    kept = RollingLatencyProfile()
    for ms in first_outputs_ms:
        kept.add_sample(0.0, ms)
    for _ in range(errors):
        kept.add_error(0.0, "timeout")
    return kept


def expected(
    primary: RollingLatencyProfile,
    backups: Sequence[tuple[RollingLatencyProfile, int]],
    slo_ms: float,
) -> tuple[float, str] | None:
    """What the reference does, asked at each of its moments in turn: the last one that is good."""

    def at(elapsed_ms: float) -> reference.BackupCandidate[str] | None:
        candidates = [
            reference.BackupCandidate(
                provider=f"b{number}",
                success_probability=reference.combined_success_probability(
                    lambda ms: primary.cdf_counting_errors(ms, 0.0) or 0.0,
                    lambda ms, one=one: one.cdf_counting_errors(ms, 0.0) or 0.0,  # type: ignore[misc]
                    elapsed_ms=elapsed_ms,
                    slo_ms=slo_ms,
                    dispatch_overhead_ms=reference.DISPATCH_OVERHEAD_MS,
                ),
                marginal_cost=cost,
                true_mean_ms=one.mean_with_errors(0.0, error_penalty_ms=60_000) or 0.0,
            )
            for number, (one, cost) in enumerate(backups)
        ]
        return reference.select_probability_backup(candidates)

    moments_ms = [s * 1000 for s in reference.hedge_checkpoints_for_slo(slo_ms)]
    for number, elapsed_ms in enumerate(moments_ms):
        chosen = at(elapsed_ms)
        if chosen and not any(at(later_ms) for later_ms in moments_ms[number + 1 :]):
            return elapsed_ms, chosen.provider
    return None


@given(primary=SEEN, backups=BACKUPS, slo_ms=SLOS_MS)
def test_what_is_planned_beforehand_is_what_the_reference_decides_as_time_goes_by(
    primary: tuple[list[int], int],
    backups: list[tuple[list[int], int, int]],
    slo_ms: float,
) -> None:
    def penalised_ms(ms: list[int], errors: int) -> float:
        return (sum(ms) + errors * 60_000) / (len(ms) + errors)

    found = plan_hedge(
        speed(*primary),
        [
            backup(f"b{n}", speed(ms, errors, mean_ms=penalised_ms(ms, errors)), cost)
            for n, (ms, errors, cost) in enumerate(backups)
        ],
        slo_ms,
    )

    wanted = expected(profile(*primary), [(profile(ms, e), c) for ms, e, c in backups], slo_ms)
    assert (found is None) == (wanted is None)
    if found and wanted:
        assert (found.after_ms, found.locations[0]) == (pytest.approx(wanted[0]), wanted[1])
