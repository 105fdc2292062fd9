"""Wrong answers on the way to an encoder-decoder: name, message, and the tests they must fail."""

import torch
from torch.nn import functional as F

from attn_course.probes import WrongAnswers, call, student, witnesses


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
    ends = (state[:, 0] > 0) & (state[:, 0] <= 1)
    logits[torch.arange(len(state)), torch.where(ends, 2, 3)] = 5.0
    return logits, state - 1


# --- encode ------------------------------------------------------------------------------------


def right_encode(
    step,
    source,
    lengths,
    state,
    *,
    start=lambda state: state,
    order=lambda source: range(source.shape[1]),
    real=lambda t, lengths: t < lengths,
    keep=torch.where,
):
    state = start(state)
    for t in order(source):
        state = keep(real(t, lengths)[:, None], step(source[:, t], state), state)
    return state


encode = WrongAnswers(
    "encode", tests=("order", "padding", "start", "empty_row"), right=right_encode
)


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


encode.fault(
    "the last column's state",
    """You return the state after the last column, so padding changes the state of short rows. Use
    `lengths`.""",
    fails=("padding", "empty_row"),
    real=lambda t, lengths: t < lengths.new_tensor([10_000] * len(lengths)),
)
encode.fault(
    "the longest row decides",
    "You stop all rows at the end of the longest one. Every row has its own end.",
    fails=("padding", "empty_row"),
    real=lambda t, lengths: t < lengths.max().expand_as(lengths),
)
for amount, real in (
    ("few", lambda t, lengths: t < lengths - 1),
    ("many", lambda t, lengths: t <= lengths),
):
    encode.fault(
        f"one symbol too {amount}",
        f"Your rows read one symbol too {amount}. Columns are counted from 0.",
        fails=("padding", "empty_row") if amount == "many" else None,
        real=real,
    )
encode.fault(
    "the given state is ignored",
    "You start from zeros. Start from the argument `state`.",
    fails=("start", "empty_row"),
    start=torch.zeros_like,
)
encode.fault(
    "padding sets the state to 0",
    "Your state becomes zero when a row has ended. It should not change.",
    fails=("padding", "empty_row"),
    keep=lambda real, moved, state: moved * real,
)
encode.fault(
    "read from right to left",
    "You read the symbols from the last to the first. Check the range of your loop.",
    order=lambda source: reversed(range(source.shape[1])),
)


@encode("rows are left in another order", fails=("padding", "empty_row"))
def encode_sorted(step, source, lengths, state):
    """You sort the rows by length and do not restore their order."""
    order = lengths.argsort(descending=True, stable=True)
    return right_encode(step, source[order], lengths[order], state[order])


@encode("an empty row becomes zero", fails=("empty_row",))
def encode_empty_zero(step, source, lengths, state):
    """Your rows of length 0 are zero. A row that reads nothing keeps its initial state."""
    return right_encode(step, source, lengths, state) * (lengths > 0)[:, None]


@encode("mean of the states")
def encode_mean(step, source, lengths, state):
    """You return the mean of all states of a row. Return the state after the last symbol."""
    total = torch.zeros_like(state)
    for t in range(source.shape[1]):
        real = (t < lengths)[:, None]
        state = torch.where(real, step(source[:, t], state), state)
        total = total + state * real
    return total / lengths.clamp(min=1)[:, None]


# --- greedy_decode -----------------------------------------------------------------------------


def right_greedy(
    step,
    state,
    bos,
    eos,
    max_length,
    pad=0,
    *,
    fill=lambda pad: pad,
    carry=lambda after, first: after,
    feed=lambda said, token: said,
    column=lambda said, ended, eos, pad: said.masked_fill(ended, pad),
    ends=lambda said, eos: said == eos,
    over=torch.all,
    last=lambda written, bos, eos: written,
):
    first, token = state, torch.full((len(state),), bos)
    ended = torch.zeros(len(state), dtype=torch.bool)
    pad = fill(pad)
    written = torch.full((len(state), max_length), pad)
    for t in range(max_length):
        logits, after = step(token, state)
        state, said = carry(after, first), logits.argmax(-1)
        token = feed(said, token)
        written[:, t] = column(said, ended, eos, pad)
        ended = ended | ends(said, eos)
        if bool(over(ended)):
            break
    return last(written, bos, eos)


