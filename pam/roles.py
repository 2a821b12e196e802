"""The rules of each role. Pure.

Administrators are named in the stack itself, one condition a rule: there is no second file that could be
empty, missing or half-written while somebody logs in, and the stack is replaced by one rename. Their rules
come first and jump over all others, so that nothing of Slurm, Python or ours decides on them. On login nodes
with an agent a shell starts a program for them that tells it of the session, and waits for nothing
(docs/decisions/0226).

No rule of ours ever grants anything (`success=ignore`): it refuses (`die`), or leaves the decision to the
rules of others. Being first with `die`, it cannot be undone by a `sufficient` or `done` that stands further
down, as Red Hat's `account sufficient pam_localuser.so` and Debian's `new_authtok_reqd=done` would from
further up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pam.rewrite import Additions
from pam.settings import Settings

PROGRAMS = {
    "compute": ("adopted", "job-starting", "slurmd-runs"),
    "login": ("session-limit", "session_limit.py", "administrator-entered"),
    "closed": (),
    "guard": (),
}
ROLES = tuple(PROGRAMS)
REFUSE = "[success=ignore default=die]"
DENIED = 77  # the exit code by which the session limit refuses; every other failure of it lets in


@dataclass(frozen=True)
class Place:
    """Where the rules are to work.

    Attributes:
        service: the PAM service: sshd's program name.
        programs: the folder of the helper programs.
        adopt: path of pam_slurm_adopt.so; empty where it is not needed.
        node: Slurm's name of the node, where several slurmds share a host; else empty.
        sessions: the folder in which the session limit remembers who is in.
    """

    service: str
    programs: str
    adopt: str = ""
    node: str = ""
    sessions: str = "/run/hpctools-sessions"


def additions(role: str, settings: Settings, place: Place) -> Additions:
    """The rules of a role.

    `closed` is for controllers, and for a node that is not set up yet or cannot tell which role it has:
    administrators only. `guard` is for services by which people who are in already open another session, such
    as su: it stays in the job.
    """
    return _MAKERS[role](settings, place)


def administrators(kind: str, settings: Settings, over: int) -> list[str]:
    """Rules that let administrators jump over the `over` rules that follow."""
    tests = ["uid eq 0", *(f"user = {_word(name)}" for name in settings.users)]
    tests += [f"user ingroup {_word(name)}" for name in settings.groups]
    return [
        f"{kind}\t[success={len(tests) - 1 - i + over} default=ignore]\tpam_succeed_if.so quiet {test}"
        for i, test in enumerate(tests)
    ]


def _word(name: str) -> str:
    return f"[{name}]" if " " in name else name


def _behind(kind: str, settings: Settings, rules: list[str]) -> list[str]:
    return [*administrators(kind, settings, len(rules)), *(f"{kind}\t{rule}" for rule in rules)]


def _compute(settings: Settings, place: Place) -> Additions:
    run = f"pam_exec.so quiet stdout {place.programs}"
    pid_file = settings.slurmd_pid_file.replace("%n", place.node)
    options = "action_no_jobs=deny action_adopt_failure=deny action_generic_failure=deny"
    named = f" nodename={place.node}" if place.node else ""
    adopt = f"{place.adopt} {options} action_unknown={settings.several_jobs} service={place.service}{named}"
    account = [
        f"{REFUSE}\t{run}/slurmd-runs {pid_file} {place.node}".rstrip(),
        f"[success=2 default=ignore]\t{adopt}",
        f"{REFUSE}\t{run}/job-starting {settings.wait_for_job} {place.node}".rstrip(),
        f"{REFUSE}\t{adopt}",
    ]
    session = [f"{REFUSE}\t{run}/adopted"]
    return Additions(
        "compute node: administrators, and users while a job of theirs runs here",
        (*_behind("account", settings, account), *_behind("session", settings, session)),
        _guard_rules(settings),
    )


def _guard_rules(settings: Settings) -> tuple[str, ...]:
    return (*administrators("session", settings, 1), "session\t[default=1]\tpam_permit.so")


def _guard(settings: Settings, place: Place) -> Additions:
    del place
    return Additions("sessions within a session stay in its job", (), _guard_rules(settings))


def _login(settings: Settings, place: Place) -> Additions:
    program = f"{place.programs}/session-limit"
    words = [program, "$PPID", str(settings.sessions_per_user), str(settings.sessions), place.sessions]
    call = " ".join([*words, *_asked(settings)])
    # Also when the program is gone or does not start: a limit must not lock a whole login node.
    shell = f"pam_exec.so quiet stdout /bin/sh -c [{call} || test $? -ne {DENIED}]"
    told = _told_of_administrators(settings, place)
    first = administrators("account", settings, 1 + bool(told))
    rules = [f"{REFUSE}\t{shell}", *(["[default=1]\tpam_permit.so", told] if told else [])]
    return Additions(
        "login node: administrators, and users up to so many sessions",
        (*first, *(f"account\t{rule}" for rule in rules)),
    )


def _told_of_administrators(settings: Settings, place: Place) -> str:
    """The rule that has the agent hear of administrators, to which they jump; empty without an agent.

    The program is left to itself: nobody's login is to wait for Python, or for an agent. So it has no part in
    the shell's output either, for whose end pam_exec would wait.
    """
    if not settings.agent_socket:
        return ""
    call = f'{place.programs}/administrator-entered "$stat" {settings.agent_socket} &'
    return f"[default=ignore]\tpam_exec.so quiet /bin/sh -c [read -r stat </proc/$PPID/stat; {call}]"


def _asked(settings: Settings) -> list[str]:
    """Who is asked besides, and what becomes of a login when they do not answer."""
    if settings.agent_socket:
        return [f"unix:{settings.agent_socket}", settings.when_unreachable]
    return [settings.session_hook] if settings.session_hook else []


def _closed(settings: Settings, place: Place) -> Additions:
    del place
    text = "Only administrators may log in on this node."
    rules = [f"[default=ignore]\tpam_echo.so {text}", "requisite\tpam_deny.so"]
    return Additions("administrators only", tuple(_behind("account", settings, rules)))


_MAKERS: dict[str, Callable[[Settings, Place], Additions]] = {
    "compute": _compute,
    "login": _login,
    "closed": _closed,
    "guard": _guard,
}
