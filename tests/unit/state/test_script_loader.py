"""The loader: what it puts together, and what it says of a folder that breaks its contract."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.state.redis import RedisRunner
from gateway.state.scripts import Script, ScriptError, folder, load_all

HEADER = """\
#!lua
-- verb: do it
--
-- KEYS[1] thing  hash    what it is
-- ARGV[1] id     string
-- ARGV[2] last
-- RETURNS [status, count]
"""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a folder: `write(verb=..., **{"lib/a": ...})`."""

    def write(**files: str) -> Path:
        for name, text in files.items():
            path = tmp_path / f"{name}.lua"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def load(lua: Path, overrides: dict[str, str] | None = None) -> Script:
    return load_all(lua, overrides)["verb"]


def test_header_is_the_contract(write: Write) -> None:
    script = load(write(verb=HEADER + "\nreturn 1\n"))

    assert script.keys == ("thing",)
    assert script.args == ("id", "last")
    assert script.returns == ("status", "count")


def test_shebang_is_left_out_for_servers_that_do_not_know_it(write: Write) -> None:
    script = load(write(verb=HEADER + "\nreturn 1\n"))

    assert script.text().startswith("#!lua\n")
    assert script.text(shebang=False) == script.text().removeprefix("#!lua\n")


def test_includes_come_depth_first_each_once(write: Write) -> None:
    lua = write(
        verb=HEADER + "-- @include lib/b\n-- @include lib/c\n\nreturn a + b + c\n",
        **{
            "lib/a": "local a = 1\n",
            "lib/b": "-- @include lib/a\nlocal b = a\n",
            "lib/c": "-- @include lib/a\nlocal c = a\n",
        },
    )

    body = load(lua).body
    order = [body.index(line) for line in ("local a", "local b", "local c", "return a")]

    assert order == sorted(order)
    assert body.count("local a") == 1


def test_override_stands_in_for_an_include_at_any_depth(write: Write) -> None:
    lua = write(
        verb=HEADER + "-- @include lib/b\n\nreturn b\n",
        **{"lib/a": "local a = 1\n", "lib/b": "-- @include lib/a\nlocal b = a\n"},
    )

    body = load(lua, {"lib/a": "local a = 2\n"}).body

    assert "local a = 2" in body
    assert "local a = 1" not in body


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "first line must be `#!lua`"),
        ("return 1\n", "first line must be `#!lua`"),
        (HEADER.replace("#!lua", "#!lua flags=Allow OOM"), "first line must be `#!lua`"),
        (HEADER.replace("#!lua", "#!/usr/bin/lua"), "first line must be `#!lua`"),
        (HEADER.replace("-- verb:", "-- another:"), "must begin with `-- verb: `"),
        ("#!lua\n", "must begin with `-- verb: `"),
        (HEADER.replace("KEYS[1]", "KEYS[0]"), "KEYS in the header must be numbered"),
        (HEADER.replace("ARGV[2]", "ARGV[3]"), "ARGV in the header must be numbered"),
        (HEADER.replace("ARGV[2]", "ARGV[1]"), "ARGV in the header must be numbered"),
        (HEADER.replace(" last", " id"), "a name stands twice in ARGV"),
        (HEADER.replace("-- RETURNS [status, count]\n", ""), "must have one `RETURNS"),
        (HEADER + "-- RETURNS [status]\n", "must have one `RETURNS"),
        (HEADER + "-- @include lib/none\n", "includes lib/none, and there is no lib/none.lua"),
        (HEADER + "-- @include lib/a\n-- @include lib/a\n", "includes lib/a twice"),
        (HEADER + "-- @include lib/round\n", "in a circle: lib/round -> lib/trip -> lib/round"),
        (HEADER + "-- @include lib/self\n", "in a circle: lib/self -> lib/self"),
    ],
    ids=[
        "empty file",
        "no shebang",
        "flags misspelt",
        "another shebang",
        "another name",
        "no header",
        "keys from 0",
        "arguments with a gap",
        "number twice",
        "name twice",
        "no RETURNS",
        "two RETURNS",
        "include missing",
        "include twice",
        "circle",
        "include of itself",
    ],
)
def test_broken_script_does_not_load_and_says_why(write: Write, text: str, message: str) -> None:
    lua = write(
        verb=text,
        **{
            "lib/a": "local a = 1\n",
            "lib/round": "-- @include lib/trip\n",
            "lib/trip": "-- @include lib/round\n",
            "lib/self": "-- @include lib/self\n",
        },
    )

    with pytest.raises(ScriptError) as raised:
        load(lua)

    assert message in str(raised.value)
    assert str(raised.value).startswith(("verb.lua", "lib/"))


class TestNames:
    KEYS = {"thing": "k", "more": "than it takes"}  # noqa: RUF012

    @pytest.fixture
    def script(self, write: Write) -> Script:
        return load(write(verb=HEADER + "\nreturn 1\n"))

    def test_are_put_in_the_order_of_the_header(self, script: Script) -> None:
        assert script.order(self.KEYS, {"last": 2, "id": "x"}) == (["k"], ["x", 2])

    @pytest.mark.parametrize(
        ("keys", "args", "named"),
        [
            ({"thing": "k"}, {"id": "x"}, "last"),
            ({"thing": "k"}, {"id": "x", "last": 1, "lsat": 2}, "lsat"),
            ({"thing": "k"}, {"id": "x", "lsat": 2}, "last, lsat"),
            ({"thign": "k"}, {"id": "x", "last": 1}, "thing"),
        ],
        ids=["argument missing", "argument unknown", "argument misspelt", "key misspelt"],
    )
    def test_missing_or_misspelt_fail_before_the_network(
        self, script: Script, keys: dict[str, str], args: dict[str, str | int], named: str
    ) -> None:
        with pytest.raises(ScriptError, match=f"verb: missing or unknown name: {named}"):
            script.order(keys, args)

    async def test_missing_or_misspelt_reach_neither_breaker_nor_client(
        self, script: Script
    ) -> None:
        runner = RedisRunner(None, {"verb": script}, None)  # type: ignore[arg-type]

        with pytest.raises(ScriptError):
            await runner.run("verb", {}, {})


def test_shipped_folder_loads() -> None:
    assert {"admit", "settle", "reap"} <= load_all(folder()).keys()
