"""The figures of the study, each one value in one file."""

from cfcl.study.figures import distances, milestones, regime, selected, steps, swept
from cfcl.study.figures.figure import StudyFigure

FIGURES: dict[str, StudyFigure] = {
    figure.name: figure
    for figure in (
        distances.FIGURE,
        steps.FIGURE,
        milestones.FIGURE,
        selected.FIGURE,
        *swept.FIGURES,
        regime.FIGURE,
    )
}
"""By name, in order."""
