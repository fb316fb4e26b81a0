"""Unpacks the models' weights, which the repository keeps compressed, when the package is built."""

import lzma
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithModels(build_py):
    """Builds the package with the weights; an editable installation finds them in the source."""

    def run(self) -> None:
        """Unpack what is not there yet, then build."""
        for packed in Path(__file__).parent.glob("src/boolattn/models/*/*.xz"):
            target = packed.with_suffix("")
            if not target.exists() or target.stat().st_mtime < packed.stat().st_mtime:
                part = target.with_name(f"{target.name}.part")
                part.write_bytes(lzma.decompress(packed.read_bytes()))
                part.replace(target)
        super().run()


setup(cmdclass={"build_py": BuildWithModels})
