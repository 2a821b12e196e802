"""Checkpoints in a folder: what is whole is found, whatever else lies there."""

from __future__ import annotations

import errno
import json
import os
import random
import threading
import time
from pathlib import Path

import pytest
import torch
from checkpoint_rig import RUN, Heard, assert_is_of, read, state_after, write

from hpctools.elastic.checkpoint import folder_store, newest, resume_source
from hpctools.elastic.checkpoint.folder_store import FolderStore
from hpctools.elastic.checkpoint.manifest import Manifest, record_of
from hpctools.elastic.checkpoint.restore import newest_state
from hpctools.elastic.checkpoint.retention import prune
from hpctools.elastic.checkpoint.saver import Origin, Saver
from hpctools.elastic.checkpoint.store import Abandoned, PartMissing, abandon, name_of, step_of
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.spec import RunSpec
from hpctools.errors import ElasticError


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_layout_and_content(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "checkpoints"
    heard = write(root, 123)
    assert names(root) == ["step-000000123"]
    assert names(root / "step-000000123") == [".metadata", "COMMITTED", "__0_0.distcp", "manifest.json"]
    manifest = json.loads((root / "step-000000123" / "manifest.json").read_text())
    assert manifest["files"] == {
        name: vars(record_of(root / "step-000000123" / name)) for name in (".metadata", "__0_0.distcp")
    }
    assert (manifest["step"], manifest["run"], manifest["term"], manifest["generation"]) == (123, *vars_of())
    assert (manifest["torch"], manifest["training"]) == (torch.__version__, {"world": 1})
    assert root.stat().st_mode & 0o777 == 0o700
    (saved,) = heard.saved
    size = sum((root / "step-000000123" / name).stat().st_size for name in manifest["files"])
    assert (saved.step, saved.bytes, saved.where) == (123, size, str(root / "step-000000123"))
    assert 0 < saved.held_s <= saved.seconds
    assert read(root) == (123, [])


def vars_of() -> tuple[str, int, int]:
    return RUN.run, RUN.term, RUN.generation


def test_plain_torch_can_read_the_model(tmp_path: Path) -> None:
    """The names in the files are those of torch's own checkpoints."""
    import torch.distributed.checkpoint as dcp

    write(tmp_path, 7)
    model = {"weight": torch.zeros(5000), "bias": torch.zeros(3, 2)}
    with pytest.warns(UserWarning, match="single process"):
        dcp.load({"model": model}, checkpoint_id=tmp_path / "step-000000007", no_dist=True)
    assert bool((model["weight"] == 7).all())
    assert bool((model["bias"] == 7).all())


def test_empty_or_missing_folder_has_none(tmp_path: Path) -> None:
    assert read(tmp_path) == (None, [])
    assert read(tmp_path / "missing") == (None, [])
    assert newest(str(tmp_path)) is None


def test_a_server_that_says_first_that_nobody_may_write_beside_a_folder_is_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS answers so to a mkdir of what is there, where only root may write in the folder above."""
    make = Path.mkdir

    def mkdir(path: Path, *args: int, **named: int) -> None:
        if path == tmp_path:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        make(path, *args, **named)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    write(tmp_path, 10)
    assert read(tmp_path) == (10, [])


def torn_marker(folder: Path) -> str:
    (folder / "COMMITTED").unlink()
    return "it was never committed: its writer was interrupted"


def torn_manifest(folder: Path) -> str:
    text = (folder / "manifest.json").read_bytes()
    (folder / "manifest.json").write_bytes(text[: len(text) // 2])
    return "its manifest has another checksum than when it was committed"


def missing_manifest(folder: Path) -> str:
    (folder / "manifest.json").unlink()
    return "it was never committed"


def torn_data(folder: Path) -> str:
    size = (folder / "__0_0.distcp").stat().st_size
    os.truncate(folder / "__0_0.distcp", size - 1)
    return f"__0_0.distcp has {size - 1} bytes instead of {size}"


def missing_data(folder: Path) -> str:
    (folder / ".metadata").unlink()
    return ".metadata is missing"


@pytest.mark.parametrize("tear", [torn_marker, torn_manifest, missing_manifest, torn_data, missing_data])
def test_the_one_before_a_torn_one_is_used(tmp_path: Path, tear: object) -> None:
    write(tmp_path, 10, 20)
    assert callable(tear)
    reason = tear(tmp_path / "step-000000020")
    step, warnings = read(tmp_path)
    assert step == 10
    (warning,) = warnings
    assert warning.startswith(f"checkpoint {tmp_path}/step-000000020 is not used: {reason}")


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    """200 random bits of all files of the newest checkpoint, one at a time."""
    write(tmp_path, 10, 20)
    generator = random.Random(5)
    folder = tmp_path / "step-000000020"
    files = [path for path in sorted(folder.iterdir()) if path.name != "COMMITTED"]
    for _ in range(200):
        path = generator.choice(files)
        place, bit = generator.randrange(path.stat().st_size), 1 << generator.randrange(8)
        with path.open("r+b") as file:
            file.seek(place)
            before = file.read(1)
            file.seek(place)
            file.write(bytes([before[0] ^ bit]))
        assert read(tmp_path)[0] == 10, (path, place, bit)
        with path.open("r+b") as file:
            file.seek(place)
            file.write(before)
    assert read(tmp_path) == (20, [])


def test_all_damaged_is_none_with_each_reason(tmp_path: Path) -> None:
    write(tmp_path, 10, 20)
    torn_data(tmp_path / "step-000000010")
    torn_marker(tmp_path / "step-000000020")
    step, warnings = read(tmp_path)
    assert step is None
    assert len(warnings) == 2


def test_retention_keeps_the_newest_and_counts_only_whole_ones(tmp_path: Path) -> None:
    write(tmp_path, 10, 20, 30, 40)
    torn_data(tmp_path / "step-000000040")
    torn_marker(tmp_path / "step-000000030")
    assert prune(FolderStore(tmp_path), 1) == ["step-000000010"]
    assert read(tmp_path)[0] == 20
    assert prune(FolderStore(tmp_path), 1) == []
    write(tmp_path, 50, 60, keep=2)
    assert read(tmp_path) == (60, [read(tmp_path, 40)[1][0]])
    assert "step-000000020" not in names(tmp_path)


def test_what_was_committed_just_now_stays_below_damaged_ones_of_later_steps(tmp_path: Path) -> None:
    """Their sizes are right, so they count as kept, and the training has passed over them."""
    write(tmp_path, 50, 60)
    for step in (50, 60):
        (data, *_) = (tmp_path / name_of(step)).glob("*.distcp")
        content = bytearray(data.read_bytes())
        content[len(content) // 2] ^= 1
        data.write_bytes(bytes(content))
    assert read(tmp_path)[0] is None
    for step in (5, 10, 15):
        write(tmp_path, step, keep=2)
        assert read(tmp_path)[0] == step


def test_nothing_is_removed_while_there_is_no_whole_one(tmp_path: Path) -> None:
    write(tmp_path, 10, 20)
    for step in (10, 20):
        torn_data(tmp_path / name_of(step))
    assert prune(FolderStore(tmp_path), 1) == []


def test_what_a_killed_writer_left_is_removed_by_the_next_of_its_run(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    mine = store.begin(5, f"{RUN.label}aaaa")
    other = store.begin(5, "other-run_bbbb")
    old = store.begin(5, "third_cccc")
    os.utime(old.folder, (0, 0))
    write(tmp_path, 6)
    assert not mine.folder.exists()
    assert not old.folder.exists()
    assert other.folder.exists(), "somebody else may be at work there"


def test_a_node_whose_clock_is_hours_ahead_removes_nobodys_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a boot without a time server, where the machine's own clock runs in another zone."""
    store = FolderStore(tmp_path)
    other = store.begin(5, "other-run_bbbb")
    ahead = time.time() + 2 * 3600
    monkeypatch.setattr(time, "time", lambda: ahead)
    store.clean("")
    assert names(tmp_path) == [other.folder.name]


def test_second_checkpoint_of_a_step_does_not_touch_the_first(tmp_path: Path) -> None:
    write(tmp_path, 10, 10)
    assert names(tmp_path) == ["step-000000010", "step-000000010.2"]
    assert [step_of(name) for name in names(tmp_path)] == [10, 10]
    torn_data(tmp_path / "step-000000010.2")
    assert read(tmp_path)[0] == 10


def test_several_writers_one_commit(tmp_path: Path) -> None:
    """Each writer adds its files; without a part there is no checkpoint; with all there is one."""
    store = FolderStore(tmp_path)
    stages = [store.begin(9, "run_t1g2") for _ in range(3)]
    assert len({stage.folder for stage in stages}) == 1
    for part, stage in enumerate(stages[:2]):
        (stage.folder / f"data-{part}").write_bytes(b"x" * part)
        store.add(stage, part, {f"data-{part}": record_of(stage.folder / f"data-{part}")})
    with pytest.raises(PartMissing, match="writer 2 of 3 has not added its part"):
        store.commit(stages[0], Manifest(9), 3)
    assert newest(str(tmp_path)) is None
    for part in range(3):
        (stages[0].folder / f"data-{part}").write_bytes(b"y" * part)
        record = {f"data-{part}": record_of(stages[0].folder / f"data-{part}")}
        store.add(stages[part], part, record)
    store.commit(stages[0], Manifest(9), 3)
    found = newest(str(tmp_path))
    assert found is not None
    assert sorted(found.manifest.files) == ["data-0", "data-1", "data-2"]
    assert names(tmp_path / found.name) == ["COMMITTED", "data-0", "data-1", "data-2", "manifest.json"]


def test_a_commit_that_failed_may_be_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As rank 0 of a sharded model does for a minute; what it says then is what is wrong."""
    store, written = FolderStore(tmp_path), folder_store._write_synced
    stage = store.begin(9, "run_t1g2")
    (stage.folder / "data").write_bytes(b"x")
    store.add(stage, 0, {"data": record_of(stage.folder / "data")})

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(folder_store, "_write_synced", full)
    for _ in range(2):
        with pytest.raises(ElasticError, match="No space left on device"):
            store.commit(stage, Manifest(9), 1)
    monkeypatch.setattr(folder_store, "_write_synced", written)
    with monkeypatch.context() as last:
        last.setattr(Path, "rename", lambda path, to: full(path, b""))
        for _ in range(2):
            with pytest.raises(ElasticError, match="No space left on device"):
                store.commit(stage, Manifest(9), 1)
    name = store.commit(stage, Manifest(9), 1)
    assert names(tmp_path / name) == ["COMMITTED", "data", "manifest.json"]


def test_rolled_back_part_is_not_used_and_goes_with_the_next(tmp_path: Path) -> None:
    """Generation 1 went on to step 30; generation 2 began again after step 12."""
    write(tmp_path, 10, 20, 30)
    abandon(FolderStore(tmp_path), Abandoned(RUN.run, 1, 2, 12))
    assert read(tmp_path) == (10, [])
    late = Origin(RUN.run, 1, 1)
    write(tmp_path, 40, origin=late)
    assert read(tmp_path)[0] == 10, "a writer of before that wakes up late"
    write(tmp_path, 25, origin=Origin("another", 1, 1), keep=2)
    assert read(tmp_path)[0] == 25
    assert names(tmp_path) == ["abandoned.json", "step-000000010", "step-000000025"]


def test_damaged_record_of_roll_backs_is_no_reason_to_guess(tmp_path: Path) -> None:
    write(tmp_path, 10)
    (tmp_path / "abandoned.json").write_text("[{")
    with pytest.raises(ElasticError, match=r"abandoned\.json is damaged"):
        read(tmp_path)


def test_superseded_writer_commits_nothing(tmp_path: Path) -> None:
    write(tmp_path, 10)
    heard = Heard()
    heard.fenced = "term 2 has begun"
    saver = Saver(FolderStore(tmp_path), 2, heard.reports)
    saver.save(state_after(20), 20, "test", RUN, {})
    assert saver.wait(30)
    assert (heard.saved, heard.warnings) == ([], [])
    assert names(tmp_path) == ["step-000000010"]


def test_readers_beside_a_writer_see_whole_checkpoints_only(tmp_path: Path) -> None:
    """Three readers, while 40 checkpoints are written and old ones removed; never back to an older one."""
    write(tmp_path, 1)
    over = threading.Event()
    seen: list[list[int]] = [[], [], []]
    broken: list[str] = []

    def look(into: list[int]) -> None:
        while not over.is_set():
            restored = newest_state(str(tmp_path), lambda reason: None)
            if restored is None:
                broken.append("none")
            else:
                assert_is_of(restored.state, restored.found.manifest.step)
                into.append(restored.found.manifest.step)

    readers = [threading.Thread(target=look, args=(each,)) for each in seen]
    for reader in readers:
        reader.start()
    write(tmp_path, *range(2, 42), keep=2)
    over.set()
    for reader in readers:
        reader.join(30)
    assert broken == []
    assert all(each and each == sorted(each) for each in seen)
    assert names(tmp_path) == [name_of(40), name_of(41)]


def test_what_a_user_may_name_to_resume_from(tmp_path: Path) -> None:
    """A run's id or folder stands for the place that the run saved to."""
    runs = tmp_path / "runs"
    spec = RunSpec("train-1", "t", "u", "", 1, 4, 1, ("true",), "/", (), "/r", "now")
    folder = RunFolder.create(runs / "train-1", spec)
    write(runs / "train-1" / "checkpoints", 10)
    expected = str(runs / "train-1" / "checkpoints")
    for text in ("train-1", str(runs / "train-1"), expected, f"{expected}/"):
        assert resume_source(text, runs) == expected
    one = f"{expected}/step-000000010"
    assert resume_source(one, runs) == one
    assert read(one) == (10, [])
    with pytest.raises(ElasticError, match=f"no whole checkpoint in {tmp_path}/nothing; give a run's id"):
        resume_source(str(tmp_path / "nothing"), runs)
    torn_marker(Path(one))
    with pytest.raises(ElasticError, match=r"no whole checkpoint in .* \(checkpoint .* never committed"):
        resume_source("train-1", runs)
    with pytest.raises(ElasticError, match=r"no whole checkpoint in .*step-000000010 \(checkpoint"):
        resume_source(one, runs)
    (saved,) = write(tmp_path / "elsewhere", 30).saved
    folder.append_event("saved", **saved.to_json())
    assert resume_source("train-1", runs) == str(tmp_path / "elsewhere"), "its program saved there"


def test_manifest_cannot_name_files_outside(tmp_path: Path) -> None:
    write(tmp_path, 10)
    data = (tmp_path / "step-000000010" / "manifest.json").read_bytes()
    with pytest.raises(ElasticError, match="no file's name"):
        Manifest.decode(data.replace(b".metadata", b"../../etc"))
    with pytest.raises(ElasticError, match="later format"):
        Manifest.decode(data.replace(b'"format": 1', b'"format": 2'))
