"""``{diagram}``: a picture of a model with the part of the day lit, drawn by :mod:`diagram_source`.

::

    ```{diagram} additive-attention
    :lit: scores weights
    :caption: One sentence.
    ```

``:lit:`` names parts of the diagram; the rest is dimmed. ``:alt:`` replaces the computed
alternative text. The drawing is numbered and captioned as every other figure is, by
:mod:`attn_figures`.
"""

from pathlib import Path
from typing import Any, ClassVar

import diagram_source
from course_map import CourseMapDirective
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

LOGGER = logging.getLogger(__name__)
SOURCES = tuple(Path(__file__).with_name(name) for name in ("diagram_source.py", "diagram_pen.py"))


class DiagramDirective(SphinxDirective):
    """One diagram of the catalogue."""

    required_arguments = 1
    has_content = False
    option_spec: ClassVar[dict[str, Any]] = {
        "lit": directives.unchanged_required,
        "caption": directives.unchanged_required,
        "alt": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        """The drawing as a raw node, or an error with page and line."""
        for path in SOURCES:
            self.env.note_dependency(str(path))
        caption = " ".join(self.options.get("caption", "").split())
        try:
            if not caption:
                raise ValueError("':caption:' is missing: say in a sentence what to see")
            drawing = diagram_source.draw(self.arguments[0].strip())
            lit = self.options.get("lit", "").replace(",", " ").split()
            svg = drawing.svg(lit, alt=self.options.get("alt", ""), caption=caption)
        except ValueError as error:
            LOGGER.error("diagram: %s", error, location=self.get_location(), type="attn")
            return []
        return [nodes.raw("", svg, format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("diagram", DiagramDirective)
    app.add_directive("course-map", CourseMapDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
