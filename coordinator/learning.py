"""What is learned of a model from how attempts end. No I/O.

All of it is a function of the outcomes and of the time: whoever reads the same ones comes to the
same, and one that is told twice counts once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct

from coordinator.window import Window
from gateway.config.prices import as_text
from gateway.config.routewise_schema import RoutewiseParams
from gateway.core.prices import Prices
from gateway.core.profile import Envelope, Probed, Profile, Speed, size_of
from gateway.core.request import Usage
from gateway.core.route import Model
from gateway.state.outcomes import Ended

ERROR_MS = 60_000
"""What a failure counts for in a mean."""
QUANTILES = 100
"""Into how many equal parts first outputs are cut."""
NARROWEST = 1e-3
"""Of the greatest cost of an envelope, the least, where costs do not differ."""


class Mean(Struct):
    """An arithmetic mean that grows."""

    count: int = 0
    total: float = 0.0

    def add(self, value: float) -> None:
        """Take a value in."""
        self.count += 1
        self.total += value

    def of(self, least: int) -> float | None:
        """The mean, where it comes from so many values."""
        return self.total / self.count if self.count >= max(least, 1) else None


class Pace:
    """How fast one endpoint is."""

    def __init__(self, params: RoutewiseParams, begun_ms: int) -> None:
        self._begun_ms = begun_ms
        self._prior_since_ms = begun_ms - params.latency_history_prior_window_sec * 1000
        self._before = Mean()
        self._prior_ms: float | None = None
        # Milliseconds; nothing for a failure.
        self._seen = Window(
            params.latency_window_sec * 1000, params.latency_max_samples_per_profile
        )
        self.last_request_ms = 0
        """When a client's request has ended here last."""
        self.probed: Probed | None = None

    def note(self, ended: Ended) -> None:
        """Learn from an outcome. MUST be called in their order."""
        if ended.is_probe:
            self.probed = Probed(at_ms=ended.at_ms, is_ok=ended.is_ok, ttft_ms=ended.ttft_ms)
        else:
            self.last_request_ms = ended.at_ms
        if not ended.is_ok:
            self._seen.add(ended.at_ms, None)
        elif ended.ttft_ms:
            self._seen.add(ended.at_ms, ended.ttft_ms)
            self._learn_prior(ended)

    def _learn_prior(self, ended: Ended) -> None:
        """Of what was before this coordinator the mean, from then on half of each new one."""
        if ended.at_ms < self._begun_ms:
            if ended.at_ms >= self._prior_since_ms:
                self._before.add(ended.ttft_ms)
            return
        prior_ms = self._before.of(1) if self._prior_ms is None else self._prior_ms
        self._prior_ms = ended.ttft_ms if prior_ms is None else (prior_ms + ended.ttft_ms) / 2

    def speed(self, now_ms: int) -> Speed | None:
        """How fast it is by now; `None` when nothing is known."""
        self._seen.forget(now_ms)
        if not self._seen:
            prior_ms = self._before.of(1) if self._prior_ms is None else self._prior_ms
            return None if prior_ms is None else Speed(mean_ms=prior_ms, source="history_prior")
        taken_ms = self._seen.ordered
        errors = len(self._seen) - len(taken_ms)
        return Speed(
            mean_ms=(sum(taken_ms) + errors * ERROR_MS) / len(self._seen),
            source="profile",
            count=len(taken_ms),
            errors=errors,
            cdf_ms=quantiles(taken_ms),
        )


class Costs:
    """What the requests of a model have cost, each on the cheapest of its routes on demand."""

    def __init__(self, params: RoutewiseParams, prices: Iterable[Prices]) -> None:
        self._params = params
        self._prices = list(prices)
        self._seen = Window(
            params.envelope_window_hours * 3_600_000, params.envelope_max_samples or None
        )

    def note(self, ended: Ended) -> None:
        """Learn from an outcome whose tokens are known. What costs nothing says nothing."""
        if not (ended.prompt_tokens and ended.output_tokens and self._prices):
            return
        usage = Usage(prompt_tokens=ended.prompt_tokens, completion_tokens=ended.output_tokens)
        cost = min(prices.usd(usage) for prices in self._prices)
        if cost > 0:
            self._seen.add(ended.at_ms, cost)

    def envelope(self, now_ms: int) -> Envelope | None:
        """Between which costs requests are by now; `None` where there are too few."""
        self._seen.forget(now_ms)
        params = self._params
        return envelope_of(
            self._seen.ordered,
            least=params.envelope_min_samples,
            lower=params.envelope_lower_percentile,
            upper=params.envelope_upper_percentile,
        )


