//===- Roles.cpp - What the arguments of a program are for ----------------===//
#include "tools/lib/Roles.h"
#include "dialects/attn/Attn.h"
#include "dialects/kernel/Kernel.h"

using namespace cfc;
using namespace mlir;

/// The role that one use gives an argument of a graph.
static DataRole roleOfUse(Value argument, Operation *op) {
  if (auto norm = dyn_cast<attn::RmsNormOp>(op); norm && norm.getGain() == argument)
    return DataRole::Gain;
  if (auto norm = dyn_cast<attn::LayerNormOp>(op)) {
    if (norm.getGain() == argument)
      return DataRole::Gain;
    if (norm.getBias() == argument)
      return DataRole::Bias;
  }
  if (isa<attn::AtOp>(op))
    return DataRole::Slope;
  if (auto linear = dyn_cast<attn::LinearOp>(op)) {
    if (llvm::is_contained(linear.getWeights(), argument))
      return DataRole::Weight;
    if (llvm::is_contained(linear.getBiases(), argument))
      return DataRole::Bias;
  }
  if (auto rope = dyn_cast<attn::RopeOp>(op)) {
    if (rope.getTable() == argument)
      return DataRole::RopeTable;
    if (rope.getPos() == argument)
      return DataRole::Position;
  }
  if (auto append = dyn_cast<attn::KvAppendOp>(op)) {
    if (append.getSlot() == argument)
      return DataRole::Slot;
    if (append.getQueries() == argument)
      return DataRole::Starts;
    if (append.getKScale() == argument || append.getVScale() == argument)
      return DataRole::Scale;
  }
  if (auto attention = dyn_cast<attn::AttentionOp>(op)) {
    if (attention.getPages() == argument)
      return DataRole::BlockTable;
    if (attention.getQueries() == argument)
      return DataRole::Starts;
    if (attention.getMask() == argument)
      return DataRole::Mask;
    if (attention.getKScale() == argument || attention.getVScale() == argument)
      return DataRole::Scale;
  }

  if (auto norm = dyn_cast<kernel::RmsNormOp>(op); norm && norm.getGain() == argument)
    return DataRole::Gain;
  if (isa<kernel::LoadOp>(op))
    return DataRole::Weight;
  if (auto rope = dyn_cast<kernel::RopeOp>(op))
    return rope.getTable() == argument ? DataRole::RopeTable : DataRole::Position;
  if (auto quantize = dyn_cast<kernel::QuantizeOp>(op); quantize && quantize.getScale() == argument)
    return DataRole::Scale;
  if (auto load = dyn_cast<kernel::LoadCacheOp>(op);
      load && (load.getKScale() == argument || load.getVScale() == argument))
    return DataRole::Scale;
  if (auto load = dyn_cast<kernel::LoadCacheOp>(op))
    return load.getLength() == argument ? DataRole::Length : DataRole::Slot;
  if (isa<kernel::AppendOp, kernel::AttendNewOp>(op))
    return DataRole::Slot;
  return DataRole::Activation;
}

static DataRole roleOf(Value argument) {
  if (isa<attn::KvCacheType, kernel::CacheType>(argument.getType()))
    return DataRole::Cache;
  if (isa<attn::LengthsType>(argument.getType()))
    return DataRole::Length;
  for (Operation *user : argument.getUsers())
    if (DataRole role = roleOfUse(argument, user); role != DataRole::Activation)
      return role;
  return DataRole::Activation;
}

std::map<std::string, DataRole> cfc::rolesOf(ModuleOp module) {
  std::map<std::string, DataRole> roles;
  for (auto graph : module.getOps<attn::GraphOp>())
    for (BlockArgument argument : graph.getBody().getArguments())
      roles[graph.getArgName(argument.getArgNumber()).str()] = roleOf(argument);
  for (auto func : module.getOps<kernel::FuncOp>())
    for (BlockArgument argument : func.getArguments()) {
      auto name = func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), kernel::kNameAttr);
      DataRole role = roleOf(argument);
      // Several kernels may share a tensor: the first use that says something counts.
      if (name && (role != DataRole::Activation || !roles.count(name.str())))
        roles[name.str()] = role;
    }
  return roles;
}
