"""Keys and values of the tokens so far, so that a new token costs one row of attention."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attn_course._checks import check_at_least, check_size, compiling

Method = TypeVar("Method", bound=Callable[..., Any])
ATTENTION_CACHES = "a KVCache(), a SlidingCache(...) or a CrossCache()"


class Cached(NamedTuple):
    """What a cache returns for the new queries to attend to.

    Attributes:
        key: Keys, old and new.
        value: Their values.
        positions: The position of each key; negative where there is none.
        window: Which of them each new query attends to; None: the cache masks nothing.
    """

    key: Float[Tensor, "B H S E"]
    value: Float[Tensor, "B H S Ev"]
    positions: Int[Tensor, "*B S"]
    window: Bool[Tensor, "B 1 L S"] | None


@runtime_checkable
class Cache(Protocol):
    """What :class:`MultiHeadAttention` needs of a cache."""

    length: int
    """How many tokens it has had, padding included."""

    rotates_late: bool
    """Whether positions of stored keys change, so that RoPE must wait until they are read."""

    def append(
        self,
        key: Float[Tensor, "B H L E"],
        value: Float[Tensor, "B H L Ev"],
        positions: Int[Tensor, "B L"] | None = None,
    ) -> Cached:
        """Store the new tokens; return all that may be attended to."""
        ...


class _NoCache:
    """Keeps nothing: each call has its own keys only."""

    length, rotates_late = 0, False

    def append(self, key: Tensor, value: Tensor, positions: Tensor | None = None) -> Cached:
        """The new keys and values."""
        at = _from_zero(key) if positions is None else positions
        return Cached(key, value, at, None)


NO_CACHE = _NoCache()


class KVCache:
    """Every key and value so far.

    Without ``max_length`` it grows by copying, and gradients flow through it. With it, memory is
    taken once, at the first token, and written in place: for inference only.

    Args:
        max_length: Largest number of tokens.

    Example:
        >>> cache = KVCache()
        >>> cached = cache.append(torch.ones(1, 2, 3, 5), torch.ones(1, 2, 3, 5))
        >>> cache, cache.nbytes  # 2 (key, value) * 2 heads * 3 tokens * 5 numbers * 4 bytes
        (KVCache(length=3), 240)
    """

    rotates_late = False

    def __init__(self, *, max_length: int | None = None) -> None:
        check_at_least(1, max_length=1 if max_length is None else max_length)
        self.max_length = max_length
        self.length = 0
        self._rows: tuple[Tensor, Tensor] | None = None
        self._positions: Tensor | None = None

    def append(
        self,
        key: Float[Tensor, "B H L E"],
        value: Float[Tensor, "B H L Ev"],
        positions: Int[Tensor, "B L"] | None = None,
    ) -> Cached:
        """Store the new tokens; return all so far.

        Args:
            key: One row per new token.
            value: Its values.
            positions: Position of each in its text, negative at padding; the next ones if None.
                Every call has them or none.

        Raises:
            ValueError: If the batch has another size than before, positions are given at some calls
                only, there are more tokens than ``max_length``, or that cache would need gradients.
        """
        end = self.length + key.shape[-2]
        if self._rows is not None:
            check_size("key", key, 0, self._rows[0].shape[0])
            if (positions is None) != (self._positions is None):
                raise ValueError("positions: expected at every call of a cache or at none")
        if self.max_length is not None:
            rows = self._write(key, value, self.max_length, end)
        elif self._rows is None:
            rows = self._rows = (key, value)
        else:
            rows = self._rows = (_joined(self._rows[0], key), _joined(self._rows[1], value))
        if positions is not None:
            old = self._positions
            self._positions = positions if old is None else _joined(old, positions, dim=-1)
        self.length = end
        at = _from_zero(rows[0]) if self._positions is None else self._positions
        return Cached(*rows, at, None)

    def __repr__(self) -> str:
        most = "" if self.max_length is None else f", max_length={self.max_length}"
        return f"KVCache(length={self.length}{most})"

    def _write(self, key: Tensor, value: Tensor, room: int, end: int) -> tuple[Tensor, Tensor]:
        """Write the new tokens after the old ones, in place."""
        if end > room:
            raise ValueError(f"key: expected at most {room} tokens in all, got {end}")
        if torch.is_grad_enabled() and (key.requires_grad or value.requires_grad):
            raise ValueError(
                "key: expected no gradients in a cache with max_length, which is written in place: "
                "use torch.no_grad(), or KVCache() without max_length"
            )
        if self._rows is None:
            self._rows = (_empty(key, room), _empty(value, room))
        for rows, new in zip(self._rows, (key, value), strict=True):
            rows[:, :, self.length : end] = new
        return self._rows[0][:, :, :end], self._rows[1][:, :, :end]

    @property
    def nbytes(self) -> int:
        """Bytes of the keys and values so far; memory allocated ahead is not counted."""
        return sum(rows[:, :, : self.length].nbytes for rows in self._rows or ())

    def select(self, rows: Int[Tensor, " N"]) -> "KVCache":
        """A new cache with these rows of the batch, for beam search."""
        new = KVCache(max_length=self.max_length)
        new.length = self.length
        if self._rows is not None:
            new._rows = (self._rows[0].index_select(0, rows), self._rows[1].index_select(0, rows))
        if self._positions is not None:
            new._positions = self._positions.index_select(0, rows)
        return new

    def truncate(self, length: int) -> None:
        """Forget all tokens from ``length`` on, for speculative decoding."""
        if not 0 <= length <= self.length:
            raise ValueError(f"length: expected 0 to {self.length}, got {length}")
        self.length = length
        if self.max_length is None and self._rows is not None:
            self._rows = (self._rows[0][:, :, :length], self._rows[1][:, :, :length])
        if self._positions is not None:
            self._positions = self._positions[:, :length]


class SlidingCache:
    r"""The last ``window_size`` tokens and the first few: memory that does not grow.

    A query at position :math:`i` attends to the keys :math:`j` with :math:`i - W < j \le i` or
    :math:`j < \mathrm{sinks}`. Sliding window: Beltagy et al. (2020); sinks: Xiao et al. (2024):
    a model trained with full attention fails as soon as the first tokens leave the window.
    Padding, left or right, takes no memory.

    Args:
        window_size: :math:`W`, the query's own key included.
        sinks: How many of the first tokens stay.
        sinks_follow: The sinks have the positions directly before the window, however long the
            text is, as in Xiao et al.: no distance is larger than in training. Otherwise each
            token keeps its position in the text, and the result is that of full attention with the
            mask above.

    Example:
        >>> cache = SlidingCache(window_size=4, sinks=1)
        >>> attention = MultiHeadAttention(embed_dim=8, num_heads=2)
        >>> _ = attention(torch.randn(1, 9, 8), is_causal=True, cache=cache)
        >>> cache, cache.nbytes  # 2 (key, value) * (4 + 1) tokens * 8 numbers * 4 bytes
        (SlidingCache(length=9, window_size=4, sinks=1), 320)
    """

    def __init__(self, *, window_size: int, sinks: int = 0, sinks_follow: bool = False) -> None:
        if window_size < 1 or sinks < 0:
            raise ValueError(
                "window_size, sinks: expected at least 1 and at least 0, "
                f"got {window_size} and {sinks}"
            )
        self.window_size, self.sinks = window_size, sinks
        self.rotates_late = sinks_follow
        self.length = 0
        self._slots: tuple[Tensor, Tensor, Tensor] | None = None  # keys, values, positions

    def append(
        self,
        key: Float[Tensor, "B H L E"],
        value: Float[Tensor, "B H L Ev"],
        positions: Int[Tensor, "B L"] | None = None,
    ) -> Cached:
        """Store the new tokens; return window, sinks, and the mask of window and causality.

        Arguments as of :meth:`KVCache.append`; ``positions`` are without gaps.

        Raises:
            ValueError: If the batch has another size than before, or, with ``sinks_follow``, some
                of several tokens do not fit: then each has its sinks at other positions.
        """
        batch, new = key.shape[0], key.shape[-2]
        slots = self.sinks + self.window_size
        if self.rotates_late and new > 1 and self.length + new > slots:
            raise ValueError(
                f"key: expected one token at a time beyond {slots} tokens with sinks_follow, "
                f"got {new}"
            )
        if positions is None:
            after = torch.arange(self.length, self.length + new, device=key.device)
            positions = after.expand(batch, new)
        if self._slots is None:
            nowhere = positions.new_full((batch, slots), -1)
            self._slots = (_empty(key, slots), _empty(value, slots), nowhere)
        keys, values, stored = self._slots
        check_size("key", key, 0, keys.shape[0])
        at = _joined(stored, positions, dim=-1)  # (B, S)
        behind = positions.unsqueeze(-1) - at.unsqueeze(-2)  # (B, L, S)
        inside = (behind >= 0) & ((behind < self.window_size) | (at < self.sinks).unsqueeze(-2))
        window = inside & (at >= 0).unsqueeze(-2)
        slot = self._slot(positions, at)
        self._slots = (
            _placed(keys, slot[:, None, :, None].expand_as(key), key),
            _placed(values, slot[:, None, :, None].expand_as(value), value),
            _placed(stored.unsqueeze(-1), slot.unsqueeze(-1), positions.unsqueeze(-1)).squeeze(-1),
        )
        self.length += new
        if self.rotates_late:
            gone = (positions.amax(-1, keepdim=True) + 1 - slots).clamp(min=0)  # (B, 1)
            at = torch.where((at >= 0) & (at < self.sinks), at + gone, at)
        return Cached(_joined(keys, key), _joined(values, value), at, window.unsqueeze(1))

    def __repr__(self) -> str:
        sizes = f"length={self.length}, window_size={self.window_size}, sinks={self.sinks}"
        return f"SlidingCache({sizes}{', sinks_follow=True' if self.rotates_late else ''})"

    def _slot(self, positions: Tensor, at: Tensor) -> Tensor:
        """The slot of each new token; one past the end if no later query attends to it."""
        last = at.amax(-1, keepdim=True)
        stays = (positions < self.sinks) | (positions > last - self.window_size)
        turn = self.sinks + (positions - self.sinks) % self.window_size
        slot = torch.where(positions < self.sinks, positions, turn)
        return torch.where(stays & (positions >= 0), slot, self.sinks + self.window_size)

    @property
    def nbytes(self) -> int:
        """Bytes of its keys and values, the same from the first token on."""
        return 0 if self._slots is None else self._slots[0].nbytes + self._slots[1].nbytes

    def select(self, rows: Int[Tensor, " N"]) -> "SlidingCache":
        """A new cache with these rows of the batch, for beam search."""
        new = SlidingCache(
            window_size=self.window_size, sinks=self.sinks, sinks_follow=self.rotates_late
        )
        new.length = self.length
        if self._slots is not None:
            keys, values, stored = (part.index_select(0, rows) for part in self._slots)
            new._slots = (keys, values, stored)
        return new


class CrossCache:
    """Keys and values of an encoder's output: projected at the first step, read at every later.

    Example:
        >>> cache, attention = CrossCache(), MultiHeadAttention(embed_dim=8, num_heads=2)
        >>> memory = torch.randn(1, 7, 8)
        >>> steps = [attention(token, memory, cache=cache) for token in torch.randn(3, 1, 1, 8)]
        >>> cache
        CrossCache(length=7)
    """

    length, rotates_late = 0, False  # it has no tokens of the queries' own text

    def __init__(self) -> None:
        self.key: Tensor | None = None
        self.value: Tensor | None = None

    def append(self, key: Tensor, value: Tensor, positions: Tensor | None = None) -> Cached:
        """Store keys and values, and return them."""
        if positions is not None:
            raise ValueError("positions: expected none with a CrossCache")
        self.key, self.value = key, value
        return Cached(key, value, _from_zero(key), None)

    def __repr__(self) -> str:
        return f"CrossCache(length={0 if self.key is None else self.key.shape[-2]})"

    @property
    def nbytes(self) -> int:
        """Bytes of the keys and values."""
        return sum(0 if part is None else part.nbytes for part in (self.key, self.value))

    def select(self, rows: Int[Tensor, " N"]) -> "CrossCache":
        """A new cache with these rows of the batch, for beam search."""
        new = CrossCache()
        if self.key is not None and self.value is not None:
            new.key, new.value = (p.index_select(0, rows) for p in (self.key, self.value))
        return new


class DecoderCache(NamedTuple):
    """The two caches of one :class:`DecoderBlock`."""

    self_attention: KVCache | SlidingCache
    cross_attention: CrossCache

    @property
    def length(self) -> int:
        """How many tokens of the target it has had."""
        return self.self_attention.length

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return self.self_attention.nbytes + self.cross_attention.nbytes

    def select(self, rows: Int[Tensor, " N"]) -> "DecoderCache":
        """New caches with these rows of the batch."""
        return DecoderCache(self.self_attention.select(rows), self.cross_attention.select(rows))

    def truncate(self, length: int) -> None:
        """Forget all tokens of the target from ``length`` on; see :meth:`KVCache.truncate`."""
        if isinstance(self.self_attention, SlidingCache):
            raise ValueError("length: a sliding cache has forgotten the tokens before its window")
        self.self_attention.truncate(length)


class ModelCache:
    """The caches of all blocks of a model, and which of the tokens so far are real.

    Attributes:
        layers: One cache per block.
        real: How many real tokens each row has so far; None as long as there was no padding.
    """

    def __init__(self, layers: Sequence[Any]) -> None:
        self.layers: list[Any] = list(layers)
        self.real: Int[Tensor, " B"] | None = None

    @property
    def length(self) -> int:
        """How many tokens it has had, padding included."""
        return int(self.layers[0].length) if self.layers else 0

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values."""
        return sum(layer.nbytes for layer in self.layers)

    def __repr__(self) -> str:
        return f"ModelCache(length={self.length}, layers={self.layers})"

    def select(self, rows: Int[Tensor, " N"]) -> "ModelCache":
        """A new cache with these rows of the batch, for beam search."""
        new = ModelCache([layer.select(rows) for layer in self.layers])
        new.real = None if self.real is None else self.real.index_select(0, rows)
        return new

    def truncate(self, length: int) -> None:
        """As :meth:`KVCache.truncate`, for a batch without padding."""
        if self.real is not None:
            raise ValueError("length: expected a batch without padding to truncate")
        for layer in self.layers:
            layer.truncate(length)


