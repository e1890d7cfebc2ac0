import re
from dataclasses import replace
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from cfcl import __version__
from cfcl.errors import CfclError
from cfcl.runs import style
from cfcl.shown import visible
from cfcl.study import captions, claims, markdown, pages, report, webpage
from cfcl.study.bundle import Study
from cfcl.study.figures import FIGURES
from cfcl.study.report import Part
from cfcl.study.tables import Table
from tests.runs.test_report import Page
from tests.study import made
from tests.study.test_figures import HIGH, LOW, everything, whole

HOSTILE = "<script>alert('1')&amp;|*x*"


def _page(study: Study) -> str:
    return webpage.render(report.compose(study))


def _readme(study: Study) -> str:
    return markdown.render(report.compose(study))


def _table(study: Study, figure: str) -> Table:
    return FIGURES[figure].table(study, figure)


def _row(table: Table, *start: str) -> dict[str, str]:
    """The row that begins with `start`, by its head."""
    (found,) = [row for row in table.rows if row[: len(start)] == list(start)]
    return dict(zip(table.head, found, strict=True))


def test_a_page_about_every_figure(tmp_path: Path) -> None:
    study = everything()

    path = pages.write(whole(), tmp_path / "new")[-1]

    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert path.name == "report.html"
    assert page.headings == [
        "What the figures show: profile made",
        "Verdicts",
        *(FIGURES[f"fig{number}"].title for number in range(4, 12)),
        "Where selection matters",
        "What each method gains",
        "Where devices share most of what they have",
        "Accuracy against bytes between devices",
        "What faults cost",
        "Files",
    ]
    assert text.count("<svg ") == len(page.captions) == 13
    assert page.tables[0][0] == list(report.HEAD)
    assert [row[0] for row in page.tables[0][1:]] == [item.claim.id for item in claims.judge(study) if item.findings]
    for figure in (*(f"fig{number}" for number in range(4, 12)), "regime", "redundancy", "frontier", "gains", "faults"):
        command = f"cfcl reproduce {figure} --profile made --panels digits --seeds 1-2"
        assert (command in page.text) == (figure != "fig7")  # its one model is of the first seed
    assert page.text.count("Versions: cfcl 0.1, torch 2.6.") == 13
    assert f"made by cfcl {__version__}" in page.text
    inner = set(re.findall(r'\bid="([^"]*)"', text))
    links = set(re.findall(r'(?:url\(|href=")([^")]*)', text))
    assert {link.removeprefix("#") for link in links if link.startswith("#")} <= inner
    pictures = {link for link in links if link.startswith("data:image/png;base64,")}
    assert {link for link in links if not link.startswith("#")} - pictures == {
        *report.FILES,
        *(f"{name}.svg" for name in FIGURES if name in study.figures),
    }
    for foreign in ("<script", "src=", "@import", "<link", "https://"):
        assert foreign not in text
    assert webpage.render(whole()) == text


def test_the_lead_counts_verdicts_and_missing_runs() -> None:
    study = made.study(
        {
            ("fig5", "usps", "cfcl-explicit"): [HIGH, HIGH, HIGH, None],
            ("fig5", "usps", "cfcl-implicit"): [LOW, LOW, LOW, LOW],
        }
    )
    judged = claims.judge(study)

    found = Part(study, judged, []).lead

    # explicit mode ends 25 points ahead in all three seeds; nothing else can be compared
    assert {item.claim.id for item in judged if item.verdict == "supported"} == {"5c"}
    assert found == ("Of 4 claims of the paper and its drafts: 1 supported (5c), 3 not run. 1 of 8 runs are missing.")
    row = next(row for row in Part(study, judged, []).rows if row[0] == "5c")
    assert row[1:3] == ["the paper", "✓ supported"]
    assert (row[4], row[6]) == ("1 of 1 supported", "")
    assert Part(study, judged, []).rows[0][5] == "–"


def test_the_lead_counts_the_rows_of_the_table() -> None:
    part = whole()[0]
    marks = [row[2].partition(" ")[2] for row in part.rows]

    counted = {
        word: int(number) for number, word in re.findall(r"(\d+) (supported|contradicted|undecided|not run)", part.lead)
    }

    assert len(marks) == sum(map(int, re.findall(r"Of (\d+) claims", part.lead)))
    assert counted == {word: marks.count(word) for word in set(marks)}


