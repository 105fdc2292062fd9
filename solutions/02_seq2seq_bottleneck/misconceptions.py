"""Wrong answers on the way to an encoder-decoder: name, message, and the tests they must fail."""

import torch
from torch.nn import functional as F

from attn_course.probes import WrongAnswers, call, student, witnesses

wrong_encode = WrongAnswers("encode", tests=("order", "padding", "start", "empty_row"))
wrong_shift_targets = WrongAnswers("shift_targets", tests=("values", "padding", "reserved_ids"))
wrong_sequence_loss = WrongAnswers(
    "sequence_loss",
    tests=("values", "padding", "other_pad", "large_logits", "nothing_real", "gradient"),
)
wrong_unroll = WrongAnswers(
    "unroll", tests=("one_step", "state_is_carried", "targets_are_read", "both")
)
wrong_greedy_decode = WrongAnswers(
    "greedy_decode", tests=("by_hand", "rows_end_apart", "cut_off", "other_ids")
)
wrong_beam_search = WrongAnswers(
    "beam_search",
    tests=("by_hand", "one_is_greedy", "width", "states_follow", "length_penalty", "cut_off"),
)
wrong_fixed_beam_step = WrongAnswers("fixed_beam_step", tests=("first_step", "later_steps"))
wrong_check_loss = WrongAnswers("check_loss", tests=("plain", "mutants"))


def reader(table, decay):
    def step(token, state):
        return decay * state + table[token]

    step.table, step.decay = table, decay
    return step


def writer(table, decay, mix):
    def step(token, state):
        state = decay * state + table[token]
        return state @ mix, state

    step.table, step.decay, step.mix = table, decay, mix
    return step


def markov(logits):
    def step(token, state):
        return logits[token], state

    return step


def countdown(token, state):
    logits = torch.zeros(len(state), 5)
    logits[torch.arange(len(state)), torch.where(state[:, 0] > 1, 3, 2)] = 5.0
    return logits, state - 1


# --- encode ------------------------------------------------------------------------------------


@witnesses(of="encode")
def encode_calls(draw):
    count = reader(torch.arange(20.0)[:, None], 2.0)
    step = reader(draw.normal(11, 3), 0.5)
    source = draw.integers(4, 11, 3, 5)
    for lengths in ([5, 5, 5], [5, 2, 3], [3, 1, 2], [0, 5, 1], [4, 4, 0]):
        yield call(step, source, torch.tensor(lengths), torch.zeros(3, 3))
        yield call(step, source, torch.tensor(lengths), draw.normal(3, 3))
    yield call(count, torch.tensor([[4, 0]]), torch.tensor([1]), torch.zeros(1, 1))
    yield call(count, torch.tensor([[4, 5]]), torch.tensor([2]), torch.ones(1, 1))


@wrong_encode("the last column's state", fails=("padding", "empty_row"))
def encode_last_column(step, source, lengths, state):
    """You read all columns and return the last state, so short rows go on changing while the step
    reads their filling. The context of a word then depends on the words that share its batch.
    Look at where `lengths` enters.
    """
    for t in range(source.shape[1]):
        state = step(source[:, t], state)
    return state


@wrong_encode("the longest row decides", fails=("padding", "empty_row"))
def encode_longest(step, source, lengths, state):
    """You stop at the longest row of the batch, for all rows at once.
    A shorter row has read filling by then; every row has an end of its own.
    """
    for t in range(int(lengths.max())):
        state = step(source[:, t], state)
    return state


@wrong_encode("one symbol too few")
def encode_one_less(step, source, lengths, state):
    """Your rows end one symbol early: the last symbol of each row is never read.
    Columns are counted from 0; look at the comparison with `lengths`.
    """
    for t in range(source.shape[1]):
        state = torch.where((t < lengths - 1)[:, None], step(source[:, t], state), state)
    return state


@wrong_encode("one symbol too many", fails=("padding", "empty_row"))
def encode_one_more(step, source, lengths, state):
    """Your rows read one symbol of their filling before they stop.
    Columns are counted from 0; look at the comparison with `lengths`.
    """
    for t in range(source.shape[1]):
        state = torch.where((t <= lengths)[:, None], step(source[:, t], state), state)
    return state


@wrong_encode("the given state is ignored", fails=("start", "empty_row"))
def encode_from_zeros(step, source, lengths, state):
    """You start from zeros, whatever `state` holds. The caller says where to start;
    look at what the first call of `step` gets.
    """
    state = torch.zeros_like(state)
    for t in range(source.shape[1]):
        state = torch.where((t < lengths)[:, None], step(source[:, t], state), state)
    return state


