"""The small language model that the package brings, and the characters that it reads."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attn_course._extras import need
from attn_course.nn import LanguageModel, RotaryPositions, llama_like

WEIGHTS = Path(str(files(__package__))) / "weights" / "shakespeare.safetensors"
DRAFT = WEIGHTS.with_name("draft.safetensors")
_SCALE = ".scale"


class Characters:
    """One id for each character of an alphabet: its place there.

    Args:
        alphabet: The characters, each once.

    Raises:
        ValueError: If a character occurs twice.
    """

    def __init__(self, alphabet: str) -> None:
        if len(set(alphabet)) != len(alphabet):
            raise ValueError("alphabet: expected each character once, got some twice")
        self.alphabet = alphabet
        self._ids = {character: i for i, character in enumerate(alphabet)}

    def __len__(self) -> int:
        return len(self.alphabet)

    def __repr__(self) -> str:
        return f"Characters({self.alphabet!r})"

    def encode(self, text: str) -> Int[Tensor, " L"]:
        """Ids of a text.

        Raises:
            ValueError: If it has a character that the alphabet has not.
        """
        if unknown := sorted(set(text) - set(self.alphabet)):
            raise ValueError(f"text: expected characters of {self.alphabet!r}, got {unknown}")
        return torch.tensor([self._ids[character] for character in text], dtype=torch.long)

    def decode(self, ids: Int[Tensor, " L"]) -> str:
        """The text of some ids."""
        return "".join(self.alphabet[i] for i in ids.tolist())


def to_int8(weight: Float[Tensor, "N D"]) -> tuple[Int[Tensor, "N D"], Float[Tensor, " N"]]:
    r"""A matrix as int8, with one scale for each row: :math:`W_{nd} \approx s_n Q_{nd}`.

    .. math:: s_n = \max_d |W_{nd}| / 127, \qquad Q_{nd} = \mathrm{round}(W_{nd} / s_n)

    The error of an element is at most :math:`s_n / 2`.
    """
    scale = weight.abs().amax(1).clamp_min(1e-12) / 127
    return (weight / scale[:, None]).round().to(torch.int8), scale


def save_language_model(model: LanguageModel, path: Path, *, card: dict[str, Any]) -> None:
    """Write the weights of a model: matrices as :func:`to_int8`, vectors as they are.

    Args:
        model: From :func:`~attn_course.nn.llama_like`.
        path: A ``.safetensors`` file.
        card: Plain values: ``config`` (the arguments of ``llama_like``), ``alphabet``, and whatever
            a reader should know of the model.
    """
    need("safetensors", "data", "a model on disk")
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {}
    for name, weight in model.state_dict().items():
        if weight.ndim == 2:
            tensors[name], tensors[name + _SCALE] = to_int8(weight)
        else:
            tensors[name] = weight.contiguous()
    save_file(tensors, path, metadata={"card": json.dumps(card)})


def model_card(path: str | Path = WEIGHTS) -> dict[str, Any]:
    """What a file of :func:`save_language_model` says of its model."""
    with need("safetensors", "data", "a model on disk").safe_open(path, framework="pt") as file:
        card: dict[str, Any] = json.loads(file.metadata()["card"])
    return card


def load_language_model(path: str | Path = WEIGHTS) -> tuple[LanguageModel, Characters]:
    """A Llama of 2.4 million parameters that writes like tiny Shakespeare, and its characters.

    Trained by ``experiments/shakespeare_model.py`` on windows of 256 characters: it has seen no
    longer distance. ``attn-course write --about`` prints data, recipe and results.

    Args:
        path: ``"draft"`` for a model of 99,264 parameters with the same characters, which
            proposes for speculative decoding; or another file that ``save_language_model`` of this
            module has written.

    Returns:
        The model, in evaluation mode and in float32, and its tokenizer.

    Raises:
        ModuleNotFoundError: Without safetensors.

    Example:
        >>> from attn_course.train import generate
        >>> model, characters = load_language_model()
        >>> prompt = characters.encode("ROMEO:")
        >>> written = generate(model, prompt, max_length=40, temperature=0.7, seed=0)
        >>> len(characters.decode(written.tokens[0]))
        40
    """
    path = DRAFT if path == "draft" else path
    card = model_card(path)
    with need("safetensors", "data", "a model on disk").safe_open(path, framework="pt") as file:
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, no dict
    scales = {name: weights.pop(name) for name in list(weights) if name.endswith(_SCALE)}
    for name, scale in scales.items():
        matrix = name.removesuffix(_SCALE)
        weights[matrix] = weights[matrix].float() * scale[:, None]
    model = llama_like(**card["config"], position=RotaryPositions(interleaved=False))
    model.load_state_dict(weights)
    return model.eval(), Characters(card["alphabet"])
