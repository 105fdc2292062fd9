"""What the tests of the set judge by."""

import torch

from attn_course import functional, reference
from attn_course.probes import Probes


def torch_reader(inputs, hidden, cell, *weights):
    layer = torch.nn.LSTM(inputs.shape[-1], hidden.shape[-1], batch_first=True).to(inputs.dtype)
    layer.load_state_dict(dict(zip(layer.state_dict(), weights, strict=True)))
    with torch.no_grad():
        outputs, (last_hidden, last_cell) = layer(inputs, (hidden[None], cell[None]))
    return outputs, last_hidden[0], last_cell[0]


probes = Probes(
    "01_recurrence",
    rnn_cell=reference.rnn_cell,
    lstm_cell=reference.lstm_cell,
    gru_cell=reference.gru_cell,
    rnn_bptt=reference.rnn_bptt,
    jacobian_product=reference.jacobian_product,
    clip_by_global_norm=functional.clip_by_global_norm,
    fixed_reader=torch_reader,
)