def test_every_claim_names_its_figure_its_records_and_its_command() -> None:
    study = made.study(
        {
            ("fig5", "usps", "cfcl-explicit"): [HIGH, HIGH, HIGH],
            ("fig5", "usps", "cfcl-implicit"): [LOW, LOW, LOW],
            ("fig5", "digits", "cfcl-explicit"): [HIGH],
        }
    )

    text, readme = _page(study), _readme(study)

    rows = {row[0]: row for row in Page(text).tables[0]}
    one, other = (
        f"cfcl reproduce fig5 --profile made --panels {words}" for words in ("usps --seeds 1-3", "digits --seeds 1")
    )
    assert rows["5c"][-1] == f"fig5 in cells.csv{one}{other}"
    assert '<a href="#fig5">fig5</a> in <a href="cells.csv">' in text
    (line,) = [line for line in readme.splitlines() if line.startswith("| 5c | the paper | ")]
    assert line.endswith(f"[fig5](#fig5) in [cells.csv](cells.csv): `{one}` `{other}` |")
    assert '<a id="fig5"></a>' in readme


def test_a_verdict_has_a_symbol_and_a_colour() -> None:
    study = made.study(
        {
            ("fig5", "usps", "cfcl-explicit"): [HIGH, HIGH, HIGH],
            ("fig5", "usps", "cfcl-implicit"): [LOW, LOW, LOW],
            ("fig5", "usps", "fedavg"): [HIGH, HIGH, HIGH],
        }
    )

    text, readme = _page(study), _readme(study)

    # explicit is 25 points above implicit on the way; implicit is as far below FedAvg
    assert '<strong class="verdict good">✓ supported</strong>' in text
    assert '<strong class="verdict bad">✗ contradicted</strong>' in text
    assert '<strong class="verdict open">– not run</strong>' in text
    assert "| 5c | the paper | 🟦 ✓ supported |" in readme
    assert "| 5a | the paper | 🟧 ✗ contradicted |" in readme


def test_seeds_of_the_profile_are_not_named_and_others_are_in_ranges() -> None:
    full = {("fig5", "usps", "fedavg"): [LOW] * 5, ("fig5", "svhn", "fedavg"): [LOW, LOW, LOW]}
    gaps = made.study({("fig5", "usps", "fedavg"): [LOW] * 4})
    gaps = replace(gaps, cells=tuple(cell for cell in gaps.cells if cell.seed != 3))

    assert captions.commands(made.study(full, profile="full"), "fig5") == [
        "cfcl reproduce fig5 --profile full --panels usps",
        "cfcl reproduce fig5 --profile full --panels svhn --seeds 1-3",
    ]
    assert captions.commands(gaps, "fig5") == ["cfcl reproduce fig5 --profile made --panels usps --seeds 1-2,4"]


def test_claims_about_our_own_variants_are_counted_apart() -> None:
    study = made.study({("fig5", "usps", f"{kind}-explicit"): [LOW] for kind in ("novel", "cfcl", "uniform")})

    found = Part(study, claims.judge(study), []).lead

    assert re.fullmatch(
        r"Of \d+ claims of the paper and its drafts: \d+ not run\. "
        r"Of \d+ claims of ours: \d+ undecided\.",
        found,
    )


def test_numbers_are_paired_by_seed() -> None:
    study = made.study(
        {
            ("fig5", "usps", "cfcl-explicit"): [(0.5, 0.5, 0.8), (0.5, 0.5, 0.5), None],
            ("fig5", "usps", "uniform-explicit"): [LOW, (0.4, 0.4, 0.4), LOW],
            ("fig5", "usps", "fedavg"): [None, (0.25, 0.25, 0.25), LOW],
        }
    )

    table = _table(study, "fig5")

    assert [row[1] for row in table.rows] == ["fedavg", "cfcl-explicit", "uniform-explicit"]
    found = _row(table, "usps", "cfcl-explicit")
    # finals 80 and 50: standard deviation 21.213, and 12.7062 * 21.213 / sqrt(2) = 190.59; areas 57.5 and 50, so 47.65
    assert found == {
        "Dataset": "usps",
        "Method": "cfcl-explicit",
        "Seeds": "2 of 3",
        "Final (%)": "65.00 ± 190.59",
        "Mean (%)": "53.75 ± 47.65",
        "Final − FedAvg": "+25.00 (one seed)",
        # 30 and 10: mean 20, and 12.7062 * 10 = 127.06
        "Final − uniform": "+20.00 (-107.06 to +147.06)",
        "Mean − FedAvg": "+25.00 (one seed)",
        # 7.5 and 10: mean 8.75, and 12.7062 * 1.25 = 15.88
        "Mean − uniform": "+8.75 (-7.13 to +24.63)",
    }
    assert _row(table, "usps", "fedavg")["Final − FedAvg"] == "–"
    assert _row(table, "usps", "uniform-explicit")["Final − uniform"] == "–"


