"""`concord check DIR`: say everything that is wrong with a configuration, and change nothing."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gateway.config.load import environment, load
from gateway.config.result import Loaded

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "check",
        help="judge a configuration folder",
        description="Report every problem of a configuration folder. Exit 1 when one is an error.",
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="folder with models.yaml")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--allow-missing-env",
        action="store_true",
        help="take unset variables for warnings, as when checking away from the secrets",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the problems; return 0 without an error among them, 1 with one, 2 for no folder."""
    folder: Path = args.folder
    if not folder.is_dir():
        what = "is a file; give its folder" if folder.exists() else "does not exist"
        print(f"concord check: {folder} {what}", file=sys.stderr)
        return 2
    loaded = load(folder, environment(), allow_missing_env=args.allow_missing_env)
    print(_as_json(loaded) if args.json else _as_text(loaded))
    return 1 if loaded.errors else 0


def _as_json(loaded: Loaded) -> str:
    report = {
        "ok": not loaded.errors,
        "problems": loaded.problems,
        "models": loaded.models,
        "routes": loaded.routes,
    }
    return msgspec.json.format(msgspec.json.encode(report).decode(), indent=2)


def _as_text(loaded: Loaded) -> str:
    counts = Counter(problem.severity for problem in loaded.problems)
    found = ", ".join(
        f"{counts[kind]} {kind}{'' if counts[kind] == 1 else 's'}" for kind in ("error", "warning")
    )
    verdict = "not ok" if loaded.errors else "ok"
    summary = f"{verdict}: models {loaded.models}, routes {loaded.routes}, {found}"
    return "\n".join([*map(str, loaded.problems), summary])
