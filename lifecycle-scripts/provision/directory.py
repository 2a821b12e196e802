"""The people's directory on a node: sssd's configuration, the reader's password, nsswitch.conf and PAM.

sssd.conf comes as it is from the settings and holds no password: that is in a snippet of its own beside it,
from AWS Secrets Manager or from a file that only root may read. Without the directory a node still comes up:
sssd goes on asking, and the machine's own accounts never need it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provision.failures import Failure
from provision.files import is_so, on_node, read_text, write_whole
from provision.processes import call, must
from provision.secret import read_secret
from provision.step import Context

CONF = "/etc/sssd/sssd.conf"
BIND = "/etc/sssd/conf.d/50-hpctools-bind.conf"
LOCAL = "/etc/sssd/conf.d/40-hpctools-local.conf"
READ = "/var/lib/sss/db/config.ldb"  # where sssd keeps what it has read of its configuration
NSSWITCH = "/etc/nsswitch.conf"
PROFILE = "/usr/share/pam-configs/hpctools-homes"
PACKAGES = ("sssd-ldap", "libnss-sss", "libpam-sss")
_DATABASES = ("passwd", "group", "shadow", "initgroups")
_DATABASE = re.compile(rf"^({'|'.join(_DATABASES)}):[ \t]*(.*)$", re.MULTILINE)
_NO_SHELLS = ("/nologin", "/false", "/sync")
_FIRST = re.compile(r"\b(files|compat)\b(\s*\[[^\]]*\])?")


def is_done(context: Context) -> bool:
    """Whether sssd runs with this configuration, and names and logins go to it."""
    section = context.settings.section("identity")
    if not section:
        return True
    return (
        not _missing_packages()
        and all(is_so(on_node(path), text, mode) for path, text, mode in _files(section))
        and _has_password(section)
        and _local_accounts() <= _listed("filter_users", LOCAL)
        and _nsswitch() == _with_sss(_nsswitch())
        and not _missing_in_pam(section)
        and _has_been_read()
        and call(["systemctl", "is-active", "--quiet", "sssd"], limit=10).code == 0
    )


def do(context: Context) -> None:
    """Make it so.

    Raises:
        Failure: a package, the password or the service cannot be had.
    """
    section = context.settings.section("identity")
    _install()
    for path, text, mode in _files(section):
        write_whole(on_node(path), text, mode, owner=(0, 0))
    _write_password(section)
    write_whole(on_node(LOCAL), _hiding(), 0o600, owner=(0, 0))
    write_whole(on_node(NSSWITCH), _with_sss(_nsswitch()))
    _enable_in_pam(section)
    call(["systemctl", "enable", "sssd"], limit=30)
    must(["systemctl", "restart", "sssd"], limit=60)
    _ask(section)


def _files(section: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    """Path, text and mode of what has no secret in it."""
    found = [(CONF, str(section["sssd_conf"]), 0o600)]
    if section.get("ca"):
        found.append((str(section["ca"]["path"]), str(section["ca"]["text"]), 0o644))
    if _makes_homes(section):
        found.append((PROFILE, _profile(str(section["homes"]["skeleton"])), 0o644))
    return found


def _makes_homes(section: Mapping[str, Any]) -> bool:
    return bool(section.get("homes", {}).get("make") == "at_login")


def _profile(skeleton: str) -> str:
    """`optional`: an administrator gets in also when a home cannot be made."""
    return (
        "Name: Homes of people from the directory (hpctools)\n"
        "Default: yes\nPriority: 0\nSession-Type: Additional\nSession-Interactive-Only: yes\n"
        f"Session:\n\toptional\tpam_mkhomedir.so umask=0077 skel={skeleton}\n"
    )


def _missing_packages() -> list[str]:
    """Packages that are not installed; sssd without its module for the name service knows people in vain."""
    done = call(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\\n", *PACKAGES], limit=20)
    installed = {words[0] for words in map(str.split, done.out.splitlines()) if words[1:] == ["installed"]}
    return [name for name in PACKAGES if name not in installed]


def _install() -> None:
    if not _missing_packages():
        return
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    argv = ["apt-get", "-y", "-o", "DPkg::Lock::Timeout=120", "install", "--no-install-recommends", *PACKAGES]
    if call(argv, limit=240, env=env).code != 0:
        must(["apt-get", "-o", "DPkg::Lock::Timeout=120", "update"], limit=120, env=env)
        must(argv, limit=240, env=env)


def _has_password(section: Mapping[str, Any]) -> bool:
    """Whether the snippet is as it should be; a secret is not fetched again to compare."""
    bind = section.get("bind") or {}
    path = on_node(BIND)
    if not bind:
        return not path.exists()
    if "file" in bind:
        return is_so(path, _snippet(section, _from_file(str(bind["file"]))), 0o600)
    try:
        found = path.stat()
    except OSError:
        return False
    return found.st_mode & 0o7777 == 0o600 and found.st_size > 0 and _names_domain(path, section)


def _names_domain(path: Path, section: Mapping[str, Any]) -> bool:
    return read_text(path, "the directory's password").startswith(f"[domain/{section['domain']}]\n")


def _write_password(section: Mapping[str, Any]) -> None:
    bind = section.get("bind") or {}
    path = on_node(BIND)
    if not bind:
        path.unlink(missing_ok=True)
    elif "file" in bind:
        write_whole(path, _snippet(section, _from_file(str(bind["file"]))), 0o600, owner=(0, 0))
    else:
        password = read_secret(str(bind["aws_secret"])).get("password", "")
        write_whole(path, _snippet(section, password), 0o600, owner=(0, 0))


def _from_file(place: str) -> str:
    path = on_node(place)
    text = read_text(path, "the directory's password")
    if path.stat().st_mode & 0o077:
        raise Failure(f"others may read the directory's password in {path}: chmod 600 {path}", hopeless=True)
    return text.rstrip("\r\n")


def _snippet(section: Mapping[str, Any], password: str) -> str:
    """sssd reads a value up to the end of its line, without the blanks around it."""
    if not password or password != password.strip() or not password.isprintable():
        raise Failure(
            "the directory's password is empty, has blanks around it, or what sssd.conf cannot hold",
            hopeless=True,
        )
    return f"[domain/{section['domain']}]\nldap_default_authtok = {password}\n"


def _has_been_read() -> bool:
    """Whether sssd has read its configuration since that was written: who killed us may have come between."""
    try:
        written = [on_node(path).stat().st_mtime_ns for path in (CONF, LOCAL, BIND) if on_node(path).exists()]
        return max(written) <= on_node(READ).stat().st_mtime_ns
    except OSError:
        return False


def _local_accounts() -> set[str]:
    """Accounts of this node into which somebody can log in.

    PAM asks sssd when a password is not the local one: without this, whoever makes an entry of such a name in
    the directory could log in as the node's own administrator.
    """
    lines = (line.split(":") for line in read_text(on_node("/etc/passwd"), "the accounts").splitlines())
    return {words[0] for words in lines if len(words) == 7 and not words[6].endswith(_NO_SHELLS)}


def _listed(key: str, path: str) -> set[str]:
    """The names of a list in sssd's configuration."""
    found = re.search(rf"^{key} = (.*)$", _text(path), re.MULTILINE)
    return {name.strip() for name in found[1].split(",")} if found else set()