def test_swept_settings_are_compared_with_the_plain_choice() -> None:
    study = made.study(
        {
            ("fig9", "usps", "cfcl-implicit", ("reserve", "kmeans"), ("size", 20)): [HIGH],
            ("fig9", "usps", "cfcl-implicit", ("reserve", "random"), ("size", 20)): [LOW],
            ("fig9", "usps", "cfcl-implicit", ("reserve", "random"), ("size", 5)): [None],
            ("fig11", "usps", "cfcl-implicit", ("labels", 1), ("degree", 8)): [LOW],
            ("fig11", "usps", "cfcl-implicit", ("labels", 1), ("degree", 2)): [HIGH],
            ("regime", "usps", "uniform-implicit", ("variation", "base")): [LOW],
            ("regime", "usps", "cfcl-implicit", ("variation", "overlap around 0")): [HIGH],
        }
    )

    reserves, degrees, regime = (_table(study, figure) for figure in ("fig9", "fig11", "regime"))

    assert reserves.head[:5] == ["Dataset", "Reserve", "Size", "Method", "Seeds"]
    assert [row[1:5] for row in reserves.rows] == [
        ["kmeans", "20", "cfcl-implicit", "1"],
        ["random", "5", "cfcl-implicit", "0 of 1"],
        ["random", "20", "cfcl-implicit", "1"],
    ]
    assert [row[reserves.head.index("Final − reserve random")] for row in reserves.rows] == [
        "+50.00 (one seed)",
        "–",
        "–",
    ]
    assert [row[degrees.head.index("Final − degree 2")] for row in degrees.rows] == ["–", "-50.00 (one seed)"]
    # the base's uniform, as this variation leaves it alone
    assert _row(regime, "usps", "overlap around 0")["Final − uniform"] == "+50.00 (one seed)"


def test_a_reference_that_feels_a_variation_is_not_taken_from_the_base() -> None:
    study = made.study(
        {
            ("regime", "usps", "fedavg", ("variation", "base")): [LOW],
            ("regime", "usps", "cfcl-explicit", ("variation", "buffer kept")): [HIGH],
            ("regime", "usps", "cfcl-explicit", ("variation", "margin 1")): [HIGH],
        }
    )

    table = _table(study, "regime")

    assert _row(table, "usps", "buffer kept")["Final − FedAvg"] == "+50.00 (one seed)"
    assert _row(table, "usps", "margin 1")["Final − FedAvg"] == "–"  # FedAvg with margin 1 has not run


def test_variations_have_diagnostics_beside_their_accuracies() -> None:
    study = made.study({("regime", "usps", "cfcl-explicit", ("variation", "base")): [HIGH]})

    row = _row(_table(study, "regime"), "usps", "base")

    shown = [row[name] for name in ("Candidates", "Held (%)", "False negatives (%)", "Active (%)")]
    assert shown == ["25", "25.0", "12.5", "50.0"]


def test_a_study_without_claims_has_no_verdicts() -> None:
    study = made.study({("regime", "usps", "cfcl-explicit", ("variation", "base")): [HIGH]})

    text, readme = _page(study), _readme(study)

    assert "No claim is about these figures." in Page(text).text
    assert "No claim is about these figures." in readme
    assert "Verdicts" not in Page(text).text
    assert "Verdicts" not in readme


