"""Reading a query's operands and composing their scores over its tree.

May import: boolattn.encoder, boolattn.logic.parsed_query, boolattn.logic, boolattn.errors.
"""

from __future__ import annotations
