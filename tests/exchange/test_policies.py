"""One suite for every policy in both modes, then what is special to each."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cfcl import rng
from cfcl.config import ExchangeConfig
from cfcl.core import coverage, importance
from cfcl.core.clustering import Clusters, kmeans
from cfcl.errors import CfclError
from cfcl.exchange import policies
from cfcl.exchange.policies import Candidates, Choice, Policy, Pull, Randomness, Shown

NAMES = sorted(name for name, policy in policies.POLICIES.items() if policy.choose is not None)
MODES = ["explicit", "implicit"]
DEGENERATE = ["random", "identical", "two places", "huge", "tiny", "reserve equals candidates"]


def make_pull(
    config: ExchangeConfig,
    *,
    num_items: tuple[int, ...] = (3, 5, 0),
    shape: str = "random",
    receivers: tuple[int, ...] | None = None,
    seed: int = 0,
) -> Pull:
    generator = torch.Generator().manual_seed(seed)
    links, dim = len(num_items), 4
    candidates = torch.randn(config.num_candidates, dim, generator=generator)
    reserve = torch.randn(links, config.num_reserve, dim, generator=generator)
    match shape:
        case "identical":
            candidates, reserve = torch.ones_like(candidates), torch.ones_like(reserve)
        case "two places":
            candidates = (candidates[:, :1] > 0).float().expand(-1, dim).contiguous()
        case "huge" | "tiny":
            scale = 1e15 if shape == "huge" else 1e-15
            candidates, reserve = candidates * scale, reserve * scale
        case "reserve equals candidates":
            reserve = candidates[: config.num_reserve].expand(links, -1, -1).contiguous()
    seeds = torch.rand(1, config.num_clusters, generator=generator)
    others = tuple(range(1, links + 1)) if receivers is None else receivers
    return Pull(
        seed=5,
        step=25,
        links=tuple((0, receiver) for receiver in others),
        num_items=num_items,
        candidates=Candidates(
            embeddings=candidates.expand(links, -1, -1),
            clusters=kmeans(candidates.expand(links, -1, -1), config.num_clusters, seeds.expand(links, -1)),
            lacked=torch.arange(config.num_candidates).expand(links, -1) % 3 == 0,
        ),
        reserve=Shown(
            embeddings=reserve,
            positives=reserve + 0.1,
            numbers=torch.stack([coverage.radii(part + 0.01, part) for part in reserve]),
        ),
        temperature=7.0,
        usefulness=partial(importance.expected_loss, margin=0.5),
        config=config,
    )


def changed(pull: Pull, *, candidates: dict[str, Any] | None = None, reserve: dict[str, Any] | None = None) -> Pull:
    """The same with other candidates, or another reserve."""
    return replace(
        pull, candidates=replace(pull.candidates, **candidates or {}), reserve=replace(pull.reserve, **reserve or {})
    )


def parts(group: Candidates | Shown) -> dict[str, Any]:
    """The tensors of a group by name; those of clusters in one tuple."""
    found = {name: tuple(vars(value).values()) if name == "clusters" else value for name, value in vars(group).items()}
    return {name: value for name, value in found.items() if value is not None}


def regrouped(kind: type[Any], found: dict[str, Any]) -> Any:
    return kind(**{name: Clusters(*value) if name == "clusters" else value for name, value in found.items()})


def choose(name: str, pull: Pull) -> Choice:
    policy = policies.find(name)
    assert policy.choose is not None
    return policy.choose(pull)


def small(mode: str, **options: object) -> ExchangeConfig:
    fields = {"mode": mode, "num_candidates": 12, "num_clusters": 4, "num_reserve": 5, **options}
    return ExchangeConfig.model_validate(fields)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
@given(
    shape=st.sampled_from(DEGENERATE),
    num_clusters=st.sampled_from([1, 2, 12]),
    num_items=st.tuples(st.integers(0, 12), st.integers(0, 40)),
    seed=st.integers(0, 3),
)
@settings(max_examples=40, deadline=None)
def test_every_choice_is_lawful_on_any_input(
    name: str, mode: str, shape: str, num_clusters: int, num_items: tuple[int, int], seed: int
) -> None:
    pull = make_pull(small(mode, num_clusters=num_clusters), num_items=num_items, shape=shape, seed=seed)

    selection = choose(name, pull)

    law = selection.log_probabilities.exp()
    assert not bool(law.isnan().any())
    for row, chosen, wanted in zip(law, selection.chosen, num_items, strict=True):
        if wanted > 0:
            assert float(row.sum()) == pytest.approx(1.0)
        assert len(set(chosen.tolist())) == len(chosen) == min(wanted, int((row > 0).sum()))
        assert bool((row[chosen] > 0).all())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_a_link_does_not_depend_on_the_others_beside_it(name: str, mode: str) -> None:
    config = small(mode)
    together = make_pull(config, num_items=(3, 5, 4))

    def second_row(group: Candidates | Shown) -> Any:
        found = {
            name: tuple(part[1:2] for part in value) if isinstance(value, tuple) else value[1:2]
            for name, value in parts(group).items()
        }
        return regrouped(type(group), found)

    alone = replace(
        together,
        links=((0, 2),),
        num_items=(5,),
        candidates=second_row(together.candidates),
        reserve=second_row(together.reserve),
    )

    first, second = choose(name, together), choose(name, alone)

    assert first.chosen[1].tolist() == second.chosen[0].tolist()
    assert torch.equal(first.log_probabilities[1], second.log_probabilities[0])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", sorted(set(NAMES) - {"kmeans"}))
def test_links_draw_their_own_numbers(name: str, mode: str) -> None:
    pull = make_pull(small(mode), num_items=(6, 6), shape="reserve equals candidates")
    first, second = choose(name, pull).chosen
    assert first.tolist() != second.tolist()


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("explicit", {"softmax": "cluster"}),
    ("explicit", {"softmax": "global"}),
    ("explicit", {"temperature_scale": "spread"}),
    *[("implicit", {"score": score}) for score in ("literal_radius", "literal_point", "text", "draft")],
    ("implicit", {"num_reserve_clusters": 2}),
    ("implicit", {"overlap_mean": 0.0, "overlap_std": 0.1}),
]


def test_every_reading_of_the_scores_gives_a_law_of_its_own() -> None:
    for mode in MODES:
        laws = [
            choose("cfcl", make_pull(small(mode, **options))).log_probabilities
            for kind, options in OPTIONS
            if kind == mode
        ]
        same = [(a, b) for a in range(len(laws)) for b in range(a) if torch.allclose(laws[a], laws[b])]
        assert same == []


@pytest.mark.equation("Alg. 2")
def test_explicit_pull_by_hand() -> None:
    # Candidates: three at 0 and one at 10; reserve: one at 0 and none near 10; positives equal their anchors.
    config = small("explicit", num_candidates=4, num_clusters=2, num_reserve=1, num_pulled=1)
    candidates = torch.tensor([[[0.0], [0.0], [0.0], [10.0]]])
    pull = changed(
        make_pull(config, num_items=(1,)),
        candidates={"embeddings": candidates},
        reserve={"embeddings": torch.zeros(1, 1, 1), "positives": torch.zeros(1, 1, 1)},
    )

    law = policies.choose_explicit(pull).log_probabilities.exp()

    # X: 3/(3+1) = 0.75 and 1/1 = 1; macro 3/7 and 4/7; all losses in the first cluster are 0.5: 1/7 each
    torch.testing.assert_close(law, torch.tensor([[1 / 7, 1 / 7, 1 / 7, 4 / 7]], dtype=torch.float64))


@pytest.mark.equation("Alg. 3")
def test_implicit_pull_by_hand() -> None:
    # Clusters {0, 2} around 1 and {10, 14} around 12; one reserve embedding at 0; flat overlap factor.
    config = small("implicit", num_candidates=4, num_clusters=2, num_reserve=1, num_pulled=1, overlap_std=1e6)
    candidates = torch.tensor([[[0.0], [2.0], [10.0], [14.0]]])
    pull = changed(
        make_pull(config, num_items=(1,)),
        candidates={"embeddings": candidates, "clusters": kmeans(candidates, 2, torch.tensor([[0.0, 0.5]]))},
        reserve={"embeddings": torch.zeros(1, 1, 1), "positives": None},
    )

    law = policies.choose_implicit(pull).log_probabilities.exp()

    # s: radius² 1 times 0, 4; radius² 4 times 100, 196 -> 0, 4, 400, 784. S: 2 and 592; macro 2/594 and 592/594.
    # micro: 0, 1 and 400/1184, 784/1184
    expected = [0.0, 2 / 594, 592 / 594 * 400 / 1184, 592 / 594 * 784 / 1184]
    torch.testing.assert_close(law, torch.tensor([expected], dtype=torch.float64), atol=1e-9, rtol=1e-6)


@pytest.mark.equation("19")
def test_empty_reserve_clusters_do_not_count() -> None:
    # reserve points at two places only: of three clusters one stays empty, and its centroid would count a place twice
    places = torch.tensor([[0.0, 0.0, 0.0, 0.0], [3.0, 0.0, 0.0, 0.0]])[[0, 0, 0, 1, 1]]

    def law(num_clusters: int) -> Tensor:
        pull = make_pull(small("implicit", num_reserve_clusters=num_clusters), num_items=(3, 3))
        return choose("cfcl", changed(pull, reserve={"embeddings": places.expand(2, -1, -1)})).log_probabilities.exp()

    torch.testing.assert_close(law(3), law(2))
    assert not torch.allclose(law(2), law(1))


def test_uniform_is_uniform() -> None:
    law = choose("uniform", make_pull(small("explicit"))).log_probabilities
    torch.testing.assert_close(law, torch.full((3, 12), -math.log(12.0), dtype=torch.float64))


def test_the_oracle_sends_labels_that_the_receiver_lacks_and_nothing_else() -> None:
    lacked = torch.zeros(3, 12, dtype=torch.bool)
    lacked[0, [2, 7]] = True
    lacked[1] = True
    pull = changed(make_pull(small("explicit"), num_items=(5, 5, 5)), candidates={"lacked": lacked})
    first, second, third = choose("oracle", pull).chosen
    assert sorted(first.tolist()) == [2, 7]
    assert len(second) == 5
    assert third.tolist() == []


def test_kmeans_sends_one_item_of_each_group() -> None:
    config = small("explicit", num_candidates=6, num_clusters=2)
    candidates = torch.tensor([[[0.0], [0.4], [0.9], [10.0], [10.3], [10.9]]])
    pull = make_pull(config, num_items=(2,))
    pull = replace(changed(pull, candidates={"embeddings": candidates}), reserve=Shown())
    (chosen,) = choose("kmeans", pull).chosen
    # means 0.43 and 10.4: nearest are 0.4 and 10.3
    assert sorted(chosen.tolist()) == [1, 4]


@pytest.mark.equation("6")
def test_reserve_offer_by_kmeans_and_at_random() -> None:
    points = torch.rand(30, 6, generator=torch.Generator().manual_seed(0))
    draws = Randomness(seed=1, device=3, step=0)
    offers = [
        policies.push_reserve(points, 5, ExchangeConfig.model_validate({"reserve": kind}), draws).tolist()
        for kind in ("kmeans", "random")
    ]
    assert all(len(set(offer)) == 5 for offer in offers)
    assert sorted(offers[0]) != sorted(offers[1])


def test_a_policy_can_be_registered_once_and_unknown_ones_are_refused() -> None:
    def first(pull: Pull) -> Choice:
        rows = [torch.arange(n) for n in pull.num_items]
        return Choice(tuple(rows), torch.zeros(len(rows), pull.candidates.embeddings.shape[1], dtype=torch.float64))

    policies.register("first_ones", Policy(offer=None, choose=first))
    try:
        assert [items.tolist() for items in choose("first_ones", make_pull(small("explicit"))).chosen] == [
            [0, 1, 2],
            [0, 1, 2, 3, 4],
            [],
        ]
        with pytest.raises(CfclError, match="exists already"):
            policies.register("first_ones", Policy(offer=None, choose=first))
    finally:
        del policies.POLICIES["first_ones"]
    with pytest.raises(CfclError, match=r"'first_ones' is not a known policy: choose one of bulk, centralised, cfcl"):
        policies.find("first_ones")


def test_draws_depend_on_their_name_alone() -> None:
    def numbers(*receivers: int) -> Tensor:
        return make_pull(small("explicit"), num_items=(1,) * len(receivers), receivers=receivers).uniforms("draw", 3)

    both = numbers(4, 7)
    assert torch.equal(both[1], numbers(7)[0])
    assert not torch.equal(both[0], both[1])
    # seed 5, transmitter 0 to receiver 7, step 25
    named = torch.rand(3, dtype=torch.float64, generator=rng.stream(5, "draw", 0, 7, 25))
    assert torch.equal(both[1], named)
    shared = make_pull(small("explicit"), num_items=(1, 1)).transmitter_uniforms("draw", 3)
    assert torch.equal(shared[0], shared[1])
    assert torch.equal(shared[0], torch.rand(3, dtype=torch.float64, generator=rng.stream(5, "draw", 0, 25)))
    assert torch.equal(Randomness(0, 1, 2).uniforms("a", 3), Randomness(0, 1, 2).uniforms("a", 3))
    assert not torch.equal(Randomness(0, 1, 2).uniforms("a", 3), Randomness(0, 1, 3).uniforms("a", 3))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_links_of_several_transmitters_go_through_together(name: str, mode: str) -> None:
    config = small(mode)
    pulls = [replace(make_pull(config, seed=seed, num_items=(3, 4)), links=((seed, 8), (seed, 9))) for seed in range(3)]

    def joined(groups: Sequence[Candidates | Shown]) -> Any:
        found = {}
        for name, first in parts(groups[0]).items():
            values = [parts(group)[name] for group in groups]
            whole = tuple(map(torch.cat, zip(*values, strict=True))) if isinstance(first, tuple) else torch.cat(values)
            found[name] = whole
        return regrouped(type(groups[0]), found)

    together = replace(
        pulls[0],
        links=tuple(link for pull in pulls for link in pull.links),
        num_items=(3, 4) * 3,
        candidates=joined([pull.candidates for pull in pulls]),
        reserve=joined([pull.reserve for pull in pulls]),
    )

    selection, alone = choose(name, together), [choose(name, pull) for pull in pulls]

    assert torch.equal(selection.log_probabilities, torch.cat([part.log_probabilities for part in alone]))
    expected = [items.tolist() for part in alone for items in part.chosen]
    assert [items.tolist() for items in selection.chosen] == expected


def test_novel_sends_what_is_foreign_to_the_receiver_by_hand() -> None:
    config = small("explicit", num_candidates=4, num_clusters=2, num_pulled=2, num_reserve=1, novelty=1.0)
    pull = make_pull(config, num_items=(2, 2))
    # on a line; the receiver holds 0; four candidates to one reserve point, so the neighbour looked at is the farthest
    points = torch.tensor([[0.0], [1.0], [4.0], [5.0]]).expand(2, -1, -1)
    sent = torch.tensor([[False] * 4, [False, False, True, True]])
    pull = changed(pull, candidates={"points": points, "sent": sent}, reserve={"points": torch.zeros(2, 1, 1)})

    selection = choose("novel", pull)

    # squared: foreign 0, 1, 16, 25; farthest other 25, 16, 16, 25; ratios 0, 1/16, 1, 1
    # x / (x + 1.5): 0, 1/25, 2/5, 2/5, of 21/25 in all
    expected = torch.tensor([[0, 1, 10, 10], [0, 21, 0, 0]], dtype=torch.float64) / 21
    torch.testing.assert_close(selection.log_probabilities.exp(), expected)
    assert selection.chosen[1].tolist() == [1]  # the others were sent, or are held


def test_cover_sends_what_lies_outside_the_balls_with_its_like_by_hand() -> None:
    settings = {"num_pulled": 2, "num_reserve": 1, "cover_sharpness": 1.0, "cover_edge": 4.0, "cover_neighbours": 2}
    config = small("explicit", num_candidates=4, num_clusters=2, **settings)
    # on a line; the receiver's one ball is around 0, with radius 1
    points = torch.tensor([[1.0], [2.0], [8.0], [9.0]]).expand(2, -1, -1)
    sent = torch.tensor([[False] * 4, [False, False, True, True]])
    pull = changed(
        make_pull(config, num_items=(2, 2)),
        candidates={"points": points, "sent": sent},
        reserve={"points": torch.zeros(2, 1, 1), "numbers": torch.ones(2, 1)},
    )

    selection = choose("cover", pull)

    # squared distances 1, 4, 64, 81; geometric means of pairs 2, 2, 72, 72; x / (x + 4): 1/3, 1/3, 18/19, 18/19
    law = torch.tensor([19, 19, 54, 54], dtype=torch.float64) / 146
    expected = torch.stack([law, torch.tensor([0.5, 0.5, 0.0, 0.0], dtype=torch.float64)])
    torch.testing.assert_close(selection.log_probabilities.exp(), expected)
    assert sorted(selection.chosen[1].tolist()) == [0, 1]  # the others were sent
    torch.testing.assert_close(selection.scores["outside"][0].exp(), torch.tensor([1.0, 4, 64, 81]).double())


def test_novel_sends_nothing_where_all_was_sent() -> None:
    pull = make_pull(small("explicit"), num_items=(2, 2))
    sent = torch.tensor([[True] * 12, [True] * 11 + [False]])
    choice = choose("novel", changed(pull, candidates={"sent": sent}))
    assert [chosen.tolist() for chosen in choice.chosen] == [[], [11]]
    assert bool(torch.isneginf(choice.log_probabilities[0]).all())
    assert choice.log_probabilities[1].exp().tolist() == [0.0] * 11 + [1.0]


def test_the_sharper_the_surer() -> None:
    foreign, common = torch.tensor([[6.0, 1.5]], dtype=torch.float64), torch.tensor([[1.0, 2.0]], dtype=torch.float64)

    # ratios 6 and 0.75 are 4 times and half of 1.5; to the power of 2: 16 and 1/4
    share = importance.foreign_share(foreign, common, sharpness=2.0).exp()

    torch.testing.assert_close(share, torch.tensor([[16 / 17, 1 / 5]], dtype=torch.float64))
