"""Headers say what the scripts do: a contract that has drifted is worse than none."""

from __future__ import annotations

import re

import pytest

from gateway.core.limits import EndpointLimits
from gateway.core.outcome import Outcome
from gateway.core.reasons import Reason
from gateway.state import (
    caller_store,
    coordinator_store,
    gate_store,
    key_store,
    offloads,
    pool_store,
    replies,
    supply_store,
)
from gateway.state.scripts import folder, load_all
from gateway.state.standing import NAMES

LUA = folder()
SCRIPTS = load_all(LUA)
VERBS = {path.stem: path.read_text("utf-8") for path in sorted(LUA.glob("*.lua"))}
LIBS = {
    f"{path.parent.name}/{path.stem}": path.read_text("utf-8")
    for path in sorted(LUA.glob("*/*.lua"))
}
FILES = VERBS | LIBS
REPLIES = {
    "admit": replies.AdmitReply,
    "explain": replies.ExplainReply,
    "first_token": replies.RecordReply,
    "queue": replies.StatusReply,
    "settle": replies.RecordReply,
    "renew": replies.RenewClaimsReply,
    "reassert": replies.StatusReply,
    "reap": replies.CountReply,
    "beat_replica": replies.BeatReply,
    "replicas": replies.ReplicasReply,
    "coordinator": replies.CoordinatorReply,
    "lease": coordinator_store.LeaseReply,
    "publish": coordinator_store.PublishReply,
    "note_offload": replies.StatusReply,
    "offloads": offloads.OffloadsReply,
    "record_probe": replies.RecordReply,
    "tidy_model": coordinator_store.TidyReply,
    "drop_stale_pin": replies.StatusReply,
    "note_probe": replies.StatusReply,
    "supply_take": replies.StatusReply,
    "supply_release": replies.StatusReply,
    "supply_renew": replies.RenewReply,
    "supply_reap": replies.CountReply,
    "supply_report": replies.StatusReply,
    "supply_state": supply_store.SupplyReply,
    "read_outcomes": coordinator_store.OutcomesReply,
    "publish_profile": coordinator_store.PublishReply,
    "profile": replies.ProfileReply,
    "rows": replies.RowsReply,
    "overrides": replies.OverridesReply,
    "override": replies.OverrideReply,
    "reset_circuit": replies.ResetReply,
    "pin": replies.PinReply,
    "drop_pin": replies.PinReply,
    "key_make": replies.StatusReply,
    "key_change": replies.StatusReply,
    "key_revoke": replies.StatusReply,
    "key_find": key_store.FoundReply,
    "key_list": key_store.ListReply,
    "reserve_caller": caller_store.ReserveReply,
    "settle_caller": replies.StatusReply,
    "renew_caller": replies.RenewReply,
    "reassert_caller": caller_store.ReassertReply,
    "reap_caller": replies.CountReply,
    "caller_limits": caller_store.UsesReply,
    "gate_enter": gate_store.EnterReply,
    "gate_confirm": gate_store.ConfirmReply,
    "gate_poll": gate_store.PollReply,
    "gate_leave": gate_store.LeaveReply,
    "gate_forget": replies.StatusReply,
    "gate_state": gate_store.GateReply,
    "pool_take": pool_store.TakeReply,
    "pool_release": pool_store.ReleaseReply,
    "pool_serves": pool_store.ServesReply,
    "pool_mutes": pool_store.MutesReply,
    "pool_declared": pool_store.DeclaredReply,
    "pool_add": replies.StatusReply,
    "pool_retier": replies.StatusReply,
    "pool_remove": replies.StatusReply,
}

FREEING = (
    {"settle", "reap", "renew", "reset_circuit", "drop_pin"}
    | {
        "settle_caller",
        "reap_caller",
        "renew_caller",
        "key_revoke",
        "pool_remove",
    }
    | {"lease", "tidy_model", "drop_stale_pin"}
    | {"gate_confirm", "gate_poll", "gate_leave", "gate_forget"}
    | {"supply_release", "supply_reap"}
)

each_verb = pytest.mark.parametrize("name", VERBS)
each_lib = pytest.mark.parametrize("name", LIBS)
each_file = pytest.mark.parametrize("name", FILES)


def code(text: str) -> str:
    """A file without its comments."""
    return re.sub(r"--.*", "", text)


def includes(text: str) -> list[str]:
    return re.findall(r"^-- @include (\S+)$", text, re.MULTILINE)


def defined(text: str) -> set[str]:
    """What a file gives to those that include it."""
    functions = re.findall(r"^local function (\w+)", text, re.MULTILINE)
    return {*functions, *re.findall(r"^local (\w+) =", text, re.MULTILINE)}


def words(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", re.sub(r"'[^']*'", "", code(text))))


def included(name: str) -> set[str]:
    """Everything that a file includes, at whatever depth."""
    direct = includes(FILES[name])
    return set(direct).union(*(included(deeper) for deeper in direct))


def slots(text: str, kind: str) -> set[int]:
    found = {int(number) for number in re.findall(rf"{kind}\[(\d+)\]", code(text))}
    if kind == "ARGV" and "read_ask(ARGV" in text:  # what two scripts take alike is read there
        found |= slots(LIBS["lib/ask"], "args")
    return found


