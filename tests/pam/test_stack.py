import pytest
from hypothesis import given
from hypothesis import strategies as st

from pam.stack import Rule, StackError, distance, flatten, landing, load, parse
from tests.pam.stacks import DEBIAN, REDHAT, files, reader


def rules(text: str) -> list[Rule | None]:
    return [piece.rule for piece in parse(text, "f") if piece.rule]


def test_a_rule_and_its_parts() -> None:
    text = "-session  [success=1 default=ignore]\t/lib/x/pam_a.so  a=[b c]   d # said\n"
    assert rules(text) == [
        Rule("session", "[success=1 default=ignore]", "/lib/x/pam_a.so", "a=[b c]   d", dash=True)
    ]
    assert rules(text)[0].module == "pam_a.so"
    assert rules(text)[0].jumps == (1,)


@pytest.mark.parametrize(
    "text",
    [
        "auth required \\\n  pam_a.so \\\n\n # between, it does not count\n x\n",
        "auth required pam_a.so x # a comment ends it \\\n",
        "AUTH required pam_a.so x",
    ],
)
def test_lines_that_go_on(text: str) -> None:
    (rule,) = rules(text)
    assert (rule.type, rule.control, rule.target, rule.rest.split()) == (
        "auth",
        "required",
        "pam_a.so",
        ["x"],
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\nauht required pam_a.so\n", "f:2: 'auht' is no type of rule"),
        ("auth required\n", "f:1: a rule of type auth needs a control and a module"),
        ("auth required pam_a.so\naccount required pam_b.so \\\n", "f:2: the last line ends in a backslash"),
        ("auth [success=1 pam_a.so\n", "f:1: a bracket is not closed"),
        ("@include\n", "'@include' is no type"),
    ],
)
def test_what_pam_would_take_for_a_failure(text: str, said: str) -> None:
    with pytest.raises(StackError, match=said.replace("[", r"\[")):
        parse(text, "f")


@given(files())
def test_the_pieces_are_the_file(stack: dict[str, str]) -> None:
    for name, text in stack.items():
        pieces = parse(text, name)
        assert "".join(piece.text for piece in pieces) == text
        for piece in pieces:
            assert text.split("\n")[piece.line - 1] == piece.text.split("\n")[0]


@given(st.text(alphabet="ab #\\\n\t[]=@", max_size=60))
def test_any_text_is_parsed_whole_or_refused(text: str) -> None:
    try:
        pieces = parse(text, "f")
    except StackError:
        return
    assert "".join(piece.text for piece in pieces) == text


def test_includes_are_flattened_as_libpam_does() -> None:
    found = flatten(load("sshd", reader(REDHAT)), "sshd", "auth")
    assert [(e.file, e.rule.module, e.level) for e in found] == [
        ("sshd", "password-auth", 0),
        ("password-auth", "pam_env.so", 1),
        ("password-auth", "pam_unix.so", 1),
        ("password-auth", "pam_deny.so", 1),
    ]
    account = [e.rule.module for e in flatten(load("sshd", reader(DEBIAN)), "sshd", "account")]
    assert account == ["pam_nologin.so", "pam_unix.so", "pam_deny.so", "pam_permit.so", "pam_localuser.so"]


def test_a_file_that_is_missing_or_includes_itself() -> None:
    with pytest.raises(StackError, match="a:1: b cannot be read: No such file"):
        load("a", reader({"a": "@include b\n"}))
    with pytest.raises(StackError, match="included more than 16 deep"):
        flatten(load("a", reader({"a": "auth include a\n"})), "a", "auth")


LEVELS = st.lists(st.sampled_from([0, 0, 0, 1, 1, 2]), min_size=2, max_size=12).map(tuple)


@given(LEVELS, st.integers(0, 11), st.integers(1, 6))
def test_distance_is_the_inverse_of_landing(levels: tuple[int, ...], start: int, count: int) -> None:
    try:
        target = landing(levels, min(start, len(levels) - 1), count)
    except StackError:
        return
    assert distance(levels, min(start, len(levels) - 1), target) == count


def test_a_substack_is_jumped_over_as_one() -> None:
    levels = (0, 0, 1, 1, 0)
    assert landing(levels, 0, 1) == 4
    assert landing(levels, 0, 2) == 5  # behind the last rule: allowed
    with pytest.raises(StackError):
        landing(levels, 0, 3)
    with pytest.raises(StackError):
        landing(levels, 2, 2)  # out of a substack
