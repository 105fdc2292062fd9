"""References as the text cites them, "Bahdanau et al., 2015", each with links back to the pages."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from attn_numbers import main_page
from docutils import nodes
from pybtex.database import Entry
from pybtex.plugin import register_plugin
from pybtex.style.formatting.unsrt import Style as UnsrtStyle
from pybtex.style.labels import BaseLabelStyle
from sphinx.application import Sphinx

NAME = "author-year"


def author_year(entry: Entry) -> str:
    """``Bahdanau et al., 2015``."""
    people = entry.persons.get("author") or entry.persons.get("editor") or []
    names = [" ".join(person.prelast_names + person.last_names) for person in people]
    names = [name.replace("{", "").replace("}", "") for name in names]
    who = f"{names[0]} et al." if len(names) > 2 else " and ".join(names) or entry.key
    return f"{who}, {entry.fields.get('year', 'n.d.')}"


class AuthorYearLabels(BaseLabelStyle):
    """Labels that two papers of one year do not share: ``2016a``, ``2016b``."""

    def format_labels(self, sorted_entries: Iterable[Entry]) -> Iterator[str]:
        labels = [author_year(entry) for entry in sorted_entries]
        total, seen = Counter(labels), Counter[str]()
        for label in labels:
            seen[label] += 1
            yield label + (chr(96 + seen[label]) if total[label] > 1 else "")


class Style(UnsrtStyle):
    """The usual entries, in the order of the alphabet."""

    default_sorting_style = "author_year_title"
    default_label_style = AuthorYearLabels


def link_back(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Name the pages that cite an entry; each name leads to the first place."""
    if not any(doctree.findall(nodes.citation)):
        return
    domain: Any = app.env.get_domain("cite")
    keys = {one.citation_id: one.key for one in domain.citations}
    order = list(app.env.toctree_includes.get(app.config.root_doc, ()))

    def place(page: str) -> int:
        return order.index(page) if page in order else len(order)

    cited: dict[str, dict[str, str]] = {}
    for ref in domain.citation_refs:
        for target in ref.targets:
            cited.setdefault(target.key, {}).setdefault(ref.docname, ref.citation_ref_id)
    for entry in doctree.findall(nodes.citation):
        key = next((keys[name] for name in entry["ids"] if name in keys), None)
        places = cited.get(key or "", {})
        if not places:
            continue
        line = nodes.paragraph("", "Cited in: ", classes=["attn-cited"])
        pages = sorted(places, key=lambda n: (place(main_page(n)), n))
        for number, page in enumerate(pages):
            uri = f"{app.builder.get_relative_uri(docname, page)}#{places[page]}"
            title = app.env.titles[page].astext() if page in app.env.titles else page
            link = nodes.reference("", title, internal=True, refuri=uri)
            line += [nodes.Text("; " if number else ""), link]
        entry += line


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the style and the links."""
    register_plugin("pybtex.style.formatting", NAME, Style)
    app.connect("doctree-resolved", link_back)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
