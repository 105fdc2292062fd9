"""Edge cases of partial credit and of standard error, for the tests and for the benchmark."""

# last line of a test cell worth 2 points: (source, score, part of the message)
EDGES = {
    "np.float64(0.) is zero": ("np.float64(0.0)", 0.0, ""),
    "np.float64(1.5) is 1.5": ("np.float64(1.5)", 1.5, ""),
    "False is zero": ("False", 0.0, ""),
    "np.False_ is zero": ("np.bool_(False)", 0.0, ""),
    "True is full marks, not 1": ("True", 2.0, ""),
    "nan is no score: zero with the reason": ("float('nan')", 0.0, "from 0 to 2.0, got nan"),
    "inf is no score: zero with the reason": ("float('inf')", 0.0, "from 0 to 2.0, got inf"),
    "a negative is no score: zero with the reason": ("-1.0", 0.0, "got -1.0"),
    "above the points is no score: zero with the reason": ("5", 0.0, "got 5"),
    "above by rounding is full marks": ("2.0000000000000004", 2.0, ""),
    "a tensor without axes is its number": ("torch.tensor(0.0)", 0.0, ""),
    "tensor(1.5) is 1.5": ("torch.tensor(1.5)", 1.5, ""),
    "a tensor of one element is its number": ("torch.tensor([0.5])", 0.5, ""),
    "a tensor of several numbers is no score": ("torch.zeros(3)", 0.0, "array of shape (3,)"),
    "an array without numbers is no score": ("np.zeros((2, 0))", 0.0, "array of shape (2, 0)"),
    "np.int64(1) is 1": ("np.int64(1)", 1.0, ""),
    "a fraction is its number": ("__import__('fractions').Fraction(1, 2)", 0.5, ""),
    "a complex number is no score: zero with the reason": ("1j", 0.0, "got 1j"),
    "text is full marks": ("'0'", 2.0, ""),
    "None is full marks": ("None", 2.0, ""),
    "a statement last is full marks": ("x = 0", 2.0, ""),
    "a list is full marks": ("[0]", 2.0, ""),
    "text on stderr costs nothing": ("import sys\nprint('careful', file=sys.stderr)", 2.0, ""),
    "a warning costs nothing": ("import warnings\nwarnings.warn('old')\n1.0", 1.0, ""),
    "a print costs nothing and is told": ("print('hello')\n1.25", 1.25, "hello"),
    "a number that is printed is no score": ("print(0.0)", 2.0, "0.0"),
    "a semicolon hides no score": ("0.5;", 0.5, ""),
    "a log line costs nothing": ("import logging\nlogging.warning('slow')\n1.5", 1.5, ""),
    "zero divided is an error": ("1 / 0", 0.0, "ZeroDivisionError"),
}

# What the learner's function does beside its answer, when a test worth 2 points calls it.
LOUD = {
    "it prints": "print('trying')",
    "it prints to stderr": "import sys; print('careful', file=sys.stderr)",
    "it warns": "import warnings; warnings.warn('old')",
    "it divides by zero with numpy's warning": "import numpy; numpy.float64(1) / 0",
    "it logs a warning": "import logging; logging.warning('slow')",
    "it shows a progress bar": "import tqdm; list(tqdm.tqdm(range(3)))",
    "it writes to descriptor 2": "import os; os.write(2, b'low')",
    "it prints a traceback": "import traceback; traceback.print_stack()",
}
