"""A slurmdbd of dictionaries that carries out sacctmgr's commands, as the real one was seen to do.

The system test beside it (test_real_slurm.py) is what it was written from.
"""

from hpctools.conf import Account, AccountTree, Association, Command, Qos
from hpctools.conf.accounts import Beside, inherited, without_inherited
from hpctools.conf.vocabulary import ASSOCIATION_SETTINGS, QOS_SETTINGS, Setting, parse_tres

FRESH_QOS = {"Priority": "0", "PreemptMode": "cluster", "GraceTime": "00:00:00", "UsageFactor": "1.000000"}


class InUse(Exception):
    """What sacctmgr says when a job needs what is to be deleted."""


class FakeSlurmdbd:
    """Keeps what it is told as sacctmgr would show it.

    Attributes:
        jobs: (user, account, QoS) of jobs in the queue: what they need is not deleted.
    """

    def __init__(self) -> None:
        self.clusters: list[str] = []
        self.qos: dict[str, dict[str, str]] = {"normal": dict(FRESH_QOS)}
        self.accounts: dict[str, dict[str, str]] = {"root": {"parent": "", "Fairshare": "1", "QOS": "normal"}}
        self.coordinators: dict[str, list[str]] = {}
        self.users: dict[str, str] = {"root": "root"}
        self.associations: dict[tuple[str, str], dict[str, str]] = {("root", "root"): {"Fairshare": "1"}}
        self.jobs: set[tuple[str, str, str]] = set()

    def tree(self) -> AccountTree:
        """What parse_live would make of it."""
        accounts = [
            Account(
                name,
                row["parent"] or "root",
                _canonical(row, ASSOCIATION_SETTINGS),
                tuple(self.coordinators.get(name, ())),
            )
            for name, row in self.accounts.items()
        ]
        return AccountTree(
            clusters=tuple(self.clusters),
            qos=tuple(Qos(name, _canonical(row, QOS_SETTINGS)) for name, row in self.qos.items()),
            accounts=without_inherited(accounts),
            default_accounts=dict(self.users),
            associations=tuple(
                Association(user, account, _canonical(row, ASSOCIATION_SETTINGS))
                for (user, account), row in self.associations.items()
            ),
            beside=Beside(inherited=inherited(accounts)),
        )

    def carry_out(self, command: Command) -> None:
        """Do what `sacctmgr --immediate COMMAND` does; what it would refuse fails the test."""
        verb, entity, *rest = command
        getattr(self, f"_{verb}_{entity}")(rest)

    def load(self, text: str) -> None:
        """Do what `sacctmgr load` does with a file of only additions."""
        parent = "root"
        for line in text.splitlines():
            head, _, options = line.partition(":")
            kind, _, quoted = head.partition(" - ")
            name = quoted.strip("'")
            settings = dict(part.split("=", 1) for part in options.replace("'", "").split(":") if part)
            getattr(self, f"_load_{kind.lower()}")(name, parent, settings)
            parent = name if kind == "Parent" else parent

    def _load_cluster(self, name: str, _parent: str, settings: dict[str, str]) -> None:
        assert name in self.clusters
        assert not settings

    def _load_parent(self, name: str, _parent: str, _settings: dict[str, str]) -> None:
        assert name in self.accounts

    def _load_account(self, name: str, parent: str, settings: dict[str, str]) -> None:
        self._new_account(name, parent, _from_file(settings))

    def _load_user(self, name: str, account: str, settings: dict[str, str]) -> None:
        default = settings.pop("DefaultAccount")
        coordinated = settings.pop("Coordinator", "")
        if name not in self.users:
            self.users[name] = default
            for each in filter(None, coordinated.split(",")):
                self.coordinators.setdefault(each, []).append(name)
        self._new_association(name, account, _from_file(settings))

    def _add_cluster(self, rest: list[str]) -> None:
        assert rest[0] not in self.clusters
        self.clusters.append(rest[0])

    def _add_qos(self, rest: list[str]) -> None:
        (names,) = rest
        for name in names.removeprefix("name=").split(","):
            assert name not in self.qos
            self.qos[name] = dict(FRESH_QOS)

    def _modify_qos(self, rest: list[str]) -> None:
        where, changes = _split(rest)
        for other in filter(None, changes.get("Preempt", "").split(",")):
            assert other in self.qos
        _merge(self.qos[where["name"]], changes)

    def _add_account(self, rest: list[str]) -> None:
        changes = dict(part.split("=", 1) for part in rest)
        assert changes.pop("cluster") in self.clusters
        names, parent = changes.pop("name"), changes.pop("parent")
        for name in names.split(","):
            self._new_account(name, parent, changes)

    def _new_account(self, name: str, parent: str, changes: dict[str, str]) -> None:
        assert name not in self.accounts
        assert parent in self.accounts
        self.accounts[name] = {"parent": parent, "Fairshare": "1"}
        _merge(self.accounts[name], changes)

    def _modify_account(self, rest: list[str]) -> None:
        where, changes = _split(rest)
        if "parent" in changes:
            assert where["name"] not in (changes["parent"], *self._above(changes["parent"])), "a circle"
            assert changes["parent"] in self.accounts
        for names in (changes.get("QOS", ""), changes.get("DefaultQOS", "").removeprefix("-1")):
            assert set(filter(None, names.split(","))) <= self.qos.keys()
        _merge(self.accounts[where["name"]], changes)

    def _add_user(self, rest: list[str]) -> None:
        changes = dict(part.split("=", 1) for part in rest)
        names, account = changes.pop("name"), changes.pop("account")
        assert changes.pop("cluster") in self.clusters
        for name in names.split(","):
            self.users.setdefault(name, account)
            self._new_association(name, account, changes)

    def _new_association(self, user: str, account: str, changes: dict[str, str]) -> None:
        assert account in self.accounts
        assert (user, account) not in self.associations
        self.associations[user, account] = {"Fairshare": "1"}
        _merge(self.associations[user, account], changes)

    def _modify_user(self, rest: list[str]) -> None:
        where, changes = _split(rest)
        for name in where["name"].split(","):
            if "DefaultAccount" in changes:
                assert (name, changes["DefaultAccount"]) in self.associations
                self.users[name] = changes["DefaultAccount"]
            else:
                _merge(self.associations[name, where["account"]], changes)

    def _add_coordinator(self, rest: list[str]) -> None:
        changes = dict(part.split("=", 1) for part in rest)
        for name in changes["names"].split(","):
            assert name in self.users
            self.coordinators.setdefault(changes["account"], []).append(name)

    def _delete_coordinator(self, rest: list[str]) -> None:
        """One of them must be one of one of the accounts, not each of each."""
        changes = dict(part.split("=", 1) for part in rest)
        gone = set(changes["names"].split(","))
        rows = [self.coordinators.get(account, []) for account in changes["account"].split(",")]
        assert any(gone & set(names) for names in rows), "sacctmgr: nothing removed"
        for names in rows:
            names[:] = [name for name in names if name not in gone]

    def _delete_user(self, rest: list[str]) -> None:
        """Only associations go; a person without any goes with the last."""
        where = dict(part.split("=", 1) for part in rest[1:])
        rows = [(name, where["account"]) for name in where["name"].split(",")]
        if {job[:2] for job in self.jobs} & set(rows):
            raise InUse(rows)
        # "You can not remove the default account of a user": never default accounts and others in one call.
        assert len({self.users[user] == account for user, account in rows}) == 1
        for row in rows:
            self._forget(*row)

    def _forget(self, user: str, account: str) -> None:
        del self.associations[user, account]
        left = [held for name, held in self.associations if name == user]
        if not left:
            del self.users[user]
            for names in self.coordinators.values():
                names[:] = [name for name in names if name != user]
        elif self.users[user] == account:
            self.users[user] = ""

    def _delete_account(self, rest: list[str]) -> None:
        """Everything below it goes as well."""
        names = dict(part.split("=", 1) for part in rest[1:])["name"].split(",")
        assert set(names) <= self.accounts.keys()
        gone = [name for name in self.accounts if {name, *self._above(name)} & set(names)]
        if {job[1] for job in self.jobs} & set(gone):
            raise InUse(gone)
        for user, account in list(self.associations):
            if account in gone:
                self._forget(user, account)
        for name in gone:
            del self.accounts[name]
            self.coordinators.pop(name, None)

    def _delete_qos(self, rest: list[str]) -> None:
        """Lists lose the name."""
        for gone in dict(part.split("=", 1) for part in rest[1:])["name"].split(","):
            del self.qos[gone]
            rows = (*self.qos.values(), *self.accounts.values(), *self.associations.values())
            for row in rows:
                for key in ("QOS", "Preempt"):
                    names = row.get(key, "").split(",")
                    row[key] = ",".join(name for name in names if name and name != gone)

    def _above(self, name: str) -> list[str]:
        found = []
        while name := self.accounts[name]["parent"]:
            found.append(name)
        return found


