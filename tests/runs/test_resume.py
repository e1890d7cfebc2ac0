"""A run that was interrupted goes on, and ends with the same bytes as one that was not."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cfcl
from cfcl import config as configs
from cfcl import reading
from cfcl.config import Config
from cfcl.data.datasets import Dataset, load
from cfcl.errors import CfclError, Failed, Interrupted
from cfcl.files import write_atomically
from cfcl.protocol import snapshot
from cfcl.records import Evaluation, Record, Update
from cfcl.runs import checkpoints, folders, overview, plots, resuming, suites
from tests.conftest import small
from tests.played import FILES, reference

CONFIGS = {
    "explicit": (),
    "implicit": ("exchange.mode=implicit", "cost.charge_broadcast=true"),
    "relay": ("exchange.candidates=relay", "exchange.buffer=keep", "aggregation.num_devices=2"),
    "noise": ("exchange.mode=implicit", "privacy.clip=0.8", "privacy.noise=0.3"),
    "novel": ("exchange.method=novel", "exchange.buffer=limit", "exchange.buffer_size=9"),
    "cover": ("exchange.method=cover", "exchange.buffer=keep"),
    "adaptive": ("exchange.method=cover", "exchange.mode=implicit", "exchange.budget=adaptive"),
    "attack": (
        "attack.devices=1",
        "attack.kind=items-centroids",
        "exchange.buffer=keep",
        "defence.cap=3",
        "defence.share=0.6",
        "aggregation.clip=1",
    ),
    "bulk": ("exchange.method=bulk", "train.optimiser=sgd"),
    "push": ("exchange.mode=implicit", "exchange.push=aggregation", "exchange.importance_model=both_local"),
    "dial": (
        "exchange.mode=activations",
        "exchange.layer=block1",
        "exchange.precision=uint8",
        "model.encoder=conv",
        "exchange.push=aggregation",
    ),
    "byol": ("train.objective=byol", "aggregation.adopt=fedema", "aggregation.server=adam", "aggregation.ema=0.5"),
    "faults": ("faults.offline=0.3", "faults.loss=0.2", "faults.damage=0.1", "exchange.buffer=keep"),
    "resting": (
        "faults.offline=0.5",
        "faults.offline_steps=2",
        "faults.offline_trains=false",
        "faults.straggling=0.3",
        "exchange.mode=implicit",
    ),
    "batchnorm": ("model.encoder=slim-resnet18", "aggregation.buffers=local", "train.steps=8"),
}
EVERY = "evaluation.log_every=1"


def stop_at(step: int, number: int = signal.SIGINT) -> Callable[[Record], None]:
    """Sends the signal to this process when the loss of `step` is recorded."""

    def watch(record: Record) -> None:
        if isinstance(record, Update) and record.step == step:
            os.kill(os.getpid(), number)

    return watch


def interrupted(config: Config, out: Path, step: int = 6, **options: Any) -> Path:
    """The folder of a run that was asked to stop at `step`."""
    with pytest.raises(Interrupted):
        suites.simulate(config, out=out, **{"plotted": False, "workers": 1, "watch": stop_at(step), **options})
    (partial,) = out.glob("*.partial")
    return partial


def go_on(partial: Path, **options: Any) -> Path:
    """The folder when the run has ended."""
    folder = suites.resume(partial, **{"plotted": False, "workers": 1, **options}).folder
    assert folder is not None
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


def everything(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_resumed_run_ends_with_the_same_bytes(name: str, tmp_path: Path) -> None:
    config = small(EVERY, *CONFIGS[name])
    partial = interrupted(config, tmp_path, 4)  # losses come out before the next exchange at the latest, at step 6
    assert len(checkpoints.files(partial)) == 1

    result = suites.resume(partial, workers=1, plotted=False)

    assert result.folder is not None
    assert files(result.folder) == reference(config).files
    assert list(tmp_path.iterdir()) == [result.folder]
    assert {path.name for path in result.folder.iterdir()} == {*FILES, "timings.json", "environment.json"}
    assert [record.to_line().encode() for record in result.records] == reference(config).files[
        "metrics.jsonl"
    ].splitlines()


def test_checkpoints_come_as_often_as_asked_and_the_newest_two_stay(tmp_path: Path) -> None:
    seen: list[list[int]] = []

    def watch(record: Record) -> None:
        (partial,) = tmp_path.glob("*.partial")
        found = [checkpoints.step_of(file) for file in checkpoints.files(partial)]
        if not seen or seen[-1] != found:
            seen.append(found)

    config = small("checkpoint.every=3", EVERY)
    folder = suites.simulate(config, out=tmp_path, workers=1, plotted=False, watch=watch).folder

    assert seen == [[], [3], [6, 3], [9, 6], [12, 9]]
    assert folder is not None
    assert files(folder)["metrics.jsonl"] == reference(small(EVERY)).files["metrics.jsonl"]


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(tmp_path: Path) -> None:
    config = small("checkpoint.every=3", EVERY)
    partial = interrupted(config, tmp_path)
    newest, before = checkpoints.files(partial)
    newest.write_bytes(newest.read_bytes()[:-1])
    notes: list[str] = []

    folder = go_on(partial, note=notes.append)

    assert files(folder) == reference(config).files
    assert notes == [f"checkpoint {newest.name} is damaged (its checksum differs): the one before it is tried"]
    assert checkpoints.step_of(before) == 6


def test_what_a_killed_writer_left_half_written_is_gone(tmp_path: Path) -> None:
    partial = interrupted(small(EVERY), tmp_path / "runs")
    (partial / ".0123456789abcdef.part").write_bytes(b"half of a checkpo")
    (partial / ".mine.part").write_bytes(b"somebody else's")
    folder = go_on(partial)
    assert [path.name for path in folder.iterdir() if path.name.endswith(".part")] == [".mine.part"]


def test_nothing_is_lost_where_no_checkpoint_is_whole(tmp_path: Path) -> None:
    partial = interrupted(small(EVERY), tmp_path)
    (only,) = checkpoints.files(partial)
    only.write_bytes(b"")
    before = everything(partial)

    with pytest.raises(CfclError, match=r"no checkpoint in '.*partial' can be used: remove that folder"):
        go_on(partial, note=[].append)
    assert everything(partial) == before


def test_edited_records_are_refused_and_records_beyond_the_checkpoint_dropped(tmp_path: Path) -> None:
    partial = interrupted(small(EVERY), tmp_path)
    metrics = partial / "metrics.jsonl"
    whole = metrics.read_bytes()
    metrics.write_bytes(whole.replace(b'"step":3', b'"step":4', 1))
    notes: list[str] = []
    with pytest.raises(CfclError, match="no checkpoint in"):
        go_on(partial, note=notes.append)
    assert "metrics.jsonl was changed after it" in notes[0]

    metrics.write_bytes(whole + b'{"kind":"half a rec')  # as a crash leaves it
    assert files(go_on(partial)) == reference(small(EVERY)).files


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an unfinished run; not to be changed."""
    return interrupted(small(EVERY), tmp_path_factory.mktemp("stopped"))


