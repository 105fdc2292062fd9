r"""Query, key, value and weight have one colour each: in formulas, bold words and diagrams.

:data:`SYMBOLS` says which symbols of a page are which; formulas get KaTeX's ``\htmlClass`` around
them when the page is written, so that titles, notebooks and the search see the formula itself. A
symbol keeps its indices and powers. The colours are variables of ``interactive.css``.
"""

import re

from attn_numbers import main_page
from docutils import nodes
from sphinx.application import Sphinx

ROLES = ("query", "key", "value", "weight")
#: For each page and role, a regular expression of its symbols, tried at every letter and command
#: that is no index. A vector that is key and value at once (03, 04) has the colour of its use.
#: A further page without an entry has the symbols of its chapter.
SYMBOLS = {
    "style": {"query": "q", "key": "k", "value": "v", "weight": r"\\alpha"},
    "notation": {
        "query": r"q(?=, k)", "key": r"k(?=, v)", "value": r"(?<=k, )v", "weight": r"\\alpha",
    },
    "chapters/00_warm_up": {"query": "q", "key": "k", "value": "v", "weight": "p"},
    "chapters/03_additive_attention": {
        "query": "s",
        "key": r"(?<=U )h|(?<=U_a )h|(?<=s \+ )h",
        "value": r"(?<=\\alpha_\{i[12jn]\} )h|(?<=\\alpha_j )h|(?<=\)\\, )h|(?<=\\,\()h",
        "weight": r"\\alpha",
    },
    "chapters/04_score_functions": {
        "query": r"[qQ]|s(?=_\{i-1\})|(?<=score\}\()h|(?<=score\}\\big\()h|\\mathbf\{k\}",
        "key": r"k|K(?!\[)|(?<=h_t, )\\bar h|\\mathbf\{M\}_t\(i\)",
        "value": r"V|(?<=\\, )\\bar h",
        "weight": r"\\alpha|a_t(?:\(s\))?|\\mathbf\{a\}_t\(s\)|w\^c_t\(i\)",
    },
    "chapters/05_soft_hard_implicit": {"value": r"v(?=_s)", "weight": r"\\alpha"},
    "chapters/06_memory_networks": {"query": "u", "key": "m", "value": "c", "weight": "p"},
    "chapters/07_scaled_dot_product": {
        "query": "[qQ]", "key": r"k|K(?!\(|$)", "value": "[vV]", "weight": r"\\alpha|A",
    },
    "chapters/08_multi_head": {"query": "q", "key": r"k(?!$| \+)", "weight": r"\\alpha"},
    "chapters/10_encoder_decoder": {"query": "q", "key": "k", "value": "v"},
    "chapters/10_encoder_decoder/training": {},
    # a q alone is a draft model's distribution there
    "chapters/11_language_model": {
        "query": r"q(?=_h|\\,|, k)",
        "key": r"k(?=\]|_\{|:)|K(?=;|:)",
        "value": r"v(?=\]|_\{)|V(?=;|:|\])",
        "weight": r"\\alpha",
    },
    "chapters/12_looking_inside": {"value": "v", "weight": r"\\tilde A|A"},
    "chapters/14_sparse_attention": {"query": "q", "key": "k", "value": "v"},
    "chapters/15_hashing_and_low_rank": {"query": "q", "key": "k(?=_)", "value": "v"},
    "chapters/15_hashing_and_low_rank/low_rank": {"query": "Q", "key": "K", "value": "V"},
    # a k alone is the width of Linformer there, and alpha a gate
    "chapters/15_hashing_and_low_rank/linear": {"query": "q", "key": r"k(?!$| = \d)", "value": "v"},
    "chapters/17_flash_attention": {
        "query": "Q", "key": "K", "value": "[vV]", "weight": "P",
    },
    "chapters/18_banded_and_decode": {
        "query": "[qQ]", "key": "[kK]", "value": "v", "weight": r"w(?=_)",
    },
    "chapters/18_banded_and_decode/decode": {"key": r"k(?=_)"},
    "chapters/19_many_devices": {"query": "Q", "key": "K", "value": "V"},
}  # fmt: skip
WORDS = {"queries": "query", "weights": "weight", "keys": "key", "values": "value"}
#: Commands whose argument is a name or other letters; it stays as it is.
NAMES = re.compile(
    r"\\(?:text|texttt|textit|textbf|operatorname\*?|begin|end|mathrm|mathsf|mathbb|mathbf|mathcal)"
    r"\s*(?:\{[^{}]*\}|.)"
)
#: Commands that take the next letter or command as their argument.
TAKES = re.compile(
    r"\\(?:bar|hat|tilde|vec|overrightarrow|overleftarrow|sqrt|[td]?frac)(?![A-Za-z])\s*"
    r"(?!\{)(?:\\[A-Za-z]+|.)"
)
LETTER = re.compile(r"\\\\(?:\[[^\]]*\])?|\\[A-Za-z]+|\\.|.", re.DOTALL)


