"""From an account tree to the departments, labs, people and tiers of a site file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationError

from hpctools.conf.accounts import ROOT, Account, AccountTree, Association
from hpctools.conf.existing.words import Words, limits, settings_words, tier
from hpctools.site.scalars import AccountName, TierName, UserName

_ACCOUNT: TypeAdapter[str] = TypeAdapter(AccountName)
_USER: TypeAdapter[str] = TypeAdapter(UserName)
_TIER: TypeAdapter[str] = TypeAdapter(TierName)


@dataclass(frozen=True)
class People:
    """The accounts' part of a site file.

    Attributes:
        departments: entries of `departments`, without partitions.
        tiers: entries of `tiers` by name.
        default_accounts: the entry of that name.
        left_out: what a site file cannot say, a sentence each; the cluster keeps it.
    """

    departments: list[Words]
    tiers: dict[str, Words]
    default_accounts: dict[str, str]
    left_out: tuple[str, ...]


def people(tree: AccountTree, descriptions: Mapping[str, str]) -> People:
    """Say an account tree in the words of a site file.

    Args:
        tree: without `root`'s own association.
        descriptions: what people call the accounts, by account.
    """
    writer = _Writer(tree, descriptions)
    tiers, default = writer.tiers()
    departments = [writer.department(account, default) for account in writer.below(ROOT)]
    writer.left_out += [
        f"{user} in account {name} for one partition only" for user, name in sorted(tree.beside.partitioned)
    ]
    return People(departments, tiers, writer.default_accounts(), tuple(writer.left_out))


@dataclass
class _Writer:
    tree: AccountTree
    descriptions: Mapping[str, str]
    left_out: list[str] = field(default_factory=list)
    held: dict[str, list[str]] = field(default_factory=dict)

    def tiers(self) -> tuple[dict[str, Words], str]:
        """Entries of all QoS, and the one that is the default."""
        named = [qos for qos in self.tree.qos if self._sayable(_TIER, qos.name, "QoS")]
        used = Counter(account.settings.get("DefaultQOS", "") for account in self.tree.accounts)
        names = [qos.name for qos in named]
        ranked = [name for name, _ in used.most_common() if name in names]
        default = next(iter([*ranked, *(name for name in names if name == "normal"), *names]), "normal")
        found = {qos.name: tier(qos.settings) for qos in named} or {"normal": {"priority": 0}}
        found[default]["default"] = True
        return found, default

    def below(self, parent: str) -> Iterator[Account]:
        """Accounts below one, in order of the tree."""
        for account in self.tree.accounts:
            if account.parent == parent and self._sayable(_ACCOUNT, account.name, "account"):
                yield account

    def department(self, account: Account, default: str) -> Words:
        """An account below the root; what its QoS are stands in settings unless the site says the same."""
        said = self.account(account)
        allowed = account.settings.get("QOS", "").split(",")
        names = [qos.name for qos in self.tree.qos]
        chosen = account.settings.get("DefaultQOS", "")
        plain = chosen == default and default in allowed and set(allowed) <= set(names)
        settings = said.pop("settings", {})
        if plain:
            settings = {key: value for key, value in settings.items() if key not in ("QOS", "DefaultQOS")}
            if set(allowed) != set(names):
                said["tiers"] = [name for name in names if name in allowed]
        else:
            settings = {**settings, "QOS": account.settings.get("QOS", ""), "DefaultQOS": chosen}
        labs = said.pop("labs", None)
        return {**said, **({"settings": settings} if settings else {}), **({"labs": labs} if labs else {})}

    def account(self, account: Account) -> Words:
        """An account with its people and those below it."""
        rows = [row for row in self.tree.associations if row.account == account.name]
        people = [row for row in rows if self._sayable(_USER, row.user, f"person in account {account.name}")]
        for row in people:
            self.held.setdefault(row.user, []).append(account.name)
        words: Words = {"name": account.name}
        if self.descriptions.get(account.name, account.name) != account.name:
            words["description"] = self.descriptions[account.name]
        words |= self._members(account, [row.user for row in people])
        labs = [self.account(lab) for lab in self.below(account.name)]
        words |= _share_and_limits(account.settings)
        single = {row.user: said for row in people if (said := _member(row))}
        _say_what_all_have_once(words, single, len(people), has_labs=bool(labs))
        words |= {"members_limits": single} if single else {}
        return {**words, **({"labs": labs} if labs else {})}

    def _members(self, account: Account, users: list[str]) -> Words:
        leading = [name for name in account.coordinators if name in users]
        for name in account.coordinators:
            if name not in leading[:1]:
                where = "beside its supervisor" if name in leading else "without being a member"
                self.left_out.append(f"{name} coordinates account {account.name} {where}")
        members = [name for name in users if name not in leading[:1]]
        return {
            **({"supervisor": leading[0]} if leading else {}),
            **({"members": members} if members else {}),
        }

    def default_accounts(self) -> dict[str, str]:
        """Default accounts of people who have several."""
        found: dict[str, str] = {}
        for user, accounts in self.held.items():
            default = self.tree.default_accounts.get(user, accounts[0])
            if default not in accounts:
                self.left_out.append(
                    f"the default account of {user} is {default}, where they are not a member"
                )
            elif len(accounts) > 1:
                found[user] = default
        return found

    def _sayable(self, name_type: TypeAdapter[str], name: str, what: str) -> bool:
        try:
            name_type.validate_python(name)
        except ValidationError:
            self.left_out.append(f"the {what} {name!r}: a site file has no such names")
            return False
        return True


def _say_what_all_have_once(words: Words, single: dict[str, Words], people: int, *, has_labs: bool) -> None:
    """The same number of GPUs for every member is a limit of the account; in labs it would be inherited."""
    stated = {said.get("gpus") for said in single.values()}
    if has_labs or len(single) != people or len(stated) != 1 or None in stated:
        return
    words["limits"] = {**words.get("limits", {}), "gpus_per_user": stated.pop()}
    for user, said in list(single.items()):
        del said["gpus"]
        if not said:
            del single[user]


def _share_and_limits(settings: Mapping[str, str]) -> Words:
    said, left = limits({key: value for key, value in settings.items() if key != "Fairshare"})
    share = settings.get("Fairshare", "")
    words: Words = {}
    if share.isdecimal() and 1 <= int(share) <= 1_000_000:
        words = {"fair_share": int(share)} if share != "1" else {}
    elif share:
        left = {**left, "Fairshare": share}
    return {**words, **({"limits": said} if said else {}), **settings_words(left)}


def _member(row: Association) -> Words:
    words = _share_and_limits(row.settings)
    return {**words.pop("limits", {}), **words}


def names_of(departments: Iterable[Words]) -> Iterator[str]:
    """The accounts of entries of `departments`, each before those below it."""
    for entry in departments:
        yield entry["name"]
        yield from names_of(entry.get("labs", ()))
