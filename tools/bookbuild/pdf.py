"""One PDF of the book: printed by Chromium page by page, then joined with links and bookmarks."""

import datetime
import mimetypes
import os
import re
import time
from html import escape
from io import BytesIO
from typing import Any
from urllib.parse import unquote, urlsplit

from lxml import html
from pypdf import PdfReader, PdfWriter
from pypdf.generic import (
    ArrayObject,
    DecodedStreamObject,
    DictionaryObject,
    Fit,
    FloatObject,
    NameObject,
    NullObject,
)

from .common import Book, fail, say
from .paper import article, depth, element, having, heading, pages, parts

Places = dict[str, tuple[int, float | None]]  # address to sheet and height on it
Sections = dict[str, list[tuple[str, str]]]

LIMIT = 25  # sheets that one page of the site may fill
PLACE = "http://book.invalid/"  # where the pages seem to be: requests are answered from the folder
MARGIN = {"top": "17mm", "bottom": "20mm", "left": "18mm", "right": "18mm"}
PAPER = {"format": "A4", "margin": MARGIN}
WIDTH = 657  # CSS pixels of the text on it
SHORT, SMALLER = 0.25, 0.96  # a last sheet that is filled less goes if this scale saves it
END = "attn-end"  # the place behind the text
NUMBER = """(sheets) => document.querySelectorAll("a.attn-paged").forEach((link) => {
  link.querySelector("span")?.remove();
  link.insertAdjacentHTML("beforeend", `<span> on page ${sheets[link.hash.slice(1)]}</span>`);
})"""


def launch(playwright: Any) -> Any:
    """Chromium: ``$CHROMIUM``, the system's, or Playwright's own."""
    from setup import find_chromium  # tools/setup.py

    if (path := find_chromium()) is None:
        fail(
            "Chromium prints the PDF, and there is none: run 'make browser', or install it "
            "(Debian: apt-get install chromium), or set CHROMIUM=/path/to/it"
        )
    return playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])


def whole(book: Book, name: str, body: Any) -> str:
    """The page around a text: the style of the site, and hidden links to every place in it.

    Chromium gives a place a name in the PDF when a link of the same page leads to it.
    """
    up = "../" * name.count("/")
    styles = html.parse(str(book.html / "intro.html")).xpath("//link[@rel='stylesheet']/@href")
    links = [*styles, "_explorers/explorers.css"]
    places = element("nav", hidden="")
    for place in body.xpath(".//*[@id][not(ancestor-or-self::svg)]/@id"):
        places.append(element("a", href=f"#{place}"))
    body.append(places)
    return (
        '<!doctype html><html lang="en" data-theme="light" data-mode="light" class="attn-book">'
        f'<head><meta charset="utf-8"><title>{escape(name)}</title>'
        + "".join(f'<link rel="stylesheet" href="{up}{escape(one)}">' for one in links)
        + f'<script src="{up}_static/attn.js"></script></head><body>'
        + html.tostring(body, encoding="unicode")
        + "</body></html>"
    )


def cover(book: Book) -> Any:
    front = article(book, "intro", str)
    body = element("article", class_="bd-article attn-cover")
    body.append(element("h1", str(book.config["title"])))
    body.extend(element("p", words) for words in front.xpath(".//section[h1]/p[1]/text()[1]"))
    body.extend(having(front, "attn-x")[:1])
    foot = element("p", f"{book.config['author']}, {datetime.date.today():%-d %B %Y}")
    foot.append(element("a", book.site, href=book.site))
    body.append(foot)
    return body


def contents(book: Book, titles: dict[str, str], starts: dict[str, int]) -> Any:
    body = element("article", class_="bd-article attn-contents")
    body.append(element("h1", "Contents"))
    captions = parts(book)
    for name in [*titles][2:]:
        if caption := captions.get(name):
            body.append(element("h2", caption))
        line = element("p", class_=f"attn-depth-{depth(name)}")
        line.append(element("a", titles[name], href=f"{PLACE}{name}.html"))
        line.append(element("span", str(starts.get(name, ""))))
        body.append(line)
    return body


