"""Wrong answers on the way to additive attention: name, message, and the tests they must fail."""

import torch

from attn_course.probes import WrongAnswers, call, student, witnesses

wrong_additive_score = WrongAnswers(
    "additive_score", tests=("by_hand", "many_queries", "batch", "gradient")
)
wrong_padded_weights = WrongAnswers(
    "padded_weights",
    tests=("values", "padding", "filling", "large_scores", "empty_row", "gradient"),
)
wrong_context_vector = WrongAnswers(
    "context_vector", tests=("by_hand", "batch", "as_they_are", "gradient")
)
wrong_decoder_step = WrongAnswers(
    "decoder_step", tests=("by_hand", "no_padding", "padding", "gradient")
)
wrong_alignment_error_rate = WrongAnswers(
    "alignment_error_rate", tests=("values", "no_source", "ties", "none_known")
)
wrong_fixed_attend = WrongAnswers("fixed_attend", tests=("scores", "padding"))
wrong_check_score = WrongAnswers("check_score", tests=("plain", "mutants"))


# --- additive_score ----------------------------------------------------------------------------


@witnesses(of="additive_score")
def score_calls(draw):
    for lead, queries, keys, q, k, a in [
        ((), 1, 1, 1, 1, 1),
        ((), 1, 5, 3, 2, 7),
        ((), 4, 5, 3, 2, 7),
        ((), 3, 3, 3, 3, 3),
        ((2,), 4, 5, 3, 2, 7),
        ((2,), 3, 3, 3, 3, 3),
        ((2, 3), 2, 5, 3, 4, 1),
    ]:
        yield call(
            draw.normal(*lead, queries, q),
            draw.normal(*lead, keys, k),
            draw.normal(a, q),
            draw.normal(a, k),
            draw.normal(a),
        )
    for place in range(5):
        yield call(
            draw.normal(2, 3),
            draw.normal(3, 2),
            draw.normal(5, 3),
            draw.normal(5, 2),
            draw.normal(5),
            via=student.grad(place),
        )


def score_hidden(query, key, weight_query, weight_key):
    asked = (query @ weight_query.transpose(0, 1)).unsqueeze(-2)
    return asked + (key @ weight_key.transpose(0, 1)).unsqueeze(-3)


@wrong_additive_score("no tanh")
def score_linear(query, key, weight_query, weight_key, v):
    """You leave the tanh out, and the score falls apart into a part of the query plus a part of the
    key. The softmax then cancels the query's part: every query looks at the same place.
    """
    return score_hidden(query, key, weight_query, weight_key) @ v


@wrong_additive_score("the tanh stands outside")
def score_tanh_outside(query, key, weight_query, weight_key, v):
    """You sum over the hidden units first and take the tanh of the result, so no score leaves the
    range from -1 to 1 and no weight can become large. Look at what v multiplies in the formula.
    """
    return torch.tanh(score_hidden(query, key, weight_query, weight_key) @ v)


@wrong_additive_score("a tanh for each of the two")
def score_two_tanhs(query, key, weight_query, weight_key, v):
    """You squash the query's part and the key's part one by one and add the results. Then the score
    is again a sum of two parts that know nothing of each other; they must meet inside the tanh.
    """
    asked = torch.tanh(query @ weight_query.T).unsqueeze(-2)
    return (asked + torch.tanh(key @ weight_key.T).unsqueeze(-3)) @ v


@wrong_additive_score("product in place of the sum")
def score_multiplied(query, key, weight_query, weight_key, v):
    """You multiply the two projections where the formula adds them. It is another score (a product
    of the two, squashed); this one is called additive for a reason.
    """
    asked = (query @ weight_query.T).unsqueeze(-2)
    return torch.tanh(asked * (key @ weight_key.T).unsqueeze(-3)) @ v


@wrong_additive_score("keys by queries")
def score_transposed(query, key, weight_query, weight_key, v):
    """Your table has a row per key and a column per query. A softmax over its last axis would then
    let the queries compete for each key. Look at which of the two gets which new axis.
    """
    return (torch.tanh(score_hidden(query, key, weight_query, weight_key)) @ v).transpose(-1, -2)


