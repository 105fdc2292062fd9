"""The last exercise of chapter 11 runs the package's model, and says what the package says."""

import torch
from sets import source
from trial import Trial

from attn_course.data import load_language_model


def test_the_learners_parts_write_what_the_package_would_write():
    model, characters = load_language_model()
    names = Trial(source("11_language_model"), seed=0).names
    prompt = characters.encode("ROMEO:\n")
    uniforms = torch.rand(9, generator=torch.Generator().manual_seed(0))
    words, logits = names["generate"](
        names["parameters_of"](model),
        *(prompt, uniforms, names["cached_attention"], names["sample_next"]),
    )
    with torch.no_grad():
        whole = model(torch.cat([prompt, words])[None])[0]
    package = whole[len(prompt) - 1 : -1]
    torch.testing.assert_close(logits, package, atol=1e-4, rtol=1e-4)
    drawn = [names["sample_next"](row, u) for row, u in zip(package, uniforms.tolist(), strict=True)]
    assert words.tolist() == drawn
