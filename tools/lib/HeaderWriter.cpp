//===- HeaderWriter.cpp - A C header that binds one graph -----------------===//
#include "tools/lib/HeaderWriter.h"
#include "tools/lib/Failure.h"
#include <cctype>
#include <fmt/ranges.h>
#include <set>

using namespace cfc;
using runtime::GraphSpec, runtime::TensorKind, runtime::TensorSpec;

/// A name of C made of a tensor's; `used` keeps them apart.
static std::string identifier(const std::string &name, std::set<std::string> &used) {
  std::string result;
  for (char c : name)
    result += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  if (result.empty() || std::isdigit(static_cast<unsigned char>(result[0])))
    result = "t_" + result;
  // No tensor may be called like a keyword: all of those that could be are short.
  static const std::set<std::string> keywords = {
      "int", "long", "char", "float", "double", "void", "new", "this", "class", "auto",    "if",
      "for", "do",   "else", "case",  "goto",   "not",  "or",  "and",  "xor",   "register"};
  if (keywords.count(result))
    result += '_';
  while (!used.insert(result).second)
    result += '_';
  return result;
}

static std::string quoted(const std::string &text) {
  std::string result = "\"";
  for (char c : text)
    result += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return result + "\"";
}

static std::string dtypeConstant(cfc_dtype type) {
  std::string text = runtime::name(type);
  for (char &c : text)
    c = char(std::toupper(static_cast<unsigned char>(c)));
  return "CFC_" + text;
}

/// The numbers that a caller gives for a cache: fields of cfc_tensor.
static std::vector<std::string> numbersOf(const TensorSpec &cache) {
  std::vector<std::string> fields = {"stride_head", "stride_token", "capacity"};
  if (cache.hasBlocks())
    fields.insert(fields.end(), {"stride_block", "blocks"});
  if (cache.dimOfV() != cache.dim)
    fields.insert(fields.end(), {"v_stride_head", "v_stride_token", "v_stride_block"});
  return fields;
}

/// The member of the struct of buffers.
static std::string member(const TensorSpec &tensor, const std::string &name) {
  if (tensor.kind == TensorKind::KvCache) {
    std::string blocks = tensor.page           ? fmt::format(", pages of {} tokens", tensor.page)
                         : tensor.requests > 1 ? fmt::format(", {} requests", tensor.requests)
                                               : "";
    return fmt::format("  /* {} cache: {} heads of {}{}{}; strides in bytes, capacity in tokens */\n"
                       "  struct {{ void *k, *v; int64_t {}; }} {};\n",
                       runtime::name(tensor.dtype), tensor.heads, tensor.dim,
                       tensor.dimOfV() == tensor.dim ? "" : fmt::format(", of V {}", tensor.dimOfV()), blocks,
                       fmt::join(numbersOf(tensor), ", "), name);
  }
  return fmt::format("  void *{}; /* {} [{}], {}{} */\n", name, runtime::name(tensor.dtype),
                     fmt::join(tensor.shape, ", "), runtime::name(tensor.role),
                     tensor.layout == runtime::Layout::Packed ? ", packed" : "");
}

/// The statements that fill in tensors[index].
static std::string assignment(const TensorSpec &tensor, const std::string &name, size_t index) {
  std::string text = fmt::format("  tensors[{}].size = sizeof(cfc_tensor);\n  tensors[{}].name = {};\n"
                                 "  tensors[{}].dtype = {};\n",
                                 index, index, quoted(tensor.name), index, dtypeConstant(tensor.dtype));
  if (tensor.kind == TensorKind::KvCache) {
    std::vector<std::string> fields = numbersOf(tensor);
    fields.insert(fields.begin(), {"k", "v"});
    for (const std::string &field : fields)
      text += fmt::format("  tensors[{}].{} = buffers->{}.{};\n", index, field, name, field);
    return text;
  }
  if (tensor.layout == runtime::Layout::Packed)
    text += fmt::format("  tensors[{}].layout = CFC_LAYOUT_PACKED;\n", index);
  return text + fmt::format("  static const int64_t shape{}[] = {{{}}};\n  tensors[{}].rank = {};\n"
                            "  tensors[{}].shape = shape{};\n  tensors[{}].data = buffers->{};\n",
                            index, fmt::join(tensor.shape, ", "), index, tensor.shape.size(), index, index,
                            index, name);
}

static std::string graphText(const GraphSpec &graph) {
  std::set<std::string> graphNames, used;
  std::string name = identifier(graph.name, graphNames), members, assignments;
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    std::string field = identifier(graph.tensors[i].name, used);
    members += member(graph.tensors[i], field);
    assignments += assignment(graph.tensors[i], field, i);
  }
  return fmt::format(
      "/* Device pointers of {0}. */\ntypedef struct {0}_buffers {{\n{1}}} {0}_buffers;\n\n"
      "/* Binds them; then cfc_launch runs the graph. */\n"
      "static inline cfc_status {0}_bind(const cfc_bundle *bundle, const {0}_buffers *buffers,\n"
      "                                  const cfc_bind_options *options, cfc_binding **binding) {{\n"
      "  cfc_tensor tensors[{2}];\n  memset(tensors, 0, sizeof tensors);\n{3}"
      "  return cfc_bind(bundle, {4}, tensors, {2}, options, binding);\n}}\n",
      name, members, graph.tensors.size(), assignments, quoted(graph.name));
}

std::string cfc::headerText(const runtime::Manifest &manifest) {
  std::string text = fmt::format("/* Written by cfc {} for {}. */\n#pragma once\n#include \"cfc/runtime.h\"\n"
                                 "#include <stdint.h>\n#include <string.h>\n",
                                 manifest.compiler, manifest.target);
  for (const GraphSpec &graph : manifest.graphs)
    text += "\n" + graphText(graph);
  return text;
}