@wrong_additive_score("v is left out")
def score_without_v(query, key, weight_query, weight_key, v):
    """You add up the hidden units with equal weights and never use v. Some hidden units should speak
    against a match, and only v can tell them apart.
    """
    return torch.tanh(score_hidden(query, key, weight_query, weight_key)).sum(-1)


@wrong_additive_score("a softmax too early")
def score_softmaxed(query, key, weight_query, weight_key, v):
    """You return weights: a softmax has already been taken over the keys. The function should give
    scores, because the padding has still to be left out before the softmax.
    """
    return (torch.tanh(score_hidden(query, key, weight_query, weight_key)) @ v).softmax(-1)


@wrong_additive_score("scaled by the hidden size")
def score_scaled(query, key, weight_query, weight_key, v):
    """Your scores are divided by the square root of the number of hidden units. That belongs to
    the scaled dot product of a later chapter; the formula here has no such factor.
    """
    hidden = torch.tanh(score_hidden(query, key, weight_query, weight_key))
    return hidden @ v / len(v) ** 0.5


@wrong_additive_score("the two matrices exchanged")
def score_exchanged(query, key, weight_query, weight_key, v):
    """You multiply the query by the key's matrix and the key by the query's. With equal sizes nothing
    breaks, and the answer is wrong. Look at which matrix goes with which vector.
    """
    return torch.tanh(score_hidden(query, key, weight_key, weight_query)) @ v


@wrong_additive_score("only the first query", but=("by_hand",))
def score_one_query(query, key, weight_query, weight_key, v):
    """You compute one row of scores and hand it to every query. Each query has a row of its own;
    look at what happens to the axis of the queries.
    """
    hidden = score_hidden(query[..., :1, :], key, weight_query, weight_key)
    scores = torch.tanh(hidden) @ v
    return scores.expand(*scores.shape[:-2], query.shape[-2], scores.shape[-1])


# --- padded_weights ----------------------------------------------------------------------------


@witnesses(of="padded_weights")
def weights_calls(draw):
    for lengths in ([5, 5, 5], [5, 2, 3], [2, 4, 1], [0, 5, 1], [0, 0, 0]):
        yield call(draw.normal(3, 4, 5), torch.tensor(lengths))
        yield call(draw.normal(3, 5, 5), torch.tensor(lengths))
        yield call(draw.normal(3, 1, 5, std=100.0), torch.tensor(lengths))
        yield call(400 + draw.normal(3, 2, 5), torch.tensor(lengths))
        yield call(-400 + draw.normal(3, 2, 5), torch.tensor(lengths))
    for large in (60.0, 300.0):
        filled = draw.normal(2, 3, 5)
        filled[:, :, 3:] = large
        yield call(filled, torch.tensor([3, 2]))
    yield call(draw.normal(2, 3, 4), torch.tensor([3, 2]), via=student.grad(0))
    yield call(draw.normal(2, 3, 4), torch.tensor([0, 4]), via=student.grad(0))


def real_positions(scores, lengths):
    return torch.arange(scores.shape[-1]) < lengths[:, None, None]


def safe_softmax(scores, real, dim=-1):
    scores = scores.masked_fill(~real, -torch.inf)
    top = scores.amax(dim, keepdim=True)
    parts = (scores - top.masked_fill(top == -torch.inf, 0.0)).exp()
    total = parts.sum(dim, keepdim=True)
    return parts / total.masked_fill(total == 0, 1.0)


@wrong_padded_weights("masked after the softmax", but=("values",))
def weights_masked_late(scores, lengths):
    """You take the softmax over everything and set the padding to 0 afterwards. The padding has taken
    its share of the sum by then, so the real weights no longer sum to one.
    """
    return scores.softmax(-1) * real_positions(scores, lengths)


@wrong_padded_weights("masked scores set to 0", but=("values",))
def weights_score_zero(scores, lengths):
    """You set the scores of the padding to 0 before the softmax. The exponential of 0 is 1, which is
    more than every negative score gets: padding stays in the race.
    """
    return scores.masked_fill(~real_positions(scores, lengths), 0.0).softmax(-1)


@wrong_padded_weights("an empty row becomes NaN", fails=("empty_row",))
def weights_nan(scores, lengths):
    """Your row of length 0 comes out as NaN: all its scores are minus infinity, and the softmax
    divides 0 by 0. One such row poisons every parameter in the backward pass.
    """
    return scores.masked_fill(~real_positions(scores, lengths), -torch.inf).softmax(-1)


