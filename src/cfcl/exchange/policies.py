"""Who sends what: a policy is a pair of functions, one for each end of a link. Baselines are policies too.

`offer` is the receiver's side: which of its points stand for its data. `choose` is the transmitter's side: which of
its candidates it sends. Both are pure; a policy with no `offer` pushes nothing, one with no `choose` never exchanges.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cfcl import rng
from cfcl.config import ExchangeConfig
from cfcl.core import clustering, importance
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
class Pull:
    """What is known where items are chosen, for several links at once; links of one transmitter share its candidates.

    Every link is a problem of its own: what a policy chooses for it may not depend on the links beside it.
    """

    seed: int
    step: int
    links: tuple[tuple[int, int], ...]
    """Transmitter and receiver."""
    candidates: Float[Tensor, "links candidates dim"]
    """Embeddings of the transmitter's candidates, Eq. (14)."""
    clusters: clustering.Clusters
    """The candidates' own clusters."""
    reserve: Float[Tensor, "links reserve dim"] | None
    """Embeddings of the receiver's reserve, Eq. (13); None if the policy pushes none or looks at pixels."""
    positives: Float[Tensor, "links reserve dim"] | None
    """Embeddings of the augmented reserve points (mode `explicit`)."""
    num_items: tuple[int, ...]
    """How many items each receiver asks for."""
    temperature: float
    margin: float
    config: ExchangeConfig
    points: Float[Tensor, "links candidates pixels"] | None = None
    """The candidates themselves, for policies that look at pixels (mode `explicit`)."""
    reserve_points: Float[Tensor, "links reserve pixels"] | None = None
    """The reserve itself, for the same."""
    sent: Bool[Tensor, "links candidates"] | None = None
    """Which candidates the receiver has had over this link and keeps, for policies that remember."""
    lacked: Bool[Tensor, "links candidates"] | None = None
    """Whether the receiver lacks the candidate's label: what no device knows, for policies that cheat."""

    def uniforms(self, purpose: str, size: int) -> Float[Tensor, "links size"]:
        """Random numbers of each link, where the candidates are."""
        return self._drawn([rng.stream(self.seed, purpose, j, i, self.step) for j, i in self.links], size)

    def transmitter_uniforms(self, purpose: str, size: int) -> Float[Tensor, "links size"]:
        """Random numbers of each transmitter, the same for all its links."""
        return self._drawn([rng.stream(self.seed, purpose, j, self.step) for j, _ in self.links], size)

    def _drawn(self, streams: list[torch.Generator], size: int) -> Tensor:
        return torch.stack([_uniforms(stream, size) for stream in streams]).to(self.candidates.device)


@dataclass(frozen=True)
class Choice:
    """What a transmitter sends to each receiver."""

    chosen: tuple[Int[Tensor, " _"], ...]
    """Positions among the candidates, one tensor a link."""
    log_probabilities: Float[Tensor, "links candidates"]
    """The law they were drawn from."""


Offer = Callable[[Float[Tensor, "points pixels"], int, ExchangeConfig, Randomness], Tensor]
Choose = Callable[[Pull], Choice]


@dataclass(frozen=True)
class Policy:
    """A way of exchanging."""

    offer: Offer | None
    choose: Choose | None
    once: bool = False
    """Everything moves at t = 0, chosen from all local points, and is kept."""
    scores: bool = True
    """Whether `choose` looks at embeddings; if not, none are computed for it."""
    pixels: bool = False
    """Whether `choose` looks at datapoints themselves in mode `explicit`, and at no embedding then."""
    remembers: bool = False
    """Whether `choose` wants to know what the link has carried, where receivers keep it."""
    cheats: bool = False
    """Whether `choose` looks at labels: a yardstick, possible in simulation only, and no competitor."""


def push_reserve(
    points: Float[Tensor, "points pixels"], size: int, config: ExchangeConfig, draws: Randomness
) -> Tensor:
    """Positions of the reserve points, Eq. (6), by K-means on pixels or at random."""
    if config.reserve == "random":
        return importance.uniform_sample(draws.uniforms("reserve", len(points)).to(points.device), size)
    return importance.reserve_by_kmeans(points, draws.uniforms("reserve", size).to(points.device, points.dtype))


def draw(log_probabilities: Float[Tensor, "links candidates"], pull: Pull) -> Choice:
    """As many distinct candidates as each receiver asks for, by their probability."""
    uniforms = pull.uniforms("draw", log_probabilities.shape[1])
    return Choice(importance.gumbel_top_n(log_probabilities, pull.num_items, uniforms), log_probabilities)


def choose_explicit(pull: Pull) -> Choice:
    """Explicit pull, Alg. 2: share of candidates in each joint cluster, times the softmax of expected losses."""
    assert pull.reserve is not None
    assert pull.positives is not None
    config, num_candidates = pull.config, pull.candidates.shape[1]
    together = torch.cat([pull.candidates, pull.reserve], dim=1)
    seeds = pull.uniforms("clusters", config.num_clusters).to(together.dtype)
    assignment = clustering.kmeans(together, config.num_clusters, seeds).assignment
    member = importance.membership(assignment, config.num_clusters)
    candidate_counts, reserve_counts = member[:, :num_candidates].sum(1), member[:, num_candidates:].sum(1)
    macro = importance.macro_explicit(importance.macro_ratio(candidate_counts, reserve_counts))
    losses = importance.expected_loss(pull.reserve, pull.positives, pull.candidates, margin=pull.margin)
    if config.temperature_scale == "spread":
        losses = importance.scale_by_spread(losses)
    micro = importance.micro_explicit(
        losses, member[:, :num_candidates], temperature=pull.temperature, softmax=config.softmax
    )
    return draw(importance.joint(macro, micro, assignment[:, :num_candidates]), pull)


