//===- KernelExchangeVerifiers.cpp - What exchanges take and give -----------===//
//
// An exchange changes one state of a value. Where the value is in another
// state, the error names the exchange that takes it.
//
//===----------------------------------------------------------------------===//
#include "dialects/kernel/KernelChecks.h"

using namespace mlir;
using namespace cfc::kernel;

/// "; it is a partial sum: `reduce` or `reduce_scatter` takes that".
static std::string takers(std::optional<StateAttr> state) {
  if (!state)
    return "; it is replicated: leave the exchange out";
  return "; it is " + describe(*state) +
         (state->isPartial() ? ": `reduce` or `reduce_scatter` takes that"
                             : ": `gather` or `all_to_all` takes that");
}

/// Of a value split over the exchange's axis: nothing else stands in the way of moving its parts.
static LogicalResult checkParts(ExchangeOp op, StateAttr state) {
  ArrayRef<StateAttr> states = op.getTile().getType().getStates();
  bool gathers = op.getKind() == ExchangeKind::Gather;
  for (StateAttr s : states) {
    if (s.isPartial())
      return op.emitOpError(gathers ? "gathers a value that is " : "moves parts of a value that is ")
             << describe(s) << " over `" << s.getAxis().getValue()
             << "`: insert `kernel.exchange reduce … over " << s.getAxis().getValue() << "` before it";
    if (!gathers && s != state)
      return op.emitOpError("moves parts of a value that is split over `")
             << s.getAxis().getValue() << "` too: insert `kernel.exchange gather … over "
             << s.getAxis().getValue() << "` before it";
  }
  if (gathers && states.back() != state)
    return op.emitOpError("gathers the innermost split first: `")
           << states.back().getAxis().getValue() << "`";
  if (!gathers && op.getTile().getType().getShape().size() != 2)
    return op.emitOpError("turns the split of a matrix, tile<rows x columns x …>, not of ")
           << op.getTile().getType();
  return success();
}

/// The states that the exchange's result has.
static SmallVector<StateAttr> resultStates(ExchangeOp op, StateAttr state) {
  ArrayRef<StateAttr> from = op.getTile().getType().getStates();
  SmallVector<StateAttr> to = withoutAxis(from, op.getAxis());
  auto split = [&](int64_t dim) {
    return StateAttr::get(op.getContext(), state.getAxis(), StateKind::Split, dim);
  };
  if (op.getKind() == ExchangeKind::ReduceScatter)
    to.push_back(split(0));
  if (op.getKind() == ExchangeKind::AllToAll)
    to.push_back(split(1 - state.getDim()));
  return to;
}

/// Summands are merged element by element of what a worker holds: it must be contiguous, and whole softmaxes.
static LogicalResult checkSummands(ExchangeOp op, StateAttr state) {
  TileType from = op.getTile().getType();
  for (StateAttr s : from.getStates()) {
    if (!s.isPartial() && s.getDim() != 0)
      return op.emitOpError("reduces a value that is ")
             << describe(s) << " over `" << s.getAxis().getValue() << "`; only dimension 0 may be split";
    if (s.isPartial() && s.getKind() != state.getKind())
      return op.emitOpError("reduces ")
             << describe(state) << " that is " << describe(s) << " over `" << s.getAxis().getValue() << "`";
  }
  return state.getKind() == StateKind::Softmax ? checkSoftmax(op, from) : success();
}

/// Bytes of a contiguous run that one worker sends to another.
static int64_t runBytes(ExchangeOp op, FuncOp func, StateAttr state) {
  TileType from = op.getTile().getType();
  int64_t workers = func.axis(op.getAxis()).getSize(), bytes = from.getElementBytes();
  for (auto [dim, extent] : llvm::enumerate(from.getShape()))
    if (op.getKind() != ExchangeKind::AllToAll || dim == 1) // one row at a time
      bytes *= extent;
  for (StateAttr s : from.getStates())
    if (!s.isPartial() && op.getKind() != ExchangeKind::AllToAll)
      bytes /= func.axis(s.getAxis().getValue()).getSize();
  return op.sendsParts() ? bytes / workers : bytes;
}

/// Whether what a worker holds can be cut into a part for each worker of the axis.
static bool splitsEvenly(ExchangeOp op, FuncOp func) {
  int64_t elements = op.getTile().getType().getNumElements();
  for (StateAttr s : op.getTile().getType().getStates())
    if (!s.isPartial())
      elements /= func.axis(s.getAxis().getValue()).getSize();
  return elements % func.axis(op.getAxis()).getSize() == 0;
}

