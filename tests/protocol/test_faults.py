"""The link on which things go wrong, and when they do."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch

from cfcl.errors import CfclError
from cfcl.exchange.messages import (
    SERVER,
    ActivationItems,
    DataItems,
    EmbeddingReserve,
    LocalModel,
    Message,
    ModelSum,
    PullRequest,
)
from cfcl.protocol import outages
from cfcl.protocol.codec import Malformed
from cfcl.protocol.faults import Faulty, flipped, sealed, spoilt, unsealed
from cfcl.protocol.link import Expected
from cfcl.protocol.outages import Outages
from cfcl.topology import line, ring
from tests.conftest import small


@dataclass
class Seen:
    """Carries everything, and remembers it."""

    sent: list[Message] = field(default_factory=list)

    def carry(self, kind: type[Message], outbox: Sequence[Message], expected: Expected) -> list[Message]:
        self.sent += outbox
        return list(outbox)


def load(*overrides: str) -> Outages:
    _, found = outages.load(small(*overrides), ring(4))
    assert found is not None
    return found


def carried(found: Outages, *messages: Message) -> tuple[list[Message], list[Message], Counter[str]]:
    """What arrives, what was sent, and what was counted."""
    inner, counts = Seen(), Counter[str]()
    arrived = Faulty(inner, found, counts).carry(type(messages[0]), messages, {})
    return arrived, inner.sent, counts


def requests(step: int) -> list[Message]:
    return [PullRequest(i, (i + 1) % 4, step, 2) for i in range(4)]


def model(step: int = 4) -> LocalModel:
    return LocalModel(1, SERVER, step, torch.ones(5), torch.zeros(0), 3.0)


def test_without_faults_there_is_no_such_link() -> None:
    graph, found = outages.load(small("faults.offline_trains=false", "faults.damaged=values"), ring(4))
    assert found is None
    assert graph == ring(4)


def test_a_schedule_by_hand(tmp_path: Path) -> None:
    (tmp_path / "away.csv").write_text("device,from,to\n1,3,6\n1,8,9\n2,5,\n")
    found = load(f"faults.offline_file={tmp_path / 'away.csv'}")
    assert [step for step in range(12) if found.offline(1, step)] == [3, 4, 5, 8]
    assert [step for step in range(12) if found.offline(2, step)] == list(range(5, 12))
    assert [found.online(step) for step in (0, 3, 5, 7)] == [1.0, 0.75, 0.5, 0.75]
    assert not found.offline(SERVER, 5)


def test_what_an_offline_device_sends_or_is_sent_never_leaves_and_is_not_charged(tmp_path: Path) -> None:
    (tmp_path / "away.csv").write_text("device,from,to\n1,3,6\n")
    found = load(f"faults.offline_file={tmp_path / 'away.csv'}")
    # 0 -> 1 and 1 -> 2 touch device 1
    arrived, sent, counts = carried(found, *requests(3))
    assert [message.source for message in arrived] == [message.source for message in sent] == [2, 3]
    assert counts == Counter(messages=4, unsent=2)
    assert len(carried(found, *requests(6))[0]) == 4


def test_a_link_may_be_down_in_one_direction_and_to_the_server(tmp_path: Path) -> None:
    (tmp_path / "down.csv").write_text("source,target,from,to\n0,1,3,4\n1,-1,4,5\n")
    found = load(f"faults.links_file={tmp_path / 'down.csv'}")
    assert [message.source for message in carried(found, *requests(3))[0]] == [1, 2, 3]
    back = PullRequest(1, 0, 3, 2)
    assert carried(found, back)[0] == [back]
    assert carried(found, model(4))[0] == []
    assert len(carried(found, model(5))[0]) == 1


def test_a_graph_holds_from_its_step_on(tmp_path: Path) -> None:
    (tmp_path / "two.txt").write_text("0 2\n")
    (tmp_path / "none.txt").write_text("# nobody\n")
    (tmp_path / "graphs.csv").write_text("from,edges_file\n5,two.txt\n9,none.txt\n")
    graph, found = outages.load(small(f"faults.graphs_file={tmp_path / 'graphs.csv'}"), line(4))
    assert found is not None
    assert graph.edges == ((0, 1), (0, 2), (1, 2), (2, 3))
    pairs = [(0, 1), (0, 2), (2, 0), (2, 3), (3, SERVER)]
    there = {step: [pair for pair in pairs if found.exists(pair, step)] for step in (4, 5, 9)}
    assert there == {4: [(0, 1), (2, 3), (3, SERVER)], 5: [(0, 2), (2, 0), (3, SERVER)], 9: [(3, SERVER)]}
    # A link that is not there is no fault, and so not counted.
    assert carried(found, PullRequest(0, 1, 5, 2), PullRequest(0, 2, 5, 2))[2] == Counter(messages=1)


def test_what_is_lost_or_late_was_sent() -> None:
    for faults, fate in (("faults.loss=1.0", "lost"), ("faults.straggling=1.0", "late")):
        arrived, sent, counts = carried(load(faults), model())
        assert (arrived, len(sent)) == ([], 1)
        assert counts == Counter({"messages": 1, fate: 1})
    assert len(carried(load("faults.straggling=1.0"), *requests(3))[0]) == 4  # only models straggle


def test_what_the_server_tells_itself_always_arrives() -> None:
    total = ModelSum(SERVER, SERVER, 4, torch.ones(3))
    arrived, _, counts = carried(load("faults.loss=1.0"), total)
    assert arrived == [total]
    assert counts == Counter()


def test_draws_depend_on_the_seed_and_the_message_alone() -> None:
    found = load("faults.loss=0.5", "faults.offline=0.3")
    sent = [message for step in range(40) for message in requests(step)]
    whole, _, _ = carried(found, *sent)
    assert carried(found, *reversed(sent))[0] == whole[::-1]
    assert [m for m in sent if carried(found, m)[0]] == whole
    other, _, _ = carried(load("faults.loss=0.5", "faults.offline=0.3", "seed=1"), *sent)
    assert other != whole
    # 160 messages that leave with 0.7 * 0.7 and arrive with a half: 39 of them, give or take 6
    assert 20 < len(whole) < 60


def test_who_is_offline_at_a_lower_rate_is_so_at_a_higher_one_and_for_a_whole_round() -> None:
    few, many = load("faults.offline=0.2"), load("faults.offline=0.6")
    places = [(device, step) for device in range(4) for step in range(400)]
    sets = [{place for place in places if found.offline(*place)} for found in (few, many)]
    assert sets[0] < sets[1]
    assert 0.1 < len(sets[0]) / 1600 < 0.3
    # aggregation.period=4: steps 0 to 3 are one round
    assert all(many.offline(device, step) == many.offline(device, step // 4 * 4) for device, step in places)
    single = load("faults.offline=0.6", "faults.offline_steps=1")
    assert any(single.offline(device, step) != single.offline(device, step // 4 * 4) for device, step in places)


def test_who_is_gone_never_comes_back() -> None:
    found = load("faults.gone=1.0")
    for device in range(4):
        states = [found.offline(device, step) for step in range(12)]
        assert states == sorted(states)
        assert states[-1]  # from a step below 12 on
    assert not any(load("faults.gone=0.0", "faults.loss=0.1").offline(device, 11) for device in range(4))


def test_flipped_bytes_are_found_and_whole_ones_pass() -> None:
    message = model()
    (back,) = unsealed(sealed(message))
    assert isinstance(back, LocalModel)
    assert torch.equal(back.params, message.params)
    for seed in range(30):
        with pytest.raises(Malformed, match="its checksum differs"):
            unsealed(flipped(sealed(message), torch.Generator().manual_seed(seed)))
    assert carried(load("faults.damage=1.0"), message)[2] == Counter(messages=1, damaged=1, refused=1)


def test_spoilt_values_are_not_numbers_or_other_pixels() -> None:
    stream = torch.Generator().manual_seed(0)
    damaged = spoilt(replace(model(), extras={"target": torch.ones(2)}), stream)
    assert isinstance(damaged, LocalModel)
    assert bool(damaged.params.isnan().any())
    assert bool(damaged.extras["target"].isnan().any())
    assert spoilt(PullRequest(0, 1, 3, 2), stream) == PullRequest(0, 1, 3, -2)
    items = DataItems(0, 1, 3, torch.zeros(2, 1, 8, 8, dtype=torch.uint8))
    pixels = spoilt(items, stream)
    assert isinstance(pixels, DataItems)
    # 12 of 128 places are drawn, some of them twice, and one in 256 stays black
    assert 0 < int((pixels.points > 0).sum()) <= 12
    assert int((items.points > 0).sum()) == 0  # the sender's own are as they were
    codes = ActivationItems(0, 1, 3, torch.zeros(2, 2, 3, dtype=torch.uint8), torch.zeros(2, 2))
    assert bool(spoilt(codes, stream).ranges.isnan().any())  # type: ignore[attr-defined]
    assert bool(spoilt(EmbeddingReserve(0, 1, 3, torch.ones(2, 4)), stream).embeddings.isnan().any())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("offline_file", "device,from\n1,2\n", r"line 1: header 'device,from' is not 'device,from,to': make it"),
        ("offline_file", "device,from,to\n4,2,3\n", r"line 2: '4' is no device of this run: name one that there is"),
        ("offline_file", "device,from,to\n1.5,2,3\n", r"line 2: '1.5,2,3' has a fraction: give whole numbers"),
        ("offline_file", "device,from,to\n1,2.5,3\n", r"line 2: '1,2.5,3' has a fraction: give whole numbers"),
        ("offline_file", "device,from,to\n1,3,3\n", r"line 2: from 3 to 3 is no time: give a step and a later one"),
        ("offline_file", "device,from,to\n1,-3,3\n", r"line 2: from -3 to 3 is no time"),
        ("offline_file", "device,from,to\n1,x,3\n", r"line 2: '1,x,3' is not 3 numbers"),
        ("links_file", "source,target,from,to\n0,2,1,2\n", r"line 2: '0,2' is no link of this run"),
        ("links_file", "source,target,from,to\n-1,-1,1,2\n", r"line 2: '-1,-1' is no link of this run"),
        ("graphs_file", "from,edges_file\n3\n", r"line 2: '3' is not a step and a file of pairs: fix the line"),
        ("graphs_file", "from,edges_file\n3,gone.txt\n", r"the file of pairs '.*gone.txt' cannot be read as text"),
        ("graphs_file", "from,edges_file\n-3,a.txt\n", r"line 2: from=-3 is not a step that is named once"),
        ("graphs_file", "from,edges_file\n0,a.txt\n0,a.txt\n", r"line 3: from=0 is not a step that is named once"),
    ],
)
def test_bad_files_are_refused_by_line(name: str, text: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("0 1\n")
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(CfclError, match=complaint):
        load(f"faults.{name}={tmp_path / 'table.csv'}")
