"""A device: a state machine over frozen messages. No I/O, no clock, no neighbour's state."""

from cfcl.device.state import Candidates, DeviceState, Setting, check, start
from cfcl.device.trading import Answer, absorb, answer, cluster, prepare, push, request, retain, store
from cfcl.device.training import StepReport, adopt, local_step, upload

__all__ = [
    "Answer",
    "Candidates",
    "DeviceState",
    "Setting",
    "StepReport",
    "absorb",
    "adopt",
    "answer",
    "check",
    "cluster",
    "local_step",
    "prepare",
    "push",
    "request",
    "retain",
    "start",
    "store",
    "upload",
]
