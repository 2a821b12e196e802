"""How a process of a run ends: fast, and with everything that is the user's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import atexit, ctypes, gc, json, os, sys
from hpctools.elastic.process_end import end_process

class Slow:
    def __init__(self):
        self.self = self  # garbage that only a collection finds
    def __del__(self, write=os.write):
        write(1, b"collected ")

class Held:
    def __init__(self, by):
        self.by = by
    def __del__(self, write=os.write):  # names of this module may be gone
        write(1, self.by)

held, json.held = Held(b"cleared "), Held(b"library ")
libc = ctypes.CDLL(None)
libc.__cxa_atexit(libc.abort, None, None)  # stands for the destructors of a library
gc.collect()  # so that none comes by itself before the end
Slow()
file = open(sys.argv[1], "w")
file.write("written")
atexit.register(os.write, 1, b"atexit ")
libc.fopen.restype = ctypes.c_void_p
libc.fputs(b"from C", ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b"w")))
try:
    end_process({code})
finally:
    os.write(1, b"finally ")
    {then}
"""


@pytest.mark.parametrize(
    ("code", "then", "ends"),
    [("0", "pass", 0), ("3", "pass", 3), ("'words'", "pass", 1), ("0", "sys.exit(5)", 5), ("0", "1 / 0", 1)],
)
def test_only_what_gives_back_memory_is_left_out(tmp_path: Path, code: str, then: str, ends: int) -> None:
    program = PROGRAM.format(code=code, then=then)
    words = [sys.executable, "-c", program, str(tmp_path / "file"), str(tmp_path / "of C")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (ends, "finally atexit cleared ")
    assert [(tmp_path / name).read_text() for name in ("file", "of C")] == ["written", "from C"]
    assert ("words" in done.stderr, "ZeroDivisionError" in done.stderr) == (
        code == "'words'",
        then == "1 / 0",
    )
