"""A real slapd on a machine of its own: the people of the test cluster, behind TLS."""

from __future__ import annotations

from collections.abc import Iterable

from hpctools.sandbox.hosts import Host

BASE = "dc=uni,dc=example"
READER, PASSWORD = f"cn=reader,{BASE}", "not-so-secret"
FIRST_UID = 20001
CONFIG = f"""\
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/nis.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile /run/slapd.pid
TLSCACertificateFile /etc/ldap/ca.pem
TLSCertificateFile /etc/ldap/server.pem
TLSCertificateKeyFile /etc/ldap/server.key
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="{READER}" read by * none
database mdb
suffix "{BASE}"
rootdn "cn=root,{BASE}"
directory /var/lib/ldap
index uid,uidNumber,gidNumber,memberUid,cn eq
"""
TOP = f"""\
dn: {BASE}
objectClass: dcObject
objectClass: organization
dc: uni
o: University

dn: ou=people,{BASE}
objectClass: organizationalUnit
ou: people

dn: ou=groups,{BASE}
objectClass: organizationalUnit
ou: groups

dn: {READER}
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: reader
userPassword: {PASSWORD}
"""
PERSON = """
dn: uid={name},ou=people,{base}
objectClass: inetOrgPerson
objectClass: posixAccount
uid: {name}
cn: {name}
sn: {name}
uidNumber: {uid}
gidNumber: {uid}
homeDirectory: /home/{name}
loginShell: /bin/bash

dn: cn={name},ou=groups,{base}
objectClass: posixGroup
cn: {name}
gidNumber: {uid}
"""
GROUP = """
dn: cn={name},ou=groups,{base}
objectClass: posixGroup
cn: {name}
gidNumber: {gid}
{members}
"""
CERTIFICATES = """\
set -eu
cd /etc/ldap
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 7 -subj /CN=ca \
  -keyout ca.key -out ca.pem 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=directory-1 \
  -keyout server.key -out server.csr 2>/dev/null
printf 'subjectAltName=DNS:directory-1,IP:%s' "$1" >san
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 7 -extfile san \
  -out server.pem 2>/dev/null
slapadd -f slapd.conf -l people.ldif
"""
UNIT = """\
[Service]
Type=forking
PIDFile=/run/slapd.pid
ExecStart=/usr/sbin/slapd -f /etc/ldap/slapd.conf -h ldaps:///
"""


def serve(host: Host, people: Iterable[str], groups: dict[str, tuple[str, ...]]) -> str:
    """Start the directory; return the certificate that nodes must trust.

    Args:
        host: the machine.
        people: Unix accounts; numbered from 20001 on.
        groups: members by group.
    """
    numbered = enumerate(people, FIRST_UID)
    entries = [PERSON.format(name=name, uid=uid, base=BASE) for uid, name in numbered]
    for gid, (name, members) in enumerate(groups.items(), 30001):
        lines = "\n".join(f"memberUid: {member}" for member in members)
        entries.append(GROUP.format(name=name, gid=gid, members=lines, base=BASE))
    host.write("/etc/ldap/people.ldif", TOP + "".join(entries))
    host.write("/etc/ldap/slapd.conf", CONFIG)
    host.write("/etc/systemd/system/slapd.service", UNIT)
    host.run(["sh", "-c", CERTIFICATES, "certificates", host.machine.address])
    host.run(["systemctl", "start", "slapd"])
    return host.read("/etc/ldap/ca.pem")
