#!/usr/bin/env python3
"""Times a chain of an attn.graph's blocks with torch.compile in a CUDA graph: `cfc bench --baseline` runs this.

    python3 torch_chain.py DESCRIPTION

DESCRIPTION is JSON: the graph's tensors and operations, and the cases to time; tools/lib/BenchTorch.cpp writes it.
Prints one line `cfc-result: JSON`: for each case a list with an object of microseconds a block for each way to do it,
or {"problem": …}. Everything that PyTorch may know ahead is a constant: lengths, positions and slots are no tensors.

Several requests' caches are [request, head, token, dim], pages or not. What attends over them is tried alone, and the
fastest taken: one call for all, one for each request, one over rows padded to the longest with a mask, or flash
attention of sequences of different lengths. FlashInfer, where it is installed, attends over shuffled pages instead,
planned ahead.
"""
import functools
import json
import os
import sys
import time

# What compilers print stays away from the one line that is read.
RESULT = os.fdopen(os.dup(1), "w")


def answer(result):
    print("cfc-result:", json.dumps(result), file=RESULT, flush=True)


try:
    import torch
except Exception as error:  # whatever a broken installation raises
    torch, missing = None, error

WARM_UP_SECONDS, SETTLE_SECONDS, GRAPH_MICROSECONDS = 2, 0.2, 4000
PAGE = 64  # tokens of a page for FlashInfer where the graph's caches have none
sdpa = torch.nn.functional.scaled_dot_product_attention if torch else None


class Batch:
    """Lengths of the requests, and what follows from them."""

    def __init__(self, description, case, device):
        self.lengths, self.token_major = case["lengths"], description["token_major"]
        self.requests, self.longest = len(self.lengths), max(self.lengths)
        self.equal = min(self.lengths) == self.longest
        self.capacity = (self.longest + 8) // 8 * 8  # a mask's rows are multiples of 16 bytes
        self.index = torch.arange(self.requests, device=device)
        self.slots = torch.tensor(self.lengths, device=device)
        tokens = torch.arange(self.capacity, device=device)
        # By the number of appended tokens and the window: [request, 1, 1, token], whether attention sees it.
        windows = {0} | {op.get("window", 0) for op in description["operations"]}
        ends = [(self.slots + n)[:, None] for n in (0, 1)]
        self.masks = {(n, window): ((tokens < end) & (tokens >= end - (window or self.capacity)))[:, None, None]
                      for n, end in enumerate(ends) for window in windows}
        self.made_sequences = {}

    def seen(self, appended):
        """Tokens of each request that attention sees."""
        return [length + appended for length in self.lengths]

    def sequences(self, heads, appended, window):
        """Of a cache seen as one array of rows, with so many sequences a request: (their numbers, first rows and
        lengths). Made once, before anything is compiled."""
        key = heads, appended, window
        if key not in self.made_sequences:
            number = torch.arange(self.requests * heads + 1, dtype=torch.int32, device=self.slots.device)
            used = (self.slots + appended).int().repeat_interleave(heads)
            first = number * self.capacity
            if window:
                first[:-1] += (used - window).clamp(min=0)
                used = used.clamp(max=window)
            self.made_sequences[key] = number, first, used
        return self.made_sequences[key]


# Ways to attend: functions of (batch, q [request, query head, 1, dim], K and V [request, head, token, dim], the scale,
# appended tokens, and the window: the last tokens that are seen, or 0).


def last(tokens, window):
    """The rows of `tokens` that a window leaves."""
    return slice(max(0, tokens - window) if window else 0, tokens)


def one_call(batch, q, keys, values, scale, appended, window):
    rows = last(batch.longest + appended, window)
    grouped = {"enable_gqa": True} if q.shape[1] != keys.shape[1] else {}
    return sdpa(q, keys[:, :, rows], values[:, :, rows], scale=scale, **grouped)


def heads_as_rows(batch, q, keys, values, scale, appended, window):
    """Query heads that share a KV head are the rows of one matrix."""
    seen = last(batch.longest + appended, window)
    rows = q.reshape(q.shape[0], keys.shape[1], -1, q.shape[3])
    return sdpa(rows, keys[:, :, seen], values[:, :, seen], scale=scale).reshape(*q.shape[:3], -1)