class Press:
    """A tab of Chromium that prints pages whose files come from the folder of the site."""

    def __init__(self, book: Book, chromium: Any) -> None:
        self.book, self.made = book, dict[str, str]()
        self.tab = chromium.new_page(viewport={"width": WIDTH, "height": 900})
        self.tab.route("**/*", self.answer)
        self.tab.emulate_media(media="print", color_scheme="light")

    def answer(self, route: Any) -> None:
        path = unquote(urlsplit(route.request.url).path).lstrip("/")
        file = self.book.html / path
        if path in self.made:
            route.fulfill(body=self.made[path], content_type="text/html")
        elif path.endswith("attn.css"):  # on screen a face that comes late is not used
            style = file.read_text(encoding="utf-8").replace("font-display: optional", "")
            route.fulfill(body=style, content_type="text/css")
        elif route.request.url.startswith(PLACE) and file.is_file():
            route.fulfill(body=file.read_bytes(), content_type=mimetypes.guess_type(path)[0])
        else:
            route.abort()

    def put(self, name: str, body: Any, first: int = 0) -> PdfReader:
        """Print one page, whose first sheet has the number ``first``.

        Questions and answers name each other's sheets: it is printed until these numbers stay.
        """
        body.append(element("p", id=END))
        self.made = {f"{name}.html": whole(self.book, name, body)}
        self.tab.goto(f"{PLACE}{name}.html")
        self.tab.evaluate("document.fonts.ready.then(() => {})")
        numbers, scale = dict.fromkeys(body.xpath(".//@id"), first), 1.0
        for _ in range(4):
            self.tab.evaluate(NUMBER, numbers)
            printed = self.sheets(scale)
            if scale == 1.0 and filled(printed) < SHORT:
                smaller = self.sheets(SMALLER)
                if len(smaller.pages) < len(printed.pages):
                    printed, scale = smaller, SMALLER
            last, numbers = numbers, {one: first + at for one, (at, _) in landed(printed).items()}
            if not having(body, "attn-paged") or numbers == last:
                break
        return printed

    def sheets(self, scale: float) -> PdfReader:
        return PdfReader(BytesIO(self.tab.pdf(print_background=True, scale=scale, **PAPER)))


def landed(printed: PdfReader) -> Places:
    """Where the named places of one page are."""
    return {
        unquote(name[1:]): (printed.get_destination_page_number(found) or 0, found.top)
        for name, found in printed.named_destinations.items()
    }


def filled(printed: PdfReader) -> float:
    """Share of the last sheet above the end of the text."""
    return 1 - float(landed(printed)[END][1] or 0) / 842


def join(printed: dict[str, PdfReader], titles: dict[str, str]) -> tuple[PdfWriter, Places]:
    """All sheets in one file, numbered and linked, and where each place of the site is in it."""
    writer, places = PdfWriter(), Places()
    for name, reader in printed.items():
        first = len(writer.pages)
        places[f"{name}.html"] = (first, None)
        for place, (sheet, top) in landed(reader).items():
            places[f"{name}.html#{place}"] = (first + sheet, top)
        for page in reader.pages:
            writer.add_page(page)
            if name != "cover":
                foot(writer, titles[name])
    for name, reader in printed.items():
        first = places[f"{name}.html"][0]
        for page in writer.pages[first : first + len(reader.pages)]:
            for link in page.get("/Annots", []):
                lead(writer, link.get_object(), name, places)
    return writer, places


def lead(writer: PdfWriter, link: Any, name: str, places: Places) -> None:
    """Make a link into the book one to a sheet of the file."""
    if "/Dest" in link:
        target = f"{name}.html#{unquote(str(link['/Dest'])[1:])}"
    else:
        target = unquote(str(link["/A"].get("/URI", ""))).removeprefix(PLACE)
    found = places.get(target) or places.get(target.partition("#")[0])
    if found:
        sheet, top = found
        link.pop("/A", None)
        view = [NameObject("/XYZ"), NullObject(), FloatObject(top or 842), NullObject()]
        link[NameObject("/Dest")] = ArrayObject([writer.pages[sheet].indirect_reference, *view])


