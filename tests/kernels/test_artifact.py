"""Kernels compile for an A100 and an H100 without either, into what they should be."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from processes import python
from refusals import refused

pytest.importorskip("triton", reason="no Triton here: kernels need Linux on x86-64")


def compiled(*words: str) -> list[dict[str, Any]]:
    """What the command prints; in a process of its own, as interpreted kernels do not compile."""
    command = ("-m", "attn_course.kernels.artifact", "--json", *words)
    return json.loads(python(*command, env={**os.environ, "TRITON_INTERPRET": "0"}).stdout)


# An A100's compiler is tried at night: what a program may take of its memory, what multiplies.
CHIPS = [pytest.param(80, 163, "mma", marks=pytest.mark.long), (90, 227, "wgmma")]


@pytest.mark.parametrize(("arch", "shared", "instruction"), CHIPS)
def test_flash_attention_uses_the_matrix_units_and_spills_nothing(arch, shared, instruction):
    (kernel,) = compiled("flash_forward causal d128", "--arch", str(arch))
    assert kernel["spilled"] == 0
    assert kernel["registers"] <= 255
    assert kernel["narrow_loads"] == 0
    assert kernel["wide_loads"] > 0
    assert kernel[instruction] > 0
    assert kernel["shared"] <= shared * 1024


def test_softmax_loads_sixteen_bytes_at_a_time() -> None:
    (kernel,) = compiled("softmax 4096", "--arch", "90")
    assert (kernel["spilled"], kernel["narrow_loads"]) == (0, 0)
    assert kernel["wide_loads"] > 0


@pytest.mark.parametrize("arch", [pytest.param("80", marks=pytest.mark.long), "90"])
def test_float32_spills_nothing_though_it_has_no_matrix_unit(arch: str) -> None:
    (kernel,) = compiled("flash_forward causal d64", "--dtype", "float32", "--arch", arch)
    assert (kernel["spilled"], kernel["mma"], kernel["wgmma"], kernel["rows"]) == (0, 0, 0, 0)


def test_on_a_hopper_only_tiles_too_short_for_its_matrix_instruction_do_without() -> None:
    (split,) = compiled("decode_split d128", "--arch", "90")[:1]
    assert (split["wgmma"], split["rows"]) == (0, 16)
    assert split["mma"] > 0
    (chunk,) = compiled("linear_chunk d64", "--arch", "90")
    assert (chunk["mma"], chunk["rows"]) == (0, 64)
    assert chunk["wgmma"] > 0


@pytest.mark.parametrize(
    ("arch", "registers", "shared", "warps", "resident"),
    [
        # 128 threads of 190 registers, given out as 192: two programs of 65,536, and a rest
        (90, 190, 64 * 1024, 4, 8),
        (90, 112, 64 * 1024, 8, 16),
        # three times 65 KiB and no fourth in 228 KiB
        (90, 32, 64 * 1024, 4, 12),
        # 97 KiB of 164 KiB: one
        (80, 32, 96 * 1024, 8, 8),
        # nothing limits but the 64 warps, and the 32 programs
        (90, 16, 0, 4, 64),
        (80, 16, 0, 1, 32),
        (80, 32, 164 * 1024, 4, 0),
    ],
)
def test_how_many_warps_a_processor_holds_by_hand(arch, registers, shared, warps, resident):
    from attn_course.kernels import artifact

    row = {"arch": arch, "registers": registers, "shared": shared, "warps": warps}
    assert artifact.resident_warps(row) == resident


def test_an_interpreted_process_says_why_it_does_not_compile() -> None:
    if os.environ["TRITON_INTERPRET"] == "0":
        pytest.skip("kernels are compiled in this process")
    from attn_course.kernels import artifact

    refused("TRITON_INTERPRET: expected unset", artifact.catalogue)


RECORD = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "kernel_artifacts.json"


def recorded(part: str) -> dict[tuple[str, int], dict[str, Any]]:
    rows = json.loads(RECORD.read_text())["parts"][part]["measured"]
    return {(row["name"], row["arch"]): row for row in rows}


def test_no_kernel_of_the_package_spills_in_any_dtype_as_recorded() -> None:
    for dtype in ("float16", "bfloat16", "float32"):
        rows = recorded(f"package {dtype}")
        assert {arch for _, arch in rows} == {80, 90}
        assert [name for name, row in rows.items() if row.get("spilled") != 0] == []


def test_on_a_hopper_recorded_products_use_wgmma_from_64_rows_on_and_mma_below() -> None:
    for dtype in ("float16", "bfloat16"):
        rows = [row for (_, arch), row in recorded(f"package {dtype}").items() if arch == 90]
        for row in rows:
            instruction = "wgmma" if row["rows"] >= 64 else "mma" if row["rows"] else None
            used = {name for name in ("mma", "wgmma") if row[name]}
            assert used == ({instruction} if instruction else set()), row["name"]
        assert {row["name"] for row in rows if row["mma"]} >= {"decode_split d128"}
    assert all(row["rows"] == 0 for row in recorded("package float32").values())


def test_flash_attention_in_bfloat16_is_compiled_as_in_float16() -> None:
    figures = ("registers", "spilled", "shared", "mma", "wgmma", "wide_loads", "narrow_loads")
    half, brain = recorded("package float16"), recorded("package bfloat16")
    for (name, arch), row in half.items():
        if name.startswith(("flash_forward", "flash_query", "flash_key_value")):
            other = brain[name, arch]
            assert [row[x] for x in figures] == [other[x] for x in figures], name


def test_recorded_forward_kernels_hold_as_many_warps_as_their_peers() -> None:
    from attn_course.kernels import artifact

    for peer in ("tutorial float16", "flexattention float16"):
        for (name, arch), row in recorded(peer).items():
            if name.startswith("flash_forward"):
                mine = recorded("package float16")[name, arch]
                assert mine["spilled"] <= row["spilled"]
                assert artifact.resident_warps(mine) >= artifact.resident_warps(row), name
                if mine["warps"] == row["warps"]:
                    assert mine["registers"] <= row["registers"], name
