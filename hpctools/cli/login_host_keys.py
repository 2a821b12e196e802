"""`hpctools login host-keys`: the keys that all login nodes share, and their safe change."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import click

from hpctools.cli.login_text import table
from hpctools.cli.output import show
from hpctools.errors import UsageError
from hpctools.login import read_by_sshd
from hpctools.login.host_certificates import Certificate
from hpctools.login.host_keys import Key, KeyFolder

_SOON_DAYS = 30
_SSH = Path("/etc/ssh")
_FOLDER = click.argument("folder", type=click.Path(path_type=Path))
_NAMES = click.option(
    "--name", "names", multiple=True, required=True, help="What people call the login nodes."
)


@click.group("host-keys")
def host_keys() -> None:
    """Host keys that all login nodes share, changed without anybody being warned.

    \b
    Examples, FOLDER being lifecycle.ssh_keys.host_keys/GROUP of the site file:
      hpctools login host-keys show FOLDER
      hpctools login host-keys rotate FOLDER --begin        then on all nodes, which have old and next:
      hpctools login host-keys install FOLDER
      hpctools login host-keys rotate FOLDER --finish       weeks later; then install again on all
      hpctools login host-keys rotate FOLDER --retire       the old keys go; then install once more
      hpctools login host-keys authority AUTHORITY          certificates instead: then
      hpctools login host-keys sign AUTHORITY FOLDER/ssh_host_ed25519_key.pub --name login.uni.example
      hpctools login host-keys known-hosts AUTHORITY --name login.uni.example
    """


@host_keys.command("show")
@_FOLDER
@click.option(
    "--check", is_flag=True, help=f"Exit with 1 when a certificate ends within {_SOON_DAYS} days: for cron."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show_(folder: Path, check: bool, as_json: bool) -> None:
    """Keys and authorities with their fingerprints, when certificates end, and which nodes have what.

    \b
    Example:
      hpctools login host-keys show /shared/hostkeys/login
    """
    kept = KeyFolder(folder)
    kept.check()
    _show(kept, as_json)
    now = datetime.now()  # ssh-keygen tells local time
    ending = [each for each in kept.certificates() if _ends_soon(each, now)]
    for each in ending if check else ():
        click.echo(f"{each.name} ends {each.until}: sign anew, then install on all login nodes", err=True)
    if check and ending:
        raise SystemExit(1)


@host_keys.command()
@_FOLDER
@click.option("--begin", "step", flag_value="begin", help="Make the next keys; old ones stay.")
@click.option(
    "--finish", "step", flag_value="finish", help="Put the next keys in place; old ones are still proved."
)
@click.option("--retire", "step", flag_value="retire", help="Prove the old keys no longer.")
@click.option(
    "--node", "nodes", multiple=True, help="A node that must have said so, though it never said anything."
)
@click.option(
    "--force",
    is_flag=True,
    help="Go on though a node did not say that it has the keys, or one has no certificate.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def rotate(folder: Path, step: str | None, nodes: tuple[str, ...], force: bool, as_json: bool) -> None:
    """Change the host keys in three steps; after each, `install` on all login nodes.

    Between the first two leave people the time to log in once: their ssh learns the next keys
    (UpdateHostKeys). The last may come at once when all nodes have installed. Each of these two is refused
    while a node has not said that it has the keys of the step before, as `install` and lifecycle scripts do.

    \b
    Examples:
      hpctools login host-keys rotate /shared/hostkeys/login --begin
      hpctools login host-keys rotate /shared/hostkeys/login --finish
      hpctools login host-keys rotate /shared/hostkeys/login --retire
    """
    if step is None:
        raise UsageError("which step?", "give --begin, --finish or --retire")
    kept = KeyFolder(folder)
    if step == "begin":
        kept.begin_rotation()
    elif step == "retire":
        kept.retire(nodes, force=force)
    else:
        kept.finish_rotation(nodes, force=force)
    _show(kept, as_json)


@host_keys.command()
@_FOLDER
@click.option(
    "--next", "following", is_flag=True, help="The one that follows: known beside the old one first."
)
@click.option("--finish", is_flag=True, help="Put the next one in place of the old one, kept as ca.old.")
def authority(folder: Path, following: bool, finish: bool) -> None:
    """Make an authority that signs host keys; its public key is printed, the private one stays in FOLDER.

    FOLDER is made where it is not there; keep it off the login nodes.

    Finish its change when people know the next one and all nodes show certificates of it.

    \b
    Examples:
      hpctools login host-keys authority /root/authority
      hpctools login host-keys authority /root/authority --next
      hpctools login host-keys authority /root/authority --finish
    """
    if following and finish:
        raise UsageError("which step?", "give --next or --finish")
    kept = KeyFolder(folder)
    public = kept.finish_authority() if finish else kept.make_authority(following=following)
    show(public + "\n")


@host_keys.command()
@_FOLDER
@click.argument("public", type=click.Path(path_type=Path))
@_NAMES
@click.option("--valid", default="+52w", show_default=True, help="How long: +52w, +30d.")
@click.option("--next", "following", is_flag=True, help="By the next authority, once people know it.")
def sign(folder: Path, public: Path, names: tuple[str, ...], valid: str, following: bool) -> None:
    """Sign a host key (its .pub); the certificate lies beside it, from where `install` takes it.

    \b
    Example:
      hpctools login host-keys sign /root/authority ssh_host_ed25519_key.pub --name login.uni.example
    """
    show(f"{KeyFolder(folder).sign(public, names, valid, following=following)}\n")


@host_keys.command()
@_FOLDER
@click.option("--to", "target", type=click.Path(path_type=Path), default=_SSH, show_default=True)
@click.option("--reloaded", is_flag=True, help="You have reloaded sshd since the keys came: note that down.")
def install(folder: Path, target: Path, reloaded: bool) -> None:
    """On a login node: copy the keys to where sshd has its own, and have sshd read them (systemctl reload).

    The node is noted down in FOLDER as one that has these keys when sshd was reloaded. With --to another
    place, and where systemctl does not reload sshd, do so yourself; then the same again with --reloaded.

    \b
    Example:
      hpctools login host-keys install /shared/hostkeys/login
    """

    def read_again(changed: bool) -> bool:
        if not reloaded and target.absolute() == _SSH:
            read_by_sshd.reload()
            return True
        if changed or not reloaded:
            click.echo("this node is waited for: reload its sshd, then the same with --reloaded", err=True)
        return reloaded and not changed

    show(KeyFolder(folder).install(target.absolute(), reload=read_again))


@host_keys.command("known-hosts")
@_FOLDER
@_NAMES
@click.option("--stolen", is_flag=True, help="Revoke the authority before this one, too (ca.old).")
def known_hosts(folder: Path, names: tuple[str, ...], stolen: bool) -> None:
    """The lines for people's known_hosts, or /etc/ssh/ssh_known_hosts.

    \b
    Example:
      hpctools login host-keys known-hosts /root/authority --name login.uni.example
    """
    show(KeyFolder(folder).known_hosts(names, stolen=stolen))


def _ends_soon(certificate: Certificate, now: datetime) -> bool:
    left = certificate.days_left(now)
    return left is not None and left < _SOON_DAYS


def _show(kept: KeyFolder, as_json: bool) -> None:
    keys, certificates, nodes = kept.present(), kept.certificates(), kept.installed()
    if as_json:
        told = [{"name": each.name, "key": each.key, "until": _until(each)} for each in certificates]
        having = {node: sorted(prints) for node, prints in nodes.items()}
        show({"keys": [vars(key) for key in keys], "certificates": told, "nodes": having})
        return
    rows = [(key.role, key.name, key.fingerprint) for key in keys]
    rows += [(f"certificate until {_until(each) or 'ever'}", each.name, each.key) for each in certificates]
    rows += [(_standing(kept, keys, node), node, "") for node in nodes]
    show(table(("ROLE", "KEY", "FINGERPRINT"), rows))


def _standing(kept: KeyFolder, keys: Sequence[Key], node: str) -> str:
    """Whether a node has all keys; after `--finish` it also has to show the new ones."""
    prints = {
        role: {key.fingerprint for key in keys if key.role == role} for role in ("now", "next", "before")
    }
    fine = prints["now"] | prints["next"] | prints["before"] <= kept.installed()[node]
    if prints["before"]:
        fine = fine and prints["now"] <= kept.showing()[node]
    return "node" if fine else "node, has others"


def _until(certificate: Certificate) -> str | None:
    return None if certificate.until is None else certificate.until.isoformat(sep=" ", timespec="minutes")
