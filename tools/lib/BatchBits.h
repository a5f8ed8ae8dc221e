//===- BatchBits.h - A request's bits alone and in every batch ------------===//
#pragma once
#include "tools/lib/Build.h"

namespace cfc {

struct BatchBitsOptions {
  int64_t draws = 20;            ///< batches to draw
  std::optional<int64_t> length; ///< most cached tokens of a request; nothing: 200, or the graph's bound
  uint64_t seed = 0;
  std::string weights; ///< a checkpoint, or "": random
  BuildOptions build;  ///< `graph` and `variant` limit what runs
};

/// Draws batches of ragged and idle requests by seed. Each request runs alone in the graph for the fewest
/// requests, then some of them, in any rows, in every graph and variant of a bundle, with one pool of pages
/// or one cache. Prints each draw, and whether every request's results and appended rows had the same bits
/// throughout, which is what it returns. A graph that is no bundle is the only one.
bool verifyBatchBits(Compiler &compiler, const std::string &path, Device &device,
                     const BatchBitsOptions &options);

} // namespace cfc