def _split(rest: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """`where a=b set c=d` as two mappings."""
    at = rest.index("set")
    assert rest[0] == "where"
    where, changes = ([part.split("=", 1) for part in side] for side in (rest[1:at], rest[at + 1 :]))
    assert changes, "sacctmgr refuses to modify nothing"
    return dict(where), dict(changes)


def _merge(row: dict[str, str], changes: dict[str, str]) -> None:
    """TRES are merged one by one; -1 clears; all else replaces."""
    for key, value in changes.items():
        if "TRES" in key:
            counts = {**parse_tres(row.get(key, "")), **parse_tres(value)}
            row[key] = ",".join(f"{name}={count}" for name, count in counts.items() if count != "-1")
        elif key == "GraceTime":
            assert value.isdecimal(), "sacctmgr takes seconds here"
            row[key] = f"{int(value) // 3600:02}:{int(value) // 60 % 60:02}:{int(value) % 60:02}"
        else:
            row[key] = "" if value == "-1" else value


def _from_file(settings: dict[str, str]) -> dict[str, str]:
    words = {
        "MaxTRESPerJob": "MaxTRES",
        "MaxWallDurationPerJob": "MaxWall",
        "MaxTRESMinsPerJob": "MaxTRESMins",
    }
    renamed = {words.get(key, key): value for key, value in settings.items()}
    for key in {"MaxWall", "GrpWall"} & renamed.keys():
        minutes = int(renamed[key])
        renamed[key] = f"{minutes // 1440}-{minutes // 60 % 24:02}:{minutes % 60:02}:00"
    return renamed


def _canonical(row: dict[str, str], known: dict[str, Setting]) -> dict[str, str]:
    return {key: setting.canonical(row.get(key, "")) for key, setting in known.items()}
