"""lua/README.md describes every key and field that there is, and none that there is not."""

from __future__ import annotations

import re

import pytest

from gateway.state.keys import CLUSTER_KINDS, MODEL_KINDS, Keys
from gateway.state.scripts import folder
from tests.lua.happy import HAPPY
from tests.lua.rig import DAY, MINUTE, SCRIPTS, Rig

README = (folder() / "README.md").read_text("utf-8")
SOURCES = "\n".join(path.read_text("utf-8") for path in folder().rglob("*.lua"))
KEY = re.compile(r"^\| `(gw:\S+)` \| (\w+) \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)
FIELD = re.compile(r"^\| `(?:<location>:)?(\w+)` \| [^|]+ \|$", re.MULTILINE)
SCRIPT = re.compile(r"^\| `(\w+)` \| .+ \| .+ \|$", re.MULTILINE)
LASTS = {"endpoints": 7 * DAY, "claims": 8 * DAY, "claimed": 8 * DAY, "reaped": 10 * MINUTE}

KINDS = {match[1].rpartition(":")[2]: match for match in KEY.finditer(README)}


def spelt(pattern: str, kind: str) -> str:
    """The key that `keys.py` spells where the README has a pattern."""
    keys = Keys().cluster() if "{cluster}" in pattern else Keys().model("<model>")
    return keys[kind].replace("%3Cmodel%3E", "<model>")


def test_every_kind_of_key_is_listed_and_no_other() -> None:
    assert KINDS.keys() == {*MODEL_KINDS, *CLUSTER_KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_key_is_spelt_as_it_is_in_redis(kind: str) -> None:
    assert KINDS[kind][1] == spelt(KINDS[kind][1], kind)


@pytest.mark.parametrize("kind", KINDS)
def test_writers_of_a_key_are_the_scripts_that_take_it(kind: str) -> None:
    written_by = set(re.findall(r"`(\w+)`", KINDS[kind][5]))

    readers = {"rows"}
    assert written_by == {name for name, it in SCRIPTS.items() if kind in it.keys} - readers


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_script_writes_keys_of_the_type_and_life_that_are_stated(rig: Rig, name: str) -> None:
    before, call = HAPPY[name]
    before(rig)
    call(rig)

    for kind, ttl in rig.ttls().items():
        assert rig.client.type(rig.keys[kind]) == KINDS[kind][2]
        assert 0 < ttl <= LASTS.get(kind, MINUTE)


def test_every_field_is_listed_and_no_other() -> None:
    fields = re.findall(r"\.\. ':(\w+)'", SOURCES)
    alone = re.findall(r"endpoints, '(\w+)'", SOURCES)

    assert set(FIELD.findall(README)) == {*fields, *alone}


def test_every_script_is_listed_and_no_other() -> None:
    assert set(SCRIPT.findall(README)) == SCRIPTS.keys()


def test_every_word_of_a_holding_is_listed() -> None:
    known = re.search(r"local HOLDS = \{(.*?)\}", SOURCES)

    assert known
    assert set(re.findall(r"(\w+) = true", known[1])) == set(
        re.findall(r"(\w+)=", KINDS["claimed"][3])
    )


def test_examples_name_keys_that_exist() -> None:
    examples = re.findall(r"^redis-cli \w+ '(\S+)'", README, re.MULTILINE)
    known = {*Keys().model("llama-3.3-70b").values(), *Keys().cluster().values()}

    assert set(examples) == known
