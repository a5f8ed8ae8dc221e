//===- HeaderWriter.h - A C header that binds one graph -------------------===//
#pragma once
#include "runtime/src/Manifest.h"
#include <string>

namespace cfc {

/// A header for C and C++ with a struct of a graph's buffers and a function that binds them through
/// cfc/runtime.h.
std::string headerText(const runtime::Manifest &manifest);

} // namespace cfc
