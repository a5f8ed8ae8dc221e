//===- Batches.h - One graph for several batch sizes ----------------------===//
#pragma once
#include "tools/lib/Source.h"

namespace cfc {

/// Names of a graph's arguments that have a row for each request, caches apart.
std::vector<std::string> namesByRequest(attn::GraphOp graph);

/// The graph of `source` for another number of requests: activations, positions, slots, block tables and
/// lengths have as many rows, all else stays. It is called NAME_bN; an end of that form is replaced. Fails
/// (2) where the graph's rows are not its requests. `most`: requests of the largest graph beside it, in which
/// a request has the same bits.
Source sourceForBatch(Compiler &compiler, const Source &source, int64_t batch, int64_t most);

/// One source for each of the batches, which ascend from 1; none for none. Fails (2) where they do not.
std::vector<Source> sourcesForBatches(Compiler &compiler, const Source &source,
                                      const std::vector<int64_t> &batches);

} // namespace cfc
