"""`python -m coordinator`, which is what `concord coordinator` runs."""

from __future__ import annotations

import argparse
import signal
import socket
import sys
from pathlib import Path

from coordinator.serve import serve
from gateway.config.live import Source
from gateway.config.load import environment


def main() -> int:
    """Coordinate until stopped. Returns 0 when stopped, 1 when it could not start."""
    # Until it works there is nothing to read anew, and no reason to die of being asked. SIGTERM may
    # end it at once and without a word, for it holds nothing yet.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    parser = argparse.ArgumentParser(prog="concord coordinator")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    env = environment()
    # Callers never come here, so that what a replica must not serve in public does not matter.
    source = Source(folder=args.config, env=env, redis_url=env["REDIS_URL"], is_public=False)
    loaded = source.read()
    for problem in loaded.problems:
        print(f"concord coordinator: {problem}", file=sys.stderr)
    if loaded.config is None:
        return 1
    try:
        family = socket.AF_INET6 if ":" in args.host else socket.AF_INET
        listener = socket.create_server((args.host, args.port), family=family)
    except OSError as error:
        place = f"{args.host}:{args.port}"
        print(f"concord coordinator: cannot listen on {place}: {error.strerror}", file=sys.stderr)
        return 1
    serve(loaded, loaded.config, source, listener)
    return 0


if __name__ == "__main__":
    sys.exit(main())
