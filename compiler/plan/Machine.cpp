//===- Machine.cpp - Machine descriptions -----------------------------------===//
#include "compiler/plan/Machine.h"
#include "dialects/attn/Attn.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include <cmath>

using namespace cfc;
using llvm::StringRef;
using llvm::Twine;

int64_t Machine::largestCluster(int64_t ctasPerSm) const {
  for (int64_t size : {16, 8, 4, 2, 1})
    if (resident(size, ctasPerSm) > 0)
      return size;
  return 0;
}

int64_t Machine::resident(int64_t size, int64_t ctasPerSm) const {
  auto bySize = residentClusters.find(ctasPerSm);
  if (bySize == residentClusters.end())
    return 0;
  auto clusters = bySize->second.find(size);
  if (clusters == bySize->second.end())
    return 0;
  return smsLimit ? std::min(clusters->second, smsLimit / size) : clusters->second;
}

int64_t Machine::sharedLimit(int64_t ctasPerSm) const {
  return std::min(sharedBytes, sharedBytesPerSm / ctasPerSm - sharedReserved) / 128 * 128;
}

//===-- Fields ------------------------------------------------------------===//

namespace {
/// A number of a description. The first few are integers.
struct Field {
  StringRef name, meaning;
  int64_t Machine::*integer = nullptr;
  double Machine::*real = nullptr;
  bool optional = false; ///< 0, and absent, where it does not hold

  Field(StringRef name, int64_t Machine::*integer, StringRef meaning, bool optional = false)
      : name(name), meaning(meaning), integer(integer), optional(optional) {}
  Field(StringRef name, double Machine::*real, StringRef meaning)
      : name(name), meaning(meaning), real(real) {}
  double of(const Machine &machine) const { return real ? machine.*real : double(machine.*integer); }
};
} // namespace

