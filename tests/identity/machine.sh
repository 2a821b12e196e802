#!/bin/bash
# A machine of its own for sssd and sshd: own mounts and processes, the real machine's network. Nothing of the real
# machine is written, and every daemon ends with it.
# Usage, as root: unshare --mount --pid --fork --kill-child machine.sh FOLDER
set -euo pipefail
folder=$1

mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs tmpfs "$folder/disk"
for place in etc home usr/local usr/share/pam-configs var/lib var/log; do
  mkdir -p "$folder/disk/$place" "$folder/disk/work/$place"
  mount -t overlay overlay -o "lowerdir=/$place,upperdir=$folder/disk/$place,workdir=$folder/disk/work/$place" "/$place"
done
mount -t tmpfs tmpfs /run
mkdir -p /run/sshd /run/sssd
ln -sf "$folder/systemctl" /usr/local/bin/systemctl

# As a machine is on which sssd has never been configured.
sed -i "s/pam_unix.so nullok/& nodelay/" /usr/share/pam-configs/unix # wrong passwords cost no seconds
rm -rf /etc/sssd/sssd.conf /etc/sssd/conf.d/* /var/lib/sss/db/* /var/lib/sss/mc/* /var/lib/sss/pipes/nss /var/lib/sss/pipes/pam
sed -i -E 's/ sss( |$)/\1/' /etc/nsswitch.conf
DEBIAN_FRONTEND=noninteractive pam-auth-update --package --remove sss
groupadd --gid 1950 operators
useradd --create-home --uid 1900 --shell /bin/bash local-admin
echo 'local-admin:of-the-machine' | chpasswd
echo 'echo hello >/dev/null' >/etc/skel/.from-skeleton

ssh-keygen -q -t ed25519 -N '' -f /run/sshd/key
cat >/run/sshd/config <<TEXT
HostKey /run/sshd/key
PidFile /run/sshd/pid
UsePAM yes
PasswordAuthentication yes
KbdInteractiveAuthentication no
PermitRootLogin no
PrintMotd no
TEXT
echo ready
# Not exec: the first process has to reap what daemons leave behind.
sleep infinity &
wait
