//===- HostKernels.cpp - templates/device compiled for the host -------------===//
#include "HostKernels.h"
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <ucontext.h>

//===----------------------------------------------------------------------===//
// Threads of a block
//===----------------------------------------------------------------------===//

namespace {
struct Index {
  unsigned x = 0, y = 0, z = 0;
};
Index threadIdx, blockIdx, blockDim;

/// The threads of a block as fibers. One runs until it waits for others; then the next one has its turn.
class Block {
public:
  void run(unsigned count, const std::function<void()> &body) {
    kernel = &body;
    fibers.resize(count);
    warps.assign((count + 31) / 32, {});
    all = {};
    unsigned running = count;
    for (unsigned i = 0; i < count; ++i)
      start(fibers[i]);
    for (size_t turns = 0; running > 0; ++turns) {
      REQUIRE(turns < 100000); // else some wait for others that have returned
      for (current = 0; current < count; ++current) {
        Fiber &fiber = fibers[current];
        if (fiber.done)
          continue;
        threadIdx.x = current;
        swapcontext(&scheduler, &fiber.context);
        running -= fiber.done;
      }
    }
  }

  void syncBlock() { meet(all, unsigned(fibers.size())); }
  float exchange(float value, unsigned distance) {
    unsigned self = current;
    fibers[self].value = value;
    meet(warps[self / 32], 32);
    float other = fibers[self ^ distance].value;
    meet(warps[self / 32], 32);
    return other;
  }

private:
  struct Fiber {
    std::unique_ptr<char[]> stack;
    ucontext_t context;
    float value = 0;
    bool done = false;
  };
  struct Barrier {
    unsigned arrived = 0, round = 0;
  };

  static constexpr size_t stackBytes = 1 << 16;
  void start(Fiber &fiber);
  void meet(Barrier &barrier, unsigned count) {
    unsigned self = current, round = barrier.round;
    if (++barrier.arrived == count) {
      barrier.arrived = 0;
      ++barrier.round;
      return;
    }
    while (barrier.round == round)
      swapcontext(&fibers[self].context, &scheduler);
  }
  static void enter();

  const std::function<void()> *kernel = nullptr;
  std::vector<Fiber> fibers;
  std::vector<Barrier> warps;
  Barrier all;
  ucontext_t scheduler;
  unsigned current = 0;
};

Block block;

void Block::enter() {
  (*block.kernel)();
  block.fibers[block.current].done = true;
}

void Block::start(Fiber &fiber) {
  if (!fiber.stack)
    fiber.stack = std::make_unique<char[]>(stackBytes);
  fiber.done = false;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = stackBytes;
  fiber.context.uc_link = &scheduler;
  makecontext(&fiber.context, enter, 0);
}

//===----------------------------------------------------------------------===//
// CUDA's words
//===----------------------------------------------------------------------===//

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
void atomicOr(unsigned *word, unsigned bits) { *word |= bits; }
template <typename T> T __ldg(const T *data) { return *data; }
void __syncthreads() { block.syncBlock(); }
float __shfl_xor_sync(unsigned, float value, int distance) {
  return block.exchange(value, unsigned(distance));
}
using std::isinf, std::isnan, std::signbit;

#define __global__
#define __device__
#define __shared__ static

#include "templates/device/add.cu"
#include "templates/device/attention.cu"
#include "templates/device/fast_add.cu"
#include "templates/device/kv_append.cu"
#include "templates/device/layer_norm.cu"
#include "templates/device/linear.cu"
#include "templates/device/rms_norm.cu"
#include "templates/device/rope.cu"
#include "templates/device/rope_table.cu"

// Each set of macros that a test needs.
#define GAIN kindF16
namespace gain_f16 {
#include "templates/device/fast_rms_norm.cu"
}
#undef GAIN
#define GAIN kindBF16
namespace gain_bf16 {
#include "templates/device/fast_rms_norm.cu"
}
#undef GAIN
#define GAIN kindF32
namespace gain_f32 {
#include "templates/device/fast_rms_norm.cu"
}

#define TABLE kindF32
namespace table_f32 {
#include "templates/device/fast_rope_append.cu"
}

#define WEIGHT kindF16
namespace linear_f16 {
#include "templates/device/fast_linear.cu"
}
#undef WEIGHT
#define WEIGHT kindBF16
namespace linear_bf16 {
#include "templates/device/fast_linear.cu"
}

#define LANES 8
#define CACHE kindF16
#define GROUP 1
namespace attention_f16_1 {
#include "templates/device/fast_attention.cu"
}
#undef GROUP
#define GROUP 4
namespace attention_f16_4 {
#include "templates/device/fast_attention.cu"
}
#undef CACHE
#define CACHE kindBF16
namespace attention_bf16_4 {
#include "templates/device/fast_attention.cu"
}
#undef GROUP
#undef LANES
#define GROUP 2
#define LANES 16
namespace attention_bf16_2_wide {
#include "templates/device/fast_attention.cu"
}
} // namespace

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

