"""Methods at the same bytes between devices (ours)."""

from cfcl.study import measures, tables
from cfcl.study.figures import gains
from cfcl.study.figures.figure import Entry, StudyFigure, plain
from cfcl.study.lines import between
from cfcl.study.profiles import Panel, Profile
from cfcl.study.tables import Column

PERIOD = 20
"""Updates between exchanges of uniform exchange. In 600 updates it then pulls 29 × 2 items over a link. With a period
of 25 a rule pulls 23 × 2 and shows ten reserve points, with radii 10.2 to 10.6 items: 2.4 to 3.2 % fewer bytes."""


def entries(profile: Profile, panel: Panel) -> list[Entry]:
    """Uniform exchange as often as costs what rules cost; bulk exchange does already."""
    return [
        Entry("uniform-explicit", {}, [f"exchange.period={PERIOD}"]),
        *plain("fedavg", "bulk-explicit", "cfcl-explicit", "cover-explicit"),
    ]


FIGURE = StudyFigure(
    name="equal",
    title="At the same bytes between devices",
    reading="Final accuracy as differences within a seed, where all methods cost about the same: uniform exchange, "
    f"which shows no reserve, exchanges every {PERIOD} updates in place of 25, and so sends 2 to 4 % more than the "
    "others.",
    entries=entries,
    draw=gains.draw,
    table=lambda study, name: tables.compared(
        study,
        name,
        columns=(
            Column("Final (%)", measures.final),
            Column("D2D (MB)", lambda run: between(run) / 1e6, digits=3, compared=False),
        ),
    ),
    whiskers="Bars",
    group="matched",
)
