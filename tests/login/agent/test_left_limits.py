"""No limit is left behind by what failed, hung or was killed while it was set: systemd's files, made up."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from hpctools.errors import CommandError, CommandTimeout
from hpctools.login.agent.caring import Carer, lift_left
from hpctools.login.agent.limited import remember, remembered
from hpctools.login.agent.slices import SystemdSlices
from tests.login.agent.test_caring import CARE, work

OURS = "zz-hpctools-login.conf"


class KilledError(BaseException):
    """SIGKILL: nothing is done any more."""


class Systemd:
    """What `systemctl` does to the files, a hung request only when systemd is back (`carry_out`)."""

    def __init__(self, control: Path) -> None:
        self.slices = SystemdSlices(control)
        self.folder = control / "user-54321.slice.d"
        self.state: Literal["well", "refuses", "hangs", "kills"] = "well"
        self.ran: list[str] = []
        self._waiting: list[Sequence[str]] = []

    def run(self, words: Sequence[str], timeout: float) -> None:
        self.ran.append(words[1])
        if self.state == "kills":
            raise KilledError
        if self.state == "hangs":
            self._waiting.append(words)
            raise CommandTimeout("systemctl did not end in time", argv=tuple(words), code=None)
        if self.state == "refuses":
            raise CommandError("systemctl failed", argv=tuple(words), code=1)
        self._do(words)

    def carry_out(self) -> None:
        """It is back, and does what it was asked meanwhile."""
        self.state = "well"
        for words in self._waiting:
            self._do(words)
        self._waiting.clear()

    def _do(self, words: Sequence[str]) -> None:
        if words[1] == "set-property":
            for each in words[4:]:
                (self.folder / f"50-{each.partition('=')[0]}.conf").write_text(f"[Slice]\n{each}\n")

    @property
    def counts(self) -> list[str]:
        """What the next daemon-reload finds of this person's processors."""
        lines = [line for each in self.folder.glob("*.conf") for line in each.read_text().splitlines()]
        return sorted(line for line in lines if line.startswith("CPUQuota"))


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemd:
    made = Systemd(tmp_path / "control")
    monkeypatch.setattr("hpctools.login.agent.slices.run", made.run)
    monkeypatch.setattr("hpctools.login.agent.slices.PROC", tmp_path / "proc")  # of made-up processes nothing
    return made


class Node:
    """A carer of one, with its note and its clock."""

    def __init__(self, folder: Path, systemd: Systemd, most_cpus: float | None = None) -> None:
        self.note, self.told, self.now = folder / "limited.json", list[str](), 0.0
        care = CARE.model_copy(update={"most_cpus": most_cpus})
        self.carer = Carer(
            care, systemd.slices, lambda user, words: self.told.append(words), lambda user: False,
            self.note, lambda uid: None, lambda: self.now,
        )  # fmt: skip


@pytest.mark.parametrize("how", ["refuses", "hangs"])
def test_a_limit_that_could_not_be_set_is_lifted_when_nobody_wants_it_any_more(
    tmp_path: Path, systemd: Systemd, how: Literal["refuses", "hangs"]
) -> None:
    """Its file counted from the next daemon-reload on, and nobody knew of it until the next boot."""
    node, systemd.state = Node(tmp_path, systemd), how
    end = work(node.carer, 3.0, 4)
    assert (remembered(node.note), systemd.slices.left()) == ([54321], [54321])
    end = work(node.carer, 0.0, 2, end)
    systemd.carry_out()
    node.now = 61.0
    work(node.carer, 0.0, 2, end)
    assert (systemd.counts, list(systemd.folder.iterdir()), systemd.ran[-1]) == ([], [], "daemon-reload")
    assert (node.told, node.carer.penalties, remembered(node.note)) == ([], 0, [])


