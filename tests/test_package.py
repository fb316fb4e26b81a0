import subprocess
import sys

import pytest

import boolattn


def modules_after(code: str) -> set[str]:
    probe = f"{code}\nimport sys; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import boolattn",
        "import boolattn.cli",
        "import boolattn.logic.labels, boolattn.logic.templates",
    ],
)
def test_nothing_heavy_is_loaded_until_asked(code):
    loaded = modules_after(code)
    assert "boolattn" in loaded
    assert not loaded & {"torch", "transformers", "matplotlib", "sentence_transformers"}


def test_every_public_name_is_there():
    for name in boolattn.__all__:
        assert getattr(boolattn, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'atach'"):
        _ = boolattn.atach


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from boolattn.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_and_version():
    assert command("--version").stdout.strip() == boolattn.__version__
    shown = command("--help")
    assert shown.returncode == 0
    assert "explain" in shown.stdout


def test_an_error_is_one_line_on_stderr(tmp_path):
    done = command("explain", "cats not dogs", "--model", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.strip().splitlines()
    assert line.startswith("boolattn: ")
    assert "holds no boolattn.safetensors" in line
