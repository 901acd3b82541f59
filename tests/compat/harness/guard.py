"""Run before a child's program: `python guard.py PARENT_PID PROGRAM ARGUMENTS...`.

Asks the kernel to kill this process when the thread that started it ends, then becomes the program (same process id).
A separate script because a preexec_fn is unsafe in a process with threads, and this one needs no import of the harness.
"""

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, program = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit("the parent ended before its child began")
    os.execvp(program[0], program)


if __name__ == "__main__":
    main()
