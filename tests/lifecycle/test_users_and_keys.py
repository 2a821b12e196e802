"""People whom the nodes know themselves, their keys, and host keys that outlive a node; as root, for real."""

import errno
import os
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpctools.errors import HpctoolsError
from hpctools.login.host_keys import KeyFolder
from tests.lifecycle.node import CONTROLLER, LOGIN, WORKER, Node, is_root

from provision import users  # isort: skip
from provision.failures import Failure  # isort: skip
from provision.settings import Settings  # isort: skip
from provision.step import Context  # isort: skip

pytestmark = pytest.mark.skipif(not is_root(), reason="makes accounts and changes owners")
# Numbers of this machine's own: ssh-keygen wants to know who runs it.
ADA, BOB, EVE = 65534, 2, 6
PASSWD = "root:x:0:0:root:/root:/bin/bash\nubuntu:x:1000:1000::/home/ubuntu:/bin/bash\n"


@pytest.fixture
def node() -> Iterator[Node]:
    """Where other accounts than root may go."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Node(Path(folder) / "node", WORKER)


def people(node: Node, **numbers: int) -> Node:
    node.only_steps("25-users", "65-ssh-keys", "66-people-keys")
    node.write("/etc/passwd", PASSWD)
    node.write("/etc/shadow", "root:*:1:::::::\nubuntu:*:1:::::::\n", 0o600)
    node.write("/etc/group", "root:x:0:\nubuntu:x:1000:\n")
    node.write("/etc/gshadow", "root:*::\nubuntu:*::\n", 0o600)
    node.write("/etc/login.defs", "")
    node.write("/etc/skel/.profile", "umask 027\n")
    node.settings["users"] = {"people": numbers, "homes": "/home"}
    node.settings["ssh_keys"] = {"host_keys": None, "between_nodes": True}
    return node


def owner(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


def test_people_have_their_number_their_home_and_their_key(node: Node) -> None:
    people(node, ada=ADA, **{"bob-x": BOB})
    assert node.run().returncode == 0, node.events("output")
    assert f"ada:x:{ADA}:{ADA}::/home/ada:/bin/bash" in node.path("/etc/passwd").read_text()
    assert owner(node.path("/home/ada")) == (ADA, ADA, 0o700)
    assert owner(node.path("/home/ada/.profile"))[:2] == (ADA, ADA)
    assert owner(node.path("/home/bob-x/.ssh/id_ed25519")) == (BOB, BOB, 0o600)
    public = node.path("/home/ada/.ssh/id_ed25519.pub").read_text()
    assert node.path("/home/ada/.ssh/authorized_keys").read_text() == public


def test_a_second_run_changes_nothing_and_a_third_person_comes_alone(node: Node) -> None:
    people(node, ada=ADA)
    assert node.run().returncode == 0
    before = node.files()
    assert node.run().returncode == 0
    assert node.files() == before
    node.settings["users"]["people"]["eve"] = EVE
    assert node.run().returncode == 0
    after = node.files()
    assert {name: after[name] for name in before if "/home/" in f"/{name}"} == {
        name: text for name, text in before.items() if "/home/" in f"/{name}"
    }


@pytest.mark.parametrize(("name", "number"), [("ubuntu", ADA), ("ada", 1000)])
def test_a_name_or_number_of_somebody_else_is_refused(node: Node, name: str, number: int) -> None:
    """A number that differs between nodes gives one person another's files."""
    people(node, **{name: number})
    assert node.run().returncode == 1
    assert len(node.events("step-begins")) == 1
    assert node.path("/etc/passwd").read_text() == PASSWD


def test_a_group_that_is_not_their_own_is_what_is_told(node: Node) -> None:
    """As useradd with USERGROUPS_ENAB=no leaves it."""
    people(node, ada=ADA)
    node.write("/etc/passwd", f"{PASSWD}ada:x:{ADA}:100::/home/ada:/bin/bash\n")
    assert node.run().returncode == 1
    (said,) = [event["message"] for event in node.events("output") if "error" in event["message"]]
    assert said.startswith(f"error: ada has the group 100 here, and the site wants one of their own, {ADA}: ")


