//===- CaptureFile.cpp - What a captured launch's file holds ----------------===//
//
// Addresses and strides come from the table in the device's memory: what kernels read, whatever the host
// thinks is bound. Of a cache only rows below the lengths are copied, and nothing that an engine may have
// left unmapped behind them.
//
//===----------------------------------------------------------------------===//
#include "runtime/src/CaptureFile.h"
#include "runtime/src/Bundle.h"
#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

namespace cfc::runtime {

using Json = nlohmann::ordered_json;

/// Bytes that are copied to the host at a time.
static constexpr uint64_t kPieceBytes = uint64_t(8) << 20;

/// As safetensors spells it.
static std::string storedName(cfc_dtype dtype) {
  std::string text = name(dtype);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return char(std::toupper(c)); });
  return text == "F8E4M3FN" ? "F8_E4M3" : text;
}

/// Bytes of a block of CaptureDigest.
static constexpr size_t kDigestBlock = size_t(1) << 20;

void CaptureDigest::block(std::string_view bytes) {
  uint64_t words[] = {chain, digest64(bytes)};
  chain = digest64({reinterpret_cast<const char *>(words), sizeof words});
}

void CaptureDigest::add(std::string_view bytes) {
  while (!bytes.empty()) {
    if (pending.empty() && bytes.size() >= kDigestBlock) {
      block(bytes.substr(0, kDigestBlock));
      bytes.remove_prefix(kDigestBlock);
      continue;
    }
    size_t count = std::min(bytes.size(), kDigestBlock - pending.size());
    pending += bytes.substr(0, count);
    bytes.remove_prefix(count);
    if (pending.size() == kDigestBlock) {
      block(pending);
      pending.clear();
    }
  }
}

uint64_t CaptureDigest::finish() {
  block(pending);
  return chain;
}

uint64_t CaptureFile::Item::bytes() const {
  uint64_t count = elementBytes;
  for (int64_t extent : shape)
    count *= uint64_t(extent);
  return count;
}

CaptureFile::CaptureFile(const CapturedLaunch &launch, bool weights) : launch(launch), weights(weights) {
  readTable();
  for (size_t i = 0; i < bound.size(); ++i) {
    const TensorSpec &spec = launch.graph.tensors[i];
    if (spec.kind == TensorKind::KvCache)
      addCache(spec, bound[i]);
    else if (spec.role != Role::Output && (weights || spec.role != Role::Weight))
      addTensor(spec, bound[i]);
  }
  // Large elements first, so that all are aligned.
  std::stable_sort(items.begin(), items.end(),
                   [](const Item &a, const Item &b) { return a.elementBytes > b.elementBytes; });
}

uint64_t CaptureFile::bytes() const {
  uint64_t sum = 0;
  for (const Item &item : items)
    sum += item.bytes();
  return sum;
}

//===----------------------------------------------------------------------===//
// What is bound and in use
//===----------------------------------------------------------------------===//

static uint64_t *fieldOf(BoundTensor &tensor, Field field) {
  switch (field) {
  case Field::Pointer:
    return &tensor.data;
  case Field::KPointer:
    return &tensor.k;
  case Field::VPointer:
    return &tensor.v;
  case Field::StrideHead:
    return &tensor.strideHead;
  case Field::StrideToken:
    return &tensor.strideToken;
  case Field::Capacity:
    return &tensor.capacity;
  case Field::StrideBlock:
    return &tensor.strideBlock;
  case Field::Blocks:
    return &tensor.blocks;
  case Field::VStrideHead:
    return &tensor.vStrideHead;
  case Field::VStrideToken:
    return &tensor.vStrideToken;
  case Field::VStrideBlock:
    return &tensor.vStrideBlock;
  }
  return nullptr;
}

void CaptureFile::readTable() {
  const GraphSpec &graph = launch.graph;
  std::vector<uint64_t> values(graph.table.size());
  if (!values.empty())
    launch.readMemory(values.data(), launch.table + kTableHeaderBytes, values.size() * kTableEntryBytes);
  bound.resize(graph.tensors.size());
  for (size_t i = 0; i < values.size(); ++i)
    *fieldOf(bound[graph.table[i].tensor], graph.table[i].field) = values[i];
  for (size_t i = 0; i < bound.size(); ++i)
    if (graph.tensors[i].dimOfV() == graph.tensors[i].dim) { // then the table does not say it
      bound[i].vStrideHead = bound[i].strideHead;
      bound[i].vStrideToken = bound[i].strideToken;
      bound[i].vStrideBlock = bound[i].strideBlock;
    }
}

