"""Verdicts on what the figures are said to show, computed from a study; `claims.toml` holds the claims and the rule."""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from cfcl.study import lines, measures, verdicts
from cfcl.study.bundle import Measured, Selection, Study
from cfcl.study.figures import FIGURES
from cfcl.study.measures import COSTS, Interval, Mark, Saving, saving
from cfcl.study.profiles import PROFILES
from cfcl.study.values import printed_settings
from cfcl.study.verdicts import Bounds, Evidence

NONE = "No claim is about these figures."
"""In place of verdicts."""
WHOSE = {"paper": "the paper", "drafts": "its drafts", "ours": "ours"}
"""Who says so."""
DETAILS = ("claim", "panel", "case", "difference", "95 % interval", "unit", "seeds", "verdict", "note")
"""The columns of `details`."""

Case = Mapping[str, Any]
"""What fills the names of a claim: `mode`, `other`, a swept setting, and under `milestone` its `Marks`."""

_ENDS = {"smallest": 0, "largest": -1}
_RUNS: Mapping[str, Callable[[Measured], float | None]] = {
    "final": measures.final,
    "area": measures.area,
    "separation": lambda run: run.separation,
    "cka": measures.alike,
    "worst_label": measures.worst_label,
    "worst_device": measures.worst_device,
    "spared": measures.spared,
}
_REACHED, _CORRELATION = "reached", "correlation"
"""Measures of whole panels."""
_SELECTIONS: Mapping[str, Callable[[Selection], float | None]] = {
    "distance": lambda item: item.distance,
    "mean_distance": lambda item: item.mean_distance,
    "held": lambda item: 100 * item.held,
}


class Marks(NamedTuple):
    """What has to be reached in a test of savings."""

    accuracies: tuple[Mark, ...]
    word: str
    """What the claim has under `milestone`: `every`, `highest`, `mean`, `rise` or `end`."""

    @property
    def words(self) -> str:
        """For people."""
        if self.word == "end":
            return "over the whole run"
        shown = [f"{100 * mark:g}" for mark in self.accuracies if mark is not None]
        if not shown:
            return "no milestone"
        if self.word == "rise":
            return f"from {shown[0]} to {shown[-1]} %"
        return f"{'mean over' if len(shown) > 1 else 'at'} {', '.join(shown)} %"


@dataclass(frozen=True)
class Scale:
    """How numbers of one kind are read."""

    unit: str
    digits: int
    """After the point, in tables."""
    negligible: float
    """Less than this is no difference worth the name."""


@dataclass(frozen=True)
class Claim:
    """That `plus` is larger than `minus`, as written in `claims.toml`."""

    id: str
    figure: str
    says: str
    measure: str
    plus: Sequence[Any]
    minus: Sequence[Any]
    each: Mapping[str, Any] = field(default_factory=dict)
    at_least: float = 0.0
    """The number that it states, from which differences are taken."""
    smallest: float | None = None
    """The smallest size worth naming; not set: that of its measure."""
    on: tuple[str, ...] = ()
    """The panels of our own settings in which it is judged; empty: those of the paper's."""
    whose: str = "paper"
    """One of `WHOSE`; what is ours is about variants of our own, and no claim where a study has no such runs."""

    @property
    def bounds(self) -> Bounds:
        """Where a difference begins to count."""
        return Bounds(self.at_least, load()[0][self.measure].negligible if self.smallest is None else self.smallest)


@dataclass(frozen=True)
class Finding:
    """One test of a claim, in one panel."""

    panel: str
    case: str
    """Such as `explicit, against fedavg, at 90 %`; empty if the claim has one test per panel."""
    verdict: str
    estimate: Interval | None
    """Over seeds; positive numbers speak for the claim."""
    note: str
    """What is missing or to be kept in mind."""

    needed: int | None = None
    """Seeds that would decide it, if it is undecided and so many could ever be run."""

    @property
    def seeds(self) -> int:
        """Those behind the estimate."""
        return len(self.estimate.values) if self.estimate else 0