static const Field kFields[] = {
    {"sms", &Machine::sms, "streaming multiprocessors"},
    {"sms_limit", &Machine::smsLimit, "use at most so many of them", /*optional=*/true},
    {"registers_per_sm", &Machine::registersPerSm, "32-bit registers of an SM"},
    {"shared_bytes", &Machine::sharedBytes, "shared memory of a CTA at most"},
    {"shared_bytes_per_sm", &Machine::sharedBytesPerSm, "shared memory of an SM"},
    {"shared_reserved", &Machine::sharedReserved, "of it for each CTA by the driver"},
    {"bandwidth", &Machine::bandwidth, "bytes a second by copies of long runs"},
    {"box_bandwidth", &Machine::boxBandwidth, "by copies of boxes whose rows lie apart"},
    {"sm_bandwidth", &Machine::smBandwidth, "of one SM alone"},
    {"memory_us", &Machine::memoryUs, "from the start of a copy to its arrival, under load"},
    {"air_bytes", &Machine::airBytes, "of all copies at a time that keep the memory busy"},
    {"crowd", &Machine::crowd, "how much slower the memory is with twice as many"},
    {"copy_ns", &Machine::copyNs, "between the starts of two copies of an SM"},
    {"box_ns", &Machine::boxNs, "the same where boxes of less than 64 rows lie in one of several weights"},
    {"blend", &Machine::blend, "how sharply the slowest of a stream's limits wins: the exponent of a norm"},
    {"tile_ns", &Machine::tileNs, "a set of 4 consumer warps waits for a ring tile and frees it"},
    {"block_ns", &Machine::blockNs, "it multiplies 64 rows of 16 columns"},
    {"sum_tile_ns", &Machine::sumTileNs, "it leaves 64 partial sums of the grid"},
    {"segment_ns", &Machine::segmentNs, "it attends to 64 tokens, products apart"},
    {"segment_block_ns", &Machine::segmentBlockNs, "their products, for each 16 dims"},
    {"group_ns", &Machine::groupNs, "it merges a group of segments"},
    {"set_share", &Machine::setShare, "part of an SM's time that a busy set takes"},
    {"sets_us", &Machine::setsUs, "what a norm, an exchange and a new token take more for each further set"},
    {"launch_us", &Machine::launchUs,
     "from a kernel's end until the next one's threads may read its results"},
    {"launch_end_us", &Machine::launchEndUs, "the same where it starts as that one's CTAs end (pdl = 3)"},
    {"launch_pdl_us", &Machine::launchPdlUs, "the same where it waits on free SMs (pdl = 1 or 2)"},
    {"pdl_crowded", &Machine::pdlCrowded,
     "what streams of a layer of one launch take more if it finds no room for an early start"},
    {"end_us", &Machine::endUs, "in which a launch leaves the memory idle to another that starts early"},
    {"tail_us", &Machine::tailUs,
     "what the next launch makes up for at most of rounds in which clusters have no item left"},
    {"early_us", &Machine::earlyUs, "what a launch takes more where half of the next one's CTAs find room"},
    {"cooperative_us", &Machine::cooperativeUs,
     "what a cooperative launch, and the one behind it, take more"},
    {"grid_sync_us", &Machine::gridSyncUs,
     "from the last CTA's arrival at a barrier of the grid until all have read what it wrote"},
    {"norm_us", &Machine::normUs, "a norm of the input"},
    {"norm_column_ns", &Machine::normColumnNs, "and for each column, with 4 consumer warps"},
    {"elements_us", &Machine::elementsUs, "an operation on elements"},
    {"attend_new_us", &Machine::attendNewUs, "the appended token, and the division by the softmax's sum"},
    {"finish_us", &Machine::finishUs, "from the last partial sum until the last CTA has finished the sum"},
    {"waiting_us", &Machine::waitingUs, "the same where several clusters have waited for it"},
    {"sum_bandwidth", &Machine::sumBandwidth, "bytes a second of partial sums that a CTA reads"},
    {"state_bandwidth", &Machine::stateBandwidth, "the same of softmaxes of a head's chunks"},
    {"token_bandwidth", &Machine::tokenBandwidth, "bytes a second of several tokens' rows that a CTA reads"},
    {"atomic_rate", &Machine::atomicRate, "atomic sums a second"},
    {"push_us", &Machine::pushUs, "an exchange of two CTAs by push, alone"},
    {"async_us", &Machine::asyncUs, "by async"},
    {"bulk_us", &Machine::bulkUs, "by bulk"},
    {"scatter_us", &Machine::scatterUs, "by scatter, its two rounds together"},
    {"round_us", &Machine::roundUs, "a round of a butterfly behind the first"},
    {"peer_us", &Machine::peerUs, "more for each further peer"},
    {"peer_bandwidth", &Machine::peerBandwidth, "bytes a second that a CTA sends to its peers"},
    {"merge_bandwidth", &Machine::mergeBandwidth, "bytes a second that it merges"},
    {"load_us", &Machine::loadUs,
     "what an exchange of two takes more while copies are under way, and each time that they are twice as "
     "many"},
    {"skew", &Machine::skew, "part of a stream's time that the slowest CTA is later than others"}};