def _forged(partial: Path, forge: Callable[[dict[str, Any]], object]) -> None:
    """Puts a checkpoint with the right checksum in the place of the newest."""
    file = checkpoints.files(partial)[0]
    tree = snapshot.decode(file.read_bytes())
    forge(tree)
    file.unlink()
    checkpoints.write(partial, checkpoints.step_of(file), snapshot.encode(tree))


@pytest.mark.parametrize(
    ("forge", "reason"),
    [
        (lambda tree: tree.pop("about"), "it does not tell its format"),
        (lambda tree: tree["about"].update(numerics=torch.zeros(2)), "it does not tell its numerics"),
        (lambda tree: tree["about"].update(data=torch.zeros(2)), "it does not tell its data"),
        (lambda tree: tree["about"].update(records=10**400), "metrics.jsonl was changed after it"),
        (lambda tree: tree["about"].update(records=10**15), "metrics.jsonl was changed after it"),
        (lambda tree: tree["about"].update(records=-1), "metrics.jsonl was changed after it"),
        (lambda tree: tree["about"].update(records=0, records_digest=resuming.EMPTY), "not of kind setup"),
        (lambda tree: tree["clocks"].update(total=torch.zeros(9, 9)), "total=tensor"),
        (lambda tree: tree.update(step=tree["step"] + 1), "it is of step 10"),
        (lambda tree: tree.update(costs=torch.zeros(5, dtype=torch.int64)), "its costs are not rows of five"),
    ],
)
def test_a_forged_checkpoint_is_told_of_in_one_line_and_nothing_is_changed(
    forge: Callable[[dict[str, Any]], object], reason: str, stopped: Path, tmp_path: Path
) -> None:
    partial = shutil.copytree(stopped, tmp_path / stopped.name)
    _forged(partial, forge)
    before, notes = everything(partial), list[str]()
    with pytest.raises(CfclError, match="no checkpoint in"):
        go_on(partial, note=notes.append)
    (line,) = notes
    assert reason in line
    assert line.isprintable()
    assert everything(partial) == before


