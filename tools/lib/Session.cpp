//===- Session.cpp - Tensors in a device, and programs that use them ------===//
#include "tools/lib/Session.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Pack.h"
#include <algorithm>
#include <cstring>

using namespace cfc;

/// Every buffer starts at a multiple of this: at least what any manifest asks for.
static constexpr size_t bufferAlign = 1024;

DType cfc::dtypeOf(cfc_dtype type) {
  switch (type) {
  case CFC_F16:
    return DType::f16;
  case CFC_BF16:
    return DType::bf16;
  case CFC_F32:
    return DType::f32;
  case CFC_I32:
    return DType::i32;
  case CFC_I64:
    return DType::i64;
  case CFC_F8E4M3FN:
    return DType::f8E4M3FN;
  }
  internalError("unknown element type {} in a manifest", int(type));
}

DeviceTensors::Buffer &DeviceTensors::buffer(const std::string &name, size_t bytes) {
  Buffer &buffer = buffers[name];
  if (!buffer.data || buffer.bytes != bytes) {
    buffer.data = device.allocate(bytes, bufferAlign, name);
    buffer.bytes = bytes;
  }
  return buffer;
}

Tensor cfc::inLayoutOf(const runtime::TensorSpec &spec, const Tensor &weight) {
  return inLayout(weight,
                  spec.layout == runtime::Layout::Packed ? std::optional(spec.packed()) : std::nullopt);
}

/// Packed and native copies of a weight have buffers of their own.
static std::string bufferName(const std::string &name, bool packed) {
  return packed ? name + " (packed)" : name;
}

void DeviceTensors::upload(const TensorMap &tensors, const runtime::GraphSpec &graph) {
  TensorMap wanted = tensors;
  for (const runtime::TensorSpec &spec : graph.tensors)
    if (auto found = wanted.find(spec.name); found != wanted.end())
      found->second = inLayoutOf(spec, found->second);
  upload(wanted);
}

void DeviceTensors::upload(const TensorMap &tensors) {
  for (auto &[name, tensor] : tensors) {
    Buffer &target = buffer(bufferName(name, tensor.packed.has_value()), tensor.bytes());
    target.shape = tensor.shape;
    device.upload(target.data, tensor.data(), tensor.bytes());
  }
}

std::vector<cfc_tensor> DeviceTensors::bindings(const runtime::GraphSpec &graph, bool nativeWeights) {
  std::vector<cfc_tensor> result;
  for (const runtime::TensorSpec &spec : graph.tensors) {
    cfc_tensor tensor = {};
    tensor.size = sizeof tensor;
    tensor.name = spec.name.c_str();
    tensor.dtype = spec.dtype;
    if (spec.kind == runtime::TensorKind::KvCache) {
      Buffer &k = buffers.at(spec.name + ".k"), &v = buffers.at(spec.name + ".v");
      // As CacheLayout has it.
      size_t first = spec.hasBlocks() ? 1 : 0;
      int64_t tokens = k.shape.at(first + 1), size = int64_t(runtime::elementBytes(spec.dtype));
      tensor.k = reinterpret_cast<void *>(k.data);
      tensor.v = reinterpret_cast<void *>(v.data);
      tensor.bytes = k.bytes;
      tensor.v_bytes = v.bytes;
      tensor.capacity = spec.page ? spec.page * spec.pages : tokens;
      tensor.stride_token = spec.dim * size;
      tensor.stride_head = tokens * tensor.stride_token;
      tensor.stride_block = spec.heads * tensor.stride_head;
      tensor.blocks = first ? k.shape.at(0) : 1;
      tensor.v_stride_token = spec.dimOfV() * size;
      tensor.v_stride_head = tokens * tensor.v_stride_token;
      tensor.v_stride_block = spec.heads * tensor.v_stride_head;
    } else {
      runtime::TensorSpec bound = spec;
      if (nativeWeights)
        bound.layout = runtime::Layout::Native;
      std::string key = bufferName(spec.name, bound.layout == runtime::Layout::Packed);
      if (spec.role == runtime::Role::Weight && !buffers.count(key))
        internalError("the weight '{}' is not on the device as it is to be bound", key);
      Buffer &data = buffer(key, size_t(runtime::rowOrTensorBytes(bound)));
      tensor.layout = uint32_t(bound.layout);
      tensor.rank = uint32_t(spec.shape.size());
      tensor.shape = spec.shape.data();
      tensor.data = reinterpret_cast<void *>(data.data);
      tensor.bytes = data.bytes;
    }
    result.push_back(tensor);
  }
  return result;
}

void DeviceTensors::poisonResults(const runtime::GraphSpec &graph) {
  for (const runtime::TensorSpec &spec : graph.tensors) {
    if (spec.role != runtime::Role::Output)
      continue;
    Buffer &target = buffer(spec.name, size_t(runtime::rowOrTensorBytes(spec)));
    std::vector<uint16_t> pattern(target.bytes / 2 + 1, 0x7ffb);
    device.upload(target.data, pattern.data(), target.bytes);
  }
}

Tensor DeviceTensors::download(const std::string &name, DType type, const std::vector<int64_t> &shape) {
  Tensor tensor(type, shape);
  Buffer &source = buffers.at(name);
  if (source.bytes != tensor.bytes())
    internalError("the buffer of '{}' has {} bytes, its tensor {}", name, source.bytes, tensor.bytes());
  device.download(tensor.mutableData(), source.data, tensor.bytes());
  return tensor;
}

TensorMap DeviceTensors::outputs(const runtime::GraphSpec &graph) {
  TensorMap result;
  for (const runtime::TensorSpec &spec : graph.tensors) {
    if (spec.role != runtime::Role::Output && spec.role != runtime::Role::InOut)
      continue;
    if (spec.kind == runtime::TensorKind::KvCache) {
      for (const char *part : {".k", ".v"})
        result[spec.name + part] =
            download(spec.name + part, dtypeOf(spec.dtype), buffers.at(spec.name + part).shape);
    } else {
      result[spec.name] = download(spec.name, dtypeOf(spec.dtype), spec.shape);
    }
  }
  return result;
}