@wrong_padded_weights("an empty row is mended too late", fails=("empty_row",))
def weights_mended_late(scores, lengths):
    """Your numbers are right, but a row of length 0 sends NaN backwards: it was NaN inside, and you
    replaced it afterwards. One such row is enough to spoil every parameter in training.
    """
    real = real_positions(scores, lengths)
    masked = scores + torch.where(real, 0.0, -torch.inf).to(scores.dtype)
    return masked.softmax(-1).nan_to_num(0.0)


@wrong_padded_weights("a very negative number as mask", fails=("empty_row",))
def weights_very_negative(scores, lengths):
    """You mask with a large negative number. A row of length 0 has that number everywhere, and a softmax
    over equal scores spreads its weight evenly over the padding.
    """
    return scores.masked_fill(~real_positions(scores, lengths), -1e9).softmax(-1)


@wrong_padded_weights("no maximum subtracted", fails=("large_scores",))
def weights_overflow(scores, lengths):
    """You take the exponential of the scores as they are. Above about 88 it overflows in float32 and far
    below 0 it vanishes; chapter 00 has the cure.
    """
    parts = scores.masked_fill(~real_positions(scores, lengths), -torch.inf).exp()
    total = parts.sum(-1, keepdim=True)
    return parts / torch.where(total == 0, torch.ones_like(total), total)


@wrong_padded_weights("renormalised after an unmasked softmax", fails=("filling", "empty_row"))
def weights_renormalised(scores, lengths):
    """You take the softmax over everything, drop the padding and divide by what is left. That is right
    on paper; but a large number in the padding leaves nothing but zeros to divide.
    """
    weights = scores.softmax(-1) * real_positions(scores, lengths)
    return weights / weights.sum(-1, keepdim=True)


@wrong_padded_weights("softmax over the queries")
def weights_over_queries(scores, lengths):
    """You normalise along the axis of the queries. Then the queries compete for each position, and
    a query may end up with no weight at all. Each query's own row should sum to one.
    """
    return safe_softmax(scores, real_positions(scores, lengths), dim=1)


@wrong_padded_weights("one position too many", but=("values",))
def weights_one_more(scores, lengths):
    """One position of the padding still gets weight in every row. Positions are counted from 0;
    look at the comparison with `lengths`.
    """
    return safe_softmax(scores, torch.arange(scores.shape[-1]) <= lengths[:, None, None])


@wrong_padded_weights("one position too few")
def weights_one_less(scores, lengths):
    """The last real position of every row gets no weight. Positions are counted from 0;
    look at the comparison with `lengths`.
    """
    return safe_softmax(scores, torch.arange(scores.shape[-1]) < lengths[:, None, None] - 1)


@wrong_padded_weights("the mask is turned round")
def weights_inverted(scores, lengths):
    """You keep the padding and drop what is real. In this course True means: may be attended to;
    look at the direction of your comparison, or at the sign of the mask.
    """
    return safe_softmax(scores, ~real_positions(scores, lengths))


@wrong_padded_weights("the longest row decides", but=("values",))
def weights_longest(scores, lengths):
    """You cut all rows at the same place, at the longest length of the batch. A shorter row looks at
    its padding then; every row has a length of its own.
    """
    real = torch.arange(scores.shape[-1]) < int(lengths.max())
    return safe_softmax(scores, real.expand(scores.shape))


# --- context_vector ----------------------------------------------------------------------------


@witnesses(of="context_vector")
def context_calls(draw):
    for b, queries, keys, e in [(1, 1, 3, 2), (2, 3, 5, 4), (3, 3, 3, 3), (2, 1, 1, 5)]:
        yield call(draw.normal(b, queries, keys).softmax(-1), draw.normal(b, keys, e))
        yield call(draw.normal(b, queries, keys), draw.normal(b, keys, e))
        yield call(torch.zeros(b, queries, keys), draw.normal(b, keys, e))
    for place in (0, 1):
        yield call(draw.normal(2, 3, 4), draw.normal(2, 4, 5), via=student.grad(place))


