//===- Cost.h - What a kernel costs, before it is built ---------------------===//
#pragma once
#include "compiler/plan/Machine.h"
#include "compiler/plan/Sizes.h"

namespace cfc {

/// What each limit of a stream alone would let it take, in microseconds.
struct StreamLimits {
  double memory = 0;    ///< the memory's bandwidth
  double sm = 0;        ///< an SM's bandwidth
  double copies = 0;    ///< starting copies
  double ring = 0;      ///< a ring tile is filled again only after it was consumed
  double consumers = 0; ///< what consumers do
  /// The name of the largest.
  llvm::StringRef largest() const;
};

/// A part of a kernel's time, as the slowest CTA sees it. Times are in microseconds.
struct Phase {
  enum Kind { Launch, Norm, Stream, Exchange, Elements, Sum } kind = Elements;
  std::string what;
  double bytes = 0; ///< read over the whole grid
  double start = 0; ///< since the end of the kernel before
  double us = 0;    ///< that the consumers spend in it
  double loadStart =
      0; ///< Stream: when the producer starts to copy for it: it runs ahead, as far as the ring goes
  double hidden = 0;   ///< Stream: how long copies for it came in while consumers did something else
  int64_t repeats = 1; ///< how often it comes, with those beside it, where clusters take several items
  StreamLimits limits; ///< Stream
};
llvm::StringRef stringify(Phase::Kind kind);

/// How a kernel's items are dealt.
struct ItemRounds {
  int64_t items = 1;    ///< that clusters take
  int64_t clusters = 1; ///< that run at a time
  int64_t rounds = 1;   ///< in which they take the items
};

struct LaunchCost {
  llvm::SmallVector<ItemRounds, 1> kernels; ///< of the launch
  double bytes = 0, us = 0;
  std::vector<Phase> phases;
};

/// Where a launch stands in its layer.
struct Place {
  bool alone = true;   ///< it is all of it
  double behindUs = 0; ///< in which the memory streams all that the launch behind it wants
  int64_t freeSms = 0; ///< that the launch before it leaves free, as the planner would plan it
  /// The layer before leaves the memory idle for longer than a ring takes to fill: it waits for itself most
  /// of the time, with one request's one or two KV heads.
  bool behindIdle = false;
  /// That of a kernel which others of the launch are joined to: no launch is behind it.
  Place ofEarlierKernel() const { return {alone, 0, freeSms, behindIdle}; }
  auto operator<=>(const Place &) const = default;
};

/// Microseconds in which the memory streams all that a kernel wants.
double streamedUs(const KernelSizes &sizes, const Machine &machine, CacheLength length);

/// The place of launch `i` of a plan, `sizes` of whose kernels are these.
Place placeOf(llvm::ArrayRef<LaunchRange> launches, size_t i, llvm::ArrayRef<KernelSizes> sizes,
              const Machine &machine, CacheLength length);

/// Whether all CTAs of a launch of one kernel that starts early find room beside those of the launch before.
bool fitsBeside(const KernelSizes &sizes, const KernelChoice &choice, const Machine &machine, Place place);

/// Predicted time of one launch, a kernel and those joined to it, in a chain of like launches, for caches of
/// this length. Phases are listed only if `describe`: plans are weighed by the thousand. The launch before
/// one that is alone is alike. A launch that takes `limit` microseconds or more need not be walked through to
/// its end: `us` is then some time from there on.
LaunchCost predict(llvm::ArrayRef<const KernelSizes *> sizes, llvm::ArrayRef<KernelChoice> choices,
                   const Machine &machine, CacheLength length, bool describe = false, Place place = {},
                   double limit = std::numeric_limits<double>::infinity());

/// What any launch of so many kernels takes.
double leastUs(size_t kernels, const Machine &machine);

/// Whether `heads` are so few that whole heads need clusters of 4 or more to use half of the SMs: chunks of
/// heads may gain much. With more they gain less than what predictions are off by.
bool areFewHeads(int64_t heads, const Machine &machine);

/// Clusters of a kernel that run at a time.
int64_t clustersOf(const KernelShape &shape, const KernelPlan &plan, const Machine &machine);

/// What an operation exchanges over the cluster: `bytes` of each CTA. Unset: nothing.
struct Exchanged {
  Exchange algorithm = Exchange::Unset;
  double bytes = 0;
  bool merges = false;   ///< the bytes of all, else they are collected
  bool scatters = false; ///< and each gets a part of what is merged
  /// Of softmaxes, with nothing else under way: rows of (dim + 2) f32, of which an async store takes 8 bytes,
  /// not 16.
  bool states = false;
};
Exchanged exchangeOf(const KernelSizes &sizes, const KernelPlan &kernel, const OpSizes &op,
                     const OpChoice &plan);

/// Microseconds of an exchange.
double exchangeUs(const Machine &machine, const KernelPlan &plan, const Exchanged &what);

/// Microseconds that the merge of all chunks of `heads` heads of an attention takes, by who `finish` says.
double chunksMergedUs(const Machine &machine, const KernelPlan &kernel, const OpSizes &op, int64_t heads,
                      Exchange finish);

/// Microseconds of an operation's exchange over the cluster; 0 if it has none.
double exchangeUs(const KernelSizes &sizes, const Machine &machine, const KernelPlan &kernel,
                  const OpSizes &op, const OpChoice &plan);

} // namespace cfc
