"""Every Python example of the README runs, in order, in one folder."""

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_examples_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 3
    for block in blocks:
        exec(compile(block, str(README), "exec"), {})
    said = capsys.readouterr().out
    assert "{'and': True, 'or': False, 'not': True}" in said
    assert (tmp_path / "why.png").is_file()


def test_the_pages_it_names_are_there():
    text = README.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (README.parent / target).is_file(), target
