"""Attention, from recurrence to kernels: small, typed, tested reference code for the course.

Subpackages are imported on demand: ``import attn_course`` alone loads none of them.
"""

__version__ = "0.1.0"
