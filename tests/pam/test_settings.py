import json
from pathlib import Path

import pytest

from hpctools import site
from hpctools.hyperpod.access import AGENT_SOCKET, access_settings
from hpctools.sandbox.blueprint import example_site
from pam.settings import Settings, SettingsError, from_section, load


def test_what_the_site_says_is_what_the_node_reads() -> None:
    path = example_site()
    assert path is not None
    section = json.loads(json.dumps(access_settings(site.load(path))))
    assert from_section(section) == Settings(
        users=("hpcadmin",),
        groups=("sudo", "hpc-admins"),
        several_jobs="newest",
        wait_for_job=10,
        adopt_module="",
        slurmd_pid_file="/var/run/slurmd.pid",
        sessions_per_user=3,
        sessions=200,
        session_hook="",
        agent_socket=AGENT_SOCKET,
    )


def test_a_site_that_says_nothing_of_it() -> None:
    """The limit of all login nodes together is that of each; administrators are root, sudo and wheel.

    The agent that nodes set up is asked without a word more.
    """
    path = example_site()
    assert path is not None
    text = path.read_text()
    begin = text.index("access:")
    bare = site.loads(text[:begin] + text[text.index("# What nodes do to themselves") :])
    settings = from_section(access_settings(bare))
    limit = bare.login.max_sessions_per_user
    assert settings == Settings(sessions_per_user=limit, agent_socket=AGENT_SOCKET)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"administrators": {"users": ["a b\nc"]}}, "administrators.users must be a list of Unix names"),
        ({"administrators": {"groups": ["x] y"]}}, "administrators.groups must be a list of Unix names"),
        ({"administrators": {"users": "root"}}, "administrators.users must be a list of Unix names"),
        ({"compute": {"wait_for_job": 61}}, "compute.wait_for_job must be a number from 0 to 60, not 61"),
        ({"compute": {"wait_for_job": True}}, "compute.wait_for_job must be a number"),
        ({"compute": {"several_jobs": "allow"}}, "compute.several_jobs must be newest or deny, not 'allow'"),
        ({"compute": {"adopt_module": "/a b.so"}}, "compute.adopt_module must be an absolute path"),
        ({"login": {"when_unreachable": "shut"}}, "login.when_unreachable must be open or refuse"),
        ({"login": {"session_hook": "hook]"}}, "login.session_hook must be an absolute path"),
        ({"login": []}, None),
        ([], "the section must be an object"),
        ({"login": [1]}, "login must be an object"),
    ],
)
def test_what_no_stack_can_be_made_of(section: object, said: "str | None") -> None:
    """Nothing that could break out of a rule gets into one."""
    if said is None:
        assert from_section(section) == Settings()
        return
    with pytest.raises(SettingsError, match=said):
        from_section(section)


@pytest.mark.parametrize(
    ("text", "said"), [("{", "is damaged"), ("[]", "is damaged: no JSON object"), (None, "cannot")]
)
def test_a_file_that_cannot_be_read(tmp_path: Path, text: "str | None", said: str) -> None:
    path = tmp_path / "settings.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SettingsError, match=said):
        load(path)
