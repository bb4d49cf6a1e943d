"""`concord circuit reset MODEL ENDPOINT`: an endpoint counts as healthy again, for all replicas."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from gateway.commands.asking import add_options, answer

if TYPE_CHECKING:
    from gateway.admin.circuits import CircuitReset


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Register the command."""
    parser = subparsers.add_parser("circuit", help="close an endpoint's circuit")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    reset = actions.add_parser("reset", help="close it, and forget the endpoint's failures")
    reset.add_argument("model", metavar="MODEL", help="the model's id")
    reset.add_argument("endpoint", metavar="ENDPOINT", help="a location, or MODEL:location")
    add_options(reset)
    reset.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Reset the circuit. Exit codes as of `answer`."""
    return answer(args, lambda cluster: cluster.reset_circuit(args.model, args.endpoint), _text)


def _text(found: CircuitReset) -> str:
    return f"{found.endpoint}: closed, was {found.was}"
