"""What surrounds a page: notebook and launch buttons, social meta tags, no foreign scripts."""

import html
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from bookbuild.common import Book, slug

LOGGER = logging.getLogger(__name__)
#: Sphinx adds these for features that the book does not use, or that load foreign scripts.
UNWANTED_SCRIPTS = re.compile(r"thebe|togglebutton|toggleHint|toggleOpen", re.IGNORECASE)
UNWANTED_STYLES = re.compile(r"thebe|togglebutton", re.IGNORECASE)
PAGES_BRANCH = "gh-pages"


def notebook_path(pagename: str) -> str:
    """Where the notebook of a page is published, seen from the root of the site."""
    return f"_notebooks/{slug(pagename)}.ipynb"


def launch_urls(repository: str, path: str) -> dict[str, str]:
    """Addresses that open a published notebook on a machine of somebody else.

    Args:
        repository: address of the repository, from ``_config.yml``.
        path: path of the notebook on the branch that holds the site.

    Returns:
        ``colab`` and ``binder``.
    """
    owner_and_name = urlsplit(repository).path.strip("/")
    return {
        "colab": f"https://colab.research.google.com/github/{owner_and_name}"
        f"/blob/{PAGES_BRANCH}/{quote(path)}",
        "binder": f"https://mybinder.org/v2/gh/{owner_and_name}/{PAGES_BRANCH}"
        f"?urlpath=lab/tree/{quote(path)}",
    }


def has_code(app: Sphinx, pagename: str) -> bool:
    """True for pages that are notebooks."""
    return "kernelspec" in app.env.metadata.get(pagename, {})


def add_buttons(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Offer the page as a notebook: for download, on Colab, on Binder."""
    if doctree is None or not has_code(app, pagename):
        return
    path = notebook_path(pagename)
    urls = launch_urls(app.config.html_theme_options["repository_url"], path)
    group = {
        "type": "group",
        "tooltip": "Run this page",
        "icon": "fa-solid fa-play",
        "label": "launch-buttons",
        "buttons": [
            {
                "type": "link",
                "url": context["pathto"](path, 1),
                "text": "Download notebook",
                "tooltip": "Download this page as a Jupyter notebook",
                "icon": "fa-solid fa-download",
                "label": "download-notebook-button",
            },
            {
                "type": "link",
                "url": urls["colab"],
                "text": "Open in Colab",
                "tooltip": "Run this page on Google Colab",
                "icon": "fa-solid fa-play",
                "label": "launch-colab-button",
            },
            {
                "type": "link",
                "url": urls["binder"],
                "text": "Open in Binder",
                "tooltip": "Run this page on mybinder.org",
                "icon": "fa-solid fa-play",
                "label": "launch-binder-button",
            },
        ],
    }
    context["header_buttons"].insert(0, group)


def description(doctree: nodes.document) -> str:
    """The first paragraph of a page, cut at a word."""
    for paragraph in doctree.findall(nodes.paragraph):
        text = " ".join(paragraph.astext().split())
        if len(text) > 40:
            return text if len(text) <= 200 else text[:200].rsplit(" ", 1)[0] + " …"
    return ""


def add_meta(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """OpenGraph and description, made of the page's own title and first paragraph."""
    if doctree is None:
        return
    title = html.escape(re.sub(r"<[^>]+>", "", context.get("title", "")), quote=True)
    text = html.escape(description(doctree), quote=True)
    url = app.config.html_baseurl.rstrip("/") + f"/{pagename}.html"
    site = html.escape(app.config.html_title, quote=True)
    properties = {"title": title, "type": "article", "url": url, "site_name": site}
    tags = [f'<meta property="og:{key}" content="{value}">' for key, value in properties.items()]
    if text:
        tags.append(f'<meta property="og:description" content="{text}">')
        tags.append(f'<meta name="description" content="{text}">')
    context["metatags"] = context.get("metatags", "") + "\n".join(tags)


def drop_unwanted(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Remove what other extensions add for features that the book does not use."""

    def name(item: Any) -> str:
        inline = getattr(item, "attributes", {}).get("body") or ""
        return f"{getattr(item, 'filename', item)}{inline}"

    for key, pattern in (("script_files", UNWANTED_SCRIPTS), ("css_files", UNWANTED_STYLES)):
        if key in context:
            context[key][:] = [item for item in context[key] if not pattern.search(name(item))]


def name_toggles(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """The arrows that unfold a part of the contents have no text: say what they do."""
    original = context.get("generate_toctree_html")
    if original is None:
        return

    def generate(*args: Any, **options: Any) -> Any:
        made = original(*args, **options)
        if isinstance(made, str):
            return made.replace("<summary>", '<summary aria-label="Show pages of this part">')
        for summary in getattr(made, "select", lambda _: ())("summary"):
            summary["aria-label"] = "Show pages of this part"
        return made

    context["generate_toctree_html"] = generate


#: Names, punctuation and spaces of code, to which both Pygments styles give the colour of the text:
#: a fifth of a page's elements.
UNCOLOURED = re.compile(r'<span class="(?:n|p|w|nn|nx|pm)">([^<]*)</span>')


def plain_markup(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Drop elements without a look, and the role of a list from what holds no entries of a list."""
    if "body" in context:
        context["body"] = UNCOLOURED.sub(r"\1", context["body"]).replace(
            '<div role="list" class="citation-list">', '<div class="citation-list">'
        )


#: The theme asks every box whether it scrolls, at the start and after each change of a page, which
#: lays out sections that nobody has come to yet; attn.js asks a box when it comes near.
MEASURES_ALL = (
    "e.tabIndex=e.scrollWidth>e.clientWidth||e.scrollHeight>e.clientHeight?0:-1",
    "void 0",
)


def calm_theme(app: Sphinx, error: Exception | None) -> None:
    """Take the measuring of all boxes out of the theme's script."""
    if error is not None or app.builder.format != "html":
        return
    path = Path(app.outdir) / "_static" / "scripts" / "pydata-sphinx-theme.js"
    text = path.read_text(encoding="utf-8")
    if MEASURES_ALL[0] in text:
        path.write_text(text.replace(*MEASURES_ALL), encoding="utf-8")
    elif MEASURES_ALL[1] not in text:
        LOGGER.warning("%s has changed: attn_page no longer finds what it takes out", path.name)


def silence_thebe(app: Sphinx) -> None:
    """sphinx-thebe, which jupyter-book always loads, writes its settings into every page."""
    for name in ("doctree-resolved", "env-before-read-docs", "builder-inited"):
        for listener in list(app.events.listeners.get(name, ())):
            if listener.handler.__module__.startswith("sphinx_thebe"):
                app.disconnect(listener.id)


def name_downloads(app: Sphinx, config: Any) -> None:
    """The substitution ``downloads``: the book as one file, where the site is published."""
    site = Book(source=Path(app.srcdir)).site
    kinds = {"PDF": "pdf", "EPUB": "epub", "a zip of the site": "zip"}
    links = [f"[{words}]({site}attention.{end})" for words, end in kinds.items()]
    config.myst_substitutions = {"downloads": ", ".join(links), **config.myst_substitutions}


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the page hooks; they run after those of the theme."""
    app.connect("config-inited", name_downloads, priority=100)
    app.connect("config-inited", lambda app, config: silence_thebe(app))
    app.connect("html-page-context", add_buttons, priority=900)
    app.connect("html-page-context", add_meta, priority=900)
    app.connect("html-page-context", name_toggles, priority=901)
    app.connect("html-page-context", plain_markup, priority=901)
    app.connect("html-page-context", drop_unwanted, priority=901)
    app.connect("build-finished", calm_theme)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
