//===- Reference.cpp - What an attn graph means, in float64 ----------------===//
//
// One function an operation. Values are vectors of double; weights and cache
// rows are read where they lie, so that nothing large is converted twice.
//
//===----------------------------------------------------------------------===//
#include "dialects/attn/Reference.h"
#include "dialects/attn/BiasProgram.h"
#include "dialects/attn/ReferenceMath.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>

using namespace mlir;
using namespace cfc;
using namespace cfc::attn;

ElementKind cfc::attn::elementKind(Type element) {
  if (element.isF16())
    return ElementKind::F16;
  if (element.isBF16())
    return ElementKind::BF16;
  if (element.isF32())
    return ElementKind::F32;
  if (isa<Float8E4M3FNType>(element))
    return ElementKind::F8E4M3FN;
  return element.isInteger(32) ? ElementKind::I32 : ElementKind::I64;
}

namespace {

class Evaluator {
public:
  Evaluator(const ReferenceInputs &inputs, unsigned threads) : inputs(inputs), threads(threads) {}
  FailureOr<ReferenceResult> run(GraphOp graph);

private:
  LogicalResult bind(BlockArgument argument);
  LogicalResult bindTensor(BlockArgument argument, StringRef name, ElementKind dtype,
                           ArrayRef<int64_t> shape);
  LogicalResult evaluateOp(Operation *op);

  void rmsNorm(RmsNormOp op);
  void layerNorm(LayerNormOp op);
  void linear(LinearOp op);
  void rope(RopeOp op);
  void ropeTable(RopeTableOp op);
  void kvAppend(KvAppendOp op);
  void attention(AttentionOp op);
  void attendRow(AttentionOp op, int64_t row, llvm::MutableArrayRef<HeadSummary> heads);
  const AppendedRow *appendedFor(AttentionOp op, int64_t row);
  QueryRow placeOf(Value starts, int64_t rows, int64_t row);
  std::vector<int64_t> attended(AttentionOp op, int64_t row, const QueryRow &place, int64_t tokens);
  std::vector<int64_t> pagesOf(AttentionOp op, int64_t request, int64_t tokens, int64_t blocks);
  void add(AddOp op);

  const std::vector<double> &read(Value value);
  /// Element `index` of a scale, which may be one for all.
  double scaleAt(Value scale, int64_t index) {
    if (!scale)
      return 1;
    const std::vector<double> &scales = read(scale);
    return scales[scales.size() == 1 ? 0 : size_t(index)];
  }
  ScoreRule ruleOf(AttentionOp op, int64_t head, int64_t query);
  const HostTensor &host(Value value) { return tensors.find(value)->second; }
  const HostCache &hostCache(Value cache);
  int64_t clamp(double value, int64_t most, StatusBits bit);
  std::vector<double> &define(Value value);

  const ReferenceInputs &inputs;
  unsigned threads;
  ReferenceResult out;
  llvm::DenseMap<Value, HostTensor> tensors;
  llvm::DenseMap<Value, HostCache> caches;
  llvm::DenseMap<Value, std::vector<double>> converted; // small arguments, as doubles
};

int64_t columns(Value value) { return cast<RankedTensorType>(value.getType()).getDimSize(1); }
int64_t rows(Value value) { return cast<RankedTensorType>(value.getType()).getDimSize(0); }

} // namespace

//===-- Inputs ------------------------------------------------------------===//

LogicalResult Evaluator::bindTensor(BlockArgument argument, StringRef name, ElementKind dtype,
                                    ArrayRef<int64_t> shape) {
  auto it = inputs.tensors.find(name);
  if (it == inputs.tensors.end() || !it->second.data)
    return emitError(argument.getLoc()) << "no input is given for %" << name;
  const HostTensor &tensor = it->second;
  if (tensor.dtype != dtype || ArrayRef<int64_t>(tensor.shape) != shape)
    return emitError(argument.getLoc())
           << "the input for %" << name << " is " << elementName(tensor.dtype) << "["
           << llvm::join(llvm::map_range(tensor.shape, [](int64_t d) { return std::to_string(d); }), ", ")
           << "], not " << argument.getType();
  tensors[argument] = tensor;
  return success();
}

