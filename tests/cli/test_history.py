"""`hpctools history`, and what the history keeps of site files."""

from __future__ import annotations

import sys
from pathlib import Path

from click.testing import CliRunner

from hpctools.cli.history import history
from hpctools.conf.apply import History
from hpctools.slurm.run import run
from tests.cli.test_plan import applied

# A terminal of another encoding; PYTHONUTF8 and the coercion would hide it.
NOT_UTF8 = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
READ = "import sys; from pathlib import Path; from hpctools.conf.apply import History; "


def test_a_change_that_there_is_not_is_told_in_every_form(tmp_path: Path) -> None:
    applied(tmp_path, 1)
    for words in ((), ("--diff",), ("--json",)):
        done = CliRunner().invoke(history, ["5", *words, "--state", str(tmp_path)])
        assert str(done.exception).startswith(f"there is no change 5 in {tmp_path}/history; there are 1 to 1")


def test_a_site_file_is_utf_8_whatever_the_terminal_speaks(tmp_path: Path) -> None:
    applied(tmp_path, 1)
    History(tmp_path).write(1, "site.yaml", "# Spräche 語\n")
    asked = f"{READ}print(ascii(History(Path(sys.argv[1])).document(1, 'site.yaml')))"
    done = run([sys.executable, "-c", asked, str(tmp_path)], timeout=20, env=NOT_UTF8)
    assert done.stdout == ascii("# Spräche 語\n") + "\n"
