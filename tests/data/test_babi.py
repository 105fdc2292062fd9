"""Generated stories against a simulator that knows nothing but the printed words."""

import re
from collections import Counter
from functools import partial
from typing import Any

import pytest
import torch
from mutation import rejects_changes
from refusals import refused

from attn_course.data import BABI_TASKS, PAD, UNK, Vocabulary, babi_batch, read_babi
from attn_course.data.babi import BABI_VOCABULARY
from attn_course.data.stories import Story, encode_stories

FACTS = {"one_supporting_fact": 1, "two_supporting_facts": 2, "three_supporting_facts": 3}
GO = re.compile(r"(\w+) (?:moved|went|journeyed|travelled) to the (\w+)")
TAKE = re.compile(r"(\w+) (?:took|got|grabbed|picked up) the (\w+) there")
DROP = re.compile(r"(\w+) (?:dropped|left|discarded|put down) the (\w+)")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Witness:
    """Reads sentences one by one; refuses what cannot happen.

    With ``gaps`` it has been told parts of a story only, and believes what it hears.
    """

    def __init__(self, gaps: bool = False) -> None:
        self.gaps = gaps
        self.at: dict[str, str] = {}
        self.held_by: dict[str, str] = {}
        self.way: dict[str, list[str | None]] = {}

    def hear(self, sentence: str) -> None:
        if found := GO.fullmatch(sentence):
            who, where = found.groups()
            assert self.gaps or self.at.get(who) != where, "moves to where it is"
            self.at[who] = where
            for thing, holder in self.held_by.items():
                if holder == who:
                    self.way[thing].append(where)
        elif found := TAKE.fullmatch(sentence):
            who, thing = found.groups()
            assert thing not in self.held_by, "takes what is held"
            here = self.at.get(who)
            assert self.gaps or here, "takes something at an unknown place"
            assert self.gaps or self.way.get(thing, [here])[-1] == here, "takes what is elsewhere"
            self.held_by[thing] = who
            self.way.setdefault(thing, [here])
        else:
            found = DROP.fullmatch(sentence)
            assert found, f"not a sentence: {sentence!r}"
            who, thing = found.groups()
            assert self.held_by.pop(thing, who if self.gaps else None) == who, "drops nothing"
            self.way.setdefault(thing, [self.at.get(who)])

    def answer(self, question: str) -> str | None:
        """None when the story does not tell."""
        if found := re.fullmatch(r"Where is (\w+)", question):
            return self.at.get(found[1])
        if found := re.fullmatch(r"Where is the (\w+)", question):
            return self.way.get(found[1], [None])[-1]
        if found := re.fullmatch(r"Where was the (\w+) before the (\w+)", question):
            way = self.way.get(found[1], [])
            places = [i for i in range(1, len(way)) if way[i] == found[2]]
            return way[places[-1] - 1] if places else None
        if found := re.fullmatch(r"Is (\w+) in the (\w+)", question):
            if found[1] not in self.at:
                return None
            return "yes" if self.at[found[1]] == found[2] else "no"
        found = re.fullmatch(r"How many objects is (\w+) carrying", question)
        assert found, f"not a question: {question!r}"
        count = sum(holder == found[1] for holder in self.held_by.values())
        return ("none", "one", "two", "three")[count]


def retell(sentences: list[str], question: str, *, gaps: bool = False) -> str | None:
    witness = Witness(gaps)
    for sentence in sentences:
        witness.hear(sentence)
    return witness.answer(question)


def check_task(name: str, draw: Any) -> None:
    """Every answer is right, follows from the support, and needs every sentence of it."""
    for story in draw(150, generator(3), min_sentences=5, max_sentences=12):
        sentences, question = [" ".join(s) for s in story.sentences], " ".join(story.question)
        assert retell(sentences, question) == story.answer
        assert story.support == tuple(sorted(set(story.support)))
        if name in FACTS:
            assert len(story.support) == FACTS[name]
        if name == "counting":
            who = story.question[4]
            deeds = [i for i, s in enumerate(sentences) if s.startswith(who) and not GO.match(s)]
            assert list(story.support) == deeds
            continue
        kept = [sentences[place] for place in story.support]
        assert retell(kept, question, gaps=True) == story.answer
        for left_out in range(len(kept)):
            rest = kept[:left_out] + kept[left_out + 1 :]
            assert retell(rest, question, gaps=True) != story.answer
        if name == "three_supporting_facts":
            now = f"Where is the {story.question[3]}"
            assert retell(sentences, now) == story.question[-1]


