"""The card of an encoder: what it is, what it learned from, how good it is, what was exchanged, what is not known.

Made of records, and of a few facts from elsewhere; the same ones give the same text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cfcl.records import Yardstick
from cfcl.runs import card_words as words
from cfcl.runs import labels, privacy
from cfcl.runs.folders import Run
from cfcl.runs.progress import percent, size
from cfcl.runs.series import final
from cfcl.runs.summary import interval
from cfcl.shown import as_markdown, markdown_table

FILE = "card.md"
NOT_ASKED = "not known: `cfcl card RUN` measures it where the data are"


@dataclass(frozen=True)
class ClassAccuracy:
    """How many of the images of one class a probe gets right."""

    name: str
    num_images: int
    accuracies: Mapping[str, float]
    """By space: `embedding`, `features`."""


@dataclass(frozen=True)
class Facts:
    """What records do not say; None or empty where it is not known."""

    image_shape: tuple[int, int, int] | None = None
    embedding_dim: int | None = None
    feature_dim: int | None = None
    encoder: str | None = None
    """Its digest."""
    data: str | None = None
    """The digest of all images and labels."""
    licence: str | None = None
    """Of the data."""
    yardsticks: tuple[Yardstick, ...] = ()
    by_class: tuple[ClassAccuracy, ...] = ()
    no_classes: str = NOT_ASKED
    """Why accuracies by class are not there, in Markdown."""


def render(run: Run, facts: Facts, *, config_at: str = "config.toml") -> str:
    """The card as Markdown; `config_at` is where the settings are, seen from the card."""
    config = run.config
    parts = {
        "": _head(run, facts),
        "How to use it": [words.USE],
        "Data": [_data(run, facts)],
        "Training": [_training(run), f"All settings: [config.toml]({config_at})."],
        "Accuracy": _accuracy(run, facts),
        "What you would use instead": _instead(facts),
        "What was exchanged": _exchanged(run),
        "Privacy": [
            *words.privacy(config, {cost.kind for cost in run.costs if cost.bytes > 0}),
            *privacy.sentences(run),
        ],
        "What is not known": words.unknown(config, labelled=final(run).probe is not None),
        "Licence": [words.licence(as_markdown(facts.licence) if facts.licence else None)],
    }
    title = f"# {as_markdown(config.name)}: {as_markdown(config.method)}, seed {config.seed}"
    found = [title]
    for heading, paragraphs in parts.items():
        found += [*([f"## {heading}"] if heading else []), *paragraphs]
    return "\n\n".join(found) + "\n"


def _head(run: Run, facts: Facts) -> list[str]:
    setup, shape = run.setup, facts.image_shape
    rows = [
        ("network", setup.encoder or run.config.model.encoder),
        ("parameters", f"{setup.num_parameters:,}"),
        ("takes", "not known" if shape is None else f"{shape[0]}×{shape[1]}×{shape[2]} pixels; others are resized"),
        ("embedding", _numbers(facts.embedding_dim) + (", of length 1" if run.config.model.normalise else "")),
        ("features", _numbers(facts.feature_dim) + ", before the projection head"),
        ("digest", facts.encoder or "not known"),
        ("made by", f"cfcl {run.environment.versions.get('cfcl', '(version not known)')}"),
    ]
    return [words.WHAT, markdown_table(["encoder", ""], rows)]


def _numbers(dim: int | None) -> str:
    return "not known" if dim is None else f"{dim:,} numbers"


def _data(run: Run, facts: Facts) -> str:
    setup, partition = run.setup, run.config.partition
    held = [] if setup.labels is None else [len(some) for some in setup.labels]
    rows = [
        ("name", setup.dataset or run.config.data.dataset),
        ("training images", f"{sum(setup.points):,}"),
        ("devices", f"{len(setup.points)}, with {_range(setup.points)} images each"),
        ("split among devices", f"{partition.kind} (simulated)" if partition.kind != "given" else "as the data say"),
        ("labels per device", _range(held) if held else "not known"),
        ("judged on", f"{_judged(run)} images"),
        ("digest", facts.data or "not known"),
        ("licence", facts.licence or "unknown: your own"),
    ]
    return markdown_table(["data", ""], rows)


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _judged(run: Run) -> str:
    number = "" if run.setup.num_judged is None else f"{run.setup.num_judged:,} "
    return number + (run.setup.split or "test")


def _training(run: Run) -> str:
    config = run.config
    augment = [f"{key} {value:g}" for key, value in config.augment.model_dump().items() if value != words.OFF[key]]
    rows = [
        ("method", config.method),
        ("objective", config.train.objective),
        ("steps", f"{config.train.steps:,} of every device, {config.train.batch_size} images each"),
        ("optimiser", f"{config.train.optimiser}, learning rate {config.train.learning_rate:g}"),
        ("aggregation", f"every {config.aggregation.period} steps"),
        ("augmentation", ", ".join(augment) or "none"),
        ("seed", f"{config.seed}; one run, so that chance is not known"),
    ]
    return markdown_table(["training", ""], rows)


def _accuracy(run: Run, facts: Facts) -> list[str]:
    last = final(run)
    if last.probe is None:
        return ["Not known: the data have no labels."]
    judged, found = run.setup.num_judged, last.accuracies
    heads = labels.columns(found.values())
    rows = [
        [space, *("–" if head not in by else _share(by[head], judged) for head in heads), percent(knn, ".1f")]
        for (space, by), knn in zip(found.items(), (last.knn, last.features_knn), strict=False)
    ]
    table = markdown_table(["percent", *map(labels.title, heads), "neighbours"], rows)
    return [words.PROBE.format(split=run.setup.split or "test"), table, *_by_class(facts)]


def _share(value: float, judged: int | None) -> str:
    return percent(value, ".1f") if judged is None else labels.cell(interval([value], judged))


def _by_class(facts: Facts) -> list[str]:
    if not facts.by_class:
        return [f"By class: {facts.no_classes}."]
    spaces = list(facts.by_class[0].accuracies)
    rows = [
        [row.name, f"{row.num_images:,}", *(percent(row.accuracies[space], ".1f") for space in spaces)]
        for row in facts.by_class
    ]
    return ["By class, with all labels:", markdown_table(["class", "images", *spaces], rows)]


def _instead(facts: Facts) -> list[str]:
    rows = labels.of_yardsticks(facts.yardsticks)
    if not rows:
        return ["Not measured: `cfcl card RUN --yardsticks` does."]
    heads = labels.columns(row.accuracies for row in rows)
    cells = [[row.name, row.dim, *(labels.cell(row.accuracies.get(head)) for head in heads)] for row in rows]
    return [words.YARDSTICKS, markdown_table(["percent", "numbers", *map(labels.title, heads)], cells)]


def _exchanged(run: Run) -> list[str]:
    last = final(run)
    rows = [
        ("push", "devices to neighbours: reserves", size(last.bytes_push)),
        ("pull", "devices to neighbours: chosen items", size(last.bytes_pull)),
        ("up", "devices to the server: models", size(last.bytes_up)),
        ("down", "server to devices: models", _down(run, last.bytes_down)),
    ]
    return [markdown_table(["", "from and to", "bytes"], rows), _items(run)]


def _down(run: Run, sent: int) -> str:
    return size(sent) if run.config.cost.charge_broadcast else "not counted"


def _items(run: Run) -> str:
    devices, pulls = len(run.setup.points), run.pulls
    if not pulls:
        return "No item was pulled from a neighbour." if final(run).bytes_pull == 0 else "Items were not counted."
    number = sum(pull.items for pull in pulls)
    traced = min(run.config.evaluation.num_traced, devices)
    whom = "all devices" if traced == devices else f"the {traced} devices of {devices} that were traced"
    return f"{number:,} items were pulled by {whom}, over {len({pull.step for pull in pulls}):,} exchanges."