@wrong_encode("padding wipes the state", fails=("padding", "empty_row"))
def encode_wiped(step, source, lengths, state):
    """You multiply the state by the mask, so a row that has ended falls to zero
    instead of staying as it was. Filling must leave the state alone.
    """
    for t in range(source.shape[1]):
        state = step(source[:, t], state) * (t < lengths)[:, None]
    return state


@wrong_encode("rows are left in another order", fails=("padding", "empty_row"))
def encode_sorted(step, source, lengths, state):
    """You sort the rows by their length and never put them back, so a row gets the state of another
    one. Look at the order in which the rows leave the function.
    """
    order = lengths.argsort(descending=True, stable=True)
    source, lengths, state = source[order], lengths[order], state[order]
    for t in range(source.shape[1]):
        state = torch.where((t < lengths)[:, None], step(source[:, t], state), state)
    return state


@wrong_encode("an empty row becomes zero", fails=("empty_row",))
def encode_empty_zero(step, source, lengths, state):
    """Your rows of length 0 come out as zeros. A row that reads nothing has no reason to change;
    look at what your result holds before the first symbol is read.
    """
    out = torch.zeros_like(state)
    for t in range(source.shape[1]):
        state = step(source[:, t], state)
        out = torch.where((lengths == t + 1)[:, None], state, out)
    return out


@wrong_encode("read from right to left")
def encode_backwards(step, source, lengths, state):
    """You read the symbols from the last to the first. Reversing the source is a known trick, but
    the contract here is reading order; look at the range of your loop.
    """
    for t in reversed(range(source.shape[1])):
        state = torch.where((t < lengths)[:, None], step(source[:, t], state), state)
    return state


@wrong_encode("mean of the states")
def encode_mean(step, source, lengths, state):
    """You return the mean of all states of a row. The context vector of this chapter is the state
    after the last symbol; a mean forgets the order on top of it.
    """
    total = torch.zeros_like(state)
    for t in range(source.shape[1]):
        real = (t < lengths)[:, None]
        state = torch.where(real, step(source[:, t], state), state)
        total = total + state * real
    return total / lengths.clamp(min=1)[:, None]


# --- shift_targets -----------------------------------------------------------------------------


@witnesses(of="shift_targets")
def shift_calls(draw):
    yield call(torch.tensor([[7]]), torch.tensor([1]))
    yield call(torch.tensor([[7, 8]]), torch.tensor([2]), bos=97, eos=98, pad=99)
    for lengths in ([4, 4], [4, 1], [0, 4], [2, 4]):
        n = torch.tensor(lengths)
        ids = draw.integers(4, 20, 2, 4).masked_fill(torch.arange(4) >= n[:, None], 0)
        yield call(ids, n)
        yield call(ids.masked_fill(ids == 0, 33), n, bos=31, eos=32, pad=33)
    yield call(draw.integers(4, 20, 1, 3, dtype=torch.int32), torch.tensor([3]))


def shifted(target, lengths, bos, eos, pad):
    rows = len(target)
    target_in = torch.cat([target.new_full((rows, 1), bos), target], dim=1)
    target_out = torch.cat([target, target.new_full((rows, 1), pad)], dim=1)
    target_out[torch.arange(rows), lengths] = eos
    return target_in, target_out


@wrong_shift_targets("no shift at all")
def shift_none(target, lengths, bos=1, eos=2, pad=0):
    """Your decoder reads the very symbol that it is asked for: both results are the same.
    It will learn to copy its input, with a loss near zero, and nothing about the source.
    """
    _, target_out = shifted(target, lengths, bos, eos, pad)
    return target_out.clone(), target_out


@wrong_shift_targets("input and output exchanged")
def shift_exchanged(target, lengths, bos=1, eos=2, pad=0):
    """You return the pair the other way round: the decoder would read `eos` and be asked for `bos`.
    Look at which of the two it reads.
    """
    target_in, target_out = shifted(target, lengths, bos, eos, pad)
    return target_out, target_in


@wrong_shift_targets("eos in the last column", but=("values",))
def shift_eos_last(target, lengths, bos=1, eos=2, pad=0):
    """You put `eos` into the last column of every row. In a short row it then stands behind the
    padding, so the model never sees that the word has ended. Look at where a row ends.
    """
    target_in, _ = shifted(target, lengths, bos, eos, pad)
    return target_in, torch.cat([target, target.new_full((len(target), 1), eos)], dim=1)


