"""File systems: mounted within a time, in fstab once, and the right ones."""

import json
import time

import pytest

from tests.lifecycle.node import Node

from provision.mounts import MARK, OPTIONS, Mount, with_lines  # isort: skip

LUSTRE = Mount("fs-1@tcp:/abc", "/fsx", "lustre", ("noatime", "flock"))
NFS = Mount("fs-2:/fsx", "/home", "nfs", ("hard",))
THEIRS = "UUID=1 / ext4 defaults 0 1\n# a comment\n\ntmpfs /scratch tmpfs size=1g 0 0\n"

MOUNTED = '[ -e "$STAND_IN/mounted$(echo "${@: -1}" | tr / _)" ]'


def world(node: Node, mount: str = ":") -> None:
    """`mount` notes what it was told, does `mount`, and remembers the folder; the others look."""
    node.write("/stand-in/calls", "")
    node.stand_in(
        "mount",
        f'echo "mount $*" >>"$STAND_IN/calls"; {mount} || exit 32\n'
        'touch "$STAND_IN/mounted$(echo "${@: -1}" | tr / _)"',
    )
    node.stand_in("mountpoint", MOUNTED)
    node.stand_in("findmnt", 'cat "$STAND_IN/source" 2>/dev/null')


def stated(path: str = "/fsx", source: str = "fs-1:/fsx", **more: object) -> dict[str, object]:
    usual = {"kind": "nfs", "options": [], "roles": ["compute"], "required": True}
    return {"path": path, "source": source, **usual, **more}


def only_mounts(node: Node, *mounts: dict[str, object]) -> None:
    node.only_steps("10-mounts", "11-optional-mounts")
    node.settings["mounts"] = list(mounts)


def test_each_is_mounted_with_its_options_and_kept_in_fstab(node: Node) -> None:
    world(node)
    node.write("/etc/fstab", THEIRS)
    only_mounts(
        node,
        stated("/fsx/inner", "nas:/inner", options=["ro", "hard"]),
        stated("/fsx", "fs-1@tcp:/abc", kind="lustre"),
        stated("/elsewhere", roles=["login"]),
    )
    assert node.run().returncode == 0
    assert node.calls("mount") == [
        f"mount -t lustre -o noatime,flock,_netdev,nofail fs-1@tcp:/abc {node.path('/fsx')}",
        f"mount -t nfs -o ro,hard nas:/inner {node.path('/fsx/inner')}",
    ]
    assert node.path("/etc/fstab").read_text() == (
        f"{THEIRS}{MARK}\nfs-1@tcp:/abc /fsx lustre noatime,flock,_netdev,nofail 0 0\n"
        f"{MARK}\nnas:/inner /fsx/inner nfs ro,hard 0 0\n"
    )


def test_a_second_run_mounts_nothing(node: Node) -> None:
    world(node)
    only_mounts(node, stated())
    assert node.run().returncode == 0
    assert node.run().returncode == 0
    assert len(node.calls("mount")) == 1


def test_what_cannot_be_mounted_fails_and_says_which_and_why_and_the_others_are_mounted(node: Node) -> None:
    world(node, '! [[ "$*" == *gone* ]] || { echo "mount.nfs: Connection timed out" >&2; false; }')
    only_mounts(node, stated("/a", "gone:/x"), stated("/b", "here:/x"))
    assert node.run().returncode == 1
    said = [event["message"] for event in node.events("output")]
    assert (
        "error: gone:/x cannot be mounted at /a: mount.nfs: Connection timed out "
        "(do the security groups let the nodes reach it?)"
    ) in said
    assert len([call for call in node.calls("mount") if "here:/x" in call]) == 1
    assert len([call for call in node.calls("mount") if "gone:/x" in call]) == 5, "it is tried again"


def test_a_server_that_comes_later_is_waited_for(node: Node) -> None:
    world(node, '[ "$(grep -c ^mount "$STAND_IN/calls")" -ge 3 ]')
    only_mounts(node, stated())
    assert node.run().returncode == 0
    assert len(node.calls("mount")) == 3


