from collections.abc import Callable, Mapping

import pytest
from hypothesis import assume, given

from pam import roles
from pam.rewrite import END, Additions, Rewritten, rewrite, strip
from pam.stack import Entry, StackError, flatten, landing, load
from tests.pam.stacks import DEBIAN, REDHAT, SETTINGS, files, reader

PLACE = roles.Place("sshd", "/lib/hp", "/lib/security/pam_slurm_adopt.so")
COMPUTE = roles.additions("compute", SETTINGS, PLACE)
TINY = Additions(
    "test", ("account\t[success=ignore default=die]\tpam_ours.so",), ("session\t[default=1]\tpam_ours.so",)
)


def put(stack: Mapping[str, str], additions: Additions = TINY, service: str = "svc") -> Rewritten:
    return rewrite(service, reader(stack), additions)


def with_ours(stack: Mapping[str, str], done: Rewritten, service: str = "svc") -> dict[str, str]:
    return {**stack, **done.copies, service: done.text}


def flat(stack: Mapping[str, str], kind: str, service: str = "svc") -> tuple[Entry, ...]:
    return flatten(load(service, reader(stack)), service, kind)


def foreign(entries: tuple[Entry, ...]) -> list[int]:
    return [i for i, entry in enumerate(entries) if entry.rule.module != "pam_ours.so"]


def words(entry: Entry) -> tuple[object, ...]:
    """What a rule says but for its jump counts and the names of files that it includes."""
    rule = entry.rule.with_jumps(dict.fromkeys(entry.rule.jumps, 0))
    return rule.type, rule.control, "" if rule.includes else rule.target, rule.rest, rule.dash, entry.level


@given(files())
def test_every_foreign_rule_stays_and_jumps_to_the_same_rule(stack: dict[str, str]) -> None:
    """The same rules in the same order, and each jump lands on the rule that it landed on or its guard."""
    try:
        done = put(stack)
    except StackError as error:
        assume("included twice" not in str(error))
        assume("leaves the stack" not in str(error))
        raise
    for kind in ("account", "auth", "password", "session"):
        old, new = flat(stack, kind), flat(with_ours(stack, done), kind)
        places = foreign(new)
        assert [words(entry) for entry in old] == [words(new[i]) for i in places]
        for at, entry in enumerate(old):
            assert [lands(old, at, n) for n in entry.rule.jumps] == [
                lands_on_foreign(new, places, places[at], n) for n in new[places[at]].rule.jumps
            ]


def lands(entries: tuple[Entry, ...], at: int, count: int) -> int:
    return landing(tuple(entry.level for entry in entries), at, count)


def lands_on_foreign(entries: tuple[Entry, ...], places: list[int], at: int, count: int) -> int:
    """Counted in foreign rules; a guard counts for the rule behind it."""
    target = lands(entries, at, count)
    return sum(place < target for place in places)


@given(files())
def test_twice_is_once_and_taking_out_gives_back_every_byte(stack: dict[str, str]) -> None:
    try:
        done = put(stack)
    except StackError:
        assume(False)
    again = put(with_ours(stack, done))
    assert again == done
    assert strip(done.text, "svc") == stack["svc"]
    other = put(with_ours(stack, done), Additions("another", ("auth\trequired\tpam_ours.so",)))
    assert strip(other.text, "svc") == stack["svc"]
    assert other.copies == {}


@given(files())
def test_before_each_module_that_moves_sessions_stands_a_guard(stack: dict[str, str]) -> None:
    try:
        done = put(stack)
    except StackError:
        assume(False)
    session = flat(with_ours(stack, done), "session")
    for before, entry in zip((None, *session), session, strict=False):
        moves = entry.rule.module in ("pam_systemd.so", "pam_cgfs.so")
        assert (before is not None and before.rule.module == "pam_ours.so") is moves
    account = flat(with_ours(stack, done), "account")
    assert account[0].rule.module == "pam_ours.so"


def test_debian() -> None:
    """The jump counts of the machine's own files stay; sshd alone gets a copy of common-session."""
    done = put(DEBIAN, COMPUTE, "sshd")
    (name,) = done.copies
    assert name.startswith("hpctools-sshd-common-session-")
    assert f'# hpctools: was "@include common-session\\n"\n@include {name}\n' in done.text
    session = [entry.rule.module for entry in flat(with_ours(DEBIAN, done, "sshd"), "session", "sshd")]
    guard = ["pam_succeed_if.so"] * 4 + ["pam_permit.so"]
    assert session[:5] == ["pam_succeed_if.so"] * 4 + ["pam_exec.so"]
    assert session[session.index("pam_systemd.so") - 5 : session.index("pam_systemd.so")] == guard
    assert strip(done.text, "sshd") == DEBIAN["sshd"]


