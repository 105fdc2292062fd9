"""Grade a class: student code in a jail, verdicts outside it, nbgrader's formats throughout."""