@wrong_shift_targets("no end symbol")
def shift_no_eos(target, lengths, bos=1, eos=2, pad=0):
    """Your outputs hold no `eos`. The model is never taught to stop, and decoding runs on
    until it is cut off.
    """
    target_in, _ = shifted(target, lengths, bos, eos, pad)
    return target_in, torch.cat([target, target.new_full((len(target), 1), pad)], dim=1)


@wrong_shift_targets("fixed reserved ids", fails=("reserved_ids",))
def shift_fixed_ids(target, lengths, bos=1, eos=2, pad=0):
    """You write the numbers 1, 2 and 0 and pass over the arguments `bos`, `eos` and `pad`.
    Another vocabulary numbers them otherwise.
    """
    return shifted(target, lengths, 1, 2, 0)


@wrong_shift_targets("eos is fed to the decoder", but=("values",))
def shift_eos_read(target, lengths, bos=1, eos=2, pad=0):
    """You build bos, word, eos in one piece and cut its ends off, so that short rows read their
    `eos` and are asked for padding after it. Look at the input of a short row.
    """
    _, target_out = shifted(target, lengths, bos, eos, pad)
    whole = torch.cat([target.new_full((len(target), 1), bos), target_out], dim=1)
    return whole[:, :-1], target_out


@wrong_shift_targets("bos is asked for")
def shift_bos_asked(target, lengths, bos=1, eos=2, pad=0):
    """Your output begins with `bos`, so the model is asked for a symbol that is always the same,
    and every other symbol is asked for one step late. `bos` is only ever read.
    """
    target_in, _ = shifted(target, lengths, bos, eos, pad)
    return target_in, target_in.clone()


# --- sequence_loss -----------------------------------------------------------------------------


@witnesses(of="sequence_loss")
def loss_calls(draw):
    logits = draw.normal(3, 4, 5)
    target = draw.integers(1, 4, 3, 4)
    short = target.masked_fill(torch.arange(4) >= torch.tensor([[4], [1], [2]]), 0)
    yield call(torch.tensor([[[0.0, 1.0, 3.0]]]), torch.tensor([[1]]))
    yield call(logits, target)
    yield call(logits, short)
    yield call(logits, short, pad=4)
    yield call(logits, short.masked_fill(short == 0, 4), pad=4)
    yield call(logits, torch.zeros(3, 4, dtype=torch.long))
    yield call(logits, torch.full((3, 4), 4), pad=4)
    yield call(torch.tensor([[[400.0, 0.0, 100.0]]]), torch.tensor([[1]]))
    yield call(logits, short, via=student.grad(0))


def token_losses(logits, target_out):
    return -logits.log_softmax(-1).gather(-1, target_out[..., None])[..., 0]


@wrong_sequence_loss("padding is averaged in", but=("values", "large_logits"))
def loss_everything(logits, target_out, pad=0):
    """You take the mean over all positions, padding included. The model is rewarded for saying
    padding after the end, which is easy, and the loss looks better than it is.
    """
    return token_losses(logits, target_out).mean()


@wrong_sequence_loss("padding is zeroed but counted", fails=("padding", "other_pad", "gradient"))
def loss_zeroed(logits, target_out, pad=0):
    """You set the losses of padding to 0 and then divide by the number of all positions.
    The value then depends on how much padding the batch has; look at what you divide by.
    """
    return (token_losses(logits, target_out) * (target_out != pad)).mean()


@wrong_sequence_loss("mean of the rows' means", fails=("padding", "other_pad", "gradient"))
def loss_row_means(logits, target_out, pad=0):
    """You average each row first and then the rows. A token of a short row weighs more that way,
    and the result is no cross-entropy per token. Count tokens, not rows.
    """
    real = target_out != pad
    sums = (token_losses(logits, target_out) * real).sum(1)
    return (sums / real.sum(1).clamp(min=1)).mean()


@wrong_sequence_loss("padding is always 0", fails=("other_pad", "nothing_real"))
def loss_fixed_pad(logits, target_out, pad=0):
    """You compare the targets with 0 and pass over the argument `pad`. In another vocabulary 0 is a
    symbol like any other.
    """
    real = target_out != 0
    return (token_losses(logits, target_out) * real).sum() / real.sum().clamp(min=1)


@wrong_sequence_loss("divided by the number of rows", but=("large_logits", "nothing_real"))
def loss_per_row(logits, target_out, pad=0):
    """You divide the sum by the number of rows. That is a loss per sentence, and long sentences cost
    more; look at what N counts.
    """
    chosen = logits.log_softmax(-1).gather(-1, target_out[..., None])[..., 0]
    return -chosen.masked_fill(target_out == pad, 0).sum() / len(logits)


