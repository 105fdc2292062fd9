"""A feedback page tells a student what to look at, and nothing on it can act or give away."""

from html.parser import HTMLParser

import classroom
import pytest

from attn_course.exercises.testcell import TestResult as One
from attn_course.grading.feedback import feedback_page, write_feedback
from attn_course.grading.results import Result

EVIL = [
    "<script>window.ran = 1</script>",
    "</pre></section><script>window.ran = 1</script>",
    "<img src=x onerror='window.ran = 1'>",
    '" onload="window.ran = 1',
    "<svg/onload=window.ran=1>",
    "</title><script>window.ran = 1</script>",
    "<iframe srcdoc='<script>parent.ran = 1</script>'></iframe>",
    "<meta http-equiv=refresh content='0;url=javascript:window.ran=1'>",
    "<base href='https://example.org/'>",
    "&lt;script&gt;window.ran = 1&lt;/script&gt;",
    "<!-- --><style>*{display:none}</style>",
    "javascript:window.ran=1",
]
PLAIN = {"html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "section"}
PLAIN |= {"span", "pre", "footer", "code"}


def evil_result(text):
    tests = (One("f-a", 0.0, 1.0, text, text), One(text, None, 1.0, text))
    marks = {"score": 0.0, "max_score": 2.0, "tests": tests, "status": "needs_review"}
    words = {"reason": text, "notes": (text,), "pending": (text,), "comments": {text: text}}
    return Result(student=text, assignment="small", **marks, **words)


class Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, source):
        super().__init__()
        self.tags = []
        self.text = ""
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("text", EVIL)
def test_what_a_student_wrote_is_text_and_nothing_else(text):
    page, calm = Page(feedback_page(evil_result(text))), Page(feedback_page(evil_result("calm")))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in calm.tags]
    assert {tag for tag, _ in page.tags} <= PLAIN
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name in ("src", "href")]
        if tag == "meta" and "http-equiv" in attributes:
            assert attributes["http-equiv"] == "Content-Security-Policy"
            assert "default-src 'none'" in str(attributes["content"])
            assert "script" not in str(attributes["content"])
    assert page.text.count(text) >= 5


@pytest.mark.browser
def test_nothing_runs_in_a_browser(tmp_path, chromium):
    """Chromium, first with the page as it is, then without its policy: escaping alone holds."""
    write_feedback([evil_result(text) for text in EVIL], tmp_path)
    files = sorted(tmp_path.glob("*/*.html"))
    assert len(files) == len(EVIL)
    bare = []
    for number, path in enumerate(files):
        source = path.read_text()
        assert "Content-Security-Policy" in source
        bare.append(tmp_path / f"bare{number}.html")
        bare[-1].write_text(source.replace("Content-Security-Policy", "X-Nothing"))
    control = tmp_path / "control.html"
    control.write_text(f"<body>{EVIL[0]}</body>")
    page = chromium.new_page()
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(control.as_uri())
    assert page.evaluate("window.ran") == 1, "the control must run"
    for path in [*files, *bare]:
        page.goto(path.as_uri())
        assert page.evaluate("window.ran") is None, path
        assert page.evaluate("document.scripts.length") == 0
        assert page.is_visible("h1")
    assert all(url.startswith("file:") for url in requests)
    page.close()


def test_no_source_of_a_hidden_test_is_told(grade):
    """Whatever goes wrong, and however the submission raises."""
    stack = """import traceback, inspect, sys
def double(x):
    frames = [inspect.getsource(f.frame) for f in inspect.stack() if f.filename != "<x>"]
    raise ValueError("".join(frames) + "".join(traceback.format_stack()))"""
    answers = [
        {"double": "def double(x):\n    return 3 * x"},
        {"double": stack},
        {"double": "def double(x):\n    raise KeyError(x)"},
        {"double": "def double(x):\n    return object()"},
        {"double": "def double(x:\n"},
        {"double": "import os\nos._exit(1)"},
    ]
    for one in answers:
        page = feedback_page(grade(answers=one))
        secrets = ("unlikely-word-5b1e", "assert_close(", "HIDDEN TESTS", "torch.randint(5, 20")
        assert [secret for secret in secrets if secret in page] == []


def test_a_page_says_score_cause_and_what_was_not_graded(grade):
    page = Page(feedback_page(grade(answers=classroom.ANSWERS["half"]))).text
    told = ("feedback for ada", "3 of 5 points", "double-values", "0 of 2", "3 of 3", "seed 7")
    assert [words for words in told if words not in page] == []
    lost = Result(student="bob", assignment="small", status="unreadable", reason="no JSON")
    page = Page(feedback_page(lost)).text
    assert "Not graded: unreadable" in page
    assert "no JSON" in page
    assert "0 of" not in page
    open_page = feedback_page(Result(student="b", assignment="s", status="graded", sandboxed=False))
    assert "without a sandbox" in open_page


def test_output_of_the_notebook_stays_out(grade):
    chatty = "print('my password')\ndef double(x):\n    print('my password')\n    return 3 * x"
    page = feedback_page(grade(answers={"double": chatty}))
    assert "double-values" in page
    assert "my password" not in page