class Learner:
    """All that is learned of one model since `begun_ms`, and from the outcomes that were stored."""

    def __init__(self, model: Model, params: RoutewiseParams, begun_ms: int) -> None:
        self.model = model
        self.params = params
        self._begun_ms = begun_ms
        self._paces: dict[str, Pace] = {}
        self._costs = Costs(params, _prices_on_demand(model, params))
        self._outputs: defaultdict[int, Mean] = defaultdict(Mean)
        self.output = Mean()
        """Tokens of all its answers."""
        self._last: tuple[int, int] = (0, 0)

    def note(self, id: str, ended: Ended | None) -> bool:
        """Learn from an outcome. Returns whether it was a new one."""
        at, _, number = id.partition("-")
        order = (int(at), int(number or 0))
        if order <= self._last:
            return False
        self._last = order
        if ended is not None:
            self._pace(ended.location).note(ended)
            self._costs.note(ended)
            if ended.is_ok and ended.output_tokens:
                self._outputs[size_of(ended.prompt_tokens)].add(ended.output_tokens)
                self.output.add(ended.output_tokens)
        return True

    def idle_ms(self, location: str, now_ms: int) -> int:
        """For how long an endpoint has had no request of a client's."""
        return now_ms - self._pace(location).last_request_ms

    def profile(self, now_ms: int, *, all_output: Mean, donors: Iterable[Learner] = ()) -> Profile:
        """What is known by now. `all_output` is of all models, `donors` lend their envelopes."""
        params = self.params
        output = self.output.of(params.output_min_model_samples)
        speeds = {
            route.location: speed
            for route in self.model.routes
            if (speed := self._pace(route.location).speed(now_ms))
        }
        outputs = {
            size: mean
            for size, seen in self._outputs.items()
            if (mean := seen.of(params.output_min_bucket_samples)) is not None
        }
        probes = {
            route.location: probed
            for route in self.model.routes
            if (probed := self._pace(route.location).probed)
        }
        return Profile(
            speeds=speeds,
            probes=probes,
            outputs=outputs,
            output=all_output.of(params.output_min_global_samples) if output is None else output,
            envelope=self.envelope(now_ms) or _lent(donors, now_ms),
        )

    def envelope(self, now_ms: int) -> Envelope | None:
        """Between which costs its requests are by now."""
        return self._costs.envelope(now_ms)

    def _pace(self, location: str) -> Pace:
        if location not in self._paces:
            self._paces[location] = Pace(self.params, self._begun_ms)
        return self._paces[location]


def quantiles(ordered: Sequence[float]) -> tuple[float, ...]:
    """The least, each hundredth, and the greatest of numbers in order; none of none."""
    if not ordered:
        return ()
    return tuple(round(percentile(ordered, 100 * i / QUANTILES), 1) for i in range(QUANTILES + 1))


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Of numbers in order, interpolated between neighbours."""
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def envelope_of(
    ordered: Sequence[float], *, least: int, lower: float, upper: float
) -> Envelope | None:
    """The span between two percentiles of costs in order, where there are so many at least."""
    if len(ordered) < max(least, 1):
        return None
    low, high = percentile(ordered, lower), percentile(ordered, upper)
    if high <= 0:
        return None
    if not 0 < low < high:
        low = high * NARROWEST
    return Envelope(lower=low, upper=high, count=len(ordered))


def _lent(donors: Iterable[Learner], now_ms: int) -> Envelope | None:
    return next((found for donor in donors if (found := donor.envelope(now_ms))), None)


def _prices_on_demand(model: Model, params: RoutewiseParams) -> list[Prices]:
    """Of the routes that charge for each request, else the reference."""
    found = [route.prices for route in model.routes if route.supply is None]
    if not found and params.reference_api_price is not None:
        found = [Prices.of(as_text(params.reference_api_price))]
    return found
