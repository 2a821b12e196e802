"""What is done to a configuration before it is booted, and what is made of what was seen: pure parts."""

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctools.conf.preflight.accounting import Accounting
from hpctools.conf.preflight.expected import Expected, expected
from hpctools.conf.preflight.folder import with_outside
from hpctools.conf.preflight.judge import gres_counts, judge, lost_jobs
from hpctools.conf.preflight.model import Problem
from hpctools.conf.preflight.names import unresolved
from hpctools.conf.preflight.rewriting import edited, to
from hpctools.conf.preflight.staging import stage
from hpctools.conf.preflight.statements import statements
from hpctools.slurm.throwaway import resolver
from hpctools.slurm.throwaway.places import CONF, STATE
from hpctools.slurm.throwaway.seen import Booted, SeenNode, over_since
from hpctools.slurm.throwaway.tres_cache import Tres, completed, pack_tres, packed_text, unpack_tres
from tests.conf.preflight.deadly import GOOD

LINES = st.lists(
    st.sampled_from(
        [
            "# StateSaveLocation=/comment",
            "StateSaveLocation=/var/spool/slurmctld SlurmctldPort=6817",
            "statesavelocation = '/quoted place'",
            "NodeName=a-[1-4] CPUs=8 \\",
            "   RealMemory=1000",
            "Include /etc/slurm/more.conf",
            "TRESBillingWeights=CPU=1.0,GRES/gpu=100.00",
            "",
            "SchedulerParameters=bf_window=10,StateSaveLocation=no",
        ]
    )
)


@settings(deadline=None)
@given(LINES)
def test_lines_keep_their_numbers(lines: list[str]) -> None:
    staged = stage({"slurm.conf": "\n".join(lines)}, "/etc/slurm", account="", accounting=None)
    after = staged.files["slurm.conf"].split("\n")
    assert len(after) >= len(lines)
    for before, now in zip(lines, after, strict=False):
        if "tate" not in before and "Include" not in before:
            assert now == before


def test_only_places_change_and_what_was_not_stated_is_added() -> None:
    staged = stage(GOOD, "/etc/slurm", account="", accounting=None)
    wanted = GOOD["slurm.conf"].replace("/var/spool/slurmctld", STATE)
    wanted = wanted.replace("/run/slurm/slurmctld.pid", "/run/hpctools-preflight/slurmctld.pid")
    assert staged.files["slurm.conf"] == wanted + "\n"
    assert (staged.host, staged.user, staged.not_checked) == ("ctl-1", "slurm", ())


def test_slurmdbd_conf_and_keys_are_not_handed_over() -> None:
    files = {**GOOD, "slurmdbd.conf": "StoragePass=s3cret\n", "slurm.key": "s3cret"}
    assert "s3cret" not in repr(stage(files, "/etc/slurm", account="", accounting=None))


def test_an_address_beside_a_controllers_name_is_ours_too() -> None:
    text = GOOD["slurm.conf"].replace("ctl-1", "ctl-1(10.0.0.5)\nSlurmctldHost=ctl-2")
    staged = stage({**GOOD, "slurm.conf": text}, "/etc/slurm", account="", accounting=None)
    assert (staged.host, staged.addresses) == ("ctl-1", ("ctl-1", "10.0.0.5"))


def test_includes_within_the_folder_are_found_wherever_it_is_staged() -> None:
    files = {"slurm.conf": "Include /etc/slurm/d/a.conf\nInclude /opt/b.conf\n", "d/a.conf": "NodeName=x\n"}
    staged = stage(files, "/etc/slurm", account="", accounting=None)
    assert staged.files["slurm.conf"].split("\n")[:2] == [
        "Include d/a.conf",
        "Include outside-of-the-folder/opt/b.conf",
    ]
    found = [(each.file, each.line, dict(each.words)) for each in statements(files, "/etc/slurm")]
    assert found == [("d/a.conf", 1, {"nodename": "x"})]


