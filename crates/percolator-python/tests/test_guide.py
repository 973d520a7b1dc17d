"""The Python of the guide and of the README runs as it stands there, in an empty folder; and every public
member says what it is for, in the package as in its stubs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from conftest import REPOSITORY, framework

import percolator

PACKAGE = Path(__file__).resolve().parents[1]
PAGES = [PACKAGE / "README.md", REPOSITORY / "docs" / "guide" / "python.md"]
BLOCKS = [
    (page, number, block)
    for page in PAGES
    if page.exists()
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S))
]


def test_there_is_a_guide() -> None:
    assert len(BLOCKS) >= 6


@pytest.mark.parametrize("page, number, block", BLOCKS, ids=[f"{page.stem}-{n}" for page, n, _ in BLOCKS])
def test_it_runs(
    page: Path, number: int, block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    framework("torch")
    monkeypatch.chdir(tmp_path)
    exec(compile(block, f"{page.name}, block {number}", "exec"), {})


def test_the_example_of_the_package_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import doctest

    framework("torch")
    monkeypatch.chdir(tmp_path)
    assert doctest.testmod(percolator).failed == 0


def members(module: ast.Module) -> dict[str, str | None]:
    """The docstrings of what a module has that is public, by its name."""
    found = {}
    for top in module.body:
        if isinstance(top, (ast.FunctionDef, ast.ClassDef)) and not top.name.startswith("_"):
            found[top.name] = ast.get_docstring(top)
            for member in top.body if isinstance(top, ast.ClassDef) else []:
                if isinstance(member, ast.FunctionDef) and not member.name.startswith("_"):
                    found[f"{top.name}.{member.name}"] = ast.get_docstring(member)
    return found


def test_every_member_says_what_it_is_for() -> None:
    stubs = members(ast.parse((Path(percolator.__file__).parent / "_core.pyi").read_text()))
    assert len(stubs) > 100
    for name, docstring in stubs.items():
        thing: object = percolator
        for part in name.split("."):
            thing = getattr(thing, part)
        said = (thing.__doc__ or "").strip()
        assert said, f"{name} has no docstring"
        assert " ".join(said.split()) == " ".join((docstring or "").split()), f"{name} in the stubs"
    for name in percolator.__all__:
        thing = getattr(percolator, name)
        assert thing.__doc__, name
        for member in vars(thing) if isinstance(thing, type) else []:
            if not member.startswith("_") and not isinstance(thing, str) and thing.__module__ != "percolator":
                value = getattr(thing, member)
                assert value is None or value.__doc__, f"{name}.{member}"


def test_the_order_of_channels_is_said_wherever_pixels_are_spoken_of() -> None:
    texts = {page.name: page.read_text() for page in PAGES if page.exists()}
    spoken = [percolator, percolator.DataLoader, percolator.Feed, percolator.Transform]
    texts.update({getattr(thing, "__name__", ""): thing.__doc__ or "" for thing in spoken})
    assert [name for name, text in texts.items() if "BGR" not in text] == []
