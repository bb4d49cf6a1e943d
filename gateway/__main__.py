"""The command line: `concord` or `python -m gateway`."""

from __future__ import annotations

import argparse
import sys

from gateway import __version__
from gateway.commands import check, circuit, engine, explain, serve, status, up


def main() -> int:
    """Run a command. Exit codes: 0 fine or stopped, 1 a problem or could not start, 2 usage."""
    parser = argparse.ArgumentParser(
        prog="concord", description="An LLM gateway cluster whose replicas agree."
    )
    parser.add_argument("--version", action="version", version=f"concord {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in (up, serve, check, explain, status, circuit, engine):
        command.add_parser(subparsers)
    args = parser.parse_args()
    return int(args.run(args))


if __name__ == "__main__":
    sys.exit(main())
