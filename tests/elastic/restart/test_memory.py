"""Folders of slots: each generation's own, and none stays for ever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hpctools.elastic.restart.memory import SlotFolder


def test_what_a_killed_agent_left_is_removed_and_what_is_in_use_or_fresh_is_not(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from hpctools.elastic.restart.memory import SlotFolder\n"
        "folder = SlotFolder(Path(sys.argv[1])); (folder.path / '0').touch()\n"
        "print(folder.path, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        left = Path(agent.stdout.readline().strip())
        os.utime(left, (0, 0))
        lives = SlotFolder(tmp_path)
        assert left.is_dir(), "its agent lives"
        agent.kill()
    os.utime(lives.path, (0, 0))
    fresh = tmp_path / "hpctools-events-fresh"
    fresh.mkdir()
    other = tmp_path / "somebody-elses"
    other.mkdir()
    os.utime(other, (0, 0))
    last = SlotFolder(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([lives.path, fresh, other, last.path])
    last.remove()
    lives.remove()
    assert sorted(tmp_path.iterdir()) == sorted([fresh, other])


def test_a_node_without_memory_for_files_has_a_folder_all_the_same(tmp_path: Path) -> None:
    folder = SlotFolder(tmp_path / "nowhere")
    assert folder.path.is_dir()
    folder.remove()
    assert not folder.path.exists()
