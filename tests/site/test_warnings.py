"""What works but may surprise: each warning, with its line, and the site that does not give it."""

from pathlib import Path

import pytest

from hpctools.site import loads, warnings

HEAD = """\
cluster:
  name: x
  controllers: [ctl]
"""
REST = """\
node_groups:
  - {name: cpu, instance_type: m5.large, count: 2}
departments:
  - {name: bio, supervisor: ada, partition: {node_groups: [cpu]}}
tiers:
  normal: {priority: 1, default: true}
  other: {priority: 2}
"""
EXAMPLES = Path(__file__).parents[2] / "slurm-conf/examples"
GEO = "  - {name: geo, members: [bob]}\n"


def told(text: str) -> list[str]:
    return [str(warning) for warning in warnings(loads(text, "s"))]


def site(cluster: str = "", more: str = "", departments: str = "") -> str:
    return HEAD + cluster + REST.replace("tiers:\n", f"{departments}{more}tiers:\n")


def shared(words: str) -> str:
    return f"partitions:\n  - {{name: P, node_groups: [cpu], {words}}}\n"


def test_an_ordinary_site_has_none() -> None:
    assert told(site()) == []
    assert told(site(more="access:\n  administrators: {users: [ada], groups: []}\n")) == []
    assert told(site(departments=GEO, more=shared("departments: all, default: true, tiers: [normal]"))) == []


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (
            site(departments=GEO),
            "s:8: departments[1]: warning: found no partition that 'geo' may use, expected a partition of "
            "its own, or its name in the departments of a shared one",
        ),
        (
            site(more=shared("tiers: [other]")),
            "s:9: partitions[0].tiers: warning: found tiers without the default 'normal', expected it among "
            "them, or people have to name a tier for every job here",
        ),
        (
            site(departments=GEO, more=shared("departments: [geo], default: true")),
            "s:10: partitions[0].default: warning: found a default partition without bio, expected all "
            "departments, since jobs that name no partition come here",
        ),
        (
            site(departments=GEO, more=shared("")).replace("[cpu]}}", "[cpu], default: true}}"),
            "s:7: departments[0].partition.default: warning: found the partition of 'bio' as everybody's "
            "default, expected a shared partition, since jobs of other departments that name none are "
            "refused here",
        ),
        (
            site("  containment: {memory: false}\n"),
            "s:4: cluster.containment.memory: warning: found jobs that may take each other's memory, "
            "expected true",
        ),
        (
            site("  topology: {kind: tree, switches: [{name: a, nodes: cpu-1}, {name: b, nodes: cpu-2}]}\n"),
            "s:4: cluster.topology.switches: warning: found 2 switches with nothing above them (a, b), "
            "expected one at the top, unless no job may use nodes of several of them",
        ),
        (
            site(more="access:\n  administrators: {users: [], groups: []}\n"),
            "s:9: access.administrators: warning: found no administrators but root, expected a user or a "
            "group, or nobody gets into compute nodes where sshd refuses root",
        ),
        (
            site("  provider: hyperpod\n"),
            "s:5: node_groups: warning: found no node group of role login, expected one: on controllers only "
            "administrators get in",
        ),
    ],
)
def test_each_warning_has_its_line(text: str, warning: str) -> None:
    assert told(text) == [warning]


SCALED = """\
  login:
    scaling: {instance_type: m7i.large, image: ami-0123456789abcdef0}
    load_balancer"""
BALANCED = """\
lifecycle:
  login_balance:
    target_group: arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/uni/0123456789abcdef
"""


def test_login_nodes_are_behind_one_balancer() -> None:
    """The example of a university had two, and nobody behind the stack's."""
    example = (EXAMPLES / "university/site.yaml").read_text()
    with_another = told(example.replace("lifecycle:\n", BALANCED, 1))
    found = [each for each in with_another if "login_balance" in each]
    assert not [each for each in told(example) if "login_balance" in each]
    assert len(found) == 1
    assert "lifecycle.login_balance: warning: found another target group beside aws.login.load_b" in found[0]
    scaled = example.replace("  login:\n    load_balancer", SCALED, 1).replace("lifecycle:\n", BALANCED, 1)
    assert not [each for each in told(scaled) if "login_balance" in each], "its instances register themselves"


def test_a_site_that_was_built_in_code_has_no_lines() -> None:
    built = loads(site(departments=GEO)).model_copy()
    copy = type(built).model_validate(built.model_dump())
    (warning,) = warnings(copy)
    assert (warning.file, warning.line, warning.path) == ("", 0, "departments[1]")
