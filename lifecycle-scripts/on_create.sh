#!/usr/bin/env bash
# HyperPod runs this on a node when it is created, replaced or gets new software, as root. It may be run again
# at any time: what is done already is skipped. README.md beside it says what it promises.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source-path=SCRIPTDIR source=prelude.sh
source "$here/prelude.sh"

log=${HPCTOOLS_ROOT:-}/var/log/provision/provisioning.log
mkdir -p "${log%/*}" || true # a full disk stops the log, not the node

# The system's own Python first: images bring others that sit earlier on PATH and come and go with users.
python=/usr/bin/python3
[ -x "$python" ] || python=$(command -v python3) || die "there is no python3 on this node: use an image that has it"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
  die "$("$python" --version 2>&1) is too old: the steps need Python 3.10 or later"

exec "$python" "$here/run_steps.py" --log "$log" "$@"