def each_request(batch, q, keys, values, scale, appended, window):
    grouped = {"enable_gqa": True} if q.shape[1] != keys.shape[1] else {}
    parts = []
    for r, tokens in enumerate(batch.seen(appended)):
        part = q[r : r + 1]
        if tokens == 0:
            parts.append(torch.zeros_like(part[..., :1]).expand(*part.shape[:3], values.shape[3]))
            continue
        seen = last(tokens, window)
        rows = keys[r : r + 1, :, seen], values[r : r + 1, :, seen]
        parts.append(sdpa(part, *rows, scale=scale, **grouped))
    return torch.cat(parts)


def padded(batch, q, keys, values, scale, appended, window):
    rows = q.reshape(q.shape[0], keys.shape[1], -1, q.shape[3])
    o = sdpa(rows, keys, values, attn_mask=batch.masks[appended, window], scale=scale)
    return o.reshape(*q.shape[:3], -1)


def flash_sequences(batch, q, keys, values, scale, appended, window):
    """Rows of a cache are one array; each request, or head of one, is a sequence in it."""
    heads, dim = keys.shape[1], keys.shape[3]
    if batch.token_major:
        sequences = 1
        rows = [part.transpose(1, 2).reshape(-1, heads, part.shape[3]) for part in (keys, values)]
    else:
        sequences = heads
        rows = [part.reshape(-1, 1, part.shape[3]) for part in (keys, values)]
    number, first, used = batch.sequences(sequences, appended, window)
    queries = q.reshape(batch.requests * sequences, -1, dim)
    o = torch.ops.aten._flash_attention_forward(
        queries, *rows, number, first, 1, batch.capacity, 0.0, False, False, scale=scale, seqused_k=used
    )[0]
    return o.reshape(*q.shape[:3], -1)


EQUAL = {"one call": one_call, "one call, query heads as rows": heads_as_rows, "flash sequences": flash_sequences}
RAGGED = {
    "a call each request": each_request,
    "padded with a mask": padded,
    "flash sequences": flash_sequences,
}


class Block:
    """The graph as a function of tensors. `attend` is a way to attend."""

    def __init__(self, description, batch, attend):
        self.tensors, self.batch, self.attend = description["tensors"], batch, attend
        self.operations, self.results = description["operations"], description["results"]
        self.dtypes = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}

    def __call__(self, given):
        values = dict(given)
        for operation in self.operations:
            outputs = getattr(self, operation["name"])(operation, *[values[name] for name in operation["operands"]])
            for name, dtype, output in zip(operation["results"], operation["dtypes"], outputs):
                values[name] = output if dtype is None else output.to(self.dtypes[dtype])
        return [values[name] for name in self.results]

    def rms_norm(self, operation, x, gain):
        wide = x.float().view(x.shape[0], -1, gain.shape[0])
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + operation["eps"])
        factor = gain + operation["offset"] if operation["offset"] else gain
        return [((wide * scale).to(x.dtype) * factor).reshape(x.shape)]

    def layer_norm(self, operation, x, gain=None, bias=None):
        factors = [None if factor is None else factor.float() for factor in (gain, bias)]
        return [torch.nn.functional.layer_norm(x.float(), x.shape[-1:], *factors, eps=operation["eps"]).to(x.dtype)]

    def linear(self, operation, x, weight, bias=None):
        product = torch.nn.functional.linear(x, weight, bias)
        return product.split(operation["rows"], dim=1)

    def rope(self, operation, *operands):
        *values, rows = operands
        dim = rows.shape[-1]
        cos, sin = rows[:, None].chunk(2, dim=2)

        def turn(value):
            all_of_head = value.float().view(value.shape[0], -1, operation["head_dim"])
            heads, rest = all_of_head[..., :dim], all_of_head[..., dim:]
            if operation["interleaved"]:
                a, b = heads[..., 0::2], heads[..., 1::2]
                turned = torch.stack([a * cos - b * sin, b * cos + a * sin], dim=3).reshape(heads.shape)
            else:
                a, b = heads.chunk(2, dim=2)
                turned = torch.cat([a * cos - b * sin, b * cos + a * sin], dim=2)
            whole = torch.cat([turned, rest], dim=2) if rest.shape[2] else turned
            return whole.reshape(value.shape)

        return [turn(value) for value in values]

    def kv_append(self, operation, cache, k, v):
        batch = self.batch
        for rows, new in zip(cache, (k, v)):
            new = new.view(batch.requests, rows.shape[1], -1).to(rows.dtype)
            if batch.equal:
                rows[:, :, batch.longest : batch.longest + 1] = new[:, :, None]
            else:
                rows[batch.index, :, batch.slots] = new
        return [cache]

    def attention(self, operation, q, cache):
        keys, values = cache
        heads = q.to(keys.dtype).view(self.batch.requests, -1, 1, keys.shape[3])
        options = (operation[key] for key in ("scale", "appended", "window"))
        o = self.attend(self.batch, heads, keys, values, *options)
        o = o.reshape(self.batch.requests, -1)
        if len(operation["results"]) == 1:
            return [o]
        group, wide = heads.shape[1] // keys.shape[1], keys.repeat_interleave(heads.shape[1] // keys.shape[1], 1)
        scores = heads.float() @ wide.float().transpose(2, 3) * operation["scale"]
        seen = self.batch.masks[operation["appended"], 0]
        return [o, scores.masked_fill(~seen, -torch.inf).logsumexp(-1).view(-1, group * keys.shape[1])]

    def add(self, operation, lhs, rhs):
        return [lhs + rhs if operation["scale"] == 1 else lhs + operation["scale"] * rhs]