def test_includes_from_outside_and_of_the_clusters_name_are_staged(tmp_path: Path) -> None:
    outside, inner = tmp_path / "outside.conf", tmp_path / "inner.conf"
    outside.write_text(f"NodeName=x\nInclude {inner}\n")
    inner.write_text("NodeName=y\n")
    files = {"slurm.conf": f"ClusterName=C1\nInclude %c.conf\nInclude {outside}\n", "c1.conf": "NodeName=z\n"}
    found = statements(with_outside(files, Path("/etc/slurm"), Path("/")), "/etc/slurm")
    assert [each.words.get("nodename", "") for each in found] == ["", "z", "x", "y"]


def test_an_include_of_itself_ends() -> None:
    assert list(statements({"slurm.conf": "Include slurm.conf\n"}, "/etc/slurm")) == []


def test_statements_have_the_line_that_they_begin_in() -> None:
    text = '# one\nNodeName=a \\\n  CPUs=2 # two\nPartitionName=p Nodes="a"\n'
    found = [(each.line, dict(each.words)) for each in statements({"slurm.conf": text}, "/etc/slurm")]
    assert found == [(2, {"nodename": "a", "cpus": "2"}), (4, {"partitionname": "p", "nodes": "a"})]


def test_an_edit_may_take_a_setting_out() -> None:
    text = 'A=1 Port=2\n#Port=4\nport = "5" B=6\nXPort=7 C=Port=8\n'
    assert edited(text, {"Port": to("")}) == "A=1 \n#Port=4\n B=6\nXPort=7 C=Port=8\n"
    assert edited(text, {"Port": to("9")}) == "A=1 Port=9\n#Port=4\nport = 9 B=6\nXPort=7 C=Port=8\n"


NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12)
ROWS = st.lists(st.builds(Tres, st.integers(1, 5000), NAMES, st.one_of(st.just(""), NAMES)), max_size=20)


@given(ROWS, st.integers(0, 2**16 - 1))
def test_tres_round_trip(rows: list[Tres], protocol: int) -> None:
    assert unpack_tres(pack_tres(rows, protocol, 1_800_000_000)) == (protocol, tuple(rows))


@given(ROWS, st.data())
def test_a_torn_file_of_tres_is_none(rows: list[Tres], data: st.DataObject) -> None:
    packed = pack_tres(rows, 9728, 0)
    assert unpack_tres(packed[: data.draw(st.integers(0, len(packed) - 1))]) is None


def test_only_what_is_new_gets_an_id_of_its_own() -> None:
    known = (Tres(1, "cpu", ""), Tres(1001, "gres", "gpu"))
    assert completed(known, ["gres/gpu", "gres/shard"]) == (*known, Tres(1002, "gres", "shard"))


def test_names_that_slurmdbd_will_hear_of_are_left_out_and_told() -> None:
    files = {"slurm.conf": "PartitionName=p Nodes=a AllowQos=low,new AllowAccounts=lab,newlab,typo\n"}
    accounting = Accounting(
        packed_text("low") + packed_text("lab"), frozenset({"low", "new", "lab", "newlab"})
    )
    edits, said = accounting.edits(list(statements(files, "/etc/slurm")))
    after = edited(files["slurm.conf"], edits)
    assert after == "PartitionName=p Nodes=a  AllowAccounts=typo\n"
    assert said == ("new, newlab: slurmdbd does not know them yet and must hear of them first",)


def test_a_qos_called_as_an_account_that_is_there_is_left_out() -> None:
    files = {"slurm.conf": "PartitionName=p Nodes=a AllowQos=nlp,typo\n"}
    accounting = Accounting(packed_text("nlp"), frozenset({"nlp"}))
    edits, _ = accounting.edits(list(statements(files, "/etc/slurm")))
    assert edited(files["slurm.conf"], edits) == "PartitionName=p Nodes=a AllowQos=typo\n"