@dataclass(frozen=True)
class Judgement:
    """A claim with all its tests; none where the study lacks the figure."""

    claim: Claim
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> str:
        """On the whole claim."""
        return verdicts.conclude([item.verdict for item in self.findings])

    @property
    def counts(self) -> str:
        """Such as `3 of 8 supported, 1 contradicted`."""
        found = [item.verdict for item in self.findings]
        if not found:
            return verdicts.NOT_RUN
        others = [word for word in (*verdicts.VERDICTS[1:], verdicts.SAME) if word in found]
        tail = "".join(f", {found.count(word)} {word}" for word in others)
        return f"{found.count(verdicts.SUPPORTED)} of {len(found)} supported{tail}"

    @property
    def needs(self) -> str:
        """What an undecided claim would take, such as `about 40 seeds`."""
        if self.verdict != verdicts.UNDECIDED:
            return ""
        open_tests = [item for item in self.findings if item.verdict == verdicts.UNDECIDED]
        if any(item.verdict == verdicts.NOT_RUN or item.seeds == 1 for item in self.findings):
            return "missing runs"
        if not open_tests or any(item.estimate is None for item in open_tests):
            return "other settings"  # tests that agree with different verdicts, or milestones that are not reached
        if any(item.needed is None for item in open_tests):
            return f"more than {verdicts.MOST_SEEDS:,} seeds"
        return f"about {max(item.needed or 0 for item in open_tests):,} seeds"


@cache
def load() -> tuple[Mapping[str, Scale], tuple[Claim, ...]]:
    """Scales by measure, and all claims in order of figures."""
    table = tomllib.loads(resources.files("cfcl.study").joinpath("claims.toml").read_text(encoding="utf-8"))
    kinds = {name: Scale(**entry) for name, entry in table["measures"].items()}
    claims = tuple(Claim(**entry) for entry in table["claims"])
    assert kinds.keys() == {*_RUNS, *_SELECTIONS, *COSTS, _REACHED, _CORRELATION}
    assert len({claim.id for claim in claims}) == len(claims)
    assert {claim.whose for claim in claims} <= WHOSE.keys()
    for claim in claims:
        assert claim.measure in kinds
        single = len(claim.plus) == len(claim.minus) == 1
        assert claim.measure not in COSTS or (single and "milestone" in claim.each)
        assert claim.measure not in (_REACHED, _CORRELATION) or single
    return kinds, claims


def judge(study: Study) -> list[Judgement]:
    """A judgement on every claim, in order of figures; claims of our own only where there is something to judge, or
    where they were registered.
    """
    found = [Judgement(claim, _findings(study, claim)) for claim in load()[1]]
    return [item for item in found if item.findings or item.claim.whose != "ours" or "registered" in study.about]


def details(judgements: Iterable[Judgement]) -> list[list[str]]:
    """A row per test, under `DETAILS`."""
    return [
        [item.claim.id, test.panel, test.case, *_numbers(test, item.claim.measure), test.verdict, test.note]
        for item in judgements
        for test in item.findings
    ]


def _numbers(test: Finding, measure: str) -> list[str]:
    kind = load()[0][measure]
    if test.estimate is None:
        return ["–", "–", kind.unit, "0"]
    estimate = test.estimate
    mean, low, high = (_number(value, kind.digits) for value in (estimate.mean, estimate.low, estimate.high))
    return [mean, f"{low} to {high}" if test.seeds > 1 else "–", kind.unit, str(test.seeds)]


def _number(value: float, digits: int) -> str:
    return f"{value:+z.{digits}f}" if abs(value) < 1000 else f"{value:+.2e}"


def _findings(study: Study, claim: Claim) -> tuple[Finding, ...]:
    tried = list(_tried(study, claim))
    bounds = claim.bounds
    found = verdicts.judge([evidence for _, _, evidence, _ in tried], bounds)
    return tuple(
        Finding(panel, case, verdict, evidence.estimate, note, _needed(verdict, evidence, bounds, len(tried)))
        for (panel, case, evidence, note), verdict in zip(tried, found, strict=True)
    )


def _needed(verdict: str, evidence: Evidence, bounds: Bounds, tests: int) -> int | None:
    if verdict != verdicts.UNDECIDED or evidence.estimate is None or len(evidence.estimate.values) < 2:
        return None
    return verdicts.seeds_needed(evidence.estimate, bounds, tests)


