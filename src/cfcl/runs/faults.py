"""What goes wrong in runs, for people: as planned, and as it happened."""

from collections.abc import Iterable, Sequence

from cfcl.config import Config, FaultsConfig
from cfcl.records import Faults, Record
from cfcl.runs.folders import Run
from cfcl.runs.series import series

FATES = {"unsent": "not sent", "late": "late", "lost": "lost", "damaged": "damaged", "refused": "refused"}
"""What can become of a message, and how it is called."""
HEAD = ("Method", "Messages", *(word.capitalize() for word in FATES.values()), "Used")


def planned(faults: FaultsConfig) -> str:
    """What may go wrong in a run that has not happened."""
    chances = {
        "of devices offline in each round": faults.offline,
        "of devices lost for good": faults.gone,
        "of models late": faults.straggling,
        "of messages lost": faults.loss,
        "of messages damaged": faults.damage,
    }
    files = {
        "devices offline": faults.offline_file,
        "links down": faults.links_file,
        "graphs": faults.graphs_file,
    }
    found = [f"{100 * chance:.3g} % {words}" for words, chance in chances.items() if chance > 0]
    found += [f"{words} as in {file.name}" for words, file in files.items() if file is not None]
    return f"{', '.join(found)}; bytes are those without faults"


def hostile(config: Config) -> str:
    """How many devices are hostile, and what they do; nothing where none is."""
    wanted = config.attack.devices
    number = wanted if isinstance(wanted, int) else len(wanted)
    return f"{number:,} of {config.partition.num_devices:,}, {config.attack.kind}" if number else ""


def told(records: Iterable[Record]) -> str:
    """What became of messages in a run, in one line; nothing if nothing goes wrong in it."""
    last = _last(records)
    if last is None:
        return ""
    counts = {word: getattr(last, key) for key, word in FATES.items() if key != "damaged"}
    parts = [f"{_share(number, last.messages)} {word}" for word, number in counts.items() if number]
    return f"Faults: of {last.messages:,} messages {', '.join(parts) or 'none was lost'}; {100 * last.used:.1f} % used"


def rows(runs: Sequence[Run]) -> list[list[str]]:
    """One row per curve, with the cells of HEAD, over all its seeds; none for runs in which nothing goes wrong."""
    found = []
    for label, group in series(runs).items():
        ends = [end for run in group if (end := _last(run.records)) is not None]
        if ends:
            total = sum(end.messages for end in ends)
            fates = [_share(sum(getattr(end, key) for end in ends), total) for key in FATES]
            used = sum(end.used * end.messages for end in ends)
            found.append([label, f"{total:,}", *fates, _share(used, total)])
    return found


def _last(records: Iterable[Record]) -> Faults | None:
    return next((record for record in reversed(tuple(records)) if isinstance(record, Faults)), None)


def _share(part: float, whole: int) -> str:
    return f"{100 * part / max(1, whole):.1f} %"
