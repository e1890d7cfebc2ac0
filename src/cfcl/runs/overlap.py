"""What neighbours have in common, for people: tables, sentences and files, made of records."""

import csv
import io
import json
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cfcl.errors import CfclError
from cfcl.records import LinkOverlap, Overlap
from cfcl.runs import heatmap, style
from cfcl.runs.progress import percent, size

MOST_SHOWN = 16
"""Devices up to which a terminal has room for every link."""
NEARLY_ALL = 0.75
"""From this share on nearly everything is new."""
FLOORS = 2.0
"""Up to so many times what is new to its own holder, nothing is."""
COLUMNS = ("transmitter", "receiver", "new", "lacked")
NEEDS_LABELS = "check, which needs labels"


def tables(found: Overlap) -> list[RenderableType]:
    """Shares of all links in percent, or of more devices than fit a summary; below it the truth where it is known."""
    if len(found.own) > MOST_SHOWN:
        return _summary(found)
    title = "Percent of a transmitter's data (row) that is new to a receiver (column)"
    shown: list[RenderableType] = [_title(title), _matrix(found, lambda link: link.new, found.own)]
    shown.append("–: no link; (n): a device's own data, of which nothing is new to it")
    if found.lacked is not None:
        shown.append(_title(f"Percent whose label the receiver lacks: a {NEEDS_LABELS}"))
        shown.append(_matrix(found, lambda link: link.lacked, ()))
    return [*shown, ""]


def sentences(found: Overlap) -> list[str]:
    """What the estimate costs, how good it is where that is known, and in two sentences what it means."""
    number = len(found.links)
    each = size(found.bytes_push / number)
    cost = f"The estimate moves {size(found.bytes_push)}, reserves and radii: {each} over each of {number:,} links."
    return [cost, *_check(found), _mean(found), _advice(found)]


def check_places(outs: Iterable[Path], num_devices: int) -> None:
    """Refuse names that say another kind of file than there is, and pictures in which nobody could see a link."""
    for out in outs:
        if out.suffix.lower() not in FILES:
            raise CfclError(f"--out {str(out)!r} ends in none of {', '.join(FILES)}, the kinds of file: rename it")
        if out.suffix.lower() == ".png" and num_devices > heatmap.MOST:
            raise CfclError(
                f"--out {str(out)!r} would show {num_devices:,} devices, but a heat map has room for "
                f"{heatmap.MOST:,}: write a .csv or .json file"
            )


def content(found: Overlap, out: Path) -> bytes:
    """What a file called `out` holds: a heat map, or the numbers."""
    return FILES[out.suffix.lower()](found)


def kinds(found: Overlap) -> dict[str, int]:
    """How many links there are on which nearly all, a part, or nothing is new."""
    counts = dict.fromkeys(("all", "part", "none"), 0)
    for link in found.links:
        new = link.new
        counts["all" if new >= NEARLY_ALL else "none" if new <= FLOORS * found.floor else "part"] += 1
    return counts


def _check(found: Overlap) -> list[str]:
    if found.lacked is None:
        return []
    beside = "is the same over all links"
    if found.correlation is not None:
        beside = f"and the estimate correlate over links by {found.correlation:.2f}"
    return [f"As a {NEEDS_LABELS}: of {percent(found.lacked, '.0f')} % the receiver lacks the label; this {beside}."]


def _mean(found: Overlap) -> str:
    least, most = (choose(found.links, key=lambda link: link.new) for choose in (min, max))
    return (
        f"On average {percent(found.new, '.0f')} % of what a neighbour holds is new to a device, from {_of(least)} to "
        f"{_of(most)}."
    )


def _of(link: LinkOverlap) -> str:
    return f"{percent(link.new, '.0f')} % ({link.transmitter} to {link.receiver})"


def _advice(found: Overlap) -> str:
    links = {kind: "1 link" if number == 1 else f"{number:,} links" for kind, number in kinds(found).items()}
    most, least = percent(NEARLY_ALL, ".0f"), percent(FLOORS * found.floor, ".1f")
    return (
        f"Where nearly everything is new ({links['all']}, {most} % or more) any exchange will do, where less is "
        f"({links['part']}) choosing pays (exchange.method=cover), and where nothing is ({links['none']}, {least} % or "
        "less) exchange is not worth its bytes."
    )


def _summary(found: Overlap) -> list[RenderableType]:
    """Mean, least and most over links."""
    title = f"Percent that is new, over {len(found.links):,} links of {len(found.own):,} devices"
    table = _table()
    table.add_column("")
    for head in ("mean", "least", "most"):
        table.add_column(head, justify="right")
    rows: dict[str, list[float]] = {
        "of a transmitter's data, to the receiver": [link.new for link in found.links],
        "of a device's own data, to itself": [share for share in found.own if share is not None],
        f"labels that the receiver lacks ({NEEDS_LABELS})": [
            link.lacked for link in found.links if link.lacked is not None
        ],
    }
    for name, shares in rows.items():
        if shares:
            figures = (statistics.fmean(shares), min(shares), max(shares))
            table.add_row(name, *(percent(share, ".0f") for share in figures))
    return [_title(title), table, "--out overlap.png draws every link", ""]


def _matrix(
    found: Overlap, share: Callable[[LinkOverlap], float | None], own: Iterable[float | None]
) -> RenderableType:
    """One row for each transmitter, one column for each receiver; the last row has the means over its neighbours."""
    devices = range(len(found.own))
    table = _table()
    table.add_column("", no_wrap=True)
    for device in devices:
        table.add_column(str(device), justify="right", no_wrap=True)
    cells = {(link.transmitter, link.receiver): share(link) for link in found.links}
    words = {link: percent(value, ".0f") for link, value in cells.items()}
    words |= {(i, i): f"({percent(value, '.0f')})" for i, value in enumerate(own) if value is not None}
    for i in devices:
        table.add_row(str(i), *(words.get((i, j), "–") for j in devices))
    table.add_section()
    table.add_row("mean", *(percent(_mean_of(cells, j), ".0f") for j in devices))
    return table


def _mean_of(cells: dict[tuple[int, int], float | None], receiver: int) -> float | None:
    shares = [value for (_, j), value in cells.items() if j == receiver and value is not None]
    return statistics.fmean(shares) if shares else None


def _title(text: str) -> Text:
    """Not the table's own, which would be broken to its width."""
    return Text(f"\n{text}", "bold")


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))


def _as_csv(links: Iterable[LinkOverlap]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for link in links:
        writer.writerow([link.transmitter, link.receiver, link.new, "" if link.lacked is None else link.lacked])
    return text.getvalue()


def _as_json(found: Overlap) -> str:
    return json.dumps(found.to_dict(), indent=1, allow_nan=False, default=lambda row: row.to_dict()) + "\n"


FILES: dict[str, Callable[[Overlap], bytes]] = {
    ".png": lambda found: style.to_png(heatmap.draw(found)),
    ".csv": lambda found: _as_csv(found.links).encode(),
    ".json": lambda found: _as_json(found).encode(),
}
"""What is written, by the ending of a file."""
