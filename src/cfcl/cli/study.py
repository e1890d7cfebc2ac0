"""The commands of the study: do it, and draw it again."""

import os
import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from cfcl.cli.data import DataDir, overrides_with
from cfcl.cli.terminal import complaints, console, user_errors
from cfcl.errors import CfclError

MOST_SEEDS = 10_000
STOPPED = "interrupted; finished runs are kept, and the same command goes on from there"


def reproduce(
    figures: Annotated[
        list[str],
        typer.Argument(
            help="fig4 ... fig11, faults, regime, or all: fig4 to fig11, and in profile registered also gains, "
            "redundancy, foretold, frontier, equal, exchanges, payload and faults."
        ),
    ],
    profile: Annotated[
        Literal["smoke", "quick", "full", "registered"],
        typer.Option(
            help="smoke: digits, minutes; quick: USPS whole and Fashion-MNIST shortened; full: everything; "
            "registered: the study as it was announced before its first run."
        ),
    ] = "smoke",
    panels: Annotated[
        str,
        typer.Option(
            help="Only these datasets, comma-separated; not given: the profile's. "
            "quick and full also have usps-short (600 steps)."
        ),
    ] = "",
    seeds: Annotated[str, typer.Option(help="Only these seeds, such as 1-3; not given: the profile's.")] = "",
    out: Annotated[
        Path,
        typer.Option(
            help="Folder of the study, or one with the CSV files of a study of this profile: runs that are finished "
            "there are not repeated."
        ),
    ] = Path("study"),
    device: Annotated[str, typer.Option(help="Where tensors live: cpu, cuda, cuda:1, ...")] = "cpu",
    data_dir: DataDir = None,
    workers: Annotated[int, typer.Option(min=1, help="Runs under way at once.")] = os.cpu_count() or 1,
    registered: Annotated[
        Path | None,
        typer.Option(
            help="A committed file with the plan of the profile: nothing else is run, and the report names its commit. "
            "Written, if it does not exist."
        ),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            "--plan",
            help="Write what the whole profile would take, figure by figure, to this Markdown file, and run nothing.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print how many runs are missing, and write nothing.")
    ] = False,
) -> None:
    """Do the paper's study: runs, figures, statistics, and a verdict on every claim, in one report.

    It may be interrupted at any time: the same command goes on where it stopped. Records, pictures and the page show
    all that was asked for so far in this profile and is finished, so figures, panels and seeds can be added one by one,
    also to the published records of another machine.

    Example: `cfcl reproduce all --profile smoke`, or `cfcl reproduce fig5 --profile quick --panels usps --seeds 1-3`
    """
    with user_errors(STOPPED):
        from cfcl.files import write_atomically
        from cfcl.sim import group
        from cfcl.study import hours, plan, progress, registration
        from cfcl.study import reproduce as study
        from cfcl.study.profiles import PROFILES

        if group.launched():
            raise CfclError("reproduce starts its own processes, one per run: call it without torchrun")
        shown = [word.strip() for word in panels.split(",")] if panels else []
        wish = study.Wish(
            figures=plan.named(figures, PROFILES[profile]),
            profile=profile,
            panels=shown,
            seeds=parse_seeds(seeds) if seeds else (),
            registered=registration.check(registered, profile) if registered else None,
        )
        if table is not None:
            write_atomically(table, hours.text(profile).encode())
            console.print(f"Plan: {table}", soft_wrap=True)
            return
        if dry_run:
            from cfcl.runs import dry

            todo, done = study.lacking(wish, out, overrides_with(None, data_dir))
            console.print(dry.study_table(todo, done=done, at_once=workers, device=device))
            return
        ended = study.reproduce(
            wish, out, num_workers=workers, device=device, overrides=overrides_with(None, data_dir), console=console
        )
        console.print(progress.verdicts(ended.report[0].judgements))
        console.print(ended.report[0].lead)
        console.print(f"Report: {ended.folder / 'report.html'}", soft_wrap=True)
        for outcome in ended.failed:
            run = outcome.config
            complaints.print(f"failed: {run.name}, {run.method}, seed {run.seed}: {outcome.error}")
        if ended.failed:
            raise typer.Exit(1)


def redraw(
    folder: Annotated[Path, typer.Argument(help="Folder with the CSV files of a study.")],
    into: Annotated[
        Path | None,
        typer.Option(
            help="A Markdown file to put a summary of the verdicts in, too: between `<!-- verdicts -->` and "
            "`<!-- /verdicts -->`."
        ),
    ] = None,
) -> None:
    """Draw the figures, tables and page of a study again from its records; the same records give the same bytes.

    Example: `cfcl redraw docs/results/full --into README.md`
    """
    with user_errors():
        from cfcl.study import bundle, pages, progress, report

        found = report.compose(bundle.read(folder))
        pages.write(found, folder)
        if into is not None:
            pages.insert_verdicts(found, folder, into)
        console.print(progress.verdicts(found[0].judgements))
        console.print(found[0].lead)
        console.print(f"Report: {folder / 'report.html'}", soft_wrap=True)


def parse_seeds(text: str) -> list[int]:
    """Seeds from words such as `0,1,2` or `0-2`."""
    found: list[int] = []
    for part in text.split(",", maxsplit=MOST_SEEDS):
        # Eighteen digits always fit, and int() alone would also take '1_0' and digits of other scripts.
        known = re.fullmatch(r" *([0-9]{1,18})(?:-([0-9]{1,18}))? *", part)
        if known is None:
            raise CfclError(f"--seeds {text!r:.60} is not a list of whole numbers: write 0,1,2 or 0-2")
        first, last = int(known[1]), int(known[2] or known[1])
        if last - first + len(found) >= MOST_SEEDS:
            raise CfclError(f"--seeds {text!r:.60} are more than {MOST_SEEDS:,}: give fewer, in several commands")
        found += range(first, last + 1)
    if not found or len(set(found)) != len(found):
        raise CfclError(f"--seeds {text!r:.60} is empty or names a seed twice: write 0,1,2 or 0-2")
    return found
