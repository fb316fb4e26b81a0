"""The web service: one index behind a JSON API, and the page that shows what the model read.

May import: boolattn.search and the rooms it stands on.
"""
