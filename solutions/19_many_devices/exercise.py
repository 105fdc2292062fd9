# %% [markdown]
# # Exercises: a sequence on many devices
#
# You write ring attention, a balanced split of a sequence for causal masks, and an exchange of heads that needs no ring.
#
# There is only one process: a *list* with one entry per device represents the devices; entry `r` is the data of device `r`. The values are those of a real ring.
#
# Shapes: `P` devices; a shard of `l` queries and keys of width `E` and values of width `E_v`.
# `...` is any number of leading axes (batch, heads), possibly none.
#
# A failing test shows what it tried and what it saw, and names the mistake if it knows it.
# You need neither a network nor a GPU.

# %% nbgrader={"grade_id": "setup", "locked": true}
import torch

from attn_course.probes import from_numpy, load_oracles

oracles, probes = load_oracles("19_many_devices")

LN3 = 1.0986123  # e to this power is 3


def shards_of(probe, lengths, size=4, value_size=3, lead=(), factor=1.0):
    # queries, keys and values of devices with shards of these lengths
    query = [factor * probe.normal(*lead, n, size) for n in lengths]
    key = [factor * probe.normal(*lead, n, size) for n in lengths]
    return query, key, [probe.normal(*lead, n, value_size) for n in lengths]


# %% [markdown]
# ## 1. The ring
#
# `ring_attention(query_shards, key_shards, value_shards, is_causal=False)` returns a list with the output of each device.
#
# - Each argument is a list of `P` tensors, `(..., l, E)` for queries and keys and `(..., l, E_v)` for values. Device `r` has the `r`-th run of the sequence. Runs may differ in length; on each device, queries, keys and values have the same length.
# - The outputs, concatenated in the order of devices, are softmax attention over the whole sequence with the scale $1/\sqrt E$; with `is_causal`, position `i` of the *sequence* attends to the positions `0` to `i`.
# - A device uses one block of keys and values at a time, and never builds all keys or all scores of the sequence: the memory is measured.
# - It handles every finite score.
#
# At step 0 every device has its own block of keys and values. After each step, device `r` passes its block to device `r + 1`, and the last device passes it to device 0.
# Merge partial results as in chapter 18 (`merge_partials`): the share of a block is $e^{\ell_b - \ell}$.
#
# By hand: two devices with one position each, $E = 1$; queries $1$ and $1$, keys $0$ and $\ln 3$, values $8$ and $4$. Both queries have the scores $0$ and $\ln 3$, and both outputs are $5$. With a causal mask device 0 gives $8$ and device 1 gives $5$.


# %% nbgrader={"grade_id": "ring_attention", "solution": true}
def ring_attention(query_shards, key_shards, value_shards, is_causal=False):
    ### BEGIN SOLUTION
    world_size, outputs = len(query_shards), []
    for rank, query in enumerate(query_shards):
        output, lse = None, None
        for step in range(world_size):
            owner = (rank - step) % world_size
            if is_causal and owner > rank:
                continue  # all of these keys lie in the future
            scores = query @ key_shards[owner].mT * query.shape[-1] ** -0.5
            if is_causal and owner == rank:
                closed = torch.ones_like(scores, dtype=torch.bool).triu(1)
                scores = scores.masked_fill(closed, -torch.inf)
            part, part_lse = scores.softmax(-1) @ value_shards[owner], scores.logsumexp(-1)
            if output is None:
                output, lse = part, part_lse
                continue
            total = torch.logaddexp(lse, part_lse)
            output = output * (lse - total).exp()[..., None]
            output = output + part * (part_lse - total).exp()[..., None]
            lse = total
        outputs.append(output)
    return outputs
    ### END SOLUTION


# %% nbgrader={"grade_id": "ring_attention-by_hand", "grade": true, "points": 1}
# The example of the text, without and with a mask.
probe = probes(ring_attention=ring_attention)
ones, keys = [torch.tensor([[1.0]])] * 2, [torch.tensor([[0.0]]), torch.tensor([[LN3]])]
values = [torch.tensor([[8.0]]), torch.tensor([[4.0]])]
probe.gives([torch.tensor([[5.0]]), torch.tensor([[5.0]])], ones, keys, values)
probe.gives([torch.tensor([[8.0]]), torch.tensor([[5.0]])], ones, keys, values, is_causal=True)

