"""The node agent: one on every node of every job of the run; starts the workers and answers for them.

    python -m hpctools.elastic.agent --run-dir DIR --role baseline|replica

On the baseline's first node it also runs the coordinator.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpctools.elastic.coordinator import Coordinator
from hpctools.elastic.folder import FINAL_STATES, CoordinatorAddress, RunFolder
from hpctools.elastic.processes import Workers
from hpctools.elastic.protocol import BEAT_SECONDS, LINE_LIMIT, Message, decode, encode
from hpctools.errors import ElasticError, HpctoolsError
from hpctools.slurm.client import SlurmClient

FIND_SECONDS = 60.0
EXIT_LOST = 75  # EX_TEMPFAIL of sysexits.h
GRACE_RESERVE = 2.0
STOP_SECONDS = 3.0


@dataclass(frozen=True)
class Place:
    """Where an agent runs.

    Attributes:
        index: of the node within its job, from 0.
    """

    role: str
    job_id: int
    index: int
    node: str

    @classmethod
    def from_environ(cls, role: str, environ: Mapping[str, str]) -> Place:
        """As Slurm's variables tell (srun(1), OUTPUT ENVIRONMENT VARIABLES).

        Raises:
            ElasticError: this is not a job step.
        """
        try:
            job_id, index = int(environ["SLURM_JOB_ID"]), int(environ["SLURM_NODEID"])
        except (KeyError, ValueError):
            raise ElasticError(
                "the agent runs outside a Slurm job step",
                "start it with srun; hp-submit --nodes MIN:MAX does",
            ) from None
        return cls(role, job_id, index, environ.get("SLURMD_NODENAME") or socket.gethostname())

    @property
    def is_baseline(self) -> bool:
        """Whether the node belongs to the protected baseline job."""
        return self.role == "baseline"

    @property
    def coordinates(self) -> bool:
        """Whether the run's coordinator lives here."""
        return self.is_baseline and self.index == 0

    @property
    def name(self) -> str:
        """The agent's name in the run."""
        return f"b{self.index}" if self.is_baseline else f"r{self.job_id}"


