"""The Slurm releases that a sandbox can run: the machine's own packages, and folders with another Debian.

A folder holds a whole Debian of the suite that carries the release. `build` makes it, once; a sandbox lays
a layer in memory over it and never writes to it.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hpctools.errors import CommandError, SandboxError
from hpctools.sandbox import record
from hpctools.slurm import run
from hpctools.slurm.versions import Release, parse_release, spell_release

# The Debian suite whose packages are of the release.
SUITES = {"22.05": "bookworm", "24.11": "trixie", "26.05": "sid"}
PACKAGES = (
    *("slurm-wlm", "slurmdbd", "slurm-wlm-mysql-plugin", "libslurm-dev", "munge"),
    *("mariadb-server", "mariadb-client", "openssh-server", "openssh-client"),
    # python3 for the libraries that the machine's interpreter, which is shown inside, needs too.
    *("python3", "procps", "iproute2", "man-db", "ca-certificates"),
)
VARIABLE = "HPCTOOLS_RELEASES"
MARK = ".hpctools-release"
MAKING = ".making-"
PROGRAMS = "/usr/sbin:/usr/bin:/sbin:/bin"
ASK_SECONDS = 20.0
BUILD_SECONDS = 1500.0
# All that debootstrap starts ends with us, and what it mounts is seen by nobody else.
_DIE_WITH_US = ("setpriv", "--pdeathsig=KILL", "--")
APART = (*_DIE_WITH_US, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--")


@dataclass(frozen=True)
class Installation:
    """An installed Slurm.

    Attributes:
        release: as its slurmctld says, for example `(24, 11, 5)`.
        root: the root folder that it is installed under; `/` is the machine's own.
    """

    release: Release
    root: Path = Path("/")

    @property
    def name(self) -> str:
        """The release without its last number: `24.11`."""
        return spell_release(self.release[:2])


def shelf() -> Path:
    """Where the folders are: $HPCTOOLS_RELEASES, else `.dev/releases` beside this code."""
    stated = os.environ.get(VARIABLE)
    return Path(stated).absolute() if stated else Path(__file__).resolve().parents[2] / ".dev" / "releases"


def own() -> Installation:
    """The machine's own packages.

    Raises:
        CommandError: slurmctld is not installed.
    """
    search = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return Installation(_ask(shutil.which("slurmctld", path=search) or "slurmctld"))


def find(name: str) -> Installation:
    """An installation of a release.

    Args:
        name: `24.11` for example; the machine's own when empty, or when it is of that release.

    Raises:
        SandboxError: there is none.
        CommandError: slurmctld is not installed.
    """
    mine = own()
    if name in ("", mine.name, spell_release(mine.release)):
        return mine
    if name not in SUITES:
        raise SandboxError(
            f"no installation of Slurm {name!r} is known", f"there can be: {', '.join(sorted(SUITES))}"
        )
    why = lack(name)
    if why:
        raise SandboxError(f"Slurm {name} is not there: {why}", f"make it: hpctools sandbox releases {name}")
    return Installation(parse_release(_mark(shelf() / name)["slurm"]), shelf() / name)


def lack(name: str) -> str:
    """Why there is no folder of a release; empty when there is one."""
    folder = shelf() / name
    if not (folder / MARK).exists():
        noted = _note(name)
        return noted.read_text().strip() if noted.exists() else f"{folder} has not been made"
    return "" if _mark(folder)["recipe"] == _recipe(name) else f"{folder} was made by another recipe"


def build(name: str) -> bool:
    """Make the folder of a release where it is missing or was made by another recipe.

    It appears as a whole or not at all. Takes two minutes and a Debian mirror: the one that apt uses.

    Returns:
        whether there was anything to do.

    Raises:
        SandboxError: it cannot be made; the reason is noted, and `lack` tells it.
    """
    with record.locked(shelf() / f"{name}.lock"):
        if not lack(name):
            return False
        _note(name).unlink(missing_ok=True)
        try:
            _make(name)
        except (CommandError, SandboxError) as error:
            _note(name).write_text(f"{error.message}\n")
            raise SandboxError(f"Slurm {name} cannot be made: {error.message}", error.remedy) from None
        return True


def _make(name: str) -> None:
    _remove(shelf().glob(f"{MAKING}{name}-*"))
    if not shutil.which("debootstrap"):
        raise SandboxError("debootstrap is not installed", "apt-get install debootstrap")
    making = shelf() / f"{MAKING}{name}-{secrets.token_hex(4)}"
    try:
        _bootstrap(SUITES[name], making)
        release = _ask("chroot", str(making), "/usr/sbin/slurmctld")
        if spell_release(release[:2]) != name:
            raise SandboxError(f"Debian's {SUITES[name]} carries Slurm {spell_release(release)}, not {name}")
        told = {"slurm": spell_release(release), "suite": SUITES[name], "recipe": _recipe(name)}
        (making / MARK).write_text(json.dumps(told) + "\n")
        _remove([shelf() / name])
        making.rename(shelf() / name)
    finally:
        _remove([making])


def _bootstrap(suite: str, folder: Path) -> None:
    argv = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", suite, str(folder)]
    settings = {"PATH": PROGRAMS, "LANG": "C.UTF-8", **_proxies()}
    run.run([*APART, *argv, *_mirror()], timeout=BUILD_SECONDS, env=settings)


def _mirror() -> list[str]:
    """The mirror that apt takes Debian from; none when apt does not say: debootstrap then takes its own."""
    query = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Label: Debian", "Created-By: Packages"]
    found = run.run(query, timeout=ASK_SECONDS, check=False).stdout.split()
    return found[:1]


def _proxies() -> dict[str, str]:
    """The proxy that apt goes through, else the environment's."""
    told = run.run(["apt-config", "shell", "proxy", "Acquire::http::Proxy"], timeout=ASK_SECONDS, check=False)
    stated = told.stdout.strip().removeprefix("proxy=").strip("'")
    proxy = stated or os.environ.get("http_proxy", "")
    return {"http_proxy": proxy} if proxy else {}


def _recipe(name: str) -> str:
    """What a folder depends on, as one checksum."""
    return hashlib.sha256(" ".join((SUITES[name], "minbase", *PACKAGES)).encode()).hexdigest()


def _mark(folder: Path) -> dict[str, str]:
    try:
        told = json.loads((folder / MARK).read_text())
        return {key: str(told[key]) for key in ("slurm", "suite", "recipe")}
    except (ValueError, KeyError, TypeError):
        raise SandboxError(f"{folder / MARK} cannot be read", f"remove {folder}") from None


def _note(name: str) -> Path:
    return shelf() / f"{name}.failed"


def _remove(folders: Iterable[Path]) -> None:
    for folder in folders:
        if folder.is_dir():
            shutil.rmtree(folder)


def _ask(*slurmctld: str) -> Release:
    done = run.run([*slurmctld, "-V"], timeout=ASK_SECONDS)
    return parse_release(done.stdout)
