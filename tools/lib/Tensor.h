//===- Tensor.h - Tensors in host memory ----------------------------------===//
#pragma once
#include "runtime/src/Packing.h"
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cfc {

enum class ElementKind : uint8_t;

/// The element types that files, graphs and bundles share.
enum class DType { f16, bf16, f32, f64, i32, i64, f8E4M3FN };

size_t sizeOf(DType type);
/// The kind of element of a type other than f64.
ElementKind kindOf(DType type);
/// "f16", "bf16", … as the IR and the manifest spell them.
std::string_view nameOf(DType type);
std::optional<DType> parseDType(std::string_view name);
inline bool isFloat(DType type) { return type != DType::i32 && type != DType::i64; }

/// A dense tensor in row-major order. The bytes may lie in a mapped file, which `owner` keeps alive; copies
/// share them.
class Tensor {
public:
  Tensor() = default;
  /// Uninitialised elements of its own. The shape must not overflow (checkedElements).
  Tensor(DType type, std::vector<int64_t> shape);
  /// Bytes that belong to `owner`.
  Tensor(DType type, std::vector<int64_t> shape, const std::byte *data, std::shared_ptr<const void> owner);

  DType type = DType::f32;
  std::vector<int64_t> shape;
  /// Of a weight in layout "packed". Its `shape` is then that of its blocks (packedShape), and elements are
  /// counted as they lie.
  std::optional<runtime::PackedLayout> packed;

  int64_t elements() const;
  size_t bytes() const { return size_t(elements()) * sizeOf(type); }
  const std::byte *data() const { return begin; }
  /// Only for tensors made by the first constructor.
  std::byte *mutableData() { return const_cast<std::byte *>(begin); }
  template <typename T> T *as() { return reinterpret_cast<T *>(mutableData()); }
  template <typename T> const T *as() const { return reinterpret_cast<const T *>(begin); }

  /// Element `i` in row-major order, exact for every float type and for integers below 2^53.
  double get(int64_t i) const;
  /// Rounds to the tensor's type, to nearest even.
  void set(int64_t i, double value);

private:
  const std::byte *begin = nullptr;
  std::shared_ptr<const void> owner;
};

/// The shape that a packed weight has as a tensor of its own: [rows of blocks, blocks a row, 64, 64].
std::vector<int64_t> packedShape(const runtime::PackedLayout &layout);
/// The shape that the graph knows, whether the tensor is packed or not.
std::vector<int64_t> nativeShape(const Tensor &tensor);

/// "2x4096".
std::string shapeText(const std::vector<int64_t> &shape);
/// "tensor<2x4096xf16>".
std::string typeText(DType type, const std::vector<int64_t> &shape);

/// The product of the dimensions, or nothing where one is negative or the byte size exceeds 2^62.
std::optional<int64_t> checkedElements(const std::vector<int64_t> &shape, size_t elementBytes);

} // namespace cfc
