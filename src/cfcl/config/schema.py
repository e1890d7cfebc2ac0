"""Every choice of a run as a field, with its meaning, its options and its limits."""

import hashlib
import json
from typing import Annotated, Any, Literal, Self

from pydantic import Field, Strict, ValidationError, model_validator

from cfcl.config import complaints
from cfcl.config.fields import (
    LARGEST,
    MOST,
    Count,
    Finite,
    Mode,
    NonNegative,
    Place,
    Positive,
    PositiveCount,
    Section,
    Share,
    Widths,
)
from cfcl.config.trouble import AttackConfig, DefenceConfig, FaultsConfig, PrivacyConfig
from cfcl.errors import CfclError
from cfcl.methods import ALONE, Method

NUMERICS = 2
"""The version of what settings mean. A changed default raises it, and so does whatever changes the numbers of a run."""
UNCOUNTED = {"data": {"dir"}, "records": {"explain"}, "checkpoint": {"every"}, "privacy": {"delta"}}
"""Settings that change no number of a run, by section: they stay outside its digest."""


class DataConfig(Section):
    """Which images."""

    dataset: Literal["digits", "fashion-mnist", "usps", "svhn", "folder", "npz"] = "digits"
    """`digits`: 1,797 grey 8×8 digits that ship inside scikit-learn; `fashion-mnist`, `usps`, `svhn`: published sets,
    see `cfcl data`; `folder`, `npz`: images of your own at `path`."""
    dir: Place | None = None
    """Folder with the files of published sets; not set: $CFCL_DATA_DIR, then the user's cache."""
    path: Place | None = None
    """Folder of images (`folder`) or .npz file with `images` and, if known, `labels`, `devices`, `test_images`,
    `test_labels` (`npz`)."""
    layout: Literal["auto", "flat", "classes", "devices"] = "flat"
    """Sub-folders of `path`: taken together, one per class (for evaluation only), or one per device (dataset `folder`);
    `auto`: as their names say."""
    image_size: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Side that images are resized to, antialiased, whatever their aspect (own images); not set: as they are."""
    grey: bool = False
    """Turn colour into grey (own images)."""
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of each label that is held out for evaluation, where the data bring no test split of their own."""
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of each label of the training split that devices and probe never see; every accuracy and health figure is
    then of these images, and the test split is not looked at. The same images for all seeds. For choosing settings;
    reported numbers have 0."""

    @model_validator(mode="after")
    def _check_path(self) -> Self:
        own = self.dataset in ("folder", "npz")
        if own and self.path is None and self.layout != "auto":
            raise ValueError(f"dataset={self.dataset!r} needs the place of your images: set data.path")
        if not own and self.path is not None:
            raise ValueError(
                f"path={str(self.path)!r} is for images of your own, but dataset={self.dataset!r} is not: set "
                "data.dataset to 'folder' or 'npz', or data.path=none"
            )
        return self

    @model_validator(mode="after")
    def _check_use(self) -> Self:
        own = ("folder", "npz")
        folder = own if self.layout == "auto" else ("folder",)
        uses = {"layout": folder, "image_size": own, "grey": own, "test_fraction": ("digits", *own)}
        for key, users in uses.items():
            value, default = getattr(self, key), type(self).model_fields[key].default
            if value != default and self.dataset not in users:
                reset = "none" if default is None else str(default).lower()
                raise ValueError(
                    f"{key}={value!r} has no effect on dataset={self.dataset!r}, only on {', '.join(users)}: set "
                    f"data.{key}={reset}"
                )
        return self


class PartitionConfig(Section):
    """Who holds which training points. Labels only shape the split; devices never see them."""

    kind: Literal["labels", "overlapping", "common", "skewed", "dirichlet", "iid", "given"] = "labels"
    """`labels`: a few labels per device; `overlapping`: the same, but devices may share points, so that there can be
    more devices than the data could serve otherwise; `common`: most of every device's data are of one label, the same
    for all, and the rest of a few of its own; `skewed`: most are of one label, another on each; `dirichlet`: label
    shares drawn from Dirichlet(alpha); `iid`: shuffled; `given`: as your own images say."""
    num_devices: Annotated[int, Field(ge=1, le=10**6)] = 10
    """Devices in the network."""
    labels_per_device: PositiveCount = 3
    """Distinct labels on a device (kinds `labels`, `overlapping`, `skewed`), or besides the common one (`common`)."""
    alpha: Positive = 0.5
    """Concentration (kind `dirichlet`): small is skewed, large is even."""
    min_points: Annotated[int, Field(ge=2, le=MOST)] = 2
    """Fewest points per device; devices with more give some away (kind `dirichlet`)."""
    max_points_per_label: PositiveCount | None = None
    """Largest number of points of one label on one device (kinds `labels`, `overlapping`); not set: no limit."""
    points_per_device: PositiveCount | None = None
    """Points on every device (kinds `common`, `skewed`); not set: as many as the data allow."""
    main_share: Share = 0.8
    """Share of them that is of the one label (kinds `common`, `skewed`)."""
    disjoint: bool = False
    """Keep images of the common label on one device each (kind `common`); off, they may lie on several."""


class GraphConfig(Section):
    """Who may talk to whom."""

    kind: Literal["geometric", "ring", "line", "star", "complete", "erdos_renyi", "edges"] = "geometric"
    """`geometric`: random positions, nearest pairs linked; `edges`: read from `edges_file`."""
    degree: Positive = 7.0
    """Average number of neighbours (kinds `geometric`: exact, `erdos_renyi`: expected)."""
    edges_file: Place | None = None
    """Text file with one `device device` pair per line (kind `edges`)."""
    connected: bool = True
    """Whether every device must reach every other one; off, a random or given graph may fall apart (kinds `geometric`,
    `erdos_renyi`, `edges`)."""

    @model_validator(mode="after")
    def _check_file(self) -> Self:
        if self.kind == "edges" and self.edges_file is None:
            raise ValueError("kind='edges' needs a file of device pairs: set graph.edges_file")
        return self


class AugmentConfig(Section):
    """The random function F that turns an anchor into its positive, with fresh parameters for every image."""

    rotation: Annotated[float, Field(ge=0, le=180)] = 0.0
    """Largest rotation, in degrees either way."""
    perspective: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Largest inward shift of a corner, as a share of half the image."""
    crop: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Smallest share of the area kept by a resized crop; 1 is off."""
    flip: Share = 0.0
    """Probability of a horizontal flip."""
    blur: NonNegative = 0.0
    """Largest standard deviation of a Gaussian blur, in pixels; 0 is off."""
    noise: NonNegative = 0.0
    """Standard deviation of additive Gaussian noise, pixels in 0..1."""
    brightness: NonNegative = 0.0
    """Pixels are multiplied by a factor between 1 minus this (0 at least) and 1 plus this; 0 is off."""
    contrast: NonNegative = 0.0
    """The same for the distance of a pixel from the image's mean grey."""
    saturation: NonNegative = 0.0
    """The same for the distance of a pixel from its own grey; nothing to do on grey images."""
    greyscale: Share = 0.0
    """Probability of losing all colour; nothing to do on grey images."""