/// The elements of a list or table of integers.
std::vector<int64_t> CaptureFile::integers(const std::string &tensor) const {
  for (size_t i = 0; i < bound.size(); ++i) {
    const TensorSpec &spec = launch.graph.tensors[i];
    if (spec.name != tensor)
      continue;
    std::string bytes(rowOrTensorBytes(spec), 0);
    launch.readMemory(bytes.data(), bound[i].data, bytes.size());
    size_t size = elementBytes(spec.dtype);
    std::vector<int64_t> values(bytes.size() / size);
    for (size_t j = 0; j < values.size(); ++j) {
      int32_t narrow = 0;
      std::memcpy(size == 4 ? static_cast<void *>(&narrow) : &values[j], &bytes[j * size], size);
      if (size == 4)
        values[j] = narrow;
    }
    return values;
  }
  fail(CFC_INTERNAL_ERROR, "there is no tensor '{}'", tensor);
}

/// What attentions may read of a cache, block by block, ascending; and the pages that slots lead to, even if
/// no row of them is read. Values that are out of bound count as the kernels count them.
std::vector<CaptureFile::Run> CaptureFile::usedRows(const TensorSpec &cache, const BoundTensor &bound) const {
  uint64_t blockTokens = cache.page ? cache.page : bound.capacity;
  std::map<uint64_t, uint64_t> used;
  auto use = [&](uint64_t block, uint64_t count) {
    uint64_t &most = used[block];
    most = std::max(most, std::min(count, blockTokens));
  };
  bool known = !cache.lengths.empty() && (!cache.page || !cache.blockTable.empty());
  if (!known) // all of it
    for (uint64_t block = 0; block < bound.blocks; ++block)
      use(block, blockTokens);
  std::vector<int64_t> lengths, table;
  int64_t most = int64_t(bound.capacity);
  if (known) {
    lengths = integers(cache.lengths);
    for (const TensorSpec &spec : launch.graph.tensors)
      if (spec.name == cache.lengths)
        most = std::min(most, spec.bound.value_or(most));
    if (cache.page)
      table = integers(cache.blockTable);
  }
  size_t columns = lengths.empty() ? 0 : table.size() / lengths.size();
  for (size_t r = 0; r < lengths.size(); ++r) {
    int64_t length = std::clamp<int64_t>(lengths[r], 0, most);
    if (!cache.page && r < bound.blocks)
      use(r, length);
    for (size_t j = 0; j < columns && int64_t(j) * cache.page < length; ++j) {
      int64_t last = int64_t(bound.blocks) - 1, page = table[r * columns + j];
      use(std::clamp<int64_t>(page, 0, last), length - int64_t(j) * cache.page);
    }
  }
  if (cache.page && !cache.slots.empty())
    for (int64_t slot : integers(cache.slots))
      if (slot >= 0 && uint64_t(slot) / blockTokens < bound.blocks)
        use(uint64_t(slot) / blockTokens, 0);
  std::vector<Run> runs;
  for (auto [block, count] : used)
    if (count || cache.page)
      runs.push_back({block, count});
  return runs;
}

void CaptureFile::addTensor(const TensorSpec &spec, const BoundTensor &bound) {
  Item &item =
      items.emplace_back(Item{spec.name, storedName(spec.dtype), {}, elementBytes(spec.dtype), bound.data});
  item.shape = spec.shape;
  if (spec.layout != Layout::Packed)
    return;
  item.packed = spec.packed();
  item.shape = {item.packed->rowBlocks(), item.packed->columnBlocks(), PackedLayout::kBlock,
                PackedLayout::kBlock};
}

void CaptureFile::addCache(const TensorSpec &spec, const BoundTensor &bound) {
  std::vector<Run> runs = usedRows(spec, bound);
  uint64_t tokens = 0;
  std::vector<int64_t> list;
  for (const Run &run : runs) {
    tokens += run.count;
    list.insert(list.end(), {int64_t(run.block), int64_t(run.count)});
  }
  Item rows = {spec.name + ".rows", "I64", {int64_t(runs.size()), 2}, 8};
  rows.content.assign(reinterpret_cast<const char *>(list.data()), list.size() * 8);
  uint64_t heads = spec.heads, size = elementBytes(spec.dtype);
  Item k = {spec.name + ".k", storedName(spec.dtype), {int64_t(tokens), spec.heads, spec.dim}, size};
  Item v = {spec.name + ".v", storedName(spec.dtype), {int64_t(tokens), spec.heads, spec.dimOfV()}, size};
  k.rows = {bound.k, spec.dim * size, heads, bound.strideHead, bound.strideToken, bound.strideBlock, runs};
  v.rows = {bound.v, spec.dimOfV() * size, heads, bound.vStrideHead, bound.vStrideToken, bound.vStrideBlock,
            runs};
  items.insert(items.end(), {rows, k, v});
  uint64_t all = spec.page ? bound.blocks * spec.page : bound.blocks * bound.capacity;
  cacheSummary +=
      fmt::format("{}{} of {} rows of '{}'", cacheSummary.empty() ? "" : ", ", tokens, all, spec.name);
}

