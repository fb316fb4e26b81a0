"""The index on disk: manifest, segments, writer."""
