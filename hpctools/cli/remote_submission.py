"""`hp-submit --cluster` and `hp-submit trust`, on a laptop."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpctools.cli.ending import complain
from hpctools.cli.output import show
from hpctools.cli.remote_cluster import find_cluster, road, session, tell, user_of
from hpctools.errors import RemoteError, UnreachableError, UsageError
from hpctools.remote import clusters, diary
from hpctools.remote.clusters import Cluster
from hpctools.remote.meter import Meter
from hpctools.remote.names import host_and_port, is_host, shown
from hpctools.remote.shipping import Shipment, Wish, pack
from hpctools.submit.intent import read_invocation

if TYPE_CHECKING:
    from hpctools.remote.session import Session
    from hpctools.remote.trust import Offer

TRUST_OPTIONS = ("--cluster", "--fingerprint", "--from")
_TRUST_USAGE = "hp-submit trust CLUSTER|HOST[:PORT] [--from FILE] [--fingerprint SHA256:...]"
_TRUST_HELP = f"""\
usage: {_TRUST_USAGE}

Show fingerprints of a cluster's login nodes, or of one host, and remember those that you agree to. Compare
them with what the site tells: nothing is remembered unseen.

Examples:
  hp-submit trust uni
  hp-submit trust uni --fingerprint SHA256:3fYvO0r1hVvB...    agree to this one without being asked
  hp-submit trust gate.uni.example:2222    a jump host, at the port that ProxyJump names
  hp-submit trust uni --from hostkeys.txt    keys that come next, too: the site's list (a known_hosts file)
"""


def submit_remotely(wish: Wish, cwd: Path, standard_input: Callable[[], bytes | None]) -> int:
    """Send a submission to its cluster; return the exit code.

    Args:
        cwd: the folder that files are named from.
        standard_input: reads what comes from there.
    """
    cluster = find_cluster(wish.cluster)
    flags = read_invocation(wish.words).flags
    shipment = pack(wish, cluster.python, cwd, standard_input, tell("hp-submit"))
    with session(cluster, "hp-submit") as open_session:
        if shipment.request["trial"]:
            return _show_trial(_sent(open_session, shipment, wish))
        before = diary.earlier(os.environ, shipment.id) if wish.submission else diary.NEVER
        note = partial(diary.note, os.environ, shipment.id, cluster.name, secrets.token_hex(8))
        note()
        result = _sent(open_session, shipment, wish, note, before)
        _tell_surely(result, "json" in flags, _options(wish))
        if not wish.follow:
            return 0
        from hpctools.cli.hp_logs import follow_to_end
        from hpctools.remote.following import Wanted

        return follow_to_end(open_session, Wanted(shipment.id, follow=True, begun=True), "hp-submit")


def _sent(
    open_session: Session,
    shipment: Shipment,
    wish: Wish,
    note: Callable[..., None] = lambda **_: None,
    earlier: diary.Earlier = diary.NEVER,
) -> Mapping[str, Any]:
    from hpctools.remote.sending import send

    meter = Meter(sys.stderr, "hp-submit")
    open_session.tell = meter.aside(open_session.tell)
    try:
        return send(open_session, shipment, meter, note, earlier)
    except KeyboardInterrupt:
        if not shipment.request["trial"]:
            tell("hp-submit")(
                f"interrupted; it may have been submitted: hp-status --cluster {wish.cluster} {shipment.id}"
            )
        raise


def _options(wish: Wish) -> set[str]:
    return {option.name for option in read_invocation(wish.words).line.options}


def _show_trial(result: Mapping[str, Any]) -> int:
    sys.stderr.write(_safe(result["stderr"]))
    show(_safe(result["stdout"]))
    return int(result["code"])


def _safe(text: object) -> str:
    """What a terminal may be given; a script's tabs stay."""
    lines = (line.split("\t") for line in str(text).splitlines())
    return "".join("\t".join(map(shown, parts)) + "\n" for parts in lines)


def _tell_surely(result: Mapping[str, Any], as_json: bool, options: set[str]) -> None:
    """Tell it on standard error where standard output takes nothing: who hears of no job submits another."""
    try:
        _tell(result, as_json, quiet="quiet" in options, parsable="parsable" in options)
        sys.stdout.flush()
    except OSError:
        job, name = shown(str(result["job_id"])), shown(str(result["id"]))
        complain(f"hp-submit: job {job} was submitted, as {name}; that cannot be written to standard output")
        raise


def _tell(result: Mapping[str, Any], as_json: bool, *, quiet: bool, parsable: bool) -> None:
    sys.stderr.write(_safe(result["stderr"]))
    job, run, name = (shown(str(result[key])) for key in ("job_id", "run", "id"))
    if as_json:
        keys = ("id", "job_id", "run", "cluster", "folder")
        show({"elastic": bool(run), **{key: result[key] for key in keys}})
    elif parsable:
        print(job)
    elif not quiet:
        print(f"Submitted batch job {job}" + (" (it was there already)" if result["before"] else ""))
        print(f"Submission {name}, in {shown(str(result['folder']))}; see: hp-logs {name}")


