"""Tests that teach: probes for a learner's function, named properties, named misconceptions."""

from attn_course.probes import properties, student
from attn_course.probes.catalogue import (
    Call,
    Misconception,
    call,
    load_catalogue,
    misconception,
    variant,
    witnesses,
)
from attn_course.probes.draw import Draw, seed_log
from attn_course.probes.failure import NotStarted, ProbeFailure
from attn_course.probes.oracle import from_numpy
from attn_course.probes.probe import Probe
from attn_course.probes.sets import Probes, WrongAnswers

__all__ = [
    "Call",
    "Draw",
    "Misconception",
    "NotStarted",
    "Probe",
    "ProbeFailure",
    "Probes",
    "WrongAnswers",
    "call",
    "from_numpy",
    "load_catalogue",
    "misconception",
    "properties",
    "seed_log",
    "student",
    "variant",
    "witnesses",
]