@wrong_sequence_loss("sum in place of the mean", but=("large_logits", "nothing_real"))
def loss_sum(logits, target_out, pad=0):
    """You return the sum over all real positions. Its size grows with the batch, and so would the
    gradient; look at the N in the formula.
    """
    return (token_losses(logits, target_out) * (target_out != pad)).sum()


@wrong_sequence_loss("the logarithm comes too late", fails=("large_logits",))
def loss_underflow(logits, target_out, pad=0):
    """You take the softmax first and its logarithm afterwards. A probability below 1e-45 is stored
    as 0 and its logarithm is minus infinity. Look at chapter 00 for how the two are taken together.
    """
    chosen = logits.softmax(-1).gather(-1, target_out[..., None])[..., 0].log()
    real = target_out != pad
    return -chosen.masked_fill(~real, 0).sum() / real.sum().clamp(min=1)


@wrong_sequence_loss("softmax over the positions", but=("nothing_real",))
def loss_wrong_axis(logits, target_out, pad=0):
    """You normalise over the positions of a row and not over the vocabulary. At every position the
    probabilities of all symbols have to add up to one.
    """
    losses = -logits.log_softmax(1).gather(-1, target_out[..., None])[..., 0]
    real = target_out != pad
    return losses.masked_fill(~real, 0).sum() / real.sum().clamp(min=1)


@wrong_sequence_loss("0 divided by 0", fails=("nothing_real",))
def loss_empty_nan(logits, target_out, pad=0):
    """You divide by the number of real positions also when there are none. 0/0 is NaN, and one NaN
    in a gradient ruins all parameters.
    """
    real = target_out != pad
    return token_losses(logits, target_out).masked_fill(~real, 0).sum() / real.sum()


# --- unroll ------------------------------------------------------------------------------------


@witnesses(of="unroll")
def unroll_calls(draw):
    step = writer(draw.normal(7, 3), 0.5, draw.normal(3, 7))
    for rows, length in ((1, 1), (3, 1), (1, 2), (2, 4), (3, 5)):
        yield call(step, draw.normal(rows, 3), draw.integers(1, 7, rows, length))
    deaf = writer(torch.zeros(7, 3), 0.7, draw.normal(3, 7))
    yield call(deaf, draw.normal(2, 3), draw.integers(1, 7, 2, 3))
    says = writer(draw.normal(7, 3), 0.0, draw.normal(3, 7))
    yield call(says, draw.normal(2, 3), torch.tensor([[1, 4, 5, 6], [1, 6, 3, 4]]))


def unrolled(step, state, target_in):
    logits = []
    for t in range(target_in.shape[1]):
        scores, state = step(target_in[:, t], state)
        logits.append(scores)
    return logits


@wrong_unroll("the decoder reads its own guesses", fails=("targets_are_read", "both"))
def unroll_free(step, state, target_in):
    """You feed the decoder its own best guess. That is how it is used later; under teacher forcing
    it reads the target, right or wrong as its guess may be.
    """
    logits, token = [], target_in[:, 0]
    for _ in range(target_in.shape[1]):
        scores, state = step(token, state)
        token = scores.argmax(-1)
        logits.append(scores)
    return torch.stack(logits, dim=1)


@wrong_unroll("the state is not carried on", fails=("state_is_carried", "both"))
def unroll_stateless(step, state, target_in):
    """Every step of yours starts from the context again, so nothing that was read before is known.
    Look at what becomes of the second thing that `step` returns.
    """
    return torch.stack([step(token, state)[0] for token in target_in.T], dim=1)


@wrong_unroll("log-probabilities in place of logits")
def unroll_log_probs(step, state, target_in):
    """You took a softmax on the way. What is asked for are the logits as `step` gives them; the loss
    does its own log-softmax.
    """
    logits = []
    for token in target_in.unbind(1):
        scores, state = step(token, state)
        logits.append(scores.log_softmax(-1))
    return torch.stack(logits, dim=1)


@wrong_unroll("time comes first")
def unroll_time_first(step, state, target_in):
    """You stack the steps along the first axis, which gives (L, B, V). The batch comes first here;
    look at the axis of your stack.
    """
    return torch.stack(unrolled(step, state, target_in), dim=0)


@wrong_unroll("steps are joined, not stacked")
def unroll_concatenated(step, state, target_in):
    """You concatenate the logits of the steps, so that vocabulary and time end up in one axis.
    A new axis is needed for the time.
    """
    return torch.cat(unrolled(step, state, target_in), dim=1)


