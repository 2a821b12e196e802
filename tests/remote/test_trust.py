"""What `hp-submit trust` offers: of what a host shows, and of what the site's list says."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from hpctools.errors import RemoteError
from hpctools.remote import known_hosts, trust
from hpctools.remote.host_keys import Shown
from hpctools.remote.ssh_config import HostSettings

LOGIN = HostSettings("login1", "login1.uni.edu", 22, "me")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A host's key, the one that follows it, and an authority."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("host", "next", "ca"):
        argv = ["ssh-keygen", "-q", "-N", "", "-t", "ed25519", "-f", str(folder / name)]
        subprocess.run(argv, check=True, timeout=30)
    return folder


def blob(path: Path) -> bytes:
    return base64.b64decode(path.read_text().split()[1])


@pytest.mark.parametrize(
    ("words", "marker", "why"),
    [
        (["-h", "-n", "login1.uni.edu"], "@cert-authority", ""),
        (["-h", "-n", "login.uni.edu"], "", "it holds for login.uni.edu"),
        (["-h", "-V", "20200101:20200201"], "", "it has expired"),
        (["-n", "login1.uni.edu"], "", "it is a person's"),
    ],
)
def test_an_authority_is_offered_where_its_certificate_holds(
    made: Path, words: Sequence[str], marker: str, why: str
) -> None:
    """One that does not would have the host refused ever after."""
    argv = ["ssh-keygen", "-q", "-s", str(made / "ca"), "-I", "test", *words, str(made / "host.pub")]
    subprocess.run(argv, check=True, capture_output=True, timeout=30)
    shown = Shown("ssh-ed25519", blob(made / "host.pub"), blob(made / "host-cert.pub"))
    offer = trust.offered(shown, LOGIN)
    assert (offer.marker, offer.key) == (marker, blob(made / ("ca.pub" if marker else "host.pub")))
    assert offer.why.startswith(why)
    assert bool(offer.why) == bool(why)


def test_what_a_list_says_beyond_what_is_known(made: Path, tmp_path: Path) -> None:
    old, fresh = (" ".join((made / f"{name}.pub").read_text().split()[:2]) for name in ("host", "next"))
    mine = tmp_path / "known_hosts"
    mine.write_text(f"[login1.uni.edu]:2222 {old}\n")
    host = HostSettings("login1", "login1.uni.edu", 2222, "me", user_known_hosts=(mine,))
    listed = known_hosts.read([("list", f"login1.uni.edu {old}\nlogin1.uni.edu {fresh}\nother {fresh}\n")])
    (offer,) = trust.told(host, listed)
    assert (offer.key, offer.names) == (blob(made / "next.pub"), "[login1.uni.edu]:2222")
    revoked = known_hosts.read([("list", f"login1.uni.edu {fresh}\n@revoked * {fresh}\n")])
    assert trust.told(host, revoked) == []
    stranger = HostSettings("login2", "login2.uni.edu", 22, "me")
    assert (trust.told(stranger, listed), trust.is_told(stranger, listed)) == ([], False)


@pytest.mark.parametrize(("files", "named"), [((Path("/dev/null"), Path("/x")), "/dev/null"), ((), "none")])
def test_where_nothing_can_be_remembered_it_is_said_what_to_do(files: tuple[Path, ...], named: str) -> None:
    """`UserKnownHostsFile /dev/null` is what many write beside `StrictHostKeyChecking no`."""
    host = HostSettings("login1", "login1.uni.edu", 22, "me", user_known_hosts=files)
    offer = trust.Offer(host, b"key", "ssh-ed25519", "", "login1.uni.edu")
    with pytest.raises(RemoteError, match=f"UserKnownHostsFile of login1 is {named}, so nothing") as caught:
        trust.remember(offer)
    assert "~/.ssh/config" in caught.value.remedy
