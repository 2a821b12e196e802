"""File systems and the accounting database; both outlive the stack."""

from __future__ import annotations

from typing import Any

from hpctools.hyperpod.stack.context import Context, word
from hpctools.hyperpod.stack.intrinsic import Json, Part, attribute, ref, resource, sub
from hpctools.hyperpod.stack.network import place
from hpctools.hyperpod.stack.security import (
    LUSTRE_PORTS,
    MARIADB,
    OPENZFS_PORTS,
    from_nodes,
    group,
    group_id,
    rule,
)
from hpctools.site.aws_storage import FileSystem, ManagedDatabase

_BACKUP_TIME = "03:00"  # UTC
_LUSTRE_VERSION = "2.15"  # FSx: the newest with clients for HyperPod's images
DATABASE_USER = "slurm"
DATABASE_NAME = "slurm_acct_db"


def file_systems(context: Context) -> Part:
    """The FSx file systems that are not there already, with a security group for each kind of them."""
    made: Json = {}
    outputs: Json = {}
    wanted = [system for system in context.aws.file_systems if system.existing is None]
    for system in wanted:
        name = f"FileSystem{word(system.name)}"
        made[name] = _file_system(context, system)
        outputs |= _where(system, name)
    for kind in dict.fromkeys(system.kind for system in wanted):
        made |= _group(context, kind)
    return Part(made, outputs)


_GROUPS = {"lustre": "LustreSecurityGroup", "openzfs": "OpenZfsSecurityGroup"}


def _group(context: Context, kind: str) -> Json:
    ports = LUSTRE_PORTS if kind == "lustre" else OPENZFS_PORTS
    made = {_GROUPS[kind]: group(context, kind, from_nodes(ports, "from the nodes"))}
    return made | (_lustre_among_itself() if kind == "lustre" else {})


def _where(system: FileSystem, name: str) -> Json:
    found = {f"{name}Id": ref(name)}
    if system.kind == "openzfs":
        return found | {f"{name}DnsName": attribute(name, "DNSName")}
    # AWS::FSx::FileSystem returns a DNS name by attribute, too; for Lustre it is made of the id.
    return found | {
        f"{name}DnsName": attribute(name, "DNSName"),
        f"{name}MountName": attribute(name, "LustreMountName"),
    }


def _file_system(context: Context, system: FileSystem) -> Json:
    lustre = system.kind == "lustre"
    properties = {
        "FileSystemType": "LUSTRE" if lustre else "OPENZFS",
        "FileSystemTypeVersion": _LUSTRE_VERSION if lustre else None,
        "KmsKeyId": context.aws.kms_key,
        "SecurityGroupIds": [group_id(_GROUPS[system.kind])],
        "StorageCapacity": system.size_gib,
        "StorageType": "SSD",
        "SubnetIds": [place(context).subnets[0]],
        "Tags": context.named(system.name),
        **({"LustreConfiguration": _lustre(system)} if lustre else {"OpenZFSConfiguration": _zfs(system)}),
    }
    return resource("AWS::FSx::FileSystem", properties, kept="RetainExceptOnCreate")


def _lustre_among_itself() -> Json:
    """Lustre's servers speak with each other and back to the clients on the same ports."""
    servers = group_id(_GROUPS["lustre"])
    made = {}
    for number, (protocol, first, last) in enumerate(LUSTRE_PORTS, start=1):
        ports = {"IpProtocol": protocol, "FromPort": first, "ToPort": last}
        inside = {"GroupId": servers, "SourceSecurityGroupId": servers, **ports}
        out = {"GroupId": servers, "DestinationSecurityGroupId": servers, **ports}
        back = {"GroupId": servers, "DestinationSecurityGroupId": group_id("NodeSecurityGroup"), **ports}
        made[f"LustreInside{number}"] = resource("AWS::EC2::SecurityGroupIngress", inside)
        made[f"LustreOutside{number}"] = resource("AWS::EC2::SecurityGroupEgress", out)
        made[f"LustreBack{number}"] = resource("AWS::EC2::SecurityGroupEgress", back)
    return made


def _lustre(system: FileSystem) -> Json:
    made: Json = {
        "DeploymentType": "PERSISTENT_2",
        "PerUnitStorageThroughput": system.throughput_mb_s,
        "DataCompressionType": "LZ4",
        "MetadataConfiguration": {"Mode": "AUTOMATIC"},
    }
    return made | _backups(system) | {"CopyTagsToBackups": True}


def _zfs(system: FileSystem) -> Json:
    exports = {"ClientConfigurations": [{"Clients": "*", "Options": ["rw", "crossmnt", "no_root_squash"]}]}
    made: Json = {
        "DeploymentType": "SINGLE_AZ_HA_2",
        "ThroughputCapacity": system.throughput_mb_s,
        "RootVolumeConfiguration": {"DataCompressionType": "LZ4", "NfsExports": [exports]},
    }
    return made | _backups(system) | {"CopyTagsToBackups": True, "CopyTagsToVolumes": True}


