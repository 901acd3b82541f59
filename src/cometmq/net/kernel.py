"""What the kernel still holds of our output.

A send buffer of the kernel takes megabytes, and its room becomes visible to us only in large steps. Whether a peer
reads at all is seen earlier in the number of bytes that it has not acknowledged.
"""

import array
from typing import Any

try:
    import fcntl
    import termios
except ImportError:  # Windows: the transport's own buffer must do

    def unacknowledged_bytes(transport: Any) -> int:
        return 0

else:

    def unacknowledged_bytes(transport: Any) -> int:
        """0 where the system does not tell."""
        socket = transport.get_extra_info("socket")
        if socket is None or socket.fileno() < 0:
            return 0
        count = array.array("i", [0])
        try:
            fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, count)
        except OSError:
            return 0
        return count[0]
