"""What the length of an embedding does to the bytes between devices, in both modes."""

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from cfcl.methods import parse
from cfcl.runs import style
from cfcl.study import layout, measures, tables
from cfcl.study.bundle import Study
from cfcl.study.figures.figure import Entry, StudyFigure
from cfcl.study.lines import between
from cfcl.study.profiles import Panel, Profile
from cfcl.study.tables import Column

KEY = "dimension"
LOOKS = {
    "cfcl-explicit": style.Look(style.BLUE, "-", "s"),
    "cfcl-implicit": style.Look(style.VERMILLION, (0.0, (5.0, 1.5)), "^"),
}


def entries(profile: Profile, panel: Panel) -> list[Entry]:
    """CF-CL in both modes, with embeddings of every length."""
    return [
        Entry(method, {KEY: length}, [f"model.embedding_dim={length}"])
        for length in profile.dimensions
        for method in LOOKS
    ]


def draw(study: Study, name: str) -> Figure | None:
    """A panel per setting: bytes over the length, a line per mode."""
    names, lengths = study.panels(name), study.values(name, KEY)
    figure, (row,) = layout.grid(1, len(names))
    drawn = []
    for axes, panel in zip(row, names, strict=True):
        counts: list[int] = []
        for method, look in LOOKS.items():
            found = {place: study.find(name, panel, method, **{KEY: length}) for place, length in enumerate(lengths)}
            levels = {place: layout.at(runs, between) for place, runs in found.items() if runs}
            counts += [len(runs) for runs in found.values() if runs]
            if levels:
                means = [level.mean for level in levels.values() if level]
                drawn += axes.plot(list(levels), means, label=f"CF-CL, {parse(method).mode}", **look.options)
        layout.title(axes, panel, layout.seeds(counts))
        if counts:
            axes.set_xticks(range(len(lengths)), [str(length) for length in lengths])
            axes.set(xlabel="numbers in an embedding", ylabel="bytes between devices")
            axes.set_ylim(bottom=0.0)
            axes.yaxis.set_major_formatter(EngFormatter(unit="B"))
        else:
            layout.blank(axes, "no finished run")
    layout.legend(figure, drawn)
    return figure if drawn else None


FIGURE = StudyFigure(
    name="payload",
    title="Bytes by the length of an embedding",
    reading="All that devices sent to each other over a run of CF-CL, reserves included, over the length of an "
    "embedding. Explicit exchange sends images, whose size does not depend on it, and its reserve once.",
    entries=entries,
    draw=draw,
    table=lambda study, name: tables.compared(
        study,
        name,
        columns=(
            Column("D2D (MB)", lambda run: between(run) / 1e6, compared=False),
            Column("Final (%)", measures.final, compared=False),
        ),
    ),
    group="dimensions",
)
