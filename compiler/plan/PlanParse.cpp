//===- PlanParse.cpp - Reading plans ----------------------------------------===//
//
// Line by line: `graph`, `kernel` and `op`, each with keys. `#` starts a
// comment. Nothing here knows a graph; makePlan checks what a plan says.
//
//===----------------------------------------------------------------------===//
#include "compiler/plan/Plan.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace cfc;

namespace {

class PlanParser {
public:
  PlanParser(StringRef text, StringRef file, std::string &error) : text(text), file(file), error(error) {}
  bool parse(Plan &plan);

private:
  PlanPlace placeOf(StringRef where) const;
  bool fail(StringRef where, const Twine &message);
  bool graphLine(Plan &plan, StringRef rest);
  bool kernelLine(Plan &plan, StringRef rest);
  bool opLine(Plan &plan, StringRef rest);
  /// Calls `set(key, value)` for each `key = value` of a comma-separated list, and notes where the values
  /// of `item` stand.
  bool keys(Plan &plan, StringRef item, StringRef list, llvm::function_ref<bool(StringRef, StringRef)> set);
  bool unknown(StringRef word, StringRef what, ArrayRef<StringRef> known);
  bool number(StringRef value, int64_t least, int64_t &to);
  bool exchange(StringRef value, ArrayRef<StringRef> allowed, Exchange &to);
  /// One of the values of an enumeration, by its name.
  template <typename T> bool word(StringRef value, StringRef what, ArrayRef<T> allowed, T &to);

  StringRef text, file;
  std::string &error;
  llvm::StringSet<> seen; ///< operations and kernels so far
};

constexpr StringRef kKernelKeys[] = {
    "part",      "warps",        "ctas_per_sm",    "ring_stages", "tile_columns", "rows_per_item",
    "chunks",    "token_groups", "clusters",       "pdl",         "weights",      "joined",
    "in_flight", "prefetch",     "prefetch_later", "stacked",     "held"};
constexpr StringRef kOpKeys[] = {"kernel", "split", "gather", "reduce", "finish"};

} // namespace

/// `where` points into the text.
PlanPlace PlanParser::placeOf(StringRef where) const {
  StringRef before = text.take_front(where.data() - text.data());
  size_t column = before.size() - (before.rfind('\n') + 1) + 1; // npos + 1 is 0
  return {static_cast<unsigned>(before.count('\n') + 1), static_cast<unsigned>(column)};
}

bool PlanParser::fail(StringRef where, const Twine &message) {
  PlanPlace place = placeOf(where);
  error = (file + ":" + Twine(place.line) + ":" + Twine(place.column) + ": error: " + message).str();
  return false;
}

bool PlanParser::unknown(StringRef word, StringRef what, ArrayRef<StringRef> known) {
  std::string message = ("unknown " + what + " '" + word + "'").str();
  if (StringRef near = attn::nearestName(word, known); !near.empty())
    message += "; did you mean '" + near.str() + "'?";
  else
    message += "; known are " + llvm::join(known, ", ");
  return fail(word, message);
}

bool PlanParser::number(StringRef value, int64_t least, int64_t &to) {
  if (value.getAsInteger(10, to) || to < least || to > (int64_t(1) << 30))
    return fail(value, "'" + value + "' is no number from " + Twine(least) + " to 2^30");
  return true;
}

template <typename T> bool PlanParser::word(StringRef value, StringRef what, ArrayRef<T> allowed, T &to) {
  SmallVector<StringRef> names;
  for (T each : allowed) {
    names.push_back(stringify(each));
    if (names.back() == value)
      return to = each, true;
  }
  return unknown(value, what, names);
}

bool PlanParser::exchange(StringRef value, ArrayRef<StringRef> allowed, Exchange &to) {
  if (!llvm::is_contained(allowed, value))
    return unknown(value, "algorithm", allowed);
  for (int i = static_cast<int>(Exchange::Push); i <= static_cast<int>(Exchange::Reader); ++i)
    if (stringify(static_cast<Exchange>(i)) == value)
      to = static_cast<Exchange>(i);
  return true;
}

bool PlanParser::keys(Plan &plan, StringRef item, StringRef list,
                      llvm::function_ref<bool(StringRef, StringRef)> set) {
  llvm::StringSet<> given;
  while (!list.trim().empty()) {
    auto [entry, rest] = list.split(',');
    auto [key, value] = entry.split('=');
    key = key.trim();
    if (key.empty() || !entry.contains('=') || value.trim().empty())
      return fail(entry.ltrim(), "expected 'key = value'");
    if (!given.insert(key).second)
      return fail(key, "'" + key + "' is given twice");
    value = value.trim();
    plan.places.add(item, key, placeOf(value));
    if (!set(key, value))
      return false;
    if (rest.empty() && list.trim().back() == ',')
      return fail(entry.ltrim(), "a ',' ends the line");
    list = rest;
  }
  return true;
}