@wrong_unroll("only the last step is returned")
def unroll_last(step, state, target_in):
    """You return the logits of the last step only. Every position of the target has a loss of its
    own, so every step's logits are needed.
    """
    return unrolled(step, state, target_in)[-1]


@wrong_unroll("bos at every step", fails=("targets_are_read", "both"))
def unroll_bos(step, state, target_in):
    """You feed the first token of the target at every step. Look at the index of the column that
    the step reads.
    """
    first = target_in[:, :1].expand_as(target_in)
    return torch.stack(unrolled(step, state, first), dim=1)


@wrong_unroll("time runs backwards", fails=("targets_are_read", "both"))
def unroll_backwards(step, state, target_in):
    """You read the target from its end. The first token that the decoder reads is `bos`, which
    stands in the first column.
    """
    return torch.stack(unrolled(step, state, target_in.flip(1)), dim=1)


# --- greedy_decode -----------------------------------------------------------------------------


@witnesses(of="greedy_decode")
def greedy_calls(draw):
    chain = torch.zeros(9, 9)
    chain[[1, 3, 5, 4], [3, 5, 4, 2]] = 3.0
    yield call(markov(chain), torch.zeros(1, 1), 1, 2, 4)
    yield call(markov(chain), torch.zeros(2, 1), 1, 2, 7, pad=8)
    yield call(markov(chain), torch.zeros(2, 1), 1, 2, 3)
    yield call(markov(chain), torch.zeros(2, 1), 3, 4, 5, pad=7)
    yield call(countdown, torch.tensor([[2.0], [4.0]]), 1, 2, 5)
    yield call(countdown, torch.tensor([[1.0], [9.0]]), 1, 2, 3)
    yield call(writer(draw.normal(7, 3), 0.8, draw.normal(3, 7)), draw.normal(3, 3), 1, 2, 6)


def greedy(
    step,
    state,
    bos,
    eos,
    max_length,
    pad,
    *,
    stop="all",
    write_eos=True,
    padded=True,
    carry=True,
    feed=True,
):
    rows = len(state)
    token, ended = torch.full((rows,), bos), torch.zeros(rows, dtype=torch.bool)
    written = torch.full((rows, max_length), pad)
    for t in range(max_length):
        logits, after = step(token, state)
        state = after if carry else state
        said = logits.argmax(-1)
        token = said if feed else token
        column = said.masked_fill(ended, pad) if padded else said
        written[:, t] = column if write_eos else column.masked_fill(said == eos, pad)
        ended |= said == eos
        if padded and bool(ended.any() if stop == "any" else ended.all()):
            break
    return written


@wrong_greedy_decode("rows go on after eos", fails=("rows_end_apart", "other_ids"))
def greedy_goes_on(step, state, bos, eos, max_length, pad=0):
    """A row of yours goes on writing after its `eos`. What the decoder says there means nothing;
    the contract asks for padding.
    """
    return greedy(step, state, bos, eos, max_length, pad, padded=False)


@wrong_greedy_decode("the first end stops all rows", fails=("rows_end_apart",))
def greedy_first_end(step, state, bos, eos, max_length, pad=0):
    """You stop as soon as one row has ended, and the longer ones are cut off with it.
    Look at when your loop may end.
    """
    return greedy(step, state, bos, eos, max_length, pad, stop="any")


@wrong_greedy_decode("eos is not written", but=("cut_off",))
def greedy_no_eos(step, state, bos, eos, max_length, pad=0):
    """Your rows leave out their `eos`. Without it nobody can tell a finished row from one that was
    cut off.
    """
    return greedy(step, state, bos, eos, max_length, pad, write_eos=False)


@wrong_greedy_decode("the state is not carried on", fails=("rows_end_apart",))
def greedy_stateless(step, state, bos, eos, max_length, pad=0):
    """Every step of yours starts from the first state again. A decoder that keeps its place in its
    state never gets on; look at what becomes of the second thing that `step` returns.
    """
    return greedy(step, state, bos, eos, max_length, pad, carry=False)


@wrong_greedy_decode("bos at every step", but=("rows_end_apart",))
def greedy_bos(step, state, bos, eos, max_length, pad=0):
    """Your decoder reads `bos` at every step and never what it has just written.
    Look at the first argument of `step`.
    """
    return greedy(step, state, bos, eos, max_length, pad, feed=False)


@wrong_greedy_decode(
    "the filling behind the last end is missing", fails=("rows_end_apart", "other_ids")
)
def greedy_too_few_columns(step, state, bos, eos, max_length, pad=0):
    """Your result ends with its longest row. The contract asks for `max_length` columns, whenever the
    rows end; look at the shape.
    """
    written = greedy(step, state, bos, eos, max_length, pad)
    ends = (written == eos).cumsum(1).gt(0).all(0)
    return written[:, : int((~ends).sum()) + 1]


