//===- Cost.cpp - What a kernel costs, before it is built -------------------===//
//
// Decode is bound by memory: the time of a wave of clusters is its bytes over
// what the SMs that it keeps busy can read, or what their copies take to start,
// whichever is more. Exchanges, norms, sums over the grid and the launch come
// on top. The numbers are those of the machine description.
//
//===----------------------------------------------------------------------===//
#include "compiler/plan/Cost.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;
using namespace cfc;
using namespace cfc::attn;

static int64_t elementBytes(Value value) {
  return getElementTypeOrSelf(value.getType()).getIntOrFloatBitWidth() / 8;
}

//===-- Choices that arise --------------------------------------------------===//

bool cfc::hasSplit(const KernelShape &shape, Operation *op) {
  auto linear = dyn_cast<LinearOp>(op);
  return linear && !shape.finishes(linear);
}

bool cfc::hasGather(const KernelShape &shape, Operation *op, Split split) {
  auto linear = dyn_cast<LinearOp>(op);
  return linear && shape.isGathered(linear) && split != Split::Columns;
}

bool cfc::hasReduce(const KernelShape &shape, Operation *op, Split split) {
  auto linear = dyn_cast<LinearOp>(op);
  return isa<AttentionOp>(op) || (linear && shape.isGathered(linear) && split == Split::Columns);
}

bool cfc::hasFinish(const KernelShape &shape, Operation *op) {
  auto linear = dyn_cast<LinearOp>(op);
  return linear && shape.finishes(linear);
}

//===-- Sizes ---------------------------------------------------------------===//

namespace {
/// What one item of a linear streams and gives.
struct LinearSize {
  int64_t rows = 0, columns = 0; ///< of its weights in the item
  bool f32 = false;              ///< its sums travel as f32
  LinearSize(const KernelShape &shape, const KernelPlan &plan, LinearOp op, Split split) {
    bool finishes = shape.finishes(op);
    columns = finishes ? sliceOf(shape, plan, widthOf(op.getX())) : widthOf(op.getX());
    for (Value result : op.getResults())
      rows += finishes ? widthOf(result) : sliceOf(shape, plan, widthOf(result));
    Type first = getElementTypeOrSelf(op.getResultTypes()[0]);
    bool mixed =
        llvm::any_of(op.getResultTypes(), [&](Type type) { return getElementTypeOrSelf(type) != first; });
    f32 = finishes || split == Split::Columns || mixed || !op.getBiases().empty();
  }
  double bytes() const { return 2.0 * rows * columns; }
  int64_t elementBytes(LinearOp op) const { return f32 ? 4 : ::elementBytes(op.getResults()[0]); }
};
} // namespace

static int64_t softmaxBytes(AttentionOp op) {
  return 4 * op.getGroup() * (op.getCache().getType().getDim() + 2);
}

static std::string checkDivides(int64_t rows, int64_t part, Operation *op) {
  if (rows % part == 0)
    return "";
  return llvm::formatv("{0} splits {1} rows over part = {2}, which does not divide them", opLabel(op), rows,
                       part);
}

/// Bulk copies move 16 bytes at a time, async stores 4.
static std::string checkUnit(int64_t bytes, Operation *op, Exchange exchange) {
  int64_t unit = exchange == Exchange::Bulk ? 16 : exchange == Exchange::Async ? 4 : 1;
  if (bytes % unit == 0)
    return "";
  return llvm::formatv("{0} sends parts of {1} bytes by {2}; multiples of {3} are possible", opLabel(op),
                       bytes, stringify(exchange), unit);
}

/// The columns of a linear's weights, and with them its slots, are split over the cluster.
static std::string checkColumns(const KernelShape &shape, int64_t part, LinearOp op, const LinearSize &size,
                                const OpPlan &plan) {
  int64_t blocks = llvm::divideCeil(size.columns, 16), slots = slotsOf(op);
  if (!shape.isGathered(op))
    return opLabel(op) + " cannot be split by columns: nothing in its kernel needs whole results";
  // With another number of slots a CTA's slots would be no subtree of the sum.
  bool aligned = part == 1 || (llvm::isPowerOf2_64(slots) && slots % part == 0);
  if (size.columns % 16 || blocks % slots || !aligned)
    return llvm::formatv("{0} splits {1} columns over part = {2}: its {3} slots must be a power of two, hold "
                         "as many blocks of "
                         "16 columns each, and part must divide {3}",
                         opLabel(op), size.columns, part, slots);
  if (plan.reduce == Exchange::Scatter)
    return checkDivides(size.rows, part, op);
  return checkUnit(size.rows * 4, op, plan.reduce);
}

