"""Replace this process by a program that dies with its parent: `python -I -S guard.py PARENT_PID PROGRAM [ARGUMENT…]`.

Linux only (PR_SET_PDEATHSIG survives exec); elsewhere the program simply runs. A wrapper rather than `preexec_fn`,
which is unsafe in a process with threads. The signal comes when the *thread* that spawned us ends, so the supervisor
spawns all of its children from one thread that outlives them. Kept free of imports from the project: it runs without
site-packages.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask the kernel for SIGKILL at the parent's death, then become the program."""
    parent, program = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before we asked
            sys.exit(1)
    try:
        os.execvp(program[0], program)
    except OSError as error:
        sys.exit(f"can't run {program[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
