"""A person's terminal, for what behaves otherwise there."""

from __future__ import annotations

import os
import pty
import select
import signal
from contextlib import suppress

LIMIT = 30.0


class Terminal:
    """A program at a terminal of its own."""

    def __init__(self, *argv: str, ignored: int | None = None) -> None:
        self.pid, self.screen = pty.fork()
        if self.pid == 0:
            with suppress(BaseException):
                if ignored is not None:
                    signal.signal(ignored, signal.SIG_IGN)
                os.execvp(argv[0], argv)
            os._exit(1)
        self.seen = ""

    def sees(self, text: str) -> None:
        """Wait until the text is on the screen, behind what was waited for before."""
        while text not in self.seen:
            assert select.select([self.screen], [], [], LIMIT)[0], f"there is no {text!r}: {self.seen!r}"
            try:
                read = os.read(self.screen, 4096)
            except OSError:
                read = b""
            assert read, f"it ended, and there was no {text!r}: {self.seen!r}"
            self.seen += read.decode()
        self.seen = self.seen.partition(text)[2]

    def says_nothing(self, seconds: float) -> None:
        """Wait for so long, and see nothing that was not waited for."""
        if select.select([self.screen], [], [], seconds)[0]:
            self.seen += os.read(self.screen, 4096).decode()
        assert not self.seen

    def type(self, key: str) -> None:
        """Press a key."""
        os.write(self.screen, key.encode())

    def close(self) -> None:
        """Hang up."""
        with suppress(OSError):  # it is hung up already
            os.close(self.screen)
        self.screen = -1
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
