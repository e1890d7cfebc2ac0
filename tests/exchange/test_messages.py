import dataclasses
import inspect

import pytest
import torch

from cfcl.exchange import messages


def test_implicit_messages_have_no_field_for_a_datapoint() -> None:
    base = {"source", "target", "step", "embeddings"}
    assert {field.name for field in dataclasses.fields(messages.EmbeddingItems)} == {*base, "new"}
    # one number per embedding: anything else is refused where it arrives
    assert {field.name for field in dataclasses.fields(messages.EmbeddingReserve)} == base | {"numbers"}


@pytest.mark.parametrize("kind", [messages.EmbeddingReserve, messages.EmbeddingItems])
def test_pixels_cannot_pass_for_embeddings(kind: type[messages.EmbeddingItems]) -> None:
    for pixels in (torch.zeros(2, 1, 8, 8, dtype=torch.uint8), torch.zeros(2, 1, 8, 8), torch.zeros(2, 64).byte()):
        with pytest.raises((AssertionError, TypeError)):
            kind(0, 1, 0, pixels)


KINDS = [kind for _, kind in inspect.getmembers(messages, inspect.isclass) if issubclass(kind, messages.Message)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_message_is_frozen(kind: type[messages.Message]) -> None:
    blank = object.__new__(kind)
    for field in dataclasses.fields(kind):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(blank, field.name, 7)