//===----------------------------------------------------------------------===//
// The file
//===----------------------------------------------------------------------===//

static Json stridesJson(const BoundTensor &cache) {
  return {{"capacity", cache.capacity},           {"blocks", cache.blocks},
          {"stride_head", cache.strideHead},      {"stride_token", cache.strideToken},
          {"stride_block", cache.strideBlock},    {"v_stride_head", cache.vStrideHead},
          {"v_stride_token", cache.vStrideToken}, {"v_stride_block", cache.vStrideBlock}};
}

/// What replaying needs to know, as JSON text.
std::string CaptureFile::metadata() const {
  Manifest excerpt = launch.manifest;
  excerpt.graphs = {launch.graph};
  excerpt.graphs[0].variants = {launch.variant};
  excerpt.graphs[0].variants[0].when = {}; // it ran
  if (excerpt.target.empty())
    excerpt.target = "unknown";
  Json json = {
      {"format", kCaptureFormat},
      {"graph_digest", launch.graphText.empty() ? "" : digestText(launch.graphText)},
      {"hints", {{"length", launch.lengthHint}, {"batch", launch.batchHint}, {"max_sms", launch.maxSms}}},
      {"weights", weights},
      {"caches", Json::object()},
      {"manifest", Json::parse(toJson(excerpt))}};
  for (size_t i = 0; i < bound.size(); ++i)
    if (launch.graph.tensors[i].kind == TensorKind::KvCache)
      json["caches"][launch.graph.tensors[i].name] = stridesJson(bound[i]);
  return json.dump();
}

/// The length and the header of the file.
std::string CaptureFile::header() const {
  std::vector<HeaderEntry> entries;
  for (const Item &item : items)
    entries.push_back({item.name, item.dtype, item.shape, item.bytes(), item.packed});
  entries.push_back({kCaptureDigestName, "I64", {1}, 8});
  return safetensorsHeader(entries, {{kCaptureKey, metadata()}});
}

void CaptureFile::write(const ContentWriter &write) const {
  write(header());
  CaptureDigest digest;
  ContentWriter both = [&](std::string_view piece) {
    digest.add(piece);
    write(piece);
  };
  for (const Item &item : items) {
    if (item.rows)
      writeRows(*item.rows, both);
    else if (item.address)
      writeMemory(item.address, item.bytes(), both);
    else
      both(item.content);
  }
  uint64_t value = digest.finish();
  write({reinterpret_cast<const char *>(&value), sizeof value});
}

void CaptureFile::writeMemory(uint64_t address, uint64_t bytes, const ContentWriter &write) const {
  std::string piece;
  for (uint64_t done = 0; done < bytes; done += piece.size()) {
    piece.resize(std::min(bytes - done, kPieceBytes));
    launch.readMemory(piece.data(), address + done, piece.size());
    write(piece);
  }
}

void CaptureFile::writeRows(const Rows &rows, const ContentWriter &write) const {
  uint64_t most = std::max<uint64_t>(kPieceBytes / (rows.heads * rows.row), 1);
  std::string piece;
  for (const Run &run : rows.runs)
    for (uint64_t first = 0; first < run.count; first += most) {
      uint64_t count = std::min(most, run.count - first);
      readRows(rows, run.block, first, count, piece);
      write(piece);
    }
}

/// Rows [first, first + count) of a block as [token, head, dim]. Few copies: all rows at once where they lie
/// close together, else head by head or token by token, whichever has the longer runs.
void CaptureFile::readRows(const Rows &rows, uint64_t block, uint64_t first, uint64_t count,
                           std::string &out) const {
  out.resize(count * rows.heads * rows.row);
  uint64_t begin = rows.base + block * rows.strideBlock + first * rows.strideToken;
  std::string span;
  auto copy = [&](uint64_t token, uint64_t tokens, uint64_t head, uint64_t heads) {
    uint64_t from = begin + token * rows.strideToken + head * rows.strideHead;
    span.resize((tokens - 1) * rows.strideToken + (heads - 1) * rows.strideHead + rows.row);
    launch.readMemory(span.data(), from, span.size());
    for (uint64_t t = 0; t < tokens; ++t)
      for (uint64_t h = 0; h < heads; ++h)
        std::memcpy(&out[((token + t) * rows.heads + head + h) * rows.row],
                    &span[t * rows.strideToken + h * rows.strideHead], rows.row);
  };
  uint64_t all = (count - 1) * rows.strideToken + (rows.heads - 1) * rows.strideHead + rows.row;
  if (all <= 2 * out.size())
    return copy(0, count, 0, rows.heads);
  if (rows.strideToken <= rows.strideHead)
    for (uint64_t head = 0; head < rows.heads; ++head)
      copy(0, count, head, 1);
  else
    for (uint64_t token = 0; token < count; ++token)
      copy(token, 1, 0, rows.heads);
}

} // namespace cfc::runtime
