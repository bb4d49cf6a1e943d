"""The operator surface: what is going on, why a request went where it went, and what to change.

Each topic is a class of its own that knows no HTTP; `surface.py` serves them under `/admin`, and
the commands call the same ones on the store itself.
"""