class Agent:
    """One node's agent; see `run`."""

    def __init__(self, folder: RunFolder, place: Place) -> None:
        self._folder = folder
        self._spec = folder.spec()
        self._place = place
        self._writer: asyncio.StreamWriter | None = None
        self._workers = Workers(folder, self._spec, place.name, self._say, shows_output=place.coordinates)
        self._shutdown: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._leaving = False

    async def run(self) -> int:
        """Be a part of the run to its end; returns the exit code.

        Raises:
            ElasticError: no coordinator was found.
        """
        reader, address = await self._find_coordinator()
        self._say("hello", token=address.token, role="agent", **self._introduction())
        tasks = [asyncio.ensure_future(work) for work in (self._listen(reader), self._show_life())]
        if not self._leaving:
            for local in range(self._spec.workers_per_node):
                self._workers.spawn(local)
        ended = asyncio.ensure_future(self._workers.all_ended()) if not self._place.is_baseline else None
        waiting: list[asyncio.Future[Any]] = [self._shutdown, *([ended] if ended is not None else [])]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        await self._workers.stop(STOP_SECONDS)
        await self._drain()
        for task in tasks:
            task.cancel()
        return self._shutdown.result() if self._shutdown.done() else 0

    def on_terminate(self) -> None:
        """SIGTERM: our node is wanted; the workers leave at the end of a step, within the grace time."""
        if self._leaving:
            return
        self._leaving = True
        self._say("leaving")
        grace = max(0.0, self._spec.grace_seconds - GRACE_RESERVE)
        asyncio.get_running_loop().call_later(grace, self.end, 0)
        self._workers.expect_no_restart()

    def end(self, code: int) -> None:
        """End this node's part with an exit code."""
        if not self._shutdown.done():
            self._shutdown.set_result(code)

    def _introduction(self) -> Message:
        place = self._place
        return {
            "agent": place.name,
            "baseline": place.is_baseline,
            "place": place.index,
            "node": place.node,
            "job_id": place.job_id,
        }

    async def _find_coordinator(self) -> tuple[asyncio.StreamReader, CoordinatorAddress]:
        deadline = asyncio.get_running_loop().time() + FIND_SECONDS
        reason = "it has not published its address"
        while asyncio.get_running_loop().time() < deadline:
            status = self._folder.status()
            if self._shutdown.done() or (status is not None and status.state in FINAL_STATES):
                raise ElasticError(f"run {self._spec.id} has ended; this node's part is not needed any more")
            address = self._folder.coordinator()
            if address is not None:
                with contextlib.suppress(OSError):
                    reader, self._writer = await asyncio.open_connection(
                        address.host, address.port, limit=LINE_LIMIT
                    )
                    return reader, address
                reason = f"nobody listens at {address.host}:{address.port}"
            await asyncio.sleep(0.1)
        raise ElasticError(
            f"no coordinator of run {self._spec.id} in {FIND_SECONDS:g} s: {reason}",
            "the baseline job has probably ended; hp-status tells",
        )

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, ElasticError, ValueError):
            while line := await reader.readline():
                self._obey(decode(line))
        if not self._shutdown.done() and not self._leaving:
            print("elastic: the coordinator is gone; this node's part ends", file=sys.stderr, flush=True)
        self.end(EXIT_LOST)

    def _obey(self, message: Message) -> None:
        if message["kind"] == "shutdown":
            self.end(int(message["code"]))
        elif message["kind"] == "restart" and not self._leaving:
            self._workers.restart(str(message["worker"]))
        elif message["kind"] == "kill":
            self._workers.kill(str(message["worker"]))

    async def _show_life(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            self._say("beat")

    async def _drain(self) -> None:
        if self._writer is not None:
            with contextlib.suppress(OSError):
                await asyncio.wait_for(self._writer.drain(), 1.0)
            self._writer.close()

    def _say(self, kind: str, **fields: object) -> None:
        if self._writer is not None:
            self._writer.write(encode(kind, **fields))


async def serve(folder: RunFolder, place: Place, client: SlurmClient) -> int:
    """Run the agent, and where it belongs the coordinator; returns the exit code.

    Raises:
        ElasticError: the run's folder cannot be used, or no coordinator was found.
    """
    agent = Agent(folder, place)
    loop = asyncio.get_running_loop()
    if not place.coordinates:
        loop.add_signal_handler(signal.SIGTERM, agent.on_terminate)
        return await agent.run()
    coordinator = Coordinator(folder, client, place.job_id)
    loop.add_signal_handler(signal.SIGTERM, coordinator.cancel, "the baseline job was ended (SIGTERM)")
    working = asyncio.ensure_future(agent.run())
    working.add_done_callback(lambda task: _give_up(coordinator, task))
    try:
        return await coordinator.run()
    finally:
        agent.end(0)
        await asyncio.wait([working])


def _give_up(coordinator: Coordinator, agent: asyncio.Task[int]) -> None:
    """Without the agent beside it, nobody could tell the coordinator how its node's workers end."""
    if not agent.cancelled() and (error := agent.exception()) is not None:
        coordinator.fail(str(error))


def main(argv: Sequence[str] | None = None, client: SlurmClient | None = None) -> int:
    """The agent's command line; returns the exit code.

    Args:
        client: how Slurm is reached; its own commands when None.
    """
    parser = argparse.ArgumentParser(prog="python -m hpctools.elastic.agent", description=__doc__)
    parser.add_argument("--run-dir", type=Path, required=True, help="the run's folder")
    parser.add_argument("--role", choices=("baseline", "replica"), required=True)
    arguments = parser.parse_args(argv)
    try:
        place = Place.from_environ(arguments.role, os.environ)
        return asyncio.run(serve(RunFolder(arguments.run_dir), place, client or _commands()))
    except HpctoolsError as error:
        print(f"elastic: {error}", file=sys.stderr)
        return error.exit_code


def _commands() -> SlurmClient:
    from hpctools.slurm.cli import CommandClient

    return CommandClient()


if __name__ == "__main__":
    sys.exit(main())