def test_a_mount_that_hangs_is_given_up(node: Node) -> None:
    """`mount` waits for a silent server for minutes, its helper for ever."""
    world(node, "sleep 100 & wait")
    only_mounts(node, stated())
    path = node.bundle / "steps/10-mounts"
    path.write_text(
        path.read_text().replace("# limit: 400", "# limit: 1").replace("attempts: 5", "attempts: 1")
    )
    begin = time.monotonic()
    assert node.run().returncode == 1
    assert time.monotonic() - begin < 12
    assert node.events("step-failed")[0]["message"] == "not done within 1 s"


@pytest.mark.parametrize("kind", ["nfs", "lustre"])
@pytest.mark.parametrize("other", ["old-server:/export", "/dev/nvme1n1", "/dev/mapper/vg-lv"])
def test_another_file_system_in_its_place_is_a_failure_and_not_done(
    node: Node, other: str, kind: str
) -> None:
    """HyperPod's agent mounts the local disk of an instance; a line of somebody's may, too."""
    world(node)
    only_mounts(node, stated("/fsx", "fs-1:/fsx" if kind == "nfs" else "fs-1@tcp:/abc", kind=kind))
    node.write("/stand-in/source", f"{other}\n")
    node.write(f"/stand-in/mounted{str(node.path('/fsx')).replace('/', '_')}", "")
    assert node.run().returncode == 1
    assert f"/fsx has {other} mounted" in node.events("output")[0]["message"]


def test_a_folder_of_the_node_that_is_bound_there_is_left(node: Node) -> None:
    world(node)
    only_mounts(node, stated("/fsx", "fs-1:/fsx"))
    node.write("/etc/fstab", with_lines("", (Mount("fs-1:/fsx", "/fsx", "nfs", OPTIONS["nfs"]),)))
    node.write("/stand-in/source", "/dev/vda1[/srv/fsx]\n")
    node.write(f"/stand-in/mounted{str(node.path('/fsx')).replace('/', '_')}", "")
    assert node.run().returncode == 0
    assert node.calls("mount") == []


def test_a_source_by_address_is_the_same_lustre(node: Node) -> None:
    """Lustre shows 10.0.0.9@tcp:/abc for fs-1.fsx...@tcp:/abc."""
    world(node)
    only_mounts(node, stated("/fsx", "fs-1.fsx.eu-west-1.amazonaws.com@tcp:/abc", kind="lustre"))
    node.write("/stand-in/source", "10.0.0.9@tcp:/abc\n")
    assert node.run().returncode == 0


def test_what_is_not_required_is_tried_and_stops_nobody(node: Node) -> None:
    world(node, '[[ "$*" != *extra* ]]')
    only_mounts(node, stated(), stated("/extra", "extra:/x", required=False))
    assert node.run().returncode == 0
    assert node.events("step-failed")[0]["step"] == "11-optional-mounts"
    assert node.run("--check").returncode == 1


def test_an_image_without_the_client_says_so(node: Node) -> None:
    world(node, "{ echo \"mount: unknown filesystem type 'lustre'\" >&2; false; }")
    only_mounts(node, stated("/fsx", "fs-1@tcp:/abc", kind="lustre"))
    assert node.run().returncode == 1
    assert "(this image has no lustre client)" in json.dumps(node.events("output"))


@pytest.mark.parametrize("before", ["", THEIRS, THEIRS.rstrip("\n")])
def test_fstab_has_each_line_once_whatever_was_there(before: str) -> None:
    once = with_lines(before, (LUSTRE, NFS))
    assert with_lines(once, (LUSTRE, NFS)) == once
    assert once.count("/fsx lustre") == once.count("/home nfs") == 1
    assert all(line in once.splitlines() for line in before.splitlines())


def test_a_changed_source_replaces_our_line_and_no_other() -> None:
    before = with_lines(THEIRS, (LUSTRE, NFS))
    moved = Mount("fs-9@tcp:/xyz", "/fsx", "lustre", ("noatime",))
    after = with_lines(before, (moved, NFS))
    assert sorted(after.splitlines()) == sorted(before.replace(LUSTRE.line, moved.line).splitlines())


def test_a_line_of_somebody_else_for_the_folder_stays() -> None:
    theirs = "fs-1@tcp:/abc /fsx lustre defaults 0 0\n"
    assert with_lines(theirs, (LUSTRE,)) == theirs