def test_expected_reads_defaults_sets_and_all() -> None:
    text = """NodeName=DEFAULT Gres=gpu:2
NodeName=a-[1-3]
NodeName=later State=FUTURE
NodeSet=odd Nodes=a-1,a-3
PartitionName=DEFAULT Nodes=a-1
PartitionName=one
PartitionName=every Nodes=ALL
PartitionName=some Nodes=odd
"""
    found = expected(list(statements({"slurm.conf": text}, "/etc/slurm")))
    assert found == Expected(
        dict.fromkeys(("a-1", "a-2", "a-3"), "gpu:2"), {"one": "a-1", "every": "a-[1-3]", "some": None}
    )


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("gpu:a100:8,shard:16", {"gpu": 8, "shard": 16}),
        ("gpu:a100:8(S:0-1),shard:a100:16(S:0)", {"gpu": 8, "shard": 16}),
        ("gpu:a:1,gpu:b:2", {"gpu": 3}),
        ("gpu", {"gpu": 1}),
        ("bandwidth:lustre:no_consume:4g", {"bandwidth": 4 * 1024**3}),
        ("gpu:0", {}),
        ("", {}),
    ],
)
def test_gres_are_counted_by_kind(text: str, counts: dict[str, int]) -> None:
    assert gres_counts(text) == counts


def test_what_is_missing_or_invalid_is_told() -> None:
    wanted = Expected({"a-1": "gpu:2", "a-2": ""}, {"p": "a-[1-2]", "q": "a-1"})
    seen = Booted(
        "22.05.8",
        (),
        True,
        None,
        {"a-1": SeenNode("IDLE+INVAL", "gpu:1"), "b": SeenNode("IDLE", "")},
        {"p": "a-1"},
    )
    assert [problem.meaning for problem in judge(wanted, seen, "/etc/slurm", past=False)] == [
        "slurmctld does not have these nodes: a-2",
        "slurmctld has nodes that no NodeName line names: b",
        "slurmctld takes these nodes' lines for invalid: a-1",
        "node a-1 has Gres=gpu:2 in its line, and slurmctld has gpu:1",
        "partition p should have the nodes a-[1-2] and has a-1",
        "slurmctld does not have partition q",
    ]


def test_a_crash_is_told_with_its_last_line() -> None:
    seen = Booted("26.05.5", ("[2026-01-01T00:00:00.000] topology: reading " + CONF,), False, 139)
    assert judge(Expected(), seen, "/etc/slurm", past=False) == (
        Problem(
            "topology: reading /etc/slurm",
            "slurmctld crashed with signal 11",
            "the line is the last that it wrote",
        ),
    )


def test_a_question_that_was_given_up_is_no_fault_of_the_configuration() -> None:
    line = (
        "error: slurm_send_node_msg: [socket:[22925970]] slurm_bufs_sendto(msg_type=RESPONSE_SLURM_RC) "
        "failed: Unexpected missing socket error"
    )  # recorded on 24.11.5
    assert judge(Expected(), Booted("24.11.5", (line,), True, None), "/etc/slurm", past=False) == ()


def test_jobs_that_a_configuration_loses_are_told_apart_from_its_faults() -> None:
    lines = (
        "error: Node reserved-1 has vanished from configuration",
        'error: _find_node_record: lookup failure for node "reserved-1"',
        "error: Invalid nodes (reserved-1) for JobId=7",
        "error: Invalid partition (nlp) for JobId=8",
        "error: _validate_node_gres_cnt: Killing job 6: gres/gpu count mismatch on node reserved-1 (8 != 4)",
        "error: build_cg_bitmap: node_bitmap is NULL",
        "error: Can't find parent id 3 for assoc 10, this should never happen.",
        "error: Invalid partition (nlp) for JobId=5",
    )
    seen = Booted("22.05.8", lines, True, None, ended_jobs=(9,), past_jobs=(4, 5))
    assert judge(Expected(), seen, "/etc/slurm", past=True) == ()
    assert lost_jobs(seen) == (6, 7, 8, 9)


def test_a_job_that_runs_is_lost_in_the_words_of_newer_releases() -> None:
    lines = (
        "error: Killing JobId=13 on defunct partition nlp",  # recorded on 26.05.5
        "error: Killing JobId=14_2(16) on defunct partition nlp",
        "error: Invalid partition (nlp) for JobId=17_*",
        "error: Invalid req_nodes (gone-1) for JobId=18+1(19)",
        "error: Aborting JobId=20 due to use of invalid GRES configuration",
        "Killing JobId=21 on failed node gpu-1",  # of a node that went down: no word about the configuration
    )
    seen = Booted("26.05.5", lines, True, None)
    assert judge(Expected(), seen, "/etc/slurm", past=True) == ()
    assert lost_jobs(seen) == (13, 16, 17, 19, 20)


