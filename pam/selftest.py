"""The self-test: a new stack is tried under a throwaway service name before anybody depends on it.

Whatever the old stack admits of administrators the new one must admit. On a compute node somebody without a
job must be refused, in the account phase and in the session phase. The old stack is asked the same, so that
what is refused for reasons of others (/etc/nologin, an expired account) is not held against the new one.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from pam import files, rewrite, trial
from pam.order import Order, Wanted, compose
from pam.roles import REFUSE
from pam.settings import ROOT, Settings

TRIAL = "hpctools-trial-"
CLOSING = ("compute", "closed")  # the roles that keep people out
STRANGERS = ("nobody", "daemon", "bin", "games", "man", "mail", "news")


class SelfTestError(Exception):
    """The new stack does not do what it must; the message has each failure on a line."""


@dataclass
class Report:
    """What was tried.

    Attributes:
        lines: each trial in words.
        failures: those that went wrong.
    """

    lines: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def say(self, fine: bool, line: str) -> None:
        """Add a trial."""
        self.lines.append(line)
        if not fine:
            self.failures.append(line)


def known(user: str) -> bool:
    """Whether there is such a Unix account."""
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def administrators(settings: Settings) -> tuple[list[str], list[str]]:
    """Accounts to try as administrators: root, those named, one of each group; and what cannot be tried."""
    people, notes = [ROOT], []
    for user in settings.users:
        people += [user] * known(user)
        if not known(user):
            notes.append(f"administrator {user} has no account on this node (yet)")
    for group in settings.groups:
        with contextlib.suppress(KeyError):
            people += [next(iter(filter(known, grp.getgrnam(group).gr_mem)))] if _members(group) else []
    return list(dict.fromkeys(people)), notes


def _members(group: str) -> list[str]:
    return [name for name in grp.getgrnam(group).gr_mem if known(name)]


def is_administrator(user: str, settings: Settings) -> bool:
    """Whether the stack takes a user for an administrator."""
    entry = pwd.getpwnam(user)
    groups = {_group(gid) for gid in os.getgrouplist(user, entry.pw_gid)}
    return entry.pw_uid == 0 or user in settings.users or bool(groups & set(settings.groups))


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""


def run(order: Order, wanted: Wanted) -> Report:
    """Try a stack whose copies and programs are in place already; the service's own file is not touched."""
    report = Report()
    _try_invoker(order, report)
    if order.folder != trial.SERVICES:
        report.lines.append(f"not tried: libpam reads stacks in {trial.SERVICES} only, not in {order.folder}")
        return report
    if wanted.adopt:
        why = trial.loads(wanted.adopt)
        report.say(not why, f"{wanted.adopt}: {why or 'can be loaded'}")
    with _service(order, "new", wanted.text) as new, _service(order, "old", order.read(order.service)) as old:
        _try_administrators(order, new, old, report)
    foreign = rewrite.strip(order.read(order.service), order.service)
    with _service(order, "new", _unlimited(order, wanted)) as new, _service(order, "old", foreign) as old:
        _try_stranger(order, new, old, report)
    if order.role == "compute":
        _try_session(order, wanted, report)
    if wanted.additions.guard:
        _try_guard(order, wanted, report)
    return report


def _try_invoker(order: Order, report: Report) -> None:
    """A line of sudoers makes nobody an administrator here, and they would be out with their next login."""
    if order.role not in CLOSING or not known(order.invoker):
        return
    fine = is_administrator(order.invoker, order.settings)
    way_out = "name them in access.administrators of the site file, or say --without-me"
    words = "is an administrator" if fine else f"is no administrator and could not log in again: {way_out}"
    report.say(fine, f"{order.invoker}, who runs this by sudo, {words}")


def answers_to_administrators(order: Order) -> dict[str, trial.Answer]:
    """What the service itself, as it is now, says to each administrator."""
    people = administrators(order.settings)[0] if order.folder == trial.SERVICES else []
    return {user: trial.attempt(order.service, user, "account") for user in people}


def _try_administrators(order: Order, new: str, old: str, report: Report) -> None:
    people, notes = administrators(order.settings)
    report.lines += notes
    for user in people:
        answer = trial.attempt(new, user, "account")
        fine = answer.admitted or not trial.attempt(old, user, "account").admitted
        report.say(fine, f"administrator {user}: {answer.said}")


def _try_stranger(order: Order, new: str, old: str, report: Report) -> None:
    stranger = _stranger(order, old)
    if not stranger:
        report.lines.append(
            "no user without a job was tried: the stack as it was admits none of the system's accounts"
        )
        return
    answer = trial.attempt(new, stranger, "account")
    wanted = order.role in ("login", "guard")
    report.say(answer.admitted is wanted, f"{stranger}, who has no job and no session: {answer.said}")


def _unlimited(order: Order, wanted: Wanted) -> str:
    """The stack as it is where nothing is limited.

    A login node may be full or drained just now, its agent is often installed later, and a program of the
    site's own may know none of the system's accounts: what they say is theirs, and no fault of the stack.
    """
    if order.role != "login":
        return wanted.text
    free = replace(order.settings, sessions_per_user=0, sessions=0, session_hook="", agent_socket="")
    return compose(replace(order, settings=free)).text


def _stranger(order: Order, old: str) -> str:
    """No administrator, without a job, and admitted without our rules; empty when there is none."""
    fitting = (u for u in STRANGERS if known(u) and not is_administrator(u, order.settings))
    return next((u for u in fitting if trial.attempt(old, u, "account").admitted), "")


def _try_session(order: Order, wanted: Wanted, report: Report) -> None:
    """Our rules of the session phase alone: those of others make homes and start user managers."""
    rules = [rule for rule in wanted.additions.first if rule.startswith("session\t")]
    if not any(REFUSE in rule for rule in rules):
        return
    with _service(order, "session", "\n".join([*rules, "session\trequired\tpam_permit.so", ""])) as name:
        for user, admitted in ((ROOT, True), (next(filter(known, STRANGERS), ROOT), False)):
            answer = trial.attempt(name, user, "session")
            report.say(answer.admitted is admitted or not known(user), f"session of {user}: {answer.said}")


def _try_guard(order: Order, wanted: Wanted, report: Report) -> None:
    """Administrators come to what is guarded, as without us; others step over it. pam_deny stands for it."""
    end = ["session\trequisite\tpam_deny.so", "session\trequired\tpam_permit.so", ""]
    others = (user for user in STRANGERS if known(user) and not is_administrator(user, order.settings))
    tried = [*administrators(order.settings)[0], *[next(others, "")]]
    with _service(order, "guard", "\n".join([*wanted.additions.guard, *end])) as name:
        for user in filter(None, tried):
            skipped = trial.attempt(name, user, "session").admitted
            words = "stays in its job" if skipped else "is what it was"
            fine = skipped is not is_administrator(user, order.settings)
            report.say(fine, f"{order.service}, a session of {user} within a session: {words}")


@contextlib.contextmanager
def _service(order: Order, what: str, text: str) -> Iterator[str]:
    """A throwaway service; pam_slurm_adopt is told its name, since it does nothing for others."""
    name = f"{TRIAL}{order.service}-{what}"
    lines = [
        line.replace(f"service={order.service}", f"service={name}") if "pam_slurm_adopt" in line else line
        for line in text.split("\n")
    ]
    files.replace(order.folder / name, "\n".join(lines))
    try:
        yield name
    finally:
        files.discard(order.folder / name)
