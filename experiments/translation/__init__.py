"""German to English on Multi30k: the encoder-decoder without attention and with each score.

One command, ``python -m experiments.translation --setting reduced`` (or ``full``, meant for a GPU),
trains every model under one budget of parameters and of steps, and writes one JSON file.
Stop it when you like: the same command goes on where it was.
"""
