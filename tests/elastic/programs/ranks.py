"""A script for torchrun without torch: ranks in lockstep, a checkpoint, and a diary of what each one saw.

Rank 0 listens at MASTER_ADDR:MASTER_PORT as torch's store does; in each step everybody waits there for
everybody, as in a collective, and breaks when one of them is gone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ADDRESS = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
CONNECT_SECONDS = 30.0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True, help="folder of checkpoint and diaries")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--delay", type=float, default=0.01)
    parser.add_argument("--every", type=int, default=10, help="steps between two checkpoints")
    parser.add_argument("--blind", action="store_true", help="ask for no events")
    parser.add_argument("--hyperpod", action="store_true", help="import the function from HyperPod's package")
    parser.add_argument("--slow", type=Path, help="a checkpoint takes a minute when this file is there")
    parser.add_argument("--hurry", type=Path, help="no delay any more when this file is there")
    parser.add_argument("--crash", action="store_true", help="raise at once")
    parser.add_argument("--term", type=float, help="at SIGTERM, note it after so many seconds and end")
    return parser.parse_args()


class Lockstep:
    """All ranks wait for each other."""

    def __init__(self) -> None:
        self.peers: list[socket.socket] = []
        if RANK:
            self.peers = [connect()]
            return
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(ADDRESS)
        listener.listen()
        listener.settimeout(CONNECT_SECONDS)
        self.peers = [listener.accept()[0] for _ in range(WORLD - 1)]

    def step(self) -> None:
        if RANK:
            self.peers[0].sendall(b"x")
        for peer in self.peers:
            if not peer.recv(1):
                raise ConnectionError("Connection closed by peer")
        for peer in self.peers if RANK == 0 else ():
            peer.sendall(b"x")


def connect() -> socket.socket:
    deadline = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            return socket.create_connection(ADDRESS)
        except ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def at_term(seconds: float, note: Callable[..., None]) -> None:
    time.sleep(seconds)
    note(term=seconds)
    os._exit(0)


def main() -> int:
    options = arguments()
    if options.hyperpod:
        from hyperpod_elastic_agent.elastic_event_handler import elastic_event_detected
    else:
        from hpctools.elastic import elastic_event_detected
    with (options.out / f"{os.getpid()}.jsonl").open("a", buffering=1) as diary:

        def note(**values: object) -> None:
            who = {"rank": RANK, "world": WORLD, "pid": os.getpid(), "at": time.time()}
            diary.write(json.dumps({**who, **values}) + "\n")

        checkpoint = options.out / "checkpoint"
        first = int(checkpoint.read_text()) if checkpoint.exists() else 0
        known = (
            "RANK",
            "LOCAL_",
            "WORLD_SIZE",
            "GROUP_",
            "ROLE_",
            "MASTER_",
            "TORCHELASTIC_",
            "HPCTOOLS_SCALE",
        )
        note(begins=first, environ={key: value for key, value in os.environ.items() if key.startswith(known)})
        if options.term is not None:
            signal.signal(signal.SIGTERM, lambda *_: at_term(options.term, note))
        if options.crash:
            raise ValueError("no such corpus")
        lockstep = Lockstep()

        def save(step: int) -> None:
            time.sleep(60 if options.slow and options.slow.exists() else 0)
            lockstep.step()
            if RANK == 0:
                new = checkpoint.with_suffix(".new")
                new.write_text(str(step))
                new.rename(checkpoint)
            lockstep.step()

        for step in range(first + 1, options.steps + 1):
            lockstep.step()
            if options.hurry is None or not options.hurry.exists():
                time.sleep(options.delay)
            note(step=step)
            event = not options.blind and elastic_event_detected()
            if event or step % options.every == 0:
                save(step)
            if event:
                note(told=step)
                return 0
        save(options.steps)
        note(ends=options.steps)
    return 0


if __name__ == "__main__":
    sys.exit(main())