class ModelConfig(Section):
    """The encoder."""

    encoder: Literal["small-cnn", "usps-cnn", "small-alexnet", "slim-resnet18", "conv"] = "small-cnn"
    """`small-cnn` for images of about 8×8, `usps-cnn` for 16×16, `small-alexnet` for 28×28, `slim-resnet18` for 32×32
    colour; `conv` for any of 4×4 or more, with sizes of your own."""
    embedding_dim: Annotated[int, Field(ge=1, le=10**5)] = 16
    """Length of an embedding."""
    norm: Literal["batch", "group"] = "batch"
    """Normalisation layers of `slim-resnet18`: BatchNorm has running statistics (see aggregation.buffers), GroupNorm
    none. `conv` has GroupNorm with `group`, and otherwise no such layers."""
    standardise: bool = False
    """First give every channel of every image mean 0 and standard deviation 1, so that brightness, contrast and tint
    do not matter; for photographs."""
    normalise: bool = True
    """Put embeddings on the unit sphere (L2); off leaves them free."""
    widths: Annotated[Widths, Field(min_length=1)] = (24, 48, 64)
    """Channels of the 3×3 convolutions of `conv`, first to last."""
    grid: PositiveCount = 2
    """Side of the grid that the last convolution of `conv` is averaged to: grid × grid × its channels are the
    features."""
    head: Widths = (64,)
    """Hidden layers of the head of `conv`, between features and embedding; none: one linear layer."""


