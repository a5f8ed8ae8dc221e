//===- VerifyInputs.cpp - The inputs of each case --------------------------===//
//
// What verify gives a program: lengths that differ among requests, slots behind
// them, positions that differ from both, and caches whose other rows are NaN.
//
//===----------------------------------------------------------------------===//
#include "tools/lib/Failure.h"
#include "tools/lib/Pack.h"
#include "tools/lib/Queries.h"
#include "tools/lib/Verify.h"
#include <algorithm>
#include <cstring>

using namespace cfc;

int64_t cfc::positionsOf(attn::GraphOp graph) {
  int64_t positions = INT32_MAX;
  graph.getBody().walk([&](attn::RopeOp op) {
    positions = std::min<int64_t>(positions, op.getTable().getType().getDimSize(0));
  });
  return positions;
}

/// The lengths that the command line gives, by the names of their tensors.
static TensorMap givenLengths(const std::vector<InputSpec> &specs, const InputOptions &given, uint64_t seed) {
  std::vector<InputSpec> found;
  InputOptions options;
  for (const std::string &text : given.inputs) {
    std::vector<std::string> name = namedInputs({{text}, ""});
    for (const InputSpec &spec : specs)
      if (spec.role == DataRole::Length && !name.empty() && name[0] == spec.name) {
        found.push_back(spec);
        options.inputs.push_back(text);
      }
  }
  return found.empty() ? TensorMap() : resolveInputs(found, options, {seed, 0, 0});
}

/// Tokens that the smallest cache has room for.
int64_t Verifier::capacity() const {
  int64_t tokens = INT64_MAX;
  for (const InputSpec &spec : specs)
    if (spec.isCache() && spec.page && !spec.pages)
      badInput("",
               "{}: has pages, but no attention reads it with a block table: which pages are a request's is "
               "not known, so there is nothing to verify",
               spec.name);
    else if (spec.isCache())
      tokens = std::min(tokens, spec.page ? spec.page * spec.pages
                                          : CacheLayout(spec, fixed.at(spec.name + ".k")).tokens);
  return tokens;
}

/// A slot that the user does not give is that of a row behind the length: there must be one, else the
/// request would be idle, and an idle request shows nothing.
void Verifier::requireRoom() {
  bool hasSlot = std::any_of(specs.begin(), specs.end(), [&](const InputSpec &spec) {
    return spec.role == DataRole::Slot && std::find(named.begin(), named.end(), spec.name) == named.end();
  });
  if (!hasSlot)
    return;
  mustAppend = true;
  int64_t tokens = capacity();
  if (!options.lengthsGiven && !lengthIsNamed)
    std::erase_if(cases, [&](int64_t length) { return length >= tokens; });
  for (int64_t length : cases)
    if (std::clamp<int64_t>(length, 0, bound) >= tokens)
      badInput("",
               "the given cache has room for {} tokens: none is left for the new one behind a length of {}",
               tokens, length);
}

/// The only case is what was captured, as it is.
void Verifier::replayInputs() {
  options.replay->requireFit(plain.graph, graph.getSymName().str(), source.path);
  fixed = options.replay->inputs(specs, options.inputs.weights);
  for (auto &[name, tensor] : fixed) {
    tensor = inLayout(tensor, std::nullopt);
    named.push_back(name);
  }
  cases = {0};
  for (const InputSpec &spec : specs)
    if (spec.role == DataRole::Length) {
      bound = std::min(bound, spec.bound.value_or(INT32_MAX));
      const Tensor &lengths = fixed.at(spec.name);
      for (int64_t i = 0; i < lengths.elements(); ++i)
        cases[0] = std::max(cases[0], int64_t(lengths.get(i)));
    }
  uploadUnchanging();
}

void Verifier::uploadUnchanging() {
  TensorMap same;
  for (const InputSpec &spec : specs)
    if (!spec.changesByCase())
      same[spec.name] = fixed.at(spec.name);
  unchanging.upload(same, plain.graph);
  if (deviceReference)
    unchanging.upload(same); // it reads native weights
}