def test_red_hat() -> None:
    """Only what is included for sessions goes to the copy: `auth`, `account` follow authselect as before."""
    done = put(REDHAT, COMPUTE, "sshd")
    (name,) = done.copies
    assert f"session\tinclude\t{name}\n" in done.text
    assert "account    include      password-auth\n" in done.text
    assert "session    include      postlogin\n" in done.text
    account = [entry.rule.module for entry in flat(with_ours(REDHAT, done, "sshd"), "account", "sshd")]
    assert account.index("pam_slurm_adopt.so") < account.index("pam_localuser.so")


def test_services_that_include_one_another() -> None:
    """su-l includes su: whichever is rewritten first, each comes out as if the other had not been."""
    guard = roles.additions("guard", SETTINGS, PLACE)
    stack = {
        "su": "auth required pam_x.so\n@include common\n",
        "su-l": "session optional pam_keyinit.so\n@include su\n",
        "common": "session optional pam_systemd.so\n",
    }
    alone = put(stack, guard, "su-l")
    after = put(with_ours(stack, put(stack, guard, "su"), "su"), guard, "su-l")
    assert after == alone
    session = [entry.rule.module for entry in flat(with_ours(stack, after, "su-l"), "session", "su-l")]
    assert session == ["pam_keyinit.so", *["pam_succeed_if.so"] * 4, "pam_permit.so", "pam_systemd.so"]
    assert strip(alone.text, "su-l") == stack["su-l"]


def test_a_jump_over_a_guard_counts_it() -> None:
    text = """\
session [success=2 default=ignore] pam_a.so
session optional pam_systemd.so
session required pam_b.so
session required pam_c.so
"""
    done = put({"svc": text})
    assert "session\t[success=3 default=ignore]\tpam_a.so\n" in done.text
    assert '# hpctools: was "session [success=2 default=ignore] pam_a.so\\n"\n' in done.text
    assert strip(done.text, "svc") == text


def test_a_jump_from_one_file_into_another() -> None:
    stack = {
        "svc": "session [success=3 default=ignore] pam_a.so\n@include inc\nsession required pam_d.so\n",
        "inc": "session optional pam_systemd.so\nsession required pam_b.so\n",
    }
    done = put(stack)
    assert "[success=4 default=ignore]\tpam_a.so" in done.text


@pytest.mark.parametrize(
    ("stack", "said"),
    [
        ({"svc": "# nothing\n"}, "svc has no rules"),
        (
            {"svc": "session [success=1] pam_a.so\n"},
            "svc:1: a jump leaves the stack: PAM refuses logins for it",
        ),
        (
            {
                "svc": "@include inc\nsession optional pam_systemd.so\n@include inc\n"
                + "session required pam_b.so\n" * 2,
                "inc": "session [success=2 default=ignore] pam_a.so\n",
            },
            "inc:1: is included twice, and its jumps would differ",
        ),
    ],
)
def test_what_cannot_be_rewritten_is_refused(stack: dict[str, str], said: str) -> None:
    with pytest.raises(StackError, match=said):
        put(stack)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace(END, "# gone"),
        lambda text: text.replace("# hpctools: begin (test)\naccount", "account", 1),
        lambda text: text.replace('# hpctools: was "', "# hpctools: was '", 1),
        lambda text: text.replace("@include hpctools", "# a note\n@include hpctools", 1),
    ],
)
def test_edited_marks_are_noticed(damage: Callable[[str], str]) -> None:
    done = put({"svc": "@include inc\n", "inc": "session optional pam_systemd.so\n"})
    damaged = damage(done.text)
    assert damaged != done.text
    with pytest.raises(StackError, match="svc"):
        strip(damaged, "svc")


def test_lines_that_libpam_cannot_read_in_one_go_are_not_written() -> None:
    """Of a longer comment, too, libpam before 1.6 takes the tail for a rule, and refuses everybody."""
    long = " ".join(["word"] * 250)
    with pytest.raises(StackError, match="too long"):
        put(
            {
                "svc": f"session [success=1 default=ignore] pam_a.so {long}\n"
                + "session optional pam_systemd.so\n" * 2
            }
        )
