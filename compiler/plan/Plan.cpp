//===- Plan.cpp - Plans as text ---------------------------------------------===//
#include "compiler/plan/Plan.h"
#include "mlir/IR/AsmState.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;
using namespace cfc;

static std::string hex(uint64_t value, unsigned digits) {
  return llvm::utohexstr(value, /*LowerCase=*/true, /*Width=*/16).substr(16 - digits);
}

//===-- Names -------------------------------------------------------------===//

StringRef cfc::stringify(Layout layout) {
  return layout == Layout::Native ? "native" : layout == Layout::Packed ? "packed" : "";
}

StringRef cfc::stringify(Split split) {
  return split == Split::Rows ? "rows" : split == Split::Columns ? "columns" : "";
}

static constexpr StringRef kExchangeNames[] = {"",        "push",    "butterfly", "bulk",    "async",
                                               "scatter", "ordered", "atomic",    "waiting", "reader"};
StringRef cfc::stringify(Exchange exchange) { return kExchangeNames[static_cast<int>(exchange)]; }

/// How many operations stand before `op`.
static unsigned placeOf(Operation *op) {
  unsigned place = 0;
  while ((op = op->getPrevNode()))
    ++place;
  return place;
}

std::string cfc::opLabel(Operation *op) {
  std::string label = op->getName().stripDialect().str() + "(";
  for (auto [i, result] : llvm::enumerate(op->getResults())) {
    std::string name = attn::getValueName(result);
    if (name.empty())
      name = ("#" + Twine(placeOf(op)) + (i ? "." + Twine(i) : Twine())).str();
    label += (i ? ", %" : "%") + name;
  }
  return label + ")";
}

const OpPlan *Plan::find(StringRef label) const {
  for (const OpPlan &op : ops)
    if (op.label == label)
      return &op;
  return nullptr;
}

Location Plan::locate(std::optional<PlanPlace> place, Location otherwise) const {
  if (!place)
    return otherwise;
  return FileLineColLoc::get(otherwise.getContext(), places.file, place->line, place->column);
}

std::vector<LaunchRange> Plan::launches() const {
  std::vector<LaunchRange> all;
  for (auto [i, kernel] : llvm::enumerate(kernels)) {
    if (all.empty() || kernel.joined != 1)
      all.push_back({i, i});
    all.back().end = i + 1;
  }
  return all;
}

const OpPlan &cfc::planOf(const Plan &plan, Operation *op) {
  static const OpPlan none;
  const OpPlan *found = plan.find(opLabel(op));
  return found ? *found : none;
}

bool cfc::leavesStates(const Plan &plan, Operation *op) {
  return isa_and_nonnull<attn::AttentionOp>(op) && planOf(plan, op).finish == Exchange::Reader;
}

std::string cfc::graphHash(attn::GraphOp graph) {
  // The text of the graph without what the planner itself attaches.
  OwningOpRef<Operation *> copy(graph->clone());
  (*copy)->removeAttr(kPlanAttr);
  (*copy)->walk([](Operation *op) { op->removeAttr(kKernelAttr); });
  std::string text;
  llvm::raw_string_ostream stream(text);
  (*copy)->print(stream, OpPrintingFlags().enableDebugInfo(false));
  return hex(llvm::xxh3_64bits(text), 16);
}

//===-- Writing -----------------------------------------------------------===//

std::string Plan::print() const {
  std::string text;
  llvm::raw_string_ostream out(text);
  out << "graph " << graph << " hash = " << hash << "\n";
  for (auto [i, k] : llvm::enumerate(kernels)) {
    out << "kernel " << i << ":";
    const char *separator = " ";
    auto key = [&](StringRef name, int64_t value) {
      if (value)
        out << separator << name << " = " << value;
      separator = value ? ", " : separator;
    };
    key("part", k.part);
    key("warps", k.warps);
    key("ctas_per_sm", k.ctasPerSm);
    key("ring_stages", k.ringStages);
    auto set = [&](StringRef name, int64_t value) {
      if (value >= 0)
        out << separator << name << " = " << value, separator = ", ";
    };
    set("in_flight", k.inFlight);
    set("prefetch", k.prefetch);
    set("prefetch_later", k.prefetchLater);
    key("tile_columns", k.tileColumns);
    key("rows_per_item", k.rowsPerItem);
    if (k.stacked == 1)
      set("stacked", 1);
    if (sharesWork(k))
      out << separator << "chunks = work", separator = ", ";
    else
      key("chunks", k.chunks);
    key("token_groups", k.tokenGroups);
    key("clusters", k.clusters);
    set("pdl", k.pdl);
    set("held", k.held);
    if (k.weights != Layout::Unset)
      out << separator << "weights = " << stringify(k.weights), separator = ", ";
    if (i)
      set("joined", k.joined);
    out << "\n";
  }
  for (const OpPlan &op : ops) {
    out << "op " << op.label << ":";
    const char *separator = " ";
    auto key = [&](StringRef name, StringRef value) {
      if (!value.empty())
        out << separator << name << " = " << value;
      separator = value.empty() ? separator : ", ";
    };
    key("kernel", op.kernel < 0 ? std::string() : std::to_string(op.kernel));
    key("split", stringify(op.split));
    key("gather", stringify(op.gather));
    key("reduce", stringify(op.reduce));
    key("finish", stringify(op.finish));
    out << "\n";
  }
  return text;
}

std::string Plan::shortHash() const { return hex(llvm::xxh3_64bits(print()), 8); }