# %% nbgrader={"grade_id": "ring_attention-values", "grade": true, "points": 2}
# Three devices with two positions each.
probe = probes(ring_attention=ring_attention)
probe.equals(
    list(torch.eye(6)[:, :4].split(2)),
    list((torch.arange(24.0).reshape(6, 4) % 5).split(2)),
    list(torch.eye(6)[:, :3].split(2)),
)
### BEGIN HIDDEN TESTS
probe.equals(*shards_of(probe, [3, 3, 3, 3], factor=1.5))
probe.equals(*shards_of(probe, [2, 2], lead=(2, 3), factor=1.5))
probe.equals(*shards_of(probe, [5]))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "ring_attention-causal", "grade": true, "points": 3}
# Position i of the sequence attends to the positions 0 to i.
probe = probes(ring_attention=ring_attention)
probe.equals(
    list(torch.ones(6, 4).split(2)),
    list((torch.arange(24.0).reshape(6, 4) % 5).split(2)),
    list(torch.eye(6)[:, :3].split(2)),
    is_causal=True,
)
### BEGIN HIDDEN TESTS
probe.equals(*shards_of(probe, [3, 3, 3, 3], factor=1.5), is_causal=True)
probe.equals(*shards_of(probe, [2, 2], lead=(2, 3), factor=1.5), is_causal=True)
probe.equals(*shards_of(probe, [1, 1, 1, 1, 1]), is_causal=True)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "ring_attention-uneven", "grade": true, "points": 1}
# Devices with runs of different lengths.
probe = probes(ring_attention=ring_attention)
probe.equals(*(list(torch.eye(4).split([1, 3])) for _ in range(3)))
### BEGIN HIDDEN TESTS
parts = shards_of(probe, [2, 5, 1, 3], factor=1.5)
probe.equals(*parts)
probe.equals(*parts, is_causal=True)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "ring_attention-large", "grade": true, "points": 1}
# Scores of 200, 201 and 202, rising and falling along the devices.
probe = probes(ring_attention=ring_attention)
keys = [torch.tensor([[score, 0.0, 0.0, 0.0]]) for score in (200.0, 201.0, 202.0)]
asks = [torch.tensor([[2.0, 0.0, 0.0, 0.0]])] * 3
probe.equals(asks, keys, list(torch.eye(3).split(1)))
probe.equals(asks, keys[::-1], list(torch.eye(3).split(1)))
### BEGIN HIDDEN TESTS
probe.equals(*([x.double() for x in part] for part in shards_of(probe, [2, 2, 2], factor=15.0)))
# two rows on each device with scores hundreds apart
rows = [torch.tensor([[2.0, 0.0, 0.0, 0.0], [-2.0, 0.0, 0.0, 0.0]])] * 3
keys = list((200 + torch.arange(6.0)).reshape(3, 2, 1) * torch.eye(1, 4))
probe.equals(rows, keys, list(torch.eye(6).split(2)))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "ring_attention-memory", "grade": true, "points": 2}
# 8 devices with 768 positions: a block of scores takes 2.25 MiB, a row of blocks 18 MiB.
probe = probes(ring_attention=ring_attention)
many = ([*probe.normal(6144, 8).split(768)] for _ in range(3))
probe.memory(*many, below=14_400_000)

# %% [markdown]
# ## 2. The zigzag split
#
# Under a causal mask the device with the first run of positions has the least work, the one with the last run the most.
# The zigzag split splits the sequence into $2P$ runs of equal length and gives device $r$ two of them: run $r$ from the left and run $r$ from the right.
#
# `zigzag_split(length, world_size)` returns an integer tensor `(world_size, length / world_size)`: row `r` lists the positions of device `r` in ascending order.
#
# - `length` is a multiple of `2 * world_size`.
#
# By hand, eight positions on two devices: the runs are `0 1`, `2 3`, `4 5` and `6 7`; device 0 has `[0, 1, 6, 7]`, device 1 `[2, 3, 4, 5]`.


