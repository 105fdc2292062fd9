"""What a launcher allocates starts as NaN, so that an output that no program writes shows."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def nothing_is_left_unwritten() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
