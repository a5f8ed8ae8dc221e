//===- Settings.cpp - What --set changes in a graph -----------------------===//
#include "tools/lib/Settings.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Suggest.h"
#include <charconv>
#include <map>
#include <set>

using namespace cfc;
using namespace mlir;

/// NAME=VALUE of --set.
static std::pair<std::string, std::string> splitSetting(const std::string &text) {
  size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    badInput("", "--set {}: expected NAME=VALUE", text);
  return {text.substr(0, equals), text.substr(equals + 1)};
}

static int64_t parseCapacity(const std::string &setting, const std::string &value) {
  constexpr int64_t most = int64_t(1) << 30;
  int64_t number = 0;
  auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < 1 || number > most)
    badInput("", "--set {}: a capacity is a number of tokens from 1 to {}", setting, most);
  return number;
}

void cfc::applySettings(attn::GraphOp graph, const std::vector<std::string> &settings) {
  std::map<std::string, BlockArgument> capacities;
  for (BlockArgument argument : graph.getArguments())
    if (isa<attn::LengthsType>(argument.getType()))
      capacities.emplace(attn::getValueName(argument) + ".capacity", argument);
  std::vector<std::string> names;
  for (const auto &[name, argument] : capacities)
    names.push_back(name);

  std::set<std::string> given;
  for (const std::string &setting : settings) {
    auto [name, value] = splitSetting(setting);
    auto found = capacities.find(name);
    if (found == capacities.end())
      badInput("", "--set {}: this graph has no \"{}\" to set{}{}", setting, name, didYouMean(name, names),
               names.empty() ? "; it has no lengths" : "");
    if (!given.insert(name).second)
      badInput("", "--set {}: \"{}\" is given twice", setting, name);
    auto type = cast<attn::LengthsType>(found->second.getType());
    found->second.setType(
        attn::LengthsType::get(graph.getContext(), type.getCount(), parseCapacity(setting, value)));
  }
  graph.setFunctionType(FunctionType::get(graph.getContext(), graph.getBody().getArgumentTypes(),
                                          graph.getFunctionType().getResults()));
}