class TrainConfig(Section):
    """Local training."""

    steps: Annotated[int, Field(ge=1, le=10**6)] = 1000
    """T: updates of every device."""
    objective: Literal["triplet", "infonce", "dcl", "vicreg", "byol"] = "triplet"
    """What devices minimise. `triplet`: the paper's, Eq. (1). The others see two augmented views of each point:
    `infonce` (NT-Xent), `dcl` (the same without the positive in the denominator, for small batches), `vicreg`, `byol`
    (a momentum target and no negatives)."""
    batch_size: Annotated[int, Field(ge=1, le=10**5)] = 32
    """Triplets per update, or points of which two views are seen."""
    optimiser: Literal["adam", "sgd"] = "adam"
    """The local update, Eq. (4): with Adam's preconditioner, or plain."""
    learning_rate: Annotated[float, Field(gt=0, le=LARGEST)] = 1e-3
    """Step size alpha."""
    schedule: Literal["constant", "cosine"] = "constant"
    """The step size over a run: the same, or down to 0 by half a cosine."""
    warmup: Count = 0
    """First updates, over which the step size rises in a straight line."""
    weight_decay: NonNegative = 0.0
    """Share of the weights that an update takes away, times the step size (decoupled, as in AdamW); 0 is off."""
    margin: Positive = 0.5
    """m of the triplet loss, Eq. (1), which also scores candidates for every objective, Eq. (10)."""
    temperature: Positive = 0.2
    """What cosines are divided by (objectives `infonce`, `dcl`)."""
    invariance: NonNegative = 25.0
    """Weight of the difference between two views (objective `vicreg`)."""
    variance: NonNegative = 25.0
    """Weight of what a dimension's standard deviation lacks of 1 (objective `vicreg`)."""
    covariance: NonNegative = 1.0
    """Weight of the squared covariances between dimensions (objective `vicreg`)."""
    momentum: Share = 0.99
    """How much of itself the target keeps at each update; the rest is the model's (objective `byol`)."""
    composition: Literal["cross", "union", "negatives_only"] = "cross"
    """How pulled datapoints enter a batch. `cross`: a share of triplets pairs a local with a pulled point, in
    either role; `union`: anchors and negatives uniform over all points held; `negatives_only`: pulled points are only
    negatives."""
    remote_fraction: Share = 0.5
    """Share of a batch that is cross pairs (`cross`) or has pulled negatives (`negatives_only`); for two views, share
    of its points that were pulled, as far as there are any."""
    negatives: Literal["drawn", "batch"] = "drawn"
    """`drawn`: points drawn for this purpose; `batch`: other anchors of the batch (with `cross`), a third less work."""
    fedprox: NonNegative = 0.0
    """Weight mu of the proximal term mu/2 |phi - phi_G|^2 (FedProx); 0 is off."""

    @model_validator(mode="after")
    def _check_negatives(self) -> Self:
        if self.negatives == "batch" and (self.composition != "cross" or self.batch_size < 2):
            raise ValueError(
                f"negatives='batch' goes with composition='cross' and a batch_size of 2 or more, not with "
                f"composition={self.composition!r} and batch_size={self.batch_size}: set train.negatives='drawn'"
            )
        return self

    @model_validator(mode="after")
    def _check_views(self) -> Self:
        if self.objective != "triplet" and self.batch_size < 2:
            raise ValueError(
                f"objective={self.objective!r} compares points of one batch, but batch_size={self.batch_size}: set "
                "train.batch_size=2 or more"
            )
        return self

    @model_validator(mode="after")
    def _check_warmup(self) -> Self:
        if self.warmup >= self.steps:
            raise ValueError(
                f"warmup={self.warmup} is not below steps={self.steps}, so the step size would never reach "
                "learning_rate: lower train.warmup"
            )
        return self


