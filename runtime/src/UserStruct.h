//===- UserStruct.h - Structs that carry their size -------------*- C++ -*-===//
//
// Callers may be newer than this library (longer structs): fields that we do not know must be zero. They may
// be older too (shorter structs): fields that they do not know are zero.
//
//===----------------------------------------------------------------------===//
#ifndef CFC_RUNTIME_SRC_USERSTRUCT_H
#define CFC_RUNTIME_SRC_USERSTRUCT_H

#include "cfc/runtime.h"
#include "runtime/src/Error.h"
#include <algorithm>
#include <cstring>

namespace cfc::runtime {

/// Size of a struct in the first version of the interface, where it has grown since.
template <class T> inline constexpr size_t kFirstSize = sizeof(T);
template <> inline constexpr size_t kFirstSize<cfc_tensor> = offsetof(cfc_tensor, layout);
template <> inline constexpr size_t kFirstSize<cfc_limits> = offsetof(cfc_limits, max_batch);
template <> inline constexpr size_t kFirstSize<cfc_launch_args> = offsetof(cfc_launch_args, length_hint);

/// The caller's real size, which is in its first field. It is never less than in the first version.
template <class T> size_t checkSize(const void *user, const char *what) {
  size_t size;
  std::memcpy(&size, user, sizeof size);
  if (size < kFirstSize<T> || size > 4096)
    fail(CFC_INVALID_ARGUMENT, "{}.size is {}: set it to sizeof({}), which is {}", what, size, what,
         sizeof(T));
  return size;
}

/// Reads the caller's struct.
template <class T> T readStruct(const void *user, const char *what) {
  size_t size = checkSize<T>(user, what);
  const char *bytes = static_cast<const char *>(user);
  if (size > sizeof(T) && std::any_of(bytes + sizeof(T), bytes + size, [](char c) { return c != 0; }))
    fail(CFC_UNSUPPORTED_VERSION, "{} sets fields that this runtime (version {}) does not know", what,
         CFC_RUNTIME_VERSION);
  T result{};
  std::memcpy(&result, user, std::min(size, sizeof(T)));
  return result;
}

/// The same for an optional struct.
template <class T> T readOptionalStruct(const T *user, const char *what) {
  return user ? readStruct<T>(user, what) : T{};
}

/// Writes all fields but the size, as far as the caller knows them.
template <class T> void writeStruct(T *user, T value) {
  value.size = user->size;
  std::memcpy(user, &value, std::min(value.size, sizeof(T)));
}

/// Refuses flags that this version does not know.
inline void checkFlags(uint32_t flags, uint32_t known, const char *what) {
  if (flags & ~known)
    fail(CFC_INVALID_ARGUMENT, "{}.flags has unknown bits: {:#x}", what, flags & ~known);
}

} // namespace cfc::runtime

#endif // CFC_RUNTIME_SRC_USERSTRUCT_H
