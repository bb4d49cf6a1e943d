"""`concord` commands as processes of their own that are forked off one which has imported it all.

Most of what a cluster costs on two cores is its processes' imports. They are what
`python -m gateway` makes them in all but that; the tests of `concord up` start that itself.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

from gateway.__main__ import main

_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(
    ["gateway.commands.serving", "gateway.commands.engine", "uvicorn.protocols.http.httptools_impl"]
)


def start(args: Sequence[str], env: Mapping[str, str], folder: Path, log: Path) -> BaseProcess:
    """Start a command in a folder, with an environment of its own, its words at the log's end."""
    return fork(_run, args, env, folder, log)


def fork(target: Callable[..., None], *args: object) -> BaseProcess:
    """Run a module's function in a process of its own."""
    process = _FORKING.Process(target=target, args=args, daemon=True)
    process.start()
    return process


def _run(args: Sequence[str], env: Mapping[str, str], folder: Path, log: Path) -> None:
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    words = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(words, stream.fileno())
    sys.argv = ["concord", *args]
    sys.exit(main())