std::string cfc::checkSplit(const KernelShape &shape, const KernelPlan &kernel, Operation *op,
                            const OpPlan &plan) {
  int64_t part = kernel.part;
  if (isa<AttentionOp>(op) && plan.reduce == Exchange::Scatter)
    return opLabel(op) + " cannot reduce by scatter: that merges sums, and an attention's are softmaxes";
  if (auto attention = dyn_cast<AttentionOp>(op))
    return checkUnit(softmaxBytes(attention), op, plan.reduce);
  auto linear = dyn_cast<LinearOp>(op);
  if (linear && (shape.isGathered(linear) || plan.split == Split::Columns)) {
    LinearSize size(shape, kernel, linear, plan.split);
    if (plan.split == Split::Columns)
      return checkColumns(shape, part, linear, size, plan);
    std::string why = checkDivides(size.rows, part, op);
    return why.empty() ? checkUnit(size.rows / part * size.elementBytes(linear), op, plan.gather) : why;
  }
  for (Value result : op->getResults()) {
    if (!isa<RankedTensorType>(result.getType()) || (!linear && !shape.isStored(result)))
      continue;
    Form form = shape.storedForm(result);
    if (form == Full || shape.isWhole(result))
      continue;
    int64_t rows = form == Finished ? widthOf(result) : sliceOf(shape, kernel, widthOf(result));
    if (std::string why = checkDivides(rows, part, op); !why.empty())
      return why;
  }
  return "";
}

/// Bytes of a ring tile: 16 rows for each warp of `tile_columns` columns, or a segment of 64 cached tokens.
static int64_t slotBytes(const KernelShape &shape, const KernelChoice &choice) {
  int64_t bytes = 0;
  for (auto [op, plan] : llvm::zip_equal(shape.getOps(), choice.ops)) {
    if (auto attention = dyn_cast<AttentionOp>(op))
      bytes = std::max<int64_t>(bytes, 64 * 2 * llvm::alignTo(attention.getCache().getType().getDim(), 64));
    if (auto linear = dyn_cast<LinearOp>(op)) {
      LinearSize size(shape, choice.kernel, linear, plan.split);
      int64_t columns = std::min<int64_t>(choice.kernel.tileColumns, llvm::alignTo(size.columns, 64));
      bytes = std::max<int64_t>(bytes, 16 * choice.kernel.warps * 2 * columns);
    }
  }
  return llvm::alignTo(bytes, 1024);
}

/// Bytes of one copy of a linear's weights: a box of 64 columns and as many rows, up to 64, as divide the
/// rows of each weight and of each CTA; else one row of a tile (compiler/lower/KernelLayout.h).
static double copyBytes(const KernelShape &shape, const KernelPlan &kernel, LinearOp op, const OpPlan &plan) {
  LinearSize size(shape, kernel, op, plan.split);
  for (int64_t box : {64, 32, 16, 8}) {
    bool fits = kernel.part == 1 || plan.split == Split::Columns || size.rows / kernel.part % box == 0;
    if (shape.isGathered(op)) // stacked: the next weight's rows follow
      for (Value result : op->getResults().drop_back())
        fits &= sliceOf(shape, kernel, widthOf(result)) % box == 0;
    if (fits)
      return box * 128;
  }
  return 2.0 * std::min(kernel.tileColumns, size.columns);
}

