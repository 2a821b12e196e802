"""sssd.conf, whole."""

from __future__ import annotations

import configparser

import pytest

from hpctools.hyperpod.identity import identity_settings
from hpctools.identity.sssd import login_groups, sssd_conf
from hpctools.site import InvalidSiteError, loads, warnings
from hpctools.site.identity import MACHINE_ACCOUNTS, MACHINE_GROUPS
from tests.identity.sites import HEAD, site

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"

LDAP = f"""\
# Made by hpctools from the site file's `identity`; edits are overwritten.
[sssd]
config_file_version = 2
services = nss, pam
domains = uni.example

[nss]
filter_users = {", ".join(sorted(MACHINE_ACCOUNTS))}
filter_groups = {", ".join(sorted(MACHINE_GROUPS))}

[pam]
pam_verbosity = 2
offline_credentials_expiration = 7
offline_failed_login_attempts = 5
offline_failed_login_delay = 5

[domain/uni.example]
id_provider = ldap
auth_provider = ldap
chpass_provider = none
access_provider = simple
simple_allow_groups = hpc-users, Domain Guests
ldap_uri = ldaps://one.uni.example, ldaps://two.uni.example:1636
ldap_search_base = dc=uni,dc=example
ldap_user_search_base = ou=people,dc=uni,dc=example
ldap_group_search_base = dc=uni,dc=example?subtree?(gidNumber>=5000)
ldap_tls_reqcert = demand
ldap_tls_cacert = /etc/uni-ca.pem
ldap_network_timeout = 3
ldap_opt_timeout = 6
ldap_referrals = false
ldap_default_bind_dn = cn=reader,dc=uni,dc=example
ldap_default_authtok_type = password
ldap_schema = rfc2307bis
ldap_id_mapping = false
min_id = 5000
case_sensitive = true
cache_credentials = true
entry_cache_timeout = 600
offline_timeout = 15
enumerate = false
override_homedir = /fsx/home/%u
default_shell = /bin/zsh
use_fully_qualified_names = false
"""


def section(text: str, name: str) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    return dict(parser[name])


def test_ldap_with_everything_stated() -> None:
    stated = site(
        uris=["ldaps://one.uni.example", "ldaps://two.uni.example:1636"],
        user_base="ou=people,dc=uni,dc=example",
        tls={"ca_file": "/etc/uni-ca.pem"},
        bind={"dn": "cn=reader,dc=uni,dc=example", "secret": {"file": "/etc/hpctools/password"}},
        ldap_schema="rfc2307bis",
        first_id=5000,
        login_groups=["hpc-users", "Domain Guests"],
        shell="/bin/zsh",
        cache={"login_days": 7, "entries": "00:10:00"},
        homes={"root": "/fsx/home"},
    )
    assert sssd_conf(stated) == LDAP


def test_active_directory_differs_in_what_it_must() -> None:
    ad = section(sssd_conf(site(directory="ad", uris=["ldap://dc1.uni.example"])), "domain/uni.example")
    ldap = section(sssd_conf(site()), "domain/uni.example")
    changed = {key: ad.get(key) for key in ad.keys() | ldap.keys() if ad.get(key) != ldap.get(key)}
    assert changed == {
        "ldap_uri": "ldap://dc1.uni.example",
        "ldap_id_use_start_tls": "true",
        "ldap_schema": "ad",
        "ldap_id_mapping": "true",
        "ldap_group_search_base": None,
        "case_sensitive": "false",
    }


def test_numbers_of_an_active_directory_may_stand_in_it() -> None:
    found = section(sssd_conf(site(directory="ad", posix_attributes=True)), "domain/uni.example")
    assert found["ldap_id_mapping"] == "false"
    assert found["ldap_group_search_base"] == "dc=uni,dc=example?subtree?(gidNumber>=1000)"


@pytest.mark.parametrize(("directory", "policy"), [("ldap", "shadow"), ("ad", "ad")])
def test_a_filter_also_refuses_expired_accounts(directory: str, policy: str) -> None:
    stated = site(directory=directory, login_filter="(department=Biology)")
    found = section(sssd_conf(stated), "domain/uni.example")
    access = {key: found[key] for key in found if "access" in key or "expire" in key or "simple" in key}
    assert access == {
        "access_provider": "ldap",
        "ldap_access_order": "filter, expire",
        "ldap_access_filter": "(department=Biology)",
        "ldap_account_expire_policy": policy,
    }
    assert login_groups(stated) == ()


