"""SSH keys: login nodes and workers keep their host keys when they are replaced; people get between nodes."""

from __future__ import annotations

import os
import stat
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from errno import EINVAL
from functools import partial
from pathlib import Path

from provision.failures import Failure
from provision.files import STATE, is_so, on_node, write_whole
from provision.processes import must
from provision.read_by_sshd import Read, not_read, read, take_away
from provision.services import reload_sshd
from provision.step import Context
from provision.unix import as_user

HOST_KEYS = "/etc/ssh"
_NAME = "ssh_host_{}_key"
_KINDS = ("ed25519", "ecdsa", "rsa")
_OTHERS = (".next", ".before")
"""Keys that sshd only proves, beside the one that it shows: in a rotation (`hpctools login host-keys`)."""
_CONF = f"{HOST_KEYS}/sshd_config.d/10-hpctools-host-keys.conf"
"""Which keys sshd has, as `hpctools login host-keys install` writes it; only where it is needed."""
_RELOAD_DUE = f"{STATE}/sshd-reload-due"
"""Is there from before the first key changes until sshd has read them: a reload that fails is repeated."""


def is_done(context: Context) -> bool:
    """Whether the host keys are those that are kept."""
    store = _store(context)
    kept = store is None or all(_is_same(store, _NAME.format(kind)) for kind in _KINDS)
    kept = kept and not (store is not None and on_node(_RELOAD_DUE).exists())
    if kept and store is not None and context.role == "login":
        kept = (
            all(_is_same(store, name) for name in _beside(store))
            and _has_conf(store)
            and _note(store).exists()
        )
    return kept


def do(context: Context) -> None:
    """Bring back the host keys that are kept, and keep them the first time.

    Raises:
        Failure: the folder of host keys is not private, or a key cannot be made.
    """
    store = _store(context)
    if store is not None:
        _keep_or_bring_back(store, is_login=context.role == "login")


def people_have_keys(context: Context) -> bool:
    """Whether everybody who should have a key has one."""
    return all(_has_key(home) for home, _ in _homes(context))


def make_people_keys(context: Context) -> None:
    """Make the keys of people who have none.

    Raises:
        Failure: not everybody's home takes one.
    """
    without = []
    for home, number in _homes(context):
        try:
            if not _has_key(home):
                as_user(number, partial(_make_key, home))
        except Failure as failure:
            print(f"error: the key of {home.name}: {failure}")
            without.append(home.name)
    if without:
        raise Failure(f"these people have no key between nodes: {', '.join(without)}; why stands above")


def _store(context: Context) -> Path | None:
    """Where this node's host keys are kept; None on controllers, where people do not go."""
    stated = context.settings.section("ssh_keys").get("host_keys")
    if not stated or context.role not in ("login", "compute"):
        return None
    if context.role == "login":
        # All login nodes are one host for people, who come through a load balancer.
        return on_node(stated) / (context.group or "login")
    # A worker is one by itself. HyperPod names nodes by their address, and people's ssh remembers that name.
    return on_node(stated) / "workers" / context.node


def _is_same(store: Path, name: str) -> bool:
    try:
        return (store / name).read_bytes() == (on_node(HOST_KEYS) / name).read_bytes()
    except OSError:
        return False


def _keep_or_bring_back(store: Path, *, is_login: bool) -> None:
    _refuse_others_folders(store)
    store.mkdir(parents=True, exist_ok=True)
    _refuse_others_folders(store)
    store.chmod(0o700)
    for kind in _KINDS:
        _settle(store, _NAME.format(kind), kind, is_login=is_login)
    if is_login:
        for name in _beside(store):
            _bring(store, name)
        _bring_conf(store)
    found = _read(store) if is_login else Read(())
    if on_node(_RELOAD_DUE).exists():
        print("host keys are those that were kept")
        reload_sshd()
    if is_login:
        _note_down(store, found)
    on_node(_RELOAD_DUE).unlink(missing_ok=True)


def _refuse_others_folders(store: Path) -> None:
    """Whoever owns a folder on the way may put a link there, and root would do to its target what is ours."""
    real = Path(os.path.realpath(store))
    for path in (store, *store.parents, real, *real.parents):
        if os.path.lexists(path) and path.lstat().st_uid != os.geteuid():
            raise Failure(f"{path} does not belong to root: host keys do not go there", hopeless=True)
    if store.is_symlink():
        raise Failure(f"{store} is a link: host keys do not go there", hopeless=True)