def foot(writer: PdfWriter, words: str) -> None:
    """Write the title of the page and the number of the sheet below the last one added."""
    sheet, number = writer.pages[-1], str(len(writer.pages))
    shown = ""
    for x, text in ((51, words), (544 - 4.5 * len(number), number)):  # points from the left edge
        safe = re.sub(r"([\\()])", r"\\\1", text)
        shown += f"BT /AttnFoot 8 Tf 0.35 g 1 0 0 1 {x} 34 Tm ({safe}) Tj ET "
    stream = DecodedStreamObject()
    drawn = sheet.get_contents().get_data()
    stream.set_data(b"q " + drawn + b" Q " + shown.encode("cp1252", "replace"))
    sheet[NameObject("/Contents")] = writer._add_object(stream.flate_encode())
    face = {
        "Type": "Font",
        "Subtype": "Type1",
        "BaseFont": "Helvetica",
        "Encoding": "WinAnsiEncoding",
    }
    font = DictionaryObject({NameObject(f"/{a}"): NameObject(f"/{b}") for a, b in face.items()})
    fonts = sheet["/Resources"].setdefault(NameObject("/Font"), DictionaryObject())
    fonts.get_object()[NameObject("/AttnFoot")] = font


def bookmark(
    writer: PdfWriter, book: Book, titles: dict[str, str], sections: Sections, places: Places
) -> None:
    """Parts, chapters with their further pages, sections."""
    captions, above, chapter = parts(book), None, None
    for name, text in titles.items():
        sheet, _ = places[f"{name}.html"]
        if name in captions:
            above = writer.add_outline_item(captions[name], sheet)
        elif not name.startswith("chapters/"):
            above = None
        own = writer.add_outline_item(text, sheet, parent=chapter if depth(name) else above)
        chapter = chapter if depth(name) else own
        for words, place in sections.get(name, []):
            if found := places.get(f"{name}.html#{place}"):
                writer.add_outline_item(words, found[0], parent=own, fit=Fit.xyz(top=found[1]))


def make_pdf(book: Book) -> None:
    """Print the book into ``_build/downloads``; a page fills at most ``LIMIT`` sheets."""
    from playwright.sync_api import sync_playwright

    start, names = time.monotonic(), pages(book)
    texts = {
        name: article(
            book, name, lambda to: (PLACE if to.split(".html")[0] in names else book.site) + to
        )
        for name in names
    }
    titles = {"cover": "Cover", "contents": "Contents"}
    titles |= {name: heading(body) for name, body in texts.items()}
    sections: Sections = {
        name: [(heading(one), one.get("id")) for one in body.xpath(".//section[h2]")]
        for name, body in texts.items()
    }
    printed, starts = dict[str, PdfReader](), dict[str, int]()
    with sync_playwright() as playwright:
        press = Press(book, launch(playwright))
        printed["cover"] = press.put("cover", cover(book))
        printed["contents"] = press.put("contents", contents(book, titles, {}))
        for name, body in texts.items():
            starts[name] = 1 + sum(len(one.pages) for one in printed.values())
            printed[name] = press.put(name, body, starts[name])
            say(f"{name}: {len(printed[name].pages)} sheets")
        printed["contents"] = press.put("contents", contents(book, titles, starts))
    writer, places = join(printed, titles)
    bookmark(writer, book, titles, sections, places)
    writer.add_metadata({"/Title": book.config["title"], "/Author": book.config["author"]})
    writer.page_mode = "/UseOutlines"
    writer.compress_identical_objects()
    file = book.downloads / "attention.pdf"
    file.parent.mkdir(exist_ok=True)
    writer.write(file)
    sheets = {name: len(printed[name].pages) for name in names}
    long = [f"{name} ({count})" for name, count in sheets.items() if count > LIMIT]
    if long:
        fail(f"longer than {LIMIT} printed pages: {', '.join(long)}")
    say(
        f"{os.path.relpath(file)}: {len(writer.pages)} pages, {file.stat().st_size / 1e6:.1f} MB, "
        f"{time.monotonic() - start:.0f} s; longest {max(sheets, key=lambda one: sheets[one])}: "
        f"{max(sheets.values())}"
    )
