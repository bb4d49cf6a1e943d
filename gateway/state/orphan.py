"""Child processes that do not outlive their parent, however it ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

PR_SET_PDEATHSIG = 1


def die_with_parent() -> Callable[[], None] | None:
    """Make a `preexec_fn` that has Linux kill the child when the calling thread ends; else `None`.

    It covers the case in which nobody is left to stop the child. Call it, and start the child,
    from a thread that lives as long as the child may.
    """
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def preexec() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return preexec