LogicalResult Evaluator::bind(BlockArgument argument) {
  std::string name = getValueName(argument);
  if (auto lengths = dyn_cast<LengthsType>(argument.getType()))
    return bindTensor(argument, name, ElementKind::I32, lengths.getCount());
  if (auto tensor = dyn_cast<RankedTensorType>(argument.getType()))
    return bindTensor(argument, name, elementKind(tensor.getElementType()), tensor.getShape());
  auto it = inputs.caches.find(name);
  if (it == inputs.caches.end() || !it->second.k || !it->second.v)
    return emitError(argument.getLoc()) << "no cache is given for %" << name;
  caches[argument] = it->second;
  return success();
}

const std::vector<double> &Evaluator::read(Value value) {
  if (auto it = out.values.find(value); it != out.values.end())
    return it->second;
  auto [it, isNew] = converted.try_emplace(value);
  if (isNew) {
    const HostTensor &tensor = host(value);
    it->second = toDoubles(tensor.dtype, tensor.data, llvm::product_of(tensor.shape));
  }
  return it->second;
}

const HostCache &Evaluator::hostCache(Value cache) {
  while (auto append = cache.getDefiningOp<KvAppendOp>())
    cache = append.getCache();
  return caches.find(cache)->second;
}

// From 0 to `most`; anything else sets the bit.
int64_t Evaluator::clamp(double value, int64_t most, StatusBits bit) {
  double clamped = std::clamp(value, 0.0, static_cast<double>(most));
  if (clamped != value)
    out.status |= bit;
  return static_cast<int64_t>(clamped);
}

std::vector<double> &Evaluator::define(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  std::vector<double> &values = out.values[value];
  values.assign(type.getNumElements(), 0.0);
  return values;
}

//===-- Operations --------------------------------------------------------===//

void Evaluator::rmsNorm(RmsNormOp op) {
  const std::vector<double> &x = read(op.getX()), &gain = read(op.getGain());
  std::vector<double> &y = define(op.getResult());
  int64_t width = op.getWidth();
  for (int64_t start = 0; start < static_cast<int64_t>(x.size()); start += width) {
    const double *in = x.data() + start;
    double squares = 0;
    for (int64_t i = 0; i < width; ++i)
      squares += in[i] * in[i];
    double factor = 1 / std::sqrt(squares / width + op.getEps().convertToDouble());
    for (int64_t i = 0; i < width; ++i)
      y[start + i] = in[i] * factor * (op.getOffsetValue() + gain[i]);
  }
}

void Evaluator::layerNorm(LayerNormOp op) {
  const std::vector<double> &x = read(op.getX());
  std::vector<double> &y = define(op.getResult());
  int64_t width = columns(op.getX());
  for (int64_t start = 0; start < static_cast<int64_t>(x.size()); start += width) {
    const double *in = x.data() + start;
    double mean = std::accumulate(in, in + width, 0.0) / width, squares = 0;
    for (int64_t i = 0; i < width; ++i)
      squares += (in[i] - mean) * (in[i] - mean);
    double factor = 1 / std::sqrt(squares / width + op.getEps().convertToDouble());
    for (int64_t i = 0; i < width; ++i) {
      double gain = op.getGain() ? read(op.getGain())[i] : 1, bias = op.getBias() ? read(op.getBias())[i] : 0;
      y[start + i] = (in[i] - mean) * factor * gain + bias;
    }
  }
}

