"""The exercises' own room: reading their source, releasing it, running a test cell, checking work.

``source`` reads ``solutions/<slug>/exercise.py``, ``release`` makes the notebook that learners get,
``assignment`` says what is graded and ``submission`` matches a learner's notebook with it,
``testcell`` executes one test cell (here and in the grader alike), ``check`` tells a learner what
everything that grades makes of a notebook, which ``workbench`` runs.
"""