def make_cache(spec, batch, device):
    """Random K and V as [request, head, token, dim], in the order of memory that was asked for."""
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[spec["dtype"]]
    order = (batch.capacity, spec["heads"]) if batch.token_major else (spec["heads"], batch.capacity)
    parts = []
    for dim in (spec["dim"], spec["v_dim"]):
        rows = torch.empty(batch.requests, *order, dim, dtype=dtype, device=device).normal_()
        parts.append(rows.transpose(1, 2) if batch.token_major else rows)
    return tuple(parts)


def make_tensor(spec, batch, device, make=make_cache):
    """Random values as cfc's own chain has them; a rope table is the rows of the requests."""
    if spec["kind"] == "cache":
        return make(spec, batch, device)
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[spec["dtype"]]
    shape = [batch.requests, *spec["shape"][1:]] if spec["kind"] == "table" else spec["shape"]
    values = torch.randn(shape, device=device) * spec["deviation"] + spec["mean"]
    return values.to(dtype)


def make_layers(description, batch, count, device, make=make_cache):
    tensors = description["tensors"]
    shared = {name: make_tensor(spec, batch, device, make) for name, spec in tensors.items() if not spec["own"]}
    own = lambda: {  # noqa: E731
        name: make_tensor(spec, batch, device, make) for name, spec in tensors.items() if spec["own"]
    }
    return [{**shared, **own()} for _ in range(count)]


# FlashInfer


