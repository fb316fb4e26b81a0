"""From plain text to a parsed query."""