def _tried(study: Study, claim: Claim) -> Iterable[tuple[str, str, Evidence, str]]:
    """Panel, case, evidence and note of every test."""
    for panel in study.panels(claim.figure):
        if study.of_paper(panel) == bool(claim.on) or (claim.on and panel not in claim.on):
            continue
        there = {cell.method for cell in study.cells if (cell.figure, cell.panel) == (claim.figure, panel)}
        for case in _cases(study, claim, panel):
            methods = {_fill(_place(item)["method"], case) for item in (*claim.plus, *claim.minus)}
            if claim.whose != "ours" or methods <= there:
                yield panel, _words(case), *_test(study, claim, panel, case)
    for panel in _awaited(study, claim):
        yield panel, "", Evidence(None), "nothing of this panel has run"


def _awaited(study: Study, claim: Claim) -> list[str]:
    """The panels in which a registered claim is to be judged, and of which there is nothing yet: no claim is decided
    without them.
    """
    profile, figure = PROFILES.get(study.about["profile"]), FIGURES[claim.figure]
    if profile is None or "registered" not in study.about or not figure.seeds(profile):
        return []
    printed = [name for name in figure.panels(profile) if printed_settings(profile.panels[name].preset)]
    wanted = claim.on or (printed if claim.whose != "ours" else [])
    return [panel for panel in wanted if panel not in study.panels(claim.figure)]


def _cases(study: Study, claim: Claim, panel: str) -> list[Case]:
    """Every combination of the values in `each`."""
    cases: list[Case] = [{}]
    for key, given in claim.each.items():
        cases = [{**case, key: value} for case in cases for value in _choices(study, claim, panel, case, key, given)]
    return cases


def _choices(study: Study, claim: Claim, panel: str, case: Case, key: str, given: Any) -> Sequence[Any]:
    if key == "milestone":
        return _marks([] if given == "end" else study.milestones(panel, case["mode"]), given)
    if given == "every":
        return study.values(claim.figure, key, panel)
    return [_fill(value, case) for value in given]


def _marks(found: Sequence[float], word: str) -> list[Marks]:
    """What tests of savings have to reach; without milestones there is one test, of nothing."""
    if word == "end":
        return [Marks((None,), word)]
    if word == "rise":
        return [Marks((found[0], found[-1]) if len(found) > 1 else (), word)]
    if word == "mean" or not found:
        return [Marks(tuple(found), word)]
    return [Marks((mark,), word) for mark in (found[-1:] if word == "highest" else found)]


def _fill(value: Any, case: Case) -> Any:
    """`value` with names filled in; a lone name gives what it stands for, a number too."""
    if not isinstance(value, str):
        return value
    return case[value[1:-1]] if value[1:-1] in case and value[0] == "{" else value.format_map(case)


def _place(item: Any) -> dict[str, Any]:
    return {"method": item} if isinstance(item, str) else dict(item)


def _words(case: Case) -> str:
    """A case for people."""

    def word(key: str, value: Any) -> str:
        if isinstance(value, Marks):
            return value.words
        return {"mode": f"{value}", "other": f"against {value}"}.get(key, f"{key} {value}")

    return ", ".join(word(key, value) for key, value in case.items())


def _test(study: Study, claim: Claim, panel: str, case: Case) -> tuple[Evidence, str]:
    """The evidence, and a note."""
    places = [{key: _fill(value, case) for key, value in _place(item).items()} for item in (*claim.plus, *claim.minus)]
    ends = {key for place in places for key, value in place.items() if value in _ENDS}
    swept = {key: study.values(claim.figure, key, panel) for key in sorted(ends)}
    for key, values in swept.items():
        if len(values) < 2:
            return Evidence(None), f"fewer than two values of {key}"
    places = [
        {key: swept[key][_ENDS[value]] if value in _ENDS else value for key, value in place.items()} for place in places
    ]
    if claim.measure in COSTS:
        return _test_saving(study, claim, panel, case, places)
    if claim.measure == _REACHED:
        return _test_reached(study, claim.figure, panel, places)
    if claim.measure == _CORRELATION:
        return _test_correlation(study, claim.figure, panel, places)
    found = [_measured(study, claim, panel, place) for place in places]
    seeds, note = _shared(found, places)
    signs = [1] * len(claim.plus) + [-1] * len(claim.minus)
    sums = [sum(sign * part[seed] for sign, part in zip(signs, found, strict=True)) for seed in seeds]
    return Evidence(measures.interval(sums)), _join(_few(seeds), note)


