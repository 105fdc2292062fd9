"""What runs inside the jail. Only ``wire`` is shared with the trusted side.

The files of this folder are mounted read-only into the jail and started there as scripts, so they
import each other by bare name; ``cells``, ``sealed`` and ``shortcuts`` of ``attn_course.exercises``
lie beside them, and of the rest only what a submission may use.
"""
