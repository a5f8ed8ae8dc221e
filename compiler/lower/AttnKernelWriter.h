//===- AttnKernelWriter.h - Writes the kernels of a graph -------------------===//
//
// Private to attn-to-kernel.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "compiler/lower/AttnToKernel.h"
#include "compiler/plan/Fusion.h"
#include "dialects/kernel/Kernel.h"
#include "mlir/IR/Builders.h"
#include <functional>

namespace cfc {

/// Where values lie in global memory, and the workspace: zeroed counters and accumulators first, then partial
/// sums and values that travel between kernels.
class MemoryMap {
public:
  MemoryMap(attn::GraphOp graph, llvm::ArrayRef<KernelShape> shapes, const Plan &plan);
  MemoryMap(const MemoryMap &) = delete;

  /// The bound tensor that holds `value`, or null: then it lies in the workspace.
  const TensorInfo *tensorOf(mlir::Value value) const { return bound.lookup(value); }
  /// Byte offset in the workspace of a value that travels between kernels.
  int64_t offsetOf(mlir::Value value) const { return offsets.lookup(value); }
  /// Byte offsets for the sum over the items of a linear's result, or an attention's over the chunks of
  /// heads.
  struct Finish {
    int64_t counters = -1, partials = -1;
  };
  Finish finishOf(mlir::Value result) const { return finishes.lookup(result); }
  /// Byte offset of the counter of the barrier before a joined kernel.
  int64_t syncOf(size_t kernel) const { return syncs.lookup(kernel); }
  int64_t getBytes() const { return bytes; }
  int64_t getZeroBytes() const { return zeroBytes; }

private:
  int64_t allocate(int64_t size, int64_t alignment);
  void placeZeroed(const KernelShape &shape, const Plan &plan, const KernelPlan &kernel);
  void placeRest(const KernelShape &shape, const Plan &plan, const KernelPlan &kernel);

  std::vector<TensorInfo> tensors;
  llvm::DenseMap<mlir::Value, const TensorInfo *> bound;
  llvm::DenseMap<mlir::Value, int64_t> offsets;
  llvm::DenseMap<mlir::Value, Finish> finishes;
  llvm::DenseMap<size_t, int64_t> syncs;
  int64_t bytes = 0, zeroBytes = 0;
};

/// What a CTA has of a full value of several tokens: all, some tokens' rows, or all tokens' columns.
enum class Spread { Whole, Rows, Columns };

/// The form in which an operation wants an operand, and where.
struct Want {
  Form form;
  bool whole = true;       ///< of a slice: in every CTA; else split over the cluster
  mlir::Value origin = {}; ///< of a finished value: in whose finish
  Spread spread = Spread::Whole;
  bool operator<(const Want &other) const {
    auto key = [](const Want &w) {
      return std::make_tuple(w.form, w.whole, w.origin.getAsOpaquePointer(), w.spread);
    };
    return key(*this) < key(other);
  }
};

/// A function and its arguments, by value (and whether it is flat).
struct WrittenFunction {
  kernel::FuncOp func;
  llvm::DenseMap<std::pair<mlir::Value, unsigned>, mlir::Value> arguments;
  llvm::SmallVector<mlir::Attribute> argAttrs;
};

class KernelWriter {
public:
  /// Writes into `function`: as its end where it has one already, that of the kernel to which this is joined.
  KernelWriter(attn::GraphOp graph, size_t index, const KernelShape &shape, const Plan &plan,
               const MemoryMap &memory, WrittenFunction &function);
  /// Writes the kernel at `builder`.
  void write(mlir::OpBuilder &builder);

private:
  void open(mlir::OpBuilder &builder);
  void join();
  void addAxis(llvm::StringRef name, int64_t size, kernel::Level level);
  void addLoop();
  void writeGroup(int64_t group);
  mlir::Value listWork();
  void close();
  mlir::OpBuilder &builderOf(const Want &want);
  mlir::Value itemOf(const Want &want) const { return want.form == Slice ? item : mlir::Value(); }

  kernel::StateAttr state(llvm::StringRef axis, kernel::StateKind kind);
  kernel::TileType tile(llvm::ArrayRef<int64_t> shape, mlir::Type element,
                        llvm::ArrayRef<kernel::StateAttr> states = {});
  /// Type of a value's tile in a form, as `element`.
  kernel::TileType tileOf(mlir::Value value, const Want &want, mlir::Type element);
  int64_t slice(int64_t width) const;

