"""Tiny Shakespeare, character by character: a Transformer, an LSTM as large, and counting.

One command, ``python -m experiments.language_model --setting reduced`` (one pass through the text;
``passes`` makes four, ``longer`` eight, ``full`` is meant for a GPU), finds a learning rate for
each model, trains both for every seed and writes one JSON file.
Stop it when you like: the same command goes on where it was. Under ``torchrun`` the same batches
are divided among processes.

``load_results("language_model")``, ``"language_model_passes"`` or ``"language_model_longer"``,
then gives, beside machine,
versions, date, commit and seconds:

- ``setting``, ``seeds``, ``missing`` (trainings not done yet), ``corpus`` (sizes and alphabet);
- ``ngrams``: ``{"order", "bits"}`` for every order, what counting alone gives;
- ``rates[model]``: the short runs that the rate was chosen by, on a part of the validation text:
  ``{"learning_rate", "steps", "train_bits", "val_bits"}``;
- ``models[model]``, of ``transformer`` and ``lstm``: ``parameters``, ``learning_rate``, ``bits``
  (validation bits per character, one for each seed), ``median_bits``, ``runs``;
- each of ``runs``: ``seed``, ``bits``, ``curve`` (``{"step", "train_bits", "val_bits"}``, on some
  windows of either text), ``by_context`` (``{"characters": [first, last], "bits"}``: with so many
  characters before it), ``samples`` (``{"prompt", "temperature", "text"}``), seconds.
"""
