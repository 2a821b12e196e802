"""From a site to sssd.conf: pure. The reader's password is not in it; each node adds it from its place.

Nodes do not join an Active Directory: they come and go, and would leave computer accounts behind. They read
it as LDAP (`id_provider = ldap`, `ldap_schema = ad`), which needs one account that may read, nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hpctools.site.identity import MACHINE_ACCOUNTS, MACHINE_GROUPS, Identity
from hpctools.site.model import Site

SYSTEM_CA = "/etc/ssl/certs/ca-certificates.crt"
OUR_CA = "/etc/sssd/hpctools-ca.pem"
"""Where nodes keep CA certificates that the site file states."""

Pairs = Iterable[tuple[str, object]]


def sssd_conf(site: Site) -> str:
    """Return the text of /etc/sssd/sssd.conf; "" for a site without a directory.

    It fails closed: only people whom the site lets in may log in, and nobody and nothing in the directory is
    taken for one of the machine's own accounts: neither by number (`min_id`) nor by name (`filter_users`).
    """
    identity = site.identity
    if identity is None:
        return ""
    sections = (
        ("sssd", (("config_file_version", 2), ("services", "nss, pam"), ("domains", identity.domain))),
        (
            "nss",
            (
                ("filter_users", ", ".join(sorted(MACHINE_ACCOUNTS))),
                ("filter_groups", ", ".join(sorted(MACHINE_GROUPS))),
            ),
        ),
        ("pam", _pam(identity)),
        (f"domain/{identity.domain}", _domain(identity, login_groups(site))),
    )
    head = "# Made by hpctools from the site file's `identity`; edits are overwritten.\n"
    return head + "\n".join(_section(name, pairs) for name, pairs in sections)


def login_groups(site: Site) -> tuple[str, ...]:
    """The groups whose people may log in; none where a filter says who may."""
    identity = site.identity
    if identity is None or identity.login_filter:
        return ()
    return identity.login_groups or site.directory_groups


def ca_file(identity: Identity) -> str:
    """The file of CA certificates on a node."""
    return OUR_CA if identity.tls.ca_certificate else identity.tls.ca_file or SYSTEM_CA


def _section(name: str, pairs: Pairs) -> str:
    return "".join([f"[{name}]\n", *(f"{key} = {_spell(value)}\n" for key, value in pairs)])


def _spell(value: object) -> str:
    """One line each: values come through the site's patterns, which let no line break pass."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _pam(identity: Identity) -> Iterator[tuple[str, object]]:
    # 2: people are told that they were let in from memory, and until when that will do (sssd.conf(5)).
    yield "pam_verbosity", 2
    if identity.cache.logins:
        yield "offline_credentials_expiration", identity.cache.login_days
        yield "offline_failed_login_attempts", 5
        yield "offline_failed_login_delay", 5


def _domain(identity: Identity, groups: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    yield "id_provider", "ldap"
    yield "auth_provider", "ldap"
    yield "chpass_provider", "none"
    yield from _access(identity, groups)
    yield "ldap_uri", ", ".join(identity.uris)
    yield "ldap_search_base", identity.base
    yield from _given("ldap_user_search_base", identity.user_base)
    yield from _groups(identity)
    yield from _connection(identity)
    yield from _numbers(identity)
    yield from _remembered(identity)
    # The directory does not choose the folder: one that said /etc or /root would be somebody's home.
    yield "override_homedir", f"{identity.homes.root}/%u"
    yield "default_shell", identity.shell
    yield "use_fully_qualified_names", False


def _given(key: str, value: str | None) -> Iterator[tuple[str, object]]:
    if value is not None:
        yield key, value


def _groups(identity: Identity) -> Iterator[tuple[str, object]]:
    """Where groups are, and which of them count.

    sssd 2.8 keeps to `min_id` only where somebody asks for a group: among a person's own groups were those
    with numbers of the machine's, and with them the rights to its files (tried). So nobody asks for them.
    """
    if identity.numbers_in_directory:
        base = identity.group_base or identity.base
        yield "ldap_group_search_base", f"{base}?subtree?(gidNumber>={identity.first_id})"
    else:
        yield from _given("ldap_group_search_base", identity.group_base)


def _access(identity: Identity, groups: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    if identity.login_filter is None:
        yield "access_provider", "simple"
        yield "simple_allow_groups", ", ".join(groups)
        return
    yield "access_provider", "ldap"
    yield "ldap_access_order", "filter, expire"
    yield "ldap_access_filter", identity.login_filter
    yield "ldap_account_expire_policy", "ad" if identity.directory == "ad" else "shadow"


def _connection(identity: Identity) -> Iterator[tuple[str, object]]:
    if not identity.uris[0].startswith("ldaps:"):
        # For reading; for passwords sssd never goes without TLS (sssd-ldap(5)).
        yield "ldap_id_use_start_tls", True
    yield "ldap_tls_reqcert", "demand"
    yield "ldap_tls_cacert", ca_file(identity)
    yield "ldap_network_timeout", 3
    yield "ldap_opt_timeout", 6
    yield "ldap_referrals", False
    if identity.bind is not None:
        yield "ldap_default_bind_dn", identity.bind.dn
        yield "ldap_default_authtok_type", "password"


def _numbers(identity: Identity) -> Iterator[tuple[str, object]]:
    is_ad = identity.directory == "ad"
    yield "ldap_schema", "ad" if is_ad else identity.ldap_schema
    yield "ldap_id_mapping", not identity.numbers_in_directory
    yield "min_id", identity.first_id
    # Slurm's accounts are in lower case, and Active Directory's names in any.
    yield "case_sensitive", not is_ad


def _remembered(identity: Identity) -> Iterator[tuple[str, object]]:
    yield "cache_credentials", identity.cache.logins
    yield "entry_cache_timeout", identity.cache.entries
    yield "offline_timeout", 15
    yield "enumerate", False