void Verifier::makeInputs() {
  specs = inputSpecs(*source.module, plain.graph);
  if (options.replay)
    return replayInputs();
  std::string lengthName;
  for (const InputSpec &spec : specs)
    if (spec.role == DataRole::Length) {
      bound = std::min(bound, spec.bound.value_or(INT32_MAX));
      lengthName = spec.name;
    }
  for (int64_t length : options.lengths) {
    if (options.lengthsGiven && (length < 0 || length > bound))
      badInput("", "--len={}: this graph's lengths go from 0 to {}", length, bound);
    cases.push_back(length);
  }
  bool hasLength = !lengthName.empty();
  if (!options.lengthsGiven)
    std::erase_if(cases, [&](int64_t length) { return length > bound; });
  if (!hasLength)
    cases = {0}; // nothing depends on a length
  named = namedInputs(options.inputs);
  lengthIsNamed = std::find(named.begin(), named.end(), lengthName) != named.end();
  if (lengthIsNamed && options.lengthsGiven)
    badInput("", "--len and --input {} both give the lengths", lengthName);
  TensorMap lengths = givenLengths(specs, options.inputs, options.seed);
  if (lengthIsNamed) {
    const Tensor &given = lengths.at(lengthName);
    cases = {int64_t(given.get(0))};
    for (int64_t i = 1; i < given.elements(); ++i)
      cases[0] = std::max(cases[0], int64_t(given.get(i)));
  }
  int64_t longest = *std::max_element(cases.begin(), cases.end());
  for (auto &[name, tensor] : lengths)
    for (int64_t i = 0; i < tensor.elements(); ++i)
      longest = std::max(longest, int64_t(tensor.get(i)));
  InputOptions inputs = options.inputs;
  if (std::find(inputs.inputs.begin(), inputs.inputs.end(), "random") == inputs.inputs.end())
    inputs.inputs.push_back("random");
  // Rows behind the largest length, so that slots can differ from lengths.
  int64_t behind = 4;
  for (const InputSpec &spec : specs)
    behind = std::max(behind, spec.rows + 3);
  fixed = resolveInputs(specs, inputs, {options.seed, 0, std::clamp<int64_t>(longest, 0, bound) + behind});
  for (auto &[name, tensor] : fixed)
    tensor = inLayout(tensor, std::nullopt); // as the reference reads it
  requireRoom();
  uploadUnchanging();
}

/// Tokens of request `r` in a case of `length`: of several requests one has none, and others fewer.
static int64_t raggedLength(int64_t r, int64_t length) {
  int64_t candidates[] = {length - r / 4, 0, length / 2 + r / 4, length - 17};
  return std::clamp<int64_t>(candidates[r % 4], 0, length);
}

/// Whether request `r` is idle where verify chooses slots.
static bool isIdle(int64_t r) { return r % 5 == 4; }

/// Row `i` of what has a query token for each.
static attn::QueryRow rowOf(const InputSpec &spec, const TensorMap &inputs, int64_t i) {
  if (spec.queries.empty())
    return {i, i, 1, 0};
  return attn::queryRow(startsOf(inputs.at(spec.queries)), spec.rows, i);
}

/// Whether request `r` of a cache has a token that attends it, where verify chooses slots or not.
bool Verifier::hasQuery(const InputSpec &cache, const TensorMap &inputs, int64_t r, bool choosesSlots) const {
  if (!cache.rows)
    return !choosesSlots || !isIdle(r);
  for (const InputSpec &spec : specs)
    if (spec.role == DataRole::Starts && spec.rows == cache.rows)
      for (int64_t i = 0; i < cache.rows; ++i)
        if (rowOf(spec, inputs, i).request == r && !(choosesSlots && isIdle(i)))
          return true;
  return false;
}

