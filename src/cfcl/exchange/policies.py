"""Who sends what: a policy is a pair of functions, one for each end of a link. Baselines are policies too.

`offer` is the receiver's side: which of its points stand for its data. `choose` is the transmitter's side: which of
its candidates it sends. Both are pure; a policy with no `offer` pushes nothing, one with no `choose` never exchanges.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cfcl import rng
from cfcl.config import ExchangeConfig
from cfcl.core import clustering, coverage, importance
from cfcl.errors import CfclError


@dataclass(frozen=True)
class Randomness:
    """The random numbers of one device at one step."""

    seed: int
    device: int
    step: int

    def uniforms(self, purpose: str, *shape: int) -> Tensor:
        """Uniforms in 0..1, in double precision."""
        return _uniforms(rng.stream(self.seed, purpose, self.device, self.step), *shape)


@dataclass(frozen=True)
class Candidates:
    """What the transmitters of some links may send."""

    embeddings: Float[Tensor, "links candidates dim"]
    """Eq. (14); a policy that needs none sees only how many there are."""
    clusters: clustering.Clusters
    """Their own clusters."""
    points: Float[Tensor, "links candidates pixels"] | None = None
    """The candidates themselves, or their activations, for the need `pixels`."""
    sent: Bool[Tensor, "links candidates"] | None = None
    """Which of them the receiver has had over this link and keeps, for the need `sent`."""
    lacked: Bool[Tensor, "links candidates"] | None = None
    """Whether the receiver lacks their label: what no device knows, for the need `labels`."""


@dataclass(frozen=True)
class Shown:
    """What the receivers of some links have pushed."""

    embeddings: Float[Tensor, "links reserve dim"] | None = None
    """Eq. (13), for the need `embeddings`."""
    positives: Float[Tensor, "links reserve dim"] | None = None
    """Embeddings of the augmented reserve points; none in mode `implicit`."""
    points: Float[Tensor, "links reserve pixels"] | None = None
    """The reserve itself, or its activations, for the need `pixels`."""
    numbers: Float[Tensor, "links reserve"] | None = None
    """What the policy's `measure` has sent with each point, if it has one."""


Usefulness = Callable[[Tensor, Tensor, Tensor], Float[Tensor, "links candidates"]]
"""Eq. (10), from the embeddings of reserve, its positives and candidates."""


@dataclass(frozen=True)
class Pull:
    """What is known where items are chosen, for several links at once; links of one transmitter share its candidates.

    Every link is a problem of its own: what a policy chooses for it may not depend on the links beside it.
    """

    seed: int
    step: int
    links: tuple[tuple[int, int], ...]
    """Transmitter and receiver."""
    num_items: tuple[int, ...]
    """How many items each receiver asks for."""
    candidates: Candidates
    reserve: Shown
    temperature: float
    usefulness: Usefulness
    """How much loss a candidate would cause at the receiver, by the objective of the run."""
    config: ExchangeConfig

    def uniforms(self, purpose: str, size: int) -> Float[Tensor, "links size"]:
        """Random numbers of each link, where the candidates are."""
        return self._drawn([rng.stream(self.seed, purpose, j, i, self.step) for j, i in self.links], size)

    def transmitter_uniforms(self, purpose: str, size: int) -> Float[Tensor, "links size"]:
        """Random numbers of each transmitter, the same for all its links."""
        return self._drawn([rng.stream(self.seed, purpose, j, self.step) for j, _ in self.links], size)

    def _drawn(self, streams: list[torch.Generator], size: int) -> Tensor:
        return torch.stack([_uniforms(stream, size) for stream in streams]).to(self.candidates.embeddings.device)


@dataclass(frozen=True)
class Stages:
    """Why candidates are as likely as they are, for whoever asks."""

    clusters: Int[Tensor, "links candidates"]
    macro: Float[Tensor, "links candidates"]
    """Logarithm of the probability of a candidate's cluster."""
    micro: Float[Tensor, "links candidates"]
    """Logarithm of its probability inside the cluster."""


@dataclass(frozen=True)
class Choice:
    """What a transmitter sends to each receiver."""

    chosen: tuple[Int[Tensor, " _"], ...]
    """Positions among the candidates, one tensor per link."""
    log_probabilities: Float[Tensor, "links candidates"]
    """The law they were drawn from."""
    stages: Stages | None = None
    scores: Mapping[str, Float[Tensor, "links candidates"]] = field(default_factory=dict)
    """Figures of the policy's own, by name."""


