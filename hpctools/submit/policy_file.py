"""`--elastic-policy FILE.yaml`: HyperPod's own names, read strictly, every problem with its line.

elasticPolicy:               {minReplicas: 2, maxReplicas: 8, replicaIncrementStep: 2, ...}
scale_config:                {4: {...}}          what the training shall know at a size
runPolicy, logMonitoringConfiguration, metrics   what the run is watched for (hpctools.elastic.recovery)
checkpoint                                       (hpctools.elastic.checkpoint)
preload:                     [torchvision]       modules that each node imports once, for all its workers
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from hpctools.elastic import checkpoint, recovery
from hpctools.elastic.policy import LARGEST, ElasticPolicy
from hpctools.elastic.recovery.fields import Fields
from hpctools.errors import ElasticError, SubmitError
from hpctools.site.document import Document, parse
from hpctools.site.findings import spell_path

LARGEST_FILE = 1 << 20
_SECTIONS = ("elasticPolicy", "scale_config", *recovery.PARTS, "checkpoint", "preload")
_TIMES = {
    "gracefulShutdownTimeoutInSeconds": "graceful_shutdown_s",
    "scalingTimeoutInSeconds": "scaling_timeout_s",
    "faultyScaleDownTimeoutInSeconds": "faulty_scale_down_s",
    "scaleUpSnoozeTimeInSeconds": "scale_up_snooze_s",
    "backOffLimitInSeconds": "back_off_limit_s",
}
_SIZES = ("minReplicas", "maxReplicas", "replicaIncrementStep", "replicaDiscreteValues")
_ELASTIC = (*_SIZES, *_TIMES, "scale_config")
_SIZE = re.compile(r"[1-9][0-9]{0,5}")  # 08 would be 8 a second time
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_OWN_PLACE = re.compile(r"checkpoint: \w+ \(\w+\) ")
_MANIFEST = "this is a manifest for Kubernetes; keep what stands under its `spec`, without replicaSpecs"
_FOREIGN = {
    **dict.fromkeys(("apiVersion", "kind", "metadata", "spec"), _MANIFEST),
    "elastic_policy": "write elasticPolicy with minReplicas and maxReplicas (this is a recipe's spelling)",
    "replicaSpecs": "leave it out: sbatch's options say what a node has",
    **dict.fromkeys(
        ("mode", "elasticMode", "elastic-mode", "elastic_mode"),
        "give it on the command line: hp-submit --elastic-mode=live or restart (runPolicy.mode is another)",
    ),
    "nprocPerNode": "give hp-submit --ntasks-per-node",
    **dict.fromkeys(_ELASTIC[:-1], "it belongs under elasticPolicy:"),
}


@dataclass(frozen=True)
class PolicyFile:
    """What a policy file says.

    Attributes:
        sizes: allowed totals of nodes, ascending; empty when the file leaves them to `--nodes`.
        settings: `ElasticPolicy`'s other attributes.
        recovery, checkpoint: these sections as JSON values, checked.
        preload: modules; None: it has no such section.
        name: the file as the user named it.
        lines: where each place of the file stands.
    """

    sizes: tuple[int, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    recovery: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: Mapping[str, Any] = field(default_factory=dict)
    preload: tuple[str, ...] | None = None
    name: str = ""
    lines: Mapping[str, int] = field(default_factory=dict)

    def place(self, path: str) -> str:
        """The file and the line of a place in it, for messages."""
        return f"{self.name} line {self.lines[path]}" if path in self.lines else self.name

    def check_sizes(self, sizes: tuple[int, ...]) -> None:
        """Refuse settings for sizes that the run never has, where `--nodes` alone says which it has.

        Raises:
            SubmitError: has a line for each of them.
        """
        strange = [size for size in self.settings.get("scale_config", {}) if size not in sizes]
        remedy = f"allowed by --nodes: {', '.join(map(str, sizes))}"
        paths = [f"{at}scale_config.{size}" for size in strange for at in ("", "elasticPolicy.")]
        found = [path for path in paths if path in self.lines]
        if found:
            raise SubmitError(
                "\n".join(f"{self.place(each)}: {each}: is no size of the run; {remedy}" for each in found)
            )

    def policy(self, sizes: tuple[int, ...]) -> ElasticPolicy:
        """The policy for these sizes."""
        return ElasticPolicy(sizes, **self.settings)


def read_policy(path: Path) -> PolicyFile:
    """Read and check a policy file.

    Raises:
        SubmitError: it cannot be read, or something in it is not known or makes no sense; the message has
            a line for each.
    """
    return parse_policy(_text(path), str(path))


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if len(data) <= LARGEST_FILE:
            said = f"{path}: bytes that are no UTF-8 at offset {error.start}"
            raise SubmitError(said, "give a policy in YAML") from None
    except OSError as error:
        said = f"cannot read the policy {path}: {(error.strerror or str(error)).lower()}"
        raise SubmitError(said, "check the name after --elastic-policy") from None
    if len(data) > LARGEST_FILE:
        raise SubmitError(f"{path} is larger than {LARGEST_FILE} bytes", "give a policy in YAML")
    return text


def parse_policy(text: str, name: str) -> PolicyFile:
    """Check the text of a policy file.

    Args:
        name: the file's, for messages.

    Raises:
        SubmitError: as `read_policy`.
    """
    document = parse(text, name, of="a policy")
    if document.findings:
        raise SubmitError("\n".join(map(str, document.findings)))
    values = _plain(document.data)
    if not isinstance(values, dict) or not values:
        raise SubmitError(
            f"{name}: holds no policy", "write elasticPolicy: and under it minReplicas: and maxReplicas:"
        )
    problems: list[str] = []
    sections = Fields(values, "", problems, _SECTIONS, _FOREIGN)
    elastic = Fields(_section(sections, "elasticPolicy"), "elasticPolicy", problems, _ELASTIC, _FOREIGN)
    sizes = _sizes(elastic)
    settings = _times(elastic) | {"scale_config": _scale_config(elastic, sections, sizes)}
    parts = {part: values[part] for part in recovery.PARTS if values.get(part) is not None}
    problems += _told(lambda: _check_recovery(parts))
    saving = _saving(sections, problems)
    preload = _preload(sections)
    if problems:
        places = _places(document)
        raise SubmitError("\n".join(_placed(name, places, problem) for problem in problems))
    return PolicyFile(sizes, settings, parts, saving, preload, name, _places(document))


_SOURCE = "the policy"
_SAVING = tuple(checkpoint.to_json(checkpoint.Checkpoint()))
_PLACES = ("folder", "resumeFrom")
_IN_FULL = "write it in full, or say it in the script: elastic.Checkpoint(...) with os.path.expandvars"


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _section(sections: Fields, name: str) -> object:
    """What stands under a name; nothing is as good as an empty mapping, and `false` is none."""
    value = sections.value(name)
    return {} if value is None else value


def _check_recovery(parts: dict[str, Any]) -> None:
    read = recovery.parse(parts, _SOURCE)
    pointless = [*recovery.without_a_rung(parts, read), *recovery.never_find(parts, read)]
    if pointless:
        raise ElasticError("\n".join(pointless))


def _told(check: Callable[[], object]) -> list[str]:
    try:
        check()
    except ElasticError as error:
        return [line.removeprefix(f"{_SOURCE}: ") for line in str(error).splitlines()]
    return []


def _saving(sections: Fields, problems: list[str]) -> dict[str, Any]:
    """The section about checkpoints, each value by itself, so that all that is wrong is told."""
    values = _section(sections, "checkpoint")
    section = Fields(values, "checkpoint", problems, _SAVING)
    given = {name: section.value(name) for name in _SAVING if isinstance(values, dict) and name in values}
    for name, value in given.items():
        told = _told(partial(checkpoint.parse, {name: value}))
        problems += [f"checkpoint.{name}: {_OWN_PLACE.sub('', each)}" for each in told]
        if name in _PLACES and isinstance(value, str) and "$" in value:
            section.wrong(name, f"is {value!r}, and no variable is filled in", _IN_FULL)
    return given


def _preload(sections: Fields) -> tuple[str, ...] | None:
    """Names of modules; an empty list asks for torch and the library alone."""
    values = sections.value("preload")
    if values is None:
        return None
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        sections.wrong("preload", f"{values!r} is no list of modules", "write [torchvision, my_models]")
        return None
    for place, each in enumerate(values):
        if not _MODULE.fullmatch(each):
            sections.wrong(
                f"preload[{place}]", f"{each!r} is no module's name", "write it as `import` takes it"
            )
    return tuple(values)


def _times(elastic: Fields) -> dict[str, Any]:
    """Seconds; what is not given keeps the policy's own default."""
    given = {name: attribute for name, attribute in _TIMES.items() if elastic.has(name)}
    return {attribute: elastic.number(name, 0.0, least=0.0) for name, attribute in given.items()}


