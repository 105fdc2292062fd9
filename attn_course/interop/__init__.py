"""Models of Hugging Face `transformers` as modules of this package, and back.

::

    from transformers import AutoModelForCausalLM
    from attn_course.interop import from_transformers, to_transformers

    source = AutoModelForCausalLM.from_pretrained("openai-community/gpt2").eval()
    model = from_transformers(source)  # an nn.LanguageModel with the same logits
    back = to_transformers(model, config=source.config)

    model = attn_course.interop.load("downloads/gpt2")  # config.json and *.safetensors, offline
"""

from attn_course._extras import need

need("transformers", "interop", "attn_course.interop")

from attn_course.interop._convert import from_transformers, to_transformers
from attn_course.interop._load import load

__all__ = ["from_transformers", "load", "to_transformers"]
