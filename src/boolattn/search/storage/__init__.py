"""The files of an index: manifest, segments, and transactions over them."""