def choose_implicit(pull: Pull) -> Choice:
    """Implicit pull, Alg. 3: cluster scores scaled by overlap, times the scores inside the cluster."""
    assert pull.reserve is not None
    config, assignment = pull.config, pull.clusters.assignment
    centroids, occupied = pull.clusters.centroids.double(), pull.clusters.counts > 0
    member = importance.membership(assignment, config.num_clusters)
    candidates, reserve = pull.candidates.double(), pull.reserve.double()
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
    return draw(importance.joint(macro, importance.micro_implicit(score, member), assignment), pull)


def choose_cfcl(pull: Pull) -> Choice:
    """CF-CL's choice in the mode of the run."""
    return choose_explicit(pull) if pull.config.mode == "explicit" else choose_implicit(pull)


def choose_uniform(pull: Pull) -> Choice:
    """Every candidate is as likely as any other."""
    size = pull.candidates.shape[:2]
    law = torch.full(size, -math.log(size[1]), dtype=torch.float64, device=pull.candidates.device)
    return draw(law, pull)


def choose_kmeans(pull: Pull) -> Choice:
    """The candidates nearest to the centroids of n clusters of their embeddings."""
    law = torch.full(pull.candidates.shape[:2], -math.inf, dtype=torch.float64, device=pull.candidates.device)
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
    of embeddings. No item goes twice over a link whose receiver keeps what it gets.
    """
    candidates, reserve = (pull.candidates, pull.reserve) if pull.points is None else (pull.points, pull.reserve_points)
    assert reserve is not None
    foreign = clustering.squared_distances(candidates, reserve).amin(dim=2)
    # Were the kinds the same, a reserve point would be as near as the neighbour of this rank.
    rank = max(1, round(candidates.shape[1] / reserve.shape[1]))
    common = importance.neighbour_distance(clustering.squared_distances(candidates, candidates), rank)
    weights = importance.foreign_share(foreign.double(), common.double(), sharpness=pull.config.novelty)
    if pull.sent is not None:
        weights = weights.masked_fill(pull.sent, -math.inf)
    return draw(importance.log_normalise(weights), pull)


def choose_oracle(pull: Pull) -> Choice:
    """Uniform among the candidates whose label the receiver lacks; nothing if it lacks none."""
    assert pull.lacked is not None
    law = torch.zeros(pull.lacked.shape, dtype=torch.float64, device=pull.candidates.device)
    some = pull.lacked.any(dim=1)
    law[some] = importance.log_normalise(law[some].masked_fill(~pull.lacked[some], -math.inf))
    law[~some] = -math.inf
    return draw(law, pull)


POLICIES: dict[str, Policy] = {
    "cfcl": Policy(offer=push_reserve, choose=choose_cfcl),
    "uniform": Policy(offer=None, choose=choose_uniform, scores=False),
    "kmeans": Policy(offer=None, choose=choose_kmeans),
    "bulk": Policy(offer=push_reserve, choose=choose_cfcl, once=True),
    "novel": Policy(offer=push_reserve, choose=choose_novel, pixels=True, remembers=True),
    "fedavg": Policy(offer=None, choose=None),
    "centralised": Policy(offer=None, choose=None),
    "oracle": Policy(offer=None, choose=choose_oracle, scores=False, cheats=True),
}

BUILT_IN = frozenset(POLICIES)
"""Policies that every process knows."""


def register(name: str, policy: Policy) -> None:
    """Make `policy` available as `exchange.method = name`."""
    if name in POLICIES:
        raise CfclError(f"policy {name!r} exists already: choose another name")
    POLICIES[name] = policy


def find(name: str) -> Policy:
    """The policy called `name`."""
    if name not in POLICIES:
        raise CfclError(
            f"exchange.method={name!r} is not a known policy: choose one of {', '.join(sorted(POLICIES))}, "
            "or register it"
        )
    return POLICIES[name]


def _uniforms(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(shape, dtype=torch.float64, generator=generator)


def _reserve_centroids(reserve: Tensor, pull: Pull) -> tuple[Tensor, Tensor]:
    size = pull.config.num_reserve_clusters
    if size is None:
        return reserve, torch.ones(reserve.shape[:2], dtype=torch.bool, device=reserve.device)
    found = clustering.kmeans(reserve, size, pull.uniforms("reserve-clusters", size))
    return found.centroids, found.counts > 0


def _representatives(pull: Pull, rows: list[int], size: int) -> Int[Tensor, "rows size"]:
    points = pull.candidates[rows]
    seeds = pull.transmitter_uniforms("representatives", size)[rows].to(points.dtype)
    return clustering.nearest_points(points, clustering.kmeans(points, size, seeds))
