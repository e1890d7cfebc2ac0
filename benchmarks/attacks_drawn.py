"""What `attacks.py` has measured, as tables and pictures."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from attacks import DEFENCES, MODES, OUT, ROOT, TABLES, Case, Plan
from tables_drawn import QUANTILES

BEGIN, END = "<!-- attacks -->", "<!-- /attacks -->"
"""The place of the table in docs/security.md."""
TICKS = (-80, -20, -5, -2, -1, 0, 1, 2, 5, 20)
HARM = -1.0
"""Points; a loss beyond it counts."""
SHOWN = {
    "items": "What poisoned items, lies and greed of one device of ten do, with defences and without",
    "models": "What one and three poisoned models of ten do, with defences and without",
}
"""What pictures show."""
HEAD = """# Hostile devices

USPS, ten devices, 300 updates, the method of the paper: 2 datapoints per link and exchange (explicit), 2 embeddings
under triplets, where they are worth something (implicit), 10 activations of `block2`. Accuracy with ten labels per
class on the test split, mean of the last fifth of evaluations. Every number is a difference, in points, from the run of
the same seed that nobody attacks and that has no defence: its mean over seeds, and the half-width of its 95 % interval.
The row *nobody* is what a defence costs.
`reserve-radii` is an attack on method `cover`, and is held against its honest run. An empty cell was not run: the
defence is not made for the attack, or the attack alone costs less than half a point (`--needed`).
*Ends*: the losses of an honest device are no longer finite, and the run is over; in the pictures this is a cross, at
the accuracy of a guess among ten classes. The dotted line is a loss of one point. Records: `runs.csv`. By
`python benchmarks/attacks.py`; what attacks and defences are is in [security](../../security.md#hostile-devices)."""


@dataclass(frozen=True)
class Effect:
    """What a case did to accuracy, in points, seed by seed."""

    gains: Sequence[float]
    ends: int
    """Runs that did not come to their end."""

    @property
    def mean(self) -> float:
        return statistics.fmean(self.gains)

    @property
    def reach(self) -> float:
        """Half of the 95 % interval of the mean."""
        size = len(self.gains)
        return QUANTILES[size] * statistics.stdev(self.gains) / math.sqrt(size) if size > 1 else 0.0

    def __str__(self) -> str:
        if self.ends:
            return "ends" if self.ends == len(self.gains) else f"{self.ends} of {len(self.gains)} end"
        return f"{self.mean:+.1f}".replace("-", "−") + (f" ± {self.reach:.1f}" if len(self.gains) > 1 else "")


def effect(plan: Plan, case: Case, known: dict[str, dict[str, Any]]) -> Effect | None:
    """The effect of a case over the seeds that have it and its clean run; None if there are none."""
    digests = [(plan.digest(case, seed), plan.digest(case.clean, seed), seed) for seed in plan.seeds]
    both = [(one, seed) for one, two, seed in digests if one in known and two in known]
    values = [(plan.accuracy(case, seed, known), plan.accuracy(case.clean, seed, known)) for _, seed in both]
    gains = [one - two for one, two in values if one is not None and two is not None]
    return Effect(gains, sum(bool(known[digest]["failed"]) for digest, _ in both)) if gains else None


def effects(plan: Plan, table: str, known: dict[str, dict[str, Any]]) -> dict[tuple[str, int], dict[str, Effect]]:
    """By attack and number of hostile devices, then by defence; clean runs without a defence are 0 and left out."""
    found: dict[tuple[str, int], dict[str, Effect]] = {}
    for case in TABLES[table]:
        measured = None if case == case.clean or case.attack == "cover" else effect(plan, case, known)
        if measured is not None:
            found.setdefault((case.attack, case.hostile), {})[case.defence] = measured
    return found


def table(plan: Plan, name: str, known: dict[str, dict[str, Any]]) -> str:
    """One table as Markdown: attacks by defences."""
    rows = effects(plan, name, known)
    columns = [defence for defence in DEFENCES if any(defence in row for row in rows.values())]
    lines = [f"| attack | hostile of ten | {' | '.join(columns)} |", "|" + "---|" * (len(columns) + 2)]
    for (attack, number), row in rows.items():
        cells = [str(row.get(defence, "")) for defence in columns]
        lines.append(f"| {'nobody' if attack == 'none' else attack} | {number} | {' | '.join(cells)} |")
    return "\n".join(lines)


def lies(plan: Plan, known: dict[str, dict[str, Any]]) -> str:
    """What a device got that lied in its reserve or asked for everything, beside the same device when it was honest."""
    lines = ["| lie | mode | items it got, of an honest one's | labels it held already, % | honest, % |",
             "|" + "---|" * 5]  # fmt: skip
    for case in (case for name in MODES for case in TABLES[name] if case.attack.startswith(("reserve", "request"))):
        pairs = [
            [known.get(plan.digest(one, seed)) for one in (case, case.clean)]
            for seed in plan.seeds
        ]  # fmt: skip
        both = [(one, two) for one, two in pairs if one and two]
        if not both:
            continue
        got = statistics.fmean(int(one["got"]) / max(1, int(two["got"])) for one, two in both)
        held = [
            f"{100 * statistics.fmean(values):.0f}" if values else ""
            for values in ([float(pair[side]["held"]) for pair in both if pair[side]["held"]] for side in (0, 1))
        ]
        lines.append(f"| {case.attack} | {case.table} | {got:.2f} | {held[0]} | {held[1]} |")
    return "\n".join(lines)


def summary(plan: Plan, known: dict[str, dict[str, Any]]) -> str:
    """All attacks in one table, with the defences that keep the loss under one point."""
    lines = ["| attack | hostile of ten | mode | no defence | with a defence | mean loss under one point with |",
             "|" + "---|" * 6]  # fmt: skip
    for name in TABLES:
        for (attack, number), row in effects(plan, name, known).items():
            if attack == "none" or "none" not in row:
                continue
            guarded = {defence: found for defence, found in row.items() if defence != "none"}
            good = [defence for defence, found in row.items() if not found.ends and found.mean > HARM]
            told = ", ".join(f"{defence} {found}" for defence, found in guarded.items())
            planned = {case.defence for case in TABLES[name] if (case.attack, case.hostile) == (attack, number)}
            told_all = "none" if planned <= row.keys() else "none of those tried"
            verdict = "no defence needed" if "none" in good else ", ".join(good) or told_all
            mode = "explicit" if name == "models" else name
            lines.append(f"| {attack} | {number} | {mode} | {row['none']} | {told} | {verdict} |")
    return "\n".join(lines)


def draw(plan: Plan) -> None:
    """Write tables and pictures beside the records; of the kept results also the table in docs/security.md."""
    known = plan.read()
    names = [name for name in TABLES if effects(plan, name, known)]
    if not names:
        print("nothing to draw: no attack has been run beside its clean run")
        return
    groups = {
        "items": [name for name in names if name != "models"],
        "models": [name for name in names if name == "models"],
    }
    pictures = [f"![{SHOWN[title]}]({title}.png)" for title, group in groups.items() if group]
    parts = [part for name in names for part in (f"## {name}", table(plan, name, known))]
    parts += ["## What lies bring", lies(plan, known)]
    (plan.out / "README.md").write_text("\n\n".join([HEAD, *pictures, *parts]) + "\n", encoding="utf-8")
    for title, group in groups.items():
        _picture(plan, group, title, known)
    if plan.out == OUT:
        page = ROOT / "docs" / "security.md"
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        shown = [f"![{SHOWN[title]}](results/attacks/{title}.png)" for title, group in groups.items() if group]
        text = "\n\n".join([summary(plan, known), *shown])
        page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def _picture(plan: Plan, names: Sequence[str], title: str, known: dict[str, dict[str, Any]]) -> None:
    """Effects by attack, one panel per table and number of hostile devices, one colour per defence."""
    from cfcl.runs import style

    panels: dict[str, dict[str, dict[str, Effect]]] = {}
    for name in names:
        for (attack, number), row in effects(plan, name, known).items():
            wanted = (1, 3) if number == 0 and name == "models" else (number or 1,)
            for count in wanted:
                label = name if name != "models" else f"{count} of ten devices"
                panels.setdefault(label, {})["nobody" if attack == "none" else attack] = row
    if not panels:
        return
    from matplotlib.figure import Figure

    colours = dict(zip(DEFENCES, (style.VERMILLION, style.BLUE, style.GREEN, style.ORANGE, style.SKY, style.BLUE,
                                  style.GREEN, style.ORANGE), strict=True))  # fmt: skip
    with style.settings():
        most = max(map(len, panels.values()))
        figure = Figure(figsize=(3.2 * len(panels) + 0.6, 0.42 * most + 1.7), layout="constrained")
        parts = figure.subplots(1, len(panels), squeeze=False, sharex=True)[0]
        seen = [
            defence for defence in DEFENCES if any(defence in row for rows in panels.values() for row in rows.values())
        ]
        for axes, (label, rows) in zip(parts, panels.items(), strict=True):
            axes.axvline(0.0, color=style.GREY, linewidth=1.0)
            axes.axvline(HARM, color=style.GREY, linewidth=1.0, linestyle=":")
            for place, row in enumerate(rows.values()):
                for shift, (defence, found) in enumerate(row.items()):
                    axes.errorbar(
                        [found.mean], [place + 0.18 * (shift - (len(row) - 1) / 2)], xerr=[found.reach], capsize=2,
                        color=colours[defence], markersize=5, linestyle="none",
                        marker="x" if found.ends else "o" if defence == "none" else "s",
                    )  # fmt: skip
            axes.set_yticks(range(len(rows)), list(rows))
            axes.set_ylim(len(rows) - 0.5, -0.5)
            axes.set(title=label, xlabel="points against the clean run")
            # Small effects can be told apart, and large ones are still on the page.
            axes.set_xscale("symlog", linthresh=2.0)
            low, high = axes.get_xlim()
            axes.set_xticks([tick for tick in TICKS if low <= tick <= high])
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", "−"))
            axes.minorticks_off()
        for defence in seen:
            marker, said = ("o", "no defence") if defence == "none" else ("s", defence)
            parts[0].plot([], [], color=colours[defence], marker=marker, linestyle="none", label=said)
        figure.legend(loc="outside lower center", ncols=len(seen))
        figure.savefig(plan.out / f"{title}.png", dpi=160)
