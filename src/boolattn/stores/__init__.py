"""Stores: where documents, metadata, vectors and words live, each behind an address.

``base`` has the protocol: a ``Store`` gives a ``Reader`` to search with, and a ``Draft`` to write
to. ``address`` chooses the class of an address, and ``writer`` encodes documents for any of them.

- ``local``: a folder; segments of documents and vectors, words in tantivy, a manifest.
- ``foreign``: a ``Collection`` that someone else filled, of any database, only read.
- ``points``: a ``Database`` is a collection of Qdrant, Milvus or Postgres, anybody's or one with a
  point for each of our passages, over which ``PointStore`` is a store.

What all of them store of a document is in ``writer``, ``values`` and ``analysis``; what they are
asked in ``filters``. How to add one: CONTRIBUTING.md.
"""