void Evaluator::linear(LinearOp op) {
  const std::vector<double> &x = read(op.getX());
  int64_t in = columns(op.getX());
  for (auto [index, result, weight] : llvm::enumerate(op.getResults(), op.getWeights())) {
    const HostTensor &tensor = host(weight);
    std::vector<double> bias;
    if (!op.getBiases().empty())
      bias = read(op.getBiases()[index]);
    std::vector<double> &y = define(result);
    int64_t width = columns(result);
    for (int64_t row = 0; row < rows(op.getX()); ++row) {
      double *target = y.data() + row * width;
      multiplyRows(tensor.dtype, tensor.data, width, in, x.data() + row * in, target, threads);
      for (size_t i = 0; i < bias.size(); ++i)
        target[i] += bias[i];
    }
  }
}

void Evaluator::ropeTable(RopeTableOp op) {
  std::vector<double> &table = define(op.getResult());
  int64_t dim = op.getDim(), half = dim / 2;
  RopeTable rope = op.describe();
  std::vector<double> frequency = ropeFrequencies(rope);
  parallelFor(op.getPositions(), threads, [&](int64_t begin, int64_t end) {
    for (int64_t position = begin; position < end; ++position)
      for (int64_t i = 0; i < half; ++i) {
        table[position * dim + i] = rope.attentionFactor * std::cos(position * frequency[i]);
        table[position * dim + half + i] = rope.attentionFactor * std::sin(position * frequency[i]);
      }
  });
}

// Rotates the first `dim` elements of one head.
static void rotate(const double *in, const double *cosines, const double *sines, int64_t dim, RopeStyle style,
                   double *out) {
  int64_t half = dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    int64_t a = style == RopeStyle::HalfSplit ? i : 2 * i;
    int64_t b = style == RopeStyle::HalfSplit ? i + half : 2 * i + 1;
    double first = in[a], second = in[b];
    out[a] = first * cosines[i] - second * sines[i];
    out[b] = second * cosines[i] + first * sines[i];
  }
}

void Evaluator::rope(RopeOp op) {
  int64_t dim = op.getHeadSize(), rotated = op.getRotatedDim();
  const std::vector<double> &positions = read(op.getPos());
  for (auto [value, result] : llvm::zip_equal(op.getValues(), op.getResults())) {
    const std::vector<double> &in = read(value), &table = read(op.getTable());
    std::vector<double> &out = define(result);
    out = in;
    int64_t width = columns(value);
    for (int64_t row = 0; row < rows(value); ++row) {
      int64_t position = clamp(positions[row], rows(op.getTable()) - 1, PositionOutOfBound);
      const double *cosines = table.data() + position * rotated;
      for (int64_t head = row * width; head < (row + 1) * width; head += dim)
        rotate(in.data() + head, cosines, cosines + rotated / 2, rotated, op.getStyle(), out.data() + head);
    }
  }
}

int64_t AppendedRow::block() const {
  KvCacheType type = KvAppendOp(op).getCache().getType();
  return type.isPaged() ? slot / type.getPage() : request;
}

int64_t AppendedRow::token() const {
  KvCacheType type = KvAppendOp(op).getCache().getType();
  return type.isPaged() ? slot % type.getPage() : slot;
}