def test_what_hung_gives_way_to_the_cap_that_counts_for_everybody(tmp_path: Path, systemd: Systemd) -> None:
    node = Node(tmp_path, systemd, most_cpus=3.5)
    end = work(node.carer, 3.0, 3)
    assert systemd.counts == ["CPUQuota=350%"] * 2
    systemd.state = "hangs"
    end = work(node.carer, 3.0, 1, end)
    systemd.carry_out()
    assert systemd.counts == ["CPUQuota=160%"] * 2
    node.now = 61.0
    work(node.carer, 0.0, 1, end)
    assert systemd.counts == ["CPUQuota=350%"] * 2
    assert (node.told, remembered(node.note)) == ([], [54321])


def test_systemd_reads_no_files_at_each_look_while_it_refuses(tmp_path: Path, systemd: Systemd) -> None:
    """Who is to be limited is set anew, without being freed in between."""
    node, systemd.state = Node(tmp_path, systemd), "refuses"
    end = work(node.carer, 3.0, 8)
    assert set(systemd.ran) == {"set-property"}
    systemd.state = "well"
    work(node.carer, 3.0, 1, end)
    assert (len(node.told), systemd.counts) == (1, ["CPUQuota=160%"] * 2)
    assert set(systemd.ran) == {"set-property"}


def test_who_was_told_of_a_limit_hears_of_its_end_also_when_that_hung(
    tmp_path: Path, systemd: Systemd
) -> None:
    node = Node(tmp_path, systemd)
    end = work(node.carer, 3.0, 4)
    systemd.state = "hangs"
    end = work(node.carer, 0.0, 12, end)
    assert len(node.told) == 1, "nobody knows that it is over"
    systemd.carry_out()
    node.now = 61.0
    work(node.carer, 0.0, 1, end)
    assert (systemd.counts, len(node.told)) == ([], 2)
    assert node.told[1].startswith("This login node's limit on your programs is over.")


@pytest.mark.parametrize("care", [True, False])
@pytest.mark.parametrize("noted", [True, False])
def test_an_agent_that_is_killed_while_it_sets_a_limit_leaves_none(
    tmp_path: Path, systemd: Systemd, noted: bool, care: bool
) -> None:
    """The next one finds it by the note, or by the file where the disk had no room for a note."""
    node, systemd.state = Node(tmp_path, systemd), "kills"
    with pytest.raises(KilledError):
        work(node.carer, 3.0, 4)
    assert systemd.counts == ["CPUQuota=160%"]
    assert remembered(node.note) == [54321]
    if not noted:
        node.note.unlink()
    systemd.state = "well"
    if care:
        Node(tmp_path, systemd).carer.release()
    else:
        lift_left(systemd.slices, node.note)
    assert (systemd.counts, systemd.ran[-1], remembered(node.note)) == ([], "daemon-reload", [])


def test_the_next_agent_has_systemd_read_what_one_before_it_removed(tmp_path: Path, systemd: Systemd) -> None:
    """Killed, or given up on, while systemd read its files."""
    node = Node(tmp_path, systemd)
    work(node.carer, 3.0, 4)
    systemd.state = "kills"
    with pytest.raises(KilledError):
        node.carer.release()
    assert (systemd.counts, systemd.slices.left()) == ([], [54321])
    node.note.unlink()
    systemd.state = "well"
    Node(tmp_path, systemd).carer.release()
    assert (systemd.ran[-1], systemd.slices.left()) == ("daemon-reload", [])


def test_what_is_anothers_is_not_taken_for_ours(tmp_path: Path, systemd: Systemd) -> None:
    for name in ("user-1001.slice.d/50-CPUQuota.conf", f"user-.slice.d/{OURS}", f"user-x.slice.d/{OURS}"):
        (tmp_path / "control" / name).parent.mkdir(parents=True)
        (tmp_path / "control" / name).touch()
    assert systemd.slices.left() == []


def test_a_full_disk_takes_nobody_out_of_the_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file was emptied before its new text had no room."""
    note = tmp_path / "limited.json"
    remember(note, [1001])

    def write_text(self: Path, text: str) -> int:
        self.open("w").close()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", write_text)
    remember(note, [1001, 1002])
    assert remembered(note) == [1001]