# %% nbgrader={"grade_id": "zigzag_split", "solution": true}
def zigzag_split(length, world_size):
    ### BEGIN SOLUTION
    runs = torch.arange(length).reshape(2 * world_size, -1)
    return torch.cat([runs[:world_size], runs[world_size:].flip(0)], dim=1)
    ### END SOLUTION


# %% nbgrader={"grade_id": "zigzag_split-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(zigzag_split=zigzag_split)
probe.gives(torch.tensor([[0, 1, 6, 7], [2, 3, 4, 5]]), 8, 2)

# %% nbgrader={"grade_id": "zigzag_split-more", "grade": true, "points": 2}
# Other lengths, and more devices.
probe = probes(zigzag_split=zigzag_split)
probe.equals(12, 3)
### BEGIN HIDDEN TESTS
for length, world_size in ((18, 3), (8, 4), (40, 5), (6, 3), (16, 1)):
    probe.equals(length, world_size)
### END HIDDEN TESTS

# %% [markdown]
# ## Look
#
# Left: the device of each position, in runs and in your zigzag split. Middle: the query-key pairs that each device computes under a causal mask. Right: the weights of your ring, equal to those of one device.

# %% attn_course={"look": true}
import matplotlib.pyplot as plt

runs, zigzag = torch.arange(16).view(4, 4), zigzag_split(16, 4)
owner = torch.empty(2, 16)
for device in range(4):
    owner[0, runs[device]] = owner[1, zigzag[device]] = float(device)
figure, axes = plt.subplots(1, 3, figsize=(11, 3), layout="constrained")
axes[0].imshow(owner, aspect="auto", cmap="tab10")
axes[0].set(title="device", xlabel="position", yticks=[0, 1], yticklabels=["runs", "zigzag"])
for number, (name, table) in enumerate({"runs": runs, "zigzag": zigzag}.items()):
    axes[1].bar(torch.arange(4) + 0.4 * number, (table + 1).sum(1), width=0.4, label=name)
axes[1].set(title="pairs", xlabel="device", xticks=range(4))
axes[1].legend()
x = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
outputs = ring_attention(x.split(4), x.split(4), torch.eye(16).split(4), is_causal=True)
axes[2].imshow(torch.cat(outputs))
axes[2].set(title="weights of the ring", xlabel="key", ylabel="query")
plt.show()

# %% [markdown]
# # More

# %% [markdown]
# ## 3. The exchange of heads
#
# Another way to distribute a sequence is to change the split axis.
# Before the exchange every device has a run of the sequence for all heads. Afterwards it has the whole sequence for some heads and computes their attention alone.
#
# `ulysses_exchange(shards)` takes a list of `P` tensors `(H, l, E)` and returns a list of `P` tensors `(H / P, P * l, E)`.
#
# - Device `r` gets `H / P` heads from head `r * H / P` on, for all positions in the order of the sequence. `H` is a multiple of `P`.
#
# By hand, two devices, two heads, one position each, $E = 1$: device 0 has $[[1], [2]]$ (head 0, head 1) and device 1 $[[3], [4]]$. Afterwards device 0 has head 0, which is $[[1, 3]]$, and device 1 $[[2, 4]]$.


# %% nbgrader={"grade_id": "ulysses_exchange", "solution": true}
def ulysses_exchange(shards):
    ### BEGIN SOLUTION
    world_size = len(shards)
    parts = [shard.chunk(world_size, dim=0) for shard in shards]
    return [torch.cat([part[rank] for part in parts], dim=1) for rank in range(world_size)]
    ### END SOLUTION


# %% nbgrader={"grade_id": "ulysses_exchange-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(ulysses_exchange=ulysses_exchange)
probe.gives(
    [torch.tensor([[[1.0], [3.0]]]), torch.tensor([[[2.0], [4.0]]])],
    [torch.tensor([[[1.0]], [[2.0]]]), torch.tensor([[[3.0]], [[4.0]]])],
)

