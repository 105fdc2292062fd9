"""The formulas against loops over tiles, against counts of torch, and against numbers by hand."""

import pytest
from refusals import refused

from attn_course.analysis import attention_bytes, matmul_bytes, roofline_seconds


def test_times_by_hand() -> None:
    # 20 operations at 10 a second, 300 bytes at 100 a second
    assert roofline_seconds(20, 300, peak_flops=10, bandwidth=100) == (2.0, 3.0)


@pytest.mark.parametrize("sizes", [(7, 5, 3, 2, 3), (8, 8, 8, 4, 4), (1, 1, 1, 16, 16)])
def test_a_tiled_product_reads_what_its_tiles_read(sizes: tuple[int, ...]) -> None:
    M, N, K, block_m, block_n = sizes
    entries = 0
    for m in range(0, M, block_m):
        for n in range(0, N, block_n):
            rows, columns = min(block_m, M - m), min(block_n, N - n)
            entries += rows * K + K * columns + rows * columns
    found = matmul_bytes(M, N, K, itemsize=2, block_m=block_m, block_n=block_n)
    assert found == 2 * entries
    assert matmul_bytes(M, N, K, itemsize=2) == 2 * (M * K + K * N + M * N)


def test_attention_by_hand() -> None:
    # queries 2 × 3, keys 5 × 3, values 5 × 4, output 2 × 4; scores 2 × 5, four times
    assert attention_bytes(2, 5, 3, value_dim=4, itemsize=2, fused=True) == 2 * (6 + 15 + 20 + 8)
    unfused = attention_bytes(2, 5, 3, value_dim=4, itemsize=2, fused=False)
    assert unfused == 2 * (6 + 15 + 20 + 8 + 40)


@pytest.mark.parametrize(("call", "said"), [
    (lambda: matmul_bytes(0, 1, 1, itemsize=2), "M: expected at least 1, got 0"),
    (lambda: attention_bytes(1, 1, 0, itemsize=2, fused=True), "E: expected at least 1"),
    (lambda: roofline_seconds(1, 1, peak_flops=0, bandwidth=1), "peak_flops: expected a pos"),
    (lambda: roofline_seconds(-1, 1, peak_flops=1, bandwidth=1), "flops: expected at least 0"),
])  # fmt: skip
def test_bad_sizes_are_refused(call: object, said: str) -> None:
    assert callable(call)
    refused(said, call)