class AggregationConfig(Section):
    """The server's averaging."""

    period: PositiveCount = 10
    """T_a: updates between aggregations."""
    num_devices: PositiveCount | None = None
    """Devices drawn uniformly for each aggregation; not set: all."""
    rule: Literal["mean", "median", "trimmed"] = "mean"
    """`mean`: weighted by points held, Eq. (5); parameter by parameter and unweighted: `median`, or `trimmed`, the mean
    without the largest and the smallest values."""
    trim: Annotated[float, Field(ge=0, lt=0.5)] = 0.1
    """Share of the models, rounded down, whose values `trimmed` leaves out at each end."""
    clip: Positive | None = None
    """Largest distance of a model from the global one, in median distances of those that arrive with it; one that is
    further away is moved towards the global model before any rule; not set: no limit."""
    moments: Literal["keep", "reset"] = "keep"
    """Adam's moments when a device adopts the global model."""
    buffers: Literal["average", "local"] = "average"
    """Running statistics of normalisation layers: averaged with the weights, or kept by each device."""
    target: Literal["average", "local"] = "average"
    """The momentum target (train.objective `byol`): averaged with the weights, or kept by each device and not sent."""
    server: Literal["average", "momentum", "adam"] = "average"
    """What the server makes of the average: the global model, or a step towards it with momentum (FedAvgM) or with
    Adam's preconditioner (FedAdam)."""
    server_rate: Positive | None = None
    """Size of the server's step (server `momentum`, `adam`); not set: 1 and 0.01."""
    server_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """How much of its last step the server keeps (server `momentum`, `adam`)."""
    ema: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Decay of a moving average of the global model, which is then what is judged and what a run leaves behind; devices
    go on with the global model itself. 0 is off."""
    adopt: Literal["replace", "fedema"] = "replace"
    """What a device makes of the global model: its own, or a mixture with its own, in which the own model weighs the
    more the further both are apart (FedEMA)."""
    autoscaler: Share = 0.7
    """Weight of the own model in the first mixture (adopt `fedema`)."""


class ExchangeConfig(Section):
    """What travels between neighbours, how much of it, and how it is chosen."""

    method: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=60)] = "cfcl"
    """`cfcl`: smart push-pull; `uniform`, `kmeans`, `bulk`: baselines; `novel`, `cover`: selection rules of our own;
    `fedavg`: no exchange; for reference `oracle`, which sees labels, and `centralised`, one device with all the data;
    or a policy that you registered."""
    mode: Mode = "explicit"
    """`explicit` moves datapoints, which join the receiver's batches; `activations` moves what a layer has made of two
    augmented views of each, which join them there; `implicit` moves embeddings only, which enter its loss."""
    layer: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=60)] = "block2"
    """The stage of the encoder whose activations travel (mode `activations`): `block1`, ..., `features`, `embedding`.
    The deeper it is, the less it says of the image, and the less it is worth."""
    precision: Literal["float32", "uint8"] = "float32"
    """How activations travel: four bytes per value, or one and the range of each item (mode `activations`)."""
    period: PositiveCount = 25
    """T_p: updates between exchanges."""
    start: Count = 0
    """First step at which an exchange may happen."""
    stop: PositiveCount | None = None
    """Exchanges end before this step; not set: they go on to the end."""
    num_pulled: Count = 5
    """n: items a device pulls from each neighbour per exchange; 0 is no exchange."""
    budget: Literal["fixed", "adaptive"] = "fixed"
    """`adaptive`: a device asks its neighbours for parts of what it may pull from all of them, in proportion to how
    many of their candidates were new to it last time, and for none where none were; every answer carries that number,
    4 bytes (methods `novel` and `cover`)."""
    num_reserve: PositiveCount = 10
    """K^Reserve: points in the reserve that a device pushes to its neighbours."""
    num_candidates: PositiveCount = 50
    """K^Approx: points a device draws as candidates for sending."""
    num_clusters: PositiveCount = 10
    """Clusters of the macro stage and of the dynamic margin."""
    budgets_file: Place | None = None
    """CSV `transmitter,receiver,num_pulled,num_reserve` that overrides the two numbers on the links it names; with a
    fifth column `step`, num_pulled holds from that step on."""
    candidates_file: Place | None = None
    """CSV `device,num_candidates` that overrides K^Approx of the devices it names."""
    reserve: Literal["kmeans", "random"] = "kmeans"
    """Reserve points: nearest to K-means++ centroids of the pixels, or random."""
    candidates: Literal["per_pull", "per_aggregation", "relay"] = "per_pull"
    """Candidates: own data redrawn at each pull or at each aggregation; `relay` may also pass on what was pulled."""
    against: Literal["receiver", "another"] = "receiver"
    """Whose reserve candidates are scored against: the receiver's, or, as a control, that of another neighbour; a rule
    that gains nothing by the right one does not use it."""
    push: Literal["exchange", "aggregation"] = "exchange"
    """When reserves are pushed anew (modes `implicit` and `activations`)."""
    importance_model: Literal["global", "local", "both_local"] = "global"
    """The model that scores candidates: the last global one, or the transmitter's own; `both_local`: also the receiver
    embeds the reserve that it pushes with its own (modes `implicit` and `activations`)."""
    buffer: Literal["purge", "limit", "keep", "lasting"] = "purge"
    """What happens to items pulled before. `purge`: dropped; `limit`: the newest `buffer_size` items stay; `keep`: all
    stay; `lasting`: datapoints stay; embeddings and activations, which belong to an older model, are dropped."""
    buffer_size: PositiveCount = 200
    """Items kept by buffer `limit`."""
    softmax: Literal["cluster", "global"] = "cluster"
    """Eq. (11): softmax over the candidates of a cluster, or over all (modes `explicit` and `activations`)."""
    temperature_start: NonNegative = 4.0
    """Selection temperature at t = 0, Eq. (11)."""
    temperature_end: NonNegative = 10.0
    """Selection temperature at t = T; linear in between."""
    temperature_scale: Literal["none", "spread"] = "none"
    """`spread` divides the losses of Eq. (11) by their standard deviation first."""
    score: Literal["literal_radius", "literal_point", "text", "draft"] = "literal_radius"
    """The form of Eq. (16) (mode `implicit`)."""
    overlap_mean: Finite = 1.0
    """Mean of the normal density in Eq. (18)."""
    overlap_std: Positive = 0.5
    """Standard deviation of the normal density in Eq. (18)."""
    novelty: Positive = 8.0
    """How strongly method `novel` prefers kinds that the receiver lacks; near 0 the choice is uniform."""
    cover_edge: Positive = 0.9
    """Squared distance from a reserve point, in squared radii, at which method `cover` calls an item new with
    probability a half."""
    cover_sharpness: Positive = 16.0
    """How sharp that edge is; near 0 the choice is uniform."""
    cover_neighbours: PositiveCount = 6
    """Candidates, each with those nearest to it, that method `cover` judges together; 1 judges each alone."""
    num_reserve_clusters: PositiveCount | None = None
    """K-means clusters of a reserve in Eq. (19); not set: each reserve embedding is its own centroid."""

    @property
    def retention(self) -> Literal["purge", "limit", "keep"]:
        """What `buffer` means in this mode."""
        if self.buffer != "lasting":
            return self.buffer
        return "keep" if self.mode == "explicit" else "purge"

    @model_validator(mode="after")
    def _check_fit(self) -> Self:
        if self.num_pulled > self.num_candidates and self.method not in ("bulk", "fedavg"):
            raise ValueError(
                f"num_pulled={self.num_pulled} exceeds num_candidates={self.num_candidates}, but items are drawn "
                "without replacement: lower exchange.num_pulled or raise exchange.num_candidates"
            )
        if self.num_clusters > self.num_candidates:
            raise ValueError(
                f"num_clusters={self.num_clusters} exceeds num_candidates={self.num_candidates}, but a cluster needs "
                "a point: lower exchange.num_clusters or raise exchange.num_candidates"
            )
        if self.num_reserve_clusters is not None and self.num_reserve_clusters > self.num_reserve:
            raise ValueError(
                f"num_reserve_clusters={self.num_reserve_clusters} exceeds num_reserve={self.num_reserve}, but a "
                "cluster needs a point: lower exchange.num_reserve_clusters or raise exchange.num_reserve"
            )
        if self.mode == "activations" and self.candidates == "relay":
            raise ValueError(
                "candidates='relay' would pass on activations of an older model: choose "
                "exchange.candidates='per_pull', or exchange.mode='explicit'"
            )
        if self.stop is not None and self.stop <= self.start:
            raise ValueError(
                f"stop={self.stop} is not after start={self.start}, so no exchange could happen: raise exchange.stop "
                "or set exchange.method='fedavg'"
            )
        return self


class RegulariserConfig(Section):
    """How pulled embeddings enter the loss, Eq. (23) to (25) (mode `implicit`)."""

    reduction: Literal["mean", "sum"] = "mean"
    """Over the received embeddings in Eq. (23)."""
    radius: Literal["length", "squared"] = "length"
    """The cluster radius in Eq. (24): largest member distance, or its square."""
    radius_factor: NonNegative = 1.0
    """k of Eq. (24)."""
    weight: NonNegative = 1.0
    """lambda of Eq. (25)."""
    staleness: Literal["constant", "age"] = "constant"
    """zeta of Eq. (25): 1, or the age of the pulled embeddings over T_p."""
    staleness_factor: NonNegative = 1.0
    """rho of Eq. (25)."""


class CostConfig(Section):
    """What communication costs."""

    d2d_mbps: Positive = 1.0
    """Rate of a device-to-device link, Mbit/s."""
    uplink_mbps: Positive = 1.0
    """Rate from a device to the server, Mbit/s."""
    rates_file: Place | None = None
    """CSV `source,target,mbps` that overrides the rate of the links it names."""
    charged_parameters: Annotated[int, Field(ge=1, le=10**11)] | None = None
    """Parameters charged per model transfer; not set: the encoder's own number."""
    charge_broadcast: bool = False
    """Also charge the broadcast of the global model, at `downlink_mbps`."""
    downlink_mbps: Positive = 1.0
    """Rate from the server to the devices, Mbit/s."""
    step_seconds: NonNegative = 0.0
    """Seconds charged per local update."""
    transmit_watts: NonNegative = 0.0
    """Transmit power for the energy figure in joules; 0 is off."""


