"""81-login-commands: what `ssh NODE hp-submit` finds, on a node whose image has hpctools."""

from collections.abc import Callable
from importlib.metadata import distribution

import pytest

from tests.lifecycle.node import LOGIN, WORKER, Node

from provision.login_commands import COMMANDS, FOLDER  # isort: skip


def prepared(node: Node, *commands: str) -> Node:
    node.only_steps("81-login-commands")
    for name in commands:
        node.write(f"{FOLDER}/{name}", "#!/bin/sh\n", 0o755)
    return node


def links(node: Node) -> dict[str, str]:
    place = node.path("/usr/local/bin")
    return {each.name: str(each.readlink()) for each in place.iterdir()} if place.is_dir() else {}


def test_people_find_the_commands_of_the_image(make_node: Callable[[str], Node]) -> None:
    node = prepared(make_node(LOGIN), *COMMANDS)
    assert node.run("--check").returncode == 1
    assert node.run().returncode == 0
    assert node.run("--check").returncode == 0
    assert links(node) == {name: f"/opt/hpctools/bin/{name}" for name in COMMANDS}


def test_what_the_site_has_there_stays(make_node: Callable[[str], Node]) -> None:
    node = prepared(make_node(LOGIN), "hp-submit", "hp-status")
    own = node.write("/usr/local/bin/hp-submit", "#!/bin/sh\n# the site's own\n", 0o755)
    assert node.run().returncode == 0
    assert own.read_text() == "#!/bin/sh\n# the site's own\n"
    assert node.path("/usr/local/bin/hp-status").is_symlink()


@pytest.mark.parametrize(("address", "commands"), [(LOGIN, ()), (WORKER, COMMANDS)])
def test_a_worker_and_an_image_without_hpctools_are_left_alone(
    make_node: Callable[[str], Node], address: str, commands: tuple[str, ...]
) -> None:
    node = prepared(make_node(address), *commands)
    node.run()
    assert links(node) == {}


def test_they_are_those_of_the_package_that_people_call() -> None:
    ours = {each.name for each in distribution("hpctools").entry_points}
    assert ours - set(COMMANDS) == {"hp-login-agent", "hpctools-api"}