std::string Machine::toJson() const {
  std::string text;
  llvm::raw_string_ostream stream(text);
  llvm::json::OStream out(stream, 2);
  out.object([&] {
    out.attribute("name", name);
    if (!about.empty())
      out.attribute("about", about);
    for (const Field &field : kFields) {
      if (field.real)
        out.attribute(field.name, this->*field.real);
      else if (!field.optional || this->*field.integer)
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

std::string Machine::describe() const {
  std::string text;
  llvm::raw_string_ostream out(text);
  for (const Field &field : kFields)
    if (double value = field.of(*this); value || !field.optional)
      out << llvm::format("  %-20s %9g  %s\n", field.name.data(), value, field.meaning.data());
  return text;
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

static bool setText(std::string &to, StringRef key, const llvm::json::Value &value, std::string &why) {
  std::optional<StringRef> text = value.getAsString();
  if (!text || text->empty())
    return why = ("'" + key + "' needs a string").str(), false;
  to = text->str();
  return true;
}

static bool setKey(Machine &machine, StringRef key, const llvm::json::Value &value, std::string &why) {
  if (key == "name")
    return setText(machine.name, key, value, why);
  if (key == "about")
    return setText(machine.about, key, value, why);
  if (key == "resident_clusters")
    return setClusters(machine, value, why);
  llvm::SmallVector<StringRef> known = {"name", "about", "resident_clusters"};
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

/// No more CTAs are resident than the SMs hold.
static bool checkClusters(const Machine &machine, std::string &why) {
  for (const auto &[ctas, sizes] : machine.residentClusters)
    for (auto [size, clusters] : sizes)
      if (clusters > machine.sms * ctas / size) {
        why = llvm::formatv(
            "'resident_clusters' has {0} clusters of size {1} at ctas_per_sm = {2}; {3} SMs hold "
            "{4} at most",
            clusters, size, ctas, machine.sms, machine.sms * ctas / size);
        return false;
      }
  return true;
}

/// Reads a description over `machine`. On failure `wrong` is the field that is wrong, if one is.
static bool readMachine(Machine &machine, StringRef json, std::string &why, std::string &wrong) {
  llvm::Expected<llvm::json::Value> root = llvm::json::parse(json);
  if (!root)
    return why = "no JSON: " + llvm::toString(root.takeError()), false;
  const llvm::json::Object *object = root->getAsObject();
  if (!object)
    return why = "a machine description is a JSON object", false;
  for (StringRef required : {"name", "sms", "bandwidth", "resident_clusters"})
    if (!object->get(required))
      return why = ("'" + required + "' is missing").str(), false;
  machine.about.clear();
  // Boxes are slower by as much as on the machine below, unless it says otherwise.
  double boxes = machine.bandwidth ? machine.boxBandwidth / machine.bandwidth : 0;
  for (const auto &[key, value] : *object)
    if (!setKey(machine, key, value, why))
      return wrong = StringRef(key).str(), false;
  if (!object->get("box_bandwidth"))
    machine.boxBandwidth = boxes * machine.bandwidth;
  if (!checkClusters(machine, why))
    wrong = "resident_clusters";
  else if (machine.sharedLimit(1) < 16384)
    wrong = "shared_bytes",
    why = ("'shared_bytes' is " + Twine(machine.sharedBytes) + "; a CTA needs at least 16384").str();
  return why.empty();
}

//===-- Known machines ------------------------------------------------------===//

static constexpr struct {
  llvm::StringLiteral name, json;
} kKnown[] = {
#include "KnownMachines.inc"
};

std::vector<std::string> cfc::knownMachineNames() {
  std::vector<std::string> names;
  for (const auto &known : kKnown)
    names.push_back(known.name.str());
  return names;
}

std::optional<Machine> cfc::knownMachine(StringRef name) {
  for (const auto &known : kKnown) {
    if (known.name != name)
      continue;
    Machine machine;
    if (name != "h200")
      machine = *knownMachine("h200");
    std::string why, wrong;
    if (!readMachine(machine, known.json, why, wrong))
      llvm::reportFatalInternalError("templates/machines/" + name + ".json: " + why);
    return machine;
  }
  return std::nullopt;
}

/// ":3:5", where a field's name stands in a description; "" if it does not. LLVM's values do not know.
static std::string placeOf(StringRef json, StringRef field) {
  std::string quoted = ("\"" + field + "\"").str();
  for (size_t at = json.find(quoted); at != StringRef::npos; at = json.find(quoted, at + 1)) {
    if (!json.drop_front(at + quoted.size()).ltrim().starts_with(":"))
      continue; // a text that says the same
    StringRef before = json.take_front(at);
    return llvm::formatv(":{0}:{1}", before.count('\n') + 1,
                         at - (before.rfind('\n') + 1) + 1); // npos + 1: 0
  }
  return "";
}

std::optional<Machine> cfc::parseMachine(StringRef json, StringRef file, std::string &error) {
  Machine machine = *knownMachine("h200");
  std::string why, wrong;
  if (readMachine(machine, json, why, wrong))
    return machine;
  error = (file + placeOf(json, wrong) + ": error: " + why).str();
  return std::nullopt;
}

std::optional<Machine> cfc::loadMachine(StringRef nameOrPath, std::string &error) {
  if (std::optional<Machine> known = knownMachine(nameOrPath))
    return known;
  auto buffer = llvm::MemoryBuffer::getFile(nameOrPath, /*IsText=*/true);
  if (buffer && !llvm::sys::fs::is_directory(nameOrPath))
    return parseMachine((*buffer)->getBuffer(), nameOrPath, error);
  std::vector<std::string> names = knownMachineNames();
  error =
      ("error: machine '" + nameOrPath + "' is neither " + llvm::join(names, ", ") + " nor a readable file")
          .str();
  if (!buffer)
    error += " (" + buffer.getError().message() + ")";
  llvm::SmallVector<StringRef> known(names.begin(), names.end());
  if (StringRef near = attn::nearestName(nameOrPath, known); !near.empty())
    error += "; did you mean '" + near.str() + "'?";
  return std::nullopt;
}
