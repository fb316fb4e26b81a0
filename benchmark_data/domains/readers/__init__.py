"""One short module for each source: its files in, documents with labelled facets out."""