def test_records_beyond_the_step_of_a_checkpoint_are_not_measured_twice(tmp_path: Path) -> None:
    config = small(EVERY, "checkpoint.every=3")
    partial = interrupted(config, tmp_path)
    newest, before = checkpoints.files(partial)
    newer, older = (snapshot.decode(file.read_bytes()) for file in (newest, before))
    before.unlink()
    newest.unlink()
    checkpoints.write(partial, older["step"], snapshot.encode({**older, "about": newer["about"]}))
    notes: list[str] = []
    with pytest.raises(CfclError, match="no checkpoint in"):
        go_on(partial, note=notes.append)
    assert "line 18: step=6 is not between 3, the one before, and 5, the end" in notes[0]


def test_pipes_folders_and_what_is_larger_than_memory_are_no_checkpoints(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial = shutil.copytree(stopped, tmp_path / stopped.name)
    (real,) = checkpoints.files(partial)
    os.mkfifo(partial / f"checkpoint-00000012-{'0' * 32}.safetensors")
    (partial / f"checkpoint-00000011-{'0' * 32}.safetensors").mkdir()
    monkeypatch.setattr(reading, "memory", lambda: real.stat().st_size - 1)
    notes: list[str] = []
    with pytest.raises(CfclError, match="no checkpoint in"):
        go_on(partial, note=notes.append)
    assert "2-00000000000000000000000000000000.safetensors cannot be read (it is not a regular file)" in notes[0]
    assert "1-00000000000000000000000000000000.safetensors cannot be read (Is a directory)" in notes[1]
    assert f"{real.name} cannot be read (it has" in notes[2]


def test_a_config_that_is_no_text_is_refused_and_keeps_nobody_from_running(tmp_path: Path) -> None:
    config = small(EVERY)
    partial = interrupted(config, tmp_path)
    (partial / "config.toml").write_bytes(b"\xff")
    with pytest.raises(CfclError, match=r"config\.toml' cannot be read: 'utf-8' codec .*; restore it, or remove that"):
        go_on(partial)
    assert suites.simulate(config, out=tmp_path, workers=1, plotted=False).folder == partial.with_name(
        f"{partial.stem}-2"
    )


def test_a_folder_that_cannot_be_locked_is_refused(stopped: Path, tmp_path: Path) -> None:
    partial = shutil.copytree(stopped, tmp_path / stopped.name)
    for make in (Path.mkdir, os.mkfifo):
        (partial / ".lock").unlink(missing_ok=True)
        make(partial / ".lock")
        with pytest.raises(CfclError, match=r"cannot write to '.*partial': (Is a directory|No such device or address)"):
            go_on(partial)
        assert overview.below(partial)[0].state == "unfinished"
        if (partial / ".lock").is_dir():
            (partial / ".lock").rmdir()


def test_the_folder_that_one_is_in_is_gone_on_with(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial = shutil.copytree(stopped, tmp_path / stopped.name)
    for inside, word in ((partial, "."), (partial, ""), (tmp_path, partial.name), (tmp_path, partial.stem)):
        monkeypatch.chdir(inside)
        assert folders.unfinished(Path(word))[0].samefile(partial)
        assert not folders.tidied(Path(word))
    (partial / "below").mkdir()
    monkeypatch.chdir(partial / "below")
    assert folders.unfinished(Path(".."))[0] == partial


@pytest.mark.parametrize("place", [".", "/", "..", ".partial", "x" * 300, "a\0b", "\udcff"])
def test_what_can_be_no_run_folder_is_refused(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not folders.tidied(Path(place))
    with pytest.raises(CfclError, match="is no run folder, so there is nothing to go on with"):
        suites.resume(place)


def test_other_settings_versions_data_and_modules_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial = interrupted(small(EVERY), tmp_path)
    before = everything(partial)
    toml = partial / "config.toml"

    def refused(match: str, **options: Any) -> None:
        with pytest.raises(CfclError, match=match):
            go_on(partial, **options)
        toml.write_bytes(before["config.toml"])
        assert everything(partial) == before

    toml.write_text(toml.read_text().replace("learning_rate = 0.001", "learning_rate = 0.002"))
    refused(r"the run began with other settings \(train.learning_rate\): undo the change of its config.toml")
    digits = load(configs.DataConfig())
    other = Dataset("digits", 255 - digits.train_images, digits.train_labels, digits.test_images, digits.test_labels)
    refused("data is not what the run began with: restore it", dataset=other)
    refused(
        "model is not what the run began with", module=torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 16))
    )
    refused("loss is not what the run began with", loss=lambda one, two: (one - two).square().mean())
    with monkeypatch.context() as patch:
        patch.setattr(configs, "NUMERICS", 99)
        refused("the checkpoint is of numerics 2, and this version of cfcl has 99: use the version that began the run")
    with monkeypatch.context() as patch:
        patch.setattr(resuming, "FORMAT", 99)
        refused("the checkpoint is of format 3, and this version of cfcl has 99")


def test_data_that_moved_are_found_again(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (80, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "mine.npz", images=images, labels=np.arange(80) % 10)
    config = small(EVERY, "data.dataset=npz", f"data.path={tmp_path / 'mine.npz'}", "partition.kind=iid")
    whole = suites.simulate(config, out=tmp_path / "whole", plotted=False, workers=1)
    partial = interrupted(config, tmp_path / "runs")
    (tmp_path / "mine.npz").rename(tmp_path / "moved.npz")
    with pytest.raises(CfclError, match=r"mine\.npz"):
        go_on(partial)

    folder = go_on(partial, data_path=tmp_path / "moved.npz")

    assert whole.folder is not None
    assert files(folder) == files(whole.folder)


def test_the_same_call_again_goes_on_in_the_same_folder_even_without_a_checkpoint(tmp_path: Path) -> None:
    config, notes = small(EVERY), list[str]()
    partial = interrupted(config, tmp_path)
    for file in checkpoints.files(partial):
        file.unlink()

    result = suites.simulate(config, out=tmp_path, workers=1, plotted=False, note=notes.append)

    assert result.folder == partial.with_suffix("")
    assert files(result.folder) == reference(config).files
    assert notes == [f"going on with the unfinished run of the same settings in {str(partial)!r}"]


def test_another_run_does_not_go_on_with_this_one(tmp_path: Path) -> None:
    partial = interrupted(small(EVERY), tmp_path)
    other = suites.simulate(small(EVERY, "records.explain=true"), out=tmp_path, workers=1, plotted=False)
    dataset = load(configs.DataConfig())
    handed = suites.simulate(
        small(EVERY), dataset=dataset, out=tmp_path, plotted=False
    )  # nobody knows if it is the same
    assert partial.is_dir()
    assert {other.folder.name, handed.folder.name} == {  # type: ignore[union-attr]
        f"{partial.stem}-2",
        f"{partial.stem}-3",
    }


def test_two_processes_are_never_in_one_folder(tmp_path: Path) -> None:
    config = small(EVERY)
    partial = interrupted(config, tmp_path)
    with folders.Writer.reopen(partial):
        with pytest.raises(CfclError, match="another process is writing"):
            go_on(partial)
        assert folders.Writer.find(config, tmp_path) is None
        second = suites.simulate(config, out=tmp_path, workers=1, plotted=False)
    assert second.folder == partial.with_name(f"{partial.stem}-2")


def test_a_finished_run_and_a_strange_folder_are_nothing_to_go_on_with(tmp_path: Path) -> None:
    folder = suites.simulate(small(), out=tmp_path, workers=1, plotted=False).folder
    assert folder is not None
    with pytest.raises(CfclError, match="is finished, so there is nothing to go on with"):
        suites.resume(folder)
    with pytest.raises(CfclError, match="is no run folder, so there is nothing to go on with"):
        suites.resume(tmp_path)


def test_a_second_signal_acts_at_once_and_handlers_are_as_before(tmp_path: Path) -> None:
    handler = signal.getsignal(signal.SIGINT)

    def watch(record: Record) -> None:
        if isinstance(record, Update) and record.step == 4:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        suites.simulate(small(EVERY), out=tmp_path, workers=1, watch=watch)
    assert not isinstance(caught.value, Interrupted)
    assert signal.getsignal(signal.SIGINT) is handler
    (partial,) = tmp_path.iterdir()
    assert files(go_on(partial)) == reference(small(EVERY)).files


def test_a_run_that_was_stopped_before_it_measured_anything_leaves_nothing(tmp_path: Path) -> None:
    def watch(record: Record) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        suites.simulate(small(), out=tmp_path, workers=1, watch=watch)
    assert list(tmp_path.iterdir()) == []


DIVERGING = ("train.optimiser=sgd", "model.normalise=false", "train.learning_rate=1e12", EVERY)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_diverging_run_says_so_and_keeps_what_it_measured(workers: int, tmp_path: Path) -> None:
    with pytest.raises(
        Failed, match=r"the loss is not finite at step \d on device \d: lower train.learning_rate"
    ) as found:
        suites.simulate(small(*DIVERGING, "checkpoint.every=1"), out=tmp_path, workers=workers)
    (partial,) = tmp_path.iterdir()
    assert found.value.exit_code == 3
    assert (partial / "failed.txt").read_text() == f"{found.value}\n"
    assert found.value.__notes__ == [f"what was measured is kept; to go on: cfcl resume {partial}"]
    assert Evaluation.KIND in (partial / "metrics.jsonl").read_text()
    assert checkpoints.files(partial)


def test_a_full_disk_costs_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small(EVERY, "checkpoint.every=3")

    def full(path: Path, data: bytes) -> None:
        if "checkpoint-00000009" in path.name:
            raise OSError(28, "No space left on device")
        write_atomically(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write_atomically", full)
        with pytest.raises(Failed, match=r"cannot write to '.*\.partial': No space left on device: make room"):
            suites.simulate(config, out=tmp_path, workers=1)
    (partial,) = tmp_path.iterdir()
    assert "No space left" in (partial / "failed.txt").read_text()

    assert files(go_on(partial)) == reference(config).files


def test_a_picture_is_no_reason_to_lose_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise ZeroDivisionError("no such picture")

    monkeypatch.setattr(plots, "draw_run", fail)
    notes: list[str] = []
    folder = suites.simulate(small(), out=tmp_path, workers=1, note=notes.append).folder
    assert folder is not None
    assert files(folder) == reference(small()).files
    assert notes == ["the plots could not be drawn (ZeroDivisionError: no such picture); all else is there"]


def test_a_collapsing_encoder_is_told_of_while_the_run_goes_on(tmp_path: Path) -> None:
    class Flat(torch.nn.Module):
        """Every image nearly the same."""

        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.full((1, 4), 1e-3))

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.mean(dim=(1, 2, 3)).unsqueeze(1) * self.scale + 1.0

    notes: list[str] = []
    suites.simulate(small("train.steps=4"), module=Flat(), note=notes.append)
    assert len(notes) == 1
    assert "the encoder collapses" in notes[0]


def test_a_resumed_run_is_a_result_like_any_other(tmp_path: Path) -> None:
    config = small(EVERY)
    partial = interrupted(config, tmp_path)
    shutil.copytree(partial, tmp_path / "copy.partial")

    result = cfcl.resume(tmp_path / "copy", workers=1)  # the ending may be left out

    assert [row["step"] for row in result.metrics] == [0, 8, 12]
    assert result.timings.total > 0
    assert [step for step, _ in result.timings.selection] == [0, 3, 6, 9]
    assert (tmp_path / "copy" / "plots" / "accuracy.png").is_file()