bool PlanParser::graphLine(Plan &plan, StringRef rest) {
  auto [name, hash] = rest.split(' ');
  if (!plan.graph.empty())
    return fail(rest, "a second graph line; a plan is for one graph");
  if (name.empty())
    return fail(rest, "expected the graph's name");
  plan.graph = name.str();
  plan.places.add("graph", "", placeOf(name));
  return keys(plan, "graph", hash, [&](StringRef key, StringRef value) {
    if (key != "hash")
      return unknown(key, "key", StringRef("hash"));
    if (value.size() != 16 || !llvm::all_of(value, llvm::isHexDigit))
      return fail(value, "'" + value + "' is no hash of 16 hex digits");
    plan.hash = value.lower();
    return true;
  });
}

bool PlanParser::kernelLine(Plan &plan, StringRef rest) {
  auto [name, list] = rest.split(':');
  int64_t index;
  if (name.trim().getAsInteger(10, index) || index < 0 || index > 4096)
    return fail(rest, "expected 'kernel NUMBER: key = value, …'");
  std::string item = ("kernel " + Twine(index)).str();
  if (!seen.insert(item).second)
    return fail(rest, item + " is given twice");
  plan.places.add(item, "", placeOf(rest));
  if ((int64_t)plan.kernels.size() <= index)
    plan.kernels.resize(index + 1);
  KernelPlan &k = plan.kernels[index];
  int64_t *const fields[] = {&k.part,        &k.warps,  &k.ctasPerSm,   &k.ringStages, &k.tileColumns,
                             &k.rowsPerItem, &k.chunks, &k.tokenGroups, &k.clusters};
  return keys(plan, item, list, [&](StringRef key, StringRef value) {
    const StringRef *known = llvm::find(kKernelKeys, key);
    if (known == std::end(kKernelKeys))
      return unknown(key, "key", kKernelKeys);
    if (key == "weights")
      return word<Layout>(value, "layout", {Layout::Native, Layout::Packed}, k.weights);
    if (key == "chunks" && value == "work")
      return k.chunks = kWork, true;
    for (auto [name, field] : {std::pair<StringRef, int64_t *>{"pdl", &k.pdl},
                               {"joined", &k.joined},
                               {"stacked", &k.stacked},
                               {"held", &k.held},
                               {"in_flight", &k.inFlight},
                               {"prefetch", &k.prefetch},
                               {"prefetch_later", &k.prefetchLater}})
      if (key == name)
        return number(value, 0, *field);
    return number(value, 1, *fields[known - kKernelKeys]);
  });
}

bool PlanParser::opLine(Plan &plan, StringRef rest) {
  size_t end = rest.find(')');
  StringRef name = rest.take_front(end == StringRef::npos ? 0 : end + 1);
  StringRef list = rest.drop_front(name.size()).ltrim();
  if (name.empty() || !name.contains('(') || !list.consume_front(":"))
    return fail(rest, "expected 'op NAME(%results): key = value, …'");
  OpPlan op;
  for (char c : name)
    if (!llvm::isSpace(c))
      op.label += c == ',' ? std::string(", ") : std::string(1, c);
  if (!seen.insert(op.label).second)
    return fail(rest, op.label + " is given twice");
  plan.places.add(op.label, "", placeOf(rest));
  bool ok = keys(plan, op.label, list, [&](StringRef key, StringRef value) {
    if (key == "kernel")
      return number(value, 0, op.kernel);
    if (key == "split")
      return word<Split>(value, "split", {Split::Rows, Split::Columns}, op.split);
    if (key == "gather")
      return exchange(value, {"push", "butterfly", "bulk", "async"}, op.gather);
    if (key == "reduce")
      return exchange(value, {"push", "butterfly", "bulk", "async", "scatter"}, op.reduce);
    if (key == "finish")
      return exchange(value, {"ordered", "atomic", "waiting", "reader"}, op.finish);
    return unknown(key, "key", kOpKeys);
  });
  plan.ops.push_back(std::move(op));
  return ok;
}

/// A comment starts at a '#', but `%#3` is a value without a name and `%r#1` one of a group.
static StringRef withoutComment(StringRef line) {
  for (size_t i = 0; i < line.size(); ++i)
    if (line[i] == '#' && (i == 0 || llvm::isSpace(line[i - 1])))
      return line.take_front(i);
  return line;
}

bool PlanParser::parse(Plan &plan) {
  plan.places.file = file.str();
  for (StringRef rest = text; !rest.empty();) {
    auto [line, after] = rest.split('\n');
    rest = after;
    line = withoutComment(line).trim();
    if (line.empty())
      continue;
    auto [word, content] = line.split(' ');
    content = content.trim();
    bool ok = word == "graph"    ? graphLine(plan, content)
              : word == "kernel" ? kernelLine(plan, content)
              : word == "op"     ? opLine(plan, content)
                                 : unknown(word, "line", {"graph", "kernel", "op"});
    if (!ok)
      return false;
  }
  if (plan.graph.empty())
    return fail(text, "the plan names no graph; its first line is 'graph NAME hash = …'");
  return true;
}

std::optional<Plan> cfc::parsePlan(StringRef text, StringRef file, std::string &error) {
  Plan plan;
  if (!PlanParser(text, file, error).parse(plan))
    return std::nullopt;
  return plan;
}
