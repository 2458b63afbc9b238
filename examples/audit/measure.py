"""Measures one Python file. Pure: bytes in, numbers out."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass

from pydantic import BaseModel

_BRANCHES = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.ClassDef)
_LEAVES = (ast.Name, ast.Constant, ast.expr_context, ast.operator, ast.boolop, ast.cmpop, ast.unaryop)
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


class FileReport(BaseModel):
    """What one file measures; a file that does not parse has lines and an error, and zeros elsewhere."""

    path: str
    lines: int
    functions: int = 0
    longest_function: str = ""
    longest_function_lines: int = 0
    complexity: int = 0
    """Cyclomatic complexity (McCabe), summed over all functions and methods."""
    highest_complexity: int = 0
    """Of the most complex function."""
    imports: list[str] = []
    """Names of the imported modules, sorted, each once."""
    error: str = ""


@dataclass(slots=True)
class _Function:
    name: str
    lines: int
    complexity: int = 1


def measure(source: bytes, path: str) -> FileReport:
    """Measures one file.

    Args:
        source: the file as it lies on the disk, in whatever encoding it declares.
        path: its name, for the report and for error texts.

    Returns:
        The measures; never raises for a file that is not Python.
    """
    lines = source.count(b"\n") + (not source.endswith(b"\n") and source != b"")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # doubtful escapes in the measured file are not our news
            tree = ast.parse(source, path)
    except _UNREADABLE as error:
        return FileReport(path=path, lines=lines, error=f"{type(error).__name__}: {error}")
    functions, imports = _walk(tree)
    longest = max(functions, key=lambda function: function.lines, default=_Function("", 0, 0))
    return FileReport(
        path=path,
        lines=lines,
        functions=len(functions),
        longest_function=longest.name,
        longest_function_lines=longest.lines,
        complexity=sum(function.complexity for function in functions),
        highest_complexity=max((function.complexity for function in functions), default=0),
        imports=sorted(imports),
    )


def _walk(tree: ast.Module) -> tuple[list[_Function], set[str]]:
    """Every function, nested ones too; a branch counts for the innermost function that it stands in."""
    functions: list[_Function] = []
    imports: set[str] = set()
    pending: list[tuple[ast.AST, str, _Function | None]] = [(tree, "", None)]
    while pending:
        node, scope, function = pending.pop()
        if isinstance(node, _FUNCTIONS):
            function = _Function(scope + node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
            functions.append(function)
        elif function is not None:
            function.complexity += _branches(node)
        if isinstance(node, _SCOPES):
            scope = f"{scope}{node.name}."
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imports.update(_imported(node))
        pending.extend((child, scope, function) for child in _children(node))
    return functions, imports


def _children(node: ast.AST) -> list[ast.AST]:
    """What may hold a function, a branch or an import; the last child first, as a stack wants it."""
    children = [child for child in ast.iter_child_nodes(node) if not isinstance(child, _LEAVES)]
    children.reverse()
    return children


def _branches(node: ast.AST) -> int:
    if isinstance(node, _BRANCHES):
        return 1
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    return 0


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return ["." * node.level + (node.module or "")]
