"""Settings for nbgrader, which ``attn-course grade`` reads too: run both from the checkout's root.

``attn-course exercises build`` writes ``build/source`` from the texts in ``solutions``; after it,
every nbgrader command works here.  Releases that nbgrader makes go to ``release``: the committed
ones in ``exercises`` stay as they are.  Students' files and marks lie in ``submitted``,
``autograded``, ``feedback`` and ``gradebook.db``, which git ignores and ``make clean`` leaves.
"""

from nbconvert.preprocessors import CSSHTMLHeaderPreprocessor
from nbgrader.preprocessors import GetGrades

from attn_course.grading.staff import WithoutStaffCells

c = get_config()  # noqa: F821 - nbgrader defines it

c.CourseDirectory.course_id = "attn-course"
c.CourseDirectory.source_directory = "build/source"

# Formgrader shows the model answer below the student's; no page of feedback does.
c.GenerateFeedback.preprocessors = [GetGrades, WithoutStaffCells, CSSHTMLHeaderPreprocessor]

# What an hour, a day or a week too late costs: nbgrader's own plugin, or one beside this file.
# c.LateSubmissionPlugin.penalty_method = "zero"
# c.AssignLatePenalties.plugin_class = "late.TenPercentADay"

# A test cell that hangs must not hold up a class that stock nbgrader grades.
c.ExecutePreprocessor.timeout = 120