void Evaluator::kvAppend(KvAppendOp op) {
  KvCacheType type = op.getCache().getType();
  ElementKind kind = elementKind(type.getElementType());
  const HostCache &cache = hostCache(op.getCache());
  int64_t slots = type.isPaged() ? cache.blocks * type.getPage() : cache.capacity;
  auto store = [&](const std::vector<double> &row) {
    std::vector<uint8_t> bytes(row.size() * elementSize(kind));
    for (size_t i = 0; i < row.size(); ++i)
      fromDouble(kind, row[i], bytes.data() + i * elementSize(kind));
    return bytes;
  };
  auto divide = [&](std::vector<double> &row, Value scale, int64_t dim) {
    for (size_t i = 0; scale && i < row.size(); ++i)
      row[i] /= scaleAt(scale, static_cast<int64_t>(i) / dim);
  };
  auto rowOf = [&](Value value, int64_t row) {
    auto begin = read(value).begin() + row * columns(value);
    return std::vector<double>(begin, begin + columns(value));
  };
  for (int64_t i = 0; i < rows(op.getK()); ++i) {
    QueryRow place = placeOf(op.getQueries(), rows(op.getK()), i);
    auto slot = loadAs<int64_t>(static_cast<const char *>(host(op.getSlot()).data) + 8 * i);
    if (place.request < 0)
      slot = -1;
    if (slot < -1 || slot >= slots) {
      out.status |= SlotOutOfBound;
      slot = -1;
    }
    AppendedRow row{
        op, i, place.request, getValueName(op.getCache()), slot, rowOf(op.getK(), i), rowOf(op.getV(), i),
        {}, {}};
    divide(row.k, op.getKScale(), type.getDim());
    divide(row.v, op.getVScale(), type.getVDim());
    row.kBytes = store(row.k);
    row.vBytes = store(row.v);
    if (inputs.stored)
      inputs.stored(row);
    out.appended.push_back(std::move(row));
  }
}

const AppendedRow *Evaluator::appendedFor(AttentionOp op, int64_t row) {
  KvAppendOp append = op.getAppend();
  auto found =
      llvm::find_if(out.appended, [&](const AppendedRow &one) { return one.op == append && one.row == row; });
  return append ? found : nullptr;
}

// Whose row it is; without starts each request has one.
QueryRow Evaluator::placeOf(Value starts, int64_t rows, int64_t row) {
  if (!starts)
    return {row, row, 1, 0};
  if (!areQueryStarts(read(starts), rows))
    out.status |= QueryOutOfBound;
  return queryRow(read(starts), rows, row);
}

// The positions that a row attends, of a request with `tokens` cached.
std::vector<int64_t> Evaluator::attended(AttentionOp op, int64_t row, const QueryRow &place, int64_t tokens) {
  KvAppendOp append = op.getAppend();
  int64_t base = tokens - (append ? 0 : place.count), last = base + place.index;
  int64_t end = append ? tokens + place.count : tokens;
  int64_t first = op.getWindow() ? std::max<int64_t>(last + 1 - *op.getWindow(), 0) : 0;
  uint64_t mask = 0;
  if (op.getMask())
    mask = loadAs<uint64_t>(static_cast<const char *>(host(op.getMask()).data) + 8 * row);
  std::vector<int64_t> positions;
  for (int64_t position = first; position < end; ++position) {
    int64_t j = position - base; // among the new tokens
    if (j >= 0 && (op.getMask() ? !(mask >> j & 1) : j > place.index))
      continue;
    if (append && j >= 0 && appendedFor(op, place.first + j)->slot < 0)
      continue;
    positions.push_back(position);
  }
  return positions;
}

// The request's pages up to its length, each in the pool.
std::vector<int64_t> Evaluator::pagesOf(AttentionOp op, int64_t request, int64_t tokens, int64_t blocks) {
  std::vector<int64_t> pages;
  if (!op.getPages())
    return pages;
  int64_t page = op.getCache().getType().getPage();
  const double *entries = read(op.getPages()).data() + request * columns(op.getPages());
  for (int64_t i = 0; i * page < tokens; ++i)
    pages.push_back(clamp(entries[i], blocks - 1, PageOutOfBound));
  return pages;
}

void Evaluator::attention(AttentionOp op) {
  int64_t count = op.getQueryHeads();
  std::vector<HeadSummary> heads(rows(op.getQ()) * count);
  define(op.getResult());
  for (int64_t row = 0; row < rows(op.getQ()); ++row)
    attendRow(op, row, llvm::MutableArrayRef(heads).slice(row * count, count));
  auto all = [&](double HeadSummary::*member) {
    std::vector<double> values;
    for (const HeadSummary &head : heads)
      values.push_back(head.*member);
    return values;
  };
  out.roundings[op.getResult()] = all(&HeadSummary::roundings);
  if (op.getLse())
    out.values[op.getLse()] = all(&HeadSummary::lse);
}

