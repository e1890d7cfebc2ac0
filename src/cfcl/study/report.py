"""What a report is made of, worked out once: verdicts, chapters and pictures, per version of numerics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cfcl.errors import CfclError
from cfcl.runs import style
from cfcl.study import captions, claims, measures, names, verdicts
from cfcl.study.bundle import Study
from cfcl.study.captions import Chapter
from cfcl.study.claims import Judgement
from cfcl.study.figures import FIGURES, gains, pictures
from cfcl.study.figures.figure import Picture

FILES = {
    "cells.csv": "which run stands where in which figure",
    "runs.csv": "what each run is, and its measures that have no curve",
    "evaluations.csv": "accuracies, bytes and seconds of each run, step by step",
    "distances.csv": "distances between labels",
    "selections.csv": "what policies select under one model",
    "study.json": "the profile, notes and milestones",
}
"""What lies beside a report."""
HERO = "What each method gains at the end, in points: differences within a seed, with 95 % intervals"
"""What the picture that stands for a study shows."""
LONG = 16
"""Tables with more rows are folded."""

HEAD = ("Claim", "Whose", "Verdict", "Sentence", "Tests", "Differences", "To decide", "Runs")
"""The columns of verdicts."""
SETTINGS = ("Panel", "What it is", "Settings")
"""Those of the settings in which claims are judged."""
RULE = (
    "Differences are paired over seeds, with 95 % intervals, and taken from the number that a claim states, if any; "
    "positive ones speak for the claim. Every measure has a smallest size worth naming. A claim is supported if every "
    "test lies above by more than that size (all must hold, so no correction is due); contradicted if one lies below "
    "by more than it, after Holm's correction for the number of its tests; no difference if all lie within it; else "
    "undecided, with the number of seeds that would decide if they went on as so far. Fewer than three seeds, and runs "
    "that are the same by construction, decide nothing."
)


@dataclass(frozen=True)
class Part:
    """What one version of numerics has measured, as people see it."""

    study: Study
    judgements: list[Judgement]
    chapters: list[Chapter]
    older: str = ""
    """Such as `numerics 1`, where there is a newer version."""
    hero: Picture | None = None
    """The picture that stands for the study, where it has one."""

    @property
    def title(self) -> str:
        """Over all of it."""
        if self.older:
            return f"Records of {self.older}"
        return f"What the figures show: profile {self.study.about['profile']}"

    @property
    def lead(self) -> str:
        """The verdicts in a sentence or two, and what is missing."""
        return " ".join(filter(None, [*(self.counts or [claims.NONE]), self.missing]))

    @property
    def tried(self) -> list[Judgement]:
        """The claims that this study is about: what is counted, and what has a row. What was registered is not left
        out because it has not run; it comes last.
        """
        if "registered" not in self.study.about or self.older:
            return [item for item in self.judgements if item.findings]
        return sorted(self.judgements, key=lambda item: item.verdict == verdicts.NOT_RUN)

    @property
    def counts(self) -> list[str]:
        """A sentence on the verdicts on claims of the paper, and one on ours; none without claims."""
        ours = [item for item in self.tried if item.claim.whose == "ours"]
        others = [item for item in self.tried if item.claim.whose != "ours"]
        named = {"of the paper and its drafts": others, "of ours": ours}
        return [_count(items, whose) for whose, items in named.items() if items]

    @property
    def missing(self) -> str:
        """How many runs are not there; empty if all are."""
        runs = {cell.digest for cell in self.study.cells}
        lost = len(runs - set(self.study.runs))
        return f"{lost} of {len(runs)} runs are missing." if lost else ""

    def commands(self, item: Judgement) -> list[str]:
        """What asks for the runs behind a claim."""
        panels = dict.fromkeys(test.panel for test in item.findings)
        return captions.commands(self.study, item.claim.figure, panels)

    @property
    def rows(self) -> list[list[str]]:
        """A row per claim that was tried, under `HEAD` but for its last column, which is mark-up."""
        return [
            [
                item.claim.id,
                claims.WHOSE[item.claim.whose],
                f"{verdicts.MARKS[item.verdict]} {item.verdict}",
                item.claim.says,
                item.counts,
                _differences(item),
                item.needs,
            ]
            for item in self.tried
        ]


Report = Sequence[Part]
"""The newest numerics first."""


def compose(study: Study) -> Report:
    """All that is shown of `study`; the same study gives the same report."""
    for name in study.figures:
        if name not in FIGURES:
            raise CfclError(
                f"figure {name!r} of the study is not known to this cfcl: use the version that wrote it, or take its "
                "lines out of cells.csv"
            )
    newest, *others = split(study)
    return [_part(newest), *(_part(part, f"numerics {part.about['numerics']}") for part in others)]


def _part(study: Study, older: str = "") -> Part:
    drawn = pictures(study, captions.suffix(older))
    hero = None if older else gains.hero(study)
    picture = Picture(style.to_png(hero), style.to_svg(hero, "hero"), hero.get_figwidth()) if hero else None
    return Part(study, claims.judge(study), captions.chapters(study, drawn, older), older, picture)


def split(study: Study) -> list[Study]:
    """The parts of `study` by version, the newest first; runs that are missing belong to the newest."""
    newest = study.about["numerics"]
    made = {digest: run.numerics for digest, run in study.runs.items()}
    found = sorted({newest, *made.values()}, reverse=True)
    return [study] if found == [newest] else [_version(study, made, version) for version in found]


def _version(study: Study, made: Mapping[str, int], version: int) -> Study:
    newest, pilot = study.about["numerics"], study.about["pilot"]
    cells = tuple(cell for cell in study.cells if made.get(cell.digest, newest) == version)
    runs = {digest: run for digest, run in study.runs.items() if run.numerics == version}
    return replace(
        study,
        about={**study.about, "numerics": version, "milestones": measures.milestones(cells, runs, pilot)},
        cells=cells,
        runs=runs,
        selections=tuple(item for item in study.selections if made.get(item.digest, newest) == version),
    )


def notes(report: Report) -> list[str]:
    """What a reader has to know about the runs."""
    newest, *others = report
    apart = "; records of older versions stand apart, below" if others else ""
    said = f"All numbers are of numerics version {newest.study.about['numerics']}{apart}."
    return [*(str(note) for note in newest.study.about.get("notes", [])), *_settings(newest.study), said]


def _settings(study: Study) -> list[str]:
    """Where claims were judged, and when that was settled."""
    panels = study.about.get("panels", {})
    printed, ours = ([panel for panel in panels if study.of_paper(panel) == paper] for paper in (True, False))
    said = []
    if printed:
        said.append(f"Claims of the paper and its drafts are judged in its settings: {', '.join(printed)}.")
    if ours:
        said.append(f"Ours are judged in the settings that they are about: {', '.join(ours)}.")
    if found := study.about.get("registered"):
        said.append(
            f"Claims, sizes, seeds and settings were settled before the first run, in commit {found['commit'][:12]}."
        )
    return said


def settings(part: Part) -> list[list[str]]:
    """A row per panel that claims are judged in, under `SETTINGS`; none where a profile has no settings of its own."""
    panels = part.study.about.get("panels", {})
    words = part.study.about.get("settings", {})
    return [[panel, names.of(panel), words.get(panel, f"preset {preset}")] for panel, preset in panels.items()]


def _count(judgements: Sequence[Judgement], what: str) -> str:
    parts = []
    for verdict in verdicts.VERDICTS:
        found = [item.claim.id for item in judgements if item.verdict == verdict]
        named = f" ({', '.join(found)})" if verdict in (verdicts.SUPPORTED, verdicts.CONTRADICTED) else ""
        parts += [f"{len(found)} {verdict}{named}"] if found else []
    return f"Of {len(judgements)} claims {what}: {', '.join(parts)}."


def _differences(judgement: Judgement) -> str:
    kind = claims.load()[0][judgement.claim.measure]
    means = [item.estimate.mean for item in judgement.findings if item.estimate is not None]
    if not means:
        return "–"
    low, high = f"{min(means):+z.{kind.digits}f}", f"{max(means):+z.{kind.digits}f}"
    return f"{low} {kind.unit}" if low == high else f"{low} to {high} {kind.unit}"
