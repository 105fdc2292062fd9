"""Lay out a new chapter: its page, its exercise set, its entries in the contents and the claims.

What is written runs as it is (one graded function, one program to mend, one test to write, one
report); the author replaces the example piece by piece, and the tests of the sets say what is
still missing.
"""

import re
from pathlib import Path

_SLUG = re.compile(r"\d\d_[a-z0-9_]+")


class ScaffoldError(Exception):
    """A chapter cannot be laid out; nothing was written."""


def lay_out(root: Path, slug: str, *, set_only: bool = False) -> list[Path]:
    """Write the files of a new chapter.

    Args:
        root: The checkout.
        slug: Such as ``07_scaled_dot_product``.
        set_only: The exercise set alone, for a page that is there or comes later.

    Returns:
        What was written or changed.

    Raises:
        ScaffoldError: If the slug is malformed, or something of that name is there.
    """
    if not _SLUG.fullmatch(slug):
        raise ScaffoldError(f"slug: expected two digits and a name, as 07_masks, got {slug!r}")
    files = {
        root / "book" / "chapters" / f"{slug}.md": PAGE,
        root / "solutions" / slug / "exercise.py": EXERCISE,
        root / "solutions" / slug / "misconceptions.py": MISCONCEPTIONS,
        root / "solutions" / slug / "variants.py": VARIANTS,
    }
    if set_only:
        files = {path: text for path, text in files.items() if text is not PAGE}
    there = [path for path in files if path.exists()]
    if there:
        raise ScaffoldError(f"{there[0].relative_to(root)} is there already")
    toc, claims = root / "book" / "_toc.yml", root / "book" / "claims.md"
    contents, rows = toc.read_text(encoding="utf-8"), claims.read_text(encoding="utf-8")
    chapters = [m.end() for m in re.finditer(r"^ *- file: chapters/\S+\n", contents, re.M)]
    table = [m.end() for m in re.finditer(r"^\| .* \[\]\(chapters/\S+\) \|\n", rows, re.M)]
    if not chapters or not table:
        raise ScaffoldError("book/_toc.yml and book/claims.md: expected the entries of a chapter")
    at, row = chapters[-1], table[-1]
    title = slug[3:].replace("_", " ").capitalize()
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        text = text.replace("@SLUG@", slug).replace("@TITLE@", title)
        # no region mark stands in the package itself: a wheel is searched for them
        path.write_text(text.replace("###@", "### "), encoding="utf-8")
    if set_only:
        return list(files)
    entry = f"      - file: chapters/{slug}\n"
    toc.write_text(contents[:at] + entry + contents[at:], encoding="utf-8")
    page = f"[](chapters/{slug}.md)"
    line = f"| A sentence that everybody repeats. | open | What decides it. | {page} |\n"
    claims.write_text(rows[:row] + line + rows[row:], encoding="utf-8")
    return [*files, toc, claims]


PAGE = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# @TITLE@

The question that the last chapter left.

:::{goals}
- What a reader can do at the end.
:::

```{code-cell} ipython3
:tags: [hide-input]
import torch

from attn_course import functional, viz

torch.set_num_threads(1)
```

## By hand

A number done by hand, then the formula with its shapes:

$$
\\text{mean}(x) = \\frac{1}{n} \\sum_i x_i
$$ (eq-@SLUG@-mean)

```{predict} new-first
question: What is the mean of 1, 2 and 6?
type: number
answer: 3
key: result.item()
why: |
  $9 / 3 = 3$.
```

```{code-cell} ipython3
:tags: [after-predict]
result = torch.tensor([1.0, 2.0, 6.0]).mean()
print(result)
```

## Check it

```{code-cell} ipython3
assert result == 3
```

## Exercises

```{exercise-set} @SLUG@
```
"""

EXERCISE = """# %% [markdown]
# # Exercises: @TITLE@
#
# What you write here, and what it is for.

# %% nbgrader={"grade_id": "setup", "locked": true}
import torch

from attn_course.probes import Probes

probes = Probes("@SLUG@", row_means=lambda x: x.mean(-1))

# %% [markdown]
# ## 1. The first function
#
# `row_means(x)` returns the mean of each row.
#
# - `x` is `(..., S)` and floating; the result is `(...)`.
# - Gradients reach `x`.
#
# By hand: $[1, 2, 6]$ gives $3$.


# %% nbgrader={"grade_id": "row_means", "solution": true}
def row_means(x):
    ###@BEGIN SOLUTION
    return x.sum(-1) / x.shape[-1]
    ###@END SOLUTION


# %% nbgrader={"grade_id": "row_means-values", "grade": true, "points": 1}
# Three numbers by hand.
probe = probes(row_means=row_means)
probe.equals(torch.tensor([[1.0, 2.0, 6.0]]))
###@BEGIN HIDDEN TESTS
probe.everywhere()
###@END HIDDEN TESTS

# %% nbgrader={"grade_id": "row_means-gradient", "grade": true, "points": 1}
# Gradients flow through, and are right.
probe = probes(row_means=row_means)
probe.gradient(torch.tensor([[1.0, 2.0, 6.0]]))
###@BEGIN HIDDEN TESTS
probe.gradient(probe.normal(2, 3, 5))
###@END HIDDEN TESTS

# %% [markdown]
# ## 2. Report
#
# A question that needs words.

# %% [markdown] nbgrader={"grade_id": "report", "grade": true, "solution": true, "points": 4}
# What a good answer says.
"""

MISCONCEPTIONS = '''"""Wrong answers: name, message, and the tests they must fail."""

from attn_course.probes import WrongAnswers, call, witnesses


def right_means(x):
    return x.mean(-1)


wrong = WrongAnswers("row_means", tests=("values", "gradient"), right=right_means)


@witnesses(of="row_means")
def inputs(draw):
    """One list of inputs: the hidden test runs them all, and names are told apart by them."""
    for shape in ((1, 3), (3, 1), (2, 3, 5), (5,)):
        yield call(draw.normal(*shape))


@wrong("the first axis")
def over_rows(x):
    """You take the mean over the first axis instead of the last: one number per column. Look at
    the shape that the function promises.
    """
    return x.mean(0)


@wrong("a sum")
def summed(x):
    """You add up the entries and do not divide by how many they are, so that longer rows have
    larger results.
    """
    return x.sum(-1)


wrong.detached()
wrong.first_row_for_all(
    "the first row for all", "Every row gets the mean of the first one.", fails=("values",)
)
'''

VARIANTS = '''"""Right answers that are written differently from the solution."""

from attn_course.probes import variant


@variant(of="row_means")
def by_torch(x):
    return x.mean(dim=-1)


@variant(of="row_means")
def by_product(x):
    return x @ x.new_ones(x.shape[-1]) / x.shape[-1]
'''