/// Which rows are whose differs from case to case, and so do the trees.
void Verifier::drawQueries(TensorMap &inputs, size_t index) const {
  auto isGiven = [&](const InputSpec &spec) {
    return std::find(named.begin(), named.end(), spec.name) != named.end();
  };
  uint64_t seed = options.seed + 1000 * (index + 1);
  for (const InputSpec &spec : specs) {
    if (spec.role != DataRole::Starts || isGiven(spec))
      continue;
    inputs.at(spec.name) = startsTensor(spec.type, drawnStarts(spec.requests, spec.rows, seed));
  }
  for (const InputSpec &spec : specs) {
    if (spec.role != DataRole::Mask || isGiven(spec))
      continue;
    inputs.at(spec.name) = treesTensor(startsOf(inputs.at(spec.queries)), spec.rows, seed);
  }
}

/// An element of a cache that no kernel may read: NaN.
static void poison(std::byte *row, int64_t bytes, DType type) {
  std::vector<uint16_t> pattern(size_t(bytes + 1) / 2, 0x7ffb);
  if (sizeOf(type) == 1)
    std::fill(pattern.begin(), pattern.end(), uint16_t(0x7f7f));
  std::memcpy(row, pattern.data(), size_t(bytes));
}

/// The block and token of token `t` of request `r`.
static std::pair<int64_t, int64_t> placeOf(const InputSpec &cache, const TensorMap &inputs, int64_t r,
                                           int64_t t) {
  if (!cache.page)
    return {r, t};
  const Tensor &table = inputs.at(cache.table);
  return {int64_t(table.get(r * table.shape.at(1) + t / cache.page)), t % cache.page};
}

/// The first token of a cache that an attention may read, of a request with that many.
static int64_t firstUsed(attn::GraphOp graph, const std::string &cache, int64_t tokens) {
  int64_t first = tokens;
  graph.getBody().walk([&](attn::AttentionOp op) {
    attn::KvAppendOp append = op.getAppend();
    if (attn::getValueName(append ? append.getCache() : op.getCache()) != cache)
      return;
    int64_t window = op.getWindow() ? std::min<int64_t>(*op.getWindow(), INT32_MAX) : INT32_MAX;
    if (op.getQueries() && !append) // the first of the query tokens
      window += op.getQ().getType().getDimSize(0) - 1;
    first = std::min(first, std::max<int64_t>(tokens + (append ? 1 : 0) - window, 0));
  });
  return first;
}

/// A copy, because the program appends to it. What lies behind the lengths must not be read: it is NaN.
Tensor Verifier::poisonedCache(const InputSpec &spec, const std::string &name, const TensorMap &inputs,
                               const std::vector<int64_t> &used) const {
  const Tensor &source = fixed.at(name);
  Tensor copy(source.type, source.shape);
  std::memcpy(copy.mutableData(), source.data(), source.bytes());
  auto isNamed = [&](const std::string &one) {
    return std::find(named.begin(), named.end(), one) != named.end();
  };
  if (isNamed(name) || isNamed(spec.name))
    return copy;
  CacheLayout layout(spec, source);
  std::vector<bool> isUsed(size_t(layout.blocks * layout.tokens));
  for (size_t r = 0; r < used.size(); ++r)
    for (int64_t t = firstUsed(graph, spec.name, used[r]);
         t < (spec.page ? used[r] : std::min(used[r], layout.tokens)); ++t) {
      auto [block, token] = placeOf(spec, inputs, int64_t(r), t);
      if (block >= 0 && block < layout.blocks) // else the user's table leads out of the pool
        isUsed[size_t(block * layout.tokens + token)] = true;
    }
  for (size_t i = 0; i < isUsed.size(); ++i)
    for (int64_t head = 0; head < spec.heads && !isUsed[i]; ++head)
      poison(copy.mutableData() + layout.at(int64_t(i) / layout.tokens, head, int64_t(i) % layout.tokens),
             layout.row, source.type);
  return copy;
}

