"""What slurmctld does when slurm.conf says nothing, as `scontrol show config` prints it.

Read off slurmctlds of 22.05.8, 24.11.5 and 26.05.5 with nothing but a name, a node and a partition. Settings
are left out whose default is nothing, or follows from other settings or from how Slurm was built.
"""

from __future__ import annotations

from hpctools.slurm.versions import Release, changed_defaults

_DEFAULTS = {
    "acctgathernodefreq": "0 sec",
    "allowspecresourcesusage": "no",
    "authtype": "auth/munge",
    "batchstarttimeout": "10 sec",
    "completewait": "0 sec",
    "disablerootjobs": "no",
    "eiotimeout": "60",
    "enforcepartlimits": "NO",
    "epilogmsgtime": "2000 usec",
    "fairsharedampeningfactor": "1",
    "groupupdateforce": "1",
    "groupupdatetime": "600 sec",
    "healthcheckinterval": "0 sec",
    "healthchecknodestate": "ANY",
    "healthchecktimeout": "0 sec",
    "inactivelimit": "0 sec",
    "interactivestepoptions": "--interactive --preserve-env --pty $SHELL",
    "jobacctgatherfrequency": "30",
    "jobfileappend": "0",
    "jobrequeue": "1",
    "killonbadexit": "0",
    "killwait": "30 sec",
    "logtimeformat": "iso8601_ms",
    "maxarraysize": "1001",
    "maxbatchrequeue": "5",
    "maxjobcount": "10000",
    "maxstepcount": "40000",
    "maxtaskspernode": "512",
    "messagetimeout": "10 sec",
    "minjobage": "300 sec",
    "overtimelimit": "0 min",
    "prepplugins": "prep/script",
    "preemptexempttime": "00:00:00",
    "prioritycalcperiod": "00:05:00",
    "prioritydecayhalflife": "7-00:00:00",
    "priorityfavorsmall": "no",
    "prioritymaxage": "7-00:00:00",
    "prioritytype": "priority/multifactor",
    "priorityweightage": "0",
    "priorityweightassoc": "0",
    "priorityweightfairshare": "0",
    "priorityweightjobsize": "0",
    "priorityweightpartition": "0",
    "priorityweightqos": "0",
    "proctracktype": "proctrack/cgroup",
    "prologepilogtimeout": "65534",
    "propagateprioprocess": "0",
    "resumerate": "300 nodes/min",
    "resumetimeout": "60 sec",
    "resvoverrun": "0 min",
    "returntoservice": "0",
    "schedulertimeslice": "30 sec",
    "schedulertype": "sched/backfill",
    "selecttype": "select/cons_tres",
    "slurmctlddebug": "info",
    "slurmctldport": "6817",
    "slurmctldtimeout": "120 sec",
    "slurmddebug": "info",
    "slurmdport": "6818",
    "slurmdtimeout": "300 sec",
    "slurmduser": "root(0)",
    "srunportrange": "0-0",
    "suspendrate": "60 nodes/min",
    "suspendtime": "INFINITE",
    "suspendtimeout": "30 sec",
    "tcptimeout": "2 sec",
    "tmpfs": "/tmp",  # noqa: S108
    "trackwckey": "no",
    "treewidth": "16",
    "usepam": "no",
    "vsizefactor": "0 percent",
    "waittime": "0 sec",
}

# Nothing, unless it is stated.
_NOTHING = """
    accountingstoragebackuphost accountingstorageenforce accountingstorageexternalhost
    accountingstorageparameters accountingstoreflags acctgatherenergytype acctgatherfilesystemtype
    acctgatherinterconnecttype acctgatherprofiletype authaltparameters authalttypes authinfo
    bcastparameters burstbuffertype certgenparameters certgentype certmgrparameters certmgrtype
    clifilterparameters clifilterplugins communicationparameters corespecplugin dataparserparameters
    debugflags dependencyparameters epilog epilogslurmctld extsensorstype federationparameters
    grestypes healthcheckprogram httpparsertype jobacctgatherparams jobacctgathertype jobcompparams
    jobcomptype jobcontainertype jobcredentialprivatekey jobcredentialpubliccertificate jobdefaults
    jobsubmitplugins launchparameters licenseparameters licenses maildomain mcsparameters mcsplugin
    metricsauthusers metricsparameters metricstype mpidefault mpiparams namespacetype
    nodefeaturesplugins plugstackconfig powerparameters powerplugin preemptparameters prepparameters
    priorityflags priorityparameters prioritysitefactorparameters prioritysitefactorplugin
    priorityusageresetperiod priorityweighttres privatedata prolog prologflags prologslurmctld
    propagateresourcelimitsexcept rebootprogram reconfigflags requeueexit requeueexithold
    resumefailprogram resumeprogram resvepilog resvprolog schedulerparameters scronparameters
    slurmctldhttpauthparameters slurmctldlogfile slurmctldparameters slurmctldplugstack
    slurmctldprimaryoffprog slurmctldprimaryonprog slurmctldsyslogdebug slurmdhttpauthparameters
    slurmdlogfile slurmdparameters slurmdsyslogdebug slurmschedlogfile srunepilog srunprolog
    suspendexcnodes suspendexcparts suspendexcstates suspendprogram switchparameters switchtype
    taskepilog taskplugin taskpluginparam taskprolog tlsparameters tlstype topologyparam
    unkillablestepprogram urlparsertype x11parameters
""".split()  # noqa: SIM905 (110 quoted words are no easier to read)


def defaults(release: Release) -> dict[str, str]:
    """Values of settings that are not stated, by key in lower case."""
    return {**dict.fromkeys(_NOTHING, ""), **_DEFAULTS, **changed_defaults(release)}


# cgroup.conf(5), slurmdbd.conf(5) of 22.05 to 26.05.
_FILE_DEFAULTS = {
    "cgroup.conf": {
        "allowedramspace": "100",
        "allowedswapspace": "0",
        "constraincores": "no",
        "constraindevices": "no",
        "constrainramspace": "no",
        "constrainswapspace": "no",
    },
    "slurmdbd.conf": {
        "authtype": "auth/munge",
        "dbdport": "6819",
        "storageport": "3306",
        "storagetype": "accounting_storage/mysql",
    },
}


def file_defaults(path: str) -> dict[str, str]:
    """Values of settings that a file beside slurm.conf does not state, by key in lower case."""
    return _FILE_DEFAULTS.get(path, {})
