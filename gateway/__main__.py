"""The command line: `concord` or `python -m gateway`."""

from __future__ import annotations

import argparse
import os
import sys

from gateway import __version__
from gateway.commands import (
    check,
    circuit,
    coordinator,
    engine,
    explain,
    redis_doctor,
    serve,
    status,
    up,
)


def main() -> int:
    """Run a command. Exit codes: 0 fine or stopped, 1 a problem or could not start, 2 usage."""
    parser = argparse.ArgumentParser(
        prog="concord", description="An LLM gateway cluster whose replicas agree."
    )
    parser.add_argument("--version", action="version", version=f"concord {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    every = (up, serve, coordinator, check, explain, status, circuit, redis_doctor, engine)
    for command in every:
        command.add_parser(subparsers)
    args = parser.parse_args()
    try:
        code = int(args.run(args))
        sys.stdout.flush()
    except BrokenPipeError:
        # Who read our words, such as `head`, has gone: nothing may be written any more, at exit
        # either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
