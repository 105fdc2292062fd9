"""Settings for stock nbgrader, run from the root of the checkout.

``attn-course exercises build`` writes ``build/source`` from the texts in ``solutions``; after it,
every nbgrader command works here.  Students' files and marks stay under ``build``, which git
ignores; only releases are committed.
"""

c = get_config()  # noqa: F821 - nbgrader defines it

c.CourseDirectory.course_id = "attn-course"
c.CourseDirectory.source_directory = "build/source"
c.CourseDirectory.release_directory = "exercises"
c.CourseDirectory.submitted_directory = "build/submitted"
c.CourseDirectory.autograded_directory = "build/autograded"
c.CourseDirectory.feedback_directory = "build/feedback"
c.CourseDirectory.solution_directory = "build/solution"
c.CourseDirectory.db_url = "sqlite:///build/gradebook.db"

# A test cell that hangs must not hold up a class.
c.ExecutePreprocessor.timeout = 120
