//===- FakeDriver.h - A libcuda of its own ----------------------*- C++ -*-===//
//
// Device memory is host memory, kernels only leave a record. As on a GPU, work on streams happens later:
// copies read their source, and launches read the table, when the queue is run (flush, or a synchronisation).
//
//===----------------------------------------------------------------------===//
#ifndef CFC_TEST_UNIT_FAKEDRIVER_H
#define CFC_TEST_UNIT_FAKEDRIVER_H

#include "runtime/src/Driver.h"
#include <functional>
#include <map>
#include <mutex>

namespace cfc::runtime::test {

struct FakeLaunch {
  std::string kernel;
  unsigned grid, threads, shared, cluster;
  int device;
  CUdeviceptr table, workspace;
  std::vector<uint64_t> entries; ///< of the table, when the kernel ran
  bool pdl = false;              ///< launched with programmatic stream serialization
  bool cooperative = false;      ///< all or none of its clusters run at a time
};

/// Everything that the fake knows; reset between tests.
struct FakeState {
  std::recursive_mutex mutex;
  // What the machine is like.
  int devices = 1, version = 13000, major = 9, minor = 0, sms = 132, sharedLimit = 232448, pageable = 0;
  int maxThreads = 1024;
  unsigned contextSms = 0; ///< of the current context's resource; 0: the driver cannot say
  std::function<int(const std::string &kernel, unsigned cluster)> resident =
      [](const std::string &, unsigned cluster) { return int(264 / cluster); };
  /// Cluster size that a kernel was compiled for.
  std::function<int(const std::string &kernel)> width = [](const std::string &kernel) {
    return kernel.find("_k0_") != kernel.npos ? 4 : 0;
  };
  CUresult failModule = 0, failAlloc = 0, failLaunch = 0, failHost = 0;
  // What happened.
  std::vector<FakeLaunch> launches;
  int modulesLoaded = 0, modulesAlive = 0, contextsRetained = 0, hostAllocations = 0, streamsAlive = 0;
  std::map<CUdeviceptr, std::pair<size_t, int>> memory;  ///< bytes and device by address
  std::map<std::pair<std::string, int>, int> attributes; ///< of functions, by kernel and attribute
  std::map<std::string, CUlaunchConfig>
      asked;                      ///< by kernel: for which launch the last question for its clusters was
  std::vector<std::string> calls; ///< names of functions called, while `record` is set
  bool record = false;
  // What a test wants to happen besides: launches may be run for real, in memory that is announced.
  std::function<void(const FakeLaunch &)> onLaunch;
  std::function<void(void *memory, size_t bytes)> onAllocate; ///< such memory is not used twice
  // Work that waits.
  std::vector<std::function<void()>> queue;
  bool capturing = false;
  std::vector<std::function<void()>> graph;

  void flush();
  void replay(); ///< queues the captured work once more
};

/// Installs a fresh fake for a scope.
class FakeDriver {
public:
  FakeDriver();
  ~FakeDriver();
  FakeState &operator*() { return *state; }
  FakeState *operator->() { return state; }

private:
  FakeState *state;
};

/// Device memory that the caller keeps to the end of the process or frees itself; aligned to 256 bytes.
void *fakeMemory(size_t bytes, int device = 0);
/// Makes device `ordinal`'s context current in this thread; -1: none.
void fakeUseDevice(int ordinal);

} // namespace cfc::runtime::test

#endif // CFC_TEST_UNIT_FAKEDRIVER_H