class EvaluationConfig(Section):
    """How the global encoder is evaluated, and how often."""

    every: PositiveCount = 10
    """Aggregations between evaluations; the first and the last model are always evaluated."""
    probe: Literal["lbfgs", "sgd"] = "lbfgs"
    """Linear probe: converged full-batch L-BFGS, or 1,000 gradient steps."""
    ridge: NonNegative = 1e-4
    """L2 penalty of the converged probe."""
    max_train: PositiveCount = 10_000
    """Largest number of training points for probe and neighbours, drawn once; the test split is always used whole."""
    num_neighbours: PositiveCount = 20
    """k of the nearest-neighbour accuracy."""
    num_health: Annotated[int, Field(ge=2, le=10**4)] = 256
    """Test images used for alignment, uniformity, effective rank and CKA."""
    num_health_devices: Annotated[int, Field(ge=2, le=MOST)] = 20
    """Largest number of devices compared by CKA."""
    num_traced: Count = 50
    """Largest number of receivers whose pulls are recorded one by one, drawn once."""
    log_every: PositiveCount = 2
    """Steps between records of the training losses."""
    labels_per_class: Annotated[tuple[PositiveCount, ...], Strict(False), Field(max_length=10)] = ()
    """Also probe with so few labels of each class, such as [1, 10, 100]: the mean over five draws of them."""
    features: bool = False
    """Also evaluate the features, which the head of the encoder turns into embeddings."""
    worst: bool = False
    """Also record the accuracy on the worst label, and that of the worst device, whose labels count by its own points:
    of the embedding, with the first number of `labels_per_class`."""


