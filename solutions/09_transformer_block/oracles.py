"""What the tests of the set judge by."""

from attn_course import reference
from attn_course.probes import Probes, from_numpy

probes = Probes(
    "09_transformer_block",
    layer_norm=from_numpy(reference.layer_norm),
    rms_norm=from_numpy(reference.rms_norm),
    feed_forward=from_numpy(reference.feed_forward),
    swiglu=from_numpy(reference.swiglu),
)