static LogicalResult checkAlgorithm(ExchangeOp op, FuncOp func, StateAttr state) {
  int64_t bytes = runBytes(op, func, state);
  switch (op.getAlgorithm()) {
  case Algorithm::Bulk:
    if (bytes % 16)
      return op.emitOpError("sends parts of ") << bytes << " bytes; bulk copies need multiples of 16";
    return success();
  case Algorithm::Async:
    if (bytes % 4)
      return op.emitOpError("sends parts of ") << bytes << " bytes; async stores need multiples of 4";
    return success();
  case Algorithm::Butterfly:
    if (op.getKind() == ExchangeKind::AllToAll)
      return op.emitOpError("goes by push, bulk or async: a butterfly would send every part log2 N times");
    return success();
  case Algorithm::Scatter: {
    if (op.getKind() != ExchangeKind::Reduce)
      return op.emitOpError("goes by push, butterfly, bulk or async: scatter is a way to reduce");
    TileType from = op.getTile().getType();
    if (state.getKind() == StateKind::Softmax || !from.getElementType().isF32())
      return op.emitOpError("merges sums and maxima of f32 by scatter, not ") << from;
    if (!splitsEvenly(op, func))
      return op.emitOpError("by scatter merges a part for each of the ")
             << func.axis(op.getAxis()).getSize() << " workers of `" << op.getAxis()
             << "`, which does not divide " << from;
    return success();
  }
  default:
    return success();
  }
}

LogicalResult ExchangeOp::verify() {
  TileType from = getTile().getType(), to = getResult().getType();
  auto func = (*this)->getParentOfType<FuncOp>();
  AxisAttr axis = func ? func.axis(getAxis()) : AxisAttr();
  if (!axis || axis.getLevel() != Level::Cta)
    return emitOpError("goes over a cta axis of its kernel; '")
           << getAxis() << "' is none (the grid: kernel.finish)";
  if (getAlgorithm() == Algorithm::Ordered || getAlgorithm() == Algorithm::Atomic)
    return emitOpError("goes by push, butterfly, bulk, async or scatter over a cta axis");
  if ((*this)->getParentOfType<FinishOp>())
    return emitOpError("cannot stand in kernel.finish: CTAs of a cluster finish at different times");
  std::optional<StateAttr> state = stateOver(from.getStates(), getAxis());
  if (!state || state->isPartial() != merges())
    return emitOpError(getKind() == ExchangeKind::Gather     ? "gathers a split value over `"
                       : getKind() == ExchangeKind::AllToAll ? "moves parts of a split value over `"
                                                             : "reduces a partial value over `")
           << getAxis() << "`" << takers(state);
  if (failed(checkTile(*this, from)))
    return failure();
  if (merges() ? failed(checkSummands(*this, *state)) : failed(checkParts(*this, *state)))
    return failure();
  if (getKind() == ExchangeKind::Gather && state->getDim() != 0)
    return emitOpError("gathers dimension 0: insert `kernel.exchange all_to_all … over ")
           << getAxis() << "` before it";
  auto want =
      TileType::get(getContext(), from.getShape(), from.getElementType(), resultStates(*this, *state));
  if (to != want)
    return emitOpError("gives ") << want << ", not " << to;
  if (failed(checkTile(*this, to)))
    return failure();
  return checkAlgorithm(*this, func, *state);
}

//===-- Over the grid ---------------------------------------------------------===//

/// Softmaxes that each item leaves: of shares of a head one for each group of its segments.
static int64_t statesOfItem(FinishOp op) {
  Value work = op.getShares() ? op->getParentOfType<ForItemsOp>().getWork() : Value();
  return work ? work.getDefiningOp<WorkListOp>().getGroups() : 1;
}

int64_t FinishOp::partialBytes() {
  int64_t copies =
      getAlgorithm() == Algorithm::Atomic ? 1 : itemsOf((*this)->getParentOfType<ForItemsOp>().getItem());
  copies *= statesOfItem(*this);
  return copies * getTile().getType().getNumElements() * getTile().getType().getElementBytes();
}

int64_t FinishOp::runLength() {
  if (getShares())
    return 1; // of items: their shares are not counted
  return getEach() ? getEach() : itemsOf((*this)->getParentOfType<ForItemsOp>().getItem());
}

int64_t FinishOp::numCounters(int64_t ctas) {
  return ctas * getPieces() * (itemsOf((*this)->getParentOfType<ForItemsOp>().getItem()) / runLength());
}

/// Softmaxes of runs of items, which each CTA has whole: they are merged by code without a loop.
static LogicalResult checkFinishedSoftmax(FinishOp op) {
  constexpr int64_t kMostMerged = 16;
  if (op.getAlgorithm() != Algorithm::Ordered)
    return op.emitOpError("merges a partial softmax by ordered");
  if (!op.getShares() && (op.getEach() < 1 || op.getEach() > kMostMerged))
    return op.emitOpError("merges partial softmaxes of each 1 to ") << kMostMerged << " items: give `each`";
  for (StateAttr s : withoutAxis(op.getTile().getType().getStates(), op.getAxis()))
    return needsReplicated(op, s, "the softmax");
  return checkSoftmax(op, op.getTile().getType());
}

