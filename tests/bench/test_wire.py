"""The long line between two programs of one machine: whole, in order, and as late as is asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from bench.wire import TUN, main

ONE_WAY = 0.02
SIZE = 300_000
PROGRAM = f"""
import json, hashlib, random, socket, threading, time
sent = random.Random(3).randbytes({SIZE})
server = socket.create_server(("127.0.0.1", 0))
def answer():
    here, _ = server.accept()
    with here:
        here.sendall(here.recv(1))
        here.sendall(sent)
threading.Thread(target=answer, daemon=True).start()
begin = time.monotonic()
with socket.create_connection(server.getsockname(), timeout=20) as there:
    made = time.monotonic()
    there.sendall(b"x")
    there.recv(1)
    told = time.monotonic()
    came = b"".join(iter(lambda: there.recv(65536), b""))
print(json.dumps([made - begin, told - made, came == sent]))
"""


@pytest.mark.skipif(os.geteuid() != 0 or not TUN.exists(), reason="needs root and /dev/net/tun")
def test_a_connection_and_an_answer_take_a_round_trip_each_and_all_comes_as_it_was_sent() -> None:
    words = ["unshare", "--net", "--", sys.executable, "-m", "bench.wire", str(ONE_WAY), sys.executable, "-c"]
    done = subprocess.run([*words, PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    connected, answered, whole = json.loads(done.stdout)
    assert min(connected, answered) >= 2 * ONE_WAY
    assert whole


@pytest.mark.skipif(os.geteuid() != 0 or not TUN.exists(), reason="needs root and /dev/net/tun")
def test_the_command_s_exit_code_is_passed_on() -> None:
    words = ["unshare", "--net", "--", sys.executable, "-m", "bench.wire", "0.001", "sh", "-c", "exit 7"]
    assert subprocess.run(words, timeout=60, check=False).returncode == 7


@pytest.mark.parametrize(
    ("words", "said"),
    [((), "seconds and a command are missing"), (("soon", "true"), "seconds and a command are missing"),
     (("1", "true"), "this network is in use")],
)  # fmt: skip
def test_a_network_that_is_in_use_stays_as_it_is(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert main(words) == 2
    assert f"bench.wire: {said}" in capsys.readouterr().err
