"""The user's script: found, checked, and searched for launchers."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctools.errors import SubmitError
from hpctools.submit.script import (
    Launcher,
    Script,
    command_launcher,
    find_script,
    launchers,
    read_script,
)


def test_a_script_is_found_here_before_path_and_by_its_own_path(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        (folder / "job.sh").write_text("#!/bin/sh\n")
    (there / "only.sh").write_text("#!/bin/sh\n")
    (here / "dir").mkdir()
    environment = {"PATH": f"/nowhere:{there}"}

    def find(word: str) -> Path:
        return find_script(word, environment, here)

    assert find("job.sh") == here / "job.sh"
    assert find("only.sh") == there / "only.sh"
    assert find("./only.sh") == here / "only.sh"
    assert find(f"{there}/job.sh") == there / "job.sh"
    assert find("nothing.sh") == here / "nothing.sh"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "job.sh is empty"),
        (b" \n\n", "job.sh is empty"),
        (b"hostname\n", "its first line does not start with #!"),
        (b"\xef\xbb\xbf#!/bin/sh\n", "its first line does not start with #!"),
        (
            b"#!/bin/sh\r\nhostname\r\n",
            r"job.sh has DOS line endings; convert it with: sed -i 's/\r$//' job.sh",
        ),
        (b"#!/bin/sh\n\0", "NUL"),
    ],
)
def test_what_sbatch_would_refuse_is_refused_first(tmp_path, content, message):
    (tmp_path / "job.sh").write_bytes(content)
    with pytest.raises(SubmitError) as caught:
        read_script(tmp_path / "job.sh")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_script_a_folder_and_a_locked_one_are_named(tmp_path, monkeypatch):
    with pytest.raises(SubmitError, match=r"there is no script .*/job.sh"):
        read_script(tmp_path / "job.sh")
    with pytest.raises(SubmitError, match="is a folder, not a batch script"):
        read_script(tmp_path)
    (tmp_path / "locked.sh").write_text("#!/bin/sh\n")

    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)  # root may read everything
    with pytest.raises(SubmitError, match=r"cannot read the script .*locked.sh: Permission denied"):
        read_script(tmp_path / "locked.sh")


def test_bytes_that_are_no_text_survive(tmp_path):
    content = b"#!/bin/sh\necho \xff\xfe\n"
    (tmp_path / "job.sh").write_bytes(content)
    script = read_script(tmp_path / "job.sh")
    assert script.text.encode("utf-8", "surrogateescape") == content


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("srun python train.py", "srun"),
        ("  exec /opt/slurm/bin/srun -n 4 python train.py", "/opt/slurm/bin/srun"),
        ("OMP_NUM_THREADS=1 NCCL_DEBUG=INFO torchrun --nnodes 2 train.py", "torchrun"),
        ("cd run && mpirun train", "mpirun"),
        ("if true; then srun x; fi", "srun"),
        ("if srun x; then", "srun"),
        ("out=$(srun hostname)", "srun"),
        ("python3.11 -u -m torch.distributed.run train.py", "python3.11 -u -m torch.distributed.run"),
        ("accelerate  launch train.py", "accelerate launch"),
        ("srun", "srun"),
        ("uv run torchrun train.py", "torchrun"),
        ("exec apptainer exec --nv -B /data i.sif /opt/conda/bin/torchrun t.py", "/opt/conda/bin/torchrun"),
        ("uv run python -m torch.distributed.run t.py", "python -m torch.distributed.run"),
        ("numactl --interleave=all mpirun x", "mpirun"),
        ("cd x; time -p uv run --extra deepspeed torchrun train.py", "torchrun"),
        ("timeout -k 5 2h conda run -n deepspeed deepspeed train.py # srun", "deepspeed"),
        ("apptainer exec --bind /a:/b i.sif bash -c 'srun x'", "srun"),
    ],
)
def test_launchers_are_found_with_their_line(line, name):
    text = f"#!/bin/bash -l\n# srun is not started here\n{line}\n"
    found = list(launchers(Script("job.sh", text)))
    assert [Launcher(name.split("/")[-1], 3)] == [
        Launcher(each.name.split("/")[-1], each.line) for each in found
    ]


@pytest.mark.parametrize(
    "line",
    [
        "# srun python",
        "echo srun",
        "python train.py --launcher=srun",
        "python srun.py",
        "module load mpirun",
        "srun_args=x",
        "./torchrun.sh",
        "accelerate config",
        "python -m torch.utils.collect_env",
        "uv run python train.py --launcher torchrun",
        "uv run train.py torchrun",
        "uv sync; echo torchrun",
        "nice -n 5 ./train.sh",
        "conda activate deepspeed",
        "conda activate /envs/deepspeed && python train.py",
        "uv pip install deepspeed",
        "uv sync --extra deepspeed",
        "time pip install deepspeed",
        "timeout 60 pip install -q deepspeed",
        "time rsync -a data /local/deepspeed",
        "nohup tensorboard --logdir /scratch/deepspeed &",
        "timeout 10 which srun",
        "docker build -t deepspeed .",
        "apptainer pull docker://deepspeed/deepspeed",
        "conda env remove -n deepspeed",
        "uv run --with deepspeed python train.py",
        "env PYTHONPATH=/x/deepspeed python train.py",
        "timeout 2h 'unfinished",
    ],
)
def test_what_only_looks_like_a_launcher_is_none(line):
    assert not list(launchers(Script("job.sh", f"#!/bin/bash\n{line}\n")))


def test_a_script_in_another_language_is_not_searched():
    assert not list(launchers(Script("job.py", "#!/usr/bin/env python3\nsrun = 1\n")))


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        (("torchrun", "train.py"), "torchrun"),
        (("/usr/bin/srun", "x"), "srun"),
        (("accelerate", "launch", "x"), "accelerate launch"),
        (("python", "-u", "-m", "torch.distributed.run", "x"), "python -m torch.distributed.run"),
        (("python", "train.py", "-m", "torch.distributed.run"), None),
        (("python", "-m", "train"), None),
        (("python", "-W", "ignore", "-um", "torch.distributed.run", "x"), "python -m torch.distributed.run"),
        (("python", "-c", "import x", "-m", "torch.distributed.run"), None),
        (("train", "srun"), None),
        (("bash", "-c", "cd x && srun hostname"), "srun"),
        (("/bin/sh", "-euc", "torchrun x"), "torchrun"),
        (("bash", "-c", "echo srun"), None),
        (("bash", "-c", "train", "srun"), None),
        (("bash", "train.sh", "srun"), None),
        (("docker", "run", "-it", "image", "torchrun", "x"), "torchrun"),
        (("uv", "run", "accelerate", "launch", "x"), "accelerate launch"),
        (("uv", "run", "-m", "torch.distributed.run", "x"), "python -m torch.distributed.run"),
        (("apptainer", "exec", "i.sif", "bash", "-c", "deepspeed x"), "deepspeed"),
        (
            ("nsys", "profile", "-o", "x", "python", "-m", "torch.distributed.run"),
            "python -m torch.distributed.run",
        ),
        (("uv", "run", "accelerate", "config"), None),
        (("uv", "run", "train.py", "srun"), None),
        (("uv", "run", "--with", "deepspeed", "python", "train.py"), None),
        (("conda", "run", "-n", "deepspeed", "python", "train.py"), None),
        (("env", "PYTHONPATH=/x/deepspeed", "python", "train.py"), None),
        (("uv", "run", "--project", "/x/deepspeed", "train.py"), None),
        (("apptainer", "exec", "--bind", "/scratch/deepspeed", "i.sif", "python", "train.py"), None),
        (("apptainer", "exec", "docker://deepspeed/deepspeed", "python", "train.py"), None),
        (("timeout", "2h", "./train.sh", "--launcher", "srun"), None),
        (("timeout",), None),
        (("uv", "run", "-m"), None),
    ],
)
def test_a_command_that_is_a_launcher(command, launcher):
    assert command_launcher(command) == launcher
