"""The command line as a whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_reader_that_has_seen_enough_is_no_reason_for_a_traceback() -> None:
    # Given a pipe whose reader, `head` say, has gone
    reading, writing = os.pipe()
    os.close(reading)
    # When a command writes to it
    with os.fdopen(writing, "wb") as pipe:
        command = [sys.executable, "-m", "gateway", "check", "config", "--allow-missing-env"]
        done = subprocess.run(command, cwd=ROOT, stdout=pipe, stderr=subprocess.PIPE, check=False)
    # Then it ends without a word
    assert done.returncode == 1
    assert done.stderr == b""
