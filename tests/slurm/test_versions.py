"""What differs between Slurm releases."""

import pytest

from hpctools.slurm.versions import parse_release, spell_release


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
