"""The Transformer, and an LSTM with the same calls and as many parameters."""

from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attn_course.nn import (
    GatedFeedForward,
    MultiHeadAttention,
    RMSNorm,
    RotaryPositions,
    TokenEmbedding,
    decoder_only,
)
from attn_course.nn.language_model import init_residual
from experiments.language_model.settings import Setting

MODELS = ("transformer", "lstm")


class Remembered:
    """What an LSTM keeps of the text so far: of a constant size, whatever its length."""

    def __init__(self) -> None:
        self.state: tuple[Tensor, Tensor] | None = None

    def select(self, rows: Int[Tensor, " N"]) -> "Remembered":
        """A new one with these rows of the batch."""
        new = Remembered()
        if self.state is not None:
            new.state = (self.state[0].index_select(1, rows), self.state[1].index_select(1, rows))
        return new


class LSTMLanguageModel(nn.Module):
    """Layers of LSTM between an embedding and logits, with the calls of ``LanguageModel``.

    Torch's own LSTM, which is several times faster than a loop over cells and does the same.

    Args:
        vocab_size: Number of ids.
        hidden_size: Size of the state of each layer, and of an embedding.
        num_layers: Number of layers.
        dropout: Of the embeddings, between layers and of the last states.
    """

    def __init__(
        self, *, vocab_size: int, hidden_size: int, num_layers: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, hidden_size)
        self.recurrent = nn.LSTM(
            hidden_size,
            hidden_size,
            num_layers,
            batch_first=True,
            dropout=dropout if num_layers > 1 else 0.0,
        )
        self.dropout = nn.Dropout(dropout)
        self.output_projection = nn.Linear(hidden_size, vocab_size)
        with torch.no_grad():  # remember at first: Jozefowicz et al. (2015)
            for name, bias in self.recurrent.named_parameters():
                if name.startswith("bias_ih"):
                    bias[hidden_size : 2 * hidden_size] = 1.0

    def forward(
        self,
        input_ids: Int[Tensor, "B L"],
        padding_mask: Bool[Tensor, "B L"] | None = None,
        *,
        cache: Remembered | None = None,
    ) -> Float[Tensor, "B L V"]:
        """Logits of the character after each.

        Args:
            input_ids: The text; with a cache, what is new of it.
            padding_mask: None: this model takes no padding.
            cache: From :meth:`new_cache`.

        Raises:
            ValueError: If there is a padding mask.
        """
        if padding_mask is not None:
            raise ValueError("padding_mask: expected None, as all texts are of one length")
        before = None if cache is None else cache.state
        hidden, after = self.recurrent(self.dropout(self.embedding(input_ids)), before)
        if cache is not None:
            cache.state = after
        logits: Tensor = self.output_projection(self.dropout(hidden))
        return logits

    def new_cache(self) -> Remembered:
        """What it knows before the first character: nothing."""
        return Remembered()


def _transformer(setting: Setting, vocab_size: int) -> nn.Module:
    """``llama_like`` with dropout: RoPE, RMSNorm before each part, SwiGLU, no bias."""
    model = decoder_only(
        embedding=TokenEmbedding(
            vocab_size=vocab_size, embed_dim=setting.embed_dim, dropout=setting.dropout
        ),
        num_layers=setting.num_layers,
        attention=partial(
            MultiHeadAttention,
            embed_dim=setting.embed_dim,
            num_heads=setting.num_heads,
            bias=False,
            position=RotaryPositions(),
        ),
        feed_forward=partial(
            GatedFeedForward, embed_dim=setting.embed_dim, hidden_dim=setting.hidden_dim
        ),
        norm=partial(RMSNorm, embed_dim=setting.embed_dim),
        tied=False,
        dropout=setting.dropout,
    )
    init_residual(model, num_layers=setting.num_layers)
    return model


def count(model: nn.Module) -> int:
    """Number of parameters."""
    return sum(each.numel() for each in model.parameters())


def fitted_hidden_size(setting: Setting, vocab_size: int) -> int:
    """The size of the LSTM's state that comes nearest to the Transformer's parameters."""

    def cost(hidden_size: int) -> int:
        return count(
            LSTMLanguageModel(
                vocab_size=vocab_size, hidden_size=hidden_size, num_layers=setting.lstm_layers
            )
        )

    with torch.device("meta"):  # shapes without numbers
        budget = count(_transformer(setting, vocab_size))
        size = 1
        while cost(size + 1) <= budget:
            size += 1
        return min(size, size + 1, key=lambda each: abs(cost(each) - budget))


def build(name: str, setting: Setting, vocab_size: int) -> Any:
    """An untrained model: ``model(input_ids, cache=...)`` gives logits.

    Raises:
        ValueError: If there is no such model.
    """
    if name == "transformer":
        return _transformer(setting, vocab_size)
    if name == "lstm":
        return LSTMLanguageModel(
            vocab_size=vocab_size,
            hidden_size=fitted_hidden_size(setting, vocab_size),
            num_layers=setting.lstm_layers,
            dropout=setting.dropout,
        )
    raise ValueError(f"models: expected some of {', '.join(MODELS)}, got {name}")
