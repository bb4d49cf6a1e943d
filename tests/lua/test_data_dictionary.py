"""lua/README.md describes every key and field that there is, and none that there is not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import unquote

import pytest
import redis

from gateway.core.limits import EndpointLimits
from gateway.state.keys import (
    BOUND,
    CALLER_KINDS,
    CLUSTER_KINDS,
    GATE_KINDS,
    LASTING_KINDS,
    LIMIT_KINDS,
    MODEL_KINDS,
    POOL_KINDS,
    SUPPLY_KINDS,
    Keys,
)
from gateway.state.scripts import folder
from gateway.state.standing import NAMES
from tests.lua.happy import HAPPY
from tests.lua.rig import DAY, MINUTE, SCRIPTS, Rig
from tests.redis_servers import RedisServer, script_store

README = (folder() / "README.md").read_text("utf-8")
SOURCES = "\n".join(path.read_text("utf-8") for path in folder().rglob("*.lua"))
KEY = re.compile(r"^\| `(gw:\{\S+?\}:(\w+)\S*)` \| (\w+) \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)
FIELD = re.compile(r"^\| `(?:<location>:)?(\w+)(?::<caller8>)?` \| [^|]+ \|$", re.MULTILINE)
SCRIPT = re.compile(r"^\| `(\w+)` \| .+ \| .+ \|$", re.MULTILINE)
LASTS = {
    "endpoints": 7 * DAY,
    "claims": 8 * DAY,
    "claimed": 8 * DAY,
    "reaped": 10 * MINUTE,
    "pin": 5 * MINUTE,
    "hint": 20 * MINUTE,
    "replicas": MINUTE,
    "published": 7 * DAY,
    "offloads": 7 * DAY,
    "outcomes": 8 * DAY,
    "profile": 7 * DAY,
    "quota": 7 * DAY,
    "taken": 8 * DAY,
    "places": 7 * DAY,
    "limits": 7 * DAY,
    "reservations": 8 * DAY,
    "reserved": 8 * DAY,
    "lapsed": 10 * MINUTE,
    "gate": 7 * DAY,
    "gate_holders": 8 * DAY,
    "gate_line": 8 * DAY,
    "gate_aside": 8 * DAY,
    "gate_tickets": 8 * DAY,
    "gate_frozen": 10 * MINUTE,
    "mutes": 7 * DAY,
    "bound": 5 * MINUTE,
}

KINDS = {match[2]: match for match in KEY.finditer(README)}


def spelt(kind: str) -> str:
    """The key that `keys.py` spells where the README has a pattern."""
    keys = Keys().caller("<model>", "<caller>") | Keys().limits("<tag>") | Keys().cluster()
    keys |= Keys().bound("<provider>", "<endpoint>", "<caller>")
    keys |= Keys().gate("u:<provider>:<key12>") | Keys().supply("<pool>")
    return unquote(keys[kind])


def test_every_kind_of_key_is_listed_and_no_other() -> None:
    assert KINDS.keys() == {
        *MODEL_KINDS,
        *CALLER_KINDS,
        *LIMIT_KINDS,
        *CLUSTER_KINDS,
        *GATE_KINDS,
        *POOL_KINDS,
        *SUPPLY_KINDS,
        BOUND,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_key_is_spelt_as_it_is_in_redis(kind: str) -> None:
    assert KINDS[kind][1] == spelt(kind)


@pytest.fixture
def watched(redis_server: RedisServer, keys: Keys) -> Iterator[Rig]:
    """A rig on a server whose MONITOR tells what scripts do."""
    with script_store(redis_server) as store:
        yield Rig(store, keys)


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_script_writes_the_keys_that_say_so_and_no_other(watched: Rig, name: str) -> None:
    before, call = HAPPY[name]
    before(watched)
    kinds = {key: kind for kind, key in watched.keys.items()}

    done = commands(watched.client, kinds, lambda: call(watched))

    writes = [(kinds[key], command) for command, key in done if is_write(watched.client, command)]
    stated = {kind for kind, row in KINDS.items() if f"`{name}`" in row[6]}
    assert {kind for kind, _ in writes} == stated


def commands(
    client: redis.Redis, keys: Iterable[str], call: Callable[[], object]
) -> list[tuple[str, str]]:
    """Every command of scripts, and which of the keys it names, during a call."""
    found = []
    with client.monitor() as monitor:
        call()
        client.echo("done")
        for said in monitor.listen():
            words = said["command"].split()
            if words[0].upper() == "ECHO":
                return found
            if said["client_type"] == "lua" and len(words) > 1:
                key = next((word for word in words if word in keys), words[1])
                found.append((words[0].upper(), key))
    raise AssertionError("MONITOR has ended")


def is_write(client: redis.Redis, command: str) -> bool:
    return "write" in client.execute_command("COMMAND", "INFO", command)[command.lower()]["flags"]


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_script_writes_keys_of_the_type_and_life_that_are_stated(rig: Rig, name: str) -> None:
    before, call = HAPPY[name]
    before(rig)
    call(rig)

    for kind, ttl in rig.ttls().items():
        assert rig.client.type(rig.keys[kind]) == KINDS[kind][3]
        if kind in LASTS:
            assert 0 < ttl <= LASTS[kind]
        else:
            assert (ttl, KINDS[kind][5]) == (-1, "none")


def test_only_keys_that_are_to_stay_have_no_ttl() -> None:
    assert {kind for kind, row in KINDS.items() if row[5] == "none"} == KINDS.keys() - LASTS.keys()


def test_keys_that_stay_are_those_that_are_not_missed_a_ttl_of() -> None:
    assert {kind for kind, row in KINDS.items() if row[5] == "none"} == LASTING_KINDS


def test_every_field_is_listed_and_no_other() -> None:
    fields = re.findall(r"\.\. ':(\w+):?'", SOURCES)
    by_setter = re.findall(r"\bset\(':(\w+):?'", SOURCES)
    alone = re.findall(r"endpoints, '(\w+)'", SOURCES)
    kinds = {kind for kind, name in NAMES.items() if name in EndpointLimits.__struct_fields__}
    windows = kinds - {"parallel"}
    stated = {*fields, *by_setter, *alone, *windows, "output_tokens", "retries"}
    assert set(FIELD.findall(README)) == stated


def test_every_field_of_limits_is_listed_and_no_other() -> None:
    kinds = re.search(r"local KINDS = \{(.*?)\}", SOURCES)

    assert kinds
    stated = re.findall(r"^\| `<scope>:(\S+)` \| [^|]+ \|$", README, re.MULTILINE)
    assert stated == [*re.findall(r"'(\w+)'", kinds[1]), "would_refuse_<kind>"]


def test_every_field_of_a_gate_is_listed_and_no_other() -> None:
    calls = re.findall(r"gate\.row,((?: '\w+',?)+)", SOURCES)
    written = {name for names in calls for name in re.findall(r"'(\w+)'", names)}

    assert {*written, "clock_steps"} == set(re.findall(r"`(\w+)`", KINDS["gate"][4]))


def test_every_script_is_listed_and_no_other() -> None:
    assert set(SCRIPT.findall(README)) == SCRIPTS.keys()


@pytest.mark.parametrize(("kind", "prefix"), [("claimed", ""), ("reserved", "HOLDING_")])
def test_every_word_of_a_holding_is_known_written_and_listed(kind: str, prefix: str) -> None:
    written = re.search(rf"local {prefix}WORDS =\s*\{{(.*?)\}}", SOURCES, re.DOTALL)
    known = re.search(rf"local {prefix}KNOWN = \{{(.*?)\}}", SOURCES, re.DOTALL)

    assert written
    assert known
    words = re.findall(r"'(\w+)'", written[1])
    assert words == re.findall(r"(\w+) = true", known[1])
    assert words == re.findall(r"(\w+)=", KINDS[kind][4])


@pytest.mark.parametrize(
    ("kind", "lib"), [("pin", "lib/pin"), ("hint", "lib/prompt"), ("mutes", "pool_release")]
)
def test_every_word_of_a_pin_a_hint_and_a_mute_is_listed(kind: str, lib: str) -> None:
    written = re.search(r"'(\w+=%[^']+)'", (folder() / f"{lib}.lua").read_text("utf-8"))

    assert written
    assert re.findall(r"(\w+)=", written[1]) == re.findall(r"(\w+)=", KINDS[kind][4])


def test_examples_name_keys_that_exist() -> None:
    examples = re.findall(r"^redis-cli \w+ '(\S+)'", README, re.MULTILINE)
    caller = re.search(r":pin:(\w+)'", README)

    assert caller
    spells = Keys()
    known = spells.caller("llama-3.3-70b", caller[1]) | spells.limits("team:acme")
    known |= spells.cluster() | spells.supply("team-plan")
    known |= spells.bound("deepseek", "llama-3.3-70b:deepseek-api", caller[1])
    known |= spells.gate("u:deepseek:5f1c0b92e7d4")
    assert set(examples) == set(known.values())