# %% nbgrader={"grade_id": "ulysses_exchange-values", "grade": true, "points": 2}
# Two devices, four heads, three positions each.
probe = probes(ulysses_exchange=ulysses_exchange)
probe.equals(list(torch.arange(48.0).reshape(4, 6, 2).split(3, dim=1)))
### BEGIN HIDDEN TESTS
for world_size, heads, length, size in ((3, 6, 5, 2), (2, 2, 4, 3), (4, 8, 1, 3), (1, 3, 2, 2)):
    probe.equals([probe.normal(heads, length, size) for _ in range(world_size)])
### END HIDDEN TESTS

# %% [markdown]
# ## 4. Repair
#
# In data parallel training, every process computes the gradient of the *mean* loss over its own examples. They should be combined into the gradient of the mean loss over all examples.
# This code is right for equal batches, but it has two faults.
#
# ```python
# def fixed_average(gradients, counts):
#     return torch.stack(gradients).mean(dim=0)
# ```
#
# Write `fixed_average(gradients, counts)`.
#
# - `gradients` is a list of tensors of the same shape, `counts` a list of integers of the same length: the number of examples of each process.
# - A process may have no example. Its gradient is then NaN and must be ignored. At least one process has an example.
#
# By hand: gradients $6$ (of one example) and $2$ (of three): $(1 \cdot 6 + 3 \cdot 2)/4 = 3$.


# %% nbgrader={"grade_id": "fixed_average", "solution": true}
def fixed_average(gradients, counts):
    ### BEGIN SOLUTION
    total = sum(counts)
    parts = [g * (n / total) for g, n in zip(gradients, counts, strict=True) if n]
    return torch.stack(parts).sum(dim=0)
    ### END SOLUTION


# %% nbgrader={"grade_id": "fixed_average-even", "grade": true, "points": 1}
# Batches of the same size.
probe = probes(fixed_average=fixed_average)
probe.equals([torch.tensor([1.0, 2.0]), torch.tensor([3.0, 6.0])], [4, 4])
### BEGIN HIDDEN TESTS
probe.equals([probe.normal(3, 2) for _ in range(5)], [7] * 5)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "fixed_average-uneven", "grade": true, "points": 1}
# The example of the text.
probe = probes(fixed_average=fixed_average)
probe.equals([torch.tensor([6.0]), torch.tensor([2.0])], [1, 3])
### BEGIN HIDDEN TESTS
probe.equals([probe.normal(3, 2) for _ in range(4)], [2, 7, 1, 5])
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "fixed_average-nothing", "grade": true, "points": 1}
# A process without an example.
probe = probes(fixed_average=fixed_average)
nan = float("nan")
probe.equals([torch.tensor([1.0]), torch.tensor([nan]), torch.tensor([3.0])], [1, 0, 3])
### BEGIN HIDDEN TESTS
probe.equals(
    [probe.normal(3), torch.full((3,), nan), probe.normal(3), probe.normal(3)], [2, 0, 3, 1]
)
### END HIDDEN TESTS

# %% [markdown]
# ## 5. Write the test
#
# `check_ring(candidate)` takes a candidate for `ring_attention(query_shards, key_shards, value_shards, is_causal=False)` and returns `True` if it keeps the contract of exercise 1 (its memory aside), `False` if not.
#
# Your test must accept right answers; each wrong answer that it rejects earns a share of the points.
# Most wrong answers pass a test with two equal devices. Test more devices, and the mask across devices.
# Allow for rounding. A candidate that raises an error is wrong.


# %% nbgrader={"grade_id": "check_ring", "solution": true}
def check_ring(candidate):
    ### BEGIN SOLUTION
    draw = torch.Generator().manual_seed(0)
    for lengths, size in (([3, 3, 3, 3], 2.0), ([1, 4, 2], 2.0), ([2, 2, 2], 60.0)):
        total = sum(lengths)
        query, key = size * torch.randn(2, 2, total, 3, generator=draw, dtype=torch.float64)
        value = torch.randn(2, total, 5, generator=draw, dtype=torch.float64)
        shards = [list(rows.split(lengths, dim=-2)) for rows in (query, key, value)]
        for is_causal in (False, True):
            scores = query @ key.mT / 3**0.5
            if is_causal:
                closed = torch.ones(total, total, dtype=torch.bool).triu(1)
                scores = scores.masked_fill(closed, -torch.inf)
            parts = (scores - scores.amax(dim=-1, keepdim=True)).exp()
            expected = parts @ value / parts.sum(dim=-1, keepdim=True)
            try:
                got = candidate(*shards, is_causal)
                pairs = list(zip(got, expected.split(lengths, dim=-2), strict=True))
            except Exception:
                return False
            for mine, right in pairs:
                if mine.shape != right.shape or not torch.allclose(mine, right, atol=1e-6):
                    return False
    return True
    ### END SOLUTION


