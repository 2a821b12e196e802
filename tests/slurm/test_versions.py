"""What differs between Slurm releases."""

import re
from pathlib import Path

import pytest

from hpctools.slurm import versions
from hpctools.slurm.versions import (
    outdated_settings,
    parse_release,
    reads_topology_yaml,
    spell_release,
    talks_to_older,
)


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("22.05.8", (22, 5, 8)),
        ("24.11", (24, 11)),
        ("slurm-wlm 22.05.8", (22, 5, 8)),
        ("slurm 26.05.5\n", (26, 5, 5)),
    ],
)
def test_a_release_is_read_from_what_slurm_prints(text: str, release: tuple[int, ...]) -> None:
    assert parse_release(text) == release
    assert spell_release(release) == text.split()[-1]


@pytest.mark.parametrize("text", ["", "slurm", "22", "22.x", "22.05-rc1"])
def test_what_is_no_release(text: str) -> None:
    with pytest.raises(ValueError, match="is not a Slurm release"):
        parse_release(text)


@pytest.mark.parametrize(
    ("daemon", "older", "talks"),
    [
        ((24, 11), (24, 11), True),
        ((24, 11), (22, 5), False),
        ((24, 11), (23, 2), True),
        ((26, 5), (24, 11), True),
        ((26, 5), (24, 5), False),
        ((24, 5), (23, 2), True),
        ((24, 5), (22, 5), False),
        ((22, 5), (21, 8), True),
    ],
)
def test_how_far_back_a_daemon_understands(
    daemon: tuple[int, ...], older: tuple[int, ...], talks: bool
) -> None:
    assert talks_to_older(daemon, older) is talks


def test_topology_yaml_counts_from_25_05_on() -> None:
    assert [reads_topology_yaml(each) for each in ((24, 11, 5), (25, 5), (26, 5, 5))] == [False, True, True]


def test_settings_grow_old_with_the_releases() -> None:
    assert outdated_settings((22, 5, 8)) == frozenset()
    assert "launchtype" in outdated_settings((24, 11, 5)) < outdated_settings((26, 5, 5))
    assert "jobcontainertype" not in outdated_settings((24, 11, 5))


def test_the_page_names_every_difference() -> None:
    """docs/slurm-releases.md says of each function from when on what is done."""
    page = (Path(__file__).parents[2] / "docs/slurm-releases.md").read_text()
    named = set(re.findall(r"(?m)^\| `(\w+)` \| \d", page))
    own = {
        name
        for name, value in vars(versions).items()
        if getattr(value, "__module__", "") == versions.__name__
    }
    assert named == {name for name in own if not name.startswith("_")} - {
        *("Release", "parse_release", "spell_release", "releases_between"),
    }