def _argument(tex: str, at: int) -> int:
    """Where the argument ends that begins at ``at``: a group, a command or one sign."""
    if tex[at : at + 1] != "{":
        found = NAMES.match(tex, at) or LETTER.match(tex, at)
        return found.end() if found else at
    depth = 0
    for end in range(at, len(tex)):
        depth += (tex[end] == "{") - (tex[end] == "}")
        if not depth:
            return end + 1
    return len(tex)


def symbols_of(docname: str) -> dict[str, str]:
    """The symbols of a page; none for a page that the table does not know."""
    return SYMBOLS.get(docname, SYMBOLS.get(main_page(docname), {}))


def coloured(tex: str, symbols: dict[str, str]) -> str:
    r"""A formula with ``\htmlClass`` around its symbols.

    Args:
        tex: The formula.
        symbols: For each role, a regular expression of its symbols.
    """
    out, at, base = "", 0, ""
    while at < len(tex):
        if tex[at] in "_^":
            end = _argument(tex, at + 1)
            # a power of e is part of the line, other indices name something
            inner = tex[at + 1 : end]
            out += tex[at] + (coloured(inner, symbols) if base == "e" and tex[at] == "^" else inner)
            at = end
            continue
        tried = ((role, re.compile(one).match(tex, at)) for role, one in symbols.items())
        if found := next(((role, match) for role, match in tried if match), None):
            role, end = found[0], found[1].end()
            while end < len(tex) and tex[end] in "_^'":
                end = end + 1 if tex[end] == "'" else _argument(tex, end + 1)
            out += rf"\htmlClass{{attn-{role}}}{{{tex[at:end]}}}"
        else:
            match = NAMES.match(tex, at) or TAKES.match(tex, at) or LETTER.match(tex, at)
            assert match is not None
            end = match.end()
            out += match[0]
        base, at = tex[at:end], end
    return out


def plain(tex: str) -> str:
    """The formula again, without its colours."""
    return re.sub(r"\\htmlClass\{attn-\w+\}\{((?:[^{}]|\{[^{}]*\})*)\}", r"\1", tex)


def colour(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Colour the symbols of a page, and the bold words that define a role."""
    symbols = symbols_of(docname)
    if app.builder.format != "html" or not symbols:
        return
    for node in list(doctree.findall(lambda n: isinstance(n, nodes.math | nodes.math_block))):
        tex = coloured(node.astext(), symbols)
        node.children = [nodes.Text(tex)]
    for strong in doctree.findall(nodes.strong):
        word = strong.astext().lower()
        if (role := WORDS.get(word, word)) in symbols:
            strong["classes"].append(f"attn-{role}")


def setup(app: Sphinx) -> dict[str, bool]:
    """Colour before :mod:`attn_katex` renders."""
    app.connect("doctree-resolved", colour, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
