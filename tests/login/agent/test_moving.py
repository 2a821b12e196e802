"""People's programs of a service, put into their slices: a made-up /proc, and a systemd that only listens."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from hpctools.errors import CommandError, CommandTimeout
from hpctools.login.agent import daemon
from hpctools.login.agent.caring import Carer
from hpctools.login.agent.moving import Mover, leaves_slices, service_of
from hpctools.login.agent.pausing import Pause
from hpctools.login.agent.processes import TICKS, Process, read_processes
from hpctools.login.agent.settings import Settings
from hpctools.login.care import GIB
from hpctools.site.login_care import Care
from hpctools.slurm.run import Completed
from tests.login.agent.test_caring import CARE, FakeSlices
from tests.login.node_processes import sample

ANNA, BERT, ADMIN = 1001, 1002, 1003
SSM = "/system.slice/amazon-ssm-agent.service"
NEW, OLD = "systemd 252 (252.38-1~deb12u1)\n+PAM", "systemd 219\n+PAM"
FIELDS = "1 1 0 0 -1 0 0 0 0 0 7 5 0 0 20 0 {threads} 0 {started} 0 25 18446744073709551615"


class Node:
    """Processes, and what systemd was asked; what it is asked for, it does, unless told otherwise."""

    def __init__(self, proc: Path) -> None:
        self.proc, self.version = proc, NEW
        self.asked: list[Sequence[str]] = []
        self.answer: Callable[[Sequence[str]], None] = lambda pids: None
        self.now = 1000.0
        self.pause = Pause("systemd", "nobody's limits change meanwhile")
        self.mover = Mover(Care().services, lambda user: user == str(ADMIN), lambda: self.now, proc)

    def begin(self, pid: int, uid: int, cgroup: str = SSM, started: int = 0, **other: object) -> None:
        stat = FIELDS.format(**{"threads": 1, "started": started or pid * 10, **other})
        folder = self.proc / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "stat").write_text(f"{pid} (sh (1)) {other.get('state', 'S')} {stat}\n")
        (folder / "status").write_text(f"Name:\tsh\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        (folder / "cmdline").write_bytes(b"sh\0")
        line = cgroup if ":" in cgroup else f"0::{cgroup}\n"
        (folder / "cgroup").write_text(line, errors="surrogateescape")

    def end(self, pid: int) -> None:
        shutil.rmtree(self.proc / str(pid))

    def run(self, words: Sequence[str], timeout: float) -> Completed:
        assert timeout <= 10
        if words[0] == "systemctl":
            return Completed(tuple(words), 0, self.version, "")
        self.asked.append(words)
        pids = pids_of(words)
        self.answer(pids)
        slice_ = words[words.index("Slice") + 2]
        for pid in pids:
            (self.proc / pid / "cgroup").write_text(f"0::/user.slice/{slice_}/{words[6]}\n")
        return Completed(tuple(words), 0, "", "")

    def look(self) -> list[list[str]]:
        """What one look moves."""
        before = len(self.asked)
        self.mover.look(self.processes(), self.pause)
        return [list(pids_of(words)) for words in self.asked[before:]]

    def processes(self) -> tuple[Process, ...]:
        return read_processes(self.proc)


def pids_of(words: Sequence[str]) -> Sequence[str]:
    first = words.index("au") + 2
    return words[first : first + int(words[first - 1])]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node(tmp_path)
    monkeypatch.setattr("hpctools.login.agent.moving.run", made.run)
    return made


def refusing(text: str = "Call failed") -> Callable[[Sequence[str]], None]:
    def answer(pids: Sequence[str]) -> None:
        raise CommandError(text, argv=("busctl",), code=1)

    return answer


def test_a_cgroup_of_somebodys_own_with_a_name_that_is_no_text_keeps_nobody_from_being_moved(
    node: Node,
) -> None:
    """The kernel takes any bytes; people make cgroups below what systemd gives them."""
    node.begin(60, BERT, f"/user.slice/user-{BERT}.slice/user@{BERT}.service/x\udcff")
    node.begin(61, ANNA)
    assert node.look() == [["61"]]


def test_a_shell_of_session_managers_gets_into_its_owners_slice_with_all_below_it(node: Node) -> None:
    """As systemd takes it (org.freedesktop.systemd1(5)); root and administrators stay."""
    node.begin(50, 0)
    node.begin(61, ANNA)
    node.begin(60, ANNA, started=605)
    node.begin(70, ADMIN)
    node.begin(80, 999)
    node.mover.look(node.processes(), node.pause)
    (words,) = node.asked
    assert list(words) == [
        *("busctl", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1"),
        *("org.freedesktop.systemd1.Manager", "StartTransientUnit", "ssa(sv)a(sa(sv))"),
        *("hpctools-login-1001-60-605.scope", "fail", "6"),
        *("PIDs", "au", "2", "60", "61", "Slice", "s", "user-1001.slice"),
        *("Description", "s", "Programs of user 1001 that a service started"),
        *("CollectMode", "s", "inactive-or-failed", "SendSIGHUP", "b", "true"),
        *("MemoryAccounting", "b", "false", "0"),
    ]
    assert node.look() == []


def test_one_call_for_each_person_and_look(node: Node) -> None:
    for pid, uid in ((60, ANNA), (61, BERT), (62, ANNA)):
        node.begin(pid, uid)
    assert node.look() == [["60", "62"], ["61"]]
    node.begin(63, BERT)
    assert node.look() == [["63"]]


V1 = "4:cpu,cpuacct:{0}\n3:pids:{0}\n1:name=systemd:{1}\n"


@pytest.mark.parametrize(
    ("cgroup", "is_in"),
    [
        (SSM, True),
        (f"{SSM}/below", True),
        ("/system.slice/snap.amazon-ssm-agent.amazon-ssm-agent.service", True),
        ("/site.slice/site-login.slice/amazon-ssm-agent.service", True),
        (V1.format("/", SSM), True),
        (V1.format(SSM, SSM), True),
        (V1.format(SSM, "/user.slice/user-1001.slice/session-1.scope"), False),
        ("/system.slice/old-amazon-ssm-agent.service", False),
        ("/system.slice/amazon-ssm-agent.service.d", False),
        ("/system.slice/jupyterhub.service", False),
        ("/user.slice/user-1001.slice/user@1001.service/app.slice/amazon-ssm-agent.service", False),
        (f"/machine.slice/box.scope{SSM}", False),
        (f"{SSM}/slurm/uid_1001/job_7/step_0", False),
        (V1.format("/slurm/uid_1001/job_7/step_0", SSM), False),
        ("/", False),
    ],
)
def test_what_is_in_the_service_itself(node: Node, cgroup: str, is_in: bool) -> None:
    """Not in one of that name in a container, of a person's own, or in a job of Slurm's."""
    node.begin(60, ANNA, cgroup)
    assert (service_of(60, Care().services, node.proc) != "") == is_in
    assert node.look() == ([["60"]] if is_in else [])


def test_a_number_that_is_another_process_by_now_is_not_moved(node: Node) -> None:
    """Who ended and whose number another person's has, who became root, who has left: since the look."""
    for pid in (60, 61, 62, 63, 64):
        node.begin(pid, ANNA)
    seen = node.processes()
    node.begin(60, BERT, started=9)
    node.begin(61, 0)
    node.begin(62, ANNA, "/user.slice/user-1001.slice/session-1.scope")
    node.end(63)
    node.mover.look(seen, node.pause)
    assert [pids_of(words) for words in node.asked] == [["64"]]


