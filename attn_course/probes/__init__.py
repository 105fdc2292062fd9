"""Tests that teach: probes for a learner's function, named properties, named misconceptions."""

from attn_course.probes.catalogue import (
    call,
    load_oracles,
    misconception,
    variant,
    witnesses,
)
from attn_course.probes.failure import ProbeFailure
from attn_course.probes.oracle import from_numpy
from attn_course.probes.probe import Probe
from attn_course.probes.sets import Probes, WrongAnswers

__all__ = [
    "Probe",
    "ProbeFailure",
    "Probes",
    "WrongAnswers",
    "call",
    "from_numpy",
    "load_oracles",
    "misconception",
    "variant",
    "witnesses",
]