int64_t cfc::estimateShared(const KernelShape &shape, const KernelChoice &choice) {
  int64_t bytes = 2048, part = choice.kernel.part;
  llvm::DenseSet<Value> fullInputs;
  auto wantFull = [&](Value value) {
    if (fullInputs.insert(value).second)
      bytes += widthOf(value) * elementBytes(value);
  };
  auto exchange = [&](int64_t payload, Exchange algorithm, bool reduces) {
    bytes += payload + (algorithm == Exchange::Bulk ? payload / (reduces ? 1 : part) : 0);
    if (reduces) // what comes from all workers; by scatter only the part that this one merges
      bytes += algorithm == Exchange::Scatter ? payload : part * payload;
  };
  for (auto [op, plan] : llvm::zip_equal(shape.getOps(), choice.ops)) {
    if (auto norm = dyn_cast<RmsNormOp>(op)) {
      wantFull(norm.getX());
      wantFull(norm.getResult());
    } else if (auto linear = dyn_cast<LinearOp>(op)) {
      LinearSize size(shape, choice.kernel, linear, plan.split);
      int64_t payload = size.rows * size.elementBytes(linear);
      bool columns = plan.split == Split::Columns;
      if (!shape.finishes(linear))
        wantFull(linear.getX());
      bytes += columns ? payload : payload / part;
      if (shape.isGathered(linear))
        exchange(payload, columns ? plan.reduce : plan.gather, columns);
      if (size.f32)
        bytes += shape.finishes(linear) ? payload * 3 / 2 / part : payload;
    } else if (auto attention = dyn_cast<AttentionOp>(op)) {
      int64_t state = softmaxBytes(attention);
      bytes += state * (2 * 4 + 5);
      exchange(state, plan.reduce, true);
      bytes += 2 * state;
    } else {
      for (Value result : op->getResults())
        if (isa<RankedTensorType>(result.getType()))
          bytes += sliceOf(shape, choice.kernel, widthOf(result)) * elementBytes(result) * 2;
    }
  }
  int64_t stage = slotBytes(shape, choice);
  return bytes + (stage ? choice.kernel.ringStages * (stage + 16) : 0);
}

//===-- Time ----------------------------------------------------------------===//

namespace {
/// The clusters of one kernel on the machine.
struct Grid {
  const Machine &machine;
  const KernelPlan &plan;
  int64_t items, resident, waves;
  double ring; ///< bytes in flight to a CTA: all stages but the one that is read

  /// Bytes a second that `clusters` at a time read, in tiles of `tileBytes`.
  double bandwidth(int64_t clusters, double tileBytes) const {
    int64_t ctas = clusters * plan.part, sms = std::min(ctas, machine.sms);
    double perSm = double(ctas) / sms * ring / 0.85e-6; // a ring's worth for each latency of the memory
    double memory = std::min(machine.bandwidth, sms * std::min(machine.smBandwidth, perSm));
    double consumers = ctas * tileBytes / (machine.tileNs * 1e-9 + tileBytes / machine.ctaBandwidth);
    // Each waits for the other now and then: the faster of the two is not free.
    return 1 / (1 / std::min(memory, consumers) + 0.25 / std::max(memory, consumers));
  }
  /// Microseconds in which the whole grid streams `bytes`, in `copies` bulk copies and tiles of `tileBytes`.
  double stream(double bytes, double copies, double tileBytes) const {
    double time = 0;
    for (int64_t done = 0; done < items;) {
      int64_t now = std::min(items - done, resident),
              repeats = std::max<int64_t>(1, (items - done) / resident);
      int64_t sms = std::min(now * plan.part, machine.sms);
      double read = bytes / items * now / bandwidth(now, tileBytes) * 1e6;
      double starts = copies / items * now / sms * machine.copyNs * 1e-3;
      // With few stages the copies stop whenever the consumers are late.
      time += repeats * std::max(read, starts) * (1 + 0.3 / plan.ringStages);
      done += repeats * now;
    }
    return time;
  }
  double exchange(Exchange algorithm, double bytes) const {
    double rounds = algorithm == Exchange::Butterfly ? std::max(0, int(llvm::Log2_64(plan.part)) - 1) : 0;
    if (algorithm == Exchange::Scatter) { // twice a part to each peer instead of all
      rounds = 1;
      bytes *= 2.0 / plan.part;
    }
    double remote = (plan.part - 1) * bytes / 37e9 * 1e6; // 21 bytes a cycle from each SM
    return waves * (machine.exchangeUs + rounds * machine.roundUs + remote);
  }
};
} // namespace