def _sizes(elastic: Fields) -> tuple[int, ...]:
    """The allowed totals; none when the section does not name any."""
    if not any(elastic.has(name) for name in _SIZES):
        return ()
    low = elastic.count("minReplicas", 0) if elastic.has("minReplicas") else None
    high = elastic.count("maxReplicas", 0) if elastic.has("maxReplicas") else None
    if elastic.has("replicaDiscreteValues"):
        if elastic.has("replicaIncrementStep"):
            elastic.wrong(
                "replicaIncrementStep", "stands beside replicaDiscreteValues", "keep one of the two"
            )
        return _discrete(elastic, low, high)
    step = elastic.count("replicaIncrementStep", 1)
    for name, value in (("minReplicas", low), ("maxReplicas", high)):
        if value is None:
            elastic.wrong(name, "is missing", "give the least and the most nodes, or replicaDiscreteValues")
    if not low or not high:
        return ()
    if low > high:
        elastic.wrong("minReplicas", f"{low} is above maxReplicas, {high}", f"give {high} or less")
    if high > LARGEST:
        elastic.wrong("maxReplicas", f"{high} is too large", f"give {LARGEST} or less")
        return ()
    return tuple(range(low, high + 1, step))


def _discrete(elastic: Fields, low: int | None, high: int | None) -> tuple[int, ...]:
    values = elastic.value("replicaDiscreteValues")
    numbers = isinstance(values, list) and all(type(each) is int and 1 <= each <= LARGEST for each in values)
    if not numbers or not values:
        elastic.wrong("replicaDiscreteValues", f"{values!r} is no list of nodes", "write [2, 4, 8]")
        return ()
    if values != sorted(set(values)):
        meant = sorted(set(values))
        elastic.wrong("replicaDiscreteValues", "is not in ascending order, each once", f"write {meant}")
    bounds = (("minReplicas", low, min(values)), ("maxReplicas", high, max(values)))
    for name, bound, value in bounds:
        if bound is not None and bound != value:
            elastic.wrong(
                name, f"is {bound}, and replicaDiscreteValues says {value}", f"write {value}, or leave it out"
            )
    return tuple(values)