Offer = Callable[[Float[Tensor, "points pixels"], int, ExchangeConfig, Randomness], Int[Tensor, " reserve"]]
"""Positions of the points that a receiver shows; chosen once."""
Measure = Callable[[Float[Tensor, "points pixels"], Float[Tensor, "reserve pixels"]], Float[Tensor, " reserve"]]
"""A number with each of them, such as a radius, four bytes each: from rows of own points and of the reserve, which are
pixels, or, anew at every push, the activations or embeddings that travel."""
Choose = Callable[[Pull], Choice]
Need = Literal["embeddings", "pixels", "sent", "labels"]
"""`embeddings` of candidates and reserve; their `pixels` (in mode `activations` the values that travel; in mode
`implicit` such a policy gets embeddings); what was `sent` before and is kept; the `labels` that the receiver lacks,
which is cheating: a yardstick, possible in simulation only, and no competitor."""


@dataclass(frozen=True)
class Policy:
    """A way of exchanging."""

    offer: Offer | None
    choose: Choose | None
    needs: frozenset[Need] = frozenset({"embeddings"})
    """What `choose` looks at; nothing else is computed for it."""
    when: Literal["periodic", "start"] = "periodic"
    """At `start` everything moves at t = 0, chosen from all local points, and is kept."""
    measure: Measure | None = None
    newness: str | None = None
    """The score of a choice that is the logarithm of the probability that a candidate is new to the receiver, if there
    is one: what adaptive budgets go by."""


def push_reserve(
    points: Float[Tensor, "points pixels"], size: int, config: ExchangeConfig, draws: Randomness
) -> Int[Tensor, " reserve"]:
    """Positions of the reserve points, Eq. (6), by K-means on pixels or at random."""
    if config.reserve == "random":
        return importance.uniform_sample(draws.uniforms("reserve", len(points)).to(points.device), size)
    uniforms = draws.uniforms("reserve", size).to(points.device, points.dtype)
    return importance.reserve_by_kmeans(points, uniforms)


def draw(
    log_probabilities: Float[Tensor, "links candidates"],
    pull: Pull,
    stages: Stages | None = None,
    **scores: Float[Tensor, "links candidates"],
) -> Choice:
    """As many distinct candidates as each receiver asks for, by their probability."""
    uniforms = pull.uniforms("draw", log_probabilities.shape[1])
    chosen = importance.gumbel_top_n(log_probabilities, pull.num_items, uniforms)
    return Choice(chosen, log_probabilities, stages, scores)


def choose_explicit(pull: Pull) -> Choice:
    """Explicit pull, Alg. 2: share of candidates in each joint cluster, times the softmax of expected losses."""
    candidates, reserve, positives = pull.candidates.embeddings, pull.reserve.embeddings, pull.reserve.positives
    assert reserve is not None
    assert positives is not None
    config, num_candidates = pull.config, candidates.shape[1]
    together = torch.cat([candidates, reserve], dim=1)
    seeds = pull.uniforms("clusters", config.num_clusters).to(together.dtype)
    clusters = clustering.kmeans(together, config.num_clusters, seeds).assignment
    member = importance.membership(clusters, config.num_clusters)
    candidate_counts, reserve_counts = member[:, :num_candidates].sum(1), member[:, num_candidates:].sum(1)
    macro = importance.macro_explicit(importance.macro_ratio(candidate_counts, reserve_counts))
    losses = pull.usefulness(reserve, positives, candidates)
    scaled = importance.scale_by_spread(losses) if config.temperature_scale == "spread" else losses
    micro = importance.micro_explicit(
        scaled, member[:, :num_candidates], temperature=pull.temperature, softmax=config.softmax
    )
    assignment = clusters[:, :num_candidates]
    stages = Stages(assignment, macro.gather(-1, assignment), micro)
    return draw(importance.joint(macro, micro, assignment), pull, stages, loss=losses)