/// What a linear adds. Text only if `describe`: plans are enumerated by the thousand.
static Phase linearPhase(const Grid &grid, const KernelShape &shape, LinearOp op, const OpPlan &plan,
                         bool describe) {
  const Machine &machine = grid.machine;
  LinearSize size(shape, grid.plan, op, plan.split);
  bool byColumns = plan.split == Split::Columns;
  Phase phase;
  phase.bytes = size.bytes() * grid.items;
  double tileBytes =
      32.0 * grid.plan.warps *
      std::min(grid.plan.tileColumns, byColumns ? size.columns / grid.plan.part : size.columns);
  phase.us = grid.stream(phase.bytes, phase.bytes / copyBytes(shape, grid.plan, op, plan), tileBytes);
  if (describe)
    phase.what = llvm::formatv("weights of {0} x {1} an item", size.rows, size.columns);
  if (shape.isGathered(op) && grid.plan.part > 1) {
    Exchange exchange = byColumns ? plan.reduce : plan.gather;
    int64_t payload = size.rows * size.elementBytes(op);
    phase.us += grid.exchange(exchange, byColumns ? payload : payload / grid.plan.part);
    if (describe)
      phase.what += ((byColumns ? ", reduced by " : ", gathered by ") + stringify(exchange)).str();
  }
  if (!shape.finishes(op))
    return phase;
  double sums = double(size.rows) * grid.items, reads = 2 * 4 * sums / machine.bandwidth * 1e6;
  phase.us += machine.gridExchangeUs + (plan.finish == Exchange::Atomic ? sums / 77e9 * 1e6 : reads);
  if (describe)
    phase.what += (", summed over the items by " + stringify(plan.finish)).str();
  return phase;
}

static Phase attentionPhase(const Grid &grid, AttentionOp op, const OpPlan &plan, int64_t length,
                            bool describe) {
  int64_t dim = op.getCache().getType().getDim();
  length = std::min(length, op.getLen().getType().getCapacity());
  Phase phase;
  phase.bytes = 4.0 * length * dim * grid.items;
  phase.us =
      grid.stream(phase.bytes, phase.bytes / (64 * 2 * 64), 128.0 * dim); // boxes and tiles of 64 tokens
  if (describe)
    phase.what = llvm::formatv("{0} cached tokens, {1} query heads an item", length, op.getGroup());
  if (grid.plan.part == 1)
    return phase;
  phase.us += grid.exchange(plan.reduce, softmaxBytes(op));
  if (describe)
    phase.what += (", merged by " + stringify(plan.reduce)).str();
  return phase;
}

KernelCost cfc::predict(const KernelShape &shape, const KernelChoice &choice, const Machine &machine,
                        int64_t length, bool describe) {
  KernelCost cost;
  cost.items = itemsOf(shape, choice.kernel);
  cost.resident = std::max<int64_t>(1, machine.resident(choice.kernel.part, choice.kernel.ctasPerSm));
  cost.waves = llvm::divideCeil(cost.items, cost.resident);
  Grid grid{machine,       choice.kernel, cost.items,
            cost.resident, cost.waves,    double((choice.kernel.ringStages - 1) * slotBytes(shape, choice))};
  auto add = [&](Phase phase) {
    cost.us += phase.us;
    cost.bytes += phase.bytes;
    if (describe)
      cost.phases.push_back(std::move(phase));
  };
  add({"launch", 0, machine.launchUs});
  for (auto [op, plan] : llvm::zip_equal(shape.getOps(), choice.ops)) {
    Phase phase{"", 0, 0.3};
    if (auto linear = dyn_cast<LinearOp>(op))
      phase = linearPhase(grid, shape, linear, plan, describe);
    else if (auto attention = dyn_cast<AttentionOp>(op))
      phase = attentionPhase(grid, attention, plan, length, describe);
    else if (isa<RmsNormOp>(op))
      phase.us = machine.normUs;
    if (describe)
      phase.what = opLabel(op) + (phase.what.empty() ? "" : ": " + phase.what);
    add(std::move(phase));
  }
  return cost;
}