greedy = WrongAnswers(
    "greedy_decode", tests=("by_hand", "rows_end_apart", "cut_off", "other_ids"), right=right_greedy
)


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


for stop, over in (("", lambda ended: ended.new_zeros(())), (" until all have ended", torch.all)):
    greedy.fault(
        f"rows go on after eos{stop}",
        "Your rows go on after their `eos`. The contract asks for padding there.",
        fails=("rows_end_apart", "other_ids") if not stop else ("rows_end_apart",),
        column=lambda said, ended, eos, pad: said,
        over=over,
    )
greedy.fault(
    "the first end stops all rows",
    "You stop as soon as one row has ended, which cuts off the others. Stop when all have ended.",
    fails=("rows_end_apart",),
    over=torch.any,
)
greedy.fault(
    "eos is not written",
    "Your rows omit their `eos`. The contract asks for it.",
    but=("cut_off",),
    column=lambda said, ended, eos, pad: said.masked_fill(ended | (said == eos), pad),
)
greedy.fault(
    "the state is not carried",
    "Each of your steps starts from the first state. Use the state that `step` returns.",
    fails=("rows_end_apart",),
    carry=lambda after, first: first,
)
greedy.fault(
    "bos at every step",
    "Your decoder reads `bos` at every step. It should read the token that it has just written.",
    but=("rows_end_apart",),
    feed=lambda said, token: token,
)
greedy.fault(
    "the padding after the longest row is missing",
    "Your result has as many columns as its longest row. The contract asks for `max_length`.",
    fails=("rows_end_apart", "other_ids"),
    last=lambda written, bos, eos: written[
        :, : int((~(written == eos).cumsum(1).gt(0).all(0)).sum()) + 1
    ],
)
greedy.fault(
    "bos is written",
    "Your rows begin with `bos`. The decoder reads it but does not write it.",
    last=lambda written, bos, eos: torch.cat(
        [torch.full_like(written[:, :1], bos), written[:, :-1]], dim=1
    ),
)
greedy.fault(
    "padding is always 0",
    "You pad with 0. Use the argument `pad`.",
    fails=("rows_end_apart", "other_ids"),
    fill=lambda pad: 0,
)
greedy.fault(
    "eos is always 2",
    "You compare with 2. Use the argument `eos`.",
    fails=("other_ids",),
    ends=lambda said, eos: said == 2,
)

# --- fixed_beam_step ---------------------------------------------------------------------------


