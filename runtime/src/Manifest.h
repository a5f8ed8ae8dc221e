//===- Manifest.h - What a bundle says about itself -------------*- C++ -*-===//
//
// The manifest of docs/design.md as structs, read from JSON with every check that needs no device, and
// written back. The compiler fills in a Manifest and calls toJson; the runtime calls parseManifest.
//
//===----------------------------------------------------------------------===//
#ifndef CFC_RUNTIME_SRC_MANIFEST_H
#define CFC_RUNTIME_SRC_MANIFEST_H

#include "dialects/attn/RopeTable.h"
#include "runtime/src/Error.h"
#include "runtime/src/Packing.h"
#include <cstdint>
#include <optional>

namespace cfc::runtime {

/// The newest schema that this runtime reads. 2: kernels may be cooperative; 3: caches may serve several
/// requests, have pages, or another dim of V. An older runtime would not know; bundles without any of it are
/// written as 1.
inline constexpr int64_t kSchema = 3;

enum class TensorKind { Tensor, KvCache };
enum class Role { Input, Weight, InOut, Output };
enum class Layout { Native, Packed };
enum class Field {
  Pointer,
  KPointer,
  VPointer,
  StrideHead,
  StrideToken,
  Capacity,
  StrideBlock,
  Blocks,
  VStrideHead,
  VStrideToken,
  VStrideBlock
};

struct TensorSpec {
  std::string name;
  TensorKind kind = TensorKind::Tensor;
  Role role = Role::Input;
  cfc_dtype dtype = CFC_F16;
  std::vector<int64_t> shape; ///< of a tensor
  int64_t heads = 0, dim = 0; ///< of a cache
  int64_t vDim = 0;           ///< of a cache: of V; 0: as of K
  int64_t requests = 1;       ///< of a cache: that it serves
  int64_t page = 0;           ///< of a cache: tokens of a page; 0: no pages
  int64_t pages = 0;          ///< of a cache with pages: of a request at most; 0: not known
  /// Of a cache: the tensors that say which rows are in use. "": there is none, or several that differ.
  std::string lengths, slots, blockTable;
  std::optional<int64_t> bound; ///< of lengths: the largest value (tokens)
  uint64_t align = 1;           ///< bytes
  Layout layout = Layout::Native;
  int64_t columnGroup = 0; ///< of a packed weight: PackedLayout::columnGroup
  /// Of an input [positions, dim] that follows from the graph alone: cfc_generate fills it.
  std::optional<RopeTable> rope;

  /// How a packed weight of this shape lies in memory.
  PackedLayout packed() const { return {shape.at(0), shape.at(1), columnGroup}; }
  /// Of a cache: whether it is made of blocks (requests' rows, or pages), and V's dim.
  bool hasBlocks() const { return requests > 1 || page > 0; }
  int64_t dimOfV() const { return vDim ? vDim : dim; }
};

struct TableEntry {
  size_t tensor = 0; ///< index into GraphSpec::tensors
  Field field = Field::Pointer;
};

/// A tensor map behind the table's entries. Dimensions are innermost first: (columns, rows) of a tensor of
/// rank 2, (dim, token, head) of a cache's K or V, and (dim, token, head, block) where it has blocks.
struct MapSpec {
  size_t tensor = 0;            ///< index into GraphSpec::tensors
  Field field = Field::Pointer; ///< Pointer, KPointer or VPointer
  std::vector<int64_t> box;     ///< elements that one copy takes of each dimension, 1 to 256
  int64_t swizzle = 0;          ///< 0, or 128: the rows of a box are 128 bytes
};

struct WorkspaceSpec {
  uint64_t bytes = 0, zeroBytes = 0, align = 1;
};

struct KernelSpec {
  std::string name;
  uint32_t cubin = 0;       ///< section cubin.N
  uint32_t threads = 1;     ///< a CTA
  uint32_t cluster = 1;     ///< CTAs a cluster
  uint32_t clusters = 1;    ///< clusters that have work
  uint32_t sharedBytes = 0; ///< dynamic shared memory a CTA
  uint32_t ctasPerSm = 1;
  bool nonPortable = false; ///< cluster size above 8
  bool pdl = false;         ///< may start while the kernel before it on the stream runs: it waits by itself
  bool cooperative = false; ///< its CTAs wait for each other: all run at a time, or none
};

/// For which launches a variant is meant. That is about time alone: every variant is right for all lengths
/// and batches of the graph.
struct VariantCondition {
  std::optional<int64_t> maxLength; ///< tokens: of the longest length
  std::optional<int64_t> maxBatch;  ///< requests that are not idle
  int64_t minClusters = 0;          ///< of each kernel that many can run at a time

  bool always() const { return !maxLength && !maxBatch && minClusters == 0; }
  bool operator==(const VariantCondition &) const = default;
};

struct VariantSpec {
  std::string planHash;
  std::vector<KernelSpec> kernels; ///< in launch order
  VariantCondition when;
  std::string simtDigest; ///< where there are several variants: of this one's simt module
};

struct GraphSpec {
  std::string name;
  int64_t batch = 1; ///< requests that it serves; with fewer the others are idle
  std::vector<TensorSpec> tensors;
  std::vector<TableEntry> table;
  std::vector<MapSpec> maps;
  WorkspaceSpec workspace;
  /// All have the same tensors, table and workspace. A launch takes the first whose condition holds; one at
  /// least has none.
  std::vector<VariantSpec> variants;
};

struct Manifest {
  std::string compiler, target, ptx, ptxas;
  int32_t driverMin = 0; ///< as cuDriverGetVersion counts: 12000 is CUDA 12.0
  std::string simtDigest;
  std::vector<GraphSpec> graphs;
};

/// The instruction set `sm_90a` as numbers. `exact`: runs on that compute capability only.
struct Target {
  int major = 0, minor = 0;
  bool exact = false;
};

/// Reads `sm_NN` or `sm_NNa`; nothing for any other text.
std::optional<Target> parseTarget(std::string_view text);

/// Reads and checks a manifest. Throws Error: CFC_UNSUPPORTED_VERSION for a newer schema, else
/// CFC_INVALID_BUNDLE.
Manifest parseManifest(std::string_view json);

/// The manifest as JSON, in the order of docs/design.md.
std::string toJson(const Manifest &manifest);

const char *name(cfc_dtype dtype);
const char *name(Role role);
const char *name(Layout layout);
const char *name(Field field);
std::optional<cfc_dtype> dtypeFromName(std::string_view text);

/// Bytes of one element.
uint64_t elementBytes(cfc_dtype dtype);
/// Bytes of a tensor (of a packed one with its padding), or of one token of one head of a cache's K.
/// parseManifest makes sure that they fit.
uint64_t rowOrTensorBytes(const TensorSpec &tensor);

/// Bytes of one token of one head of a cache's V.
uint64_t rowBytesOfV(const TensorSpec &cache);

/// The fields of a tensor in table order.
std::vector<Field> tableFields(const TensorSpec &tensor);

} // namespace cfc::runtime

#endif // CFC_RUNTIME_SRC_MANIFEST_H
