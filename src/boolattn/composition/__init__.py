"""Reading a query's operands and composing their scores over its tree.

May import: boolattn.encoder, boolattn.data.readings, boolattn.logic, boolattn.errors.
"""

from __future__ import annotations
