"""Models of Hugging Face `transformers` as modules of this package, and back.

::

    from transformers import AutoModelForCausalLM
    from attn_course.interop import from_transformers, to_transformers

    source = AutoModelForCausalLM.from_pretrained("openai-community/gpt2").eval()
    model = from_transformers(source)  # an nn.LanguageModel with the same logits
    back = to_transformers(model, config=source.config)
"""

try:
    import transformers  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "attn_course.interop reads models of transformers, which is not installed: "
        "pip install transformers, or pip install 'attn-course[interop]'",
        name="transformers",
    ) from error

from attn_course.interop._convert import from_transformers, to_transformers

__all__ = ["from_transformers", "to_transformers"]
