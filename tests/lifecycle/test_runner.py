"""The runner on steps in real bash: check, do, time limits, attempts, kills, two at once."""

import json
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest

from tests.lifecycle.node import Node, has_ended

NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
# A step that is done when its mark is there, and notes each `do`.
MARK = """# roles: compute
mark="$HPCTOOLS_ROOT/done-{name}"
case "$1" in
  check) [ -e "$mark" ] ;;
  do) echo {name} >>"$HPCTOOLS_ROOT/did"; {{ {work}; }} && touch "$mark" ;;
esac"""


def mark(name: str, work: str = ":", header: str = "") -> str:
    return (f"{header}\n" if header else "") + MARK.format(name=name, work=work)


def did(node: Node) -> list[str]:
    path = node.path("/did")
    return path.read_text().split() if path.exists() else []


def three(node: Node, work: str = ":", header: str = "") -> None:
    node.steps(s10_a=mark("a"), s20_b=mark("b", work, header), s30_c=mark("c"))


def wait_for(path: Path, process: subprocess.Popen[str], seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, process.stdout.read() if process.stdout else ""
        assert time.monotonic() < until
        time.sleep(0.01)


def test_steps_run_in_order_and_once(node: Node) -> None:
    three(node)
    assert node.run().returncode == 0
    assert did(node) == ["a", "b", "c"]
    assert node.run().returncode == 0
    assert did(node) == ["a", "b", "c"]
    assert [event["step"] for event in node.events("step-already-done")] == ["10-a", "20-b", "30-c"]


def test_a_failed_step_ends_the_run_and_the_next_run_goes_on_there(node: Node) -> None:
    three(node, 'test -e "$HPCTOOLS_ROOT/mended"', "# attempts: 1")
    failed = node.run()
    assert (failed.returncode, did(node)) == (1, ["a", "b"])
    assert node.events("run-failed")[0]["step"] == "20-b"
    node.write("/mended", "")
    assert node.run().returncode == 0
    assert did(node) == ["a", "b", "b", "c"]


def test_bash_steps_fail_at_the_first_failing_command_and_say_where(node: Node) -> None:
    """A script without `set -e` goes on after what failed, and reports success."""
    node.steps(
        s10_strict='# roles: compute\n# attempts: 1\nsource "$HPCTOOLS_BUNDLE/prelude.sh"\n'
        '[ "$1" = do ] || exit 1\nwords=$(cat /nowhere | sort)\necho went on >"$HPCTOOLS_ROOT/went-on"'
    )
    assert node.run().returncode == 1
    assert not node.path("/went-on").exists()
    said = [event["message"] for event in node.events("output")]
    assert any("line 6 of 10-strict" in line for line in said), said


def test_a_slow_world_is_tried_again(node: Node) -> None:
    work = 'echo x >>"$HPCTOOLS_ROOT/tries"; [ "$(wc -l <"$HPCTOOLS_ROOT/tries")" -ge 3 ] || exit 1'
    three(node, work, "# attempts: 4")
    assert node.run().returncode == 0
    assert did(node) == ["a", "b", "b", "b", "c"]
    assert [event["attempt"] for event in node.events("step-attempt-failed")] == [1, 2]


def test_what_is_hopeless_is_tried_once(node: Node) -> None:
    three(node, "exit 78", "# attempts: 4")
    assert node.run().returncode == 1
    assert did(node) == ["a", "b"]


def test_a_step_that_says_done_and_is_not_has_failed(node: Node) -> None:
    node.steps(s10_liar='# roles: compute\n# attempts: 1\n[ "$1" = do ]')
    assert node.run().returncode == 1
    assert "its check says that it is not done" in node.events("step-failed")[0]["message"]


def test_what_is_not_required_stops_nobody(node: Node) -> None:
    three(node, "exit 1", "# required: no\n# attempts: 1")
    assert node.run().returncode == 0
    assert did(node) == ["a", "b", "c"]
    assert node.events("step-failed")[0]["level"] == "warning"


@pytest.mark.parametrize(("required", "code"), [(True, 1), (False, 0)])
def test_a_setting_may_say_whether_a_step_is_required(node: Node, required: bool, code: int) -> None:
    three(node, "exit 1", "# required: containers.required\n# attempts: 1")
    node.settings["containers"] = {"required": required}
    assert node.run().returncode == code


def test_a_step_is_ended_with_all_its_processes_at_its_limit(node: Node) -> None:
    work = 'trap "" TERM; sleep 300 & echo $! >"$HPCTOOLS_ROOT/child"; wait; sleep 300'
    three(node, work, "# limit: 1\n# attempts: 1")
    begin = time.monotonic()
    assert node.run().returncode == 1
    assert time.monotonic() - begin < 15
    assert node.events("step-failed")[0]["message"] == "not done within 1 s"
    assert has_ended(int(node.path("/child").read_text()))


def test_a_missing_command_is_named_and_not_tried_again(node: Node) -> None:
    three(node, ":", "# needs: bash no-such-command\n# attempts: 3")
    assert node.run().returncode == 1
    assert "no-such-command is not installed" in node.events("step-failed")[0]["message"]
    assert did(node) == ["a"]


def test_a_daemon_that_keeps_the_output_open_delays_nobody(node: Node) -> None:
    node.steps(s10_a=mark("a", 'setsid sleep 30 & echo $! >"$HPCTOOLS_ROOT/daemon"'), s20_b=mark("b"))
    begin = time.monotonic()
    assert node.run("--from", "a").returncode == 0
    assert time.monotonic() - begin < 10
    daemon = int(node.path("/daemon").read_text())
    assert not has_ended(daemon)
    os.kill(daemon, signal.SIGKILL)


@pytest.mark.parametrize("step", ["10-a", "20-b", "30-c"])
def test_a_run_that_is_killed_in_any_step_is_finished_by_the_next(node: Node, step: str) -> None:
    """SIGKILL leaves the step behind: the next run ends it, so that no step runs twice at a time."""
    letter = step[-1]
    blocking = 'if [ ! -e "$HPCTOOLS_ROOT/once" ]; then echo $$ >"$HPCTOOLS_ROOT/once"; sleep 300; fi'
    node.steps(
        **{f"s{number}_{name}": mark(name, blocking if name == letter else ":")
           for number, name in ((10, "a"), (20, "b"), (30, "c"))}
    )  # fmt: skip
    first = node.start()
    wait_for(node.path("/once"), first)
    while not node.path("/once").read_text().strip():
        time.sleep(0.01)
    first.kill()
    first.communicate()
    left = int(node.path("/once").read_text())
    assert not has_ended(left)
    assert node.run().returncode == 0
    assert has_ended(left)
    assert node.events("leftover-ended")[0]["step"] == step
    assert did(node) == [name for name in "abc" for _ in range(2 if name == letter else 1)]


def test_what_a_killed_step_has_begun_is_ended_though_the_step_itself_is_dead(node: Node) -> None:
    child = 'sleep 300 & echo $! >"$HPCTOOLS_ROOT/child"; echo $$ >"$HPCTOOLS_ROOT/pid"; wait'
    three(node, f'[ -e "$HPCTOOLS_ROOT/pid" ] || {{ {child}; }}')
    first = node.start()
    wait_for(node.path("/pid"), first)
    first.kill()
    first.communicate()
    leader, left = (int(node.path(path).read_text()) for path in ("/pid", "/child"))
    os.kill(leader, signal.SIGKILL)
    assert not has_ended(left)
    assert node.run().returncode == 0
    assert has_ended(left)
    assert node.events("leftover-ended")[0]["step"] == "20-b"


def test_what_a_step_left_at_its_own_end_is_left_alone(node: Node) -> None:
    three(node, 'sleep 300 </dev/null >/dev/null 2>&1 & echo $! >"$HPCTOOLS_ROOT/child"')
    (node.bundle / "steps/30-c").unlink()
    assert node.run().returncode == 0
    assert node.run().returncode == 0
    child = int(node.path("/child").read_text())
    assert (has_ended(child), node.events("leftover-ended")) == (False, [])
    os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_run_that_is_asked_to_end_ends_its_step(node: Node, number: signal.Signals) -> None:
    three(
        node, 'echo $$ >"$HPCTOOLS_ROOT/pid.new"; mv "$HPCTOOLS_ROOT/pid.new" "$HPCTOOLS_ROOT/pid"; sleep 300'
    )
    run = node.start()
    wait_for(node.path("/pid"), run)
    run.send_signal(number)
    run.communicate(timeout=20)
    assert run.returncode == 128 + number
    assert has_ended(int(node.path("/pid").read_text()))


def test_two_runs_at_once_wait_for_each_other(node: Node) -> None:
    three(node, 'touch "$HPCTOOLS_ROOT/in-b"; until [ -e "$HPCTOOLS_ROOT/go" ]; do sleep 0.02; done')
    first = node.start()
    wait_for(node.path("/in-b"), first)
    second = node.start()
    until = time.monotonic() + 20
    while not node.events("waiting"):
        assert time.monotonic() < until
        time.sleep(0.02)
    node.write("/go", "")
    outs = [each.communicate(timeout=30)[0] for each in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), outs
    assert did(node) == ["a", "b", "c"]


def test_list_and_check_change_nothing(node: Node) -> None:
    three(node)
    listed = node.run("--list", "--json")
    assert [json.loads(line)["step"] for line in listed.stdout.splitlines()] == ["10-a", "20-b", "30-c"]
    assert node.run("--check").returncode == 1
    assert did(node) == []
    assert node.run().returncode == 0
    assert node.run("--check").returncode == 0


def test_one_step_or_those_from_one_on(node: Node) -> None:
    three(node)
    assert node.run("--step", "b").returncode == 0
    assert did(node) == ["b"]
    assert node.run("--from", "20-b").returncode == 0
    assert did(node) == ["b", "c"]


@pytest.mark.parametrize(
    "words", [("--step", "nowhere"), ("--step", "b", "--from", "b"), ("--frm",), ("what",)]
)
def test_wrong_usage_is_2_and_runs_nothing(node: Node, words: tuple[str, ...]) -> None:
    three(node)
    assert node.run(*words).returncode == 2
    assert did(node) == []


def test_steps_of_other_roles_are_not_run(node: Node) -> None:
    node.steps(s10_a=mark("a").replace("roles: compute", "roles: controller login"), s20_b=mark("b"))
    assert node.run().returncode == 0
    assert did(node) == ["b"]


@pytest.mark.parametrize(
    "body", ["exit 0", "# roles: worker\nexit 0", "# roles: compute\n# limit: soon\nexit 0"]
)
def test_a_file_that_is_no_proper_step_runs_nothing(node: Node, body: str) -> None:
    node.steps(s10_a=mark("a"), s20_odd=body)
    assert node.run().returncode == 2
    assert did(node) == []


def test_s3_keeps_no_permission_bits(node: Node) -> None:
    three(node)
    for path in (node.bundle / "steps").iterdir():
        path.chmod(0o644)
    (node.bundle / "run_steps.py").chmod(0o644)
    assert node.run().returncode == 0


def test_every_log_line_is_json_with_a_time_and_a_level(node: Node) -> None:
    three(node, r'printf "two\nlines \xff\x00 \"odd\"\n"')
    assert node.run().returncode == 0
    events = node.events()
    assert {key for event in events for key in ("time", "level", "event") if key not in event} == set()
    assert [event["message"] for event in node.events("output")] == ["two", 'lines �\x00 "odd"']


def test_a_full_disk_stops_the_log_and_not_the_node(node: Node, tmp_path: Path) -> None:
    """/dev/full answers every write with ENOSPC."""
    three(node)
    done = node.run("--log", "/dev/full")
    assert done.returncode == 0
    assert "run-done" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes somebody else")
def test_somebody_else_than_root_is_told_so_and_changes_nothing(node: Node) -> None:
    assert node.environment, "writes the settings"
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(node.bundle, Path(folder) / "bundle")
        Path(folder).chmod(0o755)
        done = subprocess.run(
            [*NOBODY, "bash", f"{folder}/bundle/on_create.sh"],
            env={"PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
    assert (done.returncode, "only root may configure a node" in done.stdout) == (2, True), done.stdout


def test_a_state_folder_that_cannot_be_made_is_said_in_one_line(node: Node) -> None:
    three(node)
    node.write("/var/lib/hpctools-lifecycle", "a file")
    done = node.run()
    assert done.returncode == 1
    assert "cannot be used" in done.stdout
    assert "Traceback" not in done.stdout


def test_the_state_is_for_root_alone(node: Node) -> None:
    three(node)
    assert node.run().returncode == 0
    state = node.path("/var/lib/hpctools-lifecycle")
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert json.loads((state / "last-run.json").read_text())["steps"] == {
        "10-a": "done",
        "20-b": "done",
        "30-c": "done",
    }


def test_output_comes_as_it_is_said(node: Node) -> None:
    """Whoever watches a step that takes ten minutes sees what it does."""
    three(node, 'echo first; until [ -e "$HPCTOOLS_ROOT/go" ]; do sleep 0.02; done')
    run = node.start()
    seen: list[str] = []
    stdout = run.stdout
    assert stdout is not None

    def watch() -> None:
        for line in stdout:
            seen.append(line)
            if "first" in line:
                node.write("/go", "")

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert run.wait(30) == 0
    watcher.join(10)
    stdout.close()
    assert any("first" in line for line in seen)
