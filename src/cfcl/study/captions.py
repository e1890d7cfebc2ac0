"""What a report says of each figure: its title, how to read it, and where it comes from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cfcl.study import panels, tables
from cfcl.study.bundle import Study, Value
from cfcl.study.tables import Table

TITLES = {
    "fig4": "Fig. 4: distances between labels",
    "fig5": "Fig. 5: accuracy over steps",
    "fig6": "Fig. 6: bytes and seconds to an accuracy",
    "fig7": "Fig. 7: what is selected",
    "fig8": "Fig. 8: devices in an aggregation",
    "fig9": "Fig. 9: choice and size of the reserve",
    "fig10": "Fig. 10: the model that scores candidates",
    "fig11": "Fig. 11: labels per device, and neighbours",
    "regime": "Where selection matters",
}
HOW = (
    "Accuracies are those of a linear probe on the global encoder, in percent; the final one is the mean over the last "
    "fifth of the run, the mean one is that on the way: the area under the curve over steps, divided by their number.",
    "Seeds may differ more than methods do. Within a seed all methods share data, network, initial model and order of "
    "batches, so the paired differences in the tables decide, not whether intervals in a figure overlap.",
    "What is grey is a yardstick, no competitor: the oracle sees labels, the centralised model has all data.",
)
"""How to read figures and tables."""
READING = {
    "fig4": "Mean distance between the embeddings of test images with these labels, under the final global encoder; "
    "one colour scale a row. A good encoder is dark on the diagonal and bright elsewhere; separation is the mean off "
    "the diagonal over the mean on it.",
    "fig5": "Probe accuracy of the global encoder while it learns; higher is better, and earlier is cheaper.",
    "fig6": "What all devices had sent, and the seconds of the delay model and of selection, when the probe first "
    "reached an accuracy; lower is better. A pilot seed, shown nowhere, has set the accuracies. Bars are means over "
    "the seeds that got there, thin lines span these seeds; k/n says that k of n got there, a cross that fewer than "
    "half did. Shades tell apart what was pushed and pulled between devices and what went up to the server.",
    "fig7": "Distance of the items that a policy selects to the nearest centroid of their receiver, all under one "
    "model; dotted lines are means. Held already is the share of items whose label the receiver has: lower brings more "
    "that is new. Labels are used for this figure only, never by a device.",
    "fig8": "Final and mean accuracy over the number of devices that take part in an aggregation; higher is better.",
    "fig9": "Final and mean accuracy of CF-CL over the size of the reserve, its points chosen by K-means or at random.",
    "fig10": "Final and mean accuracy of CF-CL over the steps between aggregations, with candidates scored by the last "
    "global model or by the transmitter's own.",
    "fig11": "Final and mean accuracy of CF-CL over the number of labels that a device has, with few and with many "
    "neighbours.",
    "regime": "One setting changed at a time, the same for every method. Left: final accuracy; what is pale is of the "
    "base, as the change does not touch that method. Right: paired difference to uniform, positive where selection "
    "helps. In the table, Candidates is their effective number, Held the share of pulled items whose label the "
    "receiver has already, False negatives how likely a pulled item has the label of a given point of its receiver "
    "(were those evenly spread over labels), and Active the share of triplets with a loss.",
}
_APART = ("fig7", "regime")
"""Figures whose methods need not have the same seeds."""
_SURROUNDINGS = {
    "fig5": "Bands",
    "fig8": "Bars",
    "fig9": "Bars",
    "fig10": "Bars",
    "fig11": "Bars",
    "regime": "Bars at the right",
}


@dataclass(frozen=True)
class Chapter:
    """One figure in a report."""

    figure: str
    title: str
    caption: str
    table: Table
    commands: list[str]
    versions: list[str]
    missing: list[str]
    """Runs that are not there, in words."""


def chapters(study: Study) -> list[Chapter]:
    """A chapter a figure."""
    return [
        Chapter(
            figure=figure,
            title=TITLES.get(figure, figure),
            caption=" ".join(filter(None, [READING.get(figure, ""), _seeds(study, figure)])),
            table=tables.table(study, figure),
            commands=commands(study, figure),
            versions=_versions(study, figure),
            missing=missing(study, figure),
        )
        for figure in study.figures
    ]


def commands(study: Study, figure: str) -> list[str]:
    """What asks for the runs behind a figure: a line for all panels that have the same seeds."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for panel in study.panels(figure):
        mine = {cell.seed for cell in study.cells if (cell.figure, cell.panel) == (figure, panel)}
        groups.setdefault(tuple(sorted(mine - {study.about["pilot"]})), []).append(panel)
    words = ["cfcl", "reproduce", figure, "--profile", str(study.about["profile"])]
    return [
        " ".join([*words, "--panels", ",".join(panels), *(["--seeds", ",".join(map(str, seeds))] if seeds else [])])
        for seeds, panels in groups.items()
    ]


def missing(study: Study, figure: str) -> list[str]:
    """A line a place where runs are missing, with their seeds."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for cell in study.cells:
        if cell.figure == figure and cell.digest not in study.runs:
            pilot = " (the pilot)" if cell.seed == study.about["pilot"] else ""
            key = (cell.panel, cell.method, _settings(cell.settings))
            found.setdefault(key, []).append(f"{cell.seed}{pilot}")
    return [
        f"{', '.join(filter(None, key))}: seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}"
        for key, seeds in found.items()
    ]


def _settings(settings: Mapping[str, Value]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(settings.items()))


def _seeds(study: Study, figure: str) -> str:
    """Which seeds are behind a figure, and what its intervals are."""
    if figure == "fig7":
        found = study.reported
        by_place: dict[tuple[str, str], list[int]] = {}
        for item in found:
            by_place.setdefault((item.panel, item.method), []).append(item.seed)
        groups: Sequence[list[int]] = list(by_place.values())
    else:
        groups = [sorted(place.runs) for place in tables.places(study, figure).values()]
    counts = sorted({len(seeds) for seeds in groups} - {0})
    if not counts:
        return "No run of it has finished."
    known = ", ".join(map(str, sorted({seed for seeds in groups for seed in seeds})))
    if counts == [1]:
        return f"One seed ({known}): any difference may be chance."
    alike = " A panel shows the seeds that all its methods have." if len(counts) > 1 and figure not in _APART else ""
    return f"Means over {panels.seeds(counts)} ({known}).{_intervals(figure, counts)}{alike}"


def _intervals(figure: str, counts: Sequence[int]) -> str:
    noun = _SURROUNDINGS.get(figure)
    if noun is None:
        return "" if figure == "fig6" else " The table gives Student's 95 % intervals."
    if counts[-1] < panels.FEW:
        return f" {noun} span the seeds, as two are too few for an interval; the table has Student's, of 95 %."
    few = f", the range where fewer than {panels.FEW} seeds have finished" if counts[0] < panels.FEW else ""
    return f" {noun} and the table give Student's 95 % interval of the mean{few}."


def _versions(study: Study, figure: str) -> list[str]:
    """Of the programs behind a figure's runs; of all runs where it has none of its own."""
    found = {
        study.runs[cell.digest].versions for cell in study.cells if cell.figure == figure and cell.digest in study.runs
    }
    return sorted(found or {run.versions for run in study.runs.values()})
