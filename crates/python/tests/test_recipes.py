"""The page of recipes: each block of Python prints the block of text behind it."""

import contextlib
import io
import re
import shutil
from pathlib import Path

import dentree

PAGE = Path(__file__).parents[3] / "docs/PYTHON.md"


def test_recipes_print_what_the_page_says(disk, tmp_path, monkeypatch):
    for name in ["disk", "monday", "tuesday"]:
        shutil.copy(disk, tmp_path / f"{name}.img")
    with dentree.Image(tmp_path / "tuesday.img", writable=True) as image:
        image.path("/etc/conf.d/a.conf").write_text("a = 3\n")
        image.path("/srv").mkdir()
    monkeypatch.chdir(tmp_path)
    recipes = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(recipes) == PAGE.read_text().count("```python") == 10
    names: dict[str, object] = {}
    for code, expected in recipes:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, names)
        assert printed.getvalue() == expected, code
