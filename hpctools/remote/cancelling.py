"""hp-cancel as a laptop asks for it: plain jobs of submissions by Slurm, elastic runs by hp-cancel itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hpctools.errors import HpctoolsError, UsageError
from hpctools.remote.local_submit import HereSlurm, Program, Said, listen
from hpctools.remote.lookup import lookup, with_job
from hpctools.remote.submissions import Record

_FOR_ALL = ("--json", "--debug")


@dataclass
class _Named:
    """What is meant by the words.

    Attributes:
        plain: submissions of plain jobs, by the word.
        others: what hp-cancel knows, or complains about.
        failures: of words that stand for no job, or for none that is known.
    """

    plain: dict[str, Record] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    failures: list[HpctoolsError] = field(default_factory=list)


def cancel(words: Sequence[str], program: Program, pass_on: Callable[[str], None] | None = None) -> Said:
    """Cancel what is named; a name of which nothing is known does not keep the others' jobs running.

    Args:
        pass_on: is given what hp-cancel says to a person while it waits, as `listen`.

    Raises:
        UsageError: an option that is for elastic runs only, and a plain job; nothing was cancelled.
    """
    options = [word for word in words if word.startswith("-") and word != "--"]
    named = _named([word for word in words if not word.startswith("-")], program)
    for odd in (each for each in options if each not in _FOR_ALL and named.plain):
        raise UsageError(
            f"{next(iter(named.plain))} is a plain job, for which there is no {odd}; nothing was cancelled",
            f"leave out {odd} to cancel it",
        )
    text = _plainly(named.plain, as_json="--json" in options)
    errors = "".join(f"hp-cancel: {error}\n" for error in named.failures)
    code = named.failures[0].exit_code if named.failures else 0
    if not named.others and (named.plain or named.failures):
        return Said(code, text, errors)
    said = listen(program, [*options, *named.others], pass_on)
    return Said(code or said.code, text + said.stdout, errors + said.stderr)


def _named(names: Sequence[str], program: Program) -> _Named:
    made = _Named()
    for name in dict.fromkeys(names):
        try:
            found = lookup(name)
            record = with_job(*found, HereSlurm(found[0], program, ())) if found else None
        except HpctoolsError as error:
            made.failures.append(error)
            continue
        if record is None or record.run:
            made.others.append(record.run if record else name)
        else:
            made.plain[name] = record
    return made


def _plainly(plain: dict[str, Record], *, as_json: bool) -> str:
    from hpctools.slurm.choose import choose

    if plain:
        choose("auto").client.cancel([each.job_id for each in plain.values() if each.job_id])
    if as_json:
        lines = ({"id": each.id, "job_id": each.job_id} for each in plain.values())
        return "".join(f"{json.dumps(line)}\n" for line in lines)
    return "".join(f"{word}: cancelled job {each.job_id}\n" for word, each in plain.items())
