"""The Python of the guide and of the README runs, as it stands there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from conftest import DATA, REPOSITORY, framework, write_numbers

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
    shutil.copytree(DATA / "golden" / "raw_lmdb", tmp_path / "train_lmdb")
    write_numbers(tmp_path / "numbers.tfrecord", 20)
    monkeypatch.chdir(tmp_path)
    exec(compile(block, f"{page.name}, block {number}", "exec"), {})