def _backups(system: FileSystem) -> Json:
    made: Json = {"AutomaticBackupRetentionDays": system.backup_days}
    return made | ({"DailyAutomaticBackupStartTime": _BACKUP_TIME} if system.backup_days else {})


def database(context: Context) -> Part:
    """A MariaDB for slurmdbd, with a password that only Secrets Manager and slurmdbd know."""
    wanted = context.aws.accounting_database
    if wanted is None:
        return Part()
    made = {
        "DatabaseSecurityGroup": group(context, "database", _database_rules(context)),
        "DatabaseSubnets": _database_subnets(context),
        "DatabaseParameters": _database_parameters(context, wanted),
        "DatabaseSecret": secret(context, "slurmdbd's user", DATABASE_USER),
        "DatabaseSecretAttachment": _attachment(),
        "Database": _database(context, wanted),
    }
    outputs = {
        "DatabaseEndpoint": attribute("Database", "Endpoint.Address"),
        "DatabasePort": attribute("Database", "Endpoint.Port"),
        "DatabaseSecretArn": ref("DatabaseSecret"),
    }
    return Part(made, outputs)


def _database_rules(context: Context) -> list[Json]:
    nodes = group_id("NodeSecurityGroup")
    return [rule("tcp", (MARIADB, MARIADB), "slurmdbd on the controller", source=nodes)]


def _database_subnets(context: Context) -> Json:
    properties = {
        "DBSubnetGroupDescription": f"{context.cluster}: accounting",
        "SubnetIds": list(place(context).subnets),
        "Tags": context.named("accounting"),
    }
    return resource("AWS::RDS::DBSubnetGroup", properties)


def _database_parameters(context: Context, wanted: ManagedDatabase) -> Json:
    """What slurmdbd asks for: see Slurm's accounting guide, "MySQL configuration"."""
    properties = {
        "Description": f"{context.cluster}: slurmdbd",
        "Family": f"mariadb{wanted.version.rpartition('.')[0]}",
        "Parameters": {"innodb_lock_wait_timeout": "900", "max_allowed_packet": "16777216"},
        "Tags": context.named("accounting"),
    }
    return resource("AWS::RDS::DBParameterGroup", properties)


def secret(context: Context, about: str, user: str) -> Json:
    """A secret whose password AWS makes; the template never has it."""
    properties = {
        "Description": f"{context.cluster}: {about}",
        "GenerateSecretString": {
            "SecretStringTemplate": f'{{"username": "{user}"}}',
            "GenerateStringKey": "password",
            "PasswordLength": 32,
            "ExcludeCharacters": "\"'@/\\ #;%",
        },
        "KmsKeyId": context.aws.kms_key,
        "Tags": context.tag_list(),
    }
    return resource("AWS::SecretsManager::Secret", properties, kept="RetainExceptOnCreate")


def from_secret(name: str, key: str) -> Any:
    """A value that CloudFormation reads in Secrets Manager when it needs it."""
    return sub(f"{{{{resolve:secretsmanager:${{{name}}}:SecretString:{key}}}}}")


def _attachment() -> Json:
    properties = {
        "SecretId": ref("DatabaseSecret"),
        "TargetId": ref("Database"),
        "TargetType": "AWS::RDS::DBInstance",
    }
    return resource("AWS::SecretsManager::SecretTargetAttachment", properties)


def _database(context: Context, wanted: ManagedDatabase) -> Json:
    properties = {
        "AllocatedStorage": str(wanted.size_gib),
        "AutoMinorVersionUpgrade": True,
        "BackupRetentionPeriod": wanted.backup_days,
        "CopyTagsToSnapshot": True,
        "DBInstanceClass": wanted.instance_class,
        "DBName": DATABASE_NAME,
        "DBParameterGroupName": ref("DatabaseParameters"),
        "DBSubnetGroupName": ref("DatabaseSubnets"),
        "DeletionProtection": True,
        "EnableCloudwatchLogsExports": ["error"],
        "Engine": "mariadb",
        "EngineVersion": wanted.version,
        "KmsKeyId": context.aws.kms_key,
        "MasterUserPassword": from_secret("DatabaseSecret", "password"),
        "MasterUsername": from_secret("DatabaseSecret", "username"),
        "MaxAllocatedStorage": wanted.size_gib * 4,
        "MultiAZ": wanted.standby,
        "PubliclyAccessible": False,
        "StorageEncrypted": True,
        "StorageType": "gp3",
        "Tags": context.named("accounting"),
        "VPCSecurityGroups": [group_id("DatabaseSecurityGroup")],
    }
    return resource("AWS::RDS::DBInstance", properties, kept="RetainExceptOnCreate")
