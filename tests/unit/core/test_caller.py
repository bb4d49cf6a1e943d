"""What a caller may name."""

from __future__ import annotations

import pytest

from gateway.core.caller import Caller
from gateway.core.reasons import Reason
from gateway.core.route import ROLES, UpstreamKey
from tests.fakes.builders import model, plan, route


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("required", ROLES)
def test_a_role_may_use_what_asks_for_it_or_less(role: str, required: str) -> None:
    allowed = Caller(id="c", role=role).may_use(model(required_role=required))
    assert allowed is (ROLES.index(role) >= ROLES.index(required))


@pytest.mark.parametrize(
    ("models", "allowed"),
    [(None, True), (frozenset({"m"}), True), (frozenset({"other"}), False), (frozenset(), False)],
)
def test_a_list_of_models_leaves_nothing_else(models: frozenset[str] | None, allowed: bool) -> None:
    assert Caller(id="c", role="admin", models=models).may_use(model()) is allowed


def test_a_struck_route_is_no_candidate_any_more_and_its_reason_is_kept() -> None:
    a, b = route("a"), route("b")
    shrinking = plan(a, b)
    shrinking.strike(a, Reason.ALREADY_ATTEMPTED)
    assert shrinking.left() == [b]
    assert shrinking.reasons() == {"a": "already_attempted"}
    assert shrinking.model.routes == (a, b)


def test_a_route_shows_no_credentials() -> None:
    assert "sk-secret" not in repr(route(api_keys=(UpstreamKey("sk-secret"),)))
