"""The agent's edges: outside Slurm, without a coordinator, light, and closed to strangers."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ledger_run import LedgerRun, training
from metadata_service import Service, serving, spot_at

from hpctools.elastic import agent, agent_line, job_fate
from hpctools.elastic.agent import Agent
from hpctools.elastic.agent_place import Place
from hpctools.elastic.folder import CoordinatorAddress, Ending, RunFolder, RunStatus
from hpctools.elastic.last_save import AGAIN_SECONDS
from hpctools.elastic.notices import SPOT_PATH, Lookout
from hpctools.elastic.protocol import connect, encode
from hpctools.elastic.spec import RunSpec
from hpctools.errors import ElasticError, UnreachableError
from hpctools.slurm.types import Job
from hpctools.testing.slurm import FakeSlurm

SPEC = RunSpec("t-1", "t", "nlp1", "", 1, 2, 1, ("true",), "/", (), "/r.sh", "now")
LIMIT, HOUR = 60.0, 3600.0
SLOW = 0.7  # seconds that storage takes to answer
ASKED, ECHO = 4.0, 0.3  # seconds after SIGTERM that Slurm is asked no longer, that it comes again
STEP = {"SLURM_JOB_ID": "12", "SLURM_NODEID": "0", "SLURMD_NODENAME": "n4"}


def test_place_follows_slurms_variables() -> None:
    place = Place.from_environ("replica", STEP)
    assert place == Place("replica", 12, 0, "n4")
    assert (place.name, place.coordinates) == ("r12", False)
    first = Place.from_environ("baseline", STEP)
    assert (first.name, first.coordinates) == ("b0", True)


def test_outside_a_job_step_it_says_so() -> None:
    with pytest.raises(ElasticError, match="outside a Slurm job step; start it with srun"):
        Place.from_environ("baseline", {})


@pytest.mark.parametrize("role", ["baseline", "replica"])
@pytest.mark.parametrize(("state", "code"), [("finished", 0), ("failed", 1), ("cancelled", 1)])
def test_an_agent_of_a_run_that_has_ended_goes_and_fails_no_job_of_one_that_finished(
    role: str,
    state: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = RunFolder.create(tmp_path / "run", SPEC)
    folder.claim_term(1)
    folder.write_status(RunStatus(state))
    for name, value in {**STEP, "SLURM_NODEID": "1"}.items():
        monkeypatch.setenv(name, value)
    assert agent.main(["--run-dir", str(folder.path), "--role", role], client=FakeSlurm()) == code
    assert capsys.readouterr().err == "elastic: run t-1 has ended; this node's part is not needed any more\n"


def test_replica_without_a_coordinator_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder.create(tmp_path / "run", SPEC)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        folder.write_coordinator(CoordinatorAddress("127.0.0.1", unused.getsockname()[1], "t", 1, 1))
    monkeypatch.setattr(agent_line, "FIND_SECONDS", 0.2)
    for name, value in STEP.items():
        monkeypatch.setenv(name, value)
    assert agent.main(["--run-dir", str(folder.path), "--role", "replica"], client=FakeSlurm()) == 1
    assert "no coordinator of run t-1 in 0.2 s: nobody listens at 127.0.0.1:" in capsys.readouterr().err


@pytest.mark.parametrize(("wanted", "has"), [(None, 6.0), (4.0, 4.0), (7.0, 6.0), (1.0, 1.0), (0.0, 0.0)])
def test_who_leaves_has_what_the_policy_says_and_ends_before_slurm_ends_it(
    wanted: float | None, has: float
) -> None:
    spec = replace(SPEC, grace_seconds=8.0, policy={"graceful_shutdown_s": wanted})
    assert spec.departure_seconds(spec.grace_seconds) == has
    assert spec.graceful_seconds == (8.0 if wanted is None else wanted)


def test_a_preempted_agent_waits_for_its_workers_as_long_as_the_policy_says(tmp_path: Path) -> None:
    folder = RunFolder.create(
        tmp_path / "run", replace(SPEC, grace_seconds=HOUR, policy={"graceful_shutdown_s": 0.5})
    )

    async def leaves() -> float:
        made, began = Agent(folder, Place("replica", 12, 0, "n4"), FakeSlurm()), time.monotonic()
        made._all_left = asyncio.Event().wait  # type: ignore[assignment]
        made.on_terminate()
        assert await asyncio.wait_for(made.run(), LIMIT) == 0
        return time.monotonic() - began

    assert asyncio.run(leaves()) >= 0.5


class Completing:
    """A coordinator to which only the end of the run is left."""

    is_completing = True


@pytest.mark.parametrize(
    ("completing", "seconds", "leaving", "least"),
    [(True, 0.3, "", 0.3), (True, HOUR, "preempted", 0.0), (False, HOUR, "", 0.0)],
)
def test_who_coordinates_the_end_of_a_run_stays_for_it_but_not_for_long(
    completing: bool,
    seconds: float,
    leaving: str,
    least: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not when its node is wanted, nor when the run goes on without its workers."""
    folder = RunFolder.create(tmp_path / "run", SPEC)
    monkeypatch.setattr(agent, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(agent, "OFFICE_SECONDS", seconds)

    async def stays() -> float:
        made, began = Agent(folder, Place("replica", 12, 0, "n4"), FakeSlurm()), time.monotonic()
        made._workers.expect_no_restart(5.0)
        made._line.connected.set()
        made._leaving = leaving
        made._succession.coordinator = Completing() if completing else None  # type: ignore[assignment]
        made._succession.work = asyncio.get_running_loop().create_future()  # type: ignore[assignment]
        await asyncio.wait_for(made._all_left(), LIMIT)
        return time.monotonic() - began

    assert asyncio.run(stays()) >= least


def test_agent_and_folder_import_neither_torch_nor_pydantic() -> None:
    code = "import sys, hpctools.elastic.agent, hpctools.elastic.folder; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=30
    ).stdout.split()
    assert not {"torch", "numpy", "pydantic", "yaml", "rich", "click"} & set(modules)