def takes_cache(attribute: str, expected: str) -> Callable[[Method], Method]:
    """For a method with ``cache=``: refuse other kinds, and leave it as it was if the call fails.

    Args:
        attribute: What such a cache has and others have not.
        expected: What to pass.
    """

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        def run(*args: Any, **options: Any) -> Any:
            cache = options.get("cache")
            if cache is None or compiling():
                return method(*args, **options)
            if not hasattr(cache, attribute) or isinstance(cache, type):
                got = cache.__name__ if isinstance(cache, type) else type(cache).__name__
                raise ValueError(f"cache: expected {expected}, got {got}")
            layers, blocks = getattr(cache, "layers", cache), getattr(args[0], "blocks", None)
            if blocks is not None and len(layers) != len(blocks):
                raise ValueError(f"cache: expected {len(blocks)} layers, got {len(layers)}")
            before = [(part, dict(vars(part))) for part in _parts(cache)]
            try:
                return method(*args, **options)
            except BaseException:
                for part, state in before:
                    vars(part).update(state)
                raise

        return run  # type: ignore[return-value]

    return decorate


def _parts(cache: Any) -> list[Any]:
    """The caches inside of caches, and those themselves that have a state."""
    if isinstance(cache, ModelCache):
        return [cache, *(part for layer in cache.layers for part in _parts(layer))]
    return [p for part in cache for p in _parts(part)] if isinstance(cache, Sequence) else [cache]


def _from_zero(key: Tensor) -> Tensor:
    return torch.arange(key.shape[-2], device=key.device)


def _joined(old: Tensor, new: Tensor, dim: int = -2) -> Tensor:
    return torch.cat([old, new], dim=dim)


def _empty(rows: Tensor, room: int) -> Tensor:
    return rows.new_zeros(*rows.shape[:2], room, rows.shape[-1])


def _placed(old: Tensor, slot: Tensor, new: Tensor) -> Tensor:
    """A copy with the new rows in their slots; a slot one past the end is discarded."""
    extended = torch.cat([old, torch.zeros_like(old.narrow(-2, 0, 1))], dim=-2)
    return extended.scatter(-2, slot, new).narrow(-2, 0, old.shape[-2])
