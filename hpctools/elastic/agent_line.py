"""An agent's line to whoever coordinates the run: found, and found again when it breaks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from hpctools.elastic.folder import FINAL_STATES, CoordinatorAddress, Ending, RunFolder, RunStatus
from hpctools.elastic.patience import read_line
from hpctools.elastic.processes import in_own_thread
from hpctools.elastic.protocol import BEAT_SECONDS, LINE_LIMIT, SILENCE_SECONDS, Message, decode, encode
from hpctools.elastic.succession import Succession
from hpctools.errors import ElasticError

FIND_SECONDS = 60.0
# For which workers may train without a coordinator, as while its address cannot be written. A full disk or a
# server that is down is a matter of minutes; and of what goes wrong in the training nobody would hear.
ALONE_SECONDS = 3600.0
# For which ranks that save before the run ends wait for whoever had told them to.
ENDING_SECONDS = 5.0
PROBABLY = (
    "the baseline job has probably ended (hp-status tells), or this node does not reach that one: let TCP "
    "through between compute nodes"
)
LOOK_SECONDS = 0.1
WELCOME_SECONDS = 1.5
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class RunOverError(ElasticError):
    """The run has ended without us; no error for the job when it has finished (`--dependency=afterok`).

    Args:
        exit_code: of the agent.
    """

    def __init__(self, run: str, exit_code: int) -> None:
        super().__init__(f"run {run} has ended; this node's part is not needed any more")
        self.exit_code = exit_code


class AgentLine:
    """Keeps an agent connected; what is said while nobody listens is not kept: the next hello tells all.

    Args:
        run: the run's id.
        hello: who we are and what runs here.
        obey: called with every message; while nobody coordinates, with the generation that was published, as
            if somebody had told it (`passed` of restart mode).
        life: what each sign of life carries.
        trains: whether workers here compute, which is a reason to look for the coordinator for longer.

    Attributes:
        connected: set while there is a connection.
    """

    def __init__(
        self,
        folder: RunFolder,
        run: str,
        succession: Succession,
        hello: Callable[[], Message],
        obey: Callable[[Message], None],
        life: Callable[[], Message] = dict,
        trains: Callable[[], bool] = bool,
    ) -> None:
        self._folder = folder
        self._run = run
        self._succession = succession
        self._hello = hello
        self._obey = obey
        self._life = life
        self._trains = trains
        self._writer: asyncio.StreamWriter | None = None
        self.connected = asyncio.Event()

    def say(self, kind: str, **fields: object) -> None:
        """Send a message, if somebody listens."""
        if self._writer is not None:
            self._writer.write(encode(kind, **fields))

    async def keep(self) -> None:
        """Find the coordinator, and find it again, for ever.

        Raises:
            ElasticError: the run has ended, or nobody coordinates it and we cannot.
        """
        living = asyncio.ensure_future(self._show_life())
        try:
            while True:
                await self._listen(*await self._connect())
        finally:
            living.cancel()

    async def drain(self) -> None:
        """Send what is still to be sent, and hang up."""
        if self._writer is not None:
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await asyncio.wait_for(self._writer.drain(), 1.0)
            self._writer.close()

    async def _connect(self) -> Streams:
        loop = asyncio.get_running_loop()
        began = needed = loop.time()  # when somebody here last trained
        reason = "it has not published its address"
        while loop.time() < min(needed + FIND_SECONDS, began + ALONE_SECONDS):
            status, ending, address = await in_own_thread(self._read)  # one that hangs is not read again
            wanted = ending is not None and (not self._trains() or loop.time() - began > ENDING_SECONDS)
            self._check_not_over(status, wanted=wanted)
            if status is not None:  # ranks of one before would write beside its ranks
                self._obey({"kind": "ranks", "do": "passed", "generation": status.generation})
            needed = loop.time() if self._trains() else needed
            if address is not None:
                streams = await self._reached(address)
                if streams is not None:
                    return streams
                reason = f"nobody listens at {address.host}:{address.port}"
            await self._take_over_if_due(loop.time(), address)
            await asyncio.sleep(LOOK_SECONDS)
        waited = FIND_SECONDS if needed == began else round(loop.time() - began)
        problem = self._succession.problem
        raise ElasticError(
            f"no coordinator of run {self._run} in {waited:g} s: {problem.message if problem else reason}",
            problem.remedy if problem else PROBABLY,
        )

    async def _take_over_if_due(self, now: float, address: CoordinatorAddress | None) -> None:
        published = address.term if address else None
        term = await in_own_thread(lambda: self._succession.unreached(now, published=published))
        if term:
            self._succession.take_office(term)

    def _read(self) -> tuple[RunStatus | None, Ending | None, CoordinatorAddress | None]:
        """How the run stands, whether somebody wants it to end, and who coordinates it."""
        status, ending, address = None, None, None
        with contextlib.suppress(ElasticError):
            status, ending = self._folder.status(), self._folder.ending()
        with contextlib.suppress(ElasticError):
            address = self._folder.coordinator()
        return status, ending, address

    def _check_not_over(self, status: RunStatus | None, *, wanted: bool) -> None:
        """The run has ended, or is wanted to end by somebody, and nobody is there to see to that."""
        if wanted or (status is not None and status.state in FINAL_STATES):
            finished = status is not None and status.state == "finished"
            raise RunOverError(self._run, 0 if finished else ElasticError.exit_code)

    async def _reached(self, address: CoordinatorAddress) -> Streams | None:
        """A connection on which the coordinator has answered: one that is frozen only accepts."""
        try:
            reader, writer = await asyncio.wait_for(
                asyncio.open_connection(address.host, address.port, limit=LINE_LIMIT), WELCOME_SECONDS
            )
        except (OSError, asyncio.TimeoutError):
            return None
        writer.write(encode("hello", token=address.token, role="agent", **self._hello()))
        self._writer = writer  # what happens from now on comes after the hello, and what was before is in it
        with contextlib.suppress(OSError, ElasticError, asyncio.TimeoutError):
            welcome = decode(await read_line(reader, WELCOME_SECONDS))
            if welcome["kind"] == "welcome":
                self._succession.reached(address)
                self.connected.set()
                return reader, writer
        self._writer = None
        writer.close()
        return None

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Obey until the line breaks or the coordinator falls silent."""
        with contextlib.suppress(OSError, ElasticError, ValueError, asyncio.TimeoutError):
            while line := await read_line(reader, SILENCE_SECONDS):
                self._obey(decode(line))
        self.connected.clear()
        self._writer = None
        writer.close()

    async def _show_life(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            self.say("beat", **self._life())