def _before_change(store: Path | None) -> None:
    """From now on sshd has to read its files again, and until then nobody says that it proves these keys.

    A note of this node may be there: of an earlier machine of this name. Without a note nobody would wait for
    this node, and the old keys could go while it is at it, or when it was killed here, so it says that it
    proves none.

    Args:
        store: where a login node notes its keys; None: a worker, for whose keys nobody waits.
    """
    write_whole(on_node(_RELOAD_DUE), "", 0o600)
    if store is not None:
        write_whole(_note(store), "", 0o600)


def _settle(store: Path, name: str, kind: str, *, is_login: bool) -> None:
    """Make one key the same here and there; what is kept wins."""
    own = on_node(HOST_KEYS) / name
    if not (store / name).exists():
        if not own.exists():
            must(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(own)], limit=60)
        _keep(own, store / name)
    if _is_same(store, name):
        return
    _before_change(store if is_login else None)
    write_whole(own, (store / name).read_text(), 0o600)
    write_whole(own.with_name(f"{name}.pub"), must(["ssh-keygen", "-y", "-f", str(own)], limit=60), 0o644)


def _beside(store: Path) -> list[str]:
    """The other keys of a rotation that is on, and certificates: without them this node would undo it.

    Whoever comes to a node that does not prove a key has it forgotten by their ssh (UpdateHostKeys): the next
    one, or the old one, which other nodes may still show.
    """
    keys = [_NAME.format(kind) for kind in _KINDS]
    names = [f"{key}{end}" for end in _OTHERS for key in keys] + [
        f"{key}{end}-cert.pub" for key in keys for end in ("", ".next")
    ]
    return [name for name in names if (store / name).exists()]


def _bring(store: Path, name: str) -> None:
    """Copy what lies beside the keys."""
    own = on_node(HOST_KEYS) / name
    if _is_same(store, name):
        return
    _before_change(store)
    is_key = not name.endswith("-cert.pub")
    write_whole(own, (store / name).read_text(), 0o600 if is_key else 0o644)
    if is_key:
        write_whole(own.with_name(f"{name}.pub"), must(["ssh-keygen", "-y", "-f", str(own)], limit=60), 0o644)


def _present(store: Path) -> list[str]:
    keys = [_NAME.format(kind) for kind in _KINDS]
    names = (f"{key}{end}" for end in ("", *_OTHERS) for key in keys)
    return [name for name in names if (store / name).exists()]


def _conf(store: Path) -> str:
    """What sshd is told; empty where it finds all by itself."""
    return _all_lines(store) if _beside(store) or on_node(_CONF).exists() else ""


def _all_lines(store: Path) -> str:
    own, lines = on_node(HOST_KEYS), ["# Made by `hpctools login host-keys install`."]
    for name in _present(store):
        certificate = f"{name}-cert.pub"
        lines.append(f"HostKey {own / name}")
        if (store / certificate).exists() or (own / certificate).exists():
            lines.append(f"HostCertificate {own / certificate}")
    return "\n".join(lines) + "\n"


def _has_conf(store: Path) -> bool:
    text = _conf(store)
    return not text or is_so(on_node(_CONF), text)


def _bring_conf(store: Path) -> None:
    text = _conf(store)
    if not text or is_so(on_node(_CONF), text):
        return
    _before_change(store)
    on_node(_CONF).parent.mkdir(exist_ok=True)
    write_whole(on_node(_CONF), text, 0o644)
    own = on_node(HOST_KEYS)
    for name in (f"{_NAME.format(kind)}{end}" for kind in _KINDS for end in _OTHERS):  # of one that is over
        if not (store / name).exists():
            (own / name).unlink(missing_ok=True)
            (own / f"{name}.pub").unlink(missing_ok=True)


def _read(store: Path) -> Read:
    """By which lines of the file sshd does not go, before it is told to read it: it would end at some.

    Raises:
        Failure: it refuses its files, or could not be asked. This node counts as one without these keys.
    """
    text = _conf(store)
    found = read((text or _all_lines(store)).splitlines()[1:])
    if text and found.why:
        _before_change(store)
        if found.refused:
            take_away(on_node(_CONF), text)
        raise not_read(on_node(_CONF), found)
    return found


