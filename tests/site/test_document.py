"""The YAML reader: scalars as YAML 1.2 has them, lines of everything, and what it refuses."""

import pytest

from hpctools.site.document import parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12:30:00", "12:30:00"),
        ("2-00:00:00", "2-00:00:00"),
        ("no", "no"),
        ("on", "on"),
        ("2026-01-31", "2026-01-31"),
        ("0123", "0123"),
        ("1_000", "1_000"),
        ("0x1f", "0x1f"),
        ("0", 0),
        ("-7", -7),
        ("24.11", 24.11),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ('"24.11"', "24.11"),
        ("!!str 5", "5"),
        ("'yes'", "yes"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    document = parse(f"key: {text}\n", "f")
    assert document.findings == []
    assert document.data == {"key": value}
    assert type(document.data["key"]) is type(value)


def test_every_place_has_its_line() -> None:
    document = parse("a: 1\nb:\n  - x\n  -\n    c: {d: 4,\n      e: 5}\n", "f")
    assert document.data == {"a": 1, "b": ("x", {"c": {"d": 4, "e": 5}})}
    assert document.lines == {
        (): 1,
        ("a",): 1,
        ("b",): 2,
        ("b", 0): 3,
        ("b", 1): 5,
        ("b", 1, "c"): 5,
        ("b", 1, "c", "d"): 5,
        ("b", 1, "c", "e"): 6,
    }


def test_a_place_that_is_missing_has_the_line_of_what_surrounds_it() -> None:
    document = parse("a: 1\nb:\n  - x\n", "f")
    assert document.line(("b", 0, "missing", 3)) == 3
    assert document.line(("nowhere",)) == 1


def test_an_alias_stands_for_what_it_names() -> None:
    assert parse("a: &x [1, 2]\nb: *x\n", "f").data == {"a": (1, 2), "b": (1, 2)}


@pytest.mark.parametrize("indent", ["", " " * 200])  # read by libyaml, and by PyYAML's own parser
def test_a_merge_key_is_no_key_and_nothing_is_merged(indent: str) -> None:
    document = parse(f"a: &x {{b: 1}}\nc:\n {indent}<<: *x\n {indent}d: 2\n", "f")
    said = "f:3: c: found a merge key (<<), which is not carried out, expected the entries written out"
    assert list(map(str, document.findings)) == [said]
    quoted = parse(f"c:\n {indent}'<<': 1\n", "f")
    assert (quoted.data, quoted.findings) == ({"c": {"<<": 1}}, [])


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (
            "a: 1\nb: 2\na: 3\n",
            "f:3: a: found the key 'a' a second time (first on line 1), expected each key once",
        ),
        (
            "a:\n  - 1\n b: 2\n",
            "f:3: found while parsing a block mapping: expected <block end>, but found "
            "'<block mapping start>', expected valid YAML",
        ),
        ("a: [1\n", None),
        ("a: \t- 1\n", None),
        ("a: 1\n---\nb: 2\n", None),
        ("a: *missing\n", "f:1: found undefined alias 'missing', expected valid YAML"),
        ("a: &x [*x]\n", "f:1: a[0]: found an alias to something that contains it, expected no recursion"),
        (
            "a: !!python/object:os.system x\n",
            "f:1: a: found the tag !!python/object:os.system on 'x', expected plain data without tags",
        ),
        ("a: !thing {b: 1}\n", "f:1: a: found the tag !thing, expected plain data without tags"),
        ("a: !!int x\n", "f:1: a: found the tag !!int on 'x', expected plain data without tags"),
        ("? [1, 2]\n: 3\n", "f:1: found a key that is not a word, expected a word as key"),
        ("a: \x07\n", None),
    ],
)
def test_what_is_refused(text: str, finding: str | None) -> None:
    findings = parse(text, "f").findings
    assert len(findings) == 1
    if finding is None:
        assert findings[0].expected == "valid YAML"
    else:
        assert str(findings[0]) == finding


def test_aliases_that_expand_without_end_are_cut_off() -> None:
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 8)]
    findings = parse("\n".join(lines), "f").findings
    assert [f.found for f in findings] == ["more entries than a site can have (aliases that expand?)"]


@pytest.mark.parametrize("depth", [330, 400, 500, 5000])
def test_nesting_without_end_is_a_finding_and_no_traceback(depth: int) -> None:
    """PyYAML reads deeper than we do, so that there are depths at which either gives up."""
    findings = parse("[" * depth + "]" * depth, "f").findings
    assert [f.found for f in findings] in ([], ["lists or mappings nested too deep"])
    assert findings or depth < 1000


def test_a_key_with_control_characters_cannot_forge_a_line() -> None:
    findings = parse('"a\\n\\e[31mb": {c: 1, c: 2}\n', "f").findings
    assert [str(f) for f in findings] == [
        r"f:1: 'a\n\x1b[31mb'.c: found the key 'c' a second time (first on line 1), expected each key once"
    ]
