"""On which Slurm releases tests with real daemons run (`--slurm`), and how many tests (`--slow`, `--long`).

A test that takes the fixture `slurm_release` runs on this machine's own Slurm. One that is also marked
`releases` runs on every release that `--slurm` names; `releases(all="long")` marks one that takes long, which
runs on the first of these alone, and on all with `--long`. A release that cannot be had is told in the
last lines of the output as NOT TESTED; its tests are not counted at all, least of all as passed.

A test that is marked `slow`, or stands in slow_tests.txt, runs with `--slow`, as CI does for each change, and
with `--long`; one that is marked `long` with `--long` only, as every night. Whoever names a test
(`FILE::TEST`) gets it. One that takes the fixture `thorough` goes less deep without `--long`. The first lines
say which of these it is.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field

import hypothesis
import pytest

from hpctools.errors import HpctoolsError
from hpctools.sandbox import releases
from tests.slow_list import slow_tests
from tests.spread import Spread, slowest_first

SLOW = frozenset(slow_tests())

# How long an example takes is a matter of who else works on the machine.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")

OWN = ""
NOWHERE = "none"


@dataclass(frozen=True)
class Choice:
    """The releases to test on.

    Attributes:
        names: what `up(slurm=...)` takes; empty for the machine's own.
        untested: why a release that was asked for is not tested, by name.
    """

    names: tuple[str, ...] = (OWN,)
    untested: dict[str, str] = field(default_factory=dict)


CHOICE = pytest.StashKey[Choice]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slurm",
        default="own",
        metavar="RELEASES",
        help="Slurm releases to test on: own (default), all, or names such as 24.11,26.05",
    )
    parser.addoption("--slow", action="store_true", help="run the slow tests, too, as CI does")
    parser.addoption(
        "--long", action="store_true", help="run slow and long tests, too, and all of them in full"
    )


def pytest_configure(config: pytest.Config) -> None:
    # Whoever starts us in the background may have us ignore these, and tests of them need what is usual.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    config.addinivalue_line("markers", "releases(all): runs on every Slurm release that --slurm names")
    config.addinivalue_line("markers", "slow: runs with --slow or --long only")
    config.addinivalue_line("markers", "long: runs with --long only")
    config.stash[CHOICE] = _choose(config.getoption("--slurm"))
    if getattr(config.option, "dist", "no") != "no":  # xdist registers its session only after us
        config.pluginmanager.register(Spread())


def _choose(stated: str) -> Choice:
    if stated == "own":
        return Choice()
    try:
        own = releases.own().name
    except HpctoolsError as error:
        raise pytest.UsageError(str(error)) from None
    everything = [own, *(name for name in releases.SUITES if name != own)]
    words = everything if stated == "all" else stated.split(",")
    strangers = sorted(set(words) - set(releases.SUITES) - {own})
    if strangers:
        raise pytest.UsageError(f"--slurm: no release {strangers[0]!r}; there are {', '.join(everything)}")
    untested = {name: why for name in words if name != own and (why := releases.lack(name))}
    return Choice(tuple(OWN if name == own else name for name in words if name not in untested), untested)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    choice = metafunc.config.stash[CHOICE]
    if "slurm_release" not in metafunc.fixturenames or choice == Choice():
        return
    marker = metafunc.definition.get_closest_marker("releases")
    names = [name for name in choice.names if marker or name == OWN] or [NOWHERE]
    if marker and "all" in marker.kwargs and not metafunc.config.getoption("--long"):
        names = names[:1]
    ids = [name or "own" for name in names]
    metafunc.parametrize("slurm_release", names, ids=ids, indirect=True, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has no release to run on; without the machine's own only what runs elsewhere is left."""
    slowest_first(items)
    for item in items:
        if item.nodeid.partition("[")[0] in SLOW:
            item.add_marker("slow")
    choice = config.stash[CHOICE]
    if choice != Choice():
        _leave_out(config, items, lambda item: _release(item) not in choice.names)
    for marker in _too_long(config):
        _leave_out(config, items, lambda item: item.get_closest_marker(marker) is not None)  # noqa: B023


def _too_long(config: pytest.Config) -> tuple[str, ...]:
    """Markers of tests that are not to be run."""
    if config.getoption("--long") or any("::" in each for each in config.args):
        return ()
    return ("long",) if config.getoption("--slow") else ("long", "slow")


def _leave_out(
    config: pytest.Config, items: list[pytest.Item], unwanted: Callable[[pytest.Item], bool]
) -> None:
    left_out = [item for item in items if unwanted(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not unwanted(item)]


def _release(item: pytest.Item) -> str:
    callspec = getattr(item, "callspec", None)
    return str(callspec.params.get("slurm_release", OWN)) if callspec else OWN


def pytest_unconfigure(config: pytest.Config) -> None:
    """The last lines, so that nobody overlooks them."""
    for name, why in config.stash.get(CHOICE, Choice()).untested.items():
        print(f"NOT TESTED: Slurm {name}: {why}")


def pytest_report_header(config: pytest.Config) -> str:
    left_out = " and ".join(_too_long(config))
    return f"without the tests marked {left_out}" if left_out else "all tests, in full"


@pytest.fixture(scope="session")
def thorough(request: pytest.FixtureRequest) -> bool:
    """Whether a test that can go less deep shall go all the way."""
    return bool(request.config.getoption("--long"))


@pytest.fixture(scope="session")
def slurm_release(request: pytest.FixtureRequest) -> str:
    """The Slurm release to run, as `sandbox up --slurm` takes it; empty for the machine's own."""
    return str(getattr(request, "param", OWN))
