"""hp-submit on a login node, where our own pages for sysadmins put it."""

from __future__ import annotations

import json
import sys

import pytest

from tests.remote.rig import ROOT, Here, Rig


@pytest.mark.parametrize("user", ["lab1", "lab2"])
def test_hp_submit_is_found_where_the_pages_put_it(here: Here, cluster: Rig, user: str) -> None:
    """It is not on the PATH that sshd gives, and no `command:` is stated; jobs get that PATH as it was."""
    opt = cluster.folder / "opt"
    program = opt / "hpctools/bin/hp-submit"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m hpctools.cli.hp_submit "$@"\n')
    program.chmod(0o755)
    path = f"{cluster.folder}/bin:/usr/bin:/bin"
    login = cluster.start("own", opt=opt, settings={"SetEnv": set_env(cluster, path)})
    try:
        cluster.know(login.port)
        cluster.configure({"own": login.port}, user=user)
        config = cluster.home / ".config/hpctools/clusters.yaml"
        config.write_text("clusters:\n  uni: {login_nodes: [own]}\n")
        code, out, err = here("--cluster", "uni", "--json", "job.sh", "a 'b\n\"c")
        assert (code, json.loads(out or "{}").get("job_id")) == (0, 1), err
        assert cluster.words(cluster.jobs[0])[-1] == "a 'b\n\"c"
        assert (cluster.jobs[0] / "path").read_text() == f"{path}\n"
    finally:
        login.stop()


def test_who_finds_it_nowhere_says_where_it_was_looked_for(here: Here, cluster: Rig) -> None:
    config = cluster.home / ".config/hpctools/clusters.yaml"
    config.write_text("clusters:\n  uni: {login_nodes: [login1]}\n")
    code, _, err = here("--cluster", "uni", "job.sh")
    where = "neither on its PATH nor in /opt/hpctools/bin"
    assert (code, err.startswith(f"hp-submit: login1 has no `hp-submit`, {where}: ")) == (1, True), err


def set_env(cluster: Rig, path: str) -> str:
    """What sshd sets, with another PATH."""
    return f"PATH={path} PYTHONPATH={ROOT} PYTHONDONTWRITEBYTECODE=1 JOBS={cluster.folder}/jobs"