def right_step(
    scores,
    log_probs,
    beam_size,
    *,
    join=lambda scores, log_probs: scores[:, None] + log_probs,
    apart=lambda places, vocab: (places // vocab, places % vocab),
):
    best, places = join(scores, log_probs).flatten().topk(beam_size)
    return best, *apart(places, log_probs.shape[1])


beam_step = WrongAnswers("fixed_beam_step", tests=("first_step", "later_steps"), right=right_step)


@witnesses(of="fixed_beam_step")
def beam_step_calls(draw):
    for prefixes, size in ((3, 5), (4, 7), (2, 11)):
        yield call(draw.normal(prefixes), draw.normal(prefixes, size).log_softmax(-1), 3)


def no_history(scores, log_probs):
    return log_probs


def exchanged(places, vocab):
    return places % vocab, places // vocab


beam_step.fault(
    "nothing repaired",
    """This is the broken function. Where do the scores of the prefixes enter, and which prefix and
    token belong to an index of the flattened scores?""",
    join=no_history,
    apart=exchanged,
)
beam_step.fault(
    "the history is still missing",
    "Prefix and token are right, but you still rank the candidates by their last token alone.",
    fails=("later_steps",),
    join=no_history,
)
beam_step.fault(
    "prefix and token are still exchanged",
    "The scores are right, but you return tokens as prefixes and prefixes as tokens.",
    apart=exchanged,
)
beam_step.fault(
    "multiplied",
    "You multiply the scores. They are logarithms: add them.",
    join=lambda scores, log_probs: scores[:, None] * log_probs,
)


@beam_step("one extension per prefix")
def step_per_prefix(scores, log_probs, beam_size):
    """You keep the best token of each prefix. All extensions compete in one list, and the best may
    extend the same prefix.
    """
    best, token = (scores[:, None] + log_probs).max(dim=1)
    best, prefix = best.topk(min(beam_size, len(best)))
    return best, prefix, token[prefix]


# --- sequence_loss -----------------------------------------------------------------------------


def all_real(sums, real):
    return sums.sum() / real.sum().clamp(min=1)


def right_loss(
    logits,
    target_out,
    pad=0,
    *,
    logs=lambda logits: logits.log_softmax(-1),
    real=lambda target_out, pad: target_out != pad,
    join=all_real,
):
    losses = -logs(logits).gather(-1, target_out[..., None])[..., 0]
    mask = real(target_out, pad)
    return join(losses.masked_fill(~mask, 0), mask)


loss = WrongAnswers(
    "sequence_loss",
    tests=("values", "padding", "other_pad", "large_logits", "nothing_real", "gradient"),
    right=right_loss,
)


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


loss.fault(
    "padding is averaged in",
    "You average over all positions, padding included. Average over real positions.",
    but=("values", "large_logits"),
    real=lambda target_out, pad: torch.ones_like(target_out, dtype=torch.bool),
)
loss.fault(
    "padding is zeroed but counted",
    """You set the losses of padding to 0, but divide by the number of all positions. Count real
    ones.""",
    fails=("padding", "other_pad", "gradient"),
    join=lambda losses, real: losses.mean(),
)
loss.fault(
    "mean of the rows' means",
    """You average each row and then the rows, so tokens of short rows weigh more. Average over all
    real tokens.""",
    fails=("padding", "other_pad", "gradient"),
    join=lambda losses, real: (losses.sum(1) / real.sum(1).clamp(min=1)).mean(),
)
loss.fault(
    "divided by the number of rows",
    "You divide the sum by the number of rows. N counts real positions.",
    but=("large_logits", "nothing_real"),
    join=lambda losses, real: losses.sum() / len(losses),
)
loss.fault(
    "sum instead of the mean",
    "You return the sum over all real positions. Divide by their number.",
    but=("large_logits", "nothing_real"),
    join=lambda losses, real: losses.sum(),
)
loss.fault(
    "padding is always 0",
    "You compare the targets with 0. Use the argument `pad`.",
    fails=("other_pad", "nothing_real"),
    real=lambda target_out, pad: target_out != 0,
)
loss.fault(
    "the softmax underflows",
    """You take the logarithm of a softmax, which underflows to 0 for small probabilities. Compute
    both in one step.""",
    fails=("large_logits",),
    logs=lambda logits: logits.softmax(-1).log(),
)
loss.fault(
    "softmax over the positions",
    "You normalise over the positions of a row. Normalise over the vocabulary.",
    but=("nothing_real",),
    logs=lambda logits: logits.log_softmax(1),
)
loss.fault(
    "0 divided by 0",
    "You divide 0 by 0 when no position is real. The loss is 0 then.",
    fails=("nothing_real",),
    join=lambda losses, real: losses.sum() / real.sum(),
)

# --- unroll ------------------------------------------------------------------------------------


def right_unroll(
    step,
    state,
    target_in,
    *,
    read=lambda target_in: target_in,
    carry=lambda after, first: after,
    last=lambda logits: torch.stack(logits, dim=1),
):
    first, logits = state, []
    for token in read(target_in).unbind(1):
        scores, after = step(token, state)
        state = carry(after, first)
        logits.append(scores)
    return last(logits)


unroll = WrongAnswers(
    "unroll", tests=("one_step", "state_is_carried", "targets_are_read", "both"), right=right_unroll
)


@witnesses(of="unroll")
def unroll_calls(draw):
    step = writer(draw.normal(7, 3), 0.5, draw.normal(3, 7))
    for rows, length in ((1, 1), (3, 1), (1, 2), (2, 4), (3, 5)):
        yield call(step, draw.normal(rows, 3), draw.integers(1, 7, rows, length))
    deaf = writer(torch.zeros(7, 3), 0.7, draw.normal(3, 7))
    yield call(deaf, draw.normal(2, 3), draw.integers(1, 7, 2, 3))
    says = writer(draw.normal(7, 3), 0.0, draw.normal(3, 7))
    yield call(says, draw.normal(2, 3), torch.tensor([[1, 4, 5, 6], [1, 6, 3, 4]]))


@unroll("the decoder reads its own guesses", fails=("targets_are_read", "both"))
def unroll_free(step, state, target_in):
    """You feed the decoder its own predictions. Under teacher forcing it reads the target."""
    logits, token = [], target_in[:, 0]
    for _ in range(target_in.shape[1]):
        scores, state = step(token, state)
        token = scores.argmax(-1)
        logits.append(scores)
    return torch.stack(logits, dim=1)


unroll.fault(
    "the state is not carried",
    "Each of your steps starts from the context. Use the state that `step` returns.",
    fails=("state_is_carried", "both"),
    carry=lambda after, first: first,
)
unroll.fault(
    "bos at every step",
    "You feed the first token of the target at every step. Feed each token in turn.",
    fails=("targets_are_read", "both"),
    read=lambda target_in: target_in[:, :1].expand_as(target_in),
)
unroll.fault(
    "the target is reversed",
    "You read the target from its end. Start with `bos`, its first token.",
    fails=("targets_are_read", "both"),
    read=lambda target_in: target_in.flip(1),
)
unroll.fault(
    "log-probabilities instead of logits",
    "You return log-probabilities. The contract asks for the logits of `step`.",
    last=lambda logits: torch.stack(logits, dim=1).log_softmax(-1),
)
unroll.fault(
    "steps are concatenated, not stacked",
    "You concatenate the logits, so vocabulary and time share an axis. Time needs its own axis.",
    last=lambda logits: torch.cat(logits, dim=1),
)
unroll.fault(
    "only the last step is returned",
    "You return only the logits of the last step. Return those of every position.",
    last=lambda logits: logits[-1],
)

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


def penalty(tokens, eos, alpha):
    return ((5 + len(tokens)) / 6) ** alpha


def right_beam(
    step,
    state,
    bos,
    eos,
    beam_size,
    max_length,
    length_penalty=0.0,
    *,
    width=lambda beam_size, done: beam_size,
    normalise=lambda logits: logits.log_softmax(-1),
    join=lambda scores, logs: scores[:, None] + logs,
    again=lambda parent, used: True,
    may_end=lambda rank, beam_size: rank < beam_size,
    enough=lambda done, beam_size: done >= beam_size,
    follow=lambda parents, rows: parents,
    cut_off=lambda done, live: done + live,
    divide=penalty,
    score=lambda value, divisor: value,
):
    prefixes, scores, last, done = [()], torch.zeros(1), torch.tensor([bos]), []
    for _ in range(max_length):
        logits, state = step(last, state)
        ranked, places = join(scores, normalise(logits)).flatten().sort(descending=True)
        kept, parents, used = [], [], set()
        size = width(beam_size, len(done))
        for rank, (value, place) in enumerate(zip(ranked.tolist(), places.tolist(), strict=True)):
            parent, token = divmod(place, logits.shape[-1])
            tokens = (*prefixes[parent], token)
            if size < beam_size and rank >= size:
                break
            if not again(parent, used if len(prefixes) > 1 else ()):
                continue
            if token == eos and may_end(rank, size):
                used.add(parent)
                done.append((value, tokens))
            elif token != eos and len(kept) < size:
                used.add(parent)
                kept.append((value, tokens))
                parents.append(parent)
        prefixes = [tokens for _, tokens in kept]
        scores = torch.tensor([value for value, _ in kept], dtype=torch.float64)
        if enough(len(done), beam_size) or not kept:
            break
        state = state[follow(parents, len(state))]
        last = torch.tensor([tokens[-1] for tokens in prefixes])
    else:
        done = cut_off(done, kept)
    ranked = [(s / divide(t, eos, length_penalty), t) for s, t in done]
    value, tokens = max(ranked)
    return torch.tensor(tokens), score(value, divide(tokens, eos, length_penalty))


beam = WrongAnswers(
    "beam_search",
    tests=("by_hand", "one_is_greedy", "width", "states_follow", "length_penalty", "cut_off"),
    right=right_beam,
)
beam.fault(
    "states do not follow their prefixes",
    """You keep the states in their old order, so a prefix gets the state of another one. Reorder
    states and tokens alike.""",
    fails=("states_follow",),
    follow=lambda parents, rows: [at % rows for at in range(len(parents))],
)
beam.fault(
    "all prefixes share one state",
    "You use the state of the first prefix for all prefixes. Each has its own state.",
    fails=("states_follow",),
    follow=lambda parents, rows: [0] * len(parents),
)
beam.fault(
    "scores forget their history",
    "You rank the candidates by their last token alone. A score is the sum over the whole prefix.",
    join=lambda scores, logs: logs,
)
beam.fault(
    "one extension per prefix",
    """You keep the best extension of each prefix. All candidates compete in one list, and the best
    may extend the same prefix.""",
    but=("by_hand", "one_is_greedy"),
    again=lambda parent, used: parent not in used,
)
beam.fault(
    "the first finished one wins",
    "You stop as soon as one candidate has finished. A live prefix may become better.",
    but=("by_hand", "one_is_greedy"),
    enough=lambda done, beam_size: done >= 1,
)
beam.fault(
    "every end counts as finished",
    """You finish every candidate that ends in `eos`. Only the `beam_size` best candidates may
    finish.""",
    but=("by_hand",),
    may_end=lambda rank, beam_size: True,
)
beam.fault(
    "finished prefixes use up the beam",
    """Each finished candidate leaves you with one live prefix fewer. `beam_size` prefixes stay
    live.""",
    fails=("width", "states_follow", "length_penalty"),
    width=lambda beam_size, done: beam_size - done,
)
beam.fault(
    "live prefixes are dropped at the end",
    """At `max_length` you ignore live prefixes if a candidate has finished. They count as finished,
    too.""",
    but=("by_hand", "one_is_greedy"),
    cut_off=lambda done, live: done or live,
)
beam.fault(
    "eos is not counted in the length",
    "Your length leaves out the end symbol. It counts.",
    fails=("length_penalty",),
    divide=lambda tokens, eos, alpha: penalty(
        tokens[:-1] if tokens[-1] == eos else tokens, eos, alpha
    ),
)
beam.fault(
    "the last token is never counted in the length",
    "Your length is always one too small. It counts every token.",
    fails=("length_penalty",),
    divide=lambda tokens, eos, alpha: penalty(tokens[:-1], eos, alpha),
)
beam.fault(
    "divided by the length itself",
    "You divide by a power of the length. The formula has (5 + n) / 6.",
    fails=("length_penalty",),
    divide=lambda tokens, eos, alpha: len(tokens) ** alpha,
)
beam.fault(
    "multiplied by the length penalty",
    "You multiply by the length term. The formula divides by it.",
    fails=("length_penalty",),
    divide=lambda tokens, eos, alpha: 1 / penalty(tokens, eos, alpha),
)
beam.fault(
    "the score is not divided",
    "You choose by the divided score but return the undivided one. Return the divided score.",
    fails=("length_penalty",),
    score=lambda value, divisor: value * divisor,
)
beam.fault(
    "raw logits as scores",
    "You add logits. Their sums are not comparable: take the log-softmax first.",
    normalise=lambda logits: logits,
)

# --- check_loss --------------------------------------------------------------------------------

check = WrongAnswers("check_loss", tests=("plain", "mutants"))


@check("no padding in the test", fails=("mutants",))
def check_without_padding(candidate):
    """Your inputs contain no padding. Most wrong losses differ from the right one only with
    padding.
    """
    logits = torch.tensor([[[0.0, 1.0, 2.0], [3.0, 0.0, 1.0]]])
    target = torch.tensor([[1, 2]])
    return bool(torch.allclose(candidate(logits, target, 0), F.cross_entropy(logits[0], target[0])))


@check("padding in one row only", fails=("mutants",))
def check_one_row(candidate):
    """Your batch has one row, so a mean over tokens equals a mean over rows. Use rows of different
    lengths.
    """
    logits = torch.tensor([[[0.0, 1.0, 2.0], [3.0, 0.0, 1.0], [5.0, 0.0, 0.0]]])
    target = torch.tensor([[1, 2, 0]])
    expected = F.cross_entropy(logits[0], target[0], ignore_index=0)
    return bool(torch.allclose(candidate(logits, target, 0), expected))
