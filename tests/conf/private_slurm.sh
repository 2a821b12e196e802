#!/bin/bash
# Runs a command among private Slurm daemons: own mounts, processes, host name and network, all in memory.
# Usage, as root: unshare --mount --pid --fork --kill-child --uts --net private_slurm.sh COMMAND...
# Nothing of the machine is written, and every daemon ends with the command.
set -euo pipefail

within() { # within SECONDS COMMAND...: wait until the command succeeds
    local limit=$((SECONDS + $1))
    shift
    until timeout 5 "$@" >/dev/null 2>&1; do
        if ((SECONDS >= limit)); then
            echo "private_slurm.sh: still failing: $*" >&2
            exit 1
        fi
        sleep 0.05
    done
}

mount --make-rprivate /
mount -t proc proc /proc
ip link set lo up
ip address add 10.99.0.1/32 dev lo # getaddrinfo's AI_ADDRCONFIG wants an address that is not loopback

mount -t tmpfs tmpfs /run
folder=/run/private
ln -s mysqld /run/mariadbd # where MariaDB's clients of later Debian suites look for the socket
mkdir -p "$folder"/{etc,log,spool/slurmctld,secret,data} /run/{slurm,munge,mysqld}
for place in /etc/slurm /var/log/slurm /var/spool; do
    [[ -d $place ]] || { echo "private_slurm.sh: $place is missing: apt-get install slurmctld slurmdbd" >&2; exit 1; }
done
mount --bind "$folder/etc" /etc/slurm
mount --bind "$folder/log" /var/log/slurm
mount --bind "$folder/spool" /var/spool
cp /etc/hosts "$folder/hosts"
echo "127.0.0.1 ctl-1" >>"$folder/hosts"
mount --bind "$folder/hosts" /etc/hosts
hostname ctl-1
chown slurm: /run/slurm /var/log/slurm /var/spool/slurmctld

head -c 1024 /dev/urandom >"$folder/secret/key"
chown -R munge: "$folder/secret" /run/munge
chmod 700 "$folder/secret"
chmod 400 "$folder/secret/key"
setpriv --reuid munge --regid munge --clear-groups munged --key-file="$folder/secret/key" \
    --log-file="$folder/secret/log" --pid-file=/run/munge/munged.pid --seed-file="$folder/secret/seed"

chown mysql: "$folder/data" /run/mysqld
mariadb-install-db --no-defaults --datadir="$folder/data" --user=mysql --skip-test-db \
    --innodb-log-file-size=8M \
    --auth-root-authentication-method=socket >"$folder/log/mariadb-install.log" 2>&1
mariadbd --no-defaults --user=mysql --datadir="$folder/data" --socket=/run/mysqld/mysqld.sock \
    --skip-networking --innodb-log-file-size=8M --innodb-flush-log-at-trx-commit=0 --loose-innodb-snapshot-isolation=OFF >"$folder/log/mariadb.log" 2>&1 &
within 30 mariadb --no-defaults -e 'select 1'
mariadb --no-defaults -e 'create database slurm_acct_db; create user slurm@localhost identified via unix_socket;
    grant all on slurm_acct_db.* to slurm@localhost'

"$@"
