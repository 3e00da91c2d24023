"""Names in the source are the field's words: no identifier contains one of the everyday verbs below."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import pacfl

SOURCE = Path(pacfl.__file__).parent
AVOIDED = frozenset(
    {
        *("told", "tell", "tells", "played", "play", "playing", "judged", "judge", "judgement"),
        *("kept", "keeping", "dealt", "heard", "alike", "shards", "truth", "mend"),
    }
)

ALLOWED: frozenset[str] = frozenset({"tell", "not_judged", "not_judged_"})  # of files, as Python names it; in results


def identifiers(code: str) -> Iterator[tuple[int, str]]:
    """Line and name of everything that Python code names: variables, attributes, arguments, functions and classes."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.alias(name=name, asname=other):
                yield from ((node.lineno, part) for part in (*name.split("."), *([other] if other else ())))
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)):
                yield node.lineno, name


def avoided(code: str) -> Iterator[tuple[int, str]]:
    """Line and name of identifiers with a word to avoid, in snake case or camel case: `_while_playing`, `KeptArray`."""
    for line, name in identifiers(code):
        camel = "".join(f"_{c}" if c.isupper() else c for c in name)
        if AVOIDED & {*name.lower().split("_"), *camel.lower().split("_")}:
            yield line, name


def test_identifiers_are_the_words_of_the_field() -> None:
    files = {path.relative_to(SOURCE): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
    found = {f"{path}:{line} {name}" for path in files for line, name in avoided(files[path]) if name not in ALLOWED}
    assert sorted(found) == [], "use the field's words in these names"
    assert not AVOIDED & {part for path in files for part in path.with_suffix("").parts}


@pytest.mark.parametrize(
    "code",
    [
        "told = 1",
        "x.told",
        "def told(): ...",
        "async def told(): ...",
        "def f(*, told=1): ...",
        "f(told=1)",
        "lambda told: 0",
        "class Told: ...",
        "class ToldTwice: ...",
        "from a import told",
        "from a.b import c as told",
        "import told.a",
        "[0 for told in x]",
        "for told in x: ...",
        "with x as told: ...",
        "a_told_b = 1",
        "_told: int",
        "TOLD = 1",
        "if told := 1: ...",
        "match x:\n    case [told, *rest]: ...",
    ],
)
def test_a_word_is_found_wherever_a_name_can_be(code: str) -> None:
    assert list(avoided(code))


@pytest.mark.parametrize("code", ["x.sum(keepdims=True)", "display = 1", "amend = 1", "'told'", "1  # told"])
def test_longer_words_texts_and_comments_are_no_names(code: str) -> None:
    assert not list(avoided(code))
