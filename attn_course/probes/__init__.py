"""Tests that teach: probes for a learner's function, named properties, named misconceptions.

From a test cell to a message, in the order in which to read the modules:

1. ``sets``: ``probes(name=name)`` makes a ``Probe`` with the oracle that ``oracles.py`` names.
2. ``probe``: its methods (``equals``, ``gradient``, ``holds`` ...) call the learner's function with
   ``outcome.run`` and compare with ``compare.difference``; ``properties`` has named claims.
3. A difference goes to ``Probe._fail``, which makes a ``Suspect`` (``evidence``) and asks twice:
   ``cause.find_cause``: a wrong helper (``helpers``), a mistake of the catalogue (``naming``), two
   of them or a general one (``explanation``, ``relations``), a right answer with one small change
   (``slips``), or what the failing call shows by itself (``facets``);
   ``symptom.shown``: what is wrong, on the smallest input that fails alike.
4. ``failure``: both are a ``Report``, which the ``ProbeFailure`` carries to the notebook, to
   ``check`` and to the grader.

``catalogue`` loads what a set declares, ``draw`` makes random inputs, ``oracle`` lets NumPy answer
for torch, ``student``, ``watch`` and ``bounds`` do what needs the learner's function itself, here
or in the jail, and ``memo`` keeps what functions of ours gave.
"""

from attn_course.probes import bounds as bounds  # for set-up cells, where the rest is closed
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
from attn_course.probes.varied import load_variant as load_variant  # for set-up cells of variants

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
