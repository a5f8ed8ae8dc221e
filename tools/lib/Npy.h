//===- Npy.h - numpy's file format ----------------------------------------===//
#pragma once
#include "tools/lib/Tensor.h"
#include <string>

namespace cfc {

/// Reads an .npy file of format 1 to 3: little endian, C order, at least one dimension. bfloat16, which numpy
/// does not know, is what ml_dtypes writes for it (`V2`). Throws Failure (2) for everything else, naming the
/// file and the field.
Tensor readNpy(const std::string &path);

/// The content of a format 1 file. bfloat16 is written as float32, which every numpy can read and which is
/// exact.
std::string npyContent(const Tensor &tensor);

} // namespace cfc