@wrong_greedy_decode("bos is written")
def greedy_with_bos(step, state, bos, eos, max_length, pad=0):
    """Your rows begin with `bos`. It is what the decoder reads first and no part of the output, and
    it takes the place of one token that should be there.
    """
    written = greedy(step, state, bos, eos, max_length, pad)
    return torch.cat([torch.full((len(state), 1), bos), written[:, :-1]], dim=1)


@wrong_greedy_decode("padding is always 0", fails=("other_ids",))
def greedy_pad_zero(step, state, bos, eos, max_length, pad=0):
    """You fill up with 0 and pass over the argument `pad`; look at where the filling is made."""
    return greedy(step, state, bos, eos, max_length, 0)


@wrong_greedy_decode("eos is always 2", fails=("other_ids",))
def greedy_eos_two(step, state, bos, eos, max_length, pad=0):
    """You compare with 2 and pass over the argument `eos`. Another vocabulary has another number for
    its end symbol.
    """
    return greedy(step, state, bos, 2, max_length, pad)


# --- beam_search -------------------------------------------------------------------------------


@witnesses(of="beam_search")
def beam_calls(draw):
    start = torch.zeros(1, 1)
    small = torch.full((5, 5), 1e-6, dtype=torch.float64) * torch.arange(1, 6)
    small[[1, 1, 1, 3, 3, 3, 4, 4, 4], [2, 3, 4, 2, 3, 4, 2, 3, 4]] = torch.tensor(
        [0.1, 0.5, 0.4, 0.3, 0.3, 0.4, 0.9, 0.04, 0.06], dtype=torch.float64
    )
    yield call(markov(small.log()), start, 1, 2, 2, 4)
    # one prefix ends at once, a better one takes three steps
    late = torch.full((6, 6), 1e-6, dtype=torch.float64) * torch.arange(1, 7)
    late[[1, 1, 1, 3, 3, 4, 4, 5, 5], [2, 3, 4, 5, 4, 4, 3, 2, 5]] = torch.tensor(
        [0.32, 0.4, 0.28, 0.95, 0.05, 0.55, 0.45, 0.9, 0.1], dtype=torch.float64
    )
    for length in (2, 5):
        yield call(markov(late.log()), start, 1, 2, 2, length)
    for width in (1, 2, 3, 5):
        table = draw.normal(7, 7, dtype=torch.float64, std=0.5)
        for alpha in (0.0, 0.7, 2.0):
            yield call(markov(table), start, 1, 2, width, 6, length_penalty=alpha)
        table = table.clone()
        table[:, 2] = -40.0
        yield call(markov(table), start, 1, 2, width, 3)
        step = writer(
            draw.normal(7, 5, dtype=torch.float64, std=1.5),
            0.8,
            draw.normal(5, 7, dtype=torch.float64),
        )
        yield call(step, draw.normal(1, 5, dtype=torch.float64), 1, 2, width, 6)


def gnmt(n, alpha):
    return ((5 + n) / 6) ** alpha


def gnmt_of(tokens, alpha):
    return gnmt(len(tokens), alpha)


def beam(
    step,
    state,
    bos,
    eos,
    width,
    max_length,
    alpha,
    *,
    normalise=lambda logits: logits.log_softmax(-1),
    reorder=True,
    share=False,
    per_parent=False,
    history=True,
    first_end=False,
    any_end=False,
    shrink=False,
    drop_live=False,
    lp=gnmt_of,
):
    prefixes, scores, last, done = [()], torch.zeros(1), torch.tensor([bos]), []
    for _ in range(max_length):
        logits, state = step(last, state)
        extended = normalise(logits)
        if history:
            extended = scores[:, None] + extended
        ranked, places = extended.flatten().sort(descending=True)
        kept, parents, kept_scores, used = [], [], [], set()
        places_left = width - len(done) if shrink else width
        for rank, (score, place) in enumerate(zip(ranked.tolist(), places.tolist(), strict=True)):
            parent, token = divmod(place, logits.shape[-1])
            if per_parent and len(prefixes) > 1 and parent in used:
                continue
            tokens = (*prefixes[parent], token)
            if shrink and rank >= places_left:
                break
            if token == eos and (rank < width or any_end):
                used.add(parent)
                done.append((score, tokens))
            elif token != eos and len(kept) < width:
                used.add(parent)
                kept.append(tokens)
                parents.append(parent)
                kept_scores.append(score)
        prefixes, scores = kept, torch.tensor(kept_scores, dtype=torch.float64)
        if len(done) >= (1 if first_end else width) or not kept:
            break
        old_order = [0] * len(kept) if share else [i % len(state) for i in range(len(kept))]
        state = state[parents if reorder else old_order]
        last = torch.tensor([tokens[-1] for tokens in kept])
    else:
        if not (done and drop_live):
            done += list(zip(scores.tolist(), prefixes, strict=True))
    score, tokens = max((s / lp(t, alpha), t) for s, t in done)
    return torch.tensor(tokens), score