# %% nbgrader={"grade_id": "check_ring-plain", "grade": true, "points": 1}
# A right candidate, and three that are clearly wrong.
def by_joining(query_shards, key_shards, value_shards, is_causal=False):
    return from_numpy(oracles.right_ring)(query_shards, key_shards, value_shards, is_causal)


probe = probes(check_ring=check_ring)
probe.judges(
    right=[by_joining],
    wrong={
        "the values themselves": lambda query, key, value, is_causal=False: [1 * v for v in value],
        "twice the right output": lambda *shards: [2 * part for part in by_joining(*shards)],
        "the shards in another order": lambda *shards: by_joining(*shards)[::-1],
    },
    points=1,
)

# %% nbgrader={"grade_id": "check_ring-mutants", "grade": true, "points": 8}
# Wrong candidates that are harder to detect. (Which ones is hidden.)
probe = probes(check_ring=check_ring)
probe.judges(
    right=[by_joining],
    wrong={"twice the right output": lambda *shards: [2 * part for part in by_joining(*shards)]},
    points=8,
)


### BEGIN HIDDEN TESTS
HARD = (
    *("the blocks are averaged", "the last block never comes", "blocks skip a device"),
    *("the mask is ignored", "each block has its own mask", "no maximum", "no scale"),
    *("all shards are taken as equally long", "the larger log-sum-exp instead of both"),
    *("the diagonal is masked, except for the first position",),
)
rings = probe.catalogue.of("ring_attention")
probe.judges(
    right=[by_joining, rings[0].right],
    wrong={one.name: one.function for one in rings if one.name in HARD},
    points=8,
)
### END HIDDEN TESTS

# %% [markdown]
# ## 6. Report
#
# Use your functions or the numbers of the chapter. Write about 200 words; each part earns two points.
#
# 1. Eight devices have a causal sequence in contiguous runs. Which share of the pairs do the devices with the most and the least work compute? How much faster is a zigzag ring if every step waits for the slowest device?
# 2. How do the bytes that a device sends in a ring and in an exchange of heads change if the number of devices doubles for the same sequence? What limits the exchange for a model with 8 key heads?
# 3. You double the number of processes in data parallel training and keep the batch of each. What stays the same, and what does not?

# %% [markdown] nbgrader={"grade_id": "report", "grade": true, "solution": true, "points": 6}
# 1. In blocks of one shard: device 7 computes 7.5 of 8 blocks, device 0 half a block, of 32 in all: 23 % against 1.6 %. In every step but the diagonal one, some device computes a whole block, so a pass takes about 7.5 units; zigzag takes 4 units on every device: somewhat less than twice as fast.
# 2. Ring: (P - 1) / P of all keys and values, which tends to the whole sequence: nearly constant. Exchange: four tensors of 1/P of the sequence each, of which (P - 1) / P leave the device: about half. Each device needs at least one key head, so at most 8 devices, unless keys are sent twice.
# 3. A step uses the gradient of the mean over twice as many examples, with half as many steps per epoch, so learning rate and schedule may need a change. The time of a step stays about the same if the exchange of gradients is hidden. Batch norm statistics are those of one process, each process needs its own dropout seed, and uneven batches need weights.
#
# **Points**, one for each:
#
# - (1a) Both shares.
# - (1b) The speed-up, from the slowest device of each step.
# - (2a) Both amounts against the number of devices.
# - (2b) At least one key head per device.
# - (3a) The gradient is that of the larger batch.
# - (3b) What changes: steps, rates, statistics or draws.
