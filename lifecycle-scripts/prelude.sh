# shellcheck shell=bash
# The strict shell prelude: on_create.sh and each step in bash begin with `source "$HPCTOOLS_BUNDLE/prelude.sh"`.
set -Eeuo pipefail
shopt -s inherit_errexit
umask 022
export LC_ALL=C
export PATH="${PATH:-/usr/bin:/bin}:/usr/local/sbin:/usr/sbin:/sbin:/opt/slurm/sbin:/opt/slurm/bin"

say() { printf '%s\n' "$*"; }

# End the step: what happened, and what to do next. Exit code 78 means that trying again is of no use.
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}
give_up() {
  printf 'error: %s\n' "$*" >&2
  exit 78
}

trap 'printf "error: line %s of %s: exit code %s\n" "$LINENO" "${BASH_SOURCE[0]##*/}" "$?" >&2' ERR

# Print one value of the settings by its path, `setting mounts.0.path`; nothing when there is none.
setting() {
  "${HPCTOOLS_PYTHON:-python3}" - "$HPCTOOLS_SETTINGS" "$1" <<'PYTHON'
import json, sys
value = json.load(open(sys.argv[1], encoding="utf-8"))
for word in sys.argv[2].split("."):
    if isinstance(value, list):
        value = value[int(word)] if word.isdigit() and int(word) < len(value) else None
    else:
        value = (value or {}).get(word)
if value is not None:
    print(value if isinstance(value, str) else json.dumps(value))
PYTHON
}
