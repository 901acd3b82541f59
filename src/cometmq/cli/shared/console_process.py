"""The console beside `cometmq up`: a child process that ends with its parent, however that ends.

Its standard input is a pipe whose other end only the parent has: when the parent is gone, killed or not, the pipe ends
and so does the console. Keys go by the environment, where other users of the machine do not see them.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

START_S: Final = 20.0
STOP_S: Final = 5.0
PREFIX: Final = "console "


class ConsoleProcess:
    def __init__(self, namesrv: str, port: int, state: Path, keys: tuple[str, str] | tuple[()] = ()) -> None:
        self._command = [
            *(sys.executable, "-m", "cometmq.cli.main", "console"),
            *("--namesrv", namesrv, "--port", str(port), "--state", str(state), "--end-with-stdin"),
        ]
        self._environment = dict(os.environ)
        self._keys = keys
        if keys:
            self._environment |= {"COMETMQ_ACCESS_KEY": keys[0], "COMETMQ_SECRET_KEY": keys[1]}
            self._command += ["--auth", "token"]
        self._process: asyncio.subprocess.Process | None = None
        self.fault = ""

    async def start(self) -> str | None:
        """Its address; None if it ended instead, with `fault`."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=None,
            env=self._environment,
            start_new_session=True,  # Ctrl-C is for the parent, which ends us
        )
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), START_S)
        except TimeoutError:
            self.fault = f"it said nothing for {START_S:.0f} s"
            await self.stop()
            return None
        text = line.decode().strip()
        if not text.startswith(PREFIX):
            await self.stop()
            self.fault = self.fault or "it ended; its own line says why (--console-port PORT chooses another port)"
            return None
        return text.removeprefix(PREFIX)

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), STOP_S)
        except TimeoutError:
            process.kill()
            await process.wait()
