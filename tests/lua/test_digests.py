"""An alarm: nobody edits a script, or what it includes, without noticing all that it changes."""

from __future__ import annotations

import sys
from pathlib import Path

from gateway.state.scripts import folder, load_all, sha1

DIGESTS = Path(__file__).with_name("digests.txt")
REFRESH = "python -m tests.lua.test_digests"


def current() -> str:
    scripts = load_all(folder()).values()
    return "".join(f"{sha1(script.text())}  {script.name}\n" for script in scripts)


def test_digests_are_those_that_were_committed() -> None:
    assert DIGESTS.read_text() == current(), (
        "scripts have changed. Replicas of the previous release run beside them: check that they "
        f"still read each other's fields, then `{REFRESH}`"
    )


if __name__ == "__main__":
    sys.exit(not DIGESTS.write_text(current()))
