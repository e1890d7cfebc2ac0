"""Small changes to a source text, of the kinds that a slip of the hand makes.

Left alone: docstrings, annotations, decorators, imports, assertions, `__all__`, type aliases, and everything that is
raised or said: f-strings and texts with a space in them. So are `strict=`, `stable=` and `device=`, which change
nothing in a program that is right.
"""

import ast
from collections.abc import Callable
from dataclasses import dataclass

SILENT = {"strict", "stable", "device"}
SWAPS = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
NAMES = {
    "min": "max",
    "max": "min",
    "amin": "amax",
    "amax": "amin",
    "minimum": "maximum",
    "maximum": "minimum",
    "clamp_min": "clamp_max",
    "clamp_max": "clamp_min",
    "any": "all",
    "all": "any",
    "sum": "mean",
    "mean": "sum",
    "zeros": "ones",
    "ones": "zeros",
    "zeros_like": "ones_like",
    "ones_like": "zeros_like",
}


@dataclass(frozen=True)
class Mutation:
    """One change: the characters of a source text from `start` to `end` become `new`."""

    start: int
    end: int
    new: str
    line: int
    scope: tuple[int, int]
    """First and last line of the body of the function around it; 0, 0 outside of functions."""

    def apply(self, source: str) -> str:
        return source[: self.start] + self.new + source[self.end :]


def find(source: str) -> list[Mutation]:
    """Every mutation of `source` that compiles, in the order of its text."""
    lines = source.splitlines(keepends=True)
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line))

    def place(line: int, column: int) -> int:  # columns of the syntax tree count bytes
        return offsets[line - 1] + len(lines[line - 1].encode()[:column].decode())

    visitor = _Visitor(source, place)
    visitor.visit(ast.parse(source))
    return sorted(
        {item for item in visitor.found if _compiles(item.apply(source))}, key=lambda item: (item.start, item.new)
    )


def _compiles(source: str) -> bool:
    try:
        compile(source, "mutant", "exec")
    except SyntaxError:
        return False
    return True


