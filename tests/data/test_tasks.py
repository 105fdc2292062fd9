"""Generated tasks against plain Python, and the alignment that they claim."""

from collections import Counter
from datetime import date
from functools import partial

import pytest
import torch
from oracles import same_state

from attn_course import data
from attn_course.data import BOS, EOS, PAD, UNK, collate, dates, toy_translation
from attn_course.data.dates import date_pairs, write_date
from attn_course.data.tasks import symbol_vocabulary
from attn_course.data.toy_translation import translate, translation_pairs

SYMBOL_TASKS = {"reversal": (data.reversal, lambda row: row[::-1]), "copy": (data.copy, list)}
TASKS = {
    **{k: partial(task, num_symbols=5, max_length=11) for k, (task, _) in SYMBOL_TASKS.items()},
    "date_normalisation": data.date_normalisation, "translation": data.translation,
}  # fmt: skip


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", SYMBOL_TASKS)
def test_symbol_task_says_what_plain_python_says(name):
    task, plain = SYMBOL_TASKS[name]
    batch = task(211, generator(), num_symbols=7, min_length=2, max_length=13)
    for row in range(211):
        source = batch.source[row, : batch.source_lengths[row]].tolist()
        target = plain(source)
        rest = batch.target_in.shape[1] - len(target) - 1
        assert batch.target_in[row].tolist() == [BOS, *target] + [PAD] * rest
        assert batch.target_out[row].tolist() == [*target, EOS] + [PAD] * rest
        assert (batch.source[row, len(source) :] == PAD).all()


@pytest.mark.parametrize("name", SYMBOL_TASKS)
def test_symbol_task_uses_every_length_and_symbol_about_equally(name):
    task, _ = SYMBOL_TASKS[name]
    batch = task(6000, generator(), num_symbols=5, min_length=3, max_length=8)
    lengths = Counter(batch.source_lengths.tolist())
    assert sorted(lengths) == [3, 4, 5, 6, 7, 8]
    # 1000 expected, standard deviation 29
    assert all(850 < count < 1150 for count in lengths.values())
    symbols = Counter(batch.source[batch.source_mask].tolist())
    assert sorted(symbols) == [4, 5, 6, 7, 8]
    assert max(symbols.values()) < 1.1 * min(symbols.values())


@pytest.mark.parametrize("name", SYMBOL_TASKS)
def test_alignment_of_a_symbol_task_points_at_the_same_symbol_once(name):
    batch = TASKS[name](97, generator())
    aligned = batch.alignment >= 0
    said = batch.source.gather(1, batch.alignment.clamp(min=0))
    assert torch.equal(said[aligned], batch.target_out[aligned])
    assert torch.equal(aligned, batch.target_mask & (batch.target_out != EOS))
    for row in range(97):
        places = batch.alignment[row][aligned[row]].sort().values
        assert torch.equal(places, torch.arange(batch.source_lengths[row]))


