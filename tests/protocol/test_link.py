"""What links count and show."""

from collections.abc import Sequence

import torch

from cfcl.config import CostConfig
from cfcl.exchange.cost import Ledger
from cfcl.exchange.messages import SERVER, EmbeddingItems, LocalModel, Message, ModelBlock, ModelSum
from cfcl.protocol.link import Counted, Direct, Expected, Traced

ITEMS = EmbeddingItems(0, 1, 3, torch.zeros(2, 4))
MODEL = LocalModel(0, SERVER, 3, torch.zeros(5), torch.zeros(0), 1.0)
SUM = ModelSum(SERVER, SERVER, 3, torch.zeros(6, dtype=torch.float64))
BLOCK = ModelBlock(SERVER, SERVER, 3, torch.zeros(2, 6))


class Elsewhere:
    """What is sent goes to another process; what arrives comes from one."""

    def carry(self, kind: type[Message], outbox: Sequence[Message], expected: Expected) -> list[Message]:
        return [EmbeddingItems(2, 3, 3, torch.zeros(1, 4))] if kind is EmbeddingItems else []


def test_items_are_charged_where_they_arrive_and_models_where_they_leave() -> None:
    ledger = Ledger(CostConfig(), 5)
    link = Counted(Elsewhere(), ledger)
    link.carry(EmbeddingItems, [ITEMS], {})
    assert dict(ledger.bytes) == {(2, 3, "embedding", "pull"): 16}
    link.carry(LocalModel, [MODEL], {})
    assert dict(ledger.bytes) == {(2, 3, "embedding", "pull"): 16, (0, SERVER, "model", "up"): 20}


def test_a_trace_sees_what_is_sent_but_for_the_servers_own_sums() -> None:
    seen: list[Message] = []
    link = Traced(Direct(), seen.extend)
    for message in (ITEMS, MODEL, SUM, BLOCK):
        assert link.carry(type(message), [message], {}) == [message]
    assert seen == [ITEMS, MODEL]
