"""A dry run for people: what runs would do, as tables."""

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from cfcl.config import Config
from cfcl.runs import faults, forecast, privacy
from cfcl.runs.forecast import Forecast
from cfcl.runs.progress import size


def table(one: Forecast) -> Table:
    """All that is known of one run."""
    config = one.world.config
    rows = {
        "run": f"{config.name}, {config.method}, seed {config.seed}",
        **_ground(one),
        "push": _rounds(one.num_pushes, one.bytes_push),
        "pull": _rounds(one.num_exchanges, one.bytes_pull, "at most "),
        "aggregation": _rounds(one.num_aggregations, one.bytes_up),
        **_privacy(one),
        "memory": f"{_memory(one)} in {_count(one.num_workers, 'process', 'processes')}, estimated",
        "time": f"{duration(one.seconds)}, estimated; exchanges and evaluations come on top",
    }
    return _listed(rows)


def _privacy(one: Forecast) -> dict[str, str]:
    """What noise would buy, where there is any."""
    spent = privacy.planned(one.world.config, one.world.setup())
    return {} if spent is None else {"privacy": spent.told}


def common_table(one: Forecast) -> Table:
    """What the runs of a comparison share, as one of them shows it."""
    return _listed(_ground(one))


def compare_table(forecasts: Sequence[Forecast], *, at_once: int) -> Table:
    """One line per run of a comparison; the caption has the time of all."""
    shown = _empty("\nRuns")
    for name in ("method", "seed", "pushed", "pulled", "uplink", "memory", "time"):
        shown.add_column(name, justify="left" if name == "method" else "right")
    for one in forecasts:
        shown.add_row(
            one.world.config.method,
            str(one.world.config.seed),
            size(one.num_pushes * one.bytes_push),
            size(one.num_exchanges * one.bytes_pull),
            size(one.bytes_uplink),
            _memory(one),
            duration(one.seconds),
        )
    together = min(at_once, len(forecasts))
    total = sum(one.seconds for one in forecasts) / together
    runs = _count(len(forecasts), "run", "runs")
    shown.caption = f"{runs}, {together} at once: {duration(total)}, estimated; exchanges and evaluations come on top"
    return shown


def study_table(todo: Sequence[Config], *, done: int, at_once: int, device: str) -> Table:
    """How many runs of each preset and method are missing, and how long they would take; one of each is looked at."""
    kinds: dict[tuple[str, str], list[Config]] = {}
    for run in todo:
        kinds.setdefault((run.name, run.method), []).append(run)
    looked = forecast.look([runs[0] for runs in kinds.values()], device=device)
    shown = _empty("\nPlan (nothing is run or written)")
    for name in ("preset", "method", "missing runs", "memory", "time"):
        shown.add_column(name, justify="left" if name in ("preset", "method") else "right")
    total = 0.0
    for ((preset, method), runs), one in zip(kinds.items(), looked, strict=True):
        taken = one.seconds * sum(run.train.steps for run in runs) / runs[0].train.steps
        total += taken / at_once
        shown.add_row(preset, method, str(len(runs)), _memory(one), duration(taken))
    missing = _count(len(todo), "run is", "runs are")
    shown.caption = (
        f"{missing} missing, {done:,} done; {at_once} at once: {duration(total)}, estimated; exchanges and evaluations "
        "come on top"
    )
    return shown


def duration(seconds: float) -> str:
    """A rough time for people."""
    for unit, scale in (("h", 3600), ("min", 60)):
        if seconds >= 2 * scale:
            return f"about {float(f'{seconds / scale:.2g}'):g} {unit}"
    return f"about {max(1, round(seconds))} s"


def _ground(one: Forecast) -> dict[str, str]:
    """Data, devices, graph, encoder and number of updates."""
    found, config = one.world, one.world.config
    data, encoder, points = found.dataset, found.setting.encoder, [len(part) for part in found.parts]
    labels = f"{data.num_classes} labels" if data.num_classes else "no labels"
    split = "validation" if config.data.validation > 0 else "test"
    trouble = {"faults": faults.planned(config.faults)} if config.faults.active else {}
    trouble |= {"hostile": told} if (told := faults.hostile(config)) else {}
    return {
        "data": f"{data.name}: {len(data.train_images):,} training and {len(data.test_images):,} {split} images of "
        f"{'×'.join(map(str, data.image_shape))}, {labels}",
        "devices": f"{len(points):,} with {_range(points)} points each",
        "graph": f"{config.graph.kind}, {len(found.graph.links):,} directed links, "
        f"{found.graph.average_degree:.3g} neighbours on average",
        "encoder": f"{encoder.name}, {encoder.num_parameters:,} parameters, embeddings of {encoder.embedding_dim}",
        "updates": f"{config.train.steps:,} per device, {one.num_evaluations} evaluations",
        **trouble,
    }


def _listed(rows: dict[str, str]) -> Table:
    shown = _empty("\nPlan (nothing is run or written)", show_header=False)
    shown.add_column(style="bold")
    shown.add_column()
    for name, text in rows.items():
        shown.add_row(name, text)
    return shown


def _rounds(number: int, each: int, most: str = "") -> str:
    """One round's bytes, how many rounds there are, and what they come to."""
    if number == 0:
        return "none"
    if number == 1:
        return f"once, {most}{size(each)}"
    return f"{number:,} times {most}{size(each)}: {most}{size(number * each)}"


def _range(points: Sequence[int]) -> str:
    least, most = min(points), max(points)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _memory(one: Forecast) -> str:
    return "not known" if one.memory is None else f"about {size(one.memory)}"


def _empty(title: str, *, show_header: bool = True) -> Table:
    return Table(
        title=Text(title, "bold"),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_header=show_header,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