def trust(words: Sequence[str], ask: Callable[[str], str] = input) -> int:
    """Show fingerprints of a cluster's login nodes, or a host's; remember those that somebody agrees to."""
    if {"-h", "--help"} & set(words):
        show(_TRUST_HELP)
        return 0
    name, stated, listed = _trust_words(words)
    cluster, port = _meant(name)
    offers, failures = _told(cluster, port, listed) if listed else _looked_at(cluster, port)
    from hpctools.remote import trust as trusting

    agreed = trusting.agree(offers, lambda group: _agrees(group, stated, ask))
    for offer in agreed:
        print(f"{offer.settings.name}: remembered in {trusting.remember(offer)}")
    return 1 if failures or len(agreed) < len(offers) else 0


def _meant(name: str) -> tuple[Cluster, int]:
    """A cluster and 0, or one host with the port that is stated with it."""
    if name not in clusters.load(clusters.place(os.environ)).known:
        host, port = host_and_port(name)
        if port and is_host(host):
            return Cluster(host, (host,)), port
    return find_cluster(name), 0


def _told(cluster: Cluster, port: int, listed: str) -> tuple[list[Offer], int]:
    """What the site's list says of the cluster's login nodes, and how many it says nothing of."""
    from hpctools.remote import known_hosts
    from hpctools.remote import trust as trusting
    from hpctools.remote.ssh_config import settings

    try:
        lines = known_hosts.read([(listed, Path(listed).read_text(encoding="utf-8", errors="replace"))])
    except OSError as error:
        raise UsageError(f"cannot read {listed}: {error.strerror}", _TRUST_USAGE) from None
    offers, failures = [], 0
    for node in cluster.login_nodes:
        found = settings(node, cluster.user, road().config).at(port)
        new = trusting.told(found, lines)
        offers += new
        if not new and trusting.is_told(found, lines):
            print(f"{found.name}: all of {listed} is known already")
        elif not new:
            tell("hp-submit")(f"{listed} says nothing of {found.name}")
            failures += 1
    return offers, failures


def _looked_at(cluster: Cluster, port: int) -> tuple[list[Offer], int]:
    """What the login nodes show that is not known, and how many could not be looked at."""
    from hpctools.remote import trust as trusting
    from hpctools.remote.placement import is_address, login_nodes
    from hpctools.remote.ssh_config import settings

    way = road()
    offers: list[Offer] = []
    failures = 0
    # Those, too, that only the site's API names: submissions may go there. But for a bare address, which may
    # be another machine's later, and of which no certificate speaks.
    user = lambda: user_of(cluster, way.config)  # noqa: E731
    named = () if port else login_nodes(cluster, user, os.environ, tell("hp-submit"))
    new = [each for each in named if each not in cluster.login_nodes and not is_address(each)]
    for node in (*cluster.login_nodes, *new):  # in the list's order, which people can compare
        try:
            found = settings(node, cluster.user, way.config).at(port)
            offer = trusting.look(found, way)
        except (UnreachableError, RemoteError) as error:
            tell("hp-submit")(str(error))
            failures += node in cluster.login_nodes or not isinstance(error, UnreachableError)
            continue
        if offer is None:
            print(f"{found.name} is known already")
        else:
            offers.append(offer)
    return offers, failures


def _trust_words(words: Sequence[str]) -> tuple[str, tuple[str, ...], str]:
    name, stated, listed = "", [], ""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--fingerprint="):
            stated.append(word.partition("=")[2])
        elif word.startswith("--from="):
            listed = word.partition("=")[2]
        elif word in TRUST_OPTIONS and rest:
            value = rest.pop(0)
            if word == "--cluster":
                name = value
            elif word == "--from":
                listed = value
            else:
                stated.append(value)
        elif word.startswith("-") or name:
            raise UsageError(f"trust does not know {word!r}", _TRUST_USAGE)
        else:
            name = word
    return name, tuple(stated), listed


def _agrees(group: Sequence[Offer], stated: Sequence[str], ask: Callable[[str], str]) -> bool:
    first = group[0]
    hosts = ", ".join(offer.settings.name for offer in group)
    what = "the authority that signed the host key of" if first.marker else "the host key of"
    print(f"{what} {hosts}:\n  {first.kind} {first.fingerprint}")
    for offer in (each for each in group if each.why):
        print(f"  the certificate of {offer.settings.name} does not hold: {offer.why}")
    if stated:
        if first.fingerprint in stated:
            return True
        tell("hp-submit")(f"that is not {' or '.join(stated)}: not remembered")
        return False
    if sys.stdin is None or not sys.stdin.isatty():
        tell("hp-submit")("nobody is there to compare it; give --fingerprint SHA256:... as the site tells it")
        return False
    try:
        return ask("Is that what the site says? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:  # Ctrl-D
        print()
        return False
