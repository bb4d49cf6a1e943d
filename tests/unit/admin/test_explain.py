"""What is explained is what would happen, told in full, and nothing comes of asking."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.admin.explain import Explainer, Question
from gateway.admin.explanation import Explanation
from gateway.admin.keys import CallerKeys, NoSuchKey
from gateway.admin.targets import NoSuchTarget
from gateway.admission.admit import Admission
from gateway.admission.claims import Claim, Claims, new_replica_id
from gateway.admission.overrides import KnownOverrides
from gateway.admission.profiles import KnownProfiles
from gateway.admission.secret import Secret
from gateway.admission.settlement import Settlement
from gateway.config.limit_schema import RetryBudget
from gateway.config.result import Config
from gateway.config.routewise_schema import RoutewiseParams
from gateway.config.strategies import ExpectedTtftParams
from gateway.core.caller import Caller
from gateway.core.hedging import Hedge
from gateway.core.limits import EndpointLimits, Limit
from gateway.core.overrides import Overrides
from gateway.core.profile import Profile, Speed
from gateway.core.prompt import NO_PROMPT, Prompt
from gateway.core.route import Model
from gateway.errors import InvalidRequest, StateUnavailable
from gateway.routing.affinity import affinity_key
from gateway.routing.candidates import Planner
from gateway.routing.strategies import strategy_of
from gateway.state.coordinator_store import CoordinatorStore
from gateway.state.key_store import KeyStore
from gateway.state.policy import Policy
from tests.fakes.builders import chat, config, key, model, route
from tests.unit.admin.conftest import Embedded

POLICY = Policy()
SECRET = Secret("of the tests")
IMAGES = frozenset({"text", "image"})


def explainer(
    store: Embedded,
    *,
    of: Config | None = None,
    secret: Secret = SECRET,
    policy: Policy = POLICY,
    replica_id: str = "r1",
) -> Explainer:
    of = of or config()
    keys = CallerKeys(of, KeyStore(store.runner, store.keys))
    return Explainer(of, store, policy, secret, keys, replica_id=replica_id)


async def explain(store: Embedded, of: Config, **question: Any) -> Explanation:
    return await explainer(store, of=of).explain(Question(model="m", **question))


async def admit(store: Embedded, of: Model, request_id: str, prompt: Prompt = NO_PROMPT) -> str:
    """Where a request goes; its claim stays."""
    claims = Claims(new_replica_id())
    admission = Admission(
        store,
        claims,
        Settlement(store, claims, lease_ms=60_000),
        KnownOverrides(store),
        POLICY,
        profiles=KnownProfiles(store, lambda: ()),
        lease_ms=60_000,
        abort_grace_ms=0,
    )
    plan = Planner().plan(of, chat(), await store.overrides(of.id))
    order = strategy_of(of).order(plan, 1)
    claim = await admission.admit(plan, prompt, order=order, request_id=request_id, attempt=1)
    assert isinstance(claim, Claim)
    return claim.route.endpoint


def by_location(found: Explanation) -> dict[str, Any]:
    return {one.endpoint.removeprefix("m:"): one for one in found.candidates}


async def test_every_route_is_a_candidate_with_its_reason_and_its_share_of_the_admissible(
    store: Embedded,
) -> None:
    # Given one route for each way of being out, and two that are in
    routes = [
        route("zero", weight=0.0),
        route("off", input_modalities=IMAGES),
        route("blind"),
        route("broken", input_modalities=IMAGES),
        route("small", weight=1.0, input_modalities=IMAGES),
        route("large", weight=3.0, input_modalities=IMAGES),
    ]
    of = config(model(*routes))
    await store.override_provider("m", label="off", disabled=True, routes=(), force=True)
    time_s = int((await store.redis("TIME"))[0])
    await store.edit("m", broken__circuit="open", broken__opened_at_ms=f"{time_s * 1000}")
    # When a request with an image is explained
    found = await explain(store, of, modalities=frozenset({"text", "image"}))
    # Then all six are told of
    told = {at: (one.reason, one.share) for at, one in by_location(found).items()}
    assert told == {
        "zero": ("modality", 0.0),
        "off": ("provider_disabled", 0.0),
        "blind": ("modality", 0.0),
        "broken": ("circuit_open", 0.0),
        "small": (None, 0.25),
        "large": (None, 0.75),
    }
    assert by_location(found)["large"].weight == 3.0
    assert by_location(found)["off"].weight == 0.0
    assert found.drawn in ("m:small", "m:large")
    assert found.refused is None
    assert found.epoch == (await store.overrides("m")).epoch > 0


async def test_rows_are_shown_with_numbers_as_numbers(store: Embedded) -> None:
    await store.edit("m", a__inflight="7", a__availability="0.90004", a__conn="r9:1:5")
    await store.edit("m", a__generation="1754000000000")
    found = await explain(store, config(model(route("a"), route("b"))))
    assert by_location(found)["a"].holds == {"inflight": 7, "availability": 0.9, "conn": "r9:1:5"}
    assert by_location(found)["b"].holds == {}
    assert by_location(found)["a"].factors == {}
    assert by_location(found)["a"].score is None


async def test_a_window_or_a_pause_is_not_shown_as_it_is_written(store: Embedded) -> None:
    now_ms = int((await store.redis("TIME"))[0]) * 1000
    pause = f"until_ms={now_ms + 9_000} length_ms=9000 reason=retry_after"
    window = f"sliding 60000 {now_ms // 2000} 1 1"
    await store.edit("m", a__cooldown=pause, a__rpm=window, a__failed=window, a__inflight="2")
    await store.edit("m", a__tpm="fixed 60000 1 1", a__would_refuse_rpm="2", b__rpm=window)
    limits = EndpointLimits(rpm=Limit(1, is_shadow=True))
    a, b = route("a", limits=limits), route("b", weight=0.0, limits=EndpointLimits(rpm=Limit(5)))

    found = by_location(await explain(store, config(model(a, b))))

    assert found["a"].holds == {"inflight": 2}
    assert (found["a"].reason, found["a"].cooldown.reason) == ("cooldown", "retry_after")
    assert 0 < found["a"].cooldown.left_s <= 9
    told = [(one.taken, one.left, one.would_have_refused) for one in found["a"].limits]
    assert told == [(1, 0, 2)]
    # And so it is with a route out of service
    assert (found["b"].holds, found["b"].cooldown) == ({}, None)
    assert [(one.limit, one.most, one.taken) for one in found["b"].limits] == [("rpm", 5, 1)]


@pytest.mark.parametrize(
    ("question", "reserved", "drawn"),
    [
        ({"prompt_tokens": 60, "max_tokens": 40}, 40, "m:a"),
        ({"prompt_tokens": 60, "max_tokens": 41}, 41, None),
        ({"prompt_tokens": 61, "max_tokens": 40}, 40, None),
        ({"prompt_tokens": 75}, 0, "m:a"),  # a quarter of the limit, where nothing is known
        ({"prompt_tokens": 76}, 0, None),
    ],
)
async def test_room_is_reserved_for_the_prompt_and_the_answer_as_a_request_does(
    store: Embedded, question: dict[str, int], reserved: int, drawn: str | None
) -> None:
    limits = EndpointLimits(tpm=Limit(100))
    of = model(route("a", limits=limits), counts_tokens=True)

    found = await explain(store, config(of), request_id="id", **question)

    assert (found.output_tokens, found.drawn) == (reserved, drawn)
    prompt = Prompt(tokens=question["prompt_tokens"], output_tokens=reserved)
    if drawn:
        assert await admit(store, of, "id", prompt) == drawn
        taken = question["prompt_tokens"] + (reserved or 25)
        (tpm,) = by_location(await explain(store, config(of)))["a"].limits
        assert (tpm.taken, tpm.left) == (taken, 100 - taken)
    else:
        (one,) = found.candidates
        assert (one.reason, one.share) == ("tpm_limit", 0)
        assert found.refused == ("No endpoint of model 'm' can take the request now (1 tpm_limit).")


async def test_a_route_caps_what_a_client_bounds_its_answer_by(store: Embedded) -> None:
    limits = EndpointLimits(otpm=Limit(100))
    of = config(model(route("a", limits=limits, max_output_length=30), counts_tokens=True))
    assert (await explain(store, of, max_tokens=500)).output_tokens == 30


async def test_where_no_limit_counts_tokens_none_are_reserved(store: Embedded) -> None:
    of = config(model(route("a", limits=EndpointLimits(rpm=Limit(1)))))
    assert (await explain(store, of, prompt_tokens=5, max_tokens=500)).output_tokens == 0


async def test_failover_is_told_until_its_budget_is_spent(store: Embedded) -> None:
    # Given a budget of two failovers, of which nobody has spent any
    of = config(model(*(route(at) for at in "abcde")), retry_budget=RetryBudget(percent=0, floor=2))
    policy = Policy.of(of.settings)
    asking = explainer(store, of=of, policy=policy)
    # When a request is explained that fails again and again
    found = [
        await asking.explain(Question(model="m", request_id="id", attempt=attempt))
        for attempt in range(1, 6)
    ]
    # Then the first attempt and two more find an endpoint
    assert [one.drawn is None for one in found] == [False, False, False, True, True]
    told = [
        (one.retry_budget.first_attempts, one.retry_budget.others, one.retry_budget.allowed)
        for one in found
        if one.retry_budget
    ]
    assert told == [(0, 0, 2), (1, 0, 2), (1, 1, 2), (1, 2, 2), (1, 2, 2)]
    reasons = [one.reason for one in found[3].candidates]
    assert sorted(filter(None, reasons)) == ["already_attempted"] * 3 + ["retry_budget"] * 2


async def test_a_model_that_cannot_fail_over_has_no_budget(store: Embedded) -> None:
    assert (await explain(store, config())).retry_budget is None


async def test_each_id_is_told_the_endpoint_that_admit_then_grants(store: Embedded) -> None:
    of = model(route("a"), route("b", weight=2.0), route("c"))
    told, granted = [], []
    for n in range(40):
        found = await explain(store, config(of), request_id=f"id-{n}")
        told.append(found.drawn)
        granted.append(await admit(store, of, f"id-{n}"))
    assert told == granted
    assert len(set(told)) == 3


async def test_asking_twice_answers_alike_and_writes_nothing(store: Embedded) -> None:
    # Given a model with claims, a pin, overrides and a claim that has expired
    of = model(route("a"), route("b"))
    await admit(store, of, "one", Prompt(caller="0123456789abcdef", tokens=5))
    await store.override_weight("m", location="a", weight=2.0, routes=[("a", "a", 1.0)])
    await store.redis("ZADD", store.keys.model("m")["claims"], "1", "r9.1")
    before = await store.everything()
    # When the same question is asked twice
    asked = {"request_id": "again", "caller": "alice", "prompt_tokens": 300_000}
    first = await explain(store, config(of), **asked)
    second = await explain(store, config(of), **asked)
    # Then nothing differs
    assert first == second
    assert await store.everything() == before


async def test_without_an_id_a_fresh_one_is_made_and_shown(store: Embedded) -> None:
    of = config(model(route("a"), route("b")))
    first = await explain(store, of)
    second = await explain(store, of)
    assert first.request_id.startswith("req_")
    assert first.request_id != second.request_id
    replayed = await explain(store, of, request_id=first.request_id)
    assert (replayed.drawn, replayed.draws) == (first.drawn, first.draws)


@pytest.mark.parametrize("id", ["a b", "é", "x" * 129, "a/b", "a\n"])
async def test_an_id_that_no_request_can_have_is_refused(store: Embedded, id: str) -> None:
    with pytest.raises(InvalidRequest, match="No request has such an id"):
        await explain(store, config(), request_id=id)


async def test_attempts_before_the_one_asked_for_count_as_failed(store: Embedded) -> None:
    of = config(model(route("a"), route("b"), route("c")))
    first = await explain(store, of, request_id="r")
    second = await explain(store, of, request_id="r", attempt=2)
    third = await explain(store, of, request_id="r", attempt=3)
    fourth = await explain(store, of, request_id="r", attempt=4)
    tried = [first.drawn, second.drawn, third.drawn]
    assert sorted(filter(None, tried)) == ["m:a", "m:b", "m:c"]
    assert tried[1:] == sorted(filter(None, tried[1:]))  # after the first, in declared order
    assert (first.order, second.order) == ("draw", "declared")
    out = [at for at, one in by_location(third).items() if one.reason == "already_attempted"]
    assert [f"m:{at}" for at in out] == sorted(filter(None, tried[:2]))
    assert fourth.drawn is None
    assert {one.reason for one in fourth.candidates} == {"already_attempted"}


async def test_a_strategy_that_tries_one_endpoint_alone_is_told_to(store: Embedded) -> None:
    params = RoutewiseParams(fallback_mode="strict")
    of = config(model(route("a"), route("b"), router="routewise", router_params=params))
    first = await explain(store, of, request_id="r")
    second = await explain(store, of, request_id="r", attempt=2)
    assert first.drawn in ("m:a", "m:b")
    assert second.drawn is None
    assert {one.endpoint: one.reason for one in second.candidates} == {
        "m:a": "no_failover",
        "m:b": "no_failover",
    } | {first.drawn: "already_attempted"}


async def test_where_a_late_stream_goes_too_is_told_of_first_attempts(store: Embedded) -> None:
    params = RoutewiseParams(budget_alpha=1, latency_hedge_mode="probability_target")
    of = config(model(route("a"), route("b"), router="routewise", router_params=params))
    quick = {"source": "profile", "count": 101, "cdf_ms": (100.0,) * 101}
    speeds = {"a": Speed(mean_ms=99, **quick), "b": Speed(mean_ms=101, **quick)}
    coordinator = CoordinatorStore(store.runner, store.keys)
    await coordinator.publish_profile(1, "m", Profile(speeds=speeds), read=())

    first, second = [await explain(store, of, attempt=attempt) for attempt in (1, 2)]

    assert (first.drawn, first.hedge) == ("m:a", Hedge(after_ms=2700, locations=["b"]))
    assert (second.drawn, second.hedge) == ("m:b", None)


async def test_a_draw_that_strikes_out_many_gets_all_the_numbers_it_needs(store: Embedded) -> None:
    # Given eleven endpoints of which all but the lightest are out
    routes = [route(f"e{n}", weight=100.0) for n in range(10)]
    of = config(model(*routes, route("well", weight=1e-6)))
    opened = str(int((await store.redis("TIME"))[0]) * 1000)
    for n in range(10):
        await store.edit("m", **{f"e{n}__circuit": "open", f"e{n}__opened_at_ms": opened})
    # When it is explained
    found = await explain(store, of)
    # Then the draw came through
    assert found.drawn == "m:well"
    assert len(found.draws) == 11
    assert by_location(found)["well"].share == 1.0


async def test_refusal_is_told_as_the_client_hears_it(store: Embedded) -> None:
    opened = str(int((await store.redis("TIME"))[0]) * 1000)
    await store.edit("m", a__circuit="open", a__opened_at_ms=opened)
    of = config(model(route("a"), route("b", weight=0.0), aliases=("alias",)))
    found = await explainer(store, of=of).explain(Question(model="alias"))
    assert found.drawn is None
    assert found.refused == (
        "No endpoint of model 'alias' can take the request now (1 circuit_open, 1 weight_zero)."
    )
    assert 28_000 < found.retry_after_ms <= 30_000


async def test_input_that_no_route_takes_is_told_with_each_route(store: Embedded) -> None:
    of = config(model(route("a"), route("b")))
    found = await explain(store, of, modalities=frozenset({"audio"}))
    assert {one.reason for one in found.candidates} == {"modality"}
    assert found.refused == "Model 'm' does not support audio input."


async def test_callers_pin_is_followed_and_others_are_not_shown_it(store: Embedded) -> None:
    # Given a caller who is pinned in one conversation
    of = model(route("a", weight=1e9), route("b", weight=1e-9))
    assert SECRET.key
    caller = affinity_key(Caller(id="alice"), "talk", SECRET.key) or ""
    key = store.keys.caller("m", caller)["pin"]
    now_ms = int((await store.redis("TIME"))[0]) * 1000
    pin = f"location=b created_ms={now_ms} until_ms={now_ms + 299_000}"
    await store.redis("SET", key, pin)
    # When requests of that and of other conversations are explained
    same = await explain(store, config(of), caller="alice", session="talk")
    other = await explain(store, config(of), caller="alice")
    stranger = await explain(store, config(of), caller="bob", session="talk")
    nobody = await explain(store, config(of))
    # Then only the first goes there
    assert (same.drawn, same.pin) == ("m:b", "kept")
    assert (other.drawn, other.pin) == ("m:a", "made")
    assert (stranger.drawn, stranger.pin) == ("m:a", "made")
    assert (nobody.drawn, nobody.pin) == ("m:a", "")


async def test_only_the_replica_that_cannot_connect_is_told_to_keep_off(store: Embedded) -> None:
    now_ms = int((await store.redis("TIME"))[0]) * 1000
    await store.edit("m", a__conn=f"r1:3:{now_ms}")
    of = config(model(route("a"), route("b")))
    here = await explainer(store, of=of).explain(Question(model="m"))
    elsewhere = await explainer(store, of=of, replica_id="").explain(Question(model="m"))
    assert by_location(here)["a"].reason == "unreachable_from_here"
    assert by_location(elsewhere)["a"].reason is None


async def test_what_endpoints_are_compared_by_is_told(store: Embedded) -> None:
    params = ExpectedTtftParams(prefill_tokens_per_s=1_000)
    compared = model(route("a"), route("b"), router="expected_ttft", router_params=params)
    # Given a prompt that waits at one of them
    busy = await admit(store, compared, "one", Prompt(tokens=4_000))

    found = await explain(store, config(compared), prompt_tokens=500, request_id="two")

    (idle,) = {"m:a", "m:b"} - {busy}
    assert (found.order, found.drawn, len(found.draws)) == ("expected_ttft", idle, 1)
    assert {one.endpoint: one.score for one in found.candidates} == {busy: 4_750, idle: 750}
    assert {one.endpoint: one.share for one in found.candidates} == {busy: 0, idle: 1}


async def test_weights_share_out_what_endpoints_that_are_as_good_get(store: Embedded) -> None:
    params = ExpectedTtftParams(prefill_tokens_per_s=1_000)
    routes = (route("a", weight=3.0), route("b"), route("c", weight=6.0))
    compared = config(model(*routes, router="expected_ttft", router_params=params))
    await store.edit("m", a__prefill_rate="1000", b__prefill_rate="990", c__prefill_rate="500")

    found = await explain(store, compared, prompt_tokens=500)

    assert {at: one.share for at, one in by_location(found).items()} == {
        "a": 0.75,
        "b": 0.25,
        "c": 0,
    }


class Changing(Embedded):
    """Overrides change again and again right after they have been read."""

    changes = 0

    async def overrides(self, model_id: str) -> Overrides:
        read = await super().overrides(model_id)
        if self.changes:
            self.changes -= 1
            await self.override_weight(
                model_id, location="a", weight=2.0 + self.changes, routes=[("a", "a", 1.0)]
            )
        return read


async def test_overrides_that_change_meanwhile_are_read_again(store: Embedded) -> None:
    changing = Changing(store.runner, store.keys)
    changing.changes = 2
    found = await explain(changing, config(model(route("a"), route("b"))))
    assert by_location(found)["a"].weight == 2.0
    assert found.epoch == (await store.overrides("m")).epoch


async def test_overrides_that_never_rest_are_given_up(store: Embedded) -> None:
    changing = Changing(store.runner, store.keys)
    changing.changes = 1000
    with pytest.raises(StateUnavailable):
        await explain(changing, config(model(route("a"), route("b"))))
    assert changing.changes > 990


async def test_names_are_ids_or_aliases_of_chat_models(store: Embedded) -> None:
    of = config(model(aliases=("other",)), model(id="vectors", model_type="embedding"))
    asking = explainer(store, of=of)
    assert (await asking.explain(Question(model="other"))).model == "m"
    with pytest.raises(NoSuchTarget, match=r"Near: vectors\."):
        await asking.explain(Question(model="vector"))
    with pytest.raises(InvalidRequest, match="not a chat model"):
        await asking.explain(Question(model="vectors"))


async def test_callers_cannot_be_known_before_the_salt_is(store: Embedded) -> None:
    asking = explainer(store, secret=Secret(None))
    assert (await asking.explain(Question(model="m"))).drawn == "m:a"
    with pytest.raises(StateUnavailable):
        await asking.explain(Question(model="m", caller="alice"))


async def test_callers_who_may_not_use_the_model_are_refused(store: Embedded) -> None:
    keys = [
        key("sk-1", "other", models=frozenset({"else"})),
        key("sk-2", "free"),
        key("sk-3", "pro", role="pro"),
    ]
    of = config(model(required_role="pro"), keys=keys)
    for id in ("other", "free", "ip:127.0.0.1"):
        found = await explain(store, of, caller=id)
        assert (found.drawn, found.pin, found.draws) == (None, "", ())
        assert found.refused == f"'{id}' may not use model 'm': to this caller it looks unknown."
    found = await explain(store, of, caller="pro")
    assert (found.drawn, found.refused) == ("m:a", None)


async def test_made_keys_are_callers_and_nobody_else_is_where_keys_are_needed(
    store: Embedded,
) -> None:
    of = config(keys=[])
    with pytest.raises(NoSuchKey, match=r"no caller 'eve': give the id of a key, or ip:ADDRESS"):
        await explain(store, of, caller="eve")
    await CallerKeys(of, KeyStore(store.runner, store.keys)).make({"id": "eve"}, by="admin")
    assert (await explain(store, of, caller="eve")).drawn == "m:a"


async def test_a_session_without_its_caller_is_refused(store: Embedded) -> None:
    with pytest.raises(InvalidRequest, match="say whose"):
        await explain(store, config(), session="talk")