using namespace cfc;

template <typename Parameter>
void HostKernels::add(const std::string &file, const std::string &name, std::vector<std::string> constants,
                      void (*kernel)(Parameter)) {
  kernels[DeviceKernel{file, name, std::move(constants)}.text()] = [kernel](const void *parameter) {
    kernel(*static_cast<const Parameter *>(parameter));
  };
}

HostKernels::HostKernels() {
  add("add.cu", "add", {}, ::add);
  add("attention.cu", "attention_scores", {}, attention_scores);
  add("attention.cu", "attention_softmax", {}, attention_softmax);
  add("attention.cu", "attention_values", {}, attention_values);
  add("kv_append.cu", "kv_append", {}, kv_append);
  add("layer_norm.cu", "layer_norm", {}, layer_norm);
  add("linear.cu", "linear", {}, linear);
  add("rms_norm.cu", "rms_norm", {}, rms_norm);
  add("rope.cu", "rope", {}, rope);
  add("rope_table.cu", "rope_table", {}, rope_table);

  add("fast_add.cu", "fast_add", {}, fast_add);
  add("fast_rms_norm.cu", "fast_rms_norm", {"GAIN=0"}, gain_f16::fast_rms_norm);
  add("fast_rms_norm.cu", "fast_rms_norm", {"GAIN=1"}, gain_bf16::fast_rms_norm);
  add("fast_rms_norm.cu", "fast_rms_norm", {"GAIN=2"}, gain_f32::fast_rms_norm);
  add("fast_rope_append.cu", "fast_rope_append", {"TABLE=2"}, table_f32::fast_rope_append);
  add("fast_linear.cu", "fast_linear", {"WEIGHT=0"}, linear_f16::fast_linear);
  add("fast_linear.cu", "fast_linear", {"WEIGHT=1"}, linear_bf16::fast_linear);
  auto addAttention = [&](std::vector<std::string> constants, auto attention, auto merge) {
    add("fast_attention.cu", "fast_attention", constants, attention);
    add("fast_attention.cu", "fast_attention_merge", constants, merge);
  };
  addAttention({"CACHE=0", "GROUP=1", "LANES=8"}, attention_f16_1::fast_attention,
               attention_f16_1::fast_attention_merge);
  addAttention({"CACHE=0", "GROUP=4", "LANES=8"}, attention_f16_4::fast_attention,
               attention_f16_4::fast_attention_merge);
  addAttention({"CACHE=1", "GROUP=4", "LANES=8"}, attention_bf16_4::fast_attention,
               attention_bf16_4::fast_attention_merge);
  addAttention({"CACHE=1", "GROUP=2", "LANES=16"}, attention_bf16_2_wide::fast_attention,
               attention_bf16_2_wide::fast_attention_merge);
}

void HostKernels::prepare(const DeviceKernel &kernel) {
  INFO(kernel.text());
  REQUIRE(kernels.count(kernel.text()));
}

void HostKernels::launch(const DeviceKernel &kernel, LaunchShape shape, const void *parameter, CUstream) {
  prepare(kernel);
  launched.push_back(kernel.text());
  const auto &function = kernels.at(kernel.text());
  std::function<void()> body = [&] { function(parameter); };
  blockDim.x = shape.threads;
  for (blockIdx.y = 0; blockIdx.y < shape.gridY; ++blockIdx.y)
    for (blockIdx.x = 0; blockIdx.x < shape.gridX; ++blockIdx.x) {
      if (kernel.file.starts_with("fast_")) {
        block.run(shape.threads, body);
        continue;
      }
      for (threadIdx.x = 0; threadIdx.x < shape.threads; ++threadIdx.x)
        body();
    }
}