def test_costs_and_selections_have_tables_of_their_own() -> None:
    study = made.study(
        {
            ("fig6", "usps", "cfcl-explicit"): [HIGH, (0.5, 0.5, 0.75), LOW],
            ("fig6", "usps", "uniform-explicit"): [HIGH, LOW, LOW],
            ("fig6", "usps", "bulk-explicit"): [None, None, None],
        },
        milestones={"usps explicit": [0.625]},
        selections=[
            made.selection("cfcl-explicit", distance=0.25, held=0.5),
            made.selection("uniform-explicit", distance=0.5, held=0.75),
        ],
    )

    costs, selections = _table(study, "fig6"), _table(study, "fig7")

    # steps 5 and 15 at 50 B pushed, 150 B pulled, 100 B up and 0.1 s a step
    assert [row[3:] for row in costs.rows] == [
        ["cfcl-explicit", "2 of 3", "10", "500 B", "1.5 kB", "1 kB", "1.0"],
        ["uniform-explicit", "1 of 3", "–", "–", "–", "–", "–"],
        ["bulk-explicit", "0 of 0", "–", "–", "–", "–", "–"],
    ]
    assert selections.rows == [
        ["digits", "cfcl-explicit", "1", "10", "0.250", "-0.250 (one seed)", "50.0", "-25.0 (one seed)"],
        ["digits", "uniform-explicit", "1", "10", "0.500", "–", "75.0", "–"],
    ]


def test_captions_say_how_many_seeds_and_what_the_bands_are() -> None:
    def caption(*curves: tuple[float, ...] | None) -> str:
        return captions.chapters(made.study({("fig5", "usps", "cfcl-explicit"): list(curves)}), {})[0].caption

    assert caption(LOW).endswith("One seed (1): any difference may be chance.")
    assert caption(None).endswith("No run of it has finished.")
    assert caption(LOW, None, LOW).endswith(
        "Means over 2 seeds (1, 3). Bands span the seeds, as two are too few for an interval; the table has Student's, "
        "of 95 %."
    )
    assert caption(LOW, LOW, LOW).endswith(
        "Means over 3 seeds (1, 2, 3). Bands and the table give Student's 95 % interval of the mean."
    )


def test_captions_say_that_a_panel_shows_common_seeds_where_methods_have_different_ones() -> None:
    def caption(**seeds: int) -> str:
        places = {("fig5", "usps", method): [LOW] * number for method, number in seeds.items()}
        return captions.chapters(made.study(places), {})[0].caption

    assert caption(fedavg=4, bulk=3).endswith("A panel shows the seeds that all its methods have.")
    assert not caption(fedavg=3, bulk=3).endswith("A panel shows the seeds that all its methods have.")


def test_missing_runs_are_named() -> None:
    study = made.study(
        {
            ("fig8", "usps", "fedavg", ("devices", 2)): [None, LOW, None],
            ("fig8", "usps", "fedavg", ("devices", 4)): [LOW, LOW, LOW],
            ("fig8", "usps", "cfcl-explicit", ("devices", 4)): [None],
        }
    )
    piloted = replace(study, about={**study.about, "pilot": 1})

    assert captions.missing(study, "fig8") == [
        "usps, fedavg, devices 2: seeds 1, 3",
        "usps, cfcl-explicit, devices 4: seed 1",
    ]
    assert captions.missing(piloted, "fig8")[1] == "usps, cfcl-explicit, devices 4: seed 1 (the pilot)"
    assert "usps, fedavg, devices 2: seeds 1, 3" in Page(_page(study)).text


def test_what_cannot_be_drawn_is_said() -> None:
    study = made.study({("fig6", "usps", "cfcl-explicit"): [HIGH], ("fig5", "usps", "cfcl-explicit"): [None]})

    text = Page(_page(study)).text

    assert "Nothing is drawn: the pilot has not run, so there are no accuracies to reach." in text
    assert "Nothing is drawn: it needs runs that have not finished." in text
    assert "Versions: no run, so none." not in text  # fig5 has none of its own, so it names those of the study


def test_a_command_names_the_panels_that_have_the_same_seeds() -> None:
    study = made.study(
        {
            ("fig5", "usps", "fedavg"): [LOW, LOW],
            ("fig5", "svhn", "fedavg"): [LOW],
            ("fig5", "digits", "fedavg"): [LOW, None],
        }
    )

    assert captions.commands(study, "fig5") == [
        "cfcl reproduce fig5 --profile made --panels usps,digits --seeds 1-2",
        "cfcl reproduce fig5 --profile made --panels svhn --seeds 1",
    ]