/// A partial sum or max, split over cta axes at most; or a partial softmax.
static LogicalResult checkFinishedSum(FinishOp op) {
  TileType tile = op.getTile().getType();
  std::optional<StateAttr> state = stateOver(tile.getStates(), op.getAxis());
  if (state && state->getKind() == StateKind::Softmax)
    return checkFinishedSoftmax(op);
  if (!state || !state->isPartial())
    return op.emitOpError("reduces a partial sum or max over `")
           << op.getAxis() << "`; it is "
           << (state ? describe(*state) : "whole in every item: `gather` collects that");
  if (state->getKind() == StateKind::Max && op.getAlgorithm() == Algorithm::Atomic)
    return op.emitOpError("takes a max by ordered: atomic adds");
  if (!tile.getElementType().isF32())
    return op.emitOpError("reduces f32, not ") << tile.getElementType();
  for (StateAttr s : withoutAxis(tile.getStates(), op.getAxis()))
    if (s.isPartial() || s.getDim() != 0)
      return op.emitOpError("finishes a sum that is replicated or split(0) over `")
             << s.getAxis().getValue() << "`; it is " << describe(s)
             << ": insert `kernel.exchange reduce … over " << s.getAxis().getValue() << "`";
  return success();
}

/// What each item has whole.
static LogicalResult checkCollected(FinishOp op) {
  TileType tile = op.getTile().getType();
  if (op.getAlgorithm() != Algorithm::Ordered)
    return op.emitOpError("gathers by ordered");
  if (stateOver(tile.getStates(), op.getAxis()))
    return op.emitOpError("gathers what each item has whole; it is a summand over `")
           << op.getAxis() << "`: leave out `gather`";
  if (tile.getNumElements() > kMaxIndexed / 16 / itemsOf(op->getParentOfType<ForItemsOp>().getItem()))
    return op.emitOpError("gathers more than ") << kMaxIndexed / 16 << " elements";
  return needsReplicated(op, op.getTile(), "what it gathers");
}

LogicalResult FinishOp::verify() {
  auto func = (*this)->getParentOfType<FuncOp>();
  AxisAttr axis = func ? func.axis(getAxis()) : AxisAttr();
  TileType tile = getTile().getType();
  if (!axis || axis.getLevel() != Level::Grid)
    return emitOpError("goes over a grid axis of its kernel; '") << getAxis() << "' is none";
  if (getAlgorithm() != Algorithm::Ordered && getAlgorithm() != Algorithm::Atomic)
    return emitOpError("goes by ordered or atomic over a grid axis");
  auto items = (*this)->getParentOfType<ForItemsOp>();
  if (!items || items.getAxis() != getAxis())
    return emitOpError("stands in the kernel.for_items over its axis");
  if (failed(checkTile(*this, tile)) ||
      (getGather() ? failed(checkCollected(*this)) : failed(checkFinishedSum(*this))))
    return failure();
  bool softmax = stateOver(tile.getStates(), getAxis()) &&
                 stateOver(tile.getStates(), getAxis())->getKind() == StateKind::Softmax;
  if (bool(items.getWork()) != getShares() || (getShares() && (getEach() || !softmax)))
    return emitOpError(getShares()
                           ? "merges the softmaxes of the shares of a kernel.work_list, and not of `each`"
                           : "merges the `shares` of the items of a kernel.work_list");
  if (getShares() && (!getTile().getDefiningOp<AttendOp>() || !getTile().hasOneUse()))
    return emitOpError("merges shares of what a kernel.attend gives, and nothing else uses");
  if (int64_t n = getEach(); n && (n < 0 || axis.getSize() % n || getGather() || getPieces() != 1 ||
                                   getFinishers() || getAlgorithm() != Algorithm::Ordered))
    return emitOpError("reduces each ") << n << " of " << axis.getSize()
                                        << " items; what divides them is possible, by ordered, without "
                                           "`gather` and `pieces`";
  if (int64_t n = getPieces(); n != 1) {
    bool matmul = getTile().getDefiningOp<MatmulOp>() && getTile().hasOneUse() && !getGather();
    if (!matmul || getAlgorithm() != Algorithm::Ordered || !llvm::isPowerOf2_64(n) || n > 16)
      return emitOpError("has ") << n << " pieces; 2, 4, 8 or 16 are possible, of a matmul's rows by ordered";
  }
  if (int64_t n = getFinishers(); n != 0) {
    bool matmul = getTile().getDefiningOp<MatmulOp>() && getTile().hasOneUse() && !getGather();
    if (!matmul || getAlgorithm() != Algorithm::Ordered || getPieces() != 1)
      return emitOpError("has finishers: they take a matmul's rows by ordered, in one piece");
    int64_t most = std::min<int64_t>(32, axis.getSize());
    if (n < 0 || n > most || axis.getSize() > 0xffff)
      return emitOpError("has ") << n << " finishers of the sum over " << axis.getSize() << " items; up to "
                                 << most << " are possible, of less than 2^16 items";
  }
  SmallVector<int64_t> shape(tile.getShape());
  if (getGather())
    shape = {tile.getNumElements() * axis.getSize()};
  auto want =
      TileType::get(getContext(), shape, tile.getElementType(), withoutAxis(tile.getStates(), getAxis()));
  if (getBody().getNumArguments() != 1 || getBody().getArgument(0).getType() != want)
    return emitOpError("has one block argument, ") << want;
  return success();
}
