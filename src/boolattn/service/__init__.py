"""The web service: a JSON API over one index, and a page that shows how a query was parsed."""