TensorMap Verifier::caseInputs(size_t index) const {
  TensorMap inputs = fixed;
  int64_t length = cases[index];
  // In every other case position, slot and length differ, so that none can be taken for another.
  int64_t shift = index % 2;
  auto isNamed = [&](const std::string &name) {
    return std::find(named.begin(), named.end(), name) != named.end();
  };
  auto set = [&](const std::string &name, auto value) {
    Tensor tensor(inputs.at(name).type, inputs.at(name).shape);
    for (int64_t i = 0; i < tensor.elements(); ++i)
      tensor.set(i, double(value(i)));
    inputs.at(name) = tensor;
  };
  for (const InputSpec &spec : specs)
    if (spec.role == DataRole::Length && !isNamed(spec.name))
      set(spec.name, [&](int64_t r) { return raggedLength(r, length); });
  // A given length may be out of bound.
  auto used = [&](int64_t r) {
    for (const InputSpec &spec : specs)
      if (spec.role == DataRole::Length)
        return std::clamp<int64_t>(int64_t(inputs.at(spec.name).get(r)), 0, bound);
    return std::clamp<int64_t>(length, 0, bound);
  };
  drawQueries(inputs, index);
  bool choosesSlots = false;
  for (const InputSpec &spec : specs) {
    if (spec.isCache() || isNamed(spec.name))
      continue;
    if (spec.role == DataRole::Slot) {
      choosesSlots = true;
      set(spec.name, [&](int64_t i) -> int64_t {
        attn::QueryRow row = rowOf(spec, inputs, i);
        if (row.request < 0)
          return -7; // nobody looks at it
        if (isIdle(i))
          return -1;
        int64_t behind = used(row.request) + 2 * shift + row.index;
        if (behind >= capacity() && row.count > 1)
          return -1;
        auto [block, token] = placeOf(spec, inputs, row.request, std::min(behind, capacity() - 1));
        return spec.page ? block * spec.page + token : token;
      });
    } else if (spec.role == DataRole::Position) {
      set(spec.name, [&](int64_t i) {
        attn::QueryRow row = rowOf(spec, inputs, i);
        int64_t position = row.request < 0 ? 0 : used(row.request) + 3 * shift + row.index;
        return std::min(position, positionsOf(graph) - 1);
      });
    }
  }
  for (const InputSpec &spec : specs) {
    if (!spec.isCache())
      continue;
    std::vector<int64_t> rows;
    for (int64_t r = 0; r < spec.requests; ++r)
      rows.push_back(hasQuery(spec, inputs, r, choosesSlots) ? used(r) : 0);
    for (const std::string &name : {spec.name + ".k", spec.name + ".v"})
      inputs.at(name) = poisonedCache(spec, name, inputs, rows);
  }
  return inputs;
}

static attn::HostTensor hostTensor(const Tensor &tensor) {
  attn::HostTensor host;
  host.dtype = *parseElementKind(nameOf(tensor.type));
  host.shape.assign(tensor.shape.begin(), tensor.shape.end());
  host.data = tensor.data();
  return host;
}

attn::ReferenceInputs cfc::referenceInputs(const std::vector<InputSpec> &specs, const TensorMap &inputs) {
  attn::ReferenceInputs result;
  for (const InputSpec &spec : specs) {
    if (!spec.isCache()) {
      result.tensors[spec.name] = hostTensor(inputs.at(spec.name));
      continue;
    }
    const Tensor &k = inputs.at(spec.name + ".k"), &v = inputs.at(spec.name + ".v");
    CacheLayout ofK(spec, k), ofV(spec, v);
    attn::HostCache cache;
    cache.k = k.data();
    cache.v = v.data();
    cache.capacity = ofK.tokens;
    cache.strideToken = ofK.strideToken;
    cache.strideHead = ofK.strideHead;
    cache.strideBlock = ofK.strideBlock;
    cache.blocks = ofK.blocks;
    cache.vStrideToken = ofV.strideToken;
    cache.vStrideHead = ofV.strideHead;
    cache.vStrideBlock = ofV.strideBlock;
    result.caches[spec.name] = cache;
  }
  return result;
}
