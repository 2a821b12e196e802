"""Configurations that would end a real slurmctld, or leave it without what they declare: all that is told."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hpctools.conf.preflight import Verdict, preflight
from hpctools.sandbox import releases
from tests.conf.preflight.deadly import DEADLY, GOOD

HERE = Path(__file__).parent

pytestmark = [pytest.mark.system, pytest.mark.releases]


def told(name: str, verdict: Verdict) -> str:
    rows = [
        f"{row.said or '-'}\n  means: {row.meaning or '-'}\n  remedy: {row.remedy or '-'}\n"
        for row in verdict.problems
    ]
    return "\n".join([f"## {name}", *rows])


def test_each_is_told_with_slurmctlds_words_and_what_they_mean(
    slurm_release: str, golden: Callable[[Path, str], None]
) -> None:
    installed = releases.find(slurm_release)
    with ThreadPoolExecutor(2) as pool:
        verdicts = list(pool.map(lambda files: preflight(files, root=installed.root), DEADLY.values()))
    assert [name for name, verdict in zip(DEADLY, verdicts, strict=True) if verdict.ok] == []
    text = "\n".join(told(name, verdict) for name, verdict in zip(DEADLY, verdicts, strict=True))
    golden(HERE / f"deadly-{installed.name}.txt", text)


def test_the_good_one_that_they_are_made_of_boots(slurm_release: str) -> None:
    verdict = preflight(GOOD, root=releases.find(slurm_release).root)
    assert (verdict.problems, verdict.nodes, verdict.partitions) == ((), 5, 1)
    assert set(verdict.seconds) == {"namespaces", "arrange", "boot", "look", "all"}


def test_what_is_included_from_outside_the_folder_is_booted_too(slurm_release: str, tmp_path: Path) -> None:
    (tmp_path / "nodes.conf").write_text(GOOD["nodes.conf"])
    text = GOOD["slurm.conf"].replace("Include nodes.conf", f"Include {tmp_path}/nodes.conf")
    files = {"slurm.conf": text, "gres.conf": GOOD["gres.conf"], f"{tmp_path}/nodes.conf": GOOD["nodes.conf"]}
    verdict = preflight(files, root=releases.find(slurm_release).root)
    assert (verdict.problems, verdict.nodes) == ((), 5)