@pytest.mark.parametrize(
    ("state", "end", "since"),
    [
        ("COMPLETED", "2026-11-21T15:15:10", "2026-11-21T15:15:10"),
        ("COMPLETING", "2026-11-21T15:15:10", "2026-11-21T15:15:10"),
        ("CANCELLED", "Unknown", ""),
        ("PENDING", "Unknown", ""),
        ("SPECIAL_EXIT", "Unknown", ""),
        ("REQUEUE_HOLD", "Unknown", ""),
        ("RESV_DEL_HOLD", "Unknown", ""),
        ("EXPEDITING", "Unknown", ""),  # of 26.05
        ("RUNNING", "2026-12-21T15:15:10", ""),
        ("STOPPED", "2026-12-21T15:15:10", ""),
        ("SIGNALING", "2026-12-21T15:15:10", ""),
        ("RESIZING", "2026-12-21T15:15:10", ""),
    ],
)
def test_only_jobs_that_are_over_have_an_end(state: str, end: str, since: str) -> None:
    """Jobs in rare states were ended by every configuration, since `Unknown` comes after any time."""
    assert over_since(state, end) == since


def test_nodes_that_slurmctld_remembers_show_their_former_gpus_until_they_register() -> None:
    wanted = Expected(nodes={"gpu-1": "gpu:a100:4"})
    seen = Booted("24.11.5", (), True, None, nodes={"gpu-1": SeenNode("IDLE", "gpu:a100:8")})
    assert judge(wanted, seen, "/etc/slurm", past=True) == ()
    assert [each.meaning for each in judge(wanted, seen, "/etc/slurm", past=False)] == [
        "node gpu-1 has Gres=gpu:a100:4 in its line, and slurmctld has gpu:a100:8"
    ]


def test_a_reservation_that_would_go_is_told_once_and_with_what_to_do() -> None:
    lines = (
        "error: _validate_one_reservation: Reservation r1 has no nodes left, deleting it",
        "error: Purging invalid reservation record r1",
    )
    seen = Booted("24.11.5", lines, True, None)
    assert [(each.said, each.remedy) for each in judge(Expected(), seen, "/etc/slurm", past=True)] == [
        (lines[1], "delete or change it first: scontrol delete reservationname=r1")
    ]


def question(name: str, kind: int) -> bytes:
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)


def test_the_name_server_leads_to_us_or_nowhere() -> None:
    assert resolver.answer(question("CTL-1", 1), {b"ctl-1"})[-4:] == bytes([127, 0, 0, 1])
    assert resolver.answer(question("a-1.example", 1), {b"ctl-1"})[-4:] == bytes([192, 0, 2, 1])
    assert resolver.answer(question("a-1", 28), {b"ctl-1"})[6:8] == b"\0\0"


ASKED = st.binary(max_size=12).map(lambda head: head + question("a-1", 1)[len(head) :])


@given(st.binary(max_size=64) | ASKED)
def test_the_name_server_answers_what_it_was_asked_or_nothing(query: bytes) -> None:
    """Whatever comes: else its thread ends, and slurmctld waits for each name."""
    answer = resolver.answer(query, set())
    assert answer[:2] in (b"", query[:2]), "whoever asks knows the answer by its number"
    asked = answer[12:-16] if answer[6:8] == b"\0\1" else answer[12:]
    assert query[12:].startswith(asked)


def test_controllers_names_are_looked_up_on_a_controller_only() -> None:
    hosts = ["here(127.0.0.1)", "no..where"]
    problems, unasked = unresolved(hosts, "here.example.org")
    assert [problem.meaning for problem in problems] == ["controller no..where has no address here"]
    assert unasked == ()
    assert unresolved(hosts, "laptop") == (
        (),
        ("names of controllers: whether they have addresses shows only on a controller",),
    )
