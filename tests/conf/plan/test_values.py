"""Spellings that mean the same, and such that do not."""

import pytest

from hpctools.conf.plan import keys
from hpctools.conf.plan.values import minutes


@pytest.mark.parametrize(
    ("key", "one", "other"),
    [
        ("killwait", "30", "30 sec"),
        ("resumerate", "300", "300 nodes/min"),
        ("vsizefactor", "0", "0 percent"),
        ("usepam", "NO", "0"),
        ("usepam", "True", "yes"),
        ("prolog", "", "(null)"),
        ("taskpluginparam", "", "(null type)"),
        ("taskplugin", "task/none", "(null)"),
        ("topologyplugin", "topology/flat", "topology/default"),
        ("topologyplugin", "topology/flat", "topology/none"),
        ("slurmuser", "slurm", "slurm(64030)"),
        ("slurmctlddebug", "3", "info"),
        ("prologflags", "Contain", "Alloc,Contain"),
        ("prologflags", "x11", "Alloc,Contain,X11"),
        ("accountingstorageenforce", "safe,qos", "associations,limits,qos,safe"),
        ("accountingstoragetres", "gres/gpu", "cpu,mem,energy,node,billing,fs/disk,vmem,pages,gres/gpu"),
        ("accountingstoragetres", "gres/gpu", "gres/gpu,gres/gpumem,gres/gpuutil"),
        ("prioritydecayhalflife", "7-0", "7-00:00:00"),
        ("prioritydecayhalflife", "60", "01:00:00"),
        ("suspendtime", "-1", "INFINITE"),
        ("suspendtime", "600", "600 sec"),
        ("schedulerparameters", "bf_continue,bf_window=1", "bf_window=1,bf_continue"),
        ("selecttypeparameters", "CR_Core_Memory", "CR_CORE_MEMORY"),
        ("preemptmode", "SUSPEND,GANG", "GANG,SUSPEND"),
        ("slurmctldhost", "a(10.0.0.1), b", "a(10.0.0.1),B"),
    ],
)
def test_settings_that_are_the_same(key: str, one: str, other: str) -> None:
    assert keys.setting(key, one) == keys.setting(key, other)


@pytest.mark.parametrize(
    ("key", "one", "other"),
    [
        ("slurmctldhost", "a,b", "b,a"),  # the first is primary
        ("prolog", "/opt/A", "/opt/a"),
        ("killwait", "30", "300"),
        ("prologflags", "Alloc", "Contain"),
        ("accountingstorageenforce", "limits", "limits,qos"),
        ("suspendtime", "INFINITE", "0"),
        ("licenses", "Matlab:5", "matlab:5"),
    ],
)
def test_settings_that_are_not(key: str, one: str, other: str) -> None:
    assert keys.setting(key, one) != keys.setting(key, other)


@pytest.mark.parametrize(
    ("key", "one", "other"),
    [
        ("gres", "gpu:a100:8", "gpu:a100:8(S:0-1)"),
        ("gres", "gpu,shard:16", "shard:16(IDX:0-3),gpu:1"),
        ("gres", "bandwidth:2k", "bandwidth:2048"),
        ("gres", None, "(null)"),
        ("features", "a,b", "b,a"),
        ("weight", None, "1"),
        ("corespeccount", None, ""),
    ],
)
def test_node_keys_that_are_the_same(key: str, one: str | None, other: str | None) -> None:
    assert keys.node(key, one) == keys.node(key, other)


@pytest.mark.parametrize(
    ("key", "one", "other"),
    [
        ("maxtime", "2-00:00:00", "2880"),
        ("maxtime", None, "UNLIMITED"),
        ("maxtime", "INFINITE", "-1"),
        ("defaulttime", None, "NONE"),
        ("allowaccounts", None, "ALL"),
        ("allowaccounts", "b,A", "a,b"),
        ("nodes", "n1,n2,n3", "n[1-3]"),
        ("oversubscribe", "YES", "YES:4"),
        ("qos", None, "N/A"),
        ("tresbillingweights", "CPU=1.0,Mem=0.50G", "Mem=0.5G,CPU=1"),
        ("defmempernode", None, "UNLIMITED"),
    ],
)
def test_partition_keys_that_are_the_same(key: str, one: str | None, other: str | None) -> None:
    assert keys.partition(key, one) == keys.partition(key, other)


def test_features_differ_by_case_and_accounts_do_not() -> None:
    assert keys.node("features", "a100") != keys.node("features", "A100")
    assert keys.partition("allowqos", "High") == keys.partition("allowqos", "high")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", "90"),
        ("90:00", "90"),
        ("1:30:00", "90"),
        ("1-0", "1440"),
        ("1-01:30", "1530"),
        ("00:00:01", "1"),
        ("soon", "soon"),
    ],
)
def test_time_limits(text: str, expected: str) -> None:
    assert minutes(text) == expected
