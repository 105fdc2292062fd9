"""``{course-map}``: the chapters, and the failure that leads from each to the next.

Parts and chapters are those of ``_toc.yml``. Minutes are counted from the pages, as everywhere.
"""

import re
import sys
from html import escape
from pathlib import Path, PurePosixPath

import yaml
from docutils import nodes
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective
from sphinx.util.osutil import relative_uri

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from bookbuild.common import main_page
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


# Of a chapter: its short name, and the question it leaves. One that is not here has its title.
NAMES = {
    "00_warm_up": ("Warm-up", "a mean forgets the order of words"),
    "01_recurrence": ("Recurrence", "one output for each input is not translation"),
    "02_seq2seq_bottleneck": ("The bottleneck", "long sentences do not fit a vector"),
    "03_additive_attention": ("Additive attention", "is this score the right one?"),
    "04_score_functions": ("Score functions", "must it attend to every word?"),
    "05_soft_hard_implicit": ("Soft, hard, implicit", "once is not always enough"),
    "06_memory_networks": ("Memory networks", "is recurrence needed?"),
    "07_scaled_dot_product": ("Scaled dot product", "one set of weights at a time"),
    "08_multi_head": ("Heads and positions", "deep stacks do not train"),
    "09_transformer_block": ("The block", "does it translate?"),
    "10_encoder_decoder": ("Encoder-decoder", "is the encoder needed?"),
    "11_language_model": ("Language model", "what has it learned?"),
    "12_looking_inside": ("Looking inside", "is it only for words?"),
    "13_vision_transformer": ("Vision transformer", "twice as long, four times the cost"),
    "14_sparse_attention": ("Sparse attention", "how to choose the positions?"),
    "15_hashing_and_low_rank": ("Hashing, low rank", "fewer sums, and yet not faster"),
    "16_gpu_memory": ("GPU memory", "the score matrix is too large to store"),
    "17_flash_attention": ("FlashAttention", "a window in a kernel"),
    "18_banded_and_decode": ("Bands and decoding", "one device is too small"),
    "19_many_devices": ("Many devices", "what do you believe now?"),
    "20_capstone": ("Capstone: settle a claim", ""),
}


def parts(toc: Path) -> list[tuple[str, list[str]]]:
    """The parts of the table of contents that have chapters, with the slugs of these."""
    found = []
    for part in yaml.safe_load(toc.read_text(encoding="utf-8"))["parts"]:
        pages = [PurePosixPath(one.get("file", "")) for one in part["chapters"]]
        found.append((part["caption"], [p.name for p in pages if p.parent.name == "chapters"]))
    return [(caption, slugs) for caption, slugs in found if slugs]


def _stop(env: BuildEnvironment, slug: str) -> str:
    page = f"chapters/{slug}"
    text, minutes = Path(env.doc2path(page)).read_text(encoding="utf-8"), 0
    for part in (one for one in env.found_docs if main_page(one) == page):
        source = Path(env.doc2path(part))
        env.note_dependency(str(source))
        minutes += count(source.read_text(encoding="utf-8")).minutes
    title = re.search(r"^# (.+)$", text, re.M)
    name, leaves = NAMES.get(slug, (title[1] if title else slug, ""))
    edge = f'<span class="attn-edge">{escape(leaves)}</span>' if leaves else ""
    address = relative_uri(f"{env.docname}.html", f"{page}.html")
    return (
        f'<li class="attn-stop" data-page="{page}">'
        f'<span class="attn-stop-number">{int(slug[:2])}</span>'
        f'<a href="{address}"><span class="attn-stop-name">{escape(name)}</span></a>'
        f'<span class="attn-stop-minutes">{minutes} min</span>{edge}</li>'
    )


class CourseMapDirective(SphinxDirective):
    """The whole map, with ticks from the reader's own answers where there are any."""

    def run(self) -> list[nodes.Node]:
        """One raw node."""
        toc = Path(self.env.srcdir) / "_toc.yml"
        for path in (__file__, toc):
            self.env.note_dependency(str(path))
        body = []
        for title, slugs in parts(toc):
            rows = "".join(_stop(self.env, slug) for slug in slugs)
            start = int(slugs[0][:2])
            body.append(
                f'<p class="attn-map-title">{escape(title)}</p><ol start="{start}">{rows}</ol>'
            )
        page = (
            '<nav class="attn-map" aria-label="Map of the course">'
            f"{''.join(body)}</nav><script>{TICKS}</script>"
        )
        return [nodes.raw("", page, format="html")]
