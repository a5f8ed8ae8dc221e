//===- Pack.h - Weights in the layout "packed" on the host ----------------===//
#pragma once
#include "runtime/src/Manifest.h"
#include "tools/lib/Safetensors.h"
#include <functional>

namespace cfc {

/// The weight in the wanted layout, nothing for the native one; the tensor itself where it is so already.
Tensor inLayout(const Tensor &weight, const std::optional<runtime::PackedLayout> &wanted);

/// What packing costs in memory, a line for each weight of a manifest that can be packed, for "cfc info".
std::string packingText(const runtime::Manifest &manifest);

/// What is to be done with one tensor of a checkpoint.
struct Repacking {
  std::string key;
  std::optional<runtime::PackedLayout> wanted; ///< of the result; nothing: native
};

/// Writes all tensors of a checkpoint to one .safetensors file, those that are named in another layout.
/// `progress` is called before each tensor with its key, and the bytes done and in all. Only a whole file
/// gets the name.
void writeRepacked(const std::string &path, Checkpoint &checkpoint, const std::vector<Repacking> &repackings,
                   const std::function<void(const std::string &key, uint64_t done, uint64_t all)> &progress);

} // namespace cfc
