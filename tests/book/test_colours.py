"""Query, key, value and weight: the symbols that get a colour, and the colours themselves."""

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import diagram_source  # noqa: E402  the line above makes it importable
from attn_colours import ROLES, SYMBOLS, coloured, plain, symbols_of  # noqa: E402
from diagram_pen import COLOURS  # noqa: E402

CSS = (ROOT / "book" / "_static" / "interactive.css").read_text()
# the page and its boxes
LIGHT, DARK = ("#ffffff", "#f3f4f5"), ("#14181e", "#29313d")
FENCES = re.compile(r"^(`{3,})\{(?:code-cell|source|explorer)[^\n]*\n.*?^\1$", re.M | re.S)
FORMULAS = re.compile(r"^\$\$\n(.*?)\n\$\$|(?<![$\\])\$([^$\n]+)\$(?!\$)", re.M | re.S)


def short(page: str, tex: str) -> str:
    """A formula with ``<q:...>`` around what has a colour."""
    symbols = symbols_of(f"chapters/{page}")
    return re.sub(
        r"\\htmlClass\{attn-(\w)\w+\}\{((?:[^{}]|\{[^{}]*\})*)\}",
        r"<\1:\2>",
        coloured(tex, symbols),
    )


@pytest.mark.parametrize(
    ("page", "tex", "found"),
    [
        ("03_additive_attention", r"W_a s_{i-1} + U_a h_j", r"W_a <q:s_{i-1}> + U_a <k:h_j>"),
        ("03_additive_attention", r"\sum_j \alpha_{ij} h_j", r"\sum_j <w:\alpha_{ij}> <v:h_j>"),
        ("03_additive_attention", r"h_j", r"h_j"),
        ("04_score_functions", r"\operatorname{score}(h_t, \bar h_s)",
         r"\operatorname{score}(<q:h_t>, <k:\bar h_s>)"),
        ("07_scaled_dot_product", r"\frac{Q K^\top}{\sqrt{d_k}} V",
         r"\frac{<q:Q> <k:K^\top>}{\sqrt{d_k}} <v:V>"),
        ("07_scaled_dot_product", r"\hat v(q) = K(q - k_j)", r"\hat v(<q:q>) = K(<q:q> - <k:k_j>)"),
        ("07_scaled_dot_product", r"\sum_k W_K x_k", r"\sum_k W_K x_k"),
        ("07_scaled_dot_product", r"\text{key } k", r"\text{key } <k:k>"),
        ("00_warm_up", r"a \\[4pt] p_i", r"a \\[4pt] <w:p_i>"),
        ("05_soft_hard_implicit", r"\alpha_\text{digit}", r"<w:\alpha_\text{digit}>"),
        ("15_hashing_and_low_rank", r"e^{q_i \cdot k_j}", r"e^{<q:q_i> \cdot <k:k_j>}"),
        ("07_scaled_dot_product/more", r"q k", r"<q:q> <k:k>"),
        ("10_encoder_decoder/training", r"p(v)", r"p(v)"),
        ("16_gpu_memory", r"Q \le q K", r"Q \le q K"),
    ],
)  # fmt: skip
def test_symbols_have_the_colours_of_the_table(page: str, tex: str, found: str) -> None:
    assert short(page, tex) == found


@pytest.mark.parametrize("page", SYMBOLS)
def test_every_role_of_a_page_is_found_there_and_the_formulas_stay(page: str) -> None:
    main = ROOT / "book" / f"{page}.md"
    further = main.with_suffix("").glob("*.md")
    own = [path for path in further if f"{page}/{path.stem}" not in SYMBOLS]
    text = "\n".join(FENCES.sub("", path.read_text()) for path in (main, *own))
    missing = set(SYMBOLS[page])
    for block, inline in FORMULAS.findall(text):
        tex = coloured(block or inline, SYMBOLS[page])
        assert plain(tex) == (block or inline)
        missing -= set(re.findall(r"\\htmlClass\{attn-(\w+)\}", tex))
    assert not missing


def channels(colour: str) -> list[float]:
    """Linear light of red, green and blue (WCAG 2)."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def contrast(one: str, other: str) -> float:
    light = sorted(
        sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), channels(colour), strict=True))
        for colour in (one, other)
    )
    return (light[1] + 0.05) / (light[0] + 0.05)


@pytest.mark.parametrize("role", ROLES)
def test_colours_are_readable_on_both_pages(role: str) -> None:
    light, dark = re.findall(rf"--attn-{role}: (#\w+);", CSS)
    assert light == COLOURS[role]
    for colour, (page, box) in ((light, LIGHT), (dark, DARK)):
        assert contrast(colour, page) >= 5.7
        assert contrast(colour, box) >= 4.5


def test_diagrams_draw_roles_in_their_colours_and_other_lit_parts_in_ink() -> None:
    root = ElementTree.fromstring(diagram_source.draw("three-steps").svg(["query", "scores"]))
    hues: dict[str, str] = {}
    for group in root:
        label = "".join("".join(text.itertext()) for text in group.iter() if "text" in text.tag)
        hues[label] = re.sub(r"color: var\(--attn-(\w+).*", r"\1", group.get("style", ""))
    assert [hues[k] for k in ("q", "k1", "v1", "α1", "e1", "o")] == [
        "query", "key", "value", "weight", "ink", "",
    ]  # fmt: skip