class RecordsConfig(Section):
    """What is written down besides the figures. Nothing here changes a number."""

    explain: bool = False
    """With each pull, why each item was chosen: its index at the transmitter, cluster, probabilities and scores."""


class CheckpointConfig(Section):
    """What a run that is interrupted can go on from. Nothing here changes a number."""

    every: Count = 100
    """Updates between checkpoints in the run folder; the newest two are kept, and none when the run is finished. 0:
    only when it is asked to stop."""


class Config(Section):
    """One run, whole."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)] = "digits"
    """Name of the run, part of its folder."""
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    """Seeds every random stream. Runs that share it share partition, graph, initial model and batch order."""
    data: DataConfig = DataConfig()
    partition: PartitionConfig = PartitionConfig()
    graph: GraphConfig = GraphConfig()
    augment: AugmentConfig = AugmentConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    aggregation: AggregationConfig = AggregationConfig()
    exchange: ExchangeConfig = ExchangeConfig()
    regulariser: RegulariserConfig = RegulariserConfig()
    defence: DefenceConfig = DefenceConfig()
    attack: AttackConfig = AttackConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    cost: CostConfig = CostConfig()
    faults: FaultsConfig = FaultsConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    records: RecordsConfig = RecordsConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()

    def __init__(self, **fields: Any) -> None:
        """A checked config; what is wrong is a CfclError."""
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise CfclError(complaints.explain(error, Config)) from None

    @model_validator(mode="after")
    def _check_devices(self) -> Self:
        chosen = self.aggregation.num_devices
        if chosen is not None and chosen > self.partition.num_devices:
            raise ValueError(
                f"aggregation.num_devices={chosen} exceeds partition.num_devices={self.partition.num_devices}: "
                "lower it, or leave it out to aggregate all"
            )
        return self

    @model_validator(mode="after")
    def _check_never_devices(self) -> Self:
        last = self.partition.num_devices - 1
        if any(number > last for number in self.privacy.never_devices):
            raise ValueError(
                f"privacy.never_devices={list(self.privacy.never_devices)} names a device above {last}, the last of "
                f"partition.num_devices={last + 1}: remove it"
            )
        return self

    @model_validator(mode="after")
    def _check_centralised(self) -> Self:
        if self.exchange.method == "centralised" and self.partition.num_devices > 1:
            raise ValueError(
                f"exchange.method='centralised' has one device, not partition.num_devices={self.partition.num_devices}"
                ": compare with --methods centralised, which sets it, or set partition.num_devices=1"
            )
        return self

    @model_validator(mode="after")
    def _check_exchange_happens(self) -> Self:
        if self.exchange.start >= self.train.steps:
            raise ValueError(
                f"exchange.start={self.exchange.start} is not before train.steps={self.train.steps}, so no exchange "
                "could happen: lower exchange.start, or set exchange.method='fedavg'"
            )
        return self

    @model_validator(mode="after")
    def _check_attack(self) -> Self:
        attack, number = self.attack, self.partition.num_devices
        wrong = [i for i in attack.devices if i >= number] if isinstance(attack.devices, tuple) else []
        if wrong:
            raise ValueError(
                f"attack.devices names device {wrong[0]}, but there are {number}, numbered from 0: name one of them"
            )
        if isinstance(attack.devices, int) and attack.devices > number:
            raise ValueError(
                f"attack.devices={attack.devices} exceeds partition.num_devices={number}: lower it, or add devices"
            )
        return self

    @model_validator(mode="after")
    def _check_relay(self) -> Self:
        if self.exchange.candidates == "relay" and (self.attack.devices or self.defence != DefenceConfig()):
            raise ValueError(
                "exchange.candidates='relay' passes items on without saying whose they are, so nobody could tell whom "
                "to refuse: choose exchange.candidates='per_pull', or leave out [attack] and [defence]"
            )
        return self

    @property
    def method(self) -> str:
        """Method and mode in one word, such as `cfcl-explicit`."""
        exchange = self.exchange
        return Method(exchange.method, "" if exchange.method in ALONE else exchange.mode).word

    @property
    def digest(self) -> str:
        """Twelve hex digits that name what a run of this config measures today."""
        return self.digest_under(NUMERICS)

    def digest_under(self, numerics: int) -> str:
        """The same for a run made under other numerics.

        Only settings that differ from their defaults count, so that a new field orphans no finished run.
        """
        changed = self.model_dump(mode="json", exclude_defaults=True, exclude=UNCOUNTED)
        counted = {key: value for key, value in changed.items() if value != {}}
        canonical = json.dumps({"numerics": numerics, **counted}, sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]
