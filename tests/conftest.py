"""Every test sees the package with its shapes checked, one thread, and a fixed seed."""

import random

import numpy as np
import pytest
import torch
from jaxtyping import install_import_hook

# before the first import of the package: jaxtyping annotations are checked on every call
install_import_hook("attn_course", "typecheck.typecheck")

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed() -> int:
    """The same random numbers for a test, whatever ran before it."""
    value = 20_170_612
    random.seed(value)
    np.random.seed(value)  # noqa: NPY002 - what older libraries draw from
    torch.manual_seed(value)
    return value


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """NumPy's generator for float64 inputs."""
    return np.random.default_rng(seed)
