"""Commands that start another one: where in a command the program itself begins.

Sources: the help of coreutils 9.1, util-linux 2.38 and `uv run` (uv 0.13); docs.conda.io, `conda run`;
apptainer-exec(1); Nsight Systems' user guide: short options have their value in the next word, long ones
behind `=`. An option that is not known here is taken for one without a value.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from string import ascii_letters

MODULES = r"torch\.distributed\.(?:run|launch|launcher)"
PYTHON = r"python[\d.]*"
SHELL = r"(?:ba|da|z|k|mk)?sh"


@dataclass(frozen=True)
class Wrapper:
    """A command that starts another one.

    Attributes:
        verbs: the words one of which has to come first; empty: none.
        values: options that are followed by a value, in a word of its own.
        before: words that come between the options and the program, such as a container's image.
        is_elsewhere: the program's files, or what PATH means, are not those that are here.
        passes: it starts one program, once, with the environment and the files that it has itself.
        runs_modules: `-m` says that a module of Python's is the program.
    """

    verbs: tuple[str, ...] = ()
    values: Collection[str] = field(default_factory=frozenset)
    before: int = 0
    is_elsewhere: bool = False
    passes: bool = True
    runs_modules: bool = False


def _options(text: str) -> frozenset[str]:
    return frozenset(text.split())


_UV = _options("""
    --extra --no-extra --group --no-group --only-group --env-file -w --with --with-editable
    --with-requirements --package --index --default-index -i --index-url --extra-index-url -f --find-links
    -P --upgrade-package -C --config-setting --cache-dir --refresh-package -p --python --color --directory
    --project --config-file --resolution --prerelease --link-mode --exclude-newer --reinstall-package
""")
_ENVIRONMENTS = _options("""
    -n --name -p --prefix --cwd -r --root-prefix -a --attach -e --environment --manifest-path
    -C -P --directory
""")
_IMAGES = _options("""
    -B --bind --env --env-file --pwd --cwd -H --home -W --workdir -S --scratch -o --overlay --app --add-caps
    --drop-caps --network --network-args --hostname --dns --security --fusemount --mount --cpus --memory
    --apply-cgroups
""")
_CONTAINERS = _options("""
    -v --volume -e --env --env-file -w --workdir --name --gpus --shm-size --network --net --mount -u --user
    --ipc -p --publish --entrypoint --ulimit --device --cpus -m --memory -h --hostname -l --label --runtime
    --pid --pull --platform --tmpfs --cap-add --security-opt --volumes-from
""")
_MANAGER = Wrapper(("run",), _ENVIRONMENTS, is_elsewhere=True)
_APPTAINER = Wrapper(("exec", "run"), _IMAGES, before=1, is_elsewhere=True)
_DOCKER = Wrapper(("run", "exec"), _CONTAINERS, before=1, is_elsewhere=True, passes=False)
_NUMA = "-N --cpunodebind -m --membind -i --interleave -p --preferred -P --preferred-many -C --physcpubind"
WRAPPERS = {
    "env": Wrapper(values=_options("-u --unset -C --chdir")),
    "nice": Wrapper(values=_options("-n --adjustment")),
    "ionice": Wrapper(values=_options("-c --class -n --classdata")),
    "time": Wrapper(values=_options("-f --format -o --output")),
    "timeout": Wrapper(values=_options("-s --signal -k --kill-after"), before=1),
    "nohup": Wrapper(),
    "setsid": Wrapper(),
    "stdbuf": Wrapper(values=_options("-i --input -o --output -e --error")),
    "numactl": Wrapper(values=_options(_NUMA)),
    "taskset": Wrapper(before=1),
    "uv": Wrapper(("run",), _UV, is_elsewhere=True, runs_modules=True),
    **dict.fromkeys(("poetry", "pixi", "pipenv", "pdm", "rye", "conda", "mamba", "micromamba"), _MANAGER),
    **dict.fromkeys(("apptainer", "singularity"), _APPTAINER),
    **dict.fromkeys(("docker", "podman"), _DOCKER),
    "nsys": Wrapper(("profile",), frozenset(f"-{letter}" for letter in ascii_letters), passes=False),
}
"""By name."""
NAMES = "|".join(WRAPPERS)


def program_start(command: Sequence[str], *, passing: bool = False) -> int:
    """Where the program stands that a wrapper starts, also through several; 0: the first word is none.

    Where a wrapper says that its program is a module (`uv run -m`), that option is the place.

    Args:
        command: its words; at least one.
        passing: only through those that start one program with what they have themselves.
    """
    start = 0
    while (wrapper := WRAPPERS.get(PurePath(command[start]).name)) and (wrapper.passes or not passing):
        behind = _behind(wrapper, command, start + 1)
        if behind is None:
            break
        start = behind
        if command[start].startswith("-"):
            break
    return start


def is_elsewhere(wrappers: Sequence[str]) -> bool:
    """Whether what is here says nothing of the program behind these words: another environment, or PATH."""
    names = (PurePath(word).name for word in wrappers)
    known = [WRAPPERS[name] for name in names if name in WRAPPERS]
    return any(each.is_elsewhere for each in known) or any(word.startswith("PATH=") for word in wrappers)


def _behind(wrapper: Wrapper, command: Sequence[str], place: int) -> int | None:
    """Where the program stands behind a wrapper's own words, which begin at a place; None: it starts none."""
    left, verbs = wrapper.before, wrapper.verbs
    while place < len(command):
        word = command[place]
        if wrapper.runs_modules and not verbs and word in ("-m", "--module"):
            return place if place + 1 < len(command) else None
        if word in wrapper.values:
            place += 1
        elif word.startswith("-") or _is_assignment(word):
            pass
        elif verbs:
            if word not in verbs:
                return None
            verbs = ()
        elif left:
            left -= 1
        else:
            return place
        place += 1
    return None


def _is_assignment(word: str) -> bool:
    return re.match(r"[A-Za-z_]\w*=", word) is not None
