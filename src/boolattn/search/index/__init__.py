"""Making and opening an index: settings, writer, documents from files."""