def choose_implicit(pull: Pull) -> Choice:
    """Implicit pull, Alg. 3: cluster scores scaled by overlap, times the scores inside the cluster."""
    assert pull.reserve.embeddings is not None
    config, clusters = pull.config, pull.candidates.clusters
    centroids, occupied, assignment = clusters.centroids.double(), clusters.counts > 0, clusters.assignment
    member = importance.membership(assignment, config.num_clusters)
    candidates, reserve = pull.candidates.embeddings.double(), pull.reserve.embeddings.double()
    own = centroids.gather(1, assignment.unsqueeze(-1).expand_as(candidates))
    score = importance.embedding_score(
        clustering.squared_distances(candidates, reserve),
        (candidates - own).square().sum(-1),
        member,
        form=config.score,
    )
    macro = importance.macro_implicit(importance.cluster_score(score, member))
    overlap = importance.overlap(centroids, occupied, *_reserve_centroids(reserve, pull))
    factor = importance.overlap_density(overlap, mean=config.overlap_mean, std=config.overlap_std)
    macro = importance.macro_with_overlap(macro, factor, occupied)
    micro = importance.micro_implicit(score, member)
    stages = Stages(assignment, macro.gather(-1, assignment), micro)
    return draw(importance.joint(macro, micro, assignment), pull, stages, score=score)


def choose_cfcl(pull: Pull) -> Choice:
    """CF-CL's choice in the mode of the run."""
    return choose_implicit(pull) if pull.config.mode == "implicit" else choose_explicit(pull)


def choose_uniform(pull: Pull) -> Choice:
    """Every candidate is as likely as any other."""
    size = pull.candidates.embeddings.shape[:2]
    law = torch.full(size, -math.log(size[1]), dtype=torch.float64, device=pull.candidates.embeddings.device)
    return draw(law, pull)


def choose_kmeans(pull: Pull) -> Choice:
    """The candidates nearest to the centroids of n clusters of their embeddings."""
    points = pull.candidates.embeddings
    law = torch.full(points.shape[:2], -math.inf, dtype=torch.float64, device=points.device)
    chosen = [torch.zeros(0, dtype=torch.int64, device=law.device)] * len(pull.links)
    for size in set(pull.num_items) - {0}:
        rows = [row for row, wanted in enumerate(pull.num_items) if wanted == size]
        for row, nearest in zip(rows, _representatives(pull, rows, min(size, law.shape[1])), strict=True):
            chosen[row] = nearest[nearest >= 0]
            law[row, chosen[row]] = -math.log(len(chosen[row]))
    return Choice(tuple(chosen), law)


def choose_novel(pull: Pull) -> Choice:
    """Anything of the kinds that the receiver has not shown, and hardly anything else.

    Distances are those of pixels where datapoints travel, so that no model has to know yet what differs, and else those
    of activations or embeddings. No item goes twice over a link whose receiver keeps what it gets.
    """
    candidates, reserve = _rows(pull)
    foreign = clustering.squared_distances(candidates, reserve).amin(dim=2)
    # Were the kinds the same, a reserve point would be as near as the neighbour of this rank.
    rank = max(1, round(candidates.shape[1] / reserve.shape[1]))
    common = importance.neighbour_distance(clustering.squared_distances(candidates, candidates), rank)
    novelty = importance.foreign_share(foreign.double(), common.double(), sharpness=pull.config.novelty)
    return draw(_unsent(novelty, pull), pull, novelty=novelty)


def choose_cover(pull: Pull) -> Choice:
    """Kinds that the receiver's reserve does not cover, and anything of them.

    Every reserve point covers a ball. How far a candidate lies outside all of them is blurred by its like: its nearest
    candidates decide together, so that neither a new item near something known nor an odd item of a known kind is
    judged alone. No item goes twice over a link whose receiver keeps what it gets.
    """
    candidates, reserve = _rows(pull)
    assert pull.reserve.numbers is not None
    outside, newness = cover_scores(candidates, reserve, pull.reserve.numbers, pull.config)
    return draw(_unsent(newness, pull), pull, outside=outside, newness=newness)


def cover_scores(
    candidates: Float[Tensor, "*links candidates dim"],
    reserve: Float[Tensor, "*links reserve dim"],
    radii: Float[Tensor, "*links reserve"],
    config: ExchangeConfig,
) -> tuple[Float[Tensor, "*links candidates"], Float[Tensor, "*links candidates"]]:
    """How far each candidate lies outside a reserve's balls, and the logarithm of the probability that it is new."""
    outside = coverage.outside(clustering.squared_distances(candidates, reserve).double(), radii.double())
    newness = coverage.newness(
        outside,
        clustering.squared_distances(candidates, candidates),
        neighbours=config.cover_neighbours,
        edge=config.cover_edge,
        sharpness=config.cover_sharpness,
    )
    return outside, newness


