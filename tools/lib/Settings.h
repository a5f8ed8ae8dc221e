//===- Settings.h - What --set changes in a graph -------------------------===//
#pragma once
#include "dialects/attn/Attn.h"
#include <string>
#include <vector>

namespace cfc {

/// Applies NAME=VALUE of --set to a graph. LENGTH.capacity is the most cached tokens of the length argument
/// %LENGTH. Throws Failure (2) for a name that the graph does not have, given twice, or a value out of range.
void applySettings(attn::GraphOp graph, const std::vector<std::string> &settings);

} // namespace cfc
