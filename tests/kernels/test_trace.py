"""What the trace says is what the algorithm does: counted by hand."""

import os

import pytest
import torch

pytest.importorskip("triton", reason="no Triton here: kernels need Linux on x86-64")

from attn_course import kernels
from attn_course.kernels.trace import traced

pytestmark = pytest.mark.skipif(
    os.environ["TRITON_INTERPRET"] == "0", reason="compiled kernels leave no trace"
)


def test_a_copy_reads_and_writes_every_entry_once() -> None:
    with traced() as found:
        kernels.copy(torch.randn(37), block_size=16)
    assert [(x.kind, x.tensor, x.program[0], len(x.places), x.lanes) for x in found] == [
        ("load", "source", 0, 16, 16),
        ("store", "target", 0, 16, 16),
        ("load", "source", 1, 16, 16),
        ("store", "target", 1, 16, 16),
        ("load", "source", 2, 5, 16),
        ("store", "target", 2, 5, 16),
    ]
    assert found.nbytes == found.unique_nbytes == 2 * 37 * 4
    assert torch.equal(found.count("source", 37), torch.ones(37, dtype=torch.int64))
    assert (found.launches, found.programs) == (1, 3)


def test_softmax_moves_two_bytes_for_each_byte_of_its_input() -> None:
    scores = torch.randn(9, 33)
    with traced() as found:
        kernels.softmax(scores)
    assert found.only("load").nbytes == found.only("store").nbytes == scores.nbytes


def test_a_matrix_product_reads_a_factor_once_for_each_tile_across() -> None:
    a, b = torch.randn(70, 20), torch.randn(20, 40)  # tiles of 32 × 32: 3 down, 2 across
    with traced() as found:
        kernels.matmul(a, b)
    assert found.only("load", "a_ptr").nbytes == 2 * a.nbytes
    assert found.only("load", "b_ptr").nbytes == 3 * b.nbytes
    assert found.only("store").nbytes == 70 * 40 * 4
    assert torch.equal(found.count("a_ptr", 1400), torch.full((1400,), 2))


def test_flash_attention_skips_the_tiles_above_the_diagonal_and_outside_the_window() -> None:
    rows = torch.randn(1, 1, 128, 16)
    keys = {}
    for name, options in {
        "full": {},
        "causal": {"is_causal": True},
        "window": {"is_causal": True, "window_size": 32},
    }.items():
        with traced() as found:
            kernels.flash_attention(rows, rows, rows.clone(), **options)
        keys[name] = found.only("load", "value_ptr").nbytes // (32 * 16 * 4)
    # tiles of 32 × 32, 4 × 4 of them; with a window of 32 a row of tiles needs two, the first one
    assert keys == {"full": 16, "causal": 10, "window": 7}


def test_a_grouped_key_is_read_in_place() -> None:
    query, key, value = (
        torch.randn(1, 4, 1, 16), torch.randn(1, 2, 32, 16), torch.randn(1, 2, 32, 16)
    )  # fmt: skip
    with traced() as found:
        kernels.decode_attention(query, key, value, enable_gqa=True, num_splits=2)
    assert (found.only("load", "key_ptr").nbytes, found.launches) == (key.nbytes, 2)


def test_sectors_count_what_a_stride_costs() -> None:
    with traced() as straight:
        kernels.copy(torch.randn(64), block_size=64)
    assert straight.sectors == straight.nbytes == 512
    with traced() as strided:
        kernels.matmul(torch.randn(8, 32).mT, torch.randn(8, 8))
    turned = strided.only("load", "a_ptr")
    assert turned.sectors == turned.nbytes  # whole columns are read: nothing is wasted


def test_the_explorer_replays_what_the_interpreter_does() -> None:
    from attn_course.explorers import memory_trace
    from experiments import export_memory_trace

    assert export_memory_trace.export() == memory_trace.traces()


def test_the_interpreter_is_left_as_it_was() -> None:
    from triton.runtime import interpreter

    before = interpreter.GridExecutor.__call__
    with traced() as found:
        pass
    kernels.copy(torch.randn(3))
    assert not found
    assert interpreter.GridExecutor.__call__ is before
    assert "create_masked_load" not in vars(interpreter.interpreter_builder)
