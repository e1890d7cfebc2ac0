"""Which settings act in which runs, so that a user hears of one that does nothing."""

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatch
from typing import NamedTuple

from cfcl.config.files import fields, load, presets
from cfcl.config.schema import Config

Test = Callable[[Config], bool]

METHODS = frozenset({"cfcl", "uniform", "kmeans", "bulk", "novel", "cover", "oracle", "fedavg", "centralised"})
"""Methods whose use of settings is known; of a registered policy nothing is."""


def _exchanges(run: Config) -> bool:
    return run.exchange.method not in ("fedavg", "centralised")


def _joins(run: Config) -> bool:
    return run.exchange.mode != "implicit"


def _renewed(run: Config) -> bool:
    return run.exchange.mode != "explicit"


def _implicit(run: Config) -> bool:
    return run.exchange.mode == "implicit"


def _attacked(run: Config) -> bool:
    return bool(run.attack.devices)


def _poisons_models(run: Config) -> bool:
    return run.attack.kind.startswith("model")


def _by(*methods: str) -> Test:
    return lambda run: run.exchange.method in methods


def _all(*tests: Test) -> Test:
    return lambda run: all(test(run) for test in tests)


def _any(*tests: Test) -> Test:
    return lambda run: any(test(run) for test in tests)


def _is(setting: str, *values: object) -> Test:
    section, _, key = setting.partition(".")
    return lambda run: getattr(getattr(run, section), key) in values


class Use(NamedTuple):
    """When some settings act."""

    settings: str
    """Names or patterns, separated by spaces."""
    when: str
    acts: Test


_SCORING = _by("cfcl", "bulk")
_PERIODIC = _by("cfcl", "uniform", "kmeans", "novel", "cover", "oracle")
_TRIPLET = _is("train.objective", "triplet")

# All rules about a setting must hold for it to act; the first that does not is the one that is told.
USES = (
    Use(
        "exchange.* cost.d2d_mbps cost.rates_file evaluation.num_traced faults.graphs_file",
        "with a method that exchanges",
        _exchanges,
    ),
    Use("privacy.never_devices privacy.clip privacy.noise", "with a method that exchanges", _exchanges),
    Use("privacy.never_devices", "in mode explicit", _is("exchange.mode", "explicit")),
    Use("privacy.delta", "with privacy.noise above 0", lambda run: run.privacy.noise > 0),
    Use("regulariser.*", "with a method that exchanges, in mode implicit", _all(_exchanges, _implicit)),
    Use(
        "train.composition train.remote_fraction",
        "with a method that exchanges, in modes explicit and activations",
        _all(_exchanges, _joins),
    ),
    Use(
        "exchange.num_reserve exchange.reserve exchange.against",
        "with methods cfcl, bulk, novel and cover",
        _by("cfcl", "bulk", "novel", "cover"),
    ),
    Use(
        "exchange.num_candidates exchange.candidates exchange.candidates_file",
        "with methods other than bulk",
        _PERIODIC,
    ),
    Use("exchange.budget", "with methods novel and cover", _by("novel", "cover")),
    Use("exchange.layer exchange.precision", "in mode activations", _is("exchange.mode", "activations")),
    Use(
        "exchange.push",
        "with methods cfcl, novel and cover, in modes implicit and activations",
        _all(_by("cfcl", "novel", "cover"), _renewed),
    ),
    # Bulk chooses at t = 0, when all models are equal; blind rules embed only what they send as embeddings.
    Use(
        "exchange.importance_model",
        "with methods cfcl and kmeans, and in mode implicit with all but bulk",
        _any(_by("cfcl", "kmeans"), _all(_implicit, _PERIODIC)),
    ),
    Use("exchange.buffer", "with methods other than bulk", _any(_PERIODIC, _is("exchange.buffer", "limit"))),
    Use("exchange.buffer_size", "with exchange.buffer='limit'", _is("exchange.buffer", "limit")),
    Use(
        "exchange.softmax exchange.temperature_*",
        "with methods cfcl and bulk, in modes explicit and activations",
        _all(_SCORING, _joins),
    ),
    Use("exchange.temperature_end", "with methods other than bulk", _PERIODIC),
    Use(
        "exchange.score exchange.overlap_* exchange.num_reserve_clusters",
        "with methods cfcl and bulk, in mode implicit",
        _all(_SCORING, _implicit),
    ),
    Use("defence.*", "with a method that exchanges", _exchanges),
    Use("defence.clip", "in modes implicit and activations", _renewed),
    Use("attack.kind attack.strength", "with attack.devices other than 0", _attacked),
    Use("attack.*", "with a method that exchanges, or a kind that poisons models", _any(_exchanges, _poisons_models)),
    Use(
        "attack.strength",
        "with kinds items-far, reserve-radii, request-all and those that poison models",
        _any(_poisons_models, _is("attack.kind", "items-far", "reserve-radii", "request-all")),
    ),
    Use("exchange.novelty", "with method novel", _by("novel")),
    Use("exchange.cover_*", "with method cover", _by("cover")),
    Use("train.composition train.negatives", "with train.objective='triplet'", _TRIPLET),
    Use(
        "train.remote_fraction",
        "with train.composition='cross' or 'negatives_only'",
        lambda run: run.train.objective != "triplet" or run.train.composition != "union",
    ),
    Use("aggregation.trim", "with aggregation.rule='trimmed'", _is("aggregation.rule", "trimmed")),
    Use(
        "train.temperature",
        "with train.objective='infonce' or 'dcl'",
        _is("train.objective", "infonce", "dcl"),
    ),
    Use(
        "train.invariance train.variance train.covariance",
        "with train.objective='vicreg'",
        _is("train.objective", "vicreg"),
    ),
    Use("train.momentum aggregation.target", "with train.objective='byol'", _is("train.objective", "byol")),
    Use(
        "regulariser.reduction",
        "with train.objective='triplet', 'vicreg' or 'byol'",
        _is("train.objective", "triplet", "vicreg", "byol"),
    ),
    Use(
        "aggregation.server_*",
        "with aggregation.server='momentum' or 'adam'",
        _is("aggregation.server", "momentum", "adam"),
    ),
    Use("aggregation.autoscaler", "with aggregation.adopt='fedema'", _is("aggregation.adopt", "fedema")),
    Use("aggregation.moments", "with train.optimiser='adam'", _is("train.optimiser", "adam")),
    Use(
        "aggregation.buffers", "with BatchNorm", _all(_is("model.encoder", "slim-resnet18"), _is("model.norm", "batch"))
    ),
    Use(
        "model.norm",
        "with model.encoder='slim-resnet18', and as 'group' with 'conv'",
        _any(_is("model.encoder", "slim-resnet18"), _all(_is("model.encoder", "conv"), _is("model.norm", "group"))),
    ),
    Use("model.widths model.grid model.head", "with model.encoder='conv'", _is("model.encoder", "conv")),
    Use("partition.alpha partition.min_points", "with partition.kind='dirichlet'", _is("partition.kind", "dirichlet")),
    Use(
        "partition.max_points_per_label",
        "with partition.kind='labels' or 'overlapping'",
        _is("partition.kind", "labels", "overlapping"),
    ),
    Use(
        "partition.labels_per_device",
        "with partition.kind='labels', 'overlapping', 'common' or 'skewed'",
        _is("partition.kind", "labels", "overlapping", "common", "skewed"),
    ),
    Use(
        "partition.points_per_device partition.main_share",
        "with partition.kind='common' or 'skewed'",
        _is("partition.kind", "common", "skewed"),
    ),
    Use("partition.disjoint", "with partition.kind='common'", _is("partition.kind", "common")),
    Use(
        "graph.degree",
        "with graph.kind='geometric' or 'erdos_renyi'",
        _is("graph.kind", "geometric", "erdos_renyi"),
    ),
    Use(
        "graph.connected",
        "with graph.kind='geometric', 'erdos_renyi' or 'edges'",
        _is("graph.kind", "geometric", "erdos_renyi", "edges"),
    ),
    Use("faults.offline_steps", "with faults.offline above 0", lambda run: run.faults.offline > 0),
    Use(
        "faults.offline_trains",
        "with faults.offline, faults.gone or faults.offline_file",
        lambda run: run.faults.absences,
    ),
    Use("faults.damaged", "with faults.damage above 0", lambda run: run.faults.damage > 0),
    Use("graph.edges_file", "with graph.kind='edges'", _is("graph.kind", "edges")),
    Use("data.dir", "with published sets", _is("data.dataset", "fashion-mnist", "usps", "svhn")),
    Use("cost.downlink_mbps", "with cost.charge_broadcast=true", _is("cost.charge_broadcast", True)),
    Use("evaluation.worst", "with evaluation.labels_per_class", lambda run: bool(run.evaluation.labels_per_class)),
    Use("evaluation.ridge", "with evaluation.probe='lbfgs'", _is("evaluation.probe", "lbfgs")),
)