ScoreRule Evaluator::ruleOf(AttentionOp op, int64_t head, int64_t query) {
  ScoreRule rule;
  rule.scale = op.getScale().convertToDouble();
  if (auto softcap = op.getSoftcap())
    rule.softcap = softcap->convertToDouble();
  if (op.getSinks())
    rule.sink = read(op.getSinks())[head];
  if (!op.hasBias())
    return rule;
  BiasProgram program(op, [this](Value tensor, int64_t index) {
    const HostTensor &values = host(tensor);
    if (index < 0 || index >= values.shape[0])
      return std::numeric_limits<double>::quiet_NaN();
    size_t size = elementSize(values.dtype);
    return toDouble(values.dtype, static_cast<const char *>(values.data) + size_t(index) * size);
  });
  rule.bias = [=](int64_t key) { return program(head, query, key); };
  return rule;
}

// How often a program rounds a value on the way from what is exact, or from a sum or an attention.
static int64_t roundingsUpTo(Value value) {
  int64_t count = 0;
  while (Operation *op = value.getDefiningOp()) {
    ++count;
    if (auto rope = dyn_cast<RopeOp>(op))
      value = rope.getValues()[cast<OpResult>(value).getResultNumber()];
    else if (isa<RmsNormOp, LayerNormOp, LinearOp>(op))
      value = op->getOperand(0);
    else
      break;
  }
  return count;
}

// The query heads of a row.
void Evaluator::attendRow(AttentionOp op, int64_t row, llvm::MutableArrayRef<HeadSummary> heads) {
  KvCacheType type = op.getCache().getType();
  const HostCache &cache = hostCache(op.getCache());
  const AppendedRow *appended = appendedFor(op, row);
  QueryRow place = placeOf(op.getQueries(), rows(op.getQ()), row);
  if (place.request < 0)
    return; // nobody's row
  int64_t request = place.request;
  int64_t capacity = type.isPaged() ? type.getPage() * columns(op.getPages()) : cache.capacity;
  int64_t bound = std::min(op.getLen().getType().getCapacity(), capacity);
  int64_t tokens = clamp(read(op.getLen())[request], bound, LengthOutOfBound);
  if (appended && appended->slot < 0)
    return; // idle: zeros, and minus infinity
  std::vector<int64_t> pages = pagesOf(op, request, tokens, cache.blocks);

  ElementKind kind = elementKind(type.getElementType());
  int64_t size = static_cast<int64_t>(elementSize(kind)), group = op.getGroup();
  bool sameStrides = type.getVDim() == type.getDim();
  const double *q = read(op.getQ()).data() + row * columns(op.getQ());
  std::vector<int64_t> positions = attended(op, row, place, tokens);
  int64_t query = tokens - (appended ? 0 : place.count) + place.index; // its position
  // Read here: what the threads below do must not convert anything.
  std::vector<ScoreRule> rules;
  for (int64_t head = 0; head < op.getQueryHeads(); ++head)
    rules.push_back(ruleOf(op, head, query));
  std::vector<double> kScales, vScales;
  for (int64_t kv = 0; kv < type.getHeads(); ++kv) {
    kScales.push_back(scaleAt(op.getKScale(), kv));
    vScales.push_back(scaleAt(op.getVScale(), kv));
  }
  KvAppendOp append = op.getAppend();
  // Of rows that a program has stored and handed over K is exact.
  int64_t qRoundings = roundingsUpTo(op.getQ()),
          newKRoundings = append && !inputs.stored ? roundingsUpTo(append.getK()) : 0;
  double *result = out.values[op.getResult()].data() + row * columns(op.getResult());
  auto rowsAt = [&](const void *base, int64_t kv, int64_t head, int64_t token, int64_t block) {
    int64_t offset = kv * head + (type.isPaged() ? 0 : request * block);
    return CacheRows{static_cast<const char *>(base) + offset, token, block};
  };
  parallelFor(op.getQueryHeads(), tokens < 64 ? 1 : threads, [&](int64_t begin, int64_t end) {
    for (int64_t head = begin; head < end; ++head) {
      int64_t kv = head / group;
      HeadRows rows;
      rows.kind = kind;
      rows.k = rowsAt(cache.k, kv, cache.strideHead, cache.strideToken, cache.strideBlock);
      rows.v = sameStrides ? rowsAt(cache.v, kv, cache.strideHead, cache.strideToken, cache.strideBlock)
                           : rowsAt(cache.v, kv, cache.vStrideHead, cache.vStrideToken, cache.vStrideBlock);
      rows.page = type.getPage();
      rows.pages = pages.data();
      rows.tokens = tokens;
      rows.dim = type.getDim();
      rows.vDim = type.getVDim();
      for (int64_t j = 0; appended && j < place.count; ++j) {
        const AppendedRow *one = appendedFor(op, place.first + j);
        rows.newK.push_back(reinterpret_cast<const char *>(one->kBytes.data()) + kv * rows.dim * size);
        rows.newV.push_back(reinterpret_cast<const char *>(one->vBytes.data()) + kv * rows.vDim * size);
      }
      rows.attended = &positions;
      rows.kScale = kScales[kv];
      rows.vScale = vScales[kv];
      rows.qRoundings = qRoundings;
      rows.newKRoundings = newKRoundings;
      heads[head] = attendHead(rows, q + head * rows.dim, rules[head], result + head * rows.vDim);
    }
  });
}

