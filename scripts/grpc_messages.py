"""Make src/cometmq/wire/grpc/messages_pb2.py and its types from messages.proto, after that was changed.

    python scripts/grpc_messages.py     needs grpcio-tools: pip install grpcio-tools

The result is checked in, so that neither an installation nor a build needs a compiler of protobuf.
"""

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
PROTO = "cometmq/wire/grpc/messages.proto"


def main() -> int:
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", "--python_out=.", "--pyi_out=.", PROTO]
    return subprocess.run(command, cwd=SOURCE, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
