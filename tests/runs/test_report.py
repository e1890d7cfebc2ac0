import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cfcl.config import to_toml
from cfcl.errors import CfclError
from cfcl.records import Interval, Yardstick
from cfcl.runs import report, style, summary, yardsticks
from cfcl.runs.folders import Run
from tests.runs.conftest import ENVIRONMENT, MakeRun

VOID = {"meta"}


class Page(HTMLParser):
    """Checks that tags are balanced and ids unique, and keeps what a reader sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.headings: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.captions: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        elif tag in ("h1", "h2", "h3"):
            self.headings.append("")
        elif tag == "figcaption":
            self.captions.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = set(self.open)
        self.text += data
        if inside & {"td", "th"}:
            self.tables[-1][-1][-1] += data
        if inside & {"h1", "h2", "h3"}:
            self.headings[-1] += data
        if "figcaption" in inside:
            self.captions[-1] += data


def _three_methods(make_run: MakeRun) -> list[Run]:
    return [
        make_run("cfcl-explicit", seed=0, probe=(0.5, 0.625, 0.75)),
        make_run("cfcl-explicit", seed=1, probe=(0.5, 0.625, 0.875)),
        make_run("cfcl-implicit", seed=0, probe=(0.5, 0.5, 0.625)),
        make_run("cfcl-implicit", seed=1, probe=(0.5, 0.5, 0.625)),
        make_run("fedavg", seed=0, probe=(0.5, 0.5, 0.6875)),
        make_run("fedavg", seed=1, probe=(0.5, 0.5, 0.625)),
    ]


def test_a_page_about_three_methods(make_run: MakeRun, tmp_path: Path) -> None:
    runs = _three_methods(make_run)

    out = report.write(runs, tmp_path / "new" / "report.html")

    text = out.read_text(encoding="utf-8")
    page = Page(text)
    assert page.headings == [
        *("cfcl report: tiny", "tiny", "Summary", "Learning curves", "Costs", "Network and data per device"),
        *("Distances between labels", "Pulled items", "Health of the embeddings", "Training"),
        *("Settings", "Versions", "Commands"),
    ]
    # 0.75 - 0.6875 = 0.0625 and 0.875 - 0.625 = 0.25; their mean is 0.15625
    assert (
        "Highest final probe accuracy of 3: cfcl-explicit with 81.2 %. Gain over FedAvg: +15.6 points on average over "
        "2 paired seeds (from +6.2 to +25.0; positive in 2 of 2). With only 2 seeds, a small difference may still "
        "be chance." in page.text
    )
    finals, devices, differences, versions = page.tables
    # probes 0.125 apart have the standard deviation 0.125 / sqrt(2); 20 steps of 0.1 s, and 0.75 s of selection
    assert finals[0][:5] == ["Method", "Seeds", "Probe accuracy (%)", "Gain over FedAvg (points)", "kNN (%)"]
    assert [row[:5] for row in finals[1:]] == [
        ["fedavg", "2", "65.6 ±4.4", "–", "40.6"],
        ["cfcl-explicit", "2", "81.2 ±8.8", "+15.6", "56.2"],
        ["cfcl-implicit", "2", "62.5 ±0.0", "-3.1", "37.5"],
    ]
    assert finals[0][5:] == ["CKA", "Pushed", "Pulled", "Uplink", "Delay", "of which selection"]
    assert finals[1][5:] == ["0.750", "0 B", "0 B", "800 kB", "2.00 s", "0.00 s"]
    assert finals[2][5:] == ["0.750", "1 kB", "3 kB", "800 kB", "2.75 s", "0.75 s"]
    assert devices[1:] == [["0", "40", "0", "1"], ["1", "50", "1", "0, 2"], ["2", "1,234", "0, 1", "1"]]
    assert differences[0] == ["Run", "seed", "exchange.method", "exchange.mode"]
    assert differences[4] == [runs[3].folder.name, "1", "cfcl", "implicit"]
    assert versions == [
        ["Runs", "python", "machine", "device", "engine", "workers", "numerics", "cfcl", "torch"],
        ["6", "3.11.0", "x86_64", "cpu", "sharded", "2", "1", "0.1.0", "2.6.0"],
    ]
    assert to_toml(runs[0].config) in page.text
    for run in runs:
        assert f"cfcl run {run.folder}/config.toml\n" in page.text + "\n"
    # 3 learning curves, 2 costs, the graph, the maps, 3 of pulls, 4 of health, 6 of training
    assert len(page.captions) == text.count("<svg ") == 20
    assert all(len(caption) > 40 for caption in page.captions)
    _check_self_contained(text)


def test_a_page_with_few_labels_and_yardsticks(make_run: MakeRun) -> None:
    runs = [make_run(method, "data.validation=0.1", few=True) for method in ("fedavg", "uniform-explicit")]
    rows = [Yardstick("raw pixels", 64, {"all": Interval(0.75, 0.5, 1.0), "30": Interval(0.5, 0.25, 0.75)})]
    yardsticks.write(runs[0].folder.parent / yardsticks.FILE, rows)

    page = Page(report.render(runs))

    assert page.headings[:5] == [
        "cfcl report: tiny, validation accuracy", "tiny", "Summary", "What you would use instead", "Learning curves",
    ]  # fmt: skip
    assert "Highest final validation accuracy of the probe of 2: fedavg with 75.0 %" in page.text
    assert "Accuracies are of validation images, not of test images: fedavg, uniform-explicit." in page.text
    summary_table, by_labels = page.tables[:2]
    # 1.96 sqrt(0.75 * 0.25 / 400) = 0.0424; with three labels 0.5, features 0.875 and 0.625
    assert summary_table[1][:3] == ["fedavg", "1", "75.0 ±4.2"]
    assert by_labels == [
        ["", "Numbers per image", "3/class", "30/class", "all labels"],
        ["fedavg, embedding", "", "50.0 ±4.9", "–", "75.0 ±4.2"],
        ["fedavg, features", "", "62.5 ±4.7", "–", "87.5 ±3.2"],
        ["uniform-explicit, embedding", "", "50.0 ±4.9", "–", "75.0 ±4.2"],
        ["uniform-explicit, features", "", "62.5 ±4.7", "–", "87.5 ±3.2"],
        ["raw pixels", "64", "–", "50.0 ±25.0", "75.0 ±25.0"],
    ]
    # beside the 20 of any page: three labels on either space, all on the features, and their rank
    assert len(page.captions) == 24 - 3  # and neither regulariser, weight nor dynamic margin of implicit mode


def test_few_labels_without_yardsticks_have_a_table_of_their_own(make_run: MakeRun) -> None:
    page = Page(report.render([make_run(few=True)]))
    assert page.headings[3] == "Accuracy by labels per class"
    assert page.headings[0] == "cfcl report: tiny"


ENGINE = ("torch", "cfcl.sim", "cfcl.device", "cfcl.exchange", "cfcl.models", "cfcl.data", "cfcl.core")


def test_a_report_waits_neither_for_torch_nor_for_the_engine(make_run: MakeRun, tmp_path: Path) -> None:
    code = (
        "import sys; from cfcl.cli import app; app(sys.argv[1:], standalone_mode=False); "
        f"print([name for name in {ENGINE} if name in sys.modules])"
    )
    run, out = make_run("fedavg"), tmp_path / "report.html"

    ended = subprocess.run(
        [sys.executable, "-c", code, "report", str(run.folder), "--out", str(out)], capture_output=True, text=True
    )

    assert ended.stdout.splitlines()[-1] == "[]", ended.stderr
    assert out.read_text(encoding="utf-8") == report.render([run])  # the same page in any process


def _check_self_contained(text: str) -> None:
    for name in ("xmlns", "xmlns:xlink"):
        text = re.sub(rf'{name}="http://www\.w3\.org/[a-z0-9/]+"', "", text)
    for foreign in ("http://", "https://", "src=", "@import", "<link", "<script", "<!ENTITY", "url(data", "//cdn"):
        assert foreign not in text
    for target in re.findall(r'href="([^"]*)"', text):
        assert target.startswith(("#", "data:image/png;base64,"))
    inner = set(re.findall(r'\bid="([^"]*)"', text))
    assert set(re.findall(r'(?:url\(|href=")#([^")]*)', text)) <= inner


def test_one_seed_proves_nothing(make_run: MakeRun) -> None:
    runs = [make_run("fedavg", probe=(0.5, 0.5, 0.75)), make_run(probe=(0.5, 0.5, 0.625))]

    found = report.headline(summary.by_curve(runs))

    assert found == (
        "Highest final probe accuracy of 2: fedavg with 75.0 %. No exchange exceeded it. "
        "One seed proves nothing: any difference may be chance."
    )
    assert report.headline(summary.by_curve(runs[1:])) == (
        "Final probe accuracy: cfcl-explicit with 62.5 %. One seed proves nothing: any difference may be chance."
    )


def test_the_headline_says_how_much_is_known(make_run: MakeRun) -> None:
    fedavg = [make_run("fedavg", seed=seed, probe=(0.5, 0.5, 0.5)) for seed in range(5)]
    explicit = [make_run(seed=seed, probe=(0.5, 0.5, 0.625 if seed else 0.375)) for seed in range(5)]

    assert report.headline(summary.by_curve([*fedavg, *explicit])) == (
        "Highest final probe accuracy of 2: cfcl-explicit with 57.5 %. Gain over FedAvg: +7.5 points on average over 5 "
        "paired seeds (from -12.5 to +12.5; positive in 4 of 5). All numbers are means over 5 seeds."
    )
    assert report.headline(summary.by_curve([fedavg[1], explicit[1]])) == (
        "Highest final probe accuracy of 2: cfcl-explicit with 62.5 %. Gain over FedAvg in the same seed: +12.5 "
        "points. One seed proves nothing: any difference may be chance."
    )


def test_headline_names_ties_and_missing_comparisons_and_leaves_out_references(make_run: MakeRun) -> None:
    runs = [
        make_run("uniform-explicit", probe=(0.5, 0.5, 0.75)),
        make_run("kmeans-explicit", probe=(0.5, 0.5, 0.75)),
        make_run("oracle-explicit", probe=(0.5, 0.5, 1.0)),
    ]

    assert report.headline(summary.by_curve(runs)) == (
        "Highest final probe accuracy of 2 (yardsticks apart): uniform-explicit with 75.0 %, equal to kmeans-explicit. "
        "There is no FedAvg run with the same settings to compare it with. One seed proves nothing: any "
        "difference may be chance."
    )


def test_the_headline_says_what_the_table_says(make_run: MakeRun) -> None:
    runs = [
        *(make_run("fedavg", seed=seed, probe=(0.5, 0.5, probe)) for seed, probe in enumerate((0.75, 0.5, 0.25))),
        *(make_run("uniform-explicit", seed=seed, probe=(0.5, 0.5, 0.6)) for seed in range(3)),
        *(make_run("cfcl-explicit", seed=seed, probe=(0.5, 0.5, 0.55)) for seed in range(3)),
    ]

    page = Page(report.render(runs))

    rows = page.tables[0][1:]
    best = max(rows, key=lambda row: float(row[2].split()[0]))
    # 60 - 75, 60 - 50 and 60 - 25 points: +10 on average
    assert best[:4] == ["uniform-explicit", "3", "60.0 ±0.0", "+10.0"]
    assert f"of {len(rows)}: {best[0]} with 60.0 %. Gain over FedAvg: {best[3]} points" in page.text


def test_rows_with_different_seeds_are_not_ranked(make_run: MakeRun) -> None:
    # CF-CL has the higher mean, 65 against 60, and is behind in the seed that both have: 65 against 75
    runs = [
        *(make_run("fedavg", seed=seed, probe=(0.5, 0.5, probe)) for seed, probe in enumerate((0.75, 0.45))),
        make_run("cfcl-explicit", seed=0, probe=(0.5, 0.5, 0.65)),
    ]

    assert report.headline(summary.by_curve(runs)) == (
        "Not all rows have the same seeds and images, so their means are not ranked. Largest gain over FedAvg, of "
        "cfcl-explicit in the same seed: -10.0 points. One seed proves nothing: any difference may be chance."
    )
    assert report.headline(summary.by_curve([runs[0], make_run("uniform-explicit", seed=4)])) == (
        "Not all rows have the same seeds and images, so their means are not ranked. None has a FedAvg run beside it. "
        "One seed proves nothing: any difference may be chance."
    )


def test_gains_are_paired_within_the_same_settings_only(make_run: MakeRun) -> None:
    runs = [
        make_run("fedavg", "train.batch_size=8", probe=(0.5, 0.5, 0.25)),
        make_run("fedavg", "train.batch_size=16", probe=(0.5, 0.5, 0.5)),
        make_run("cfcl-explicit", "train.batch_size=16", probe=(0.5, 0.5, 0.75)),
        make_run("cfcl-explicit", "train.batch_size=16", "exchange.num_pulled=2", probe=(0.5, 0.5, 0.625)),
        make_run("cfcl-explicit", "train.batch_size=32", probe=(0.5, 0.5, 0.75)),
    ]

    gains = {row.label: row.over_fedavg for row in summary.by_curve(runs)}

    assert gains == {
        "fedavg, train.batch_size=8": None,
        "fedavg": None,
        "cfcl-explicit": 0.25,
        "cfcl-explicit, exchange.num_pulled=2": 0.125,
        "cfcl-explicit, train.batch_size=32": None,
    }


def test_runs_without_labels_and_of_other_names_make_sections_of_their_own(make_run: MakeRun) -> None:
    runs = [make_run("fedavg", "name=plain", labelled=False), make_run("cfcl-implicit", "name=Settings")]

    text = report.render(runs)

    page = Page(text)
    assert page.headings == [
        *("cfcl report: plain, Settings", "plain", "Summary", "Costs", "Network and data per device"),
        *("Health of the embeddings", "Training", "Settings", "Summary", "Learning curves", "Costs"),
        *("Network and data per device", "Distances between labels", "Pulled items"),
        *("Health of the embeddings", "Training", "Settings", "Versions", "Commands"),
    ]
    assert "plain: There are no labels, so there is no accuracy" in page.text
    assert page.tables[0][1][:5] == ["fedavg", "1", "–", "–", "–"]
    assert page.tables[1][1] == ["0", "40", "–", "1"]
    _check_self_contained(text)


def test_hostile_names_are_escaped(make_run: MakeRun) -> None:
    hostile = "<script>alert('1')&amp;\"$x$"
    run = make_run("fedavg", folder=hostile, environment=replace(ENVIRONMENT, python=hostile, device="cuda:1"))
    other = make_run("fedavg", f"graph.edges_file='''{hostile}'''", seed=1)

    text = report.render([run, other])

    page = Page(text)
    assert "<script" not in text
    assert page.tables[-2][1][0] == hostile
    assert page.tables[-1][1][1] == hostile
    assert hostile in page.tables[0][2][0]
    assert "config.toml' --device cuda:1" in page.text


def test_what_is_not_printable_is_shown_escaped(make_run: MakeRun, tmp_path: Path) -> None:
    odd, shown = "a\x1b[31m\n\u202eb\udcff", r"a\x1b[31m\n\u202eb\udcff"
    run = make_run("fedavg", folder=odd, environment=replace(ENVIRONMENT, machine=odd))

    text = report.write([run, make_run("fedavg", seed=1)], tmp_path / "page.html").read_text(encoding="utf-8")

    page = Page(text)
    assert text.replace("\n", "").isprintable()
    assert page.tables[-2][1][0] == shown.replace(r"\n", "\n")  # which a page does not show
    assert page.tables[-1][1][2] == shown
    # Bytes, so that a shell finds the folder.
    assert rf"cfcl run $'{tmp_path}/runs/a\x1b[31m\x0a\xe2\x80\xaeb\xff/config.toml'" in page.text


def test_a_folder_may_look_like_an_option(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(style, "to_svg", lambda figure, prefix: "<svg ></svg>")
    run = replace(make_run("fedavg"), folder=Path("-x; rm"))

    assert "cfcl run './-x; rm/config.toml'" in Page(report.render([run])).text


def test_a_browser_may_run_no_script_and_fetch_nothing(make_run: MakeRun) -> None:
    rule = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    assert f'<meta http-equiv="Content-Security-Policy" content="{rule}">' in report.render([make_run("fedavg")])


def test_repeated_runs_are_left_out_and_said_to_be(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(style, "to_svg", lambda figure, prefix: "<svg ></svg>")
    page = Page(report.render([make_run("fedavg"), make_run("fedavg", folder="again")]))

    assert page.tables[0][1][1] == "1"
    assert "Runs left out because they repeat the settings and seed of another run: 1." in page.text
    assert "All runs have the same settings." in page.text


def test_an_existing_page_is_replaced_on_demand_only(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "render", lambda runs, unfinished: "page")
    out = tmp_path / "report.html"
    out.write_text("precious")

    with pytest.raises(CfclError, match=r"report\.html' exists and would be replaced: give --force"):
        report.write([make_run("fedavg")], out)

    assert out.read_text() == "precious"
    report.write([make_run("fedavg", seed=1)], out, force=True)
    assert out.read_text() == "page"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "runs"]


def test_what_cannot_be_written_or_shown_is_refused_in_one_line(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "render", lambda runs, unfinished: "page")
    run = make_run("fedavg")
    (tmp_path / "file").write_text("")

    with pytest.raises(CfclError, match="needs at least one run"):
        report.write([], tmp_path / "report.html")
    with pytest.raises(CfclError, match="is a folder, but a page is a file"):
        report.write([run], tmp_path / "runs", force=True)
    with pytest.raises(CfclError, match=r"cannot write .*file/report\.html'.*choose another --out"):
        report.write([run], tmp_path / "file" / "report.html")