@each_verb
def test_body_uses_exactly_the_keys_and_arguments_of_the_header(name: str) -> None:
    script = SCRIPTS[name]

    assert slots(VERBS[name], "KEYS") == set(range(1, len(script.keys) + 1))
    assert slots(VERBS[name], "ARGV") == set(range(1, len(script.args) + 1))


@each_verb
def test_body_binds_keys_and_arguments_under_the_names_of_the_header(name: str) -> None:
    script = SCRIPTS[name]
    for left, right in re.findall(r"^local ([\w, ]+) = (.+)$", code(VERBS[name]), re.MULTILINE):
        names, values = left.split(", "), right.split(", ")
        if len(names) != len(values):
            continue
        for bound, value in zip(names, values, strict=True):
            if found := re.fullmatch(r"(?:tonumber\()?(KEYS|ARGV)\[(\d+)\]\)?", value):
                header = script.keys if found[1] == "KEYS" else script.args
                assert bound == header[int(found[2]) - 1]


@each_verb
def test_includes_touch_neither_keys_nor_arguments(name: str) -> None:
    for lib in included(name):
        assert not slots(LIBS[lib], "(?:KEYS|ARGV)"), f"{lib} reaches around its caller"


def test_admit_and_explain_are_asked_alike() -> None:
    asked = slots(LIBS["lib/ask"], "args")

    assert asked | {1} == set(range(1, max(asked) + 1)), "the first, the epoch, is read by each"
    for number in sorted(asked | {1}):
        assert SCRIPTS["admit"].args[number - 1] == SCRIPTS["explain"].args[number - 1]


@each_verb
def test_reply_has_the_fields_of_its_struct(name: str) -> None:
    fields = REPLIES[name].__struct_fields__

    assert len(SCRIPTS[name].returns) == len(fields)
    assert SCRIPTS[name].returns[0] == fields[0] == "status"
    if name in ("admit", "explain"):
        assert SCRIPTS[name].returns == fields


@each_verb
def test_body_returns_only_the_statuses_of_the_header(name: str) -> None:
    header = VERBS[name].split("\n\n")[0]
    stated = set(re.findall(r'"(\w+)"', header[header.index("-- RETURNS") :]))

    returned = re.findall(r"return \{ (?:\w+ and )?'(\w+)'(?: or '(\w+)')?", code(VERBS[name]))

    assert {status for pair in returned for status in pair if status} <= stated
    assert returned


def test_reasons_are_spelt_as_python_spells_them() -> None:
    text = "\n".join(FILES[name] for name in ("admit", *included("admit")))
    judges = re.findall(r"^local function judge\w*\(.*?^end", text, re.MULTILINE | re.DOTALL)
    struck = {word for body in judges for word in re.findall(r"return (?:false, )?'(\w+)'", body)}
    aside = set(re.findall(r"reasons\[[\w.]+\] = '(\w+)'", text))
    of_all = set(re.findall(r"refuse_all\(ask, '(\w+)'\)", text))
    kinds = {kind for kind, name in NAMES.items() if name in EndpointLimits.__struct_fields__}
    limits = {f"{kind}_limit" for kind in kinds}
    assert struck == {
        "already_attempted",
        "circuit_open",
        "cooldown",
        "probe_in_flight",
        "unreachable_from_here",
    }
    assert aside == {"elephant_limit", "over_affinity_ceiling"}
    assert of_all == {"retry_budget"}
    assert struck | aside | of_all | limits <= {reason.value for reason in Reason}


def test_outcomes_are_those_of_python() -> None:
    table = re.search(r"local OUTCOMES = \{(.*?)\}", LIBS["lib/outcome"])

    assert table
    assert set(re.findall(r"(\w+) = true", table[1])) == {outcome.value for outcome in Outcome}
    assert set(re.findall(r'"(\w+)"', re.search(r"outcome +string.*", VERBS["settle"])[0])) == {
        outcome.value for outcome in Outcome
    }


@each_file
def test_every_include_is_used(name: str) -> None:
    for lib in includes(FILES[name]):
        assert defined(LIBS[lib]) & words(FILES[name]), f"{name} does not need {lib}"


@each_file
def test_every_include_that_is_used_is_named(name: str) -> None:
    given = {word: lib for lib in LIBS for word in defined(LIBS[lib])}
    needed = {given[word] for word in words(FILES[name]) - defined(FILES[name]) if word in given}

    assert needed - {name} <= set(includes(FILES[name])), "what another file includes may go"


@each_lib
def test_include_defines_local_names_alone_and_each_is_used(name: str) -> None:
    text = code(LIBS[name])
    outermost = [line for line in text.splitlines() if line[:1].strip() and line != "end"]
    assert all(line.startswith(("local ", "}")) for line in outermost)

    rest = set().union(*(words(FILES[other]) for other in FILES if other != name))
    for word in defined(LIBS[name]):
        assert word in rest or len(re.findall(rf"\b{word}\b", text)) > 1, f"{word} is not used"


def test_no_two_includes_define_the_same_name() -> None:
    names = [word for lib in LIBS.values() for word in defined(lib)]

    assert len(names) == len(set(names))


@each_file
def test_line_length(name: str) -> None:
    assert max(map(len, FILES[name].splitlines())) <= 100


@each_verb
def test_scripts_that_free_run_out_of_memory_and_those_that_take_do_not(name: str) -> None:
    assert ("allow-oom" in SCRIPTS[name].shebang) == (name in FREEING)