  /// The kernel's argument for a value; activations are flat.
  mlir::Value memory(mlir::Value value, bool flat = false);
  mlir::Value memoryOrNull(mlir::Value value) { return value ? memory(value) : mlir::Value(); }
  mlir::Value addArgument(mlir::Type type, llvm::SmallVector<mlir::NamedAttribute> attrs);
  void store(mlir::Value value);

  /// A value in a form, written where it is first wanted.
  mlir::Value get(mlir::Value value, const Want &want);
  mlir::Value compute(mlir::Value value, const Want &want);
  mlir::Value read(mlir::Value value, const Want &want);
  void readAhead(mlir::Value value);
  void put(mlir::Value value, const Want &want, mlir::Value made);
  mlir::Value castTo(mlir::OpBuilder &builder, mlir::Value tile, mlir::Type element);
  mlir::Value rowOfCache(attn::KvAppendOp append, mlir::Value value, mlir::Value scale);

  void writeOp(mlir::Operation *op);
  void writeNorm(attn::RmsNormOp op);
  void writeLayerNorm(attn::LayerNormOp op);
  void writeBias(attn::AttentionOp op, mlir::Region &region);
  /// Of a norm of several tokens: the scales of all, or of those whose rows this CTA has.
  mlir::Value scaleOf(attn::RmsNormOp op, Spread spread);
  mlir::Value normTokens(attn::RmsNormOp op, const Want &want);
  bool isFlat(mlir::Value value) const;
  Spread spreadOf(attn::LinearOp op) const;
  Spread spreadOfStores() const;
  void writeLinear(attn::LinearOp op);
  mlir::Value sumsOf(attn::LinearOp op, mlir::ValueRange weights, mlir::ValueRange results);
  void writeGathered(attn::LinearOp op);
  void extractResults(attn::LinearOp op, mlir::Value all, const Want &want);
  void writeFinishing(attn::LinearOp op);
  void writePanels(attn::LinearOp op);
  llvm::SmallVector<mlir::Value> memories(mlir::ValueRange values, bool flat = false);
  mlir::Value project(attn::LinearOp op, mlir::ValueRange weights, mlir::Type element, bool byRows);
  mlir::Value roundResult(attn::LinearOp op, unsigned index, mlir::Value sum, const Want &want);
  void writeAppend(attn::KvAppendOp op);
  void writeAttention(attn::AttentionOp op);
  int64_t boundOf(attn::AttentionOp op) const;
  mlir::Value mergeChunks(attn::AttentionOp op, mlir::Value state);
  mlir::Value attendNew(attn::AttentionOp op, mlir::Value softmax);
  kernel::NormalizeOp normalize(mlir::OpBuilder &builder, attn::AttentionOp op, mlir::Value softmax,
                                mlir::Value ofItem);
  /// Whether a value is in memory as the softmaxes of which whoever reads it makes it.
  bool isLeft(mlir::Value value) const;
  mlir::Value statesOf(attn::AttentionOp op);
  void leaveStates(attn::AttentionOp op, mlir::Value softmax);
  mlir::Value readStates(attn::AttentionOp op);
  mlir::Value scatter(mlir::Location loc, mlir::Value tile, Exchange algorithm);
  mlir::Value exchange(mlir::Location loc, kernel::ExchangeKind kind, mlir::Value tile, Exchange algorithm);

  mlir::MLIRContext *context;
  attn::GraphOp graph;
  size_t index;
  const KernelShape &shape;
  const Plan &plan;
  const KernelPlan &kernelPlan;
  const MemoryMap &map;
  WrittenFunction &function;
  std::string axis; ///< the grid axis of the items

  int64_t firstToken = 0, tokens = 1; ///< of the group at hand, where linears multiply with several
  mlir::Value item;                   ///< whose slices the body has: of a chunk, its head
  mlir::Value request;                ///< of the item; null where there is one
  mlir::Value chunk; ///< the chunk of the head that the body attends to; null where items are whole heads
  /// What is stored once a head: by the last of its chunks, behind the attention.
  std::vector<std::function<void()>> late;
  mlir::OpBuilder prologue, body;
  std::map<void *, mlir::OpBuilder> finishes; ///< by the result that is summed
  std::map<std::pair<void *, Want>, mlir::Value> values;
  std::map<std::pair<mlir::Operation *, Spread>, mlir::Value> scales;
  llvm::DenseMap<std::pair<mlir::Value, mlir::Type>, mlir::Value> casts;
  llvm::DenseMap<std::pair<mlir::Value, mlir::Value>, mlir::Value> quantized; ///< by tile and scale
};

} // namespace cfc