def test_active_directory_without_a_filter_is_warned_of() -> None:
    groups = warnings(site(directory="ad", login_groups=["x"]))
    assert [each.path for each in groups if each.path.startswith("identity")] == ["identity.login_groups"]
    quiet = warnings(site(directory="ad", login_filter="(a=b)"))
    assert not [each for each in quiet if each.path.startswith("identity")]


def test_without_login_groups_those_who_work_somewhere_may_log_in() -> None:
    assert login_groups(site()) == ("lab-a", "lab-b", "lab b guests")
    assert login_groups(site(login_groups=["all"])) == ("all",)


def test_without_cached_logins_no_password_is_remembered() -> None:
    text = sssd_conf(site(cache={"logins": False}))
    assert section(text, "domain/uni.example")["cache_credentials"] == "false"
    assert section(text, "pam") == {"pam_verbosity": "2"}


def test_a_site_without_a_directory_asks_for_nothing() -> None:
    bare = loads(
        HEAD.replace("members_from: [lab-a]", "")
        .replace(", }", "}")
        .replace('members_from: [lab-b, "lab b guests"]', "members: [bo]")
    )
    assert (sssd_conf(bare), identity_settings(bare)) == ("", {})


def test_the_settings_of_a_node_have_no_password_and_everything_else() -> None:
    bind = {"dn": "cn=r", "secret": {"aws_secret": "arn:aws:secretsmanager:eu-west-1:123456789012:secret:r"}}
    stated = site(
        bind=bind, tls={"ca_certificate": CERTIFICATE}, homes={"make": "by_step", "make_on": ["login"]}
    )
    found = identity_settings(stated)
    assert found == {
        "sssd_conf": sssd_conf(stated),
        "domain": "uni.example",
        "ca": {"path": "/etc/sssd/hpctools-ca.pem", "text": CERTIFICATE + "\n"},
        "bind": {"aws_secret": "arn:aws:secretsmanager:eu-west-1:123456789012:secret:r"},
        "login_groups": ["lab-a", "lab-b", "lab b guests"],
        "homes": {
            "make": "by_step",
            "make_on": ["login"],
            "root": "/home",
            "skeleton": "/etc/skel",
            "users": ["cy", "head", "static"],
        },
    }
    assert section(found["sssd_conf"], "domain/uni.example")["ldap_tls_cacert"] == "/etc/sssd/hpctools-ca.pem"


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("uris", ["ldap://a", "ldaps://b"], "all ldaps://, or all ldap://"),
        ("uris", ["http://a"], "ldaps://HOST"),
        ("uris", ["ldaps://a/dc=x\naccess_provider = permit"], "ldaps://HOST"),
        ("base", "dc=x\n[domain/evil]", "a distinguished name"),
        ("base", "dc=x?subtree?(uid=*)", "a distinguished name"),
        ("domain", "x\ny", "a domain"),
        ("login_filter", "(a=b)\nx=y", "an LDAP filter"),
        ("login_groups", ["a, b"], "a group of the directory"),
        ("login_groups", ["Sudo"], "called like one of theirs"),
        ("first_id", 0, "at least 1000"),
        ("bind", {"dn": "cn=r", "secret": {}}, "either file or aws_secret"),
        ("tls", {"ca_file": "/a", "ca_certificate": CERTIFICATE}, "either ca_file or ca_certificate"),
        (
            "tls",
            {"ca_certificate": "-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----"},
            "certificates",
        ),
        ("members_file", "../../etc/passwd", "a file name"),
        ("run_as", {"principals": {"role/x": "ssm-user"}}, "a Unix account of a person"),
        ("run_as", {"principals": {"role/x": "root"}}, "a Unix account of a person"),
        ("run_as", {"principals": {"x": "ada"}}, "role/NAME"),
    ],
)
def test_what_would_become_other_lines_or_other_rights_is_refused(
    key: str, value: object, expected: str
) -> None:
    with pytest.raises(InvalidSiteError) as caught:
        site(**{key: value})
    assert len(caught.value.findings) == 1
    assert expected in caught.value.findings[0].expected.replace("the Unix account", "a Unix account")


def test_groups_need_a_directory_and_a_directory_somebody_who_may_log_in() -> None:
    with pytest.raises(InvalidSiteError) as caught:
        loads(HEAD)
    assert [finding.path for finding in caught.value.findings] == [
        f"departments[0].labs[{number}].members_from" for number in (0, 1)
    ]
    bare = HEAD.replace(", members_from: [lab-a]", "").replace(
        'members_from: [lab-b, "lab b guests"]', "members: [bo]"
    )
    with pytest.raises(InvalidSiteError) as caught:
        site(bare)
    assert [finding.path for finding in caught.value.findings] == ["identity"]
    assert site(bare, login_filter="(uid=*)").identity is not None
