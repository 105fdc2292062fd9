"""nbgrader's exchange for everyone on the machine: copy to /etc/jupyter/.

The instructor's checkout has an ``nbgrader_config.py`` of its own; both are read.
"""

c = get_config()  # noqa: F821 - nbgrader defines it

c.CourseDirectory.course_id = "attn-course"
c.Exchange.root = "/srv/nbgrader/exchange"  # mode 1777: nobody removes the course of another
