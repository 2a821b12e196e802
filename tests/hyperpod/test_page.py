"""docs/hyperpod.md: every rule is there, and no other; its commands and its examples are true."""

import re
from pathlib import Path

from click.testing import CliRunner

from hpctools.cli.hyperpod import hyperpod
from tests.hyperpod.samples import checked, legacy, slurmconfig

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/hyperpod.md").read_text()
SOURCES = [*(ROOT / "hpctools/hyperpod").glob("*.py"), *(ROOT / "hpctools/hyperpod/live").glob("*.py")]


def test_every_rule_is_on_the_page() -> None:
    text = "\n".join(path.read_text() for path in SOURCES)
    made = set(re.findall(r'\.(?:finding|warning)\(\s*"([a-z-]+)"', text))
    made |= {"unreadable", "not-json", "byte-order-mark", "duplicate-key", "not-a-value"}
    assert all(f'"{name}"' in text for name in made)
    table = PAGE.split("| rule | what is wrong |")[1].split("\n\n")[0]
    told = {
        name
        for row in table.splitlines()
        for name in re.findall(r"`([a-z-]+)`", row.split("|")[1] if "|" in row else "")
    }
    assert told == made


def test_its_commands_are_there() -> None:
    for name in set(re.findall(r"hpctools hyperpod (\w+)", PAGE)):
        assert CliRunner().invoke(hyperpod, [name, "--help"]).exit_code == 0


def test_its_finding_is_what_is_printed() -> None:
    request, provisioning = legacy()
    request["InstanceGroups"][0]["InstanceCount"] = "1"
    (finding,) = checked(request, provisioning).findings
    assert (
        str(finding).replace("cluster.json", "cluster-config.json").replace(f":{finding.line}:", ":7:")
        in PAGE
    )


def test_its_options_are_there() -> None:
    help_of_validate = CliRunner().invoke(hyperpod, ["validate", "--help"]).output
    assert all(option in help_of_validate for option in ("--update", "--aws", "--region", "--json"))
    assert checked(slurmconfig()).findings == ()