DRAWN = TASKS | data.BABI_TASKS | {
    "digit scenes": partial(data.digit_scenes, data.load_digits("train")),
    "pointer chase": data.pointer_chase,
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWN)
def test_task_depends_on_the_generator_alone(name):
    def draw(seed: int):
        made = DRAWN[name](17, generator(seed))
        return made if isinstance(made, list) else vars(made)

    first = draw(5)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    same_state(draw(5), first, rtol=0, atol=0)
    with pytest.raises(AssertionError):
        same_state(draw(6), first, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", TASKS)
def test_batch_is_consistent(name):
    batch = TASKS[name](31, generator())
    assert len(batch) == 31
    assert batch.source.shape == (31, int(batch.source_lengths.max()))
    assert batch.target_in.shape == batch.target_out.shape == batch.alignment.shape
    assert torch.equal((batch.source != PAD), batch.source_mask)
    assert torch.equal(batch.target_lengths, batch.target_mask.sum(1))
    assert bool((batch.target_in[:, 0] == BOS).all())
    real = batch.target_mask[:, 1:]
    assert torch.equal(batch.target_in[:, 1:][real], batch.target_out[:, :-1][real])
    assert bool((batch.target_out == EOS).sum(1).eq(1).all())
    assert not bool((batch.source == UNK).any() | (batch.target_out == UNK).any())
    moved = batch.to("meta")
    assert {moved.source.device.type, moved.alignment.device.type} == {"meta"}


def test_symbol_vocabulary_has_a_name_for_every_symbol():
    vocabulary = symbol_vocabulary(29)
    assert len(vocabulary) == 33
    assert vocabulary.decode([4, 29, 30, 32]) == ["a", "z", "s26", "s28"]


def test_dates_by_hand():
    pair = write_date(date(1987, 5, 3), "{th} of {month} {y}")
    assert (pair.source, pair.target) == ("3rd of may 1987", "1987-05-03")
    assert pair.alignment == (11, 12, 13, 14, -1, 7, 7, -1, -1, 0)
    pair = write_date(date(2012, 11, 22), "{mm}/{dd}/{y}")
    assert pair.source == "11/22/2012"
    assert pair.alignment == (6, 7, 8, 9, -1, 0, 1, -1, 3, 4)


def test_ordinals_are_english():
    written = [write_date(date(2000, 1, day), "{th} {month} {y}").source for day in range(1, 32)]
    suffixes = [text.split()[0].lstrip("0123456789") for text in written]
    assert (suffixes[:4], suffixes[10:13]) == (["st", "nd", "rd", "th"], ["th"] * 3)
    assert (suffixes[20:24], suffixes[30]) == (["st", "nd", "rd", "th"], "st")


def test_dates_are_read_back_from_the_text_alone():
    for pair in date_pairs(500, generator()):
        year, month, day = map(int, pair.target.split("-"))
        assert str(date(year, month, day)) == pair.target
        digits = [
            "".join(pair.source[place] for place in pair.alignment[part] if place >= 0)
            for part in (slice(0, 4), slice(5, 7), slice(8, 10))
        ]
        assert (int(digits[0]), int(digits[2])) == (year, day)
        if digits[1].isdigit():
            assert int(digits[1]) == month
        else:
            assert digits[1] == dates.MONTHS[month - 1][0] * 2
            assert pair.source[pair.alignment[5] :].startswith(dates.MONTHS[month - 1][:3])


def test_every_date_format_is_drawn_and_readable():
    day = date(1999, 2, 3)
    written = {write_date(day, form).source for form in dates.FORMATS}
    assert len(written) == len(dates.FORMATS)
    for text in written:
        words = dates.DATE_SOURCE_VOCABULARY
        assert words.decode(words.encode(text)) == list(text)
    assert dates.DATE_TARGET_VOCABULARY.tokens[4:] == tuple("0123456789-")


def test_translation_by_hand():
    pair = translate(["the", "old", "dog", "sees", "a", "small", "red", "house"])
    assert " ".join(pair.target) == "le chien vieux une maison rouge petite voit"
    assert pair.alignment == (0, 2, 1, 4, 7, 6, 5, 3)


def test_translation_looks_every_word_up_where_the_alignment_points():
    forms = toy_translation.ARTICLES | toy_translation.ADJECTIVES
    forms |= {word: (noun, noun) for word, (noun, _) in toy_translation.NOUNS.items()}
    forms |= {word: (verb, verb) for word, verb in toy_translation.VERBS.items()}
    seen = set()
    for pair in translation_pairs(300, generator(), max_adjectives=3):
        assert sorted(pair.alignment) == list(range(len(pair.source)))
        for word, place in zip(pair.target, pair.alignment, strict=True):
            assert word in forms[pair.source[place]]
        seen.update(pair.source)
    assert seen == set(forms)


def test_translation_agrees_in_gender_with_the_noun_of_its_phrase():
    for noun, (_, gender) in toy_translation.NOUNS.items():
        pair = translate(["a", "small", "white", noun, "sees", "the", "green", "dog"])
        assert pair.target[0] == ("un", "une")[gender]
        assert pair.target[2:4] == (("blanc", "petit"), ("blanche", "petite"))[gender]
        assert pair.target[4:7] == ("le", "chien", "vert")


def test_translation_vocabularies_know_every_word():
    assert len(toy_translation.TRANSLATION_SOURCE_VOCABULARY) == 4 + 2 + 6 + 10 + 6
    for pair in translation_pairs(50, generator()):
        assert UNK not in toy_translation.TRANSLATION_SOURCE_VOCABULARY.encode(pair.source)
        assert UNK not in toy_translation.TRANSLATION_TARGET_VOCABULARY.encode(pair.target)


def test_collate_by_hand():
    batch = collate([[4, 5, 6], [7]], [[8], [9, 4]], alignments=[[2], [0, -1]])
    assert batch.source.tolist() == [[4, 5, 6], [7, PAD, PAD]]
    assert batch.source_lengths.tolist() == [3, 1]
    assert batch.target_in.tolist() == [[BOS, 8, PAD], [BOS, 9, 4]]
    assert batch.target_out.tolist() == [[8, EOS, PAD], [9, 4, EOS]]
    assert batch.alignment.tolist() == [[2, -1, -1], [0, -1, -1]]
    assert batch.target_lengths.tolist() == [2, 3]


def test_collate_allows_an_empty_target():
    batch = collate([[4]], [[]])
    assert (batch.target_in.tolist(), batch.target_out.tolist()) == ([[BOS]], [[EOS]])
    assert batch.alignment is None