def choose_oracle(pull: Pull) -> Choice:
    """Uniform among the candidates whose label the receiver lacks; nothing if it lacks none."""
    lacked = pull.candidates.lacked
    assert lacked is not None
    law = torch.zeros(lacked.shape, dtype=torch.float64, device=lacked.device)
    return draw(_without(law, ~lacked), pull)


POLICIES: dict[str, Policy] = {
    "cfcl": Policy(offer=push_reserve, choose=choose_cfcl),
    "uniform": Policy(offer=None, choose=choose_uniform, needs=frozenset()),
    "kmeans": Policy(offer=None, choose=choose_kmeans),
    "bulk": Policy(offer=push_reserve, choose=choose_cfcl, when="start"),
    "novel": Policy(offer=push_reserve, choose=choose_novel, needs=frozenset({"pixels", "sent"}), newness="novelty"),
    "cover": Policy(
        offer=push_reserve,
        choose=choose_cover,
        needs=frozenset({"pixels", "sent"}),
        measure=coverage.radii,
        newness="newness",
    ),
    "fedavg": Policy(offer=None, choose=None),
    "centralised": Policy(offer=None, choose=None),
    "oracle": Policy(offer=None, choose=choose_oracle, needs=frozenset({"labels"})),
}

BUILT_IN = frozenset(POLICIES)
ENTRY_POINTS = "cfcl.policies"
"""The group under which another package names its policies."""


def register(name: str, policy: Policy) -> None:
    """Make `policy` available as `exchange.method = name`, in this process."""
    if name in POLICIES:
        raise CfclError(f"policy {name!r} exists already: choose another name")
    POLICIES[name] = policy


def find(name: str) -> Policy:
    """The policy called `name`: one of ours, one that was registered, or one that an installed package brings."""
    if name in POLICIES:
        return POLICIES[name]
    for entry in entry_points(group=ENTRY_POINTS, name=name):
        policy = entry.load()
        if not isinstance(policy, Policy):
            raise CfclError(
                f"the entry point {entry.value!r} for policy {name!r} is not a cfcl Policy: fix its package"
            )
        return policy
    known = sorted({*POLICIES, *(entry.name for entry in entry_points(group=ENTRY_POINTS))})
    raise CfclError(f"exchange.method={name!r} is not a known policy: choose one of {', '.join(known)}, or register it")


def is_portable(name: str) -> bool:
    """Whether every process of this environment knows the policy, not only this one."""
    return name in BUILT_IN or bool(entry_points(group=ENTRY_POINTS, name=name))


def _uniforms(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(shape, dtype=torch.float64, generator=generator)


def _rows(pull: Pull) -> tuple[Tensor, Tensor]:
    """Candidates and reserves where distances are measured: as they travel, or as embeddings."""
    in_pixels = pull.candidates.points is not None
    candidates = pull.candidates.points if in_pixels else pull.candidates.embeddings
    reserve = pull.reserve.points if in_pixels else pull.reserve.embeddings
    assert candidates is not None
    assert reserve is not None
    return candidates, reserve


def _unsent(log_weights: Tensor, pull: Pull) -> Tensor:
    """The law of these weights over what the receiver has not had yet."""
    law, sent = importance.log_normalise(log_weights), pull.candidates.sent
    return law if sent is None else _without(law, sent)


def _without(law: Tensor, excluded: Tensor) -> Tensor:
    """The law over the candidates that are not excluded; where all are, nothing has a chance."""
    found = importance.log_normalise(law.masked_fill(excluded, -math.inf))
    return found.masked_fill(excluded, -math.inf)


def _reserve_centroids(reserve: Tensor, pull: Pull) -> tuple[Tensor, Tensor]:
    size = pull.config.num_reserve_clusters
    if size is None:
        return reserve, torch.ones(reserve.shape[:2], dtype=torch.bool, device=reserve.device)
    found = clustering.kmeans(reserve, size, pull.uniforms("reserve-clusters", size))
    return found.centroids, found.counts > 0


def _representatives(pull: Pull, rows: list[int], size: int) -> Int[Tensor, "rows size"]:
    points = pull.candidates.embeddings[rows]
    seeds = pull.transmitter_uniforms("representatives", size)[rows].to(points.dtype)
    return clustering.nearest_points(points, clustering.kmeans(points, size, seeds))