@wrong_context_vector("divided by the sum of the weights", fails=("as_they_are", "gradient"))
def context_normalised(weights, value):
    """You divide by the sum of the weights. With weights that sum to one nothing changes; a row that
    is all padding has the sum 0, and you divide by it. Take the weights as they are.
    """
    return weights @ value / weights.sum(-1, keepdim=True)


@wrong_context_vector("divided by the number of positions")
def context_mean(weights, value):
    """You take the mean of the weighted vectors instead of the sum: the result is too small by the
    number of positions. The weights have done the dividing already.
    """
    return weights @ value / weights.shape[-1]


@wrong_context_vector("only the best position")
def context_hard(weights, value):
    """You fetch the vector with the largest weight and leave the others out. No gradient
    tells the weights anything then. Soft attention takes a little of everything.
    """
    best = torch.nn.functional.one_hot(weights.argmax(-1), weights.shape[-1])
    return best.to(value.dtype) @ value


@wrong_context_vector("the weights are ignored")
def context_plain_mean(weights, value):
    """Your result is the plain mean of the values, the same for every query and whatever the weights
    say. Look at where `weights` enters.
    """
    return value.mean(1, keepdim=True).expand(-1, weights.shape[1], -1)


@wrong_context_vector("a second softmax")
def context_second_softmax(weights, value):
    """You take a softmax of the weights, which are the result of one already. It pulls
    them together: even a weight of 0 against 1 becomes 0.27 against 0.73.
    """
    return weights.softmax(-1) @ value


@wrong_context_vector("the last position only")
def context_last(weights, value):
    """You return the value of the last position, which is the fixed context vector of chapter 02.
    Every position has a say here, each with its own weight.
    """
    return value[:, -1:].expand(-1, weights.shape[1], -1)


@wrong_context_vector("the first query's weights for all", but=("by_hand",))
def context_first_query(weights, value):
    """All your rows are the context of the first query. Every query has weights of its own;
    look at what happens to the second axis of `weights`.
    """
    return (weights[:, :1] @ value).expand(-1, weights.shape[1], -1)


@wrong_context_vector("summed over the batch", but=("by_hand",))
def context_batch(weights, value):
    """Every row of the batch gets the values of all rows. An index is summed over that should stay;
    look at what happens to the first axis.
    """
    return torch.einsum("bls,cse->ble", weights, value) / max(1, len(value) - 1)


# --- decoder_step ------------------------------------------------------------------------------


@witnesses(of="decoder_step")
def step_calls(draw):
    for d, h, e, s, lengths in [
        (3, 5, 7, 4, [4, 4]),
        (3, 3, 3, 3, [3, 1]),
        (2, 2, 2, 5, [2, 4]),
        (1, 1, 1, 3, [3, 2]),
        (2, 3, 1, 1, [1, 1]),
    ]:
        weight_ih, weight_hh = draw.normal(h, d + e), draw.normal(h, h)
        weight_query, weight_key, v = draw.normal(6, h), draw.normal(6, e), draw.normal(6)

        def cell(input, hidden, weight_ih=weight_ih, weight_hh=weight_hh):
            return torch.tanh(input @ weight_ih.T + hidden @ weight_hh.T)

        def score(query, key, weights=(weight_query, weight_key, v)):
            return torch.tanh(score_hidden(query, key, *weights[:2])) @ weights[2]

        inputs = (
            cell,
            draw.normal(2, d),
            draw.normal(2, h),
            draw.normal(2, s, e),
            torch.tensor(lengths),
            score,
        )
        yield call(*inputs)
        for place in (1, 2, 3):
            yield call(*inputs, via=student.grad(place))


def look(state, annotations, lengths, score):
    scores = score(state[:, None], annotations)
    weights = safe_softmax(scores, real_positions(scores, lengths))
    return (weights @ annotations)[:, 0], weights[:, 0]


@wrong_decoder_step("alignment after the update")
def step_late(cell, word, state, annotations, lengths, score):
    """You update the state first and look at the source with the new one. That is Luong's order, the
    subject of the next chapter; here the state before the update asks.
    """
    context, _ = look(state, annotations, lengths, score)
    new_state = cell(torch.cat([word, context], dim=-1), state)
    context, weights = look(new_state, annotations, lengths, score)
    return new_state, context, weights