def given(spec: str, wanted: Config, overrides: Iterable[str] = ()) -> list[str]:
    """What the user set: every override, and in a file what differs from the preset of its name or the defaults."""
    chosen = [item.partition("=")[0].strip() for item in overrides]
    known = presets()
    if spec not in known:
        base = load(wanted.name) if wanted.name in known else Config()
        before = {(section, key): value for section, key, value, _ in fields(base)}
        pairs = (
            (f"{section}.{key}".lstrip("."), before[section, key] != value) for section, key, value, _ in fields(wanted)
        )
        chosen += [setting for setting, changed in pairs if changed]
    return list(dict.fromkeys(chosen))


def notes(settings: Iterable[str], runs: Sequence[Config]) -> list[str]:
    """One line for each reason why some of the `settings` act in none of the `runs`."""
    found: dict[str, list[str]] = {}
    for setting in settings:
        reasons = [_idle(setting, run) for run in runs]
        if all(reasons):
            found.setdefault(str(reasons[0]), []).append(setting)
    return [f"{', '.join(some)} {'has' if len(some) == 1 else 'have'} no effect here, only {when}"
            for when, some in found.items()]  # fmt: skip


def replaced(settings: Iterable[str], wanted: Config, runs: Sequence[Config]) -> list[str]:
    """One line for each of the `settings` whose value in `wanted` is that of none of the `runs`."""
    values = {f"{section}.{key}".lstrip("."): value for section, key, value, _ in fields(wanted)}
    held = [{f"{section}.{key}".lstrip("."): value for section, key, value, _ in fields(run)} for run in runs]
    lost = [name for name in settings if name in values and all(run[name] != values[name] for run in held)]
    return [
        f"{name}={values[name]} has no effect here: methods and seeds of the comparison replace it" for name in lost
    ]


def _idle(setting: str, run: Config) -> str | None:
    """When `setting` would act, if it does not in this run."""
    if setting == "exchange.method" or (setting.startswith("exchange.") and run.exchange.method not in METHODS):
        return None
    about = (use for use in USES if any(fnmatch(setting, pattern) for pattern in use.settings.split()))
    return next((use.when for use in about if not use.acts(run)), None)
