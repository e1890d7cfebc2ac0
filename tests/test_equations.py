"""Every equation and algorithm has a function that names it and a test that works it out."""

import ast
import re
from pathlib import Path

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


def _tags_in_tests() -> set[str]:
    found: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        for call in re.findall(r"mark\.equation\(([^)]*)\)", path.read_text()):
            found |= set(re.findall(r'"([^"]+)"', call))
    return found


def _tags_in_docs() -> set[str]:
    text = (SOURCE.parents[1] / "docs" / "equations.md").read_text()
    return set(re.findall(r"^\| (\d+|Alg\. \d) \|", text, flags=re.MULTILINE))


def test_every_equation_has_a_function() -> None:
    assert _tags_in_source() == EQUATIONS


def test_every_equation_has_a_test() -> None:
    assert _tags_in_tests() == EQUATIONS


def test_every_equation_is_in_the_table() -> None:
    assert _tags_in_docs() == EQUATIONS


def test_the_table_names_functions_and_tests_that_exist() -> None:
    text = (SOURCE.parents[1] / "docs" / "equations.md").read_text()
    source = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    tests = "\n".join(path.read_text() for path in TESTS.rglob("*.py"))
    rows = [row.split("|") for row in text.splitlines() if re.match(r"^\| (\d+|Alg\. \d) \|", row)]
    for row in rows:
        functions, checks = re.findall(r"`([\w.]+)`", row[3]), re.findall(r"`(test_\w+)`", row[4])
        assert functions, row
        assert checks, row
        for name in functions:
            assert f"def {name.split('.')[-1]}(" in source, name
        for name in checks:
            assert f"def {name}(" in tests, name