@wrong_decoder_step("the cell never sees the context")
def step_blind(cell, word, state, annotations, lengths, score):
    """You compute the context and hand zeros to the cell in its place. The new state then knows nothing
    of what was looked at, and the decoder cannot keep track of where it is.
    """
    context, weights = look(state, annotations, lengths, score)
    return cell(torch.cat([word, torch.zeros_like(context)], dim=-1), state), context, weights


@wrong_decoder_step("context first, word second", but=("by_hand",))
def step_turned(cell, word, state, annotations, lengths, score):
    """You put the context in front of the word. The cell's matrix has its columns in another order,
    so each part is multiplied by the weights that were meant for the other.
    """
    context, weights = look(state, annotations, lengths, score)
    return cell(torch.cat([context, word], dim=-1), state), context, weights


@wrong_decoder_step("padding is looked at", fails=("padding",))
def step_unmasked(cell, word, state, annotations, lengths, score):
    """You take the softmax over all positions, padding included. What the model says then depends on
    how long the other sentences of the batch are. Look at where `lengths` enters.
    """
    weights = score(state[:, None], annotations).softmax(-1)
    context = (weights @ annotations)[:, 0]
    return cell(torch.cat([word, context], dim=-1), state), context, weights[:, 0]


@wrong_decoder_step("the padding is cut out after the softmax", fails=("padding",))
def step_masked_late(cell, word, state, annotations, lengths, score):
    """You set the weights of the padding to 0 after the softmax, so those of the real positions no
    longer sum to one, and the context is too small where there is much padding.
    """
    scores = score(state[:, None], annotations)
    weights = scores.softmax(-1) * real_positions(scores, lengths)
    context = (weights @ annotations)[:, 0]
    return cell(torch.cat([word, context], dim=-1), state), context, weights[:, 0]


@wrong_decoder_step("the old state is returned")
def step_old_state(cell, word, state, annotations, lengths, score):
    """The state that you return is the one that came in. The next step would start from the same place,
    look at the same words and say the same thing for ever.
    """
    context, weights = look(state, annotations, lengths, score)
    cell(torch.cat([word, context], dim=-1), state)
    return state.clone(), context, weights


@wrong_decoder_step("the cell starts from zeros")
def step_forgets(cell, word, state, annotations, lengths, score):
    """You hand the cell a state of zeros, so nothing is carried from step to step except
    through the words. The old state has two jobs: it asks, and it is updated.
    """
    context, weights = look(state, annotations, lengths, score)
    return cell(torch.cat([word, context], dim=-1), torch.zeros_like(state)), context, weights


@wrong_decoder_step("the same weight for every position")
def step_uniform(cell, word, state, annotations, lengths, score):
    """You take the mean of the real annotations and never use the scores. A mean is the same at every
    step, so it is a fixed context vector again.
    """
    weights = safe_softmax(
        torch.zeros_like(annotations[:, None, :, 0]),
        torch.arange(annotations.shape[1]) < lengths[:, None, None],
    )
    context = (weights @ annotations)[:, 0]
    return cell(torch.cat([word, context], dim=-1), state), context, weights[:, 0]


@wrong_decoder_step("the look is cut off from training", fails=("gradient",))
def step_detached(cell, word, state, annotations, lengths, score):
    """Your numbers are right, but no gradient comes back through the weights and the context: something
    detaches them. The score would never be trained, nor the encoder through the direct path.
    """
    context, weights = look(state, annotations, lengths, score)
    context, weights = context.detach(), weights.detach()
    return cell(torch.cat([word, context], dim=-1), state), context, weights


@wrong_decoder_step("the weights are cut off from training", fails=("gradient",))
def step_weights_detached(cell, word, state, annotations, lengths, score):
    """Your numbers are right, and the annotations that are mixed do get a gradient, but none comes back through the
    weights: the score never learns where to look.
    """
    _, weights = look(state, annotations, lengths, score)
    weights = weights.detach()
    context = (weights[:, None] @ annotations)[:, 0]
    return cell(torch.cat([word, context], dim=-1), state), context, weights


@wrong_decoder_step("the cell gets a context without its history", fails=("gradient",))
def step_context_detached(cell, word, state, annotations, lengths, score):
    """Your numbers are right, but the context that enters the cell is cut off: what the new state needs from the
    source is never told to the look that fetched it.
    """
    context, weights = look(state, annotations, lengths, score)
    return cell(torch.cat([word, context.detach()], dim=-1), state), context, weights


