"""The steps behind ``python tools/book.py``: execute, render, check, serve."""
