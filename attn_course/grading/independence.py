"""Which test cells depend on nothing that another test cell leaves behind, and not on chance.

Cells share one namespace. A test stands alone when no other test writes a name that it reads
before it writes it, itself or by way of a function of the instructor.
"""

import ast
import dataclasses
import types
from collections.abc import Iterable
from typing import Any

from attn_course.exercises.assignment import Assignment

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
EXPRESSION_SCOPES = (*COMPREHENSIONS, ast.Lambda)
BLOCKS = (ast.stmt, ast.ExceptHandler, ast.match_case)
# A probe that asks in an order that no seed fixes. Begun again with the answers so far, it asks
# something else, and the submission would have to be started once more, out of its own time.
CHANCE = frozenset({"judges"})


@dataclasses.dataclass(frozen=True)
class Alone:
    """A test whose outcome hangs on no other test.

    Args:
        reads: names that it finds in the notebook.
        leaves: what it defines for other tests: functions, imports, constants; None if nothing.
    """

    reads: frozenset[str]
    leaves: types.CodeType | None


def independent_tests(assignment: Assignment, *, chance: bool = True) -> dict[str, Alone]:
    """The tests that stand alone, by grade id.

    Args:
        assignment: its test cells, and the instructor's other cells.
        chance: an order of chance is another one each time.
    """
    helpers: dict[str, set[str]] = {}
    learners = set(assignment.solutions)
    bodies = {test.grade_id: _statements(test.source) for test in assignment.tests}
    locked = list(map(_statements, assignment.locked.values()))
    everything = [node for body in (*locked, *bodies.values()) for node in body]
    shared = {n for declared in _all(ast.Global, everything) for n in declared.names}
    for node in everything:
        if isinstance(node, SCOPES):
            helpers[node.name] = helpers.get(node.name, set()) | _reads([node], set())
    asked = _asked(locked, learners, helpers)
    leaves = {name: _definitions(b, learners | asked, helpers) for name, b in bodies.items()}
    reads = {name: _through(_reads(body, set()), helpers) for name, body in bodies.items()}
    writes = {n: _bound_by(s for s in body if s not in leaves[n]) for n, body in bodies.items()}
    found = {}
    for name in bodies:
        others = bodies.keys() - {name}
        written = shared.union(asked, *(writes[other] for other in others))
        read = set[str]().union(*(reads[other] for other in others))
        if reads[name] & written or (writes[name] | shared) & read:
            continue
        if chance and any(node.attr in CHANCE for node in _all(ast.Attribute, bodies[name])):
            continue
        code = None
        if read & _bound_by(leaves[name]):
            code = compile(ast.Module(leaves[name], []), f"<{name}>", "exec")
        found[name] = Alone(frozenset(reads[name]), code)
    return found


def _definitions(
    body: list[ast.stmt], learners: set[str], helpers: dict[str, set[str]]
) -> list[ast.stmt]:
    """The statements at the head of a test cell that are executed whatever a submission answers."""
    found: list[ast.stmt] = []
    for node in body:
        known = isinstance(node, (*SCOPES, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign))
        if not known or _through(_now(node), helpers) & learners:
            break
        found.append(node)
    later = _bound_by(body[len(found) :])
    return [node for node in found if not _bound_by([node]) & later]


def _asked(
    locked: list[list[ast.stmt]], learners: set[str], helpers: dict[str, set[str]]
) -> set[str]:
    """Names that hold something else, or nothing, where a submission answers a locked cell."""
    made = _bound_by(node for body in locked for node in body if not _fixed(node))
    found: set[str] = set()
    for body in locked:
        lost = False  # a statement of this cell has asked; if that failed, none follows it
        for node in body:
            now = _now(node)
            lost = lost or bool(_through(now, helpers) & (learners | found))
            if lost:
                found |= _bound_by([node]) | now & made
    return found


def _now(node: ast.stmt) -> set[str]:
    """Names that are read when a statement is executed; those in the body of a function are not."""
    inside = _names(node.body, loaded=True) if isinstance(node, ast.FunctionDef) else set()
    return _names([node], loaded=True) - inside


def _fixed(node: ast.stmt) -> bool:
    return isinstance(node, (*SCOPES, ast.Import, ast.ImportFrom))


def _statements(source: str) -> list[ast.stmt]:
    try:
        return ast.parse(source).body
    except SyntaxError:  # magics of a set-up cell
        return []


def _through(names: set[str], helpers: dict[str, set[str]]) -> set[str]:
    """With the names that the instructor's functions among them read."""
    reached, waiting = set(names), list(names)
    while waiting:
        new = helpers.get(waiting.pop(), set()) - reached
        reached |= new
        waiting += new
    return reached


def _names(nodes: Iterable[ast.AST], *, loaded: bool) -> set[str]:
    """Names that are read, or else bound, anywhere in some nodes."""
    found = {n for top in nodes for n in ast.walk(top) if isinstance(n, ast.Name)}
    return {n.id for n in found if isinstance(n.ctx, ast.Load) is loaded}


def _bound_by(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that nodes bind, in whatever scope within them."""
    nodes = list(nodes)
    found = _names(nodes, loaded=False)
    for node in (inner for top in nodes for inner in ast.walk(top)):
        if isinstance(node, SCOPES):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.Global):
            found.update(node.names)
    return found


def _all(kinds: Any, nodes: Iterable[ast.AST]) -> list[Any]:
    """All nodes of some kinds, at any depth."""
    return [inner for top in nodes for inner in ast.walk(top) if isinstance(inner, kinds)]


def _local(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that live in comprehensions and lambdas only."""
    inner = _all(EXPRESSION_SCOPES, nodes)
    heads = [n.generators if isinstance(n, COMPREHENSIONS) else [n.args] for n in inner]
    return set[str]().union(*map(_bound_by, heads))


def _reads(body: Iterable[ast.AST], bound: set[str]) -> set[str]:
    """Names that statements read before they have surely bound them; adds to ``bound``."""
    found: set[str] = set()
    for node in body:
        blocks = [c for c in ast.iter_child_nodes(node) if isinstance(c, BLOCKS)]
        head = [c for c in ast.iter_child_nodes(node) if not isinstance(c, BLOCKS)]
        head = head if blocks else [node]
        outer = [n.generators[0].iter for n in _all(COMPREHENSIONS, head)]
        found |= (_names(head, loaded=True) - _local(head) | _names(outer, loaded=True)) - bound
        if isinstance(node, ast.AugAssign):
            found |= _names([node.target], loaded=False) - bound
        if isinstance(node, SCOPES):
            inside = _bound_by(node.body) | _bound_by(head)
            found |= _names(node.body, loaded=True) - inside - bound
            bound.add(node.name)
        elif blocks:
            within = bound | (_bound_by(head) - _local(head))
            for block in _in_turn(node):
                found |= _reads(block, set(within))
            if isinstance(node, ast.With):
                bound |= _bound_by([node]) - _local([node])
        else:
            bound |= _bound_by([node]) - _local([node])
    return found


def _in_turn(node: ast.AST) -> list[list[ast.AST]]:
    """The blocks of a compound statement: each may run, or not."""
    found = [getattr(node, part, []) for part in ("body", "orelse", "finalbody")]
    return [*found, *([one] for part in ("handlers", "cases") for one in getattr(node, part, []))]
