"""The verb ``demo``: the shipped model beside the plain encoder, on the small taxa benchmark.

May import: boolattn.search, boolattn.evaluation, boolattn.composition, boolattn.encoder,
boolattn.data, boolattn.logic, boolattn.errors.
"""

from boolattn.cli.demo.command import demo

__all__ = ["demo"]
