//===- Queries.h - Rows of requests with several query tokens -------------===//
#pragma once
#include "dialects/attn/ReferenceMath.h"
#include "tools/lib/Tensor.h"
#include <vector>

namespace cfc {

/// First rows of requests that share `rows` rows, and the end of the last: as many for each as is possible.
std::vector<double> evenStarts(int64_t requests, int64_t rows);

/// The same with counts that differ: of three requests or more one has no row, and some rows may be left that
/// are nobody's.
std::vector<double> drawnStarts(int64_t requests, int64_t rows, uint64_t seed);

/// A tensor of i32 or i64 in doubles, and back.
std::vector<double> startsOf(const Tensor &tensor);
Tensor startsTensor(DType type, const std::vector<double> &starts);
/// Bits of a mask, of i64: the tokens of each request form random trees, in which each sees its ancestors and
/// itself. What rows of nobody have means nothing.
Tensor treesTensor(const std::vector<double> &starts, int64_t rows, uint64_t seed);

} // namespace cfc
