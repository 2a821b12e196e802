"""Whether a host is who it says: never believed at first sight. Pure, but for reading the files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpctools.errors import RemoteError
from hpctools.remote import certificates, known_hosts
from hpctools.remote.known_hosts import KnownHosts, known_name
from hpctools.remote.names import shown as printable
from hpctools.remote.ssh_config import HostSettings

_PLAIN = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)
Verify = Callable[[bytes, bytes, bytes], bool]


class UnknownHost(RemoteError):
    """Nobody said yet whose key this is."""


class WrongHost(RemoteError):
    """The host shows another key than it should, or one that nobody may have."""


@dataclass(frozen=True)
class Shown:
    """What a host showed in the key exchange.

    Attributes:
        kind: the type of its own key.
        key: its own key, without a certificate.
        certificate: as it was sent; empty when it showed none.
    """

    kind: str
    key: bytes
    certificate: bytes = b""


def load(settings: HostSettings) -> KnownHosts:
    """The known_hosts files of a host's settings; those that are not there say nothing."""
    files = (*settings.user_known_hosts, *settings.global_known_hosts)
    return known_hosts.read((str(path), text) for path in files if (text := _text(path)) is not None)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def names(settings: HostSettings) -> list[str]:
    """What the host is called in known_hosts files."""
    return [settings.known_as.lower() or known_name(settings.host, settings.port)]


def known_names(settings: HostSettings, known: KnownHosts) -> list[str]:
    """By what a host is looked up: its bare name, too, where nothing is known of it with its port.

    So does ssh ("checking without port identifier"), but not under a HostKeyAlias.
    """
    called = names(settings)
    if (
        settings.known_as
        or settings.port == 22
        or known.keys(called)
        or known.keys(called, "@cert-authority")
    ):
        return called
    return [settings.host.lower()]


def algorithms(known: KnownHosts, called: Sequence[str], *, only_known: bool = True) -> tuple[str, ...]:
    """Host key algorithms to ask for, those first by which the host can be known.

    A host shows one key. If it were asked for another than the known one, it would be a stranger.

    Args:
        only_known: leave all others out where some are known.
    """
    kinds = {_family(line.kind) for line in known.keys(called)}
    with_certificate = [each + certificates.SUFFIX for each in _PLAIN]
    first = with_certificate if known.keys(called, "@cert-authority") else []
    first += [each for each in _PLAIN if _family(each) in kinds]
    if first and only_known:
        return tuple(first)
    # Certificates first, as ssh has it: an authority holds for all login nodes, and for those to come.
    return tuple(dict.fromkeys([*first, *with_certificate, *_PLAIN]))


def _family(kind: str) -> str:
    return "rsa" if "rsa" in kind and "ecdsa" not in kind else kind


def judge(shown: Shown, settings: HostSettings, known: KnownHosts, now: float, verify: Verify) -> None:
    """Refuse a host that is not known by its key, or by an authority that signed it.

    Raises:
        UnknownHost: nothing is known of it.
        WrongHost: its key is another one, or revoked, or its certificate does not hold.
    """
    called = names(settings)
    bare = known_names(settings, known)
    try:
        _judge(shown, settings, known, called, now, verify)
    except UnknownHost:
        if bare == called:
            raise
        try:
            _judge(shown, settings, known, bare, now, verify)
            return
        except (UnknownHost, WrongHost):
            pass  # it is another sshd than that of the bare name, and not known
        raise


def _judge(
    shown: Shown, settings: HostSettings, known: KnownHosts, called: Sequence[str], now: float, verify: Verify
) -> None:
    _refuse_revoked(shown.key, settings, known)
    if shown.certificate:
        _refuse_revoked_authority(shown, settings, known)
    authorities = known.keys(called, "@cert-authority")
    why = ""
    if shown.certificate and authorities:
        why = _why_not(shown, settings, [line.key for line in authorities], now, verify)
        if not why:
            return
    lines = known.keys(called)
    if any(line.key == shown.key for line in lines):
        return
    if why:
        raise WrongHost(
            f"{settings.alias} shows a host certificate that does not hold: {why}",
            "nothing was sent to it; ask the site's administrators",
        )
    if lines:
        raise _changed(shown, settings, [line.place for line in lines])
    if authorities:
        raise WrongHost(
            f"{settings.alias} shows a key that no authority signed, and {authorities[0].place} wants that",
            "nothing was sent to it; ask the site's administrators",
        )
    raise UnknownHost(
        f"the host key of {settings.alias} ({settings.host}) is not known: {shown.kind} "
        f"{known_hosts.fingerprint(shown.key)}",
        f"compare it with what the site says, and take it on: hp-submit trust {settings.name}",
    )


def _why_not(
    shown: Shown, settings: HostSettings, trusted: Sequence[bytes], now: float, verify: Verify
) -> str:
    """Why a certificate is not good enough; empty when it is."""
    try:
        certificate = certificates.read(shown.certificate)
        if certificate.plain_key != shown.key:
            return "it is another key's"
        if certificate.authority not in trusted:
            return f"its authority {known_hosts.fingerprint(certificate.authority)} is not known"
        called = [settings.known_as] if settings.known_as else [settings.host]
        certificates.check(certificate, called, now, verify)
    except certificates.CertificateError as error:
        return printable(str(error))  # the host wrote what it holds for
    return ""


def _refuse_revoked_authority(shown: Shown, settings: HostSettings, known: KnownHosts) -> None:
    """As ssh does: wherever a key may be revoked, an authority may be."""
    try:
        authority = certificates.read(shown.certificate).authority
    except certificates.CertificateError:
        return  # it helps nobody
    _refuse_revoked(authority, settings, known, "a certificate by an authority")


def _refuse_revoked(key: bytes, settings: HostSettings, known: KnownHosts, what: str = "a key") -> None:
    bare = () if settings.known_as else (settings.host.lower(),)
    line = known.is_revoked(key, [*names(settings), *bare])
    place = line.place if line else ""
    if settings.revoked_keys is not None:
        place = place or _revoked_in(settings.revoked_keys, key)
    if place:
        raise WrongHost(
            f"{settings.alias} shows {what} that is revoked in {place}",
            "nothing was sent to it; ask the site's administrators",
        )


def _revoked_in(path: Path, key: bytes) -> str:
    """The file, when it names the key, or when it is not to be read: ssh refuses everything then, too."""
    text = _text(path)
    if text is None or text.startswith("SSHKRL"):
        raise WrongHost(
            f"RevokedHostKeys {path} cannot be read, or is no list of keys", "give a file with a key a line"
        )
    lines = (f"* {line}" for line in text.splitlines())
    found = known_hosts.read([(str(path), "\n".join(lines))])
    return str(path) if any(line.key == key for line in found.lines) else ""


def _changed(shown: Shown, settings: HostSettings, places: Sequence[str]) -> WrongHost:
    return WrongHost(
        f"{settings.alias} shows another host key than the known one: {shown.kind} "
        f"{known_hosts.fingerprint(shown.key)} is not in {', '.join(places)}. Somebody may be listening in",
        "nothing was sent to it; ask the site's administrators. If the key did change: ssh-keygen -R "
        f"'{names(settings)[0]}', then hp-submit trust {settings.name}",
    )