# --- alignment_error_rate ----------------------------------------------------------------------


@witnesses(of="alignment_error_rate")
def rate_calls(draw):
    for b, queries, keys in [(1, 4, 3), (3, 5, 5), (2, 7, 4), (4, 3, 6)]:
        weights = draw.normal(b, queries, keys).softmax(-1)
        truth = torch.where(
            draw.uniform(b, queries) < 0.5, weights.argmax(-1), draw.integers(0, keys, b, queries)
        )
        yield call(weights, truth)
        lengths = draw.integers(0, queries + 1, b)
        yield call(weights, truth.masked_fill(torch.arange(queries) >= lengths[:, None], -1))
        yield call(weights, torch.full((b, queries), -1))
        yield call(torch.ones(b, queries, keys) / keys, truth)


def missed(weights, alignment):
    return weights.argmax(-1) != alignment


@wrong_alignment_error_rate(
    "positions without a source count as wrong", fails=("no_source", "none_known")
)
def rate_all(weights, alignment):
    """A target position that comes from nowhere (-1) counts as an error, because no position is -1.
    The model cannot be right there; such positions do not belong into the rate.
    """
    return float(missed(weights, alignment).double().mean())


@wrong_alignment_error_rate("positions without a source count as right", fails=("no_source",))
def rate_divided_by_all(weights, alignment):
    """You leave out the errors at -1 but still divide by all positions, so every hyphen and every bit
    of padding counts as a success. Look at what you divide by.
    """
    wrong = missed(weights, alignment) & (alignment >= 0)
    return float(wrong.double().mean())


@wrong_alignment_error_rate("accuracy in place of error", but=("none_known",))
def rate_accuracy(weights, alignment):
    """You return the share that is right. An error rate is the other share: 0 is best."""
    known = alignment >= 0
    if not known.any():
        return 0.0
    return float((~missed(weights, alignment))[known].double().mean())


@wrong_alignment_error_rate("the mean of the rows' rates", fails=("no_source",))
def rate_row_means(weights, alignment):
    """You take the rate of every row and then the mean of these. A position in a short sentence weighs
    more than one in a long sentence then; count positions over the whole batch.
    """
    known = alignment >= 0
    wrong = (missed(weights, alignment) & known).double().sum(1)
    return float((wrong / known.sum(1).clamp(min=1))[known.any(1)].mean()) if known.any() else 0.0


@wrong_alignment_error_rate("the mass in the wrong place", but=("none_known",))
def rate_soft(weights, alignment):
    """You measure how much weight stands in the wrong place. That is a sensible number (it punishes
    doubt), but another one; here only the place of the largest weight counts.
    """
    known = alignment >= 0
    if not known.any():
        return 0.0
    mass = weights.gather(-1, alignment.clamp(min=0)[..., None])[..., 0]
    return float((1 - mass)[known].double().mean())


@wrong_alignment_error_rate("the largest weight of a column", but=("none_known",))
def rate_columns(weights, alignment):
    """You look for the largest weight along the axis of the targets: for each source position the
    target that attends to it most. The alignment goes the other way, from target to source.
    """
    known = alignment >= 0
    if not known.any():
        return 0.0
    best = weights.argmax(dim=1)  # (B, S)
    width = weights.shape[1]
    best = torch.nn.functional.pad(best, (0, max(0, width - best.shape[1])), value=-2)[:, :width]
    return float((best != alignment)[known].double().mean())


@wrong_alignment_error_rate("the last of equal weights", fails=("ties",))
def rate_last_of_equals(weights, alignment):
    """Where two weights are equal you take the later position. The contract says which of them
    counts; look at how your search treats a second maximum.
    """
    known = alignment >= 0
    if not known.any():
        return 0.0
    looks = weights.shape[-1] - 1 - weights.flip(-1).argmax(-1)
    return float((looks != alignment)[known].double().mean())


@wrong_alignment_error_rate("any of the equal weights counts", fails=("ties",))
def rate_any_of_equals(weights, alignment):
    """Where several weights are the largest you are content when one of them is right. A model that
    spreads its weight evenly would then never be wrong. The contract says which of them counts.
    """
    known = alignment >= 0
    if not known.any():
        return 0.0
    there = weights.gather(-1, alignment.clamp(min=0)[..., None])[..., 0]
    return float((there < weights.amax(-1))[known].double().mean())


