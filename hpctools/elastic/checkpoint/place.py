"""Where a run's checkpoints are, and how its settings come together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpctools.elastic.actions import RollBack
from hpctools.elastic.checkpoint.selection import candidates
from hpctools.elastic.checkpoint.settings import S3, Checkpoint, parse, to_json
from hpctools.elastic.folder import Event, RunFolder
from hpctools.elastic.spec import RunSpec
from hpctools.errors import ElasticError

FOLDER_IN_RUN, RUN_FILE = "checkpoints", "run.json"
_PLACES = ("folder", "resumeFrom")


def settings_of(spec: RunSpec, script: Checkpoint | None) -> Checkpoint:
    """What counts in a run: what was said at submit, then what the training says, then the defaults.

    Paths are whole: one that was said at submit begins in the folder in which the command starts.

    Raises:
        ElasticError: a value makes no sense.
    """
    at_submit = {
        name: lasting(value, Path(spec.workdir)) if name in _PLACES and isinstance(value, str) else value
        for name, value in spec.checkpoint.items()
    }
    said: Mapping[str, Any] = {**to_json(settled(script or Checkpoint())), **at_submit}
    settings = parse(said)
    return replace(settings, resume_from=settings.resume_from or spec.resumed_from)


def settled(settings: Checkpoint) -> Checkpoint:
    """The settings with whole paths, so that a later os.chdir of the program does not move them."""
    folder, resume_from = (lasting(each, Path()) for each in (settings.folder, settings.resume_from))
    return replace(settings, folder=folder, resume_from=resume_from)


def place_of(folder: RunFolder, settings: Checkpoint) -> str:
    """Where a run's checkpoints are written to."""
    chosen = settings.folder or str(folder.path.absolute() / FOLDER_IN_RUN)
    if chosen.startswith(S3) or _path(chosen).is_absolute():
        return lasting(chosen, Path())
    return lasting(chosen, Path(folder.spec().workdir))


def lasting(place: str, base: Path) -> str:
    """The same folder for all programs, whatever their own present folder is; an address as it is.

    Args:
        base: what a path is relative to.
    """
    if not place or place.startswith(S3):
        return place
    return str(base.absolute() / _path(place))


def _path(place: str) -> Path:
    try:
        return Path(place).expanduser()
    except RuntimeError:
        raise ElasticError(
            f"nobody is known on this node whose home folder {place} could be in", "give the path in full"
        ) from None


def meant_by(place: str) -> list[str]:
    """Where checkpoints may lie that a user means.

    A run's folder stands for the places that it saved to, and then for what it went on from itself, where
    nothing that it saved since has to be there.
    """
    if not place.startswith(S3) and (path := _path(place) / RUN_FILE).is_file():
        return _saved_to(RunFolder(path.parent))
    return [place] if place else []


def sources(own: str, settings: Checkpoint) -> list[str]:
    """Where a training looks for a checkpoint to begin from, its own place first.

    Args:
        own: where it saves; empty: nowhere.

    Raises:
        ElasticError: what `resume_from` names cannot be read.
    """
    try:
        return [each for each in (own, *meant_by(settings.resume_from)) if each]
    except OSError as error:
        raise ElasticError(
            f"cannot read {settings.resume_from}, from which the training should begin: "
            f"{error.strerror or error}",
            "make it readable on every node, or name another run or folder (checkpoint: resumeFrom)",
        ) from None


def nothing_whole(source: str, addition: str = "") -> ElasticError:
    """Why a training that was told what to go on from does not begin at step 0.

    Args:
        addition: what kind of checkpoint was looked for.
    """
    return ElasticError(
        f"the training should begin from a checkpoint in {source}, and there is no whole one{addition}",
        "name a run that has saved one (hp-submit --resume, checkpoint: resumeFrom), or none",
    )


def check_expected(found: str | None, place: str, expected: Callable[[], str | None]) -> None:
    """A run that sees nothing of what it has saved begins neither at step 0 nor where it began before.

    Args:
        found: the checkpoint that was found; None: there is none.
        place: where the run saves.
        expected: asks for what it has saved last.

    Raises:
        ElasticError: it has saved something that is not to be seen.
    """
    own = f"{place.rstrip('/')}/"
    if (found or "").startswith(own):
        return
    where = expected()
    if where is not None and where.startswith(own):  # elsewhere it is another training's of the same program
        raise ElasticError(
            f"the run has saved {where}, and there is no whole checkpoint any more",
            "see what became of that place on this node, where its file system may not be mounted; a run "
            "that is submitted anew begins from the beginning",
        )


def resume_source(text: str, runs: Path) -> str:
    """The folder or address that a user means: of checkpoints, of a run, a run's id, or one checkpoint.

    Args:
        runs: where the user's runs lie.

    Returns:
        An absolute path or s3:// address for `Checkpoint(resume_from=...)`.

    Raises:
        ElasticError: no checkpoint is there; says what was looked at.
    """
    place = text.rstrip("/") if text.startswith(S3) else str(_path_meant(text, runs))
    rejected: list[str] = []
    for each in meant_by(place):
        seen = candidates(each)
        if seen.usable:
            return each
        seen.check_read(0, None)
        rejected += seen.rejected
    reasons = f" ({rejected[0]})" if rejected else ""
    raise ElasticError(
        f"there is no whole checkpoint in {place}{reasons}",
        "give a run's id, its folder, a folder of checkpoints, one of them, or s3://bucket/prefix",
    )


def _path_meant(text: str, runs: Path) -> Path:
    path = Path(text).expanduser().absolute()
    return (runs / text).absolute() if not path.exists() and "/" not in text else path


def _saved_to(folder: RunFolder) -> list[str]:
    """Where a run's settings say, and where its workers said last (their program may have its own)."""
    events = list(folder.events())
    said = [str(event.detail.get("where", "")) for event in events if event.event == "saved"]
    places = [place_of(folder, settings_of(folder.spec(), None)), *(each.rpartition("/")[0] for each in said)]
    return list(dict.fromkeys([*places[-1:], *places[:1], *_gone_on_from(events)]))


def _gone_on_from(events: Sequence[Event]) -> list[str]:
    """The checkpoints that its workers began from, the last one first, back to a save that has to be there.

    Older ones must not take the place of that save where it is not to be seen. One before a roll back may be
    void, and need not be.
    """
    found, went_back = [], False
    for each in reversed(events):
        if each.event == "resumed":
            found.append(str(each.detail.get("where", "")))
        elif each.event == "action" and each.detail.get("action") == RollBack.__name__:
            went_back = True
        elif each.event == "saved" and not each.detail.get("rolled_back") and not went_back:
            break
    return [each for each in found if each]
