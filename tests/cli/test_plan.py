"""`hpctools plan` and `hpctools drift`: what they print, and how they end."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpctools import conf
from hpctools.cli import main as cli
from hpctools.cli import rollback
from hpctools.conf.apply.fileset import StoredFile
from hpctools.conf.apply.history import History, accounts_name, accounts_text
from hpctools.conf.apply.record import Kind, Record, Side
from hpctools.conf.facts_file import dump_facts
from hpctools.conf.plan import Live, Plan
from tests.conf.plan.stage import EARLY, REFERENCE, bundle, job, live

Command = Callable[..., tuple[int, str, str]]
OWN = ("provider: hyperpod", "provider: own")
HYPERPOD = (
    "hpctools: uni-gpu is on HyperPod, whose agent writes slurm.conf: nothing was changed; "
    "use `hpctools hyperpod update`, and bring its nodes the new scripts (docs/lifecycle.md)\n"
)
DRIFTED = ("max_time: 2-00:00:00", "max_time: 1-12:00:00")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A configuration folder with its site and its facts."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    (folder / "site.yaml").write_text(REFERENCE.read_text().replace(*OWN))
    (folder / "facts.yaml").write_text(dump_facts(conf.Facts(slurm_version=EARLY, cgroup="v1")))
    return folder


@pytest.fixture
def command(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run `hpctools` before what there is; return exit code, output and errors."""

    def run(*arguments: str, there: Live | None = None) -> tuple[int, str, str]:
        seen = there or live(bundle())
        monkeypatch.setattr(sys.modules["hpctools.conf.plan.read"], "read", lambda *_, **__: seen)
        monkeypatch.setattr(sys, "argv", ["hpctools", *arguments, "--folder", str(folder)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        return int(str(ended.value.code or 0)), printed.out, printed.err

    monkeypatch.delenv("HPCTOOLS_SITE", raising=False)
    return run


def test_nothing_differs(command: Command, folder: Path) -> None:
    code, text, error = command("plan")
    warning = "the site says Slurm 24.11, and 22.05.8 is installed: planned for the latter"
    assert (code, " ".join(text.split()), error) == (
        0,
        f"uni-gpu (Slurm 22.05.8, {folder}): no changes warnings {warning}",
        "",
    )
    assert command("plan", "--check")[0] == 0
    assert command("plan", "--diff") == (0, "", "")
    assert command("drift", "--state", str(folder / "none")) == (0, "", "")


def test_a_file_for_another_host_is_named_with_the_way_to_have_it(command: Command, folder: Path) -> None:
    """slurmdbd on a host of its own: nobody said that its file is neither compared nor written."""
    site = folder / "site.yaml"
    site.write_text(site.read_text().replace("host: ctl-1  ", "host: db-1  "))
    told = (
        "slurmdbd.conf belongs on db-1, and is neither compared nor written: "
        f"`hpctools render {site} --out DIR` writes DIR/db-1/"
    )
    assert told in json.loads(command("plan", "--json")[1])["warnings"]


def test_changes_are_told_and_end_with_1_only_when_that_is_asked(command: Command) -> None:
    there = live(bundle(DRIFTED))
    code, text, error = command("plan", there=there)
    assert (code, error) == (0, "")
    assert "\npartitions\n  ~ nlp MaxTime: 1-12:00:00 -> 2-00:00:00 [reconfigure]\n" in text
    assert "\nto do\n  1. write slurm.conf\n  2. scontrol reconfigure\n" in text
    assert "\x1b" not in text
    assert command("plan", "--check", there=there)[0] == 1


def test_json_is_the_plan(command: Command, folder: Path) -> None:
    code, text, _ = command("plan", "--json", there=live(bundle(DRIFTED)))
    plan = Plan.from_json(text)
    assert (code, plan.cluster, plan.folder, [c.key for c in plan.changes]) == (
        0,
        "uni-gpu",
        str(folder),
        ["MaxTime"],
    )
    assert json.loads(text)["steps"] == [{"need": "reconfigure", "nodes": []}]


def test_diff_is_a_unified_diff_of_the_files(command: Command) -> None:
    code, text, _ = command("plan", "--diff", there=live(bundle(DRIFTED)))
    assert code == 0
    lines = text.splitlines()
    assert lines[:2] == ["--- a/slurm.conf", "+++ b/slurm.conf"]
    assert [line[:30] for line in lines if line.startswith(("+P", "-P"))] == [
        "-PartitionName=nlp Nodes=reser",
        "+PartitionName=nlp Nodes=reser",
    ]


def test_a_plan_is_written_for_its_owner_only(command: Command, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    assert command("plan", "--out", str(out), there=live(bundle(DRIFTED)))[0] == 0
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert [change.after for change in Plan.from_json(out.read_text()).changes] == ["2-00:00:00"]
    code, _, error = command("plan", "--out", "/proc/none/plan.json")
    assert (code, error.partition(":")[0]) == (1, "hpctools")


def test_a_plan_is_written_to_a_file_whatever_its_name_leads_to(command: Command, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "plan.json")
    assert command("plan", "--out", str(tmp_path / "link"))[0] == 0
    assert ((tmp_path / "link").is_symlink(), stat.S_IMODE((tmp_path / "plan.json").stat().st_mode)) == (
        True,
        0o600,
    )
    told = f"hpctools: cannot write {tmp_path}: it is a folder; name a file\n"
    assert command("plan", "--out", str(tmp_path)) == (2, "", told)
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK)
    assert command("plan", "--out", str(tmp_path / "pipe"))[0] == 0
    assert Plan.from_json(os.read(reader, 1 << 20).decode()).empty
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


def test_who_does_not_answer_is_said_and_ends_with_3(command: Command, folder: Path) -> None:
    silent = replace(live(bundle()), shown=None, unknown=("what slurmctld runs is not compared: no",))
    code, text, _ = command("plan", there=silent)
    assert code == 3
    assert "no changes in what could be compared" in " ".join(text.split())
    assert "\nnot compared\n  what slurmctld runs is not compared: no\n" in text
    told = "not compared: what slurmctld runs is not compared: no\n"
    assert command("drift", "--state", str(folder / "none"), there=silent) == (3, told, "")


def test_drift_is_a_line_each(command: Command, folder: Path) -> None:
    there = live(
        bundle(DRIFTED, ("  - name: dl\n    description: Deep", "  - name: deep\n    description: Deep"))
    )
    metrics = folder / "drift.prom"
    code, text, _ = command(
        "drift", "--state", str(folder / "none"), "--prometheus", str(metrics), there=there
    )
    assert code == 1
    lines = text.splitlines()
    assert lines[0] == "partition nlp: MaxTime is 1-12:00:00, not 2-00:00:00 (reconfigure)"
    assert "partition dl: missing: reserved-[1-4],shared-[1-2] (reconfigure)" in lines
    assert "partition deep: too many: reserved-[1-4],shared-[1-2] (reconfigure)" in lines
    written = metrics.read_text().splitlines()
    assert 'hpctools_drift_changes{area="partition",needs="reconfigure"} 3' in written
    assert f"hpctools_drift_total {len(lines)}" in written
    assert stat.S_IMODE(metrics.stat().st_mode) == 0o644
    assert Plan.from_json(command("drift", "--state", str(folder / "none"), "--json", there=there)[1]).changes


def test_without_a_site_or_with_a_wrong_one(command: Command, folder: Path) -> None:
    (folder / "site.yaml").write_text("cluster: 3\n")
    code, _, error = command("plan")
    assert (code, "site.yaml:1: cluster" in error, "Traceback" in error) == (1, True, False)
    (folder / "site.yaml").unlink()
    told = f"hpctools: no site file is named, and there is no {folder}/site.yaml"
    assert command("plan") == (2, "", f"{told}; name one, or set HPCTOOLS_SITE\n")
    assert command("plan", str(REFERENCE), "--facts", str(folder / "no-facts.yaml"))[0] == 2


@pytest.mark.parametrize(
    "words", [("plan",), ("apply", "--yes"), ("drift",)], ids=lambda words: str(words[0])
)
def test_a_cluster_on_hyperpod_is_left_to_its_agent(
    command: Command, folder: Path, words: tuple[str, ...]
) -> None:
    """Its slurm.conf was taken for edited, and replaced by one whose nodes are none of HyperPod's."""
    (folder / "site.yaml").write_text(REFERENCE.read_text())
    state = () if words == ("plan",) else ("--state", str(folder / "none"))
    assert command(*words, *state) == (2, "", HYPERPOD)
    assert not (folder / "slurm.conf").exists()


def test_a_sandbox_is_compared_with_its_site_also_where_that_is_of_hyperpod(
    command: Command, folder: Path
) -> None:
    """Somebody tries a change there, before nodes get it."""
    (folder / "site.yaml").write_text(REFERENCE.read_text())
    (folder / "facts.yaml").write_text(dump_facts(conf.Facts(EARLY, cgroup="v1", made_up_gpus=True)))
    assert command("plan")[0] == 0


def test_a_rollback_on_hyperpod_brings_back_what_was_found_there_and_nothing_of_ours(
    command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier release may have replaced the agent's files: that is the way back to them."""
    brought: list[Any] = []
    state = folder / "state"
    for number, kind in ((0, "as found"), (1, "apply"), (2, "apply")):
        applied(state, number, kind=kind, site=REFERENCE.read_text())  # type: ignore[arg-type]
    monkeypatch.setattr("hpctools.conf.slurmdbd.Slurmdbd.read", lambda _: bundle().accounts)
    monkeypatch.setattr(rollback, "carry_out", lambda request, *_, **__: brought.append(request))
    assert command("drift", "--state", str(state)) == (2, "", HYPERPOD)
    assert command("rollback", "1", "--state", str(state)) == (2, "", HYPERPOD)
    assert (command("rollback", "0", "--state", str(state))[0], len(brought)) == (0, 1)


def test_drift_compares_with_what_is_in_force(command: Command, folder: Path) -> None:
    """Change 2 is in force, 3 was taken back, 4 brings 1 back, 6 what 4 did, 7 what was there before."""
    state = str(folder / "state")
    one, two, none = (bundle(("max_time: 2-00", f"max_time: 1-0{hour}")) for hour in (1, 2, 3))
    (folder / "site.yaml").write_text("cluster: 3\n")  # today's is nobody's business
    (folder / "facts.yaml").write_text("cgroup: 7\n")
    applied(folder / "state", 0, none, kind="as found")
    applied(folder / "state", 1, one)
    applied(folder / "state", 2, two)
    assert command("drift", "--state", state, there=live(two)) == (0, "", "")
    applied(folder / "state", 3, one, in_force="before")
    assert command("drift", "--state", state, there=live(two)) == (0, "", "")
    told = "partition nlp: MaxTime is 1-01:00:00, not 1-02:00:00 (reconfigure)\n"
    assert command("drift", "--state", state, there=live(one)) == (1, told, "")
    applied(folder / "state", 4, one, back_to=1)
    assert command("drift", "--state", state, there=live(one)) == (0, "", "")
    applied(folder / "state", 5, two)
    applied(folder / "state", 6, one, back_to=4)
    assert command("drift", "--state", state, there=live(one)) == (0, "", "")
    applied(folder / "state", 7, none, back_to=0)
    assert command("drift", "--state", state, there=live(none)) == (0, "", "")
    assert command("drift", "--state", state, there=live(one))[0] == 1


def test_drift_compares_with_whichever_files_of_a_killed_change_are_in_force(
    command: Command, folder: Path
) -> None:
    """It compared with the change before also where the new files were in force."""
    state = folder / "state"
    one, two = (bundle(("max_time: 2-00", f"max_time: 1-0{hour}")) for hour in (1, 2))
    applied(state, 1, one)
    killed(state, 2, two)
    for there in (one, two):
        for file in there.files:
            (folder / file.path).write_text(file.text)
        assert command("drift", "--state", str(state), there=live(there)) == (0, "", "")


def test_drift_knows_the_accounts_of_the_change_in_force(command: Command, folder: Path) -> None:
    state = folder / "state"
    fewer = bundle(("members: [dl1, dl2]", "members: [dl1]"))
    applied(state, 1, bundle())
    missing = "association dl2 in dl-lab-a: missing: Fairshare=1 (live)\n"
    there = replace(live(bundle()), accounts=fewer.accounts)
    assert command("drift", "--state", str(state), there=there)[1].endswith(missing)
    more = bundle(
        ("members: [dl1, dl2]", "members: [dl1, dl2, eve]"),
        ("      - name: cv-lab-a\n", "      - name: new\n      - name: cv-lab-a\n"),
    )
    there = replace(live(bundle()), accounts=more.accounts)
    told = (
        "association eve in dl-lab-a: too many: a member (live)",
        "account new: too many: an account (live)",
    )
    for busy in ((), (job(7, "eve", "dl", account="dl-lab-a", nodes=("reserved-1",)),)):
        seen = replace(there, jobs=busy)
        assert command("drift", "--state", str(state), there=seen) == (1, "\n".join(told) + "\n", "")
    (state / "history/1/accounts-after.json").unlink()  # slurmdbd did not tell them then
    assert command("drift", "--state", str(state), there=there) == (0, "", "")


def test_drift_of_somebody_who_may_not_read_the_history_compares_with_the_site(
    command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "state").mkdir()
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, *rest: "state" not in str(path) and access(path, *rest))
    assert command("drift", "--state", str(folder / "state")) == (0, "", "")


def applied(
    state: Path,
    number: int,
    left: conf.Bundle | None = None,
    *,
    kind: Kind = "apply",
    in_force: Side = "after",
    back_to: int | None = None,
    site: str = "",
) -> None:
    """A change as apply remembers it: the files and the accounts that it left."""
    who = ("uni-gpu", "22.05.8", "/etc/slurm", "root", "ctl-1", "", "hpctools apply")
    kind = kind if back_to is None else "rollback"
    record = Record(number, kind, *who, began=1.0, result="applied", in_force=in_force, back_to=back_to)
    found = left or bundle()
    files = {file.path: StoredFile(file.path, file.text.encode(), file.mode, (0, 0)) for file in found.files}
    history = History(state)
    history.prepare()
    documents = {accounts_name("after"): accounts_text(found.accounts), "site.yaml": site}
    history.begin(record, {}, files, documents if kind == "apply" else {})


def killed(state: Path, number: int, wanted: conf.Bundle) -> None:
    """A change whose record is open: it was killed, or is under way."""
    applied(state, number, wanted, in_force="before")
    history = History(state)
    history.update(replace(history.record(number), result=""))
