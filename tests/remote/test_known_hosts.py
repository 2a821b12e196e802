"""known_hosts files read as OpenSSH reads them: `ssh-keygen -F` is asked the same."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctools.remote import known_hosts
from hpctools.remote.known_hosts import fingerprint, known_name, line, read

KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIIFvH3mZ0xjpCYjmnZq8Cqk0PTnpLsvFuHbPpmRqkNCy"
NAMES = [
    "login1.uni.edu",
    "login2.uni.edu",
    "LOGIN1.uni.edu",
    "evil.uni.edu",
    "10.0.0.1",
    "[login1.uni.edu]:2222",
]
PATTERNS = ["*", "login?.uni.edu", "*.uni.edu,!evil.uni.edu", "!evil.uni.edu,*", "10.0.0.*"]
PATTERNS += ["[login1.uni.edu]:2222", "[*]:2222", "login1.uni.edu,10.0.0.1", "login[12].uni.edu"]


def found_by_ssh(file: Path, name: str) -> bool:
    done = subprocess.run(["ssh-keygen", "-F", name, "-f", str(file)], capture_output=True, check=False)
    return done.returncode == 0


def found_by_us(file: Path, name: str) -> bool:
    return bool(read([(str(file), file.read_text())]).keys([name]))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_are_those_of_ssh(tmp_path: Path, pattern: str) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(
        f"# people\n\n{pattern} ssh-ed25519 {KEY} a comment\nbroken line\n{pattern} ssh-rsa {KEY}\n"
    )
    assert {n: found_by_us(file, n) for n in NAMES} == {n: found_by_ssh(file, n) for n in NAMES}


@pytest.mark.parametrize("name", ["login1.uni.edu", "[login1.uni.edu]:2222"])
def test_hashed_names_are_those_of_ssh(tmp_path: Path, name: str) -> None:
    """In both directions: what ssh-keygen hashed, and what we did."""
    file = tmp_path / "known_hosts"
    file.write_text(f"{name} ssh-ed25519 {KEY}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    assert file.read_text().startswith("|1|")
    assert [each for each in NAMES if found_by_us(file, each)] == [
        each for each in NAMES if each.lower() == name
    ]
    file.write_text(f"{known_hosts.hashed(name)} ssh-ed25519 {KEY}\n")
    assert found_by_ssh(file, name)
    assert not found_by_ssh(file, "login2.uni.edu")


def test_markers_are_kept_apart() -> None:
    marked = ("@cert-authority *.uni.edu", "@revoked *", "@odd *")
    text = "".join(f"{names} ssh-ed25519 {KEY}\n" for names in marked)
    known = read([("known_hosts", text)])
    (authority,) = known.keys(["login1.uni.edu"], "@cert-authority")
    assert (known.keys(["login1.uni.edu"]), authority.place) == ([], "known_hosts:1")
    revoked = known.is_revoked(authority.key, ["anything"])
    assert revoked is not None
    assert revoked.place == "known_hosts:2"


def test_a_fingerprint_is_what_ssh_keygen_prints(tmp_path: Path) -> None:
    file = tmp_path / "key.pub"
    file.write_text(f"ssh-ed25519 {KEY}\n")
    said = subprocess.run(["ssh-keygen", "-lf", str(file)], capture_output=True, text=True, check=True).stdout
    (known,) = read([("f", f"a ssh-ed25519 {KEY}")]).lines
    assert said.split()[1] == fingerprint(known.key)
    assert line("a", known.kind, known.key) == f"a ssh-ed25519 {KEY}\n"


@given(st.text(max_size=200) | st.from_regex(r"\|1\|[^|\s]{0,20}\|[^|\s]{0,20}", fullmatch=True))
@settings(deadline=None)
def test_nothing_that_is_in_a_file_breaks_reading_it(text: str) -> None:
    """What comes after it is found, whatever a line is and whatever stands where names do."""
    lines = (text, f"{text} ssh-ed25519 {KEY}", f"login1.uni.edu ssh-ed25519 {KEY}")
    found = read([("f", "\n".join(lines))]).keys(["login1.uni.edu"])
    assert found[-1].names == "login1.uni.edu"


def test_names_have_their_port() -> None:
    assert [known_name("Login1", 22), known_name("Login1", 2222)] == ["login1", "[login1]:2222"]
