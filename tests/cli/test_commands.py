import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import cfcl
from cfcl.cli import app
from tests.conftest import SMALL, small

SETS = [word for item in ("name=digits", *SMALL) for word in ("--set", item)]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def run_small(out: Path, *overrides: str) -> Path:
    words = [word for override in overrides for word in ("--set", override)]
    result = invoke("run", "digits-study", *SETS, *words, "--workers", "1", "--out", str(out))
    assert result.exit_code == 0, result.output
    return max(out.iterdir(), key=lambda path: path.stat().st_mtime_ns)


def test_a_run_folder_holds_all_that_is_promised(tmp_path: Path) -> None:
    folder = run_small(tmp_path / "runs")
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert names >= {"config.toml", "metrics.jsonl", "costs.json", "encoder.safetensors", "timings.json"}
    assert any(name.startswith("plots/") and name.endswith(".png") for name in names)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [rows[0]["kind"], rows[-1]["kind"]] == ["setup", "final"]
    assert cfcl.load_run(folder).config.train.steps == 12


def test_the_same_command_twice_gives_the_same_bytes_in_two_folders(tmp_path: Path) -> None:
    first, second = run_small(tmp_path / "runs"), run_small(tmp_path / "runs")
    assert first != second
    assert second.name == first.name + "-2"
    for name in ("metrics.jsonl", "encoder.safetensors", "config.toml", "costs.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_a_run_can_be_repeated_from_its_own_config(tmp_path: Path) -> None:
    first = run_small(tmp_path / "one", "seed=4")
    result = invoke("run", str(first / "config.toml"), "--workers", "1", "--out", str(tmp_path / "two"))
    assert result.exit_code == 0, result.output
    (second,) = (tmp_path / "two").iterdir()
    assert (first / "metrics.jsonl").read_bytes() == (second / "metrics.jsonl").read_bytes()


def test_compare_ends_with_a_table_and_a_report(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    result = invoke(
        "compare", "digits-study", *SETS, "--methods", "fedavg,cfcl-explicit", "--seeds", "0-1", "--out", str(out)
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "vs FedAvg" in result.output
    assert "mean over 2 seeds" in result.output
    (folder,) = out.iterdir()
    assert (folder / "report.html").is_file()
    runs = [path for path in folder.iterdir() if path.is_dir()]
    assert len(runs) == 4
    assert re.search(r"cfcl-explicit +\d\d\.\d ±\d+\.\d", result.output)


FEW = ["--set", "evaluation.labels_per_class=[2]", "--set", "evaluation.features=true"]


def test_a_comparison_with_few_labels_says_what_you_would_use_instead(tmp_path: Path) -> None:
    words = ["compare", "digits-study", *SETS, *FEW, "--methods", "fedavg", "--out", str(tmp_path)]
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    assert "2/class" in result.output
    assert "What you would use instead" in result.output
    assert "[bold]" not in result.output
    (file,) = tmp_path.glob("*/baselines.json")
    before = file.stat().st_mtime_ns
    assert {path.name for path in file.parent.iterdir() if path.is_dir()} == {  # no run but those that were asked for
        path.parent.name for path in file.parent.glob("*/metrics.jsonl")
    }
    again = invoke(*words)
    assert "untrained, embedding" in again.output
    assert "centralised, embedding" in again.output
    assert file.stat().st_mtime_ns == before  # computed once
    assert "What you would use instead" in file.with_name("report.html").read_text(encoding="utf-8")


def test_baselines_are_printed_and_written(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    words = ["baselines", "digits", "--set", "evaluation.max_train=200", "--no-centralised", "--out", str(out)]
    result = invoke(*words)
    assert "centralised" not in result.output
    assert result.exit_code == 0, result.output
    shown = " ".join(result.output.split())
    assert "raw pixels 64" in shown
    assert "32 principal components 32" in shown
    assert out.read_text().startswith("name,dim,labels_per_class,accuracy,low,high,note\nraw pixels,64,all,0.9")
    check_complaint(invoke(*words), tmp_path / "none", "rows.csv", "exists", "--force")
    check_complaint(invoke(*words[:-1], str(tmp_path / "rows.txt")), tmp_path / "none", "rows.txt", ".csv")


def test_compare_in_processes_equals_a_run_by_itself(tmp_path: Path) -> None:
    alone = run_small(tmp_path / "alone")
    result = invoke("compare", "digits-study", *SETS, "--methods", "cfcl-explicit", "--out", str(tmp_path / "many"))
    assert result.exit_code == 0, result.output
    (together,) = (path for path in next((tmp_path / "many").iterdir()).iterdir() if path.is_dir())
    for name in ("metrics.jsonl", "encoder.safetensors"):
        assert (alone / name).read_bytes() == (together / name).read_bytes(), name


def test_report_reads_folders_and_does_not_overwrite(tmp_path: Path) -> None:
    folder = run_small(tmp_path / "runs")
    page = tmp_path / "page.html"
    assert invoke("report", str(folder.parent), "--out", str(page)).exit_code == 0
    before = page.read_bytes()
    refused = invoke("report", str(folder), "--out", str(page))
    assert (refused.exit_code, page.read_bytes()) == (2, before)
    assert invoke("report", str(folder), "--out", str(page), "--force").exit_code == 0


def test_version_presets_and_config() -> None:
    assert invoke("--version").output == f"cfcl {cfcl.__version__}\n"
    assert "digits" in invoke("presets").output
    shown = invoke("config", "digits", "--set", "seed=9").output
    assert "seed = 9" in shown
    assert "# T_a: updates between aggregations." in shown


def test_help_teaches() -> None:
    for command in ("run", "compare", "report", "config", "presets"):
        assert command in invoke("--help").output
    assert "Example" in invoke("run", "--help").output


def test_help_loses_no_word() -> None:
    shown = " ".join(invoke("redraw", "--help").output.replace("│", " ").split())
    assert "between <!-- verdicts --> and <!-- /verdicts -->." in shown


def test_the_module_lists_its_names() -> None:
    assert {"Config", "load_config", "load_encoder", "load_run", "run"} <= set(dir(cfcl))
    for name in dir(cfcl):
        assert getattr(cfcl, name) is not None


def test_a_dry_run_prints_the_plan_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke("run", "digits-study", *SETS, "--workers", "2", "--dry-run")
    assert result.exit_code == 0, result.output
    for part in ("digits, cfcl-explicit, seed 0", "1,438 training", "4 with", "8 directed links", "17,648 parameters"):
        assert part in result.stdout
    for part in ("once, 1.54 kB", "3 times at most 1.02 kB", "3 times 282 kB", "2 processes, estimated"):
        assert part in result.stdout
    assert result.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_a_dry_comparison_has_a_line_per_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke(
        "compare", "digits-study", *SETS, "--methods", "fedavg,cfcl-explicit", "--seeds", "0-1", "--dry-run"
    )
    assert result.exit_code == 0, result.output
    assert len(re.findall(r"^(?:fedavg|cfcl-explicit) +[01] ", result.stdout, flags=re.MULTILINE)) == 4
    assert "4 runs" in result.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["run", "compare"])
@pytest.mark.parametrize(
    ("override", "value", "rule", "remedy"),
    [
        ("graph.degree=12", "degree=12", "exceeds", "lower graph.degree"),
        ("exchange.num_reserve=10000", "num_reserve=10000", "exceeds the", "lower exchange.num_reserve"),
        ("train.steps=0", "train.steps=0", "greater than or equal to 1", "change train.steps"),
    ],
)
def test_a_dry_run_refuses_what_a_run_refuses(
    tmp_path: Path, command: str, override: str, value: str, rule: str, remedy: str
) -> None:
    out = tmp_path / "runs"
    result = invoke(command, "digits", "--set", override, "--dry-run", "--out", str(out))
    check_complaint(result, out, value, rule, remedy)


def test_a_dry_run_knows_hostile_devices(tmp_path: Path) -> None:
    words = ["run", "digits-study", *SETS, "--dry-run", "--out", str(tmp_path / "runs"), "--set", "attack.devices=1"]
    assert "1 of 4, items-noise" in invoke(*words).stdout
    refused = invoke(*words, "--set", "attack.kind=items-far")
    check_complaint(refused, tmp_path / "runs", "attack.kind='items-far'", "without bounds", "choose another")


def test_a_dry_run_refuses_more_workers_than_devices(tmp_path: Path) -> None:
    result = invoke("run", "digits-study", *SETS, "--workers", "5", "--dry-run")
    check_complaint(result, tmp_path / "runs", "5 workers", "4 devices", "lower --workers")


def test_a_setting_without_effect_gets_one_note() -> None:
    result = invoke("run", "digits-study", *SETS, "--set", "exchange.score=text", "--dry-run")
    (line,) = result.stderr.splitlines()
    assert line.startswith("note: exchange.score has no effect here, only with")


def test_a_comparison_notes_what_none_of_its_runs_uses() -> None:
    words = ["compare", "digits-study", *SETS, "--set", "exchange.score=text", "--dry-run", "--methods"]
    assert invoke(*words, "fedavg,cfcl-explicit").stderr.count("note: exchange.score") == 1
    assert invoke(*words, "fedavg,cfcl-implicit").stderr == ""


def test_a_comparison_notes_what_it_replaces() -> None:
    words = ["compare", "digits-study", *SETS, "--dry-run", "--methods", "fedavg,cfcl-explicit"]
    result = invoke(*words, "--set", "exchange.mode=implicit", "--set", "seed=4", "--set", "exchange.method=fedavg")
    assert result.stderr.splitlines() == [
        "note: seed=4 has no effect here: methods and seeds of the comparison replace it"
    ]  # fmt: skip
    result = invoke(*words[:-1], "cfcl-explicit", "--set", "exchange.mode=implicit")
    assert "note: exchange.mode=implicit has no effect here" in result.stderr


def test_paths_may_be_strings(tmp_path: Path) -> None:
    result = cfcl.run(small("train.steps=2"), out=str(tmp_path / "runs"), workers=1, plotted=False)
    assert result.folder is not None
    assert result.folder.parent == tmp_path / "runs"
    result.encoder.save(str(tmp_path / "x"))
    assert (tmp_path / "x").read_bytes() == (result.folder / "encoder.safetensors").read_bytes()


def test_only_the_first_of_torchruns_processes_prints_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("RANK", "0")
    assert "in 3 processes" in invoke("run", "digits-study", *SETS, "--dry-run").stdout
    monkeypatch.setenv("RANK", "2")
    assert invoke("run", "digits-study", *SETS, "--dry-run").stdout == ""


def test_records_as_json_lines(tmp_path: Path) -> None:
    result = invoke("run", "digits-study", *SETS, "--workers", "1", "--json", "--out", str(tmp_path))
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert rows[-1]["kind"] == "done"
    assert Path(rows[-1]["folder"]).is_dir()


def test_import_does_not_wait_for_torch() -> None:
    code = "import sys, cfcl; cfcl.__version__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_interruption_leaves_what_was_measured(tmp_path: Path) -> None:
    arguments = ["run", "digits", "--set", "train.steps=100000", "--json", "--out", str(tmp_path)]
    with subprocess.Popen([sys.executable, "-m", "cfcl", *arguments], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if json.loads(line)["kind"] == "train":
                child.send_signal(2)
                break
        child.stdout.read()
        assert child.wait(timeout=60) == 130
    (folder,) = tmp_path.iterdir()
    assert folder.name.endswith(".partial")
    assert len((folder / "metrics.jsonl").read_text().splitlines()) >= 3


# What a user may get wrong: the arguments after `cfcl run digits`, and the value, rule and remedy in the complaint.
BAD_SETTINGS = [
    ("train.steps=0", "train.steps=0", "greater than or equal to 1", "change train.steps"),
    ("train.steps=ten", "train.steps='ten'", "integer", "change train.steps"),
    ("train.learning_rate=-0.1", "train.learning_rate=-0.1", "greater than 0", "change train.learning_rate"),
    ("train.learning_rate=nan", "train.learning_rate=nan", "finite", "change train.learning_rate"),
    ("train.remote_fraction=1.5", "train.remote_fraction=1.5", "less than or equal to 1", "change"),
    ("train.composition=mixed", "'mixed'", "not an option", "'cross', 'union' or 'negatives_only'"),
    ("train.batchsize=3", "train.batchsize", "not a known key", "did you mean 'train.batch_size'?"),
    ("training.steps=3", "training", "not a known key", "cfcl config"),
    ("aggregation.period=0", "aggregation.period=0", "greater than or equal to 1", "change aggregation.period"),
    ("aggregation.num_devices=11", "aggregation.num_devices=11", "exceeds partition.num_devices=10", "lower it"),
    ("exchange.period=0", "exchange.period=0", "greater than or equal to 1", "change exchange.period"),
    ("exchange.num_pulled=51", "num_pulled=51", "without replacement", "lower exchange.num_pulled"),
    ("exchange.num_pulled=-1", "exchange.num_pulled=-1", "greater than or equal to 0", "change"),
    ("exchange.num_clusters=51", "num_clusters=51", "a cluster needs", "lower exchange.num_clusters"),
    ("exchange.num_reserve=10000", "num_reserve=10000", "exceeds the", "lower exchange.num_reserve"),
    ("exchange.num_candidates=10000", "num_candidates=10000", "exceeds the", "lower exchange.num_candidates"),
    ("exchange.num_reserve_clusters=11", "num_reserve_clusters=11", "exceeds num_reserve=10", "raise exchange"),
    ("exchange.method=magic", "'magic'", "not a known policy", "choose one of bulk, centralised, cfcl, cover, fedavg"),
    ("exchange.mode=secret", "'secret'", "not an option", "'explicit', 'activations' or 'implicit'"),
    ("exchange.stop=0", "exchange.stop=0", "greater than or equal to 1", "change exchange.stop"),
    ("exchange.start=10000000", "start=10000000", "no exchange could happen", "lower exchange.start"),
    ("exchange.budgets_file=absent.csv", "absent.csv", "cannot read", "give a CSV"),
    ("exchange.overlap_std=0", "exchange.overlap_std=0", "greater than 0", "change"),
    ("partition.num_devices=0", "partition.num_devices=0", "greater than or equal to 1", "change"),
    ("partition.num_devices=5000", "5000", "points", "lower"),
    ("partition.labels_per_device=11", "labels_per_device=11", "10", "lower partition.labels_per_device"),
    ("partition.alpha=0", "partition.alpha=0", "greater than 0", "change"),
    ("graph.degree=12", "degree=12", "exceeds", "lower graph.degree"),
    ("graph.degree=0.5", "degree=0.5", "connect", "raise graph.degree"),
    ("graph.kind=edges", "kind='edges'", "needs a file", "set graph.edges_file"),
    ("graph.kind=torus", "'torus'", "not an option", "'ring'"),
    ("model.embedding_dim=0", "embedding_dim=0", "greater than or equal to 1", "change"),
    ("cost.d2d_mbps=0", "cost.d2d_mbps=0", "greater than 0", "change"),
    ("cost.rates_file=absent.csv", "absent.csv", "cannot read", "give a CSV"),
    ("augment.crop=0", "augment.crop=0", "greater than 0", "change"),
    ("name=a/b", "'a/b'", "pattern", "change name"),
    ("seed=-1", "seed=-1", "greater than or equal to 0", "change seed"),
    ("seed", "'seed'", "section.key=value", "exchange.num_pulled=5"),
    ("a.b.c=1", "'a.b.c=1'", "section.key=value", "exchange.num_pulled=5"),
]  # fmt: skip


def check_complaint(result: Result, out: Path, *parts: str) -> None:
    assert result.exit_code == 2, result.output
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("error: ")
    assert "Traceback" not in result.output
    for part in parts:
        assert part in lines[0]
    assert not out.exists() or not list(out.iterdir())


@pytest.mark.parametrize(("override", "value", "rule", "remedy"), BAD_SETTINGS, ids=[row[0] for row in BAD_SETTINGS])
def test_bad_settings_get_one_line(tmp_path: Path, override: str, value: str, rule: str, remedy: str) -> None:
    out = tmp_path / "runs"
    check_complaint(invoke("run", "digits", "--set", override, "--out", str(out)), out, value, rule, remedy)


BAD_EDGES = [
    ("0 1\n1 x\n", "line 2", "x"),
    ("0 1\n1 1\n", "line 2", "1"),
    ("0 1\n1 12\n", "line 2", "12"),
    ("0 1\n1 0\n", "line 2", "repeats"),
    ("0 1\n2 3\n", "connected", ""),
]


@pytest.mark.parametrize(("content", "first", "second"), BAD_EDGES)
def test_bad_edge_lists_get_one_line(tmp_path: Path, content: str, first: str, second: str) -> None:
    file, out = tmp_path / "edges.txt", tmp_path / "runs"
    file.write_text(content)
    result = invoke(
        "run", "digits", "--set", "graph.kind=edges", "--set", f"graph.edges_file={file}", "--out", str(out)
    )
    check_complaint(result, out, "edges.txt", first, second)


BAD_COMMANDS = [
    (("run", "digit"), "'digit'", "neither a preset nor a file", "did you mean the preset 'digits'?"),
    (("run", "absent.toml"), "'absent.toml'", "neither a preset nor a file", "cfcl presets"),
    (("run", "digits", "--device", "warp"), "'warp'", "cannot be used", "choose cpu"),
    (
        ("compare", "digits", "--methods", "cfcl-magic"),
        "'magic'",
        "not an option",
        "'explicit', 'activations' or 'implicit'",
    ),
    (("compare", "digits", "--methods", "magic"), "'magic'", "not a known policy", "choose one of"),
    (("compare", "digits", "--methods", ","), "at least one method", "needs", "--methods"),
    (("compare", "digits", "--seeds", "a-b"), "'a-b'", "whole numbers", "write 0,1,2"),
    (("compare", "digits", "--seeds", "1,1"), "'1,1'", "twice", "write 0,1,2"),
    (("compare", "digits", "--set", "graph.degree=12"), "degree=12", "exceeds", "lower"),
    (("report", "absent"), "'absent'", "no finished run", "cfcl run"),
]


@pytest.mark.parametrize(
    ("arguments", "value", "rule", "remedy"), BAD_COMMANDS, ids=[" ".join(r[0]) for r in BAD_COMMANDS]
)
def test_bad_commands_get_one_line(
    tmp_path: Path, arguments: tuple[str, ...], value: str, rule: str, remedy: str
) -> None:
    out = tmp_path / "runs"
    check_complaint(invoke(*arguments, "--out", str(out)), out, value, rule, remedy)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"[train\nsteps = 3\n", "is not valid TOML"),
        (b"train = 3\n", "train=3"),
        (b"[train]\nsteps = 3\nsteps = 4\n", "is not valid TOML"),
        (b"\xff\xfe\x00", "UTF-8"),
    ],
)
def test_bad_files_get_one_line(tmp_path: Path, content: bytes, complaint: str) -> None:
    file, out = tmp_path / "bad.toml", tmp_path / "runs"
    file.write_bytes(content)
    check_complaint(invoke("run", str(file), "--out", str(out)), out, "bad.toml", complaint)


def test_a_place_that_cannot_be_written_gets_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = invoke("run", "digits-study", *SETS, "--out", str(tmp_path / "file" / "runs"))
    check_complaint(result, tmp_path / "file" / "runs", "cannot write below", "choose another --out")


@pytest.mark.parametrize(("steps", "shown"), [(4, 2), (12, 3)])
def test_the_table_of_a_run_shows_every_evaluation_once(steps: int, shown: int, tmp_path: Path) -> None:
    settings = ["--set", f"train.steps={steps}", "--set", "evaluation.every=1", "--workers", "1"]
    output = invoke("run", "digits-study", *SETS, *settings, "--out", str(tmp_path)).output
    rows = re.findall(r"^ *(\d+) +\d+\.\d ", output, flags=re.MULTILINE)
    assert len(rows) == len(set(rows)) == shown
