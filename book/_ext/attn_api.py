"""The package's reference: signatures that a person can read, and links that resolve.

Pages are ordered by subject. ``{names} attn_course.functional`` lists a part's names, each with the
anchor that it had when every part had a page of its own.

Names of other projects are looked up in ``vendor/inventory.yml``, names of the package where the
package exports them. What is in neither place stays an unresolved reference, which fails the build.
"""

import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from numpy.typing import ArrayLike
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import stringify_annotation

PACKAGE = "attn_course"
#: Long spellings that autodoc shows, and the names people write.
SPELLINGS = {
    stringify_annotation(ArrayLike, "smart"): "~numpy.typing.ArrayLike",
    "~torch.nn.modules.module.Module": "~torch.nn.Module",
    "~torch.optim.optimizer.Optimizer": "~torch.optim.Optimizer",
    "~torch._C.Generator": "~torch.Generator",
    "~matplotlib.axes._axes.Axes": "~matplotlib.axes.Axes",
}
#: Defaults that are no Python, and what the source writes: without them the types stay unread.
DEFAULTS = {
    re.compile(r"<class '(?:\w+\.)*(\w+)'>"): r"\1",
    re.compile(r"<function (?:\w+\.)*(\w+)(?: at 0x[0-9a-f]+)?>"): r"\1",
    re.compile(r"<method '(\w+)' of '(\w+)' objects>"): r"\2.\1",
    re.compile(r"<factory>"): "...",
}
#: Where a class says it lives, and where its documentation has it.
ALIASES = {
    "Tensor": "torch.Tensor",
    "ndarray": "numpy.ndarray",
    "Generator": "torch.Generator",
    "ArrayLike": "numpy.typing.ArrayLike",
    "torch.nn.modules.module.Module": "torch.nn.Module",
    "torch.optim.optimizer.Optimizer": "torch.optim.Optimizer",
    "torch._C.Generator": "torch.Generator",
    "matplotlib.axes._axes.Axes": "matplotlib.axes.Axes",
    "anywidget.widget.AnyWidget": "anywidget.AnyWidget",
    "t.Any": "typing.Any",  # how traitlets spells it in the signatures of widgets
}


@cache
def inventory(source: str) -> dict[str, tuple[str, str]]:
    """Name to (project, address), from ``vendor/inventory.yml``."""
    path = Path(source) / "vendor" / "inventory.yml"
    return {
        name: (entry["project"], entry["url"] + page)
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))
        for name, page in entry["names"].items()
    }


def shorten(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str, returns: str
) -> tuple[str, str] | None:
    """Write the types of a signature as the source writes them."""
    if signature is None:
        return None
    for long, short in SPELLINGS.items():
        signature = signature.replace(long, short)
        returns = returns.replace(long, short) if returns else returns
    for pattern, default in DEFAULTS.items():
        signature = pattern.sub(default, signature)
    return signature, returns


def exported(target: str) -> tuple[str, bool]:
    """Where the package exports a name that is defined deeper, and whether it exists at all."""
    parts = target.split(".")
    for depth in range(len(parts) - 1, 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:depth]))
        except ImportError:
            continue
        value: Any = module
        for part in parts[depth:]:
            if not hasattr(value, part):
                return target, False
            value = getattr(value, part)
        package = ".".join(parts[:2])
        names = getattr(importlib.import_module(package), "__all__", ())
        return (f"{package}.{parts[-1]}" if parts[-1] in names else target), True
    return target, False


def resolve(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, contnode: nodes.TextElement
) -> nodes.Node | None:
    """Link a name that Sphinx does not find: another project's, or one the package re-exports."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    if target.startswith("'"):
        return contnode  # the shape in Float[Tensor, 'B L']
    known = inventory(str(app.srcdir))
    name = ALIASES.get(target, target)
    if name in known:
        project, address = known[name]
        link = nodes.reference("", "", internal=False, refuri=address, reftitle=f"{project} docs")
        link += contnode
        return link
    if not target.startswith(f"{PACKAGE}."):
        inside = node.get("py:module")
        if not inside or not re.fullmatch(r"[A-Za-z_][\w.]*", target):
            return None
        target = f"{inside}.{target}"
    public, exists = exported(target)
    if not exists:
        return None
    domain = env.get_domain("py")
    if public in domain.objects:
        entry = domain.objects[public]
        uri = app.builder.get_relative_uri(node["refdoc"], entry.docname) + "#" + entry.node_id
        link = nodes.reference("", "", internal=True, refuri=uri, reftitle=public)
        link += contnode
        return link
    return contnode  # it exists but is not public: name it without a link


class Names(SphinxDirective):
    """The names of a part, each leading to its entry; those of the reference to their twins."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """One paragraph of links."""
        part = self.arguments[0]
        line, domain = nodes.paragraph(), self.env.get_domain("py")
        for name in importlib.import_module(part).__all__:
            here = target = f"{part}.{name}"
            if part == f"{PACKAGE}.reference":
                twins = (f"{PACKAGE}.{other}" for other in ("functional", "analysis"))
                found = [one for one in twins if name in importlib.import_module(one).__all__]
                if not found:
                    continue  # described below the list
                target = f"{found[0]}.{name}"
                domain.note_object(here, "function", here)
            link = addnodes.pending_xref(
                "", refdomain="py", reftype="obj", reftarget=target, refdoc=self.env.docname
            )
            link += nodes.literal("", name)
            line += [nodes.Text(", " if len(line) else ""), nodes.inline("", "", link, ids=[here])]
        return [line]


SIGNATURE = re.compile(r'<dt class="sig.*?</dt>', re.DOTALL)
LIST_TAGS = {
    "<dl>": '<span class="sig-params">',
    "</dl>": "</span>",
    "<dd>": '<span class="sig-param-line">',
    "</dd>": "</span>",
}


def plain_signatures(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Sphinx writes long signatures as definition lists without terms, which are invalid.

    Line ends between their parts would show as empty lines.
    """

    def plain(found: re.Match[str]) -> str:
        return re.sub(r"</?d[ld]>", lambda tag: LIST_TAGS[tag[0]], found[0].replace("\n", ""))

    if "body" in context:
        context["body"] = SIGNATURE.sub(plain, context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to autodoc and to unresolved references."""
    app.setup_extension("sphinx.ext.autodoc")
    app.add_directive("names", Names)
    app.connect("autodoc-process-signature", shorten)
    app.connect("missing-reference", resolve)
    app.connect("html-page-context", plain_signatures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