def _few(seeds: Sequence[object]) -> str:
    return "too few seeds" if 0 < len(seeds) < verdicts.FEWEST_SEEDS else ""


def _test_saving(
    study: Study, claim: Claim, panel: str, case: Case, places: Sequence[Mapping[str, Any]]
) -> tuple[Evidence, str]:
    """The same for what `minus` saves of what `plus` spends."""
    found = [study.find(claim.figure, panel, **place) for place in places]
    seeds, note = _shared(found, places)
    marks = case["milestone"]
    if not marks.accuracies:
        return Evidence(None), _join(f"no milestones for {panel} {case['mode']}", note)
    pairs = {seed: (found[0][seed], found[1][seed]) for seed in seeds}
    saved = saving(pairs, marks.accuracies, claim.measure, rise=marks.word == "rise")
    return _evidence(saved, len(seeds), places, note)


def _test_reached(study: Study, figure: str, panel: str, places: Sequence[Mapping[str, Any]]) -> tuple[Evidence, str]:
    """The same for what `minus` saves of the bytes of `plus` where that is best."""
    found = [lines.frontier(study, figure, panel, **place) for place in places]
    seeds, note = _shared(found, places)
    return _evidence(lines.reaching(*found), len(seeds), places, note)


def _test_correlation(
    study: Study, figure: str, panel: str, places: Sequence[Mapping[str, Any]]
) -> tuple[Evidence, str]:
    """How well the estimate goes with what `plus` ends above `minus`: a correlation over the worlds of each seed."""
    found = lines.worlds(study, figure, panel, *(place["method"] for place in places))
    known = {seed: lines.correlation(some) for seed, some in sorted(found.items())}
    values = [value for value in known.values() if value is not None]
    return Evidence(measures.interval(values)), _few(values) if values else "no estimates, or too few worlds"


def _evidence(saved: Saving, number: int, places: Sequence[Mapping[str, Any]], note: str) -> tuple[Evidence, str]:
    """What savings over `number` seeds say, and in words what they do not say."""
    plus, minus = (place["method"] for place in places)
    of_all = f"of {number} seeds"
    if saved.failed:
        whole = len(saved.failed) == number >= verdicts.FEWEST_SEEDS
        note = _join(f"{minus} never gets there in {len(saved.failed)} {of_all}, {plus} does", note)
        return Evidence(None, "failed" if whole else "some failed", number), note
    if saved.void:
        note = _join(f"nothing to compare in {len(saved.void)} {of_all}", note)
    if saved.partial:
        note = _join(f"not all milestones can be compared in {len(saved.partial)} {of_all}", note)
    if saved.bounds:
        note = _join(f"a lower bound: {plus} never gets there in {len(saved.bounds)} {of_all}", note)
    values = saved.estimate.values if saved.estimate else ()
    return Evidence(saved.estimate, "lower bound" if saved.bounds else ""), _join(_few(values), note)


def _measured(study: Study, claim: Claim, panel: str, place: Mapping[str, Any]) -> dict[int, float]:
    """The claim's measure at one place, by seed."""
    if claim.measure in _SELECTIONS:
        chosen = [item for item in study.reported if (item.panel, item.method) == (panel, place["method"])]
        read = {item.seed: _SELECTIONS[claim.measure](item) for item in chosen}
        return {seed: value for seed, value in read.items() if value is not None}
    values = {seed: _RUNS[claim.measure](run) for seed, run in study.find(claim.figure, panel, **place).items()}
    return {seed: value for seed, value in values.items() if value is not None}


def _shared(found: Sequence[Mapping[int, Any]], places: Sequence[Mapping[str, Any]]) -> tuple[list[int], str]:
    """The seeds that all places have, and a note on what is missing."""
    empty = [_title(place) for part, place in zip(found, places, strict=True) if not part]
    if empty:
        return [], f"nothing measured of {', '.join(dict.fromkeys(empty))}"
    seeds = set(found[0]).intersection(*found)
    every = set().union(*found)
    return sorted(seeds), "" if seeds == every else f"{len(seeds)} of {len(every)} seeds are complete"


def _title(place: Mapping[str, Any]) -> str:
    settings = ", ".join(f"{key} {value}" for key, value in place.items() if key != "method")
    return f"{place['method']} ({settings})" if settings else str(place["method"])


def _join(*notes: str) -> str:
    return "; ".join(note for note in notes if note)
