"""What a report is made of, worked out once: verdicts, chapters and pictures, per version of numerics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cfcl.errors import CfclError
from cfcl.study import captions, claims, measures
from cfcl.study.bundle import Study
from cfcl.study.captions import Chapter
from cfcl.study.claims import Judgement
from cfcl.study.figures import FIGURES, pictures

FILES = {
    "cells.csv": "which run stands where in which figure",
    "runs.csv": "what each run is, and its measures that have no curve",
    "evaluations.csv": "accuracies, bytes and seconds of each run, step by step",
    "distances.csv": "distances between labels",
    "selections.csv": "what policies select under one model",
    "study.json": "the profile, notes and milestones",
}
"""What lies beside a report."""
LONG = 16
"""Tables with more rows are folded."""

HEAD = ("Claim", "Verdict", "Sentence", "Tests", "Differences")
"""The columns of verdicts."""
RULE = (
    "A test is supported if the whole 95 % interval of the paired difference over seeds speaks for the claim, and for "
    "the size that it states, if any; otherwise not supported, if the whole interval speaks against it or, where no "
    "size is stated, for a negligible difference at most; undecided in all other cases, and with fewer than three "
    "seeds. A claim is supported if all its tests are, and not supported if one is not: that one may be chance where "
    "there are many, as nothing is corrected for their number. Positive differences speak for the claim."
)


@dataclass(frozen=True)
class Part:
    """What one version of numerics has measured, as people see it."""

    study: Study
    judgements: list[Judgement]
    chapters: list[Chapter]
    older: str = ""
    """Such as `numerics 1`, where there is a newer version."""

    @property
    def title(self) -> str:
        """Over all of it."""
        if self.older:
            return f"Records of {self.older}"
        return f"What the figures show: profile {self.study.about['profile']}"

    @property
    def lead(self) -> str:
        """The verdicts in a sentence or two, and what is missing."""
        said = [_count([item for item in self.judgements if not item.claim.ours], "of the paper")]
        if not self.rows:
            said = [claims.NONE]
        elif ours := [item for item in self.judgements if item.claim.ours]:
            said.append(_count(ours, "about our own variants"))
        runs = {cell.digest for cell in self.study.cells}
        if lost := len(runs - set(self.study.runs)):
            said.append(f"{lost} of {len(runs)} runs are missing.")
        return " ".join(said)

    @property
    def rows(self) -> list[list[str]]:
        """A row per claim that was tried, under `HEAD`."""
        return [
            [item.claim.id, item.verdict, item.claim.says, item.counts, _differences(item)]
            for item in self.judgements
            if item.findings
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
    return Part(study, claims.judge(study), captions.chapters(study, drawn, older), older)


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
    return [*(str(note) for note in newest.study.about.get("notes", [])), said]


def _count(judgements: Sequence[Judgement], what: str) -> str:
    verdicts = [item.verdict for item in judgements]
    idle = sum(not item.findings for item in judgements)
    parts = ", ".join(
        f"{verdicts.count(verdict)} {verdict}" for verdict in (claims.SUPPORTED, claims.NOT_SUPPORTED, claims.UNDECIDED)
    )
    return f"Of {len(verdicts)} claims {what}: {parts}{f' ({idle} not run)' if idle else ''}."


def _differences(judgement: Judgement) -> str:
    kind = claims.load()[0][judgement.claim.measure]
    means = [item.estimate.mean for item in judgement.findings if item.estimate is not None]
    if not means:
        return "–"
    low, high = f"{min(means):+z.{kind.digits}f}", f"{max(means):+z.{kind.digits}f}"
    return f"{low} {kind.unit}" if low == high else f"{low} to {high} {kind.unit}"
