#!/bin/sh
# Stands in for mount.lustre and mount.nfs: SOURCE is host@tcp:/name or host:/path; a folder that all machines
# share is shown at TARGET. Files /refuse-NAME and /hang-NAME on a machine make it fail there.
set -eu
source=$1 target=$2
name=$(printf '%s' "${source#*:/}" | tr '/' '_')
shared=/var/lib/stand-in/shared
if [ -e "/refuse-${name:-root}" ]; then
  echo "mount: $target: cannot mount $source: Connection refused" >&2
  exit 32
fi
while [ -e "/hang-${name:-root}" ]; do sleep 0.2; done
mkdir -p "$shared/${name:-root}"
exec mount --no-mtab --bind "$shared/${name:-root}" "$target"
