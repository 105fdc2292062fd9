"""One PDF of the book: printed by Chromium page by page, then joined with links and bookmarks."""

import datetime
import mimetypes
import os
import time
from html import escape
from io import BytesIO
from typing import Any
from urllib.parse import unquote, urlsplit

from lxml import html

from .common import Book, fail, say
from .paper import article, depth, element, pages, parts, title

LIMIT = 25  # sheets that one page of the site may fill
PLACE = "http://book.invalid/"  # where the pages seem to be: requests are answered from the folder
PAPER = {"format": "A4", "margin": dict(top="17mm", bottom="20mm", left="18mm", right="18mm")}
WIDTH = 657  # CSS pixels of the text on it


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
    places.extend(element("a", href=f"#{one}") for one in body.xpath(".//@id"))
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
    body = element("article", class_="bd-article attn-cover")
    body.append(element("h1", str(book.config["title"])))
    body.append(element("p", str(book.config["author"])))
    today = datetime.date.today()
    place = element("p", f"{today:%d %B %Y}. The pages with their explorers, notebooks and exercises: ")
    place.append(element("a", book.site, href=book.site))
    body.append(place)
    return body


def contents(book: Book, names: list[str], titles: dict[str, str], starts: dict[str, int]) -> Any:
    body = element("article", class_="bd-article attn-contents")
    body.append(element("h1", "Contents"))
    captions = parts(book)
    for name in names:
        if caption := captions.get(name):
            body.append(element("h2", caption))
        line = element("p", class_=f"attn-depth-{depth(name)}")
        line.append(element("a", titles[name], href=f"{PLACE}{name}.html"))
        line.append(element("span", str(starts.get(name, ""))))
        body.append(line)
    return body


def make_pdf(book: Book) -> None:
    """Print the book into ``_build/downloads/attention.pdf``; each page at most ``LIMIT`` sheets."""
    from playwright.sync_api import sync_playwright
    from pypdf import PdfReader

    start = time.monotonic()
    names = pages(book)
    printed: dict[str, PdfReader] = {}
    titles: dict[str, str] = {}
    sections: dict[str, list[tuple[str, str]]] = {}
    with sync_playwright() as playwright:
        made: dict[str, str] = {}
        chromium = launch(playwright)
        tab = chromium.new_page(viewport={"width": WIDTH, "height": 900})

        def answer(route: Any) -> None:
            path = unquote(urlsplit(route.request.url).path).lstrip("/")
            file = book.html / path
            if path in made:
                route.fulfill(body=made[path], content_type="text/html")
            elif file.is_file():
                route.fulfill(body=file.read_bytes(), content_type=mimetypes.guess_type(path)[0])
            else:
                route.abort()

        tab.route(f"{PLACE}**", answer)
        tab.emulate_media(media="print", color_scheme="light")

        def put(name: str, body: Any) -> PdfReader:
            made[f"{name}.html"] = whole(book, name, body)
            tab.goto(f"{PLACE}{name}.html", wait_until="load")
            tab.evaluate("document.fonts.ready.then(() => dispatchEvent(new Event('beforeprint')))")
            made.pop(f"{name}.html")
            return PdfReader(BytesIO(tab.pdf(print_background=True, **PAPER)))

        for name in names:
            body = article(book, name, lambda address: PLACE + address)
            titles[name] = title(body)
            sections[name] = [
                (title(one), one.get("id")) for one in body.xpath(".//section[h2][@id]")
            ]
            printed[name] = put(name, body)
        printed = {"cover": put("cover", cover(book)), "contents": printed_contents(), **printed}
