//===- Machine.cpp - Machine descriptions -----------------------------------===//
#include "compiler/plan/Machine.h"
#include "dialects/attn/Attn.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include <cmath>

using namespace cfc;
using llvm::StringRef;
using llvm::Twine;

/// Residency measured on an H200 (132 SMs; GPCs differ in size).
static const std::map<int64_t, std::map<int64_t, int64_t>> kMeasuredClusters = {
    {1, {{1, 132}, {2, 66}, {4, 30}, {8, 15}, {16, 7}}},
    {2, {{1, 264}, {2, 132}, {4, 62}, {8, 30}, {16, 14}}}};

std::optional<Machine> cfc::knownMachine(StringRef name) {
  Machine machine;
  machine.residentClusters = kMeasuredClusters;
  if (name == "h200")
    return machine;
  if (name != "h100")
    return std::nullopt;
  machine.name = "h100";
  machine.bandwidth = 3.1e12; // 3.35 by its datasheet
  machine.smBandwidth = 7.0e10;
  return machine;
}

int64_t Machine::resident(int64_t size, int64_t ctasPerSm) const {
  auto bySize = residentClusters.find(ctasPerSm);
  if (bySize == residentClusters.end())
    return 0;
  auto clusters = bySize->second.find(size);
  return clusters == bySize->second.end() ? 0 : clusters->second;
}

int64_t Machine::sharedLimit(int64_t ctasPerSm) const {
  return std::min(sharedBytes, sharedBytesPerSm / ctasPerSm - sharedReserved) / 128 * 128;
}

//===-- Fields ------------------------------------------------------------===//

namespace {
struct Field {
  StringRef name;
  double Machine::*real = nullptr;
  int64_t Machine::*integer = nullptr;
};
} // namespace

static const Field kFields[] = {{"sms", nullptr, &Machine::sms},
                                {"shared_bytes", nullptr, &Machine::sharedBytes},
                                {"shared_bytes_per_sm", nullptr, &Machine::sharedBytesPerSm},
                                {"shared_reserved", nullptr, &Machine::sharedReserved},
                                {"bandwidth", &Machine::bandwidth},
                                {"sm_bandwidth", &Machine::smBandwidth},
                                {"cta_bandwidth", &Machine::ctaBandwidth},
                                {"tile_ns", &Machine::tileNs},
                                {"copy_ns", &Machine::copyNs},
                                {"launch_us", &Machine::launchUs},
                                {"exchange_us", &Machine::exchangeUs},
                                {"round_us", &Machine::roundUs},
                                {"grid_exchange_us", &Machine::gridExchangeUs},
                                {"norm_us", &Machine::normUs}};

std::string Machine::toJson() const {
  std::string text;
  llvm::raw_string_ostream stream(text);
  llvm::json::OStream out(stream, 2);
  out.object([&] {
    out.attribute("name", name);
    for (const Field &field : kFields) {
      if (field.real)
        out.attribute(field.name, this->*field.real);
      else
        out.attribute(field.name, this->*field.integer);
    }
    out.attributeObject("resident_clusters", [&] {
      for (auto &[ctas, sizes] : residentClusters)
        out.attributeObject(std::to_string(ctas), [&, &table = sizes] {
          for (auto [size, clusters] : table)
            out.attribute(std::to_string(size), clusters);
        });
    });
  });
  return text + "\n";
}

//===-- Reading -----------------------------------------------------------===//

static bool setField(Machine &machine, const Field &field, const llvm::json::Value &value, std::string &why) {
  std::optional<double> number = value.getAsNumber();
  if (!number || !std::isfinite(*number) || *number <= 0)
    why = ("'" + field.name + "' needs a number above 0").str();
  else if (field.integer && !value.getAsInteger())
    why = ("'" + field.name + "' needs an integer").str();
  else if (field.integer)
    machine.*field.integer = *value.getAsInteger();
  else
    machine.*field.real = *number;
  return why.empty();
}

/// {"1": {"1": 132, "2": 66}, "2": {…}}: clusters by CTAs per SM and cluster size.
static bool setClusters(Machine &machine, const llvm::json::Value &value, std::string &why) {
  why = "'resident_clusters' needs {\"CTAs per SM\": {\"cluster size\": clusters, …}, …} with numbers from 0";
  const llvm::json::Object *table = value.getAsObject();
  if (!table || table->empty())
    return false;
  machine.residentClusters.clear();
  for (const auto &[ctasText, sizes] : *table) {
    int64_t ctas, size;
    const llvm::json::Object *bySize = sizes.getAsObject();
    if (StringRef(ctasText).getAsInteger(10, ctas) || ctas < 1 || ctas > 32 || !bySize)
      return false;
    for (const auto &[sizeText, clusters] : *bySize) {
      std::optional<int64_t> n = clusters.getAsInteger();
      if (StringRef(sizeText).getAsInteger(10, size) || size < 1 || size > 16 || !n || *n < 0)
        return false;
      machine.residentClusters[ctas][size] = *n;
    }
  }
  why.clear();
  return true;
}

static bool setKey(Machine &machine, StringRef key, const llvm::json::Value &value, std::string &why) {
  if (key == "name") {
    std::optional<StringRef> name = value.getAsString();
    if (!name || name->empty())
      return why = "'name' needs a string", false;
    machine.name = name->str();
    return true;
  }
  if (key == "resident_clusters")
    return setClusters(machine, value, why);
  llvm::SmallVector<StringRef> known = {"name", "resident_clusters"};
  for (const Field &field : kFields) {
    if (field.name == key)
      return setField(machine, field, value, why);
    known.push_back(field.name);
  }
  why = ("unknown field '" + key + "'").str();
  if (StringRef near = attn::nearestName(key, known); !near.empty())
    why += "; did you mean '" + near.str() + "'?";
  else
    why += "; known are " + llvm::join(known, ", ");
  return false;
}

std::optional<Machine> cfc::parseMachine(StringRef json, StringRef file, std::string &error) {
  auto fail = [&](const Twine &message) -> std::optional<Machine> {
    error = (file + ": error: " + message).str();
    return std::nullopt;
  };
  llvm::Expected<llvm::json::Value> root = llvm::json::parse(json);
  if (!root)
    return fail("no JSON: " + llvm::toString(root.takeError()));
  const llvm::json::Object *object = root->getAsObject();
  if (!object)
    return fail("a machine description is a JSON object");
  Machine machine = *knownMachine("h200");
  for (StringRef required : {"name", "sms", "bandwidth", "resident_clusters"})
    if (!object->get(required))
      return fail("'" + required + "' is missing");
  std::string why;
  for (const auto &[key, value] : *object)
    if (!setKey(machine, key, value, why))
      return fail(why);
  if (machine.sharedLimit(1) < 16384)
    return fail("'shared_bytes' is " + Twine(machine.sharedBytes) + "; a CTA needs at least 16384");
  return machine;
}

std::optional<Machine> cfc::loadMachine(StringRef nameOrPath, std::string &error) {
  if (std::optional<Machine> known = knownMachine(nameOrPath))
    return known;
  auto buffer = llvm::MemoryBuffer::getFile(nameOrPath, /*IsText=*/true);
  if (buffer)
    return parseMachine((*buffer)->getBuffer(), nameOrPath, error);
  error = ("error: machine '" + nameOrPath + "' is neither h200, h100 nor a readable file (" +
           buffer.getError().message() + ")")
              .str();
  if (StringRef near = attn::nearestName(nameOrPath, {"h200", "h100"}); !near.empty())
    error += "; did you mean '" + near.str() + "'?";
  return std::nullopt;
}
