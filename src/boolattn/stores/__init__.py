"""Stores: where documents, metadata, vectors and words live, each behind an address.

``base`` has the protocol: a ``Store`` gives a ``Reader`` to search with, and a ``Draft`` to write
to. ``address`` chooses the class of an address, and ``writer`` encodes documents for any of them.

- ``local``: a folder; segments of documents and vectors, words in tantivy, a manifest.
- ``postgres``: tables of one schema; filters, neighbours and BM25+ in SQL.
- ``points``: Qdrant and Milvus, a point for each passage; ``PointDatabase`` is what differs.
- ``foreign``: a collection that someone else filled, of any of these or an array, only read.

What all of them store of a document is in ``batches``, ``values`` and ``analysis``; what they are
asked in ``filters``. A new store is a module with a ``Store`` and its class methods ``open`` and
``create``, a line in ``address``, and an address in ``tests/stores/test_contract.py``.
"""
