"""A clock that is wrong: munge and AWS refuse everything."""

import pytest

from tests.lifecycle.node import Node

TRACKING = """\
Reference ID    : A9FEA97B (169.254.169.123)
System time     : {offset} seconds slow of NTP time
Leap status     : {status}
"""


def chrony(node: Node, offset: str, status: str = "Normal") -> None:
    node.only_steps("05-clock")
    node.write("/stand-in/tracking", TRACKING.format(offset=offset, status=status))
    node.write("/stand-in/calls", "")
    node.stand_in("systemctl", 'echo "systemctl $*" >>"$STAND_IN/calls"; [ "$2" = chrony ]')
    node.stand_in(
        "chronyc",
        'case "$*" in *tracking) cat "$STAND_IN/tracking" ;;\n'
        '*makestep) sed -i "s/: [0-9.]* seconds/: 0.000001 seconds/; s/Not synch.*/Normal/" '
        '"$STAND_IN/tracking" ;; esac',
    )


def test_a_right_clock_is_left_alone(node: Node) -> None:
    chrony(node, "0.000123")
    assert node.run().returncode == 0
    assert node.calls() == []


@pytest.mark.parametrize(("offset", "status"), [("3600.5", "Normal"), ("0.0", "Not synchronised")])
def test_a_wrong_clock_is_set_at_once(node: Node, offset: str, status: str) -> None:
    chrony(node, offset, status)
    assert node.run().returncode == 0
    assert node.calls("systemctl")[0] == "systemctl restart chrony"
    assert "0.000001 seconds" in node.path("/stand-in/tracking").read_text()


def test_one_alone_keeps_the_clock(node: Node) -> None:
    """chronyd is an alias of chrony on some systems, and timesyncd beside it sets the clock too."""
    chrony(node, "3600.5")
    node.stand_in("systemctl", 'echo "systemctl $*" >>"$STAND_IN/calls"')
    assert node.run().returncode == 0
    assert node.calls("systemctl") == ["systemctl restart chrony"]


def test_a_clock_that_stays_wrong_ends_the_run(node: Node) -> None:
    chrony(node, "3600.5")
    node.stand_in("chronyc", 'cat "$STAND_IN/tracking"')
    assert node.run().returncode == 1
    assert "the clock is not right yet" in node.events("output")[-1]["message"]


def test_nothing_that_keeps_the_clock_ends_the_run(node: Node) -> None:
    chrony(node, "3600.5")
    node.stand_in("systemctl", "exit 1")
    assert node.run().returncode == 1
    assert "the clock is not kept" in node.events("output")[-1]["message"]