@pytest.mark.parametrize("name", BABI_TASKS)
def test_answers_and_support_agree_with_a_simulator_that_reads_the_words(name: str) -> None:
    check_task(name, BABI_TASKS[name])


test_the_simulator_rejects_a_changed_line = rejects_changes(
    {name: partial(check_task, name) for name in BABI_TASKS}, "attn_course.data.babi",
    ("one_supporting_fact", 'past["place"][-1][person]', 'past["place"][0][person]'),
    ("two_supporting_facts", "-1 if held else touched", "-1"),
    ("two_supporting_facts", "-1 if held else touched", "touched"),
    ("two_supporting_facts", 'past["lies"][-1][thing]', 'past["lies"][-2][thing]'),
    ("three_supporting_facts", "PLACES[way[t]], support", "PLACES[way[t + 1]], support"),
    ("three_supporting_facts", "reversed(range(len(way) - 1))", "range(len(way) - 1)"),
    ("yes_no", 'yield words, "yes" if', 'yield words, "no" if'),
    ("counting", '["holder"][-1].count', '["holder"][-2].count'),
    ("counting", "actor == person and kind != MOVE", "actor == person"),
    error=(AssertionError, IndexError),
)  # fmt: skip


def test_lengths_are_equally_frequent_though_few_short_stories_can_be_asked() -> None:
    draw = BABI_TASKS["three_supporting_facts"]
    stories = draw(600, generator(), min_sentences=4, max_sentences=9)
    counts = Counter(len(story.sentences) for story in stories)
    assert set(counts) == set(range(4, 10))
    assert all(60 < count < 140 for count in counts.values())  # 100, four standard deviations


def test_yes_and_no_are_equally_frequent_and_no_answer_dominates() -> None:
    answers = Counter(s.answer for s in BABI_TASKS["yes_no"](1000, generator()))
    assert 430 < answers["yes"] < 570
    for name in FACTS:
        answers = Counter(s.answer for s in BABI_TASKS[name](600, generator()))
        assert len(answers) == 6
        assert max(answers.values()) < 0.25 * 600


def test_without_synonyms_every_deed_has_one_verb() -> None:
    stories = BABI_TASKS["two_supporting_facts"](100, generator(), synonyms=False)
    words = {word for story in stories for sentence in story.sentences for word in sentence}
    assert {"moved", "took", "dropped"} <= words
    assert not words & {"went", "got", "picked", "left", "put", "journeyed"}
    stories = BABI_TASKS["two_supporting_facts"](300, generator())
    words = {word for story in stories for sentence in story.sentences for word in sentence}
    assert {"went", "grabbed", "picked", "put", "down", "travelled", "discarded"} <= words


def test_batch_by_hand() -> None:
    said = (("Mary", "left"), ("John", "went", "to"), ("Mary", "got"))
    stories = [
        Story(sentences=said, question=("Where",), answer="office", support=(0, 2)),
        Story(sentences=(("John",),), question=("Is", "John"), answer="sofa"),
    ]
    words = Vocabulary(["Mary", "John", "left", "went", "to", "got", "Where", "Is", "office"])
    batch = encode_stories(stories, words)
    assert batch.story.tolist() == [
        [[4, 6, PAD], [5, 7, 8], [4, 9, PAD]],
        [[5, PAD, PAD], [PAD] * 3, [PAD] * 3],
    ]
    assert batch.question.tolist() == [[10, PAD], [11, 5]]
    assert batch.answer.tolist() == [12, UNK]
    assert batch.support.tolist() == [[True, False, True], [False] * 3]
    assert len(batch) == 2
    recent = encode_stories(stories, words, max_sentences=2)
    assert recent.story.tolist()[0] == [[5, 7, 8], [4, 9, PAD]]
    assert recent.support.tolist() == [[False, True], [False, False]]
    moved = batch.to("meta")
    assert {moved.story.device.type, moved.support.device.type} == {"meta"}


@pytest.mark.parametrize("name", BABI_TASKS)
def test_every_word_is_in_the_vocabulary(name: str) -> None:
    batch = babi_batch(200, generator(), task=name)
    stories = BABI_TASKS[name](200, generator())
    assert BABI_TASKS[name](0, generator()) == []
    for ids in (batch.story, batch.question, batch.answer):
        assert not (ids == UNK).any()
    row = [BABI_VOCABULARY.decode(ids) for ids in batch.story[7]]
    assert [tuple(words) for words in row if words] == list(stories[7].sentences)
    assert batch.support.sum(1).tolist() == [len(story.support) for story in stories]


def test_a_story_prints_with_its_support() -> None:
    story = Story(sentences=(("a", "b"),), question=("c",), answer="d", support=(0,))
    assert str(story) == "0 a b.\nc? d (0)"


