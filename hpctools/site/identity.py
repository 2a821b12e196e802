"""Who the people are: the directory that knows them, their homes, and who they are in Session Manager."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from hpctools.site.base import Model
from hpctools.site.scalars import Duration, FilePath, UserName, matching, refuse
from hpctools.site.secret import Secret

DirectoryGroup = Annotated[
    str,
    BeforeValidator(
        matching(
            r"[A-Za-z0-9_](?:[A-Za-z0-9 ._-]{0,62}[A-Za-z0-9._-])?",
            "a group of the directory: letters, digits, spaces, '.', '-' and '_', at most 64 characters",
        )
    ),
]
"""A group's cn; no comma, since sssd.conf separates groups with it."""

DirectoryUri = Annotated[
    str,
    BeforeValidator(
        matching(
            r"ldaps?://(?=.{1,253}(?::|\Z))[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[1-9]\d{0,4})?",
            "ldaps://HOST[:PORT], or ldap://HOST[:PORT] (which is asked for StartTLS)",
        )
    ),
]

DistinguishedName = Annotated[
    str,
    BeforeValidator(
        matching(
            r"[A-Za-z][A-Za-z0-9-]*=[^\x00-\x1f\x7f?\u2028\u2029]{1,480}",
            "a distinguished name, for example ou=people,dc=uni,dc=example",
        )
    ),
]
"""No question mark: sssd.conf takes what follows one for a scope and a filter."""

DirectoryFilter = Annotated[
    str,
    BeforeValidator(matching(r"\([^\x00-\x1f\x7f]{1,1000}\)", "an LDAP filter in parentheses, in one line")),
]

Domain = Annotated[
    str,
    BeforeValidator(
        matching(
            r"(?=.{1,100}\Z)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*",
            "a domain in lower case, for example uni.example",
        )
    ),
]

Certificate = Annotated[
    str,
    BeforeValidator(
        matching(
            r"\s*(?:-----BEGIN CERTIFICATE-----\n[A-Za-z0-9+/=\n]+\n-----END CERTIFICATE-----\s*){1,20}",
            "certificates in PEM, and nothing beside them",
        )
    ),
]

Principal = Annotated[
    str,
    BeforeValidator(
        matching(
            r"(?:role|user)/[A-Za-z0-9_+=,.@-]{1,64}",
            "role/NAME or user/NAME, an IAM role or user without its path",
        )
    ),
]

