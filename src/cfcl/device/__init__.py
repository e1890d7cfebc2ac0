"""A device: a state machine over frozen messages. No I/O, no clock, no neighbour's state."""

from cfcl.device.batching import Batch, draw_batches
from cfcl.device.receiver import absorb, items_wanted, own_candidates, push, request, reserve_due, retain, store
from cfcl.device.state import Candidates, DeviceState, Lacks, Points, Setting, check, no_embeddings, no_items, start
from cfcl.device.training import StepReport, adopt, local_step, upload
from cfcl.device.transmitter import Answer, answer, as_payload, as_sent, cluster, prepare, remember

__all__ = [
    "Answer",
    "Batch",
    "Candidates",
    "DeviceState",
    "Lacks",
    "Points",
    "Setting",
    "StepReport",
    "absorb",
    "adopt",
    "answer",
    "as_payload",
    "as_sent",
    "check",
    "cluster",
    "draw_batches",
    "items_wanted",
    "local_step",
    "no_embeddings",
    "no_items",
    "own_candidates",
    "prepare",
    "push",
    "remember",
    "request",
    "reserve_due",
    "retain",
    "start",
    "store",
    "upload",
]
