"""What the translation experiment depends on."""

import functools

from experiments import keeping

MADE_WITH = (
    "attn_course/nn",
    "attn_course/functional",
    "attn_course/train",
    "attn_course/data",
    "experiments/keeping.py",
    "experiments/translation",
)
PACKAGES = ("torch", "sentencepiece", "sacrebleu", "numpy")

today = keeping.today
commit = functools.partial(keeping.commit, MADE_WITH)
where = functools.partial(keeping.where, packages=PACKAGES)
