"""End-to-end memory network: answer a question by attending to a story several times."""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn

from attn_course._checks import check_at_least, check_axes, check_ids, check_size, has_values
from attn_course.functional.memory import memory_hop, sentence_ages, sentence_vectors

TYINGS = ("adjacent", "layer-wise", "untied")


class MemoryNetwork(nn.Module):
    r"""Attention over the sentences of a story, in :math:`K` hops.

    .. math::
       u^1 &= \textstyle\sum_j l_j \odot B q_j \\
       m_i^k &= \textstyle\sum_j l_j \odot A^k x_{ij} + T_A^k(i), \qquad
       c_i^k = \sum_j l_j \odot C^k x_{ij} + T_C^k(i) \\
       p_i^k &= \mathrm{softmax}(u^{k\top} m_i^k), \qquad o^k = \textstyle\sum_i p_i^k c_i^k \\
       u^{k+1} &= u^k + o^k, \qquad \hat a = \mathrm{softmax}(W u^{K+1})

    Sukhbaatar et al. (2015): equations 1 to 4; sentence representation, temporal encoding and
    random noise of section 4.1; linear start and first values of section 4.2. The story is read
    only: no hop changes a memory.

    What is shared, ``tying`` (section 2.2):

    - ``"adjacent"``: :math:`A^{k+1} = C^k`, :math:`T_A^{k+1} = T_C^k`, :math:`B = A^1` and
      :math:`W^\top = C^K`: :math:`K + 1` tables of words and of ages, and nothing else.
    - ``"layer-wise"``: :math:`A^1 = \ldots = A^K` and :math:`C^1 = \ldots = C^K`, with the linear
      map :math:`u^{k+1} = H u^k + o^k`; :math:`B` and :math:`W` are of their own. It is a recurrent
      network whose state is :math:`u` and which chooses what it reads.
    - ``"untied"``: no matrix is shared, as a control.

    Args:
        vocab_size: Number of word ids; answers are words. Id 0 is padding.
        embed_dim: Size :math:`d` of all vectors.
        max_sentences: Rows of the temporal encoding; a story may have at most so many sentences.
        hops: :math:`K`.
        position_encoding: Weight words by their place; otherwise sentences are bags of words.
        temporal_encoding: Add a learned vector for the age of a sentence.
        tying: ``"adjacent"``, ``"layer-wise"`` or ``"untied"``.
        linear_start: Begin without the softmax of the hops; set :attr:`linear` to False when the
            validation loss stops falling. The answer's softmax stays.
        random_noise: In training mode, the chance that a sentence is followed by an empty memory,
            which has an age and no words; the paper's is 0.1. So the ages of a story are not the
            same at every epoch, and rare ones are trained too. Needs the temporal encoding.

    Example:
        >>> model = MemoryNetwork(vocab_size=11, embed_dim=4, max_sentences=5, hops=2)
        >>> story, question = torch.randint(1, 11, (1, 3, 6)), torch.randint(1, 11, (1, 4))
        >>> logits, weights = model.read(story, question)
        >>> logits.shape, weights.shape
        (torch.Size([1, 11]), torch.Size([1, 2, 3]))
    """

    linear: bool
    """Whether the hops leave the softmax out. Part of the ``state_dict``, so a run can resume."""

    def __init__(
        self,
        *,
        vocab_size: int,
        embed_dim: int,
        max_sentences: int,
        hops: int = 3,
        position_encoding: bool = True,
        temporal_encoding: bool = True,
        tying: Literal["adjacent", "layer-wise", "untied"] = "adjacent",
        linear_start: bool = False,
        random_noise: float = 0.0,
    ) -> None:
        super().__init__()
        check_at_least(1, vocab_size=vocab_size, embed_dim=embed_dim)
        check_at_least(1, max_sentences=max_sentences, hops=hops)
        if tying not in TYINGS:
            raise ValueError(f"tying: expected one of {', '.join(TYINGS)}, got {tying!r}")
        if not 0 <= random_noise <= 1 or (random_noise and not temporal_encoding):
            with_ages = "from 0 to 1" if temporal_encoding else "0 without temporal encoding"
            raise ValueError(f"random_noise: expected a chance {with_ages}, got {random_noise}")
        self.random_noise = random_noise
        self.vocab_size, self.hops, self.tying = vocab_size, hops, tying
        self.max_sentences, self.positions = max_sentences, position_encoding
        self.linear = linear_start
        tables = {"adjacent": hops + 1, "layer-wise": 2, "untied": 2 * hops}[tying]
        self.words = _tables(tables, vocab_size, embed_dim)
        self.ages = _tables(tables if temporal_encoding else 0, max_sentences, embed_dim)
        self.question: nn.Embedding | None = None
        self.answer: nn.Linear | None = None
        self.update: nn.Linear | None = None
        if tying != "adjacent":
            self.question = nn.Embedding(vocab_size, embed_dim)
            self.answer = nn.Linear(embed_dim, vocab_size, bias=False)
        if tying == "layer-wise":
            self.update = nn.Linear(embed_dim, embed_dim, bias=False)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.1)  # section 4.2

    def tables_of(self, hop: int) -> tuple[int, int]:
        """Which of the tables :math:`A^k` and :math:`C^k` are, ``hop`` counted from 0."""
        if self.tying == "adjacent":
            return hop, hop + 1
        return (0, 1) if self.tying == "layer-wise" else (2 * hop, 2 * hop + 1)

    def ask(self, question: Int[Tensor, "B J"]) -> Float[Tensor, "B D"]:
        """The first query :math:`u^1`."""
        embedding = self.words[0] if self.question is None else self.question
        return sentence_vectors(embedding(question), question != 0, positions=self.positions)

    def memory(
        self,
        story: Int[Tensor, "B N J"],
        table: int,
        sentence_mask: Bool[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B N D"]:
        """The story in the vectors of one table of :meth:`tables_of`; 0 at empty sentences.

        ``sentence_mask`` is True at a memory; where there are words, if not given.
        """
        word_mask = story != 0
        vectors = sentence_vectors(self.words[table](story), word_mask, positions=self.positions)
        if len(self.ages):
            there = word_mask.any(-1) if sentence_mask is None else sentence_mask
            ages = sentence_ages(there)  # (B, N)
            vectors = vectors + self.ages[table](ages.clamp(min=0))
            vectors = vectors.masked_fill(ages.unsqueeze(-1) < 0, 0.0)
        return vectors

    def read(
        self,
        story: Int[Tensor, "B N J"],
        question: Int[Tensor, "B Jq"],
        generator: Generator | None = None,
    ) -> tuple[Float[Tensor, "B V"], Float[Tensor, "B K N"]]:
        """Logits of the answer, and the weights of the sentences in every hop.

        Args:
            story: Word ids of the sentences, oldest first; 0 is padding, and a sentence of padding
                only is no sentence.
            question: Word ids, 0 is padding.
            generator: Source of the random noise; torch's own when None.
        """
        check_axes("story", story, "B N J")
        check_axes("question", question, "B J")
        check_size("question", question, 0, story.shape[0])
        check_ids("story", story, self.vocab_size)
        check_ids("question", question, self.vocab_size)
        mask = (story != 0).any(-1)  # (B, N)
        if len(self.ages) and has_values(mask):
            longest = int(mask.sum(-1).max()) if mask.numel() else 0
            if longest > self.max_sentences:
                raise ValueError(
                    f"story: expected at most {self.max_sentences} sentences, got {longest}"
                )
        step = 1
        if self.training and self.random_noise:
            story, mask = self._add_noise(story, mask, generator)
            step = 2
        memories: dict[int, Tensor] = {}
        query, weighed = self.ask(question), []
        for hop in range(self.hops):
            tables = self.tables_of(hop)
            for table in tables:
                if table not in memories:
                    memories[table] = self.memory(story, table, mask)
            memory_in, memory_out = (memories[table] for table in tables)
            output, weights = memory_hop(query, memory_in, memory_out, mask, linear=self.linear)
            query = (query if self.update is None else self.update(query)) + output
            weighed.append(weights[:, ::step])
        if self.answer is None:
            last: Tensor = self.words[-1].weight  # type: ignore[assignment]
            return query @ last.T, torch.stack(weighed, dim=1)
        return self.answer(query), torch.stack(weighed, dim=1)

    def forward(
        self,
        story: Int[Tensor, "B N J"],
        question: Int[Tensor, "B Jq"],
        generator: Generator | None = None,
    ) -> Float[Tensor, "B V"]:
        """Logits of the answer; arguments as in :meth:`read`."""
        return self.read(story, question, generator)[0]

    def _add_noise(
        self, story: Int[Tensor, "B N J"], mask: Bool[Tensor, "B N"], generator: Generator | None
    ) -> tuple[Int[Tensor, "B M J"], Bool[Tensor, "B M"]]:
        """The story with an empty memory after every sentence, and which of all memories count."""
        chance = torch.rand(mask.shape, generator=generator, device=mask.device)
        chance = chance.masked_fill(~mask, 1.0)
        # no more memories than there are ages: the lowest draws come first
        room = self.max_sentences - mask.sum(-1, keepdim=True)
        drawn = (chance < self.random_noise) & (chance.argsort(-1).argsort(-1) < room)
        with_gaps = torch.stack([story, torch.zeros_like(story)], dim=2).flatten(1, 2)
        return with_gaps, torch.stack([mask, drawn], dim=2).flatten(1, 2)

    def get_extra_state(self) -> dict[str, bool]:
        """The phase of a linear start, kept in the ``state_dict``."""
        return {"linear": self.linear}

    def set_extra_state(self, state: dict[str, bool]) -> None:
        """Go on in the phase in which the state was taken."""
        self.linear = state["linear"]


def _tables(count: int, rows: int, size: int) -> nn.ModuleList:
    return nn.ModuleList(nn.Embedding(rows, size) for _ in range(count))