void Evaluator::add(AddOp op) {
  std::vector<double> sum = read(op.getLhs());
  const std::vector<double> &rhs = read(op.getRhs());
  double factor = op.getFactor();
  for (size_t i = 0; i < sum.size(); ++i)
    sum[i] += factor * rhs[i];
  out.values[op.getResult()] = std::move(sum);
}

//===-- Graph -------------------------------------------------------------===//

LogicalResult Evaluator::evaluateOp(Operation *op) {
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](RmsNormOp norm) { return rmsNorm(norm), success(); })
      .Case([&](LayerNormOp norm) { return layerNorm(norm), success(); })
      .Case([&](LinearOp projection) { return linear(projection), success(); })
      .Case([&](RopeOp rotation) { return rope(rotation), success(); })
      .Case([&](RopeTableOp table) { return ropeTable(table), success(); })
      .Case([&](KvAppendOp append) { return kvAppend(append), success(); })
      .Case([&](AttentionOp attend) { return attention(attend), success(); })
      .Case([&](AddOp sum) { return add(sum), success(); })
      .Case([&](ReturnOp) { return success(); })
      .Default([](Operation *other) { return other->emitError("has no reference"); });
}

FailureOr<ReferenceResult> Evaluator::run(GraphOp graph) {
  // Vectors must not move while an operation reads one and defines another.
  unsigned count = 0;
  for (Operation &op : graph.getBody().front())
    count += op.getNumResults();
  out.values.reserve(count);
  converted.reserve(graph.getBody().getNumArguments());
  for (BlockArgument argument : graph.getBody().getArguments())
    if (!argument.use_empty() && failed(bind(argument)))
      return failure();
  for (Operation &op : graph.getBody().front())
    if (failed(evaluateOp(&op)))
      return failure();
  for (Value value : graph.getReturn().getValues())
    out.results.push_back(read(value));
  return std::move(out);
}

FailureOr<ReferenceResult> cfc::attn::evaluate(GraphOp graph, const ReferenceInputs &inputs,
                                               unsigned threads) {
  if (threads == 0)
    threads = std::max(1u, std::thread::hardware_concurrency());
  return Evaluator(inputs, threads).run(graph);
}