def test_hostile_text_is_escaped() -> None:
    run = made.record(HIGH, versions=HOSTILE)
    study = made.study(
        {
            ("fig5", HOSTILE, HOSTILE): [run],
            ("regime", "usps", "fedavg", ("variation", HOSTILE)): [LOW],
        },
        notes=[HOSTILE],
        profile=HOSTILE,
    )

    text = _page(study)
    readme = _readme(study)

    assert "<script" not in text
    assert Page(text).text.count(HOSTILE) >= 6
    assert "<script" not in re.sub(r"`[^`]*`", "", readme)
    assert "&lt;script&gt;alert('1')&amp;amp;\\|\\*x\\*" in readme


LINKS = [
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](&#106;avascript:alert&#40;1))",
    "![x](data:text/html,<script>alert(1)</script>)",
    "[x]( vbscript:x)",
    "\\[x](javascript:alert(1))",
    "[x]: javascript:alert(1)",
    "<javascript:alert(1)>",
    "<img src=x onerror=alert(1)>",
    "`code` **bold** ~~struck~~ --> </details>",
    "\x1b[31m \u202egnp \ud800",
]


@pytest.mark.parametrize("hostile", LINKS)
def test_text_in_markdown_is_text(hostile: str) -> None:
    study = made.study(
        {("fig5", visible(hostile), "fedavg"): [made.record(HIGH, versions=hostile), None]},
        notes=[hostile],
        profile=hostile,
    )

    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(_readme(study))

    inner = [child for token in tokens for child in token.children or ()]
    assert {child.attrs["href"] for child in inner if child.type == "link_open"} == {*report.FILES, "#fig5"}
    assert {child.attrs["src"] for child in inner if child.type == "image"} == {"fig5.png"}
    assert {child.type for child in inner} == {"text", "code_inline", "link_open", "link_close", "image", "html_inline"}
    assert {child.content for child in inner if child.type == "html_inline"} == {'<a id="fig5">', "</a>"}
    blocks = [token.content for token in tokens if token.type == "html_block"]
    assert all(text.startswith(("<details><summary>", "</details>")) for text in blocks)
    shown = ["".join(child.content for child in token.children or ()) for token in tokens]
    assert visible(" ".join(hostile.split())) in shown


def test_commands_are_quoted() -> None:
    study = made.study({("fig5", "a`b; rm *", "fedavg"): [HIGH]}, profile="$(id)\x1b")

    line = r"cfcl reproduce fig5 --profile $'$(id)\x1b' --panels 'a`b; rm *' --seeds 1"
    assert captions.commands(study, "fig5") == [line]
    assert f"\n\n`` {line} ``\n\n" in _readme(study)
    assert line in Page(_page(study)).text


def test_markdown_has_the_same_tables_and_the_figures_beside_it() -> None:
    text = markdown.render(whole())

    assert text.startswith("# What the figures show: profile made\n\nOf ")
    for figure in (*(f"fig{number}" for number in range(4, 12)), "regime", "redundancy", "frontier", "gains", "faults"):
        assert f"]({figure}.png)" in text
    assert "| digits | cfcl-explicit | 2 | 100.00 ± 0.00 | 75.00 ± 0.00 | +50.00 (+50.00 to +50.00) |" in text
    assert "- [cells.csv](cells.csv): which run stands where in which figure\n" in text
    assert text.endswith(f"\n\nWritten by cfcl {__version__}.\n")


def test_long_tables_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    study = made.study({("fig5", "usps", method): [LOW] for method in ("fedavg", "cfcl-explicit")})

    def folds() -> tuple[bool, bool]:
        return "The numbers: 2 rows" in _page(study), "The numbers: 2 rows" in _readme(study)

    assert folds() == (False, False)
    monkeypatch.setattr(report, "LONG", 1)
    assert folds() == (True, True)