FileName = Annotated[
    str, BeforeValidator(matching(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", "a file name without a folder"))
]

_DEBIAN = """_apt _chrony backup bin chrony daemon games gnats irc landscape list lp mail man messagebus news
nobody ntp pollinate polkitd proxy root rpc statd sync sys syslog systemd-network systemd-resolve
systemd-timesync tcpdump tss uucp uuidd www-data"""
_OURS = "admin debian ec2-user ssm-user ubuntu munge mysql postgres slurm sshd sssd"

MACHINE_ACCOUNTS = frozenset(f"{_DEBIAN} {_OURS}".split())
"""Accounts of the machines that no person may be; some of them become root with sudo."""

MACHINE_GROUPS = frozenset(
    (
        "adm",
        "admin",
        "disk",
        "docker",
        "google-sudoers",
        "kvm",
        "libvirt",
        "lxd",
        "root",
        "shadow",
        "sudo",
        "wheel",
    )
)
"""Groups of the machines whose name is a right: sudo and others ask for the name, whatever the number."""


def _check_run_as(value: object) -> str:
    name = matching(r"[a-z_][a-z0-9_.-]{0,31}", "a Unix account of a person")(value)
    if name in MACHINE_ACCOUNTS:
        refuse(f"the Unix account of a person: {name!r} belongs to the machine")
    return name


RunAsUser = Annotated[UserName, BeforeValidator(_check_run_as)]


class Bind(Model):
    """Who reads the directory."""

    dn: DistinguishedName
    """The reader's entry; it needs no more rights than to read people and groups."""
    secret: Secret
    """Its password: a file on each node and where `hpctools identity` runs, or an AWS secret that is a JSON
    object with the key `password`."""


class Tls(Model):
    """Whose certificates the directory's servers have. There is no way to go without TLS."""

    ca_file: FilePath | None = None
    """CA certificates on each node; the system's when both are left out."""
    ca_certificate: Certificate | None = None
    """The CA certificates themselves; each node gets them."""

    @model_validator(mode="after")
    def _one(self) -> Tls:
        if self.ca_file is not None and self.ca_certificate is not None:
            refuse("either ca_file or ca_certificate")
        return self


class Cache(Model):
    """What a node remembers of the directory."""

    logins: bool = True
    """Whether people who logged in on a node before may do so while no server of the directory answers."""
    login_days: Annotated[int, Field(ge=1, le=365)] = 3
    """Days since somebody's last login with a server after which that ends."""
    entries: Duration = 5400
    """How long people and groups are taken from memory before a server is asked again."""


class Homes(Model):
    """Who makes home folders; they are for their owner alone (0700)."""

    make: Literal["at_login", "by_step", "never"] = "at_login"
    """`at_login`: pam_mkhomedir, where root of the node may write. `by_step`: the lifecycle step 27-homes on
    `make_on`, for a shared file system that takes root's rights away on other nodes."""
    make_on: Annotated[tuple[Literal["controller", "login", "compute"], ...], Field(min_length=1)] = (
        "controller",
    )
    """For `by_step`: the nodes whose root may write there."""
    root: FilePath = "/home"
    """The folder of the homes; a home is called like its owner, whatever the directory says."""
    skeleton: FilePath = "/etc/skel"
    """What a new home contains."""


class RunAs(Model):
    """Who somebody is in a Session Manager session: the tag SSMSessionRunAs, and never ssm-user."""

    principals: dict[Principal, RunAsUser] = Field(default_factory=dict)
    """The Unix account of each IAM role or user that one person has to themselves; with single sign-on it is
    an attribute of the person."""


class Identity(Model):
    """The directory that knows the people."""

    directory: Literal["ldap", "ad"]
    """OpenLDAP, 389 and their like, or Active Directory (nodes read it; they do not join it)."""
    domain: Domain
    """What sssd calls it."""
    uris: Annotated[tuple[DirectoryUri, ...], Field(min_length=1, max_length=8)]
    """Its servers, in the order in which they are asked; all ldaps, or all ldap with StartTLS."""
    base: DistinguishedName
    """Where everything is."""
    user_base: DistinguishedName | None = None
    """Where people are; `base` when left out."""
    group_base: DistinguishedName | None = None
    """Where groups are; `base` when left out."""
    tls: Tls = Tls()
    """Whose certificates are trusted."""
    bind: Bind | None = None
    """Who reads it; anonymous when left out."""
    ldap_schema: Literal["rfc2307", "rfc2307bis"] = "rfc2307"
    """How groups of `ldap` name their members: `memberUid`, or `member` with distinguished names."""
    posix_attributes: bool | None = None
    """Whether uid and gid numbers stand in the directory; when left out, they do for `ldap` and not for
    `ad`, where sssd computes them, alike on all nodes."""
    first_id: Annotated[int, Field(ge=1000, le=2_000_000_000)] = 1000
    """People and groups with smaller numbers do not exist on the nodes: those are the machine's own."""
    login_groups: tuple[DirectoryGroup, ...] = ()
    """Who may log in; the groups in `members_from` of departments and labs when left out."""
    login_filter: DirectoryFilter | None = None
    """Who may log in, as an LDAP filter on their entry, instead of `login_groups`. Locked and expired
    accounts are refused with it, also when they come with an SSH key."""
    shell: FilePath = "/bin/bash"
    """The shell of people who have none in the directory."""
    cache: Cache = Cache()
    """What is remembered."""
    homes: Homes = Homes()
    """Who makes homes."""
    members_file: FileName = "members.yaml"
    """The file beside the site file with what `hpctools identity sync` read: the people of all groups in
    `members_from`."""
    largest_removal_percent: Annotated[int, Field(ge=0, le=100)] = 20
    """When more people than this share of a group's, or of all groups' together, would go at once (and more
    than two), `hpctools identity sync` refuses: that is a broken directory more often than the truth."""
    run_as: RunAs = RunAs()
    """Who they are in Session Manager."""

    @model_validator(mode="after")
    def _consistent(self) -> Identity:
        if len({uri.partition(":")[0] for uri in self.uris}) > 1:
            refuse("uris that are all ldaps://, or all ldap://")
        if self.login_groups and self.login_filter:
            refuse("either login_groups or login_filter")
        if any(name.lower() in MACHINE_GROUPS for name in self.login_groups):
            refuse(
                "login_groups of the directory; nodes take no group of it that is called like one of theirs"
            )
        return self

    @property
    def numbers_in_directory(self) -> bool:
        """Whether uid and gid numbers are read from the directory."""
        return self.posix_attributes if self.posix_attributes is not None else self.directory == "ldap"