@wrong_alignment_error_rate("nothing known gives NaN", fails=("none_known",))
def rate_nan(weights, alignment):
    """When no position is known you divide 0 by 0. The contract gives this case a value;
    look at it before you divide.
    """
    known = alignment >= 0
    return float(missed(weights, alignment)[known].double().mean())


@wrong_alignment_error_rate("only the sentences without any mistake", but=("none_known",))
def rate_sentences(weights, alignment):
    """You count a sentence as wrong when a single position of it is wrong. The rate counts
    positions, not sentences.
    """
    known = alignment >= 0
    return float((missed(weights, alignment) & known).any(1).double().mean())


# --- the repair and the test -------------------------------------------------------------------


def attend(query, key, value, lengths, weight_query, weight_key, v, *, outside, late):
    hidden = (query @ weight_query.T)[:, None] + key @ weight_key.T
    scores = torch.tanh(hidden @ v) if outside else torch.tanh(hidden) @ v
    real = torch.arange(key.shape[1]) < lengths[:, None]
    if late:
        weights = scores.softmax(-1) * real
    else:
        weights = scores.masked_fill(~real, -torch.inf).softmax(-1)
    return (weights[:, None] @ value)[:, 0]


@witnesses(of="fixed_attend")
def attend_calls(draw):
    for lengths in ([4, 4, 4], [4, 1, 2], [3, 3, 1]):
        yield call(
            draw.normal(3, 2),
            draw.normal(3, 4, 5),
            draw.normal(3, 4, 6),
            torch.tensor(lengths),
            draw.normal(7, 2),
            draw.normal(7, 5),
            draw.normal(7, std=2.0),
        )


@wrong_fixed_attend("both faults are still there")
def attend_broken(query, key, value, lengths, weight_query, weight_key, v):
    """This is the broken code as it stands. Work out by hand which range a score can take,
    and what the weights of a padded row add up to.
    """
    return attend(query, key, value, lengths, weight_query, weight_key, v, outside=True, late=True)


@wrong_fixed_attend("the score is still squashed")
def attend_outside(query, key, value, lengths, weight_query, weight_key, v):
    """The padding is dealt with; the scores still lie between -1 and 1, so that no weight can be more
    than 7.4 times another one. Look at what is squashed.
    """
    return attend(query, key, value, lengths, weight_query, weight_key, v, outside=True, late=False)


@wrong_fixed_attend("the padding still takes its share", fails=("padding",))
def attend_late(query, key, value, lengths, weight_query, weight_key, v):
    """The scores are right; in a padded row the weights of the real positions still sum to less
    than one. Look at what the softmax divides by.
    """
    return attend(query, key, value, lengths, weight_query, weight_key, v, outside=False, late=True)


def read_out(scores, value, lengths, real=None):
    real = torch.arange(scores.shape[1]) < lengths[:, None] if real is None else real
    weights = scores.masked_fill(~real, -torch.inf).softmax(-1)
    return (weights[:, None] @ value)[:, 0]


def hidden_units(query, key, weight_query, weight_key):
    return (query @ weight_query.T)[:, None] + key @ weight_key.T


@wrong_fixed_attend("no squashing at all")
def attend_linear(query, key, value, lengths, weight_query, weight_key, v):
    """The bend is gone altogether. Then the query adds the same number to every score of its row, and the softmax
    does not see it: what the query asks for makes no difference.
    """
    return read_out(hidden_units(query, key, weight_query, weight_key) @ v, value, lengths)


@wrong_fixed_attend("query and key are squashed one by one")
def attend_two_tanhs(query, key, value, lengths, weight_query, weight_key, v):
    """You bend the query's part and the key's part each by itself and add afterwards. Then the query adds the same
    number to every score of its row and drops out of the softmax; they must meet before the bend.
    """
    asked, offered = torch.tanh(query @ weight_query.T), torch.tanh(key @ weight_key.T)
    return read_out((asked[:, None] + offered) @ v, value, lengths)