def test_a_home_that_cannot_be_made_is_said_without_a_traceback(node: Node) -> None:
    people(node, ada=ADA)
    node.write("/home", "a file where homes are to be\n")
    assert node.run().returncode == 1
    said = [event["message"] for event in node.events("output")]
    home = node.path("/home/ada")
    wanted = f"error: the home {home} cannot be made: File exists"
    assert [line for line in said if "error" in line] == [wanted] * 3
    assert not [line for line in said if "Traceback" in line]


def test_root_whose_rights_a_file_system_takes_away_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def squashed(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "chown", squashed)
    monkeypatch.setenv("HPCTOOLS_ROOT", str(tmp_path))
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text(f"ada:x:{ADA}:{ADA}::/home/ada:/bin/bash\n")
    settings = Settings({"users": {"people": {"ada": ADA}, "homes": "/home"}}, tmp_path)
    with pytest.raises(Failure, match=r"/home/ada: Operation not permitted; .*root squash"):
        users.do(Context(settings, "compute", "n", "gpu", WORKER, ()))


def test_keys_that_somebody_has_authorized_stay(node: Node) -> None:
    people(node, ada=ADA)
    node.path("/home/ada/.ssh").mkdir(parents=True)
    node.write("/home/ada/.ssh/authorized_keys", "ssh-ed25519 AAAA laptop")
    for path in (node.path("/home/ada"), *node.path("/home/ada").rglob("*")):
        os.chown(path, ADA, ADA)
    assert node.run().returncode == 0
    lines = node.path("/home/ada/.ssh/authorized_keys").read_text().splitlines()
    assert lines[0] == "ssh-ed25519 AAAA laptop"
    assert lines[1].endswith("ada@cluster")


def test_keys_with_a_comment_in_latin_1_stay_byte_for_byte(node: Node) -> None:
    """One person's file kept every new node from being set up, and nothing said why."""
    people(node, ada=ADA)
    theirs = "ssh-ed25519 AAAA José\n".encode("latin-1")
    file = node.write("/home/ada/.ssh/authorized_keys", "")
    file.write_bytes(theirs)
    for path in (node.path("/home/ada"), *node.path("/home/ada").rglob("*")):
        os.chown(path, ADA, ADA)
    assert node.run().returncode == 0, node.events("output")
    public = node.path("/home/ada/.ssh/id_ed25519.pub").read_bytes()
    assert file.read_bytes() == theirs + public
    assert node.run("--check").returncode == 0


def test_a_folder_of_host_keys_that_cannot_be_made_is_said_without_a_traceback(node: Node) -> None:
    """As on a full disk."""
    login(node).write("/fsx", "a file where the file system is to be\n")
    assert node.run().returncode == 1
    folder = node.path("/fsx/host-keys/workers") / os.uname().nodename.partition(".")[0]
    said = [event["message"] for event in node.events("output")]
    assert said == [f"error: {folder}: Not a directory"] * 3


def test_root_writes_through_no_link_of_a_user(node: Node, tmp_path: Path) -> None:
    """authorized_keys is the user's: a link to a file of root's must not be followed with root's rights."""
    people(node, ada=ADA)
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o700)
    (precious / "file").write_text("secret\n")
    node.path("/home/ada/.ssh").mkdir(parents=True)
    node.path("/home/ada/.ssh/authorized_keys").symlink_to(precious / "file")
    for path in (node.path("/home/ada"), node.path("/home/ada/.ssh")):
        os.chown(path, ADA, ADA)
    assert node.run().returncode == 0, "one person's files keep no node from being set up"
    assert node.run("--check").returncode == 1
    assert (precious / "file").read_text() == "secret\n"
    assert sorted(path.name for path in precious.iterdir()) == ["file"]


