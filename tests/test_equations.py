"""Every equation and algorithm has a function that names it and a test that works it out."""

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import cfcl

SOURCE = Path(cfcl.__file__).parent
TESTS = Path(__file__).parent
EQUATIONS = {str(number) for number in range(1, 26)} | {"Alg. 1", "Alg. 2", "Alg. 3"}


def _docstrings(path: Path) -> list[str]:
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    return [ast.get_docstring(node) or "" for node in nodes]


def _tags_in_source() -> set[str]:
    texts = [text for path in SOURCE.rglob("*.py") for text in _docstrings(path)]
    equations = {
        tag
        for text in texts
        for group in re.findall(r"Eq\. ((?:\(\d+\)(?:,? and |, )?)+)", text)
        for tag in re.findall(r"\d+", group)
    }
    algorithms = {tag for text in texts for tag in re.findall(r"Alg\. \d", text)}
    # "Eq. (2) and, on D_i^t, Eq. (3)" names two as well
    return equations | algorithms


@cache
def _tests() -> dict[str, set[str]]:
    """The equations that every test works out, by its name."""
    functions = [
        node
        for path in TESTS.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    return {node.name: {tag for mark in node.decorator_list for tag in _tags_of(mark)} for node in functions}


def _tags_of(mark: ast.expr) -> list[str]:
    if not isinstance(mark, ast.Call) or ast.unparse(mark.func) != "pytest.mark.equation":
        return []
    return [str(ast.literal_eval(argument)) for argument in mark.args]


def test_every_equation_has_a_function() -> None:
    assert _tags_in_source() == EQUATIONS


def test_every_equation_has_a_test() -> None:
    assert set().union(*_tests().values()) == EQUATIONS


def test_every_equation_is_in_the_table() -> None:
    assert {equation for equation, _, _ in _table()} == EQUATIONS


def _table() -> list[tuple[str, list[str], list[str]]]:
    """Equation, functions and tests of every row."""
    text = (SOURCE.parents[1] / "docs" / "equations.md").read_text()
    rows = [row.split("|") for row in text.splitlines() if re.match(r"^\| (\d+|Alg\. \d) \|", row)]
    return [(row[1].strip(), re.findall(r"`([\w.]+)`", row[3]), re.findall(r"`(test_\w+)`", row[4])) for row in rows]


def _function(name: str) -> object:
    """What `module.function` or `module.method` of the table is; the module may stand anywhere in the package."""
    module, _, function = name.rpartition(".")
    places = [path for path in SOURCE.rglob("*.py") if path.stem == module or path.parent.name == module]
    for path in places:
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        found = import_module(".".join(part for part in parts if part != "__init__"))
        classes = [
            item for item in vars(found).values() if isinstance(item, type) and item.__module__ == found.__name__
        ]
        for holder in (found, *classes):
            if function in vars(holder):
                return vars(holder)[function]
    raise AssertionError(f"{name} is in no module of that name")


@pytest.mark.parametrize(("equation", "functions", "tests"), _table())
def test_the_table_names_functions_and_tests_of_the_equation(
    equation: str, functions: list[str], tests: list[str]
) -> None:
    assert functions
    assert tests
    assert all(callable(_function(name)) for name in functions)
    for name in tests:
        assert equation in _tests().get(name, set()), name