def test_who_ends_while_systemd_is_asked_keeps_nobody_back(node: Node) -> None:
    """systemd then refuses them all."""
    for pid in (60, 61, 62):
        node.begin(pid, ANNA)

    def answer(pids: Sequence[str]) -> None:
        if "60" in pids:
            node.end(60)
            raise CommandError("Process with ID 60 does not exist.", argv=("busctl",), code=1)

    node.answer = answer
    assert node.look() == [["60", "61", "62"], ["61", "62"]]


def test_one_whose_parent_has_not_heard_of_its_end_is_left(node: Node) -> None:
    """A scope of these alone would stay for ever; one whose first thread alone has ended runs."""
    node.begin(60, ANNA, state="Z")
    node.begin(61, ANNA, state="Z", threads=2)
    assert node.look() == [["61"]]


def test_what_cannot_be_moved_is_said_once_and_tried_each_minute(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.begin(60, ANNA)
    node.begin(61, BERT)
    node.answer = refusing("cannot start busctl: No such file or directory")
    assert len(node.look()) == 2
    assert node.look() == []
    node.now += 61
    assert len(node.look()) == 2
    (told,) = caplog.messages
    assert told.startswith("programs of 1001 stay in the service")
    assert told.endswith("each minute: cannot start busctl: No such file or directory")
    node.now += 61
    node.answer = lambda pids: None
    assert node.look() == [["60"], ["61"]]


def test_what_systemd_takes_and_does_not_move_is_not_asked_for_ever(node: Node) -> None:
    node.begin(60, ANNA)
    moved = []
    for _ in range(5):
        moved.append(len(node.look()))
        node.begin(60, ANNA)
    assert moved == [1, 1, 1, 0, 0]


def test_a_systemd_that_hangs_is_left_alone_as_for_limits(node: Node) -> None:
    def answer(pids: Sequence[str]) -> None:
        raise CommandTimeout("busctl did not end within 10 s", argv=("busctl",), code=None)

    node.begin(60, ANNA)
    node.begin(61, BERT)
    node.answer = answer
    assert node.look() == [["60"]]
    assert node.pause.lasts(node.now)
    assert node.look() == []
    node.now += 61
    node.answer = lambda pids: None
    assert node.look() == [["60"], ["61"]]


def test_a_look_moves_for_some_seconds_at_most(node: Node) -> None:
    def answer(pids: Sequence[str]) -> None:
        node.now += 2

    node.answer = answer
    for pid in range(60, 65):
        node.begin(pid, pid + 1000)
    assert [len(node.look()) for _ in range(4)] == [2, 2, 1, 0]


@pytest.mark.parametrize(
    ("said", "leaves"),
    [
        (NEW, True),
        (OLD, False),
        ("systemd 240", True),
        ("systemd 239", False),
        ("systemd 239 (239-45.el8_4.3)", False),
        ("systemd 239 (239-50.el8)", True),
        ("systemd 239 (239-51.fc29)", False),
        ("systemd 249 (249.11-0ubuntu3.12)", True),
        ("systemd 252 (252.23-3.amzn2023)", True),
        ("systemd 257~rc1 (257~rc1-1)", True),
        ("", False),
    ],
)
def test_which_systemd_leaves_slices_alone_at_the_last_logout(said: str, leaves: bool) -> None:
    assert leaves_slices(said) == leaves


def test_under_an_older_systemd_nothing_is_moved_and_the_log_says_so_once(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.version = OLD
    assert node.look() == []
    assert caplog.messages == []
    node.begin(60, ANNA)
    for _ in range(3):
        assert node.look() == []
    (told,) = caplog.messages
    assert told.startswith("this systemd 219 ends all in a person's slice")


def test_memory_that_a_program_had_before_it_was_moved_is_known_as_long_as_it_has_it(node: Node) -> None:
    """Under cgroup v2 it stays counted for the service."""
    node.begin(60, ANNA)
    (before,) = node.processes()
    assert node.mover.brought([before]) == 0
    node.look()
    assert node.mover.brought([before]) == before.memory > 0
    assert node.mover.brought([Process(60, 1, ANNA, 600, 0, 5, "sh", "sh")]) == 5
    assert node.mover.brought([Process(60, 1, ANNA, 601, 0, 5, "sh", "sh")]) == 0
    node.end(60)
    node.look()
    assert node.mover.brought([before]) == 0


def test_where_no_service_is_named_nothing_is_moved(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    node.begin(60, ANNA)
    node.mover = Mover((), lambda user: False, lambda: node.now, node.proc)
    assert (node.look(), caplog.messages) == ([], [])


class Reaching(FakeSlices):
    """Limits that reach what is in nobody's service."""

    def __init__(self, proc: Path) -> None:
        super().__init__()
        self.proc = proc

    def outside(self, uid: int, processes: Iterable[Process]) -> tuple[Process, ...]:
        return tuple(each for each in processes if service_of(each.pid, Care().services, self.proc))


def shell(node: Node, minute: int, memory: int = 0) -> Process:
    (found,) = node.processes()
    return replace(found, cpu_ticks=minute * 60 * 3 * TICKS, memory=memory)


def test_who_is_slowed_down_is_moved_before_that_is_judged(node: Node) -> None:
    """Who came by Session Manager was told of limits that do not reach them."""
    told, slices = list[str](), Reaching(node.proc)
    carer = Carer(CARE, slices, lambda user, words: told.append(words), lambda user: False, mover=node.mover)
    node.begin(60, ANNA)
    for minute in range(4):
        first, then = (sample(shell(node, each), at=60 * each) for each in (minute, minute + 1))
        carer.look(first, then)
        assert len(node.asked) == 1
    assert told[0].startswith("You have used 3.0 processors")
    assert "Your programs go on with 1.6 processors and 3.2 GiB; the limit eases" in told[0]


def test_memory_that_somebody_brought_counts_beside_what_the_slice_holds(node: Node) -> None:
    carer = Carer(
        CARE, Reaching(node.proc), lambda u, w: None, lambda u: False, held=lambda uid: 1, mover=node.mover
    )
    node.begin(60, ANNA)
    for minute in range(6):
        there = replace(shell(node, 0), memory=9 * GIB)
        carer.look(sample(there, at=60 * minute), sample(there, at=60 * (minute + 1)))
    assert [reason[1] for reason in carer._reasons.values()] == [9 * GIB]


def test_a_systemd_that_hung_at_moving_is_not_asked_for_limits(node: Node) -> None:
    """Both would take seconds of one look."""

    def answer(pids: Sequence[str]) -> None:
        raise CommandTimeout("busctl did not end within 10 s", argv=("busctl",), code=None)

    slices = FakeSlices()
    care = CARE.model_copy(update={"most_cpus": 8.0})
    carer = Carer(
        care, slices, lambda *_: None, lambda u: False, monotonic=lambda: node.now, mover=node.mover
    )
    node.begin(60, ANNA)
    node.answer = answer
    carer.look(sample(shell(node, 0), at=0), sample(shell(node, 0), at=60))
    assert (len(node.asked), slices.told) == (1, [])


@pytest.mark.parametrize("adopts", [True, False])
def test_only_systemd_has_to_move_what_a_service_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adopts: bool
) -> None:
    """In cgroups of the agent's own all of a person's programs are limited."""
    slices = FakeSlices()
    slices.adopts = adopts
    monkeypatch.setattr(daemon, "find_slices", lambda: slices)
    agent = daemon.make_agent(
        Settings(state=str(tmp_path), care=Care(services=("jupyterhub.service",))), None
    )
    assert agent.carer is not None
    mover = agent.carer._mover
    assert (mover._services if mover else None) == (frozenset({"jupyterhub.service"}) if adopts else None)


@pytest.mark.parametrize(
    "name", ["amazon-ssm-agent", "amazon-ssm-agent.socket", "a b.service", "a/b.service"]
)
def test_what_is_no_name_of_a_service_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="a systemd service, such as"):
        Care.model_validate_json(json.dumps({"services": [name]}))