def _scale_config(elastic: Fields, sections: Fields, sizes: tuple[int, ...]) -> dict[int, dict[str, Any]]:
    """What the training shall know at a size, from either place; recipes have it beside the policy."""
    place = elastic if elastic.has("scale_config") else sections
    values = place.value("scale_config")
    if place is elastic and sections.has("scale_config"):
        elastic.wrong("scale_config", "stands beside the file's own scale_config", "keep one of the two")
    if values is None:
        return {}
    if not isinstance(values, dict):
        place.wrong("scale_config", "is no mapping", "write a size, a colon, and settings under it")
        return {}
    for size, settings in values.items():
        if not _SIZE.fullmatch(size) or (sizes and int(size) not in sizes):
            allowed = ", ".join(map(str, sizes)) or "1 or more"
            place.wrong(f"scale_config.{size}", "is no allowed number of nodes", f"allowed: {allowed}")
        elif not isinstance(settings, dict):
            place.wrong(f"scale_config.{size}", "is no mapping", "write settings under it")
    return {int(size): each for size, each in values.items() if _SIZE.fullmatch(size)}


def _placed(name: str, places: Mapping[str, int], problem: str) -> str:
    """A problem with the line of the place that it begins with, or of the nearest one around it."""
    path = re.match(r"[\w.\[\]-]*", problem)
    near = path[0] if path else ""
    while near and near not in places:
        near = re.sub(r"(^|\.|\[)[^.\[]*$", "", near)
    return f"{name} line {places.get(near, 1)}: {problem}"


def _places(document: Document) -> dict[str, int]:
    return {spell_path(location): line for location, line in document.lines.items()}