@wrong_fixed_attend("padding gets the score 0", fails=("padding",))
def attend_zero_scores(query, key, value, lengths, weight_query, weight_key, v):
    """You set the scores of padding to 0, before the softmax, and 0 is a score like any other: its exponential is 1.
    Which score has the exponential 0?
    """
    scores = torch.tanh(hidden_units(query, key, weight_query, weight_key)) @ v
    real = torch.arange(key.shape[1]) < lengths[:, None]
    return ((scores * real).softmax(-1)[:, None] @ value)[:, 0]


@wrong_fixed_attend("one position too many", fails=("padding",))
def attend_one_more(query, key, value, lengths, weight_query, weight_key, v):
    """Positions count from 0, so the position whose number is the length is the first one of the padding, and you
    let it in.
    """
    scores = torch.tanh(hidden_units(query, key, weight_query, weight_key)) @ v
    return read_out(scores, value, lengths, torch.arange(key.shape[1]) <= lengths[:, None])


@wrong_fixed_attend("padding is the only thing that counts")
def attend_turned(query, key, value, lengths, weight_query, weight_key, v):
    """Your mask is turned round: what is real gets no weight, and a sentence without padding has nothing left at
    all. Print the mask of a short row.
    """
    scores = torch.tanh(hidden_units(query, key, weight_query, weight_key)) @ v
    return read_out(scores, value, lengths, torch.arange(key.shape[1]) >= lengths[:, None])


@wrong_fixed_attend("softmax over the rows of the batch")
def attend_over_batch(query, key, value, lengths, weight_query, weight_key, v):
    """Your softmax runs over the rows of the batch, so that sentences that know nothing of each other share one
    unit of weight. Check along which axis the weights sum to one.
    """
    scores = torch.tanh(hidden_units(query, key, weight_query, weight_key)) @ v
    real = torch.arange(key.shape[1]) < lengths[:, None]
    weights = scores.masked_fill(~real, -torch.inf).softmax(0)
    return (weights[:, None] @ value)[:, 0]


def score_of_one_shape(query, key, weight_query, weight_key, v):
    return torch.zeros(2, 4)


@witnesses(of="check_score")
def check_calls(draw):
    for candidate in (
        lambda *inputs: torch.tanh(score_hidden(*inputs[:4])) @ inputs[4],
        lambda *inputs: score_hidden(*inputs[:4]) @ inputs[4],
        lambda *inputs: torch.ones(3),
        lambda *inputs: 1 / 0,
        score_of_one_shape,
    ):
        yield call(candidate)


@wrong_check_score("accepts everything")
def check_nothing(candidate):
    """Your test says True whatever it is given, so no wrong score is caught.
    Call the candidate and compare what comes back with numbers of your own.
    """
    return True


@wrong_check_score("rejects everything")
def check_refuse(candidate):
    """Your test says False even for a right score. Look at whether you leave room for rounding,
    at the dtype of your own numbers, and at what you return in the end.
    """
    return False


@wrong_check_score("only the shape is looked at")
def check_shape(candidate):
    """You compare the shape of the answer and no value in it. Most wrong scores have the right shape."""
    got = candidate(
        torch.ones(2, 3), torch.ones(4, 2), torch.ones(5, 3), torch.ones(5, 2), torch.ones(5)
    )
    return tuple(got.shape) == (2, 4)


@wrong_check_score("inputs of zeros")
def check_zeros(candidate):
    """Your inputs are all 0, and so is every score, right or wrong: 0 in, 0 out.
    Choose numbers on which the wrong ones differ.
    """
    got = candidate(
        torch.zeros(2, 3), torch.zeros(4, 2), torch.ones(5, 3), torch.ones(5, 2), torch.ones(5)
    )
    return bool(torch.allclose(got, torch.zeros(2, 4).to(got.dtype)))


@wrong_check_score("one query, one hidden unit", fails=("mutants",))
def check_small(candidate):
    """You try one query, one key and one hidden unit with all weights 1. Exchanged matrices, a transposed
    result and a mean over the hidden units look the same there. Use several of each, all different.
    """
    got = candidate(
        torch.tensor([[0.5]]),
        torch.tensor([[1.0]]),
        torch.ones(1, 1),
        torch.ones(1, 1),
        torch.tensor([2.0]),
    )
    expected = 2 * torch.tensor([[1.5]]).tanh()
    return tuple(got.shape) == (1, 1) and bool(torch.allclose(got.float(), expected))