@wrong_beam_search("states do not follow their prefixes", fails=("states_follow",))
def beam_not_reordered(step, state, bos, eos, beam_size, max_length, length_penalty=0.0):
    """After the best extensions are chosen you go on with the states in their old order, so a
    prefix gets the memory of another. Look at what else has to be reordered with the tokens.
    """
    return beam(step, state, bos, eos, beam_size, max_length, length_penalty, reorder=False)


@wrong_beam_search("all prefixes share one state", fails=("states_follow",))
def beam_shared_state(step, state, bos, eos, beam_size, max_length, length_penalty=0.0):
    """You go on with the state of the first prefix for all of them. Prefixes differ, and so do their
    states; look at where each of the chosen extensions came from.
    """
    return beam(
        step, state, bos, eos, beam_size, max_length, length_penalty, reorder=False, share=True
    )


@wrong_beam_search("scores forget their history")
def beam_no_history(step, state, bos, eos, beam_size, max_length, length_penalty=0.0):
    """You rank the candidates by the probability of their last token alone. A candidate's score is
    the sum of the log-probabilities along its whole prefix.
    """
    return beam(step, state, bos, eos, beam_size, max_length, length_penalty, history=False)


@wrong_beam_search("one extension per prefix", but=("by_hand", "one_is_greedy"))
def beam_per_parent(step, state, bos, eos, beam_size, max_length, length_penalty=0.0):
    """You keep the best extension of each prefix. All candidates compete in one list, and the best
    ones may well come from the same prefix.
    """
    return beam(step, state, bos, eos, beam_size, max_length, length_penalty, per_parent=True)


@wrong_beam_search("the first finished one wins", but=("by_hand", "one_is_greedy"))
def beam_first_end(step, state, bos, eos, beam_size, max_length, length_penalty=0.0):
    """You stop as soon as one candidate has finished. A prefix that is still alive may be the
    better one; look at when the contract says to stop.
    """
    return beam(step, state, bos, eos, beam_size, max_length, length_penalty, first_end=True)


@wrong_beam_search("every end counts as finished", but=("by_hand",))
def beam_any_end(step, state, bos, eos, beam_size, max_length, length_penalty=0.0):
    """You set aside every candidate that ends in `eos`, however far down the list it stands.
    Then the search is over after a step or two, with whatever ends first; look at which candidates
    may finish.
    """
    return beam(step, state, bos, eos, beam_size, max_length, length_penalty, any_end=True)


@wrong_beam_search(
    "finished prefixes use up the beam", fails=("width", "states_follow", "length_penalty")
)
def beam_shrinking(step, state, bos, eos, beam_size, max_length, length_penalty=0.0):
    """Every prefix that finishes leaves you with one live prefix less. What is set aside is no part
    of the beam any more; look at how many prefixes live on after a step in which one has finished.
    """
    return beam(step, state, bos, eos, beam_size, max_length, length_penalty, shrink=True)


@wrong_beam_search("live prefixes are dropped at the end", but=("by_hand", "one_is_greedy"))
def beam_drops_live(step, state, bos, eos, beam_size, max_length, length_penalty=0.0):
    """At `max_length` you look at the finished candidates only, if there are any. A prefix that was
    cut off may be better than all of them; look at what the contract says about the last step.
    """
    return beam(step, state, bos, eos, beam_size, max_length, length_penalty, drop_live=True)


@wrong_beam_search("eos is not counted in the length", fails=("length_penalty",))
def beam_length_without_eos(step, state, bos, eos, beam_size, max_length, length_penalty=0.0):
    """The length in your correction leaves out the end symbol, so every finished output is taken for
    one token shorter than it is. Look at what n counts in the contract.
    """
    return beam(
        step,
        state,
        bos,
        eos,
        beam_size,
        max_length,
        length_penalty,
        lp=lambda tokens, alpha: gnmt(len(tokens) - (tokens[-1] == eos), alpha),
    )


