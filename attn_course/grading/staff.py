"""The step of ``nbgrader generate_feedback`` that leaves out what is for the grader."""

from typing import Any

from nbconvert.preprocessors import Preprocessor
from traitlets import Bool

from attn_course.grading.autograded import STAFF


class WithoutStaffCells(Preprocessor):
    """Takes the model answers, which stand beside the box in formgrader, out of feedback.

    ``nbgrader_config.py`` names it; where it does not, formgrader shows no model answer.
    """

    enabled = Bool(True).tag(config=True)

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """The notebook without these cells."""
        nb.cells = [cell for cell in nb.cells if STAFF not in cell.metadata.get("tags", ())]
        return nb, resources
