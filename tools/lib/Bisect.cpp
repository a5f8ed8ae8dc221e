//===- Bisect.cpp - Which operation is wrong ------------------------------===//
#include "tools/lib/Bisect.h"
#include "compiler/plan/Plan.h"
#include <algorithm>
#include <fmt/ranges.h>
#include <set>

using namespace cfc;

/// The first operation, in the order of the graph, whose value is wrong.
static const Check *firstWrong(const std::vector<CaseResult> &results) {
  const Check *first = nullptr;
  for (const CaseResult &result : results)
    for (const Check &check : result.checks) {
      if (check.passed() || !check.tap)
        continue;
      mlir::Operation *op = check.tap->value.getDefiningOp();
      if (!first || op->isBeforeInBlock(first->tap->value.getDefiningOp()))
        first = &check;
    }
  return first;
}

namespace {
/// The operations that may be why a value is wrong.
class Suspects {
public:
  Suspects(const Check &wrong, const std::vector<CaseResult> &results);
  std::vector<mlir::Operation *> operations; ///< in the order of the graph; the last computes the value
  std::set<std::string> right;               ///< names of what they start from and is right

private:
  void add(mlir::Operation *op);
  bool isRight(mlir::Value value);

  std::map<mlir::Operation *, bool> appends; ///< whether all compared rows of an append are right
  llvm::DenseMap<mlir::Value, const Tap *> compared;
};
} // namespace

Suspects::Suspects(const Check &wrong, const std::vector<CaseResult> &results) {
  for (const CaseResult &result : results)
    for (const Check &check : result.checks) {
      if (check.tap)
        compared[check.tap->value] = check.tap;
      if (check.append)
        appends.try_emplace(check.append, true).first->second &= check.passed();
    }
  add(wrong.tap->value.getDefiningOp());
  std::sort(operations.begin(), operations.end(),
            [](mlir::Operation *a, mlir::Operation *b) { return a->isBeforeInBlock(b); });
}

/// Whether a value, or what was appended to a cache, was compared. What comes before the first wrong value is
/// right then.
bool Suspects::isRight(mlir::Value value) {
  if (auto tap = compared.find(value); tap != compared.end())
    return right.insert(tap->second->name).second, true;
  auto append = appends.find(value.getDefiningOp());
  if (append == appends.end() || !append->second)
    return false;
  right.insert("%" + attn::getValueName(value));
  return true;
}

void Suspects::add(mlir::Operation *op) {
  if (llvm::is_contained(operations, op))
    return;
  operations.push_back(op);
  for (mlir::Value operand : attn::operandsOf(op))
    // A generated table is data.
    if (mlir::Operation *before = operand.getDefiningOp();
        before && !mlir::isa<attn::RopeTableOp>(before) && !isRight(operand))
      add(before);
}

/// What differs where every operation's value is right: a row of a cache, a result of the graph's own
/// program, or a fault.
static std::string otherDifference(const std::vector<CaseResult> &results) {
  for (const CaseResult &result : results) {
    for (const Check &check : result.checks)
      if (const Comparison &c = check.decisive(); !check.passed())
        return fmt::format("{} does, at length {}\n"
                           "bisect: its worst element is {}: expected {:.6g}, found {:.6g}",
                           check.name, result.length, c.worst < 0 ? "none" : indexText(c.worst, check.shape),
                           c.expected, c.found);
    if (!result.faults.empty())
      return fmt::format("at length {}: {}", result.length, result.faults[0]);
  }
  return "";
}

std::string cfc::bisectText(const std::vector<CaseResult> &results) {
  const Check *first = firstWrong(results);
  if (!first) {
    std::string other = otherDifference(results);
    return fmt::format("bisect: no operation differs{}{}\n", other.empty() ? "" : ", but ", other);
  }
  mlir::Operation *op = first->tap->value.getDefiningOp();
  const Comparison &c = first->decisive();
  Suspects suspects(*first, results);
  bool isAlone = suspects.operations.size() == 1;
  std::string text = fmt::format(
      "bisect: the first {} that differs is {} ({}) at {}\n"
      "bisect: its worst element is {}: expected {:.6g}, found {:.6g}\n",
      isAlone ? "operation" : "compared value", op->getName().getStringRef().str(), first->name,
      locationText(op), c.worst < 0 ? "none" : indexText(c.worst, first->shape), c.expected, c.found);
  if (isAlone)
    return text;
  std::vector<std::string> labels;
  for (mlir::Operation *suspect : suspects.operations)
    labels.push_back(opLabel(suspect));
  text += suspects.right.empty()
              ? "bisect: no value before it is compared"
              : fmt::format("bisect: no value between it and {}, which {} right, is compared",
                            fmt::join(suspects.right, ", "), suspects.right.size() == 1 ? "is" : "are");
  return text + fmt::format(": one of these is wrong: {}\n", fmt::join(labels, ", "));
}

nlohmann::ordered_json cfc::checkJson(const Check &check) {
  const Comparison &c = check.comparison;
  nlohmann::ordered_json json = {{"name", check.name},
                                 {"relative_l2", c.relativeL2},
                                 {"relative_l2_limit", check.tolerance.relativeL2 * c.relativeFactor},
                                 {"largest", c.largest},
                                 {"largest_limit", check.tolerance.element * c.elementFactor},
                                 {"raised", c.raised},
                                 {"passed", check.passed()}};
  if (check.second)
    json["gpu_reference"] = {{"relative_l2", check.second->comparison.relativeL2},
                             {"largest", check.second->comparison.largest},
                             {"passed", check.second->comparison.passed},
                             {"references_apart", check.second->between},
                             {"references_agree", check.second->agree}};
  if (c.worst >= 0)
    json.update(
        {{"worst_index", indexText(c.worst, check.shape)}, {"expected", c.expected}, {"found", c.found}});
  return json;
}

nlohmann::ordered_json cfc::bisectJson(const std::vector<CaseResult> &results) {
  const Check *first = firstWrong(results);
  if (!first)
    return nullptr;
  nlohmann::ordered_json json = checkJson(*first);
  json["location"] = locationText(first->tap->value.getDefiningOp());
  for (mlir::Operation *suspect : Suspects(*first, results).operations)
    json["one_of_these_is_wrong"].push_back(opLabel(suspect));
  return json;
}