def _text(path: str) -> str:
    there = on_node(path)
    return read_text(there, "sssd's configuration") if there.exists() else ""


def _hiding() -> str:
    """A snippet's value takes the place of the one in sssd.conf."""
    lines = read_text(on_node("/etc/group"), "the groups").splitlines()
    groups = {line.split(":")[0] for line in lines if line} | _listed("filter_groups", CONF)
    people = _local_accounts() | _listed("filter_users", CONF)
    return f"[nss]\nfilter_users = {_spell(people)}\nfilter_groups = {_spell(groups)}\n"


def _spell(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _nsswitch() -> str:
    return read_text(on_node(NSSWITCH), "the name service switch")


def _with_sss(text: str) -> str:
    """Ask sssd after the machine's own files, which always come first."""
    return _DATABASE.sub(_line_with_sss, text)


def _line_with_sss(line: re.Match[str]) -> str:
    database, sources = line[1], line[2]
    if re.search(r"\bsss\b", sources.partition("#")[0]):
        return line[0]
    changed, count = _FIRST.subn(lambda found: f"{found[0]} sss", sources, count=1)
    return f"{database}: {changed if count else f'files sss {sources}'.rstrip()}"


def _missing_in_pam(section: Mapping[str, Any]) -> list[str]:
    """Modules that the common stacks lack."""
    wanted = [("common-auth", "pam_sss.so"), ("common-account", "pam_sss.so")]
    if _makes_homes(section):
        wanted.append(("common-session", "pam_mkhomedir.so"))
    return [f"{module} in {name}" for name, module in wanted if not _pam_has(name, module)]


def _pam_has(name: str, module: str) -> bool:
    text = read_text(on_node(f"/etc/pam.d/{name}"), "PAM's common stack")
    return any(module in line.partition("#")[0] for line in text.splitlines())


def _enable_in_pam(section: Mapping[str, Any]) -> None:
    profiles = ["sss", *(["hpctools-homes"] if _makes_homes(section) else [])]
    must(["pam-auth-update", "--enable", *profiles], limit=60, env={"DEBIAN_FRONTEND": "noninteractive"})
    missing = _missing_in_pam(section)
    if missing:
        raise Failure(
            f"PAM has no {', '.join(missing)}: somebody has edited /etc/pam.d/common-*, and pam-auth-update "
            "leaves them alone then; run `pam-auth-update --force` or add the lines",
            hopeless=True,
        )


def _ask(section: Mapping[str, Any]) -> None:
    """Say whether the directory answers; a node without it is configured all the same."""
    for group in section.get("login_groups", [])[:1]:
        if call(["getent", "-s", "sss", "group", str(group)], limit=15).code == 0:
            print(f"the directory answers: it has the group {group!r}")
        else:
            print(f"warning: the directory does not answer, or has no group {group!r}: nobody new can log in")