def _note(store: Path) -> Path:
    return store / f"installed.{os.uname().nodename}"


def _note_down(store: Path, found: Read) -> None:
    """Say by which keys sshd goes, and which it shows: until then `hpctools login host-keys` keeps old ones.

    Raises:
        Failure: it does not go by all of those that it was told of.
    """
    having = [name for name in _present(store) if f"HostKey {on_node(HOST_KEYS) / name}" not in found.missing]
    said = {name: must(["ssh-keygen", "-l", "-f", str(store / name)], limit=60) for name in having}
    prints = {name: line.split()[1] for name, line in said.items()}
    shown = sorted(f"shows:{prints[name]}" for name in having if name.endswith("_key"))
    write_whole(_note(store), "".join(f"{each}\n" for each in (*sorted(prints.values()), *shown)), 0o600)
    if found.missing and _conf(store):
        write_whole(on_node(_RELOAD_DUE), "", 0o600)
        raise not_read(on_node(_CONF), found)


def _keep(own: Path, kept: Path) -> None:
    """Keep a key, unless another node was faster: a link is made or refused, never half made."""
    temporary = kept.with_name(f".{kept.name}.{os.uname().nodename}")
    write_whole(temporary, own.read_text(), 0o600)
    try:
        os.link(temporary, kept)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()


def _homes(context: Context) -> Iterator[tuple[Path, int]]:
    people: Mapping[str, int] = context.settings.section("users").get("people") or {}
    if not context.settings.section("ssh_keys").get("between_nodes"):
        return
    for name, number in people.items():
        yield on_node(context.settings.section("users")["homes"]) / name, number


def _has_key(home: Path) -> bool:
    try:
        public = _text(home / ".ssh/id_ed25519.pub").strip()
        private = _text(home / ".ssh/id_ed25519")
        authorized = _text(home / ".ssh/authorized_keys")
    except OSError:
        return False
    return bool(public) and public in authorized and _belong_together(private, public)


def _text(path: Path) -> str:
    """A file of a person's own; comments in it may be in any encoding, and stay so in `write_whole`.

    What is no file, such as a pipe in its place that nobody writes to, is not waited for.

    Raises:
        OSError: it cannot be read, or is no file.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, encoding="utf-8", errors="surrogateescape", newline="") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(EINVAL, "it is no file", str(path))
        return file.read()


def _belong_together(private: str, public: str) -> bool:
    """Whether a private key, which has its public one in clear, is this one's; other formats are trusted."""
    lines = private.strip().splitlines()
    if not lines or "OPENSSH PRIVATE KEY" not in lines[0]:
        return bool(lines)
    try:
        blob = b64decode(public.split()[1])
        return bool(blob) and blob in b64decode("".join(lines[1:-1]))
    except (IndexError, ValueError):
        return False


def _make_key(home: Path) -> None:
    """Make a person's key, as that person; what they have authorized already stays.

    All nodes do so at once, in the same home.
    """
    folder = home / ".ssh"
    folder.mkdir(exist_ok=True, mode=0o700)
    key, public = folder / "id_ed25519", folder / "id_ed25519.pub"
    if not key.exists():
        _make_private(key, f"{home.name}@cluster")
    _text(key)  # ssh-keygen would wait for what is no file
    if not public.exists() or not _belong_together(_text(key), _text(public)):
        write_whole(public, must(["ssh-keygen", "-y", "-f", str(key)], limit=60), 0o644)
    authorized = folder / "authorized_keys"
    before = _text(authorized) if authorized.exists() else ""
    if _text(public).strip() not in before:
        before += "\n" if before and not before.endswith("\n") else ""
        write_whole(authorized, before + _text(public), 0o600)


def _make_private(key: Path, comment: str) -> None:
    """Make a private key, unless another node is faster: a link is made or refused, never half made."""
    own = key.with_name(f".{key.name}.{os.uname().nodename}")
    made = (own, own.with_name(f"{own.name}.pub"))
    for path in made:  # of a run that was killed
        path.unlink(missing_ok=True)
    try:
        must(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(own)], limit=60)
        with suppress(FileExistsError):
            os.link(own, key)
    finally:
        for path in made:
            path.unlink(missing_ok=True)
