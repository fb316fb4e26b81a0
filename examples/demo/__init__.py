"""The demo: the shipped model next to the plain encoder, on the small taxa benchmark.

python -m examples.demo
"""
