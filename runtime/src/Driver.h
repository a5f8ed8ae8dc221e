//===- Driver.h - libcuda, opened at run time -------------------*- C++ -*-===//
//
// A table with the functions that cfc uses of the CUDA driver, and the few types and constants that they
// need, so that neither building nor loading the runtime needs CUDA. Do not include cuda.h next to this
// header.
//
// Tests put a table of their own in place of libcuda's (setDriverForTests): it may record calls, or launch
// into the emulator. Nothing else in the runtime knows which one it talks to.
//
//===----------------------------------------------------------------------===//
#ifndef CFC_RUNTIME_SRC_DRIVER_H
#define CFC_RUNTIME_SRC_DRIVER_H

#include "runtime/src/Error.h"
#include <cstdint>

namespace cfc::runtime {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st *;
using CUmodule = struct CUmod_st *;
using CUfunction = struct CUfunc_st *;
using CUevent = struct CUevent_st *;
using CUgraph = struct CUgraph_st *;
using CUgraphExec = struct CUgraphExec_st *;

enum : CUresult {
  kCudaSuccess = 0,
  kCudaErrorInvalidValue = 1,
  kCudaErrorOutOfMemory = 2,
  kCudaErrorDeinitialized = 4,
  kCudaErrorNoDevice = 100,
  kCudaErrorInvalidImage = 200,
  kCudaErrorInvalidContext = 201,
  kCudaErrorNoBinaryForGpu = 209,
  kCudaErrorJitCompilerNotFound = 221,
  kCudaErrorUnsupportedPtxVersion = 222,
  kCudaErrorJitCompilationDisabled = 223,
  kCudaErrorNotFound = 500,
  kCudaErrorNotReady = 600,
};

/// CUdevice_attribute.
enum DeviceAttribute : int {
  kDeviceClockRate = 13,
  kDeviceSmCount = 16,
  kDeviceMemoryClockRate = 36,
  kDeviceMemoryBusWidth = 37,
  kDeviceL2Bytes = 38,
  kDeviceThreadsPerSm = 39,
  kDeviceMajor = 75,
  kDeviceMinor = 76,
  kDeviceSharedPerSm = 81,
  kDevicePageableMemoryAccess = 88,
  kDeviceSharedPerBlockOptIn = 97,
  kDeviceClusterLaunch = 120,
};

/// CUfunction_attribute.
enum FunctionAttribute : int {
  kFunctionMaxThreads = 0,
  kFunctionStaticShared = 1,
  kFunctionRegisters = 4,
  kFunctionMaxDynamicShared = 8,
  kFunctionRequiredClusterWidth = 11,
  kFunctionNonPortableClusterAllowed = 14,
};

/// CUpointer_attribute.
enum PointerAttribute : int { kPointerMemoryType = 2, kPointerDeviceOrdinal = 9 };
inline constexpr unsigned kMemoryTypeDevice = 2;

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr int kCaptureModeRelaxed = 2;

/// CUlaunchAttribute: the cluster's size, and whether a kernel may start before the last one on its stream
/// has ended.
struct CUlaunchAttribute {
  int id;
  int padding;
  union {
    unsigned cluster[3];
    int programmaticSerialization;
    int cooperative;
    char bytes[64];
  } value;
};
inline constexpr int kLaunchCooperative = 2, kLaunchClusterDimension = 4,
                     kLaunchProgrammaticSerialization = 6;
static_assert(sizeof(CUlaunchAttribute) == 72, "layout of CUlaunchAttribute");

/// What a context may use of a device: its multiprocessors.
struct CUdevResource {
  int type;
  char padding[92];
  unsigned smCount;
  char more[160]; ///< newer drivers may write more than what they write today, which is 48 bytes
};
inline constexpr int kResourceSms = 1;
static_assert(sizeof(CUdevResource) == 260, "layout of CUdevResource");

/// What cuTensorMapEncodeTiled writes.
struct alignas(64) CUtensorMap {
  unsigned long long opaque[16];
};
/// CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
/// CUtensorMapFloatOOBfill.
enum TensorMapDataType : int {
  kMapUint8 = 0,
  kMapInt32 = 3,
  kMapFloat16 = 6,
  kMapFloat32 = 7,
  kMapBfloat16 = 9
};
inline constexpr int kMapInterleaveNone = 0;
inline constexpr int kMapSwizzleNone = 0, kMapSwizzle128 = 3;
inline constexpr int kMapPromoteL2To256 = 3;
inline constexpr int kMapFillZero = 0;

struct CUlaunchConfig {
  unsigned gridX, gridY, gridZ;
  unsigned blockX, blockY, blockZ;
  unsigned sharedBytes;
  CUstream stream;
  CUlaunchAttribute *attributes;
  unsigned attributeCount;
};
static_assert(sizeof(CUlaunchConfig) == 56, "layout of CUlaunchConfig");

/// The functions of libcuda, or of a test.
struct Driver {
#define CFC_DRIVER_FUNCTION(member, symbol, parameters) CUresult(*member) parameters = nullptr;
#include "runtime/src/DriverFunctions.def"
};

/// The driver, opened and initialised when it is first asked for. Throws Error: CFC_NO_DEVICE where there is
/// no libcuda or no device, CFC_UNSUPPORTED_VERSION where it is too old, CFC_DRIVER_ERROR where it does not
/// answer.
const Driver &driver();

/// What this machine offers, without throwing.
enum class DriverState {
  Ready,  ///< there is a device
  Absent, ///< no NVIDIA device here: running on the emulator is fine
  Broken, ///< there seems to be a device, but its driver does not answer or is too old
};
DriverState probeDriver(Failure &why);

/// Throws Error with the name of the driver's error unless `result` is success. `what` was being done.
void check(CUresult result, std::string_view what);

/// "CUDA_ERROR_INVALID_VALUE (invalid argument)".
std::string errorText(CUresult result);

int deviceAttribute(DeviceAttribute attribute, CUdevice device);

/// Multiprocessors that kernels of a context can use: under MPS and in a green context fewer than the device
/// has.
uint32_t contextSms(CUcontext context, CUdevice device);

/// Makes a context current for a scope, if it is not already.
class ContextScope {
public:
  explicit ContextScope(CUcontext context);
  ~ContextScope();
  ContextScope(const ContextScope &) = delete;
  ContextScope &operator=(const ContextScope &) = delete;

private:
  bool pushed = false;
};

/// Replaces libcuda by `table` (null: libcuda again). Only while no binding lives and no other thread is
/// inside the runtime.
void setDriverForTests(const Driver *table);

} // namespace cfc::runtime

#endif // CFC_RUNTIME_SRC_DRIVER_H
