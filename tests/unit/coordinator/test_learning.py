"""What is learned from outcomes: speeds, lengths of answers, and what requests cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_routewise.core import LatencyBeliefs, RollingLatencyProfile

from coordinator.learning import ERROR_MS, Learner, Mean, envelope_of, percentile, quantiles
from gateway.config.routewise_schema import RoutewiseParams
from gateway.core.prices import Prices
from gateway.core.profile import Probed, Profile, size_of
from gateway.state.outcomes import Ended
from tests.fakes.builders import model, route

BEGUN_MS = 1_700_000_000_000
FAST = Prices.of({"prompt": "3", "completion": "12"})
CHEAP = Prices.of({"prompt": "0.1", "completion": "0.4"})


class Learning:
    """A learner of the model `m` on `a` and `b`, told of outcomes second by second."""

    def __init__(self, **params: object) -> None:
        routes = route("a", prices=FAST), route("b", prices=CHEAP)
        self.learner = Learner(model(*routes), RoutewiseParams(**params), BEGUN_MS)
        self.now_ms = BEGUN_MS

    def ends(self, at: str = "a", *, is_ok: bool = True, after_s: float = 1, **what: object):
        self.now_ms += round(after_s * 1000)
        ended = Ended(location=at, is_ok=is_ok, at_ms=self.now_ms, **what)
        assert self.learner.note(f"{self.now_ms}-0", ended)
        return self

    def profile(self, **how: object) -> Profile:
        return self.learner.profile(self.now_ms, **{"all_output": self.learner.output, **how})


class TestSpeed:
    def test_is_the_mean_of_first_outputs(self) -> None:
        speed = Learning().ends(ttft_ms=200).ends(ttft_ms=400).profile().speeds["a"]

        assert (speed.mean_ms, speed.source, speed.count, speed.errors) == (300, "profile", 2, 0)

    def test_counts_a_failure_as_a_minute(self) -> None:
        learning = Learning()
        for _ in range(5):
            learning.ends(ttft_ms=210)
        for _ in range(2):
            learning.ends(is_ok=False)
        speed = learning.profile().speeds["a"]

        assert speed.mean_ms == pytest.approx(17292.9, abs=0.05)
        assert (speed.count, speed.errors) == (5, 2)

    def test_is_of_a_window(self) -> None:
        learning = Learning(latency_window_sec=900).ends(ttft_ms=1000).ends(ttft_ms=100)

        learning.now_ms = BEGUN_MS + 1_000 + 900_000
        assert learning.profile().speeds["a"].mean_ms == 550
        learning.now_ms += 1
        assert learning.profile().speeds["a"].mean_ms == 100

    def test_is_of_so_many_at_the_most(self) -> None:
        learning = Learning(latency_max_samples_per_profile=2)
        for ms in (1000, 100, 200):
            learning.ends(ttft_ms=ms)

        assert learning.profile().speeds["a"].mean_ms == 150

    def test_of_what_the_window_has_nothing_of_is_as_it_was_before(self) -> None:
        learning = Learning()
        learning.now_ms -= 3_600_000  # stored before this coordinator began
        learning.ends(ttft_ms=300).ends(ttft_ms=500)
        learning.now_ms = BEGUN_MS + 1_000
        speed = learning.profile().speeds["a"]

        assert (speed.mean_ms, speed.source) == (400, "history_prior")

    def test_and_from_then_on_half_of_each_new_one(self) -> None:
        learning = Learning()
        learning.now_ms -= 3_600_000
        learning.ends(ttft_ms=400)
        learning.now_ms = BEGUN_MS
        learning.ends(ttft_ms=200).ends(ttft_ms=100)
        learning.now_ms += 1_000_000

        assert learning.profile().speeds["a"].mean_ms == 200

    def test_forgets_what_is_older_than_the_history(self) -> None:
        learning = Learning()
        learning.now_ms -= 86_402_000
        learning.ends(ttft_ms=300)
        learning.now_ms = BEGUN_MS

        assert learning.profile().speeds == {}

    def test_is_of_each_endpoint_for_itself_and_of_configured_ones_alone(self) -> None:
        profile = Learning().ends("b", ttft_ms=5).ends("gone", ttft_ms=7).profile()

        assert {at: speed.mean_ms for at, speed in profile.speeds.items()} == {"b": 5}

    @given(
        st.lists(
            st.tuples(st.floats(0.1, 400), st.one_of(st.none(), st.integers(1, 9000))),
            min_size=1,
            max_size=30,
        )
    )
    def test_is_what_the_library_believes(self, seen: list[tuple[float, int | None]]) -> None:
        learning, beliefs = Learning(), RollingLatencyProfile(window_sec=900)
        for after_s, ms in seen:
            learning.ends(is_ok=ms is not None, after_s=after_s, ttft_ms=ms or 0)
            if ms is None:
                beliefs.add_error(learning.now_ms / 1000, "error")
            else:
                beliefs.add_sample(learning.now_ms / 1000, ms)
        expected = beliefs.mean_with_errors(learning.now_ms / 1000, error_penalty_ms=ERROR_MS)
        speed = learning.profile().speeds["a"]

        assert speed.mean_ms == pytest.approx(expected)
        assert LatencyBeliefs().error_penalty_ms == ERROR_MS

    def test_has_the_hundredths_of_first_outputs(self) -> None:
        learning = Learning()
        for ms in (300, 100, 200):
            learning.ends(ttft_ms=ms)
        cdf_ms = learning.ends(is_ok=False).profile().speeds["a"].cdf_ms

        assert (len(cdf_ms), cdf_ms[0], cdf_ms[50], cdf_ms[100]) == (101, 100, 200, 300)


class TestLengthOfAnswers:
    def test_is_known_by_size_of_prompt_model_and_all(self) -> None:
        learning = Learning()
        for _ in range(3):
            learning.ends(ttft_ms=1, prompt_tokens=1000, output_tokens=60)
        learning.ends(ttft_ms=1, prompt_tokens=10, output_tokens=20)
        profile = learning.profile()

        assert profile.output_tokens(600, 512) == 60
        assert profile.output_tokens(10, 512) == 50  # one of its size is not enough
        assert profile.output_tokens(5_000, 512) == 50

    def test_of_all_models_stands_in_for_a_new_one(self) -> None:
        profile = Learning().profile(all_output=Mean(count=3, total=30))

        assert profile.output_tokens(10, 512) == 10

    def test_is_the_default_while_too_few_are_known(self) -> None:
        learning = Learning()
        for _ in range(2):
            learning.ends(ttft_ms=1, prompt_tokens=10, output_tokens=20)

        assert learning.profile().output_tokens(10, 512) == 512

    @pytest.mark.parametrize(
        ("tokens", "size"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (1023, 9), (1024, 10)]
    )
    def test_goes_by_powers_of_two(self, tokens: int, size: int) -> None:
        assert size_of(tokens) == size


class TestEnvelope:
    def test_is_of_what_the_cheapest_route_would_have_cost(self) -> None:
        learning = Learning()
        for tokens in (1000, 2000, 3000):
            learning.ends(ttft_ms=1, prompt_tokens=tokens, output_tokens=500)
        found = learning.profile().envelope

        assert found is not None
        assert found.count == 3
        assert found.lower == pytest.approx(0.0003 + 0.2 * 0.0001)
        assert found.upper == pytest.approx(0.0005 - 0.2 * 0.0001)

    def test_is_of_a_window(self) -> None:
        learning = Learning(envelope_window_hours=1)
        learning.ends(ttft_ms=1, prompt_tokens=1000, output_tokens=500)
        learning.now_ms += 3_600_001

        assert learning.profile().envelope is None

    @pytest.mark.parametrize("known", [{"prompt_tokens": 9}, {"output_tokens": 9}, {}])
    def test_takes_no_heed_of_requests_whose_tokens_are_not_known(
        self, known: dict[str, int]
    ) -> None:
        assert Learning().ends(ttft_ms=1, **known).profile().envelope is None

    def test_is_lent_by_another_model_while_there_is_none(self) -> None:
        donor = Learning().ends(ttft_ms=1, prompt_tokens=1000, output_tokens=500)
        profile = Learning().profile(donors=[Learning().learner, donor.learner])

        assert profile.envelope == donor.profile().envelope

    @pytest.mark.parametrize(
        ("costs", "least", "expected"),
        [
            ([], 1, None),
            ([1.0], 2, None),
            ([0.0, 0.0], 1, None),
            ([2.0], 1, (0.002, 2.0)),
            ([2.0, 2.0], 1, (0.002, 2.0)),
            ([float(n) for n in range(1, 12)], 1, (2.0, 10.0)),
        ],
    )
    def test_spans_two_percentiles(
        self, costs: list[float], least: int, expected: tuple[float, float] | None
    ) -> None:
        found = envelope_of(costs, least=least, lower=10, upper=90)

        assert (found and (found.lower, found.upper)) == expected


def test_an_outcome_that_is_told_twice_counts_once() -> None:
    learning = Learning().ends(ttft_ms=100)
    ended = Ended(location="a", is_ok=True, at_ms=learning.now_ms, ttft_ms=900)

    assert not learning.learner.note(f"{learning.now_ms}-0", ended)
    assert learning.learner.note(f"{learning.now_ms}-1", ended)
    assert not learning.learner.note(f"{learning.now_ms - 1}-9", ended)
    assert learning.profile().speeds["a"].mean_ms == 500


def test_whoever_reads_the_same_outcomes_comes_to_the_same() -> None:
    def learned() -> Profile:
        learning = Learning()
        for ms in (100, 300, 200):
            learning.ends(ttft_ms=ms, prompt_tokens=9, output_tokens=9)
        return learning.profile()

    assert learned() == learned()


def test_a_probe_says_how_fast_an_endpoint_is_and_no_more() -> None:
    learning = Learning().ends("b", ttft_ms=5).ends("a", ttft_ms=100, is_probe=True)

    assert learning.profile().speeds["a"].mean_ms == 100
    assert learning.profile().probes == {
        "a": Probed(at_ms=learning.now_ms, is_ok=True, ttft_ms=100)
    }
    assert learning.learner.idle_ms("a", learning.now_ms) == learning.now_ms
    assert learning.learner.idle_ms("b", learning.now_ms) == 1_000


def test_what_makes_no_sense_is_passed_over() -> None:
    learning = Learning()

    assert learning.learner.note("1-0", None)
    assert learning.profile() == Profile()


def test_percentiles_are_interpolated() -> None:
    assert [percentile([10, 20], p) for p in (0, 25, 50, 100)] == [10, 12.5, 15, 20]
    assert quantiles([]) == ()