@wrong_beam_search("the length penalty is not used", fails=("length_penalty",))
def beam_no_penalty(step, state, bos, eos, beam_size, max_length, length_penalty=0.0):
    """You compare plain log-probabilities, whatever `length_penalty` says. Look at where it enters
    the final comparison and the score that you return.
    """
    return beam(step, state, bos, eos, beam_size, max_length, 0.0)


@wrong_beam_search("divided by the length itself", fails=("length_penalty",))
def beam_by_length(step, state, bos, eos, beam_size, max_length, length_penalty=0.0):
    """You divide by the length to the power of `length_penalty`. The formula of this exercise starts
    from 5 + n over 6, which treats short outputs more gently.
    """
    return beam(
        step,
        state,
        bos,
        eos,
        beam_size,
        max_length,
        length_penalty,
        lp=lambda tokens, alpha: len(tokens) ** alpha,
    )


@wrong_beam_search("raw logits as scores")
def beam_raw(step, state, bos, eos, beam_size, max_length, length_penalty=0.0):
    """You add up logits as they come. Rows of logits are only known up to a constant, so sums of them
    cannot be compared between prefixes; a log-softmax is missing.
    """
    return beam(
        step,
        state,
        bos,
        eos,
        beam_size,
        max_length,
        length_penalty,
        normalise=lambda logits: logits,
    )


@wrong_beam_search("the beam has width 1", but=("one_is_greedy",))
def beam_greedy(step, state, bos, eos, beam_size, max_length, length_penalty=0.0):
    """Your search follows a single prefix, whatever `beam_size` says: this is greedy decoding.
    Look at how many candidates survive a step.
    """
    return beam(step, state, bos, eos, 1, max_length, length_penalty)


# --- the two other items -----------------------------------------------------------------------


@witnesses(of="fixed_beam_step")
def beam_step_calls(draw):
    for prefixes, size in ((3, 5), (4, 7), (2, 11)):
        yield call(draw.normal(prefixes), draw.normal(prefixes, size).log_softmax(-1), 3)


@wrong_fixed_beam_step("nothing repaired")
def still_broken(scores, log_probs, beam_size):
    """This is the broken function itself: look at where the scores of the prefixes enter, and at
    which prefix and which token a place in the flattened table stands for.
    """
    vocab = log_probs.shape[1]
    best, places = log_probs.flatten().topk(beam_size)
    return best, places % vocab, places // vocab


@wrong_fixed_beam_step("the history is still missing", fails=("later_steps",))
def history_missing(scores, log_probs, beam_size):
    """Prefix and token are right now, but the candidates are still ranked by their last token alone.
    Look at an argument that you never use.
    """
    best, places = log_probs.flatten().topk(beam_size)
    return best, places // log_probs.shape[1], places % log_probs.shape[1]


@wrong_fixed_beam_step("one extension per prefix")
def step_per_prefix(scores, log_probs, beam_size):
    """You take the best token of each prefix. All extensions of all prefixes compete in one list, and
    the best ones may come from the same prefix.
    """
    best, token = (scores[:, None] + log_probs).max(dim=1)
    best, prefix = best.topk(min(beam_size, len(best)))
    return best, prefix, token[prefix]


@wrong_fixed_beam_step("prefix and token are still exchanged")
def still_exchanged(scores, log_probs, beam_size):
    """The scores are right now, but what you return as prefixes are tokens and the other way round.
    Look at how a place in the flattened table is counted.
    """
    vocab = log_probs.shape[1]
    best, places = (scores[:, None] + log_probs).flatten().topk(beam_size)
    return best, places % vocab, places // vocab


@wrong_check_loss("no padding in the test", fails=("mutants",))
def check_without_padding(candidate):
    """Your inputs hold no padding, and without padding most of the wrong recipes are right.
    Look at which input tells each recipe of the chapter from the right one.
    """
    logits = torch.tensor([[[0.0, 1.0, 2.0], [3.0, 0.0, 1.0]]])
    target = torch.tensor([[1, 2]])
    expected = F.cross_entropy(logits.flatten(0, 1), target.flatten())
    return bool(torch.allclose(candidate(logits, target, 0), expected))


@wrong_check_loss("padding in one row only", fails=("mutants",))
def check_one_row(candidate):
    """Your batch has a single row, so a mean over tokens and a mean over rows are the same number.
    Rows of different lengths are needed to tell them apart.
    """
    logits = torch.tensor([[[0.0, 1.0, 2.0], [3.0, 0.0, 1.0], [5.0, 0.0, 0.0]]])
    target = torch.tensor([[1, 2, 0]])
    expected = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=0)
    return bool(torch.allclose(candidate(logits, target, 0), expected))
