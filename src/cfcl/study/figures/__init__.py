"""The figures of the study, each one value in one file."""

from matplotlib.figure import Figure

from cfcl.runs import style
from cfcl.study.bundle import Study
from cfcl.study.figures import (
    distances,
    equal,
    faults,
    foretold,
    frontier,
    gains,
    milestones,
    payload,
    redundancy,
    regime,
    selected,
    steps,
    swept,
)
from cfcl.study.figures.figure import Picture, StudyFigure

FIGURES: dict[str, StudyFigure] = {
    figure.name: figure
    for figure in (
        distances.FIGURE,
        steps.FIGURE,
        milestones.FIGURE,
        selected.FIGURE,
        *swept.FIGURES,
        regime.FIGURE,
        gains.FIGURE,
        redundancy.FIGURE,
        foretold.FIGURE,
        frontier.FIGURE,
        equal.FIGURE,
        swept.EXCHANGES,
        payload.FIGURE,
        faults.FIGURE,
    )
}
"""By name, in order."""


@style.styled
def draw(study: Study) -> dict[str, Figure]:
    """The figures of `study` by name, without those that have nothing to show."""
    found = {name: FIGURES[name].draw(study, name) for name in study.figures}
    return {name: figure for name, figure in found.items() if figure is not None}


def pictures(study: Study, suffix: str = "") -> dict[str, Picture]:
    """The figures of `study` by name, ready for files and pages, whose ids end in `suffix`.

    The same study gives the same bytes.
    """
    return {
        name: Picture(style.to_png(figure), style.to_svg(figure, f"{name}{suffix}"), figure.get_figwidth())
        for name, figure in draw(study).items()
    }
