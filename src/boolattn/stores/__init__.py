"""Stores: where documents, metadata, vectors and words live, each behind an address.

``base`` has the protocol: a ``Store`` gives a ``Reader`` to search with, and a ``Draft`` to write
to. ``address`` chooses the class of an address, and ``writer`` encodes documents for any of them.

- ``local``: a folder; segments of documents and vectors, words in tantivy, a manifest.
- ``points``: databases with a point for each passage; ``PointDatabase`` is what differs between
  Qdrant, Milvus and ``postgres``, which filters, finds neighbours and scores words in SQL.
- ``foreign``: an external collection, of any of these or an array, only read.

What all of them store of a document is in ``writer``, ``values`` and ``analysis``; what they are
asked in ``filters``. A new store is a module with a ``Store`` and its class methods ``open`` and
``create``, a line in ``address``, and an address in ``tests/stores/test_contract.py``.
"""
