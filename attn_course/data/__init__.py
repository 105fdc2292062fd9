"""Generated tasks, vocabularies, batches, a tiny embedding table and three real texts.

- tasks: ``copy``, ``reversal``, ``translation``, ``date_normalisation``, ``pointer_chase``,
  ``read_babi``, ``digit_scenes``, ``mosaic``
- texts: ``load_shakespeare``, ``load_python_manual``, ``load_multi30k``; others: ``load_digits``,
  ``word_vectors``
- text to ids: ``Vocabulary`` (where 0 is ``PAD``), ``Characters``, ``BytePairs``
- batches for ``train.fit``: ``BatchStream``, ``collate``
- what the course recorded: ``load_results``, ``load_seeds``, ``load_language_model``
"""

from attn_course.data._fetch import DataError
from attn_course.data.babi import (
    BABI_TASKS,
    babi_batch,
)
from attn_course.data.babi_file import read_babi
from attn_course.data.batch import Batch, collate
from attn_course.data.byte_pair import BytePairs
from attn_course.data.dates import (
    date_normalisation,
)
from attn_course.data.digits import digit_scenes, load_digits, mosaic
from attn_course.data.embeddings import word_vectors
from attn_course.data.language_model import Characters, load_language_model
from attn_course.data.multi30k import load_multi30k
from attn_course.data.pointer_chase import pointer_chase
from attn_course.data.python_manual import load_python_manual
from attn_course.data.recorded import load_results, load_seeds
from attn_course.data.shakespeare import load_shakespeare
from attn_course.data.streams import BatchStream
from attn_course.data.tasks import copy, reversal
from attn_course.data.toy_translation import (
    translation,
)
from attn_course.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary

__all__ = [
    "BABI_TASKS",
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "Batch",
    "BatchStream",
    "BytePairs",
    "Characters",
    "DataError",
    "Vocabulary",
    "babi_batch",
    "collate",
    "copy",
    "date_normalisation",
    "digit_scenes",
    "load_digits",
    "load_language_model",
    "load_multi30k",
    "load_python_manual",
    "load_results",
    "load_seeds",
    "load_shakespeare",
    "mosaic",
    "pointer_chase",
    "read_babi",
    "reversal",
    "translation",
    "word_vectors",
]
