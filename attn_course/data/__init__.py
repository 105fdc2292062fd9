"""Generated tasks, vocabularies, batches, a tiny embedding table and three real texts."""

from attn_course.data._fetch import DataError
from attn_course.data.babi import (
    BABI_TASKS,
    BABI_VOCABULARY,
    babi_batch,
    counting,
    one_supporting_fact,
    three_supporting_facts,
    two_supporting_facts,
    yes_no,
)
from attn_course.data.babi_file import read_babi
from attn_course.data.batch import Batch, collate
from attn_course.data.byte_pair import BytePairs
from attn_course.data.dates import (
    DATE_SOURCE_VOCABULARY,
    DATE_TARGET_VOCABULARY,
    DatePair,
    date_normalisation,
    date_pairs,
    write_date,
)
from attn_course.data.digits import Digits, Scenes, digit_scenes, load_digits, mosaic
from attn_course.data.embeddings import SENSE_EXAMPLES, SenseExample, WordVectors, word_vectors
from attn_course.data.multi30k import load_multi30k, words
from attn_course.data.pointer_chase import pointer_chase
from attn_course.data.python_manual import load_python_manual
from attn_course.data.recorded import load_results, load_seeds
from attn_course.data.shakespeare import load_shakespeare
from attn_course.data.stories import Story, StoryBatch, encode_stories
from attn_course.data.streams import BatchStream, PairStream
from attn_course.data.tasks import copy, reversal, sort, symbol_vocabulary
from attn_course.data.toy_translation import (
    TRANSLATION_SOURCE_VOCABULARY,
    TRANSLATION_TARGET_VOCABULARY,
    TranslationPair,
    translate,
    translation,
    translation_pairs,
)
from attn_course.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary

__all__ = [
    "BABI_TASKS",
    "BABI_VOCABULARY",
    "BOS",
    "DATE_SOURCE_VOCABULARY",
    "DATE_TARGET_VOCABULARY",
    "EOS",
    "PAD",
    "SENSE_EXAMPLES",
    "TRANSLATION_SOURCE_VOCABULARY",
    "TRANSLATION_TARGET_VOCABULARY",
    "UNK",
    "Batch",
    "BatchStream",
    "BytePairs",
    "DataError",
    "DatePair",
    "Digits",
    "PairStream",
    "Scenes",
    "SenseExample",
    "Story",
    "StoryBatch",
    "TranslationPair",
    "Vocabulary",
    "WordVectors",
    "babi_batch",
    "collate",
    "copy",
    "counting",
    "date_normalisation",
    "date_pairs",
    "digit_scenes",
    "encode_stories",
    "load_digits",
    "load_multi30k",
    "load_python_manual",
    "load_results",
    "load_seeds",
    "load_shakespeare",
    "mosaic",
    "one_supporting_fact",
    "pointer_chase",
    "read_babi",
    "reversal",
    "sort",
    "symbol_vocabulary",
    "three_supporting_facts",
    "translate",
    "translation",
    "translation_pairs",
    "two_supporting_facts",
    "word_vectors",
    "words",
    "write_date",
    "yes_no",
]
