"""Tiny Shakespeare, character by character: a Transformer, an LSTM as large, and counting.

One command, ``python -m experiments.language_model --setting reduced`` (or ``full``, meant for a
GPU), finds a learning rate for each model, trains both for every seed and writes one JSON file.
Stop it when you like: the same command goes on where it was. Under ``torchrun`` the same batches
are divided among processes.
"""