@pytest.fixture
def plain_run(tmp_path: Path) -> Iterator[LedgerRun]:
    """A run whose command knows nothing of us and waits until it is ended."""
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with LedgerRun(tmp_path, command, (1, 1)) as run:
        run.wait(run.folder.coordinator)
        yield run


@pytest.mark.parametrize(
    "hello",
    [
        encode("hello", role="worker", token="guessed", worker="b0.0.9"),
        encode("hello", role="worker", token=None, worker="b0.0.9"),
        encode("ready"),
        b"GET / HTTP/1.1\n",
        b"\xff\xfe\n",
        b"[]\n",
    ],
)
def test_stranger_is_turned_away_and_the_run_goes_on(plain_run: LedgerRun, hello: bytes) -> None:
    address = plain_run.folder.coordinator()
    assert address is not None
    with connect(address, 5) as connection:
        connection.settimeout(5)
        connection.sendall(hello)
        assert connection.recv(100) == b""
    assert plain_run.baseline[0].poll() is None
    assert plain_run.events("warning", "failed") == []


def test_command_that_is_no_training_just_runs(tmp_path: Path) -> None:
    """hp-submit --nodes 1:1 -- echo: finished when it is, with its output in the job's."""
    with LedgerRun(tmp_path, [sys.executable, "-c", "print('hello')"], (1, 1)) as run:
        assert run.end(20) == 0
    status = run.status()
    assert status is not None
    assert status.state == "finished"
    assert run.log.read_text() == "hello\n"


def test_command_that_cannot_be_started_fails_the_run(tmp_path: Path) -> None:
    with LedgerRun(tmp_path, ["/no/such/program"], (1, 1)) as run:
        assert run.end(20) == 1
    status = run.status()
    assert status is not None
    assert status.message.endswith(
        "exit code 127: cannot start /no/such/program: No such file or directory; "
        "install /no/such/program or put it on PATH"
    )


def test_full_disk_does_not_stop_the_training(tmp_path: Path) -> None:
    """What the coordinator cannot write is said once; the training ends well."""
    run = LedgerRun(tmp_path, training(tmp_path / "out", "--samples", "96", "--epochs", "1"), (1, 1))
    (run.folder.path / "events.jsonl").symlink_to("/dev/full")
    with run:
        assert run.end() == 0
    log = run.log.read_text()
    assert log.count("No space left on device") == 1
    assert "the training goes on" in log
    status = run.status()
    assert status is not None
    assert (status.state, status.step) == ("finished", 2)
    assert json.loads((run.folder.path / "status.json").read_text())["state"] == "finished"