def test_a_home_that_takes_no_key_keeps_nobody_else_from_theirs(node: Node) -> None:
    """Any person could keep all new nodes from being set up, their quota being full, say."""
    people(node, ada=ADA, eve=EVE)
    node.write("/home/ada/.ssh", "no folder\n")
    for path in (node.path("/home/ada"), node.path("/home/ada/.ssh")):
        os.chown(path, ADA, ADA)
    assert node.run().returncode == 0
    assert owner(node.path("/home/eve/.ssh/authorized_keys")) == (EVE, EVE, 0o600)
    last = node.events("output")[-1]
    assert (last["step"], last["message"]) == (
        *("66-people-keys", "error: these people have no key between nodes: ada; why stands above"),
    )


@pytest.mark.parametrize("name", ["authorized_keys", "id_ed25519"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(node: Node, name: str) -> None:
    """Nobody would ever write to it, and those who come later in the list would get no key."""
    people(node, ada=ADA, eve=EVE)
    folder = node.path("/home/ada/.ssh")
    folder.mkdir(parents=True)
    os.mkfifo(folder / name)
    for path in (node.path("/home/ada"), folder, folder / name):
        os.chown(path, ADA, ADA)
    assert node.run().returncode == 0
    assert owner(node.path("/home/eve/.ssh/authorized_keys")) == (EVE, EVE, 0o600)
    said = [each["message"] for each in node.events("output")]
    assert any("it is no file" in each for each in said), said


# The other node of the same home, which is faster than this one's ssh-keygen.
FASTER = """\
/usr/bin/ssh-keygen "$@" || exit 1
[[ "$*" == *" -y "* || "$1" = -y ]] || install -m 0600 "$STAND_IN/other" "$(dirname "${@: -1}")/id_ed25519"
"""


def key_pair(path: Path) -> tuple[str, str]:
    made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ada@cluster", "-f", str(path)]
    subprocess.run(made, check=True, timeout=60)
    path.chmod(0o644)
    return path.read_text(), path.with_name(f"{path.name}.pub").read_text()


def test_the_key_of_a_faster_node_stays_and_its_public_one_is_authorized(node: Node) -> None:
    """All nodes start at once: a private key of one with the public one of another lets nobody in."""
    people(node, ada=ADA)
    node.path("/stand-in").mkdir(parents=True)
    private, public = key_pair(node.path("/stand-in/other"))
    node.stand_in("ssh-keygen", FASTER)
    assert node.run().returncode == 0, node.events("output")
    ssh = node.path("/home/ada/.ssh")
    assert (ssh / "id_ed25519").read_text() == private
    assert (ssh / "id_ed25519.pub").read_text() == (ssh / "authorized_keys").read_text() == public
    assert sorted(path.name for path in ssh.iterdir()) == ["authorized_keys", "id_ed25519", "id_ed25519.pub"]


@pytest.mark.parametrize("damage", ["", "another's"])
def test_a_public_key_whose_private_one_is_gone_or_anothers_is_seen_and_mended(
    node: Node, tmp_path: Path, damage: str
) -> None:
    people(node, ada=ADA)
    assert node.run().returncode == 0
    key = node.path("/home/ada/.ssh/id_ed25519")
    private = key_pair(tmp_path / "other")[0]
    if damage:
        key.write_text(private)
    else:
        key.unlink()
    assert node.run("--check").returncode == 1
    assert node.run().returncode == 0
    shown = subprocess.run(
        ["ssh-keygen", "-y", "-f", str(key)], capture_output=True, text=True, check=True, timeout=60
    )
    assert key.with_name("id_ed25519.pub").read_text() == shown.stdout
    assert shown.stdout in key.with_name("authorized_keys").read_text()


def login(node: Node) -> Node:
    node.only_steps("65-ssh-keys")
    node.settings["ssh_keys"] = {"host_keys": "/fsx/host-keys", "between_nodes": False}
    node.write("/etc/ssh/sshd_config", f"Include {node.path('/etc/ssh')}/sshd_config.d/*.conf\n")
    node.write("/stand-in/calls", "")
    node.stand_in("sshd", 'exec /usr/sbin/sshd "$@" -f "$HPCTOOLS_ROOT/etc/ssh/sshd_config"')
    # No sshd goes without this folder, which systemd makes for the first one of a machine.
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    node.stand_in("systemctl", 'echo "systemctl $*" >>"$STAND_IN/calls"; [ "$2" = ssh ]')
    return node


def test_a_replaced_login_node_has_the_host_keys_of_the_one_before(make_node: Callable[[str], Node]) -> None:
    first = login(make_node(LOGIN))
    assert first.run().returncode == 0
    kept = first.path("/fsx/host-keys/login")
    assert owner(kept)[2] == 0o700
    key = first.path("/etc/ssh/ssh_host_ed25519_key").read_bytes()
    assert first.calls("systemctl") == []

    second = login(Node(first.root.parent / "replaced", LOGIN))
    second.path("/fsx").symlink_to(first.path("/fsx"))
    second.write("/etc/ssh/ssh_host_ed25519_key", "a fresh one\n", 0o600)
    assert second.run().returncode == 0
    assert second.path("/etc/ssh/ssh_host_ed25519_key").read_bytes() == key
    assert owner(second.path("/etc/ssh/ssh_host_ed25519_key"))[2] == 0o600
    assert second.calls("systemctl") == ["systemctl reload ssh"], "sessions go on"
    assert second.run().returncode == 0
    assert len(second.calls("systemctl")) == 1


def test_a_node_that_is_replaced_while_keys_are_changed_has_the_next_ones_too(
    make_node: Callable[[str], Node],
) -> None:
    """Else whoever comes there has the next key forgotten by their ssh. The same files as `install` makes."""
    first = login(make_node(LOGIN))
    assert first.run().returncode == 0
    kept = KeyFolder(first.path("/fsx/host-keys/login"))
    assert list(kept.installed()) == [os.uname().nodename]
    kept.begin_rotation()
    with pytest.raises(HpctoolsError, match="did not say so"):
        kept.finish_rotation()
    kept.make_authority()
    kept.sign(kept.path / "ssh_host_ed25519_key.pub", ["login.uni.example"])

    second = login(Node(first.root.parent / "replaced", LOGIN))
    second.path("/fsx").symlink_to(first.path("/fsx"))
    assert second.run("--check").returncode == 1
    assert second.run().returncode == 0
    assert second.calls("systemctl") == ["systemctl reload ssh"]
    made = {path.name: (path.read_text(), owner(path)) for path in files_of(second)}
    assert "HostKey" in made["10-hpctools-host-keys.conf"][0]
    kept.install(second.path("/etc/ssh"))
    assert {path.name: (path.read_text(), owner(path)) for path in files_of(second)} == made
    assert second.run("--check").returncode == 0

    kept.finish_rotation(force=True)
    assert second.run("--check").returncode == 1
    assert second.run().returncode == 0
    assert [path.name for path in files_of(second) if ".next" in path.name] == []
    assert "ssh_host_ed25519_key.before" in made_of(second)["10-hpctools-host-keys.conf"]
    shown = {key.fingerprint for key in kept.present() if key.role == "now"}
    assert kept.showing()[os.uname().nodename] == shown
    kept.retire()
    assert second.run("--check").returncode == 1
    assert second.run().returncode == 0
    assert [path.name for path in files_of(second) if ".before" in path.name] == []
    before = {path.name: path.read_text() for path in files_of(second)}
    kept.install(second.path("/etc/ssh"))
    after = {path.name: path.read_text() for path in files_of(second)}
    assert {name for name in before if before[name] != after.get(name)} <= {
        "ssh_host_ed25519_key-cert.pub", "10-hpctools-host-keys.conf",
    }, "install takes away the certificate of the old key, which sshd passes over"  # fmt: skip


@pytest.mark.parametrize(
    ("program", "fails"),
    [
        ("systemctl", "exit 1"),
        ("ssh-keygen", '[ "$1" = -y ] && kill -9 $PPID; exec /usr/bin/ssh-keygen "$@"'),
    ],
    ids=["the reload failed", "killed between two keys"],
)
def test_what_was_not_ended_is_repeated_and_until_then_nobody_says_that_sshd_has_the_keys(
    make_node: Callable[[str], Node], program: str, fails: str
) -> None:
    """Else `--finish` would take away the old key although this sshd does not prove the next one."""
    first = login(make_node(LOGIN))
    assert first.run().returncode == 0
    kept = KeyFolder(first.path("/fsx/host-keys/login"))
    kept.begin_rotation()
    kept.install(first.path("/etc/ssh"))
    assert list(kept.installed()) == [os.uname().nodename], "as an earlier machine of this name left it"
    kept.install(first.path("/etc/ssh"), "login-9")

    second = login(Node(first.root.parent / "replaced", LOGIN))
    second.path("/fsx").symlink_to(first.path("/fsx"))
    second.stand_in(program, fails)
    assert second.run().returncode != 0
    assert kept.installed()[os.uname().nodename] == frozenset()
    with pytest.raises(HpctoolsError, match=f"{os.uname().nodename} did not say so"):
        kept.finish_rotation()
    assert second.run("--check").returncode == 1
    second.stand_in("ssh-keygen", 'exec /usr/bin/ssh-keygen "$@"')
    second.stand_in("systemctl", 'echo "systemctl $*" >>"$STAND_IN/calls"; [ "$2" = ssh ]')
    assert second.run().returncode == 0
    assert second.calls("systemctl") == ["systemctl reload ssh"]
    assert second.run("--check").returncode == 0
    assert {key.role for key in kept.finish_rotation()} == {"now", "before"}


@pytest.mark.parametrize(
    ("config", "said", "having"),
    [
        ("HostKey {0}/ssh_host_ed25519_key\n", "it does not go by `HostKey", 1),
        ("Match User x\nInclude {0}/sshd_config.d/*.conf\n", "'HostKey' is not allowed within a Match", 0),
    ],
)
def test_a_node_whose_sshd_does_not_read_the_next_key_says_so_and_is_waited_for(
    make_node: Callable[[str], Node], config: str, said: str, having: int
) -> None:
    """Else the old key would go although this node does not prove the next one; or its sshd would end."""
    node = login(make_node(LOGIN))
    assert node.run().returncode == 0
    kept = KeyFolder(node.path("/fsx/host-keys/login"))
    kept.begin_rotation()
    config_of = node.path("/etc/ssh/sshd_config")
    config_of.write_text(config.format(node.path("/etc/ssh")))
    for _ in range(2):
        assert node.run().returncode != 0
        assert said in node.events("output")[-1]["message"]
        assert f"begin {config_of} with `Include" in node.events("output")[-1]["message"]
    assert [len(prints) for prints in kept.installed().values()] == [having]
    assert node.calls("systemctl") == (["systemctl reload ssh"] * 2 if having else [])
    with pytest.raises(HpctoolsError, match="did not say so"):
        kept.finish_rotation()
    config_of.write_text(f"Include {node.path('/etc/ssh')}/sshd_config.d/*.conf\n")
    assert node.run("--check").returncode == 1
    assert node.run().returncode == 0
    assert node.run("--check").returncode == 0
    assert {key.role for key in kept.finish_rotation()} == {"now", "before"}


FOLDER = (
    '[ -d "$HPCTOOLS_ROOT/run/sshd" ] || { echo "Missing privilege separation directory" >&2; exit 255; }\n'
)


def test_without_the_folder_that_systemd_makes_for_sshd_it_is_made(make_node: Callable[[str], Node]) -> None:
    """With ssh.socket, or while an image is made, no sshd has been started yet."""
    node = login(make_node(LOGIN))
    asks = node.bin / "sshd"
    node.stand_in("sshd", FOLDER + asks.read_text().partition("\n")[2])
    assert node.run().returncode == 0
    kept = KeyFolder(node.path("/fsx/host-keys/login"))
    kept.begin_rotation()
    node.path("/run/sshd").rmdir()
    assert node.run().returncode == 0
    assert node.path("/run/sshd").stat().st_mode & 0o777 == 0o755
    assert {key.role for key in kept.finish_rotation()} == {"now", "before"}


@pytest.mark.parametrize(
    "sshd",
    [
        "kill -9 $$",
        '[ "$1" = -t ] && kill -9 $$; echo "Missing something" >&2; exit 255',
    ],
)
def test_a_file_that_no_sshd_has_judged_stays(make_node: Callable[[str], Node], sshd: str) -> None:
    node = login(make_node(LOGIN))
    assert node.run().returncode == 0
    kept = KeyFolder(node.path("/fsx/host-keys/login"))
    kept.begin_rotation()
    asks = (node.bin / "sshd").read_text().partition("\n")[2]
    node.stand_in("sshd", sshd)
    assert node.run().returncode != 0
    assert "Include" not in node.events("output")[-1]["message"]
    assert "ed25519_key.next" in node.path("/etc/ssh/sshd_config.d/10-hpctools-host-keys.conf").read_text()
    assert list(kept.installed().values()) == [frozenset()]
    node.stand_in("sshd", asks)
    assert node.run().returncode == 0
    assert {key.role for key in kept.finish_rotation()} == {"now", "before"}


def made_of(node: Node) -> dict[str, str]:
    return {path.name: path.read_text() for path in files_of(node)}


def files_of(node: Node) -> list[Path]:
    return sorted(path for path in node.path("/etc/ssh").rglob("*") if path.is_file())


@pytest.mark.parametrize("whose", ["link", "parent"])
def test_host_keys_go_to_no_folder_that_a_user_can_exchange(
    make_node: Callable[[str], Node], tmp_path: Path, whose: str
) -> None:
    """A link of a user's there would give root's own folder away: its target would become 0700."""
    node = login(make_node(LOGIN))
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o755)
    parent = node.path("/fsx/host-keys")
    parent.mkdir(parents=True)
    if whose == "link":
        (parent / "login").symlink_to(precious)
    else:
        os.chown(parent, ADA, ADA)
        (parent / "login").mkdir()
    assert node.run().returncode == 1
    assert "host keys do not go there" in node.events("output")[-1]["message"]
    assert (owner(precious)[2], list(precious.iterdir())) == (0o755, [])
    assert list((parent / "login").iterdir()) == []


def test_each_worker_keeps_a_host_key_of_its_own(make_node: Callable[[str], Node]) -> None:
    """People's ssh refuses a name whose host key has changed."""
    worker = login(make_node(WORKER))
    assert worker.run().returncode == 0
    name = os.uname().nodename.partition(".")[0]
    kept = worker.path(f"/fsx/host-keys/workers/{name}/ssh_host_ed25519_key").read_bytes()
    assert kept == worker.path("/etc/ssh/ssh_host_ed25519_key").read_bytes()
    worker.write("/etc/ssh/ssh_host_ed25519_key", "that of the node in its place\n", 0o600)
    assert worker.run().returncode == 0
    assert worker.path("/etc/ssh/ssh_host_ed25519_key").read_bytes() == kept


def test_controllers_keep_no_host_key(make_node: Callable[[str], Node]) -> None:
    controller = login(make_node(CONTROLLER))
    assert controller.run().returncode == 0
    assert not controller.path("/fsx").exists()
