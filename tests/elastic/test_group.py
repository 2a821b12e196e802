"""A group that is given up lets go of its thread at once, though nobody else has gone."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_exchange import HOST, on_ranks

from hpctools.elastic.group import Group, await_all, join_store, link, open_store, released
from hpctools.elastic.links import Links
from hpctools.elastic.networks import gloo_devices


@pytest.mark.parametrize(
    ("world", "interfaces", "tag"), [(2, "", 1), (3, "", 1), (2, "lo,lo", 1), (2, "lo,lo", 2)]
)
def test_what_waits_for_others_in_an_abandoned_group_fails_at_once(
    world: int, interfaces: str, tag: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the thread would end while Python shuts down, which takes the process down with SIGABRT.

    With two interfaces it waits on one of two connections, which the tag picks.
    """
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", interfaces)
    all_know = threading.Barrier(world)

    def work(group: Group) -> str:
        if group.rank:
            all_know.wait(30)  # connected, and never sends
            return ""
        woken = threading.Event()
        into = [torch.empty(3) for _ in group.others]
        waits = [group.receive(tensor, rank, tag) for tensor, rank in zip(into, group.others, strict=True)]
        task = group.begin(lambda: await_all(waits), woken.set)
        assert not woken.wait(0.2)
        group.abandon()
        assert woken.wait(10)
        all_know.wait(30)
        with pytest.raises(RuntimeError):
            task.result()
        return "woken"

    assert on_ranks(world, work)[0] == "woken"


@pytest.mark.parametrize("named", ["lo,lo", "lo", "lo, lo,"])
def test_gloo_has_a_device_for_each_interface_that_is_named(
    named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torch does by itself; it took the whole list for the name of one."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", named)

    def work(group: Group) -> list[float]:
        sums = [torch.full((3,), float(group.rank + place)) for place in range(4)]
        await_all([group.all_reduce(each) for each in sums])
        return [float(each[0]) for each in sums]

    assert len(gloo_devices("no-such-host.invalid")) == named.count("lo")
    assert on_ranks(2, work) == [[1.0, 3.0, 5.0, 7.0]] * 2


def test_gloo_s_own_address_is_chosen_by_those_that_all_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its own name resolves to (127.0.1.1 on Debian) would be told to the others, who never link."""
    chosen: dict[str, list[str]] = {}

    def choose(host: str, members: Callable[[], list[str]]) -> str:
        chosen[host] = members()
        return HOST

    monkeypatch.setattr("hpctools.elastic.networks.gloo_host", choose)
    store = open_store(HOST)

    def rank(place: int) -> list[int]:
        own = store if place == 0 else join_store(HOST, store.port)
        return link(1, place, 2, own, f"no-such-host-{place}.invalid").others

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(rank, range(2), timeout=60)) == [[1], [0]]
    names = ["no-such-host-0.invalid", "no-such-host-1.invalid"]
    assert chosen == dict.fromkeys(names, names)


def test_a_lone_group_has_nothing_to_give_up() -> None:
    Group(0, 0, 1, None).abandon()


def test_who_lets_go_of_a_group_does_not_wait_for_its_connections_end() -> None:
    """gloo takes some 10 ms for each: all that time the first step after a resize would stand still."""
    ended_in: list[threading.Thread] = []
    ended = threading.Event()

    class Gloo:
        def __del__(self) -> None:
            ended_in.append(threading.current_thread())
            ended.set()

    group = Group(3, 0, 2, Gloo())
    assert released(group) is None
    assert ended.wait(60)
    assert ended_in[0] is not threading.current_thread()
    assert not ended_in[0].daemon, "Python waits for it: a daemon would be ended in the middle of it"
    assert released(None) is None


def listening() -> set[str]:
    """Addresses on which this process listens, as the kernel writes them (proc_pid_net(5))."""
    ours = set()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the folder itself
            ours.add(str(each.readlink()))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            _, address, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in ours:
                found.add(address)
    return found


def test_a_linked_group_listens_on_our_own_address_only() -> None:
    """Whoever reaches torch's store may change what is in it: it has no password."""
    before, both_linked = listening(), threading.Barrier(2)
    new: list[set[str]] = []

    def work(group: Group) -> None:
        both_linked.wait(30)
        if group.rank == 0:
            new.append(listening() - before)
        both_linked.wait(30)

    on_ranks(2, work)
    assert len(new[0]) >= 3, "the store, and gloo for each of the two ranks"
    assert {address.split(":")[0] for address in new[0]} == {"0100007F"}


def test_a_store_is_joined_where_it_says_that_it_listens() -> None:
    """A node whose name is not a numeric address listens everywhere, and is found by its name."""
    store = open_store("localhost", "0.0.0.0")
    join_store(HOST, store.port).set("key", "value")
    assert store.get("key") == b"value"


def test_a_group_that_is_not_wanted_any_more_is_waited_for_no_longer() -> None:
    """gloo's own wait lasts 20 s; a process that ended meanwhile was taken down by the thread in it."""
    said: list[tuple[str, dict[str, Any]]] = []
    links = Links(
        "127.0.0.1", "127.0.0.1", threading.Condition(), lambda kind, **more: said.append((kind, more))
    )
    links.form(7, 0, 2, ())  # the other one never comes
    threads = [each for each in threading.enumerate() if each.name == "elastic-link-7"]
    assert threads
    links.form(8, 0, 1, ())
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()
    assert "link_failed" not in [kind for kind, _ in said]
    links.form(9, 0, 2, ())
    last = [each for each in threading.enumerate() if each.name == "elastic-link-9"]
    links.close()
    assert last
    assert not any(thread.is_alive() for thread in last)


def test_work_for_a_gpu_is_done_on_the_callers_device_and_in_its_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the device, to leave the stream makes a context on GPU 0, where each thread begins."""
    entered: list[tuple[str, object]] = []

    @contextlib.contextmanager
    def noted(kind: str, of: object) -> Iterator[None]:
        entered.append((kind, of))
        yield
        entered.append((f"not {kind}", of))

    stream = SimpleNamespace(device="cuda:3")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "device", partial(noted, "device"))
    monkeypatch.setattr(torch.cuda, "stream", partial(noted, "stream"))
    group, done = Group(1, 0, 1, None), threading.Event()
    task = group.begin(lambda: entered.append(("work", "")), done.set)
    assert done.wait(30)
    group.close(Group(2, 0, 1, None))
    task.result()
    inside = [("device", "cuda:3"), ("stream", stream), ("work", "")]
    assert entered == [*inside, ("not stream", stream), ("not device", "cuda:3")]