def test_who_is_sent_away_does_not_come_again_while_its_coordinator_ends(tmp_path: Path) -> None:
    """It would be taken for a node that stays, and ranks would begin there."""
    folder, hellos = RunFolder.create(tmp_path / "run", SPEC), []

    async def send_away(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hellos.append(await reader.readline())
        writer.write(encode("welcome", term=1) + encode("shutdown", code=9))
        await reader.read()
        writer.close()

    async def scene() -> int:
        server = await asyncio.start_server(send_away, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        folder.write_coordinator(CoordinatorAddress("127.0.0.1", port, "t", 1, 1))
        made, office = Agent(folder, Place("replica", 12, 0, "n4"), FakeSlurm()), asyncio.Future[int]()
        made._succession.work = office  # type: ignore[assignment]
        running = asyncio.ensure_future(made.run())
        await made._shutdown
        asyncio.get_running_loop().call_later(0.5, office.set_result, 9)
        code = await running
        server.close()
        return code

    assert asyncio.run(asyncio.wait_for(scene(), LIMIT)) == 9
    assert len(hellos) == 1


def test_what_happens_between_the_hello_and_its_welcome_is_told(tmp_path: Path) -> None:
    """Else nobody would ever hear of a rank's end, say: the hello has told that it runs."""
    folder = RunFolder.create(tmp_path / "run", SPEC)

    async def scene() -> bytes:
        heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def admit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            line.say("exited", worker="r12.0.0")
            writer.write(encode("welcome", term=1))
            heard.set_result(await reader.readline())
            writer.close()

        server = await asyncio.start_server(admit, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        folder.write_coordinator(CoordinatorAddress("127.0.0.1", port, "t", 1, 1))
        made = Agent(folder, Place("replica", 12, 0, "n4"), FakeSlurm())
        line = made._line
        keeping = asyncio.ensure_future(line.keep())
        try:
            return await heard
        finally:
            keeping.cancel()
            await line.drain()
            server.close()

    told = asyncio.run(asyncio.wait_for(scene(), LIMIT))
    assert json.loads(told) == {"kind": "exited", "worker": "r12.0.0"}


def test_connecting_to_nobody_is_said() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(UnreachableError, match=f"the coordinator at 127.0.0.1:{port} does not answer"):
        connect(CoordinatorAddress("127.0.0.1", port, "t", 1, 1), 1)


def test_a_notice_that_stands_already_is_told_as_soon_as_somebody_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is repeated half a minute later only, and a spot instance has two."""
    said: list[str] = []

    async def scene(service: Service) -> None:
        node = Agent(RunFolder.create(tmp_path / "run", SPEC), Place("replica", 7, 0, "n1"), FakeSlurm())
        monkeypatch.setattr(node._line, "say", lambda kind, **fields: said.append(fields["what"]))
        looking = asyncio.ensure_future(node._look_out())
        await asyncio.sleep(0.1)
        assert service.requests == []
        node._line.connected.set()
        while not said:
            await asyncio.sleep(0.01)
        looking.cancel()

    with serving() as service:
        service.documents[SPOT_PATH] = spot_at(100)
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.endpoint)
        asyncio.run(asyncio.wait_for(scene(service), 10))
    assert said == ["spot"]


def test_a_notice_that_stands_is_told_to_the_next_coordinator_without_waiting_for_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within that half minute the node may be gone, and nobody would have left it."""
    monkeypatch.setattr(agent, "Lookout", partial(Lookout, poll_seconds=0.01))
    said: list[str] = []

    async def scene() -> None:
        node = Agent(RunFolder.create(tmp_path / "run", SPEC), Place("replica", 7, 0, "n1"), FakeSlurm())
        monkeypatch.setattr(node._line, "say", lambda kind, **fields: said.append(fields["what"]))
        looking = asyncio.ensure_future(node._look_out())
        node._line.connected.set()
        for hellos in (1, 2):
            while len(said) < hellos:
                await asyncio.sleep(0.01)
            node._introduction()
        looking.cancel()

    with serving() as service:
        service.documents[SPOT_PATH] = spot_at(100)
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.endpoint)
        asyncio.run(asyncio.wait_for(scene(), 10))
    assert said == ["spot", "spot"]


class Silent(FakeSlurm):
    """A slurmctld that answers when it is too late."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answer = threading.Event(), threading.Event()

    def jobs(self, **_: object) -> list[Job]:  # type: ignore[override]
        self.asked.set()
        assert self.answer.wait(LIMIT)
        return []


@pytest.mark.parametrize("silent", ["slurmctld", "slurmdbd"])
def test_a_baseline_s_agent_that_cannot_learn_why_its_job_ends_decides_nothing(
    silent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node of its job may have failed: it leaves, and the run is not over for that."""
    monkeypatch.setattr(agent, "ASK_SECONDS", 0.2)
    monkeypatch.setattr(job_fate, "PAUSE_SECONDS", 0.0)
    folder = RunFolder.create(tmp_path / "run", SPEC)
    slurm = Silent() if silent == "slurmctld" else FakeSlurm()
    if isinstance(slurm, Silent):
        slurm.answer.clear()
    else:
        slurm.queue[12] = Job(12, "train", "nlp1", "nlp", "gpu", "high", "COMPLETING")

    async def told() -> dict[str, object]:
        made = Agent(folder, Place("baseline", 12, 0, "n4"), slurm)
        made.on_terminate()
        try:
            await asyncio.wait_for(asyncio.gather(*made._tasks), LIMIT)
        finally:
            if isinstance(slurm, Silent):
                slurm.answer.set()
        return made._introduction()

    hello = asyncio.run(told())
    assert (hello["leaving"], hello["open"]) == ("departed", True)
    assert folder.ending() is None


@pytest.mark.parametrize("wanted", [None, 10.0])
def test_a_baseline_whose_end_slurm_explains_late_is_gone_before_slurm_kills_it(
    wanted: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KillWait counts from SIGTERM on, and what agent and coordinator do after it takes some, too."""
    monkeypatch.setattr(agent, "ASK_SECONDS", 0.2)
    monkeypatch.setattr(agent, "_now", itertools.chain([1000.0], itertools.repeat(1000.0 + ASKED)).__next__)
    policy = {} if wanted is None else {"graceful_shutdown_s": wanted}
    spec = replace(SPEC, policy=policy, kill_wait_s=30.0)
    slurm = Silent()

    async def told() -> tuple[float, float]:
        made = Agent(RunFolder.create(tmp_path / "run", spec), Place("baseline", 12, 0, "n4"), slurm)
        made.on_terminate()
        try:
            await asyncio.wait_for(asyncio.gather(*made._tasks), LIMIT)
        finally:
            slurm.answer.set()
        return made._until - 1000.0, made._introduction()["seconds"]

    until, seconds = asyncio.run(told())
    assert until == (24.5 if wanted is None else wanted + ASKED)
    assert until < spec.kill_wait_s - 5
    assert seconds == until - ASKED + 2.0, "who coordinates counts from there, too"


class Office:
    """A coordinator that is told of the signals."""

    def __init__(self) -> None:
        self.cancelled: list[float] = []

    def cancel(self, reason: str, at: float) -> None:
        self.cancelled.append(at)


def test_a_signal_counts_from_when_it_came_and_its_echo_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm says now sooner, now later why it ends the job: answers lie apart where signals do not."""
    slurm = Silent()
    slurm.queue[12] = Job(12, "train", "nlp1", "nlp", "gpu", "high", "CANCELLED")
    monkeypatch.setattr(agent, "ASK_SECONDS", LIMIT)
    monkeypatch.setattr(agent, "_now", itertools.count(1000.0, ECHO).__next__)
    monkeypatch.setattr(slurm, "jobs", lambda **_: (slurm.answer.wait(LIMIT), [slurm.queue[12]])[1])

    async def told() -> list[float]:
        made = Agent(RunFolder.create(tmp_path / "run", SPEC), Place("baseline", 12, 0, "n4"), slurm)
        office: Any = Office()
        made._succession.coordinator = office
        made.on_terminate()
        made.on_terminate()
        assert len(made._tasks) == 1
        slurm.answer.set()
        await asyncio.wait_for(asyncio.gather(*made._tasks), LIMIT)
        return office.cancelled

    assert asyncio.run(told()) == [1000.0]


@pytest.mark.parametrize("mode", ["restart", "live"])
@pytest.mark.parametrize(
    ("ending", "leaves"), [(None, "preempted"), (Ending("cancelled", "cancelled by somebody"), "")]
)
def test_a_replica_does_not_hurry_when_the_run_is_cancelled(
    ending: Ending | None, leaves: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saves with all others, and has KillWait; GraceTime is for who is preempted."""
    monkeypatch.setattr(agent, "ENDING_SECONDS", LIMIT)  # it reads a file, which takes some on a busy machine
    folder = RunFolder.create(tmp_path / "run", replace(SPEC, mode=mode, grace_seconds=0.0))
    if ending is not None:
        folder.ask_to_end(ending)

    async def told() -> str:
        made = Agent(folder, Place("replica", 12, 0, "n4"), FakeSlurm())
        made.on_terminate()
        await asyncio.wait_for(asyncio.gather(*made._tasks), LIMIT)
        return made._leaving

    assert asyncio.run(told()) == leaves


def test_a_replica_whose_storage_is_slow_does_not_take_a_cancelled_run_for_a_preemption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no grace time its ranks would be killed at once, and what they save with all others is lost."""
    read, found = threading.Event(), Ending("cancelled", "cancelled by somebody")

    async def told() -> str:
        made = Agent(RunFolder.create(tmp_path / "run", SPEC), Place("replica", 12, 0, "n4"), FakeSlurm())
        monkeypatch.setattr(made._folder, "ending", lambda: found if read.wait(LIMIT) else None)
        made.on_terminate()
        asyncio.get_running_loop().call_later(SLOW, read.set)
        await asyncio.wait_for(asyncio.gather(*made._tasks), LIMIT)
        await asyncio.to_thread(read.wait, LIMIT)
        return made._leaving

    assert asyncio.run(told()) == ""


@pytest.mark.parametrize(("apart", "insists"), [(AGAIN_SECONDS - 0.5, False), (AGAIN_SECONDS + 0.5, True)])
def test_a_second_scancel_is_noted_for_who_coordinates_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, apart: float, insists: bool
) -> None:
    """An hp-cancel that has come before, or the echo of a scancel, is no second one."""
    folder, slurm = RunFolder.create(tmp_path / "run", SPEC), FakeSlurm()
    slurm.queue[12] = Job(12, "train", "nlp1", "nlp", "gpu", "high", "COMPLETING")
    slurm.accounted[12] = "CANCELLED"
    monkeypatch.setattr(agent, "_now", itertools.count(1000.0, apart).__next__)
    folder.ask_to_end(Ending("cancelled", "cancelled by hp-cancel"))

    async def told() -> list[bool]:
        made, asked = Agent(folder, Place("baseline", 12, 0, "n4"), slurm), []
        for _ in range(2):
            made.on_terminate()
            await asyncio.wait_for(asyncio.gather(*made._tasks), LIMIT)
            asked.append(folder.was_asked_again())
        return asked

    assert asyncio.run(told()) == [False, insists]


def test_a_run_is_cancelled_though_storage_hangs(tmp_path: Path) -> None:
    """Its coordinator may be in this agent's loop: nothing would be saved before Slurm kills all.

    And the agent ends: a process that waited for storage would keep its node until SIGKILL.
    """
    slurm, office, noted = FakeSlurm(), Office(), threading.Event()
    slurm.queue[12] = Job(12, "train", "nlp1", "nlp", "gpu", "high", "COMPLETING")
    slurm.accounted[12] = "CANCELLED"
    in_time: list[bool] = []

    class Hanging(RunFolder):
        def ask_to_end(self, ending: Ending) -> None:
            in_time.append(noted.wait(LIMIT / 3))

    async def told() -> None:
        folder = Hanging(RunFolder.create(tmp_path / "run", SPEC).path)
        made, known = Agent(folder, Place("baseline", 12, 0, "n4"), slurm), office
        made._succession.coordinator = known  # type: ignore[assignment]
        made.on_terminate()
        await asyncio.wait_for(asyncio.gather(*made._tasks), LIMIT)

    asyncio.run(told())
    assert in_time == [], "it was waited for"
    noted.set()
    assert len(office.cancelled) == 1


def test_a_replica_goes_though_storage_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who preempts it waits for the end of its agent's process, too."""
    monkeypatch.setattr(agent, "ENDING_SECONDS", 0.1)
    over, in_time = threading.Event(), list[bool]()

    async def told() -> str:
        made = Agent(RunFolder.create(tmp_path / "run", SPEC), Place("replica", 12, 0, "n4"), FakeSlurm())
        monkeypatch.setattr(made._folder, "ending", lambda: in_time.append(over.wait(LIMIT / 3)))
        made.on_terminate()
        await asyncio.wait_for(asyncio.gather(*made._tasks), LIMIT)
        return made._leaving

    assert asyncio.run(told()) == "preempted"
    assert in_time == [], "it was waited for"
    over.set()


def test_of_a_cancelled_baseline_job_the_run_is_to_end(tmp_path: Path) -> None:
    folder, slurm = RunFolder.create(tmp_path / "run", SPEC), FakeSlurm()
    slurm.queue[12] = Job(12, "train", "nlp1", "nlp", "gpu", "high", "COMPLETING")
    slurm.accounted[12] = "CANCELLED"

    async def told() -> str:
        made = Agent(folder, Place("baseline", 12, 0, "n4"), slurm)
        made.on_terminate()
        await asyncio.wait_for(asyncio.gather(*made._tasks), LIMIT)
        return made._leaving

    assert asyncio.run(told()) == ""
    assert folder.ending() == Ending("cancelled", "baseline job 12 was cancelled (scancel)")
