//===- Reference.h - What an attn graph means, in float64 ------------------===//
//
// Evaluates a graph operation by operation in double. Only the rows that are
// appended to a cache are rounded, to the cache's type; attention reads K and V
// as stored. Lengths, slots and positions: docs/design.md.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "dialects/attn/Attn.h"
#include "dialects/attn/Elements.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"
#include <functional>
#include <vector>

namespace cfc::attn {

/// The element kind of f16, bf16, f32, f8E4M3FN, i32 or i64.
ElementKind elementKind(mlir::Type element);

/// A dense row-major tensor. The caller keeps the memory.
struct HostTensor {
  ElementKind dtype = ElementKind::F32;
  llvm::SmallVector<int64_t> shape;
  const void *data = nullptr;
};

/// A cache's buffers: element `e` of head `h` of token `t` of block `b` of K lies at k + b * strideBlock +
/// t * strideToken + h * strideHead + e * size. A block is a request's rows, or a page. Strides are in bytes,
/// capacity in tokens; element type, heads, dims and page size are the graph's.
struct HostCache {
  const void *k = nullptr, *v = nullptr;
  int64_t strideHead = 0, strideToken = 0;
  int64_t capacity = 0;    ///< of a request; of a cache with pages the block table says it
  int64_t strideBlock = 0; ///< used where there are several requests, or pages
  int64_t blocks = 1;      ///< requests, or pages in the pool
  /// V's own strides, where its dim is not K's.
  int64_t vStrideHead = 0, vStrideToken = 0, vStrideBlock = 0;
};

/// What `kv_append` writes for one token; the caller's buffers are left as they are.
struct AppendedRow {
  KvAppendOp op;
  int64_t row = 0;                     ///< of the activations
  int64_t request = 0;                 ///< whose row it is; -1: nobody's
  std::string cache;                   ///< tensor name of the cache
  int64_t slot = -1;                   ///< where it goes in the cache; -1 if nothing is written
  std::vector<double> k, v;            ///< heads * dim, before rounding, divided by the scales
  std::vector<uint8_t> kBytes, vBytes; ///< heads * dim elements as stored
  /// The request or page whose rows hold the slot, and the token among them.
  int64_t block() const;
  int64_t token() const;
};

/// By tensor name. Lengths are tensors of i32. Arguments that the graph does not use may be absent.
struct ReferenceInputs {
  llvm::StringMap<HostTensor> tensors;
  llvm::StringMap<HostCache> caches;
  /// Changes the bytes of a row that is stored to those that a program has stored: where a type is coarse, a
  /// number near a tie may go either way, and attention reads what was stored. May be null.
  std::function<void(AppendedRow &)> stored;
};

/// The sticky word of docs/design.md.
enum StatusBits : uint32_t {
  LengthOutOfBound = 1,
  SlotOutOfBound = 2,
  PositionOutOfBound = 4,
  PageOutOfBound = 8,
  QueryOutOfBound = 16
};

struct ReferenceResult {
  llvm::DenseMap<mlir::Value, std::vector<double>> values; ///< every tensor that an operation computes
  /// By an attention's output: HeadSummary::roundings of each row's heads, row by row.
  llvm::DenseMap<mlir::Value, std::vector<double>> roundings;
  llvm::SmallVector<AppendedRow> appended;  ///< row by row
  std::vector<std::vector<double>> results; ///< the graph's, in order
  uint32_t status = 0;                      ///< StatusBits
};

/// Evaluates the graph, on `threads` threads (0: as many as the machine has). Emits an error at the argument
/// where an input is missing or does not fit.
llvm::FailureOr<ReferenceResult> evaluate(GraphOp graph, const ReferenceInputs &inputs, unsigned threads = 0);

} // namespace cfc::attn