class _Visitor(ast.NodeVisitor):
    def __init__(self, source: str, place: Callable[[int, int], int]) -> None:
        self.source, self.place = source, place
        self.found: list[Mutation] = []
        self._scope = (0, 0)
        self._bound: list[set[str]] = []

    def _span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.place(node.lineno, node.col_offset), self.place(node.end_lineno, node.end_col_offset)

    def _text(self, node: ast.expr | ast.keyword) -> str:
        start, end = self._span(node)
        return self.source[start:end]

    def _put(self, start: int, end: int, new: str) -> None:
        line = self.source.count("\n", 0, start) + 1
        self.found.append(Mutation(start, end, new, line, self._scope))

    def _replace(self, node: ast.expr | ast.stmt | ast.keyword, new: str) -> None:
        self._put(*self._span(node), new)

    def _operator(self, left: ast.expr, operator: ast.AST, right: ast.expr) -> None:
        """The operator stands between its operands, among brackets."""
        if type(operator) not in SWAPS:
            return
        old, new = SWAPS[type(operator)]
        start, end = self._span(left)[1], self._span(right)[0]
        at = self.source.find(old, start, end)
        if at >= 0:
            self._put(at, at + len(old), new)

    # What is left alone

    def visit_Import(self, node: ast.Import) -> None: ...
    def visit_ImportFrom(self, node: ast.ImportFrom) -> None: ...
    def visit_Assert(self, node: ast.Assert) -> None: ...
    def visit_Raise(self, node: ast.Raise) -> None: ...
    def visit_JoinedStr(self, node: ast.JoinedStr) -> None: ...
    def visit_MatchClass(self, node: ast.MatchClass) -> None: ...

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for child in node.body:
            self.visit(child)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outer = self._scope
        if outer == (0, 0):
            self._scope = (node.body[0].lineno, node.end_lineno or node.lineno)
        arguments = node.args
        self._bound.append({item.arg for item in [*arguments.args, *arguments.kwonlyargs]})
        for child in [*arguments.defaults, *filter(None, arguments.kw_defaults), *node.body]:
            self.visit(child)
        self._bound.pop()
        self._scope = outer

    # Statements

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        if not isinstance(node.value, ast.Yield | ast.YieldFrom):
            self._replace(node, "pass")
        self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        names = {item.id for target in node.targets for item in ast.walk(target) if isinstance(item, ast.Name)}
        alias = not self._bound and not isinstance(
            node.value, ast.Constant | ast.Call | ast.Dict | ast.Tuple | ast.List
        )
        if "__all__" in names or alias:
            return
        if any(isinstance(target, ast.Subscript | ast.Attribute) for target in node.targets) or (
            self._bound and names <= self._bound[-1]
        ):
            self._replace(node, "pass")
        self.visit(node.value)
        for target in node.targets:
            self.visit(target)
        if self._bound:
            self._bound[-1] |= names

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace(node, "pass")
        start, end = self._span(node.target)[1], self._span(node.value)[0]
        old, new = SWAPS.get(type(node.op), ("", ""))
        at = self.source.find(old + "=", start, end)
        if old and at >= 0:
            self._put(at, at + len(old), new)
        self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, "pass")

    # Expressions

    def _negate(self, test: ast.expr) -> None:
        if not isinstance(test, ast.UnaryOp | ast.Compare):
            self._replace(test, f"not ({self._text(test)})")

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self._operator(node.left, node.op, node.right)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._operator(left, node.op, right)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            self._operator(left, operator, right)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if not isinstance(node.operand, ast.Constant):
            self._replace(node, f"({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        match node.value:
            case bool():
                self._replace(node, str(not node.value))
            case int():
                self._replace(node, str(node.value + 1))
                if node.value > 0:  # the last of equals, or of one axis, is the first
                    self._replace(node, str(node.value - 1))
            case float():
                self._replace(node, repr(node.value * 2 if node.value else 1.0))
            case str() if " " not in node.value:
                self._replace(node, repr(f"{node.value}x"))

    def visit_Slice(self, node: ast.Slice) -> None:
        bounds = [self._text(bound) if bound else "" for bound in (node.lower, node.upper)]
        if any(bounds) and node.step is None:
            self._replace(node, f"{bounds[0]}:" if all(bounds) else ":".join(reversed(bounds)))
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.value, ast.Name) and node.value.id in {"Literal", "Callable", "Mapping"}:
            return
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in {"TypeVar", "CfclError"}:
            return
        self._call_name(node, name)
        self._arguments(node)
        self.visit(node.func)
        for child in [*node.args, *(item.value for item in node.keywords if item.arg not in SILENT)]:
            self.visit(child)

    def _call_name(self, node: ast.Call, name: str) -> None:
        end = self._span(node.func)[1]
        if name in NAMES:
            self._put(end - len(name), end, NAMES[name])
        if name == "sorted" and not any(item.arg == "reverse" for item in node.keywords):
            self._put(self._span(node)[1] - 1, self._span(node)[1], ", reverse=True)")

    def _arguments(self, node: ast.Call) -> None:
        """Two arguments swapped, the last one left out, a keyword left out."""
        plain = [item for item in node.args if not isinstance(item, ast.Starred | ast.GeneratorExp)]
        if len(plain) > 1:
            first, second = plain[:2]
            if ast.dump(first) != ast.dump(second):
                (start, a), (b, end) = self._span(first), self._span(second)
                self._put(start, end, self._text(second) + self.source[a:b] + self._text(first))
            before, last = node.args[-2:]
            self._put(self._span(before)[1], self._span(last)[1], "")
        for item in node.keywords:
            if item.arg is not None and item.arg not in SILENT:
                self._drop(node, item)

    def _drop(self, node: ast.Call, item: ast.keyword) -> None:
        parts = sorted([*map(self._span, node.args), *map(self._span, node.keywords)])
        at = parts.index(self._span(item))
        if at > 0:
            self._put(parts[at - 1][1], parts[at][1], "")
        else:
            self._put(parts[0][0], parts[1][0] if len(parts) > 1 else parts[0][1], "")
