"""``{course-map}``: the chapters, and the failure that leads from each to the next.

Chapters that have no page yet are planned: the map shows them dimmed. Minutes are counted from the
pages, as everywhere.
"""

import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective
from sphinx.util.osutil import relative_uri

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from bookbuild.reading import count

# The reader's answers lie in this browser; interactive.js knows what they amount to.
TICKS = """addEventListener("load", () => {
  const progress = window.attnProgress?.() ?? {};
  document.querySelectorAll(".attn-map [data-page]").forEach((stop) => {
    const { state, answered, quizzes } = progress[stop.dataset.page] ?? {};
    if (state !== "done" && state !== "begun") return;
    stop.classList.add(`attn-stop-${state}`);
    stop.querySelector("a").append(Object.assign(document.createElement("span"), {
      className: "attn-stop-state",
      textContent: state === "done" ? " ✓ done" : ` ${answered} of ${quizzes}`,
    }));
  });
});"""


@dataclass(frozen=True)
class Stop:
    """A chapter: its file, its short name, and the question it leaves."""

    slug: str
    name: str
    leaves: str


PARTS = (
    (
        "Before attention",
        (
            Stop("00_warm_up", "Warm-up", "a mean forgets the order of words"),
            Stop("01_recurrence", "Recurrence", "one output for each input is not translation"),
            Stop("02_seq2seq_bottleneck", "The bottleneck", "long sentences do not fit a vector"),
        ),
    ),
    (
        "Attention before Transformers",
        (
            Stop("03_additive_attention", "Additive attention", "is this score the right one?"),
            Stop("04_score_functions", "Score functions", "must it attend to every word?"),
            Stop("05_soft_hard_implicit", "Soft, hard, implicit", "once is not always enough"),
            Stop("06_memory_networks", "Memory networks", "is recurrence needed?"),
        ),
    ),
    (
        "The Transformer",
        (
            Stop("07_scaled_dot_product", "Scaled dot product", "one set of weights at a time"),
            Stop("08_multi_head", "Heads and positions", "deep stacks do not train"),
            Stop("09_transformer_block", "The block", "does it translate?"),
            Stop("10_encoder_decoder", "Encoder-decoder", "is the encoder needed?"),
            Stop("11_language_model", "Language model", "what has it learned?"),
            Stop("12_looking_inside", "Looking inside", "is it only for words?"),
            Stop(
                "13_vision_transformer", "Vision transformer", "twice as long, four times the cost"
            ),
        ),
    ),
    (
        "Long sequences",
        (
            Stop("14_sparse_attention", "Sparse attention", "how to choose the positions?"),
            Stop("15_hashing_and_low_rank", "Hashing, low rank", "fewer sums, and yet not faster"),
        ),
    ),
    (
        "Hardware",
        (
            Stop("16_gpu_memory", "GPU memory", "the score matrix is too large to store"),
            Stop("17_flash_attention", "FlashAttention", "a window in a kernel"),
            Stop("18_banded_and_decode", "Bands and decoding", "one device is too small"),
            Stop("19_many_devices", "Many devices", "what do you believe now?"),
            Stop("20_capstone", "Capstone: settle a claim", ""),
        ),
    ),
)


def _stop(env: BuildEnvironment, stop: Stop) -> str:
    page = f"chapters/{stop.slug}"
    number = f'<span class="attn-stop-number">{int(stop.slug[:2])}</span>'
    name = f'<span class="attn-stop-name">{escape(stop.name)}</span>'
    edge = f'<span class="attn-edge">{escape(stop.leaves)}</span>' if stop.leaves else ""
    if page not in env.found_docs:
        words = '<span class="attn-stop-minutes">planned</span>'
        return f'<li class="attn-stop attn-planned">{number}{name}{words}{edge}</li>'
    source = Path(env.doc2path(page))
    env.note_dependency(str(source))
    minutes = count(source.read_text(encoding="utf-8")).minutes
    address = relative_uri(f"{env.docname}.html", f"{page}.html")
    return (
        f'<li class="attn-stop" data-page="{page}">{number}<a href="{address}">{name}</a>'
        f'<span class="attn-stop-minutes">{minutes} min</span>{edge}</li>'
    )


class CourseMapDirective(SphinxDirective):
    """The whole map, with ticks from the reader's own answers where there are any."""

    def run(self) -> list[nodes.Node]:
        """One raw node."""
        self.env.note_dependency(str(Path(__file__)))
        body = []
        for title, stops in PARTS:
            rows = "".join(_stop(self.env, stop) for stop in stops)
            start = int(stops[0].slug[:2])
            body.append(
                f'<p class="attn-map-title">{escape(title)}</p><ol start="{start}">{rows}</ol>'
            )
        page = (
            '<nav class="attn-map" aria-label="Map of the course">'
            f"{''.join(body)}</nav><script>{TICKS}</script>"
        )
        return [nodes.raw("", page, format="html")]