ORIGINAL = """\
1 Mary moved to the bathroom.
2 John went to the hallway.
3 Where is Mary? \tbathroom\t1
4 Daniel went back to the hallway.
5 What is Daniel carrying? \tapple,milk\t4 2
1 The office is north of the kitchen.
2 What is north of the kitchen?\toffice\t1
"""


def test_original_format_by_hand(tmp_path: Any) -> None:
    path = tmp_path / "qa.txt"
    for text in (ORIGINAL, ORIGINAL.replace("\n", "\r\n"), ORIGINAL + "\n\n", ORIGINAL.rstrip()):
        path.write_bytes(text.encode())
        first, second, third = read_babi(path)
        assert first == Story(
            sentences=tuple(tuple(line.split()[1:]) for line in ORIGINAL.split(".\n")[:2]),
            question=("Where", "is", "Mary"), answer="bathroom", support=(0,),
        )  # fmt: skip
        assert len(second.sentences) == 3  # the first question is no sentence
        assert second.answer == "apple,milk"
        assert second.support == (2, 1)  # line 4 is the third sentence
        assert third.sentences == (("The", "office", "is", "north", "of", "the", "kitchen"),)
        assert read_babi(str(path)) == [first, second, third]


def test_generated_stories_survive_the_original_format(tmp_path: Any) -> None:
    stories = BABI_TASKS["two_supporting_facts"](30, generator())
    lines = []
    for story in stories:
        lines += [f"{i} {' '.join(words)}." for i, words in enumerate(story.sentences, start=1)]
        support = " ".join(str(place + 1) for place in story.support)
        question = f"{' '.join(story.question)}? \t{story.answer}\t{support}"
        lines.append(f"{len(story.sentences) + 1} {question}")
    path = tmp_path / "qa2.txt"
    path.write_text("\n".join(lines) + "\n")
    assert read_babi(path) == stories


@pytest.mark.parametrize(("text", "line", "complaint"), [
    ("Mary moved.\n", 1, "expected a line number, got 'Mary'"),
    ("1 Mary moved.\n3 Where is Mary?\ta\t1\n", 2, "expected number 2 or 1, got 3"),
    ("2 Mary moved.\n", 1, "expected number 1, got 2"),
    ("1 Mary moved.\n0 John moved.\n", 2, "expected a line number, got '0'"),
    ("1 Mary moved.\n-2 John moved.\n", 2, "expected a line number, got '-2'"),
    ("1 Mary moved.\n2\n", 2, "expected words"),
    ("1 Mary moved.\n2 .\n", 2, "expected words"),
    ("1 Mary moved.\n\n2 Where is Mary?\t\t1\n", 3, "expected question, answer"),
    ("1 Mary moved.\n2 Where is Mary?\ta\t1\t1\n", 2, "expected question, answer"),
    ("1 Mary moved.\n2 ?\ta\t1\n", 2, "expected words"),
    ("1 Mary moved.\n2 Where is Mary?\ta\t2\n", 2, "expected the number of an earlier"),
    ("1 Mary moved.\n2 Where?\ta\t1\n3 Where?\ta\t2\n", 3, "an earlier sentence, got '2'"),
    ("1 Mary moved.\n2 Where is Mary?\ta\tone\n", 2, "an earlier sentence, got 'one'"),
    ("1 Where is Mary?\ta\t1\n", 1, "expected a sentence before the question"),
    ("9" * 5000 + " Mary moved.\n", 1, "expected a line number"),
    ("1 Mary moved.\n2 Where is Mary?\thome\t" + "9" * 5000 + "\n", 2, "expected the number"),
])  # fmt: skip
def test_malformed_lines_are_refused_with_their_number(tmp_path, text, line, complaint):
    path = tmp_path / "qa.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(complaint)) as error:
        read_babi(path)
    assert str(error.value).startswith(f"{path}:{line}: ")


def test_files_without_questions_or_of_other_encoding_are_refused(tmp_path: Any) -> None:
    path = tmp_path / "qa.txt"
    for text in ("", "1 Mary moved.\n"):
        path.write_text(text)
        refused("expected at least one question, got none", read_babi, path)
    path.write_bytes(b"1 Mary moved.\n2 Where is Zo\xe9?\ta\t1\n")
    refused(r"qa\.txt:2: expected UTF-8", read_babi, path)


def test_support_may_be_missing(tmp_path: Any) -> None:
    path = tmp_path / "qa.txt"
    path.write_text("1 Mary moved to the office.\n2 Where is Mary?\toffice\n")
    assert read_babi(path)[0].support == ()