class Pages:
    """Attention of FlashInfer over a pool of pages in random order, which hold the requests' tokens."""

    def __init__(self, description, batch, spec, query_heads, operation, device):
        import flashinfer

        self.batch, self.page = batch, spec["page"] or PAGE
        seen = batch.seen(1)
        counts = [(tokens + self.page - 1) // self.page for tokens in seen]
        self.count = sum(counts)
        order = torch.randperm(self.count, generator=torch.Generator().manual_seed(1)).int()
        starts = torch.tensor([0, *counts]).cumsum(0)
        last = [starts[r].item() + length // self.page for r, length in enumerate(batch.lengths)]
        self.new_page = order[last].long().to(device)
        self.new_row = torch.tensor([length % self.page for length in batch.lengths], device=device)
        used = batch.seen(operation["appended"])
        room = torch.empty(256 << 20, dtype=torch.uint8, device=device)
        self.wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            room, "NHD" if batch.token_major else "HND", use_tensor_cores=query_heads > spec["heads"]
        )
        dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[spec["dtype"]]
        pages = [(tokens + self.page - 1) // self.page for tokens in used]
        indptr = torch.tensor([0, *pages]).cumsum(0).int()
        indices = torch.cat([order[starts[r] : starts[r] + n] for r, n in enumerate(pages)])
        rest = torch.tensor([tokens - (n - 1) * self.page if n else 0 for tokens, n in zip(used, pages)]).int()
        self.wrapper.plan(
            indptr.to(device),
            indices.to(device),
            rest.to(device),
            query_heads,
            spec["heads"],
            spec["dim"],
            self.page,
            q_data_type=dtype,
            kv_data_type=dtype,
            sm_scale=operation["scale"],
            window_left=operation["window"] - 1,  # tokens before the newest; -1: all
        )

    def make_cache(self, spec, batch, device):
        dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[spec["dtype"]]
        order = (self.page, spec["heads"]) if batch.token_major else (spec["heads"], self.page)
        return tuple(
            torch.empty(self.count, *order, spec["dim"], dtype=dtype, device=device).normal_() for _ in "kv"
        )

    def run(self, q, k, v):
        return self.wrapper.run(q, (k, v))


class PagedBlock(Block):
    """The graph with FlashInfer's attention, an operation that torch.compile does not look into."""

    pages = None  # that the operation is planned for

    @staticmethod
    @functools.cache
    def operation():
        @torch.library.custom_op("cfc::paged_attention", mutates_args=())
        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return PagedBlock.pages.run(q, k, v)

        @attend.register_fake
        def _(q, k, v):
            return torch.empty_like(q)

        return attend

    def kv_append(self, operation, cache, k, v):
        for pool, new in zip(cache, (k, v)):
            new = new.view(self.batch.requests, -1, pool.shape[3]).to(pool.dtype)
            if self.batch.token_major:
                pool[self.pages.new_page, self.pages.new_row] = new
            else:
                pool[self.pages.new_page, :, self.pages.new_row] = new
        return [cache]

    def attention(self, operation, q, cache):
        heads = q.to(cache[0].dtype).view(self.batch.requests, -1, cache[0].shape[3])
        return [self.attend(heads, *cache).reshape(q.shape)]


def paged_block(description, batch, device):
    """(the block, its pages), or a text that says why there is none."""
    try:
        import flashinfer  # noqa: F401
    except Exception as error:  # whatever a broken installation raises
        return f"python3 cannot import flashinfer: {error}"
    operations = [operation for operation in description["operations"] if operation["name"] == "attention"]
    caches = [spec for spec in description["tensors"].values() if spec["kind"] == "cache"]
    if len(operations) != 1 or len(caches) != 1 or len(operations[0]["results"]) != 1:
        return "a block with one attention, without lse, is needed"
    if caches[0]["dim"] != caches[0]["v_dim"] or "heads" not in operations[0]:
        return "K and V of the same dim are needed"
    pages = Pages(description, batch, caches[0], operations[0]["heads"], operations[0], device)
    PagedBlock.pages = pages
    return PagedBlock(description, batch, PagedBlock.operation()), pages


# Time


def replay_times(graph, count):
    """Microseconds of each of `count` replays, one right behind the other."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    events[0].record()
    for event in events[1:]:
        graph.replay()
        event.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) * 1e3 for start, end in zip(events, events[1:])]


def busy(seconds, work):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        work()
        torch.cuda.synchronize()


def capture(work, repeats, stream):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(repeats):
            work()
    return graph


def quantile(samples, share):
    position = share * (len(samples) - 1)
    below = int(position)
    above = min(below + 1, len(samples) - 1)
    return samples[below] + (position - below) * (samples[above] - samples[below])


def chain_of(block, layers, chained):
    def chain():
        result = None
        for layer in layers:
            result = block({**layer, chained: result} if chained and result is not None else layer)[0]
        return result

    return chain


def warm_up(work, stream):
    stream.wait_stream(torch.cuda.current_stream())  # which fills the tensors and FlashInfer's plan
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.synchronize()


def time_chain(chain, layers, replays):
    """Microseconds of one of its layers."""
    stream = torch.cuda.Stream()
    with torch.no_grad():
        warm_up(chain, stream)
        graph = capture(chain, 1, stream)
        once = sorted(replay_times(graph, 3))[1]
        repeats = max(1, min(int(GRAPH_MICROSECONDS / once) + 1, 2048 // layers))
        graph = capture(chain, repeats, stream)
    busy(SETTLE_SECONDS, graph.replay)
    times = sorted(t / (repeats * layers) for t in replay_times(graph, replays))
    return {"median": quantile(times, 0.5), "min": times[0], "p10": quantile(times, 0.1), "p90": quantile(times, 0.9)}


def attend_time(attend, description, batch, layers):
    """Microseconds of the graph's attentions alone, over the caches of all layers."""
    operations = [operation for operation in description["operations"] if operation["name"] == "attention"]
    caches = [name for name, spec in description["tensors"].items() if spec["kind"] == "cache"]
    device, heads = layers[0][caches[0]][0].device, operations[0]["heads"]

    def work():
        for layer in layers:
            for name in caches:
                keys, values = layer[name]
                q = torch.ones(batch.requests, heads, 1, keys.shape[3], dtype=keys.dtype, device=device)
                attend(batch, q, keys, values, *(operations[0][key] for key in ("scale", "appended", "window")))

    stream = torch.cuda.Stream()
    with torch.no_grad():
        warm_up(work, stream)
        graph = capture(work, 1, stream)
    return sorted(replay_times(graph, 7))[3]


def ways_by_time(description, batch, layers):
    """(name, function) of the ways to attend, the one first that takes least time."""
    if not any(operation["name"] == "attention" for operation in description["operations"]) or batch.requests == 1:
        return [("one call", one_call)]
    times, problems = {}, []
    for name, attend in (EQUAL if batch.equal else RAGGED).items():
        try:
            times[name] = attend_time(attend, description, batch, layers), attend
        except Exception as error:  # this way is not for this batch
            problems.append(f"{name}: {reason(error)}")
    if not times:
        raise RuntimeError("; ".join(problems))
    print("attention alone, us:", {name: us for name, (us, _) in times.items()}, problems, file=sys.stderr)
    return [(name, times[name][1]) for name in sorted(times, key=lambda name: times[name][0])]


def reason(error):
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def compiled(block):
    torch._dynamo.reset()
    return torch.compile(lambda given: block(given), dynamic=False)


def time_torch(description, case, batch, device):
    layers = make_layers(description, batch, case["layers"], device)
    ways = ways_by_time(description, batch, layers)
    for index, (way, attend) in enumerate(ways):
        name = f"torch.compile ({way})" if batch.requests > 1 else "torch.compile"
        chain = chain_of(compiled(Block(description, batch, attend)), layers, description["chained"])
        try:
            return {"name": name, **time_chain(chain, case["layers"], description["replays"])}
        except Exception as error:  # what runs alone may not compile
            if index + 1 == len(ways):
                raise
            print(f"{way}: {reason(error)}", file=sys.stderr)
    raise RuntimeError("there is no way to attend")


def time_paged(description, case, batch, device):
    made = paged_block(description, batch, device)
    if isinstance(made, str):
        return {"name": "FlashInfer", "problem": made}
    block, pages = made
    layers = make_layers(description, batch, case["layers"], device, pages.make_cache)
    chain = chain_of(compiled(block), layers, description["chained"])
    name = f"FlashInfer (pages of {pages.page}) and torch.compile"
    return {"name": name, **time_chain(chain, case["layers"], description["replays"])}


def time_case(description, case, device):
    results = []
    has_attention = any(operation["name"] == "attention" for operation in description["operations"])
    for name, work in (("torch.compile", time_torch), ("FlashInfer", time_paged)):
        if name == "FlashInfer" and not has_attention:
            continue
        torch.manual_seed(0)
        try:
            results.append(work(description, case, Batch(description, case, device), device))
        except Exception as error:  # what PyTorch cannot do is an answer too
            results.append({"name": name, "problem": reason(error)})
        torch.cuda.empty_cache()
    return results


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        sys.exit(0 if len(sys.argv) == 2 else 2)
    if not torch:
        return answer({"problem": f"python3 cannot import torch: {missing}"})
    description = json.loads(sys.argv[1])
    if not torch.cuda.is_available():
        return answer({"problem": "torch sees no GPU"})
    device = torch.device("cuda", torch.cuda.current_device())
    a = torch.randn(8192, 8192, device=device).half()
    busy(WARM_UP_SECONDS, lambda: a @ a)
    del a
    answer([time_case(description, case, device) for case in description["cases"]])


if __name__ == "__main__":
    main()