def test_a_figure_shrinks_with_its_page_and_can_be_seen_alone() -> None:
    text = _page(made.study({("fig5", "usps", "fedavg"): [LOW]}))

    # two panels of 5.2 inches
    assert '<svg role="img" aria-label="Fig. 5: accuracy over steps" style="max-width: 67.6rem" ' in text
    assert ' <a href="fig5.svg">The picture alone</a>.</figcaption>' in text


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(CfclError, match=r"cannot write pages to .*file'.*; choose another folder"):
        pages.write(report.compose(made.study({})), tmp_path / "file")


def test_yardsticks_and_our_variant_have_looks_of_their_own() -> None:
    assert style.LOOKS["oracle-explicit"].colour == style.LOOKS["centralised"].colour == style.GREY
    assert style.LOOKS["novel-explicit"].colour not in {
        look.colour for name, look in style.LOOKS.items() if name != "novel-explicit"
    }


def test_a_figure_of_another_version_is_refused() -> None:
    study = made.study({("fig12", "usps", "fedavg"): [LOW]})

    with pytest.raises(CfclError, match="figure 'fig12' of the study is not known to this cfcl: use the version"):
        report.compose(study)


def test_what_was_registered_is_counted_also_where_it_has_not_run() -> None:
    curves = {f"{method}-explicit": [[0.5, level]] * 3 for method, level in (("cover", 0.75), ("uniform", 0.5))}
    study = made.study(
        {("fig5", panel, method): runs for panel in ("usps-common", "usps-ring") for method, runs in curves.items()},
        profile="registered",
        panels={"usps-common": "usps", "usps-ring": "usps"},
        registered={"commit": "0123456789abcdef", "sha256": "0"},
    )

    (part,) = report.compose(study)

    # 12a and 12b have runs in their one panel, 75 % being 25 points above 50; 12g is about digits-common, too
    assert part.counts == [
        "Of 32 claims of the paper and its drafts: 32 not run.",
        "Of 31 claims of ours: 2 supported (12a, 12b), 1 undecided, 28 not run.",
    ]
    rows = {row[0]: row for row in part.rows}
    assert len(rows) == 63
    assert [rows["12g"][place] for place in (2, 4, 6)] == [
        "? undecided",
        "1 of 2 supported, 1 not run",
        "missing runs",
    ]
    assert [rows["13a"][place] for place in (2, 4, 5, 6)] == ["– not run", "0 of 1 supported, 1 not run", "–", ""]
    assert [rows["5d"][place] for place in (2, 4, 5, 6)] == [
        "– not run",
        "not run",
        "–",
        "",
    ]  # no run of novel is planned
    page, readme = webpage.render([part]), markdown.render([part])
    for text in (page, readme):
        assert "cfcl reproduce redundancy --profile registered --panels usps" in text
        assert "#redundancy" not in text
        assert "--panels usps-ring --seeds 1-3" in text
    assert "Claim 5d" not in page
    assert "nothing of this panel has run" in page


def test_claims_wait_for_panels_in_registered_studies_only() -> None:
    places = {("fig4", "usps-paper", "fedavg"): [LOW]}
    early = made.study(places, profile="registered", panels={"usps-paper": "usps-paper"})
    settled = replace(early, about={**early.about, "registered": {"commit": "0", "sha256": "0"}})

    def panels(study: Study) -> list[str]:
        (found,) = [item for item in claims.judge(study) if item.claim.id == "4b"]
        return [test.panel for test in found.findings]

    assert panels(early) == ["usps-paper"]
    assert panels(settled) == ["usps-paper", "usps-study"]


def test_a_report_begins_with_the_picture_that_stands_for_it(tmp_path: Path) -> None:
    pair = {"fedavg": [[0.5, 0.5]], "uniform-explicit": [[0.4, 0.4]]}
    study = made.study({("gains", "usps-common", method): runs for method, runs in pair.items()})

    page, readme = _page(study), _readme(study)
    written = {path.name for path in pages.write(report.compose(study), tmp_path)}

    assert "hero.png" in written
    assert readme.index(f"![{report.HERO}](hero.png)") < readme.index("All numbers are of numerics")
    assert [caption.partition(":")[0] for caption in Page(page).captions] == [
        "What each method gains at the end, in points",
        "Final accuracy, as differences within a seed",
    ]
    assert page.index(report.HERO) < page.index("All numbers are of numerics")
    assert "hero" not in _readme(made.study({("gains", "svhn", method): runs for method, runs in pair.items()}))
