//===- Inputs.cpp - Tensors that a command line names ---------------------===//
#include "tools/lib/Inputs.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Npy.h"
#include "tools/lib/Queries.h"
#include "tools/lib/Safetensors.h"
#include "tools/lib/Suggest.h"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>

using namespace cfc;

namespace {
/// One value of --input, taken apart. An empty name: every tensor that nothing else names.
struct InputArgument {
  std::string text, name;
  bool random = false;
  std::optional<uint64_t> seed;
  std::string file, key;
};
} // namespace

/// Splits FILE.safetensors:KEY, where FILE may hold colons too.
static void splitKey(InputArgument &argument, const std::string &source) {
  argument.file = source;
  for (std::string_view extension : {".safetensors.index.json:", ".safetensors:"}) {
    size_t at = source.find(extension);
    if (at == std::string::npos)
      continue;
    argument.file = source.substr(0, at + extension.size() - 1);
    argument.key = source.substr(at + extension.size());
    return;
  }
}

static InputArgument parseArgument(const std::string &text) {
  InputArgument argument;
  argument.text = text;
  std::string source = text;
  size_t equals = text.find('=');
  if (equals != std::string::npos) {
    argument.name = text.substr(0, equals);
    source = text.substr(equals + 1);
  }
  argument.random = source == "random" || source.rfind("random:", 0) == 0;
  if (equals == 0 || source.empty() || (argument.name.empty() && !argument.random))
    badInput("",
             "--input {}: expected NAME=FILE.npy, NAME=FILE.safetensors[:KEY], NAME=random[:SEED] or "
             "random[:SEED]",
             text);
  if (!argument.random) {
    splitKey(argument, source);
    return argument;
  }
  if (source.size() > 6) {
    uint64_t seed = 0;
    auto [end, error] = std::from_chars(source.data() + 7, source.data() + source.size(), seed);
    if (error != std::errc() || end != source.data() + source.size())
      badInput("", "--input {}: the seed must be an integer of at least 0", text);
    argument.seed = seed;
  }
  return argument;
}

std::vector<int64_t> InputSpec::cacheShape(bool isV, int64_t blocks, int64_t tokens) const {
  std::vector<int64_t> shape = {heads, tokens, isV && vDim ? vDim : dim};
  if (hasBlocks())
    shape.insert(shape.begin(), blocks);
  return shape;
}

CacheLayout::CacheLayout(const InputSpec &spec, const Tensor &tensor) {
  size_t first = spec.hasBlocks() ? 1 : 0;
  blocks = first ? tensor.shape.at(0) : 1;
  tokens = tensor.shape.at(first + 1);
  strideToken = row = tensor.shape.at(first + 2) * int64_t(sizeOf(tensor.type));
  strideHead = tokens * strideToken;
  strideBlock = tensor.shape.at(first) * strideHead;
}

/// Entries of a request that lead into the pool.
static int64_t usedPages(const InputSpec &spec, const RandomOptions &random) {
  return std::min((random.capacity + spec.page - 1) / spec.page, std::max<int64_t>(spec.pages, 1));
}

/// Pages that random data puts into a pool: for all requests, and some that nobody uses.
static int64_t poolPages(const InputSpec &cache, const RandomOptions &random) {
  return cache.requests * usedPages(cache, random) + 3;
}

/// The pages of a pool in random order: what a block table's rows take, one request after another.
static std::vector<int64_t> shuffledPages(int64_t count, uint64_t seed) {
  std::vector<int64_t> pages(static_cast<size_t>(count));
  std::iota(pages.begin(), pages.end(), 0);
  std::mt19937_64 engine(seed);
  for (size_t i = pages.size(); i > 1; --i)
    std::swap(pages[i - 1], pages[engine() % i]);
  return pages;
}

static Tensor randomTable(const InputSpec &spec, const RandomOptions &random) {
  Tensor table(spec.type, spec.shape);
  std::vector<int64_t> pages = shuffledPages(poolPages(spec, random), random.seed);
  int64_t used = usedPages(spec, random), columns = spec.shape.at(1);
  for (int64_t i = 0; i < table.elements(); ++i) {
    int64_t request = i / columns, column = i % columns;
    bool isUsed = column < used;
    table.set(i, isUsed       ? double(pages[size_t(request * used + column)])
                 : column % 2 ? -1.0
                              : double(INT32_MAX));
  }
  return table;
}

/// The starts of the query tokens that belong to `spec`: those that are there already, else random ones.
static std::vector<double> startsFor(const TensorMap &tensors, const InputSpec &spec,
                                     const RandomOptions &random) {
  auto found = tensors.find(spec.queries);
  return found != tensors.end() ? startsOf(found->second)
                                : drawnStarts(spec.requests, spec.rows, random.seed);
}

/// Slots and positions of token `length` of each request, and of those behind it. Rows of nobody have slot
/// -1.
static Tensor randomPlaces(const TensorMap &tensors, const InputSpec &spec, const RandomOptions &random) {
  Tensor result(spec.type, spec.shape);
  std::vector<double> starts;
  if (!spec.queries.empty())
    starts = startsFor(tensors, spec, random);
  bool inPages = spec.page && spec.role == DataRole::Slot;
  std::vector<int64_t> pages =
      inPages ? shuffledPages(poolPages(spec, random), random.seed) : std::vector<int64_t>();
  int64_t used = inPages ? usedPages(spec, random) : 0;
  for (int64_t i = 0; i < result.elements(); ++i) {
    attn::QueryRow row = starts.empty() ? attn::QueryRow{i, i, 1, 0} : attn::queryRow(starts, spec.rows, i);
    int64_t token = random.length + row.index;
    if (row.request < 0)
      result.set(i, spec.role == DataRole::Slot ? -1 : 0);
    else if (inPages)
      result.set(
          i, double(pages[size_t(row.request * used + std::min(token / spec.page, used - 1))] * spec.page +
                    token % spec.page));
    else
      result.set(i, double(token));
  }
  return result;
}

/// Starts, or masks of random trees.
static Tensor randomQueries(const TensorMap &tensors, const InputSpec &spec, const RandomOptions &random) {
  std::vector<double> starts = startsFor(tensors, spec, random);
  return spec.role == DataRole::Starts ? startsTensor(spec.type, starts)
                                       : treesTensor(starts, spec.rows, random.seed);
}

void cfc::addRandom(TensorMap &tensors, const InputSpec &spec, const RandomOptions &random) {
  if (spec.isCache()) {
    int64_t blocks = spec.page ? poolPages(spec, random) : spec.requests;
    int64_t tokens = spec.page ? spec.page : random.capacity;
    for (const char *part : {".k", ".v"}) {
      Tensor tensor(spec.type, spec.cacheShape(part[1] == 'v', blocks, tokens));
      fillRandom(tensor, random.seed, spec.name + part, distributionFor(spec.role, tensor.shape));
      tensors.insert_or_assign(spec.name + part, std::move(tensor));
    }
    return;
  }
  if (spec.page && spec.role == DataRole::BlockTable) {
    tensors.insert_or_assign(spec.name, randomTable(spec, random));
    return;
  }
  if (spec.role == DataRole::Slot || spec.role == DataRole::Position) {
    tensors.insert_or_assign(spec.name, randomPlaces(tensors, spec, random));
    return;
  }
  if (spec.role == DataRole::Starts || spec.role == DataRole::Mask) {
    tensors.insert_or_assign(spec.name, randomQueries(tensors, spec, random));
    return;
  }
  Tensor tensor(spec.type, spec.shape);
  if (spec.role == DataRole::Length)
    fillRandom(tensor, random.seed, spec.name, {double(random.length), 0});
  else if (spec.role == DataRole::RopeTable || spec.rope)
    fillRopeTable(tensor, spec.rope.value_or(RopeTable()));
  else
    fillRandom(tensor, random.seed, spec.name, distributionFor(spec.role, spec.shape));
  tensors.insert_or_assign(spec.name, std::move(tensor));
}

/// "[4 requests, 8 heads, tokens, 128]".
static std::string cacheShapeText(const InputSpec &spec, bool isV) {
  int64_t dim = spec.cacheShape(isV, 1, 1).back();
  if (spec.page)
    return fmt::format("[pages, {} heads, {} tokens, {}]", spec.heads, spec.page, dim);
  if (spec.hasBlocks())
    return fmt::format("[{} requests, {} heads, tokens, {}]", spec.requests, spec.heads, dim);
  return fmt::format("[{} heads, tokens, {}]", spec.heads, dim);
}

/// Whether every element survives the conversion.
static std::optional<Tensor> convertExactly(const Tensor &tensor, DType type) {
  Tensor result(type, tensor.shape);
  for (int64_t i = 0, n = tensor.elements(); i < n; ++i) {
    double value = tensor.get(i);
    result.set(i, value);
    if (result.get(i) != value && !std::isnan(value))
      return std::nullopt;
  }
  return result;
}

static std::string castHint(DType wanted, DType found) {
  if (wanted == DType::f8E4M3FN)
    return "; save it as float8_e4m3fn in a safetensors file, or as float32 values that it holds exactly";
  if (wanted == DType::bf16)
    return "; save it as bfloat16 in a safetensors file, or as float32 values that bfloat16 holds exactly";
  if (isFloat(wanted) != isFloat(found))
    return "";
  const char *numpy = wanted == DType::f16   ? "float16"
                      : wanted == DType::f32 ? "float32"
                      : wanted == DType::f64 ? "float64"
                      : wanted == DType::i32 ? "int32"
                                             : "int64";
  return fmt::format("; convert it: a.astype(numpy.{})", numpy);
}

Tensor cfc::checkedInput(Tensor tensor, const InputSpec &spec, const std::string &name,
                         const std::string &where) {
  if (tensor.packed && spec.role != DataRole::Weight)
    badInput(where, "\"{}\" is packed as a weight of a linear is; this graph uses it for something else",
             name);
  // numpy has no bfloat16 and no f8: float32 files are read where nothing is lost.
  if ((spec.type == DType::bf16 || spec.type == DType::f8E4M3FN) && tensor.type == DType::f32)
    if (auto exact = convertExactly(tensor, spec.type))
      tensor = std::move(*exact);
  std::vector<int64_t> shape = spec.shape;
  if (spec.isCache()) {
    bool isV = name.ends_with(".v");
    size_t rank = spec.hasBlocks() ? 4 : 3;
    bool fits = tensor.shape.size() == rank;
    int64_t blocks = fits && spec.page ? tensor.shape[0] : spec.requests;
    int64_t tokens = spec.page ? spec.page : fits ? tensor.shape[rank - 2] : 0;
    shape = spec.cacheShape(isV, std::max<int64_t>(blocks, 1), std::max<int64_t>(tokens, 1));
    if (tensor.shape != shape)
      badInput(where, "\"{}\" must have the shape {}, at least one {}; it has {}", name,
               cacheShapeText(spec, isV), spec.page ? "page" : "token", shapeText(tensor.shape));
  }
  std::string found = typeText(tensor.type, nativeShape(tensor));
  if (nativeShape(tensor) != shape)
    badInput(where, "\"{}\" must be {}; it is {}", name, typeText(spec.type, shape), found);
  if (tensor.type != spec.type)
    badInput(where, "\"{}\" must be {}; it is {}{}", name, typeText(spec.type, shape), found,
             castHint(spec.type, tensor.type));
  return tensor;
}

static Tensor readFile(const InputArgument &argument) {
  if (argument.file.ends_with(".npy"))
    return readNpy(argument.file);
  if (argument.file.ends_with(".safetensors.index.json")) {
    if (argument.key.empty())
      badInput("", "--input {}: name a tensor of the checkpoint: {}:KEY", argument.text, argument.file);
    return Checkpoint(argument.file).get(argument.key);
  }
  if (!argument.file.ends_with(".safetensors"))
    badInput("", "--input {}: the file must end in .npy or .safetensors", argument.text);
  SafetensorsFile file(argument.file);
  if (!argument.key.empty())
    return file.get(argument.key);
  if (!file.contains(argument.name) && file.keys().size() == 1)
    return file.get(file.keys()[0]);
  return file.get(argument.name);
}

Tensor cfc::readTensor(const std::string &text) {
  InputArgument argument = parseArgument(text);
  if (argument.random)
    badInput("", "{}: a file is needed", text);
  return readFile(argument);
}

std::vector<std::string> cfc::namedInputs(const InputOptions &options) {
  std::vector<std::string> names;
  for (const std::string &text : options.inputs)
    if (std::string name = parseArgument(text).name; !name.empty())
      names.push_back(name);
  return names;
}

namespace {
/// Collects tensors for specs and remembers which are there.
class Resolver {
public:
  Resolver(const std::vector<InputSpec> &specs, const RandomOptions &random) : specs(specs), random(random) {
    for (const InputSpec &spec : specs) {
      if (spec.rope) {
        addRandom(tensors, spec, random);
      } else if (spec.isCache()) {
        names.push_back(spec.name + ".k");
        names.push_back(spec.name + ".v");
        specOf[names.back()] = specOf[spec.name + ".k"] = &spec;
      } else {
        names.push_back(spec.name);
        specOf[spec.name] = &spec;
      }
    }
  }

  void add(const InputArgument &argument) {
    auto it = specOf.find(argument.name);
    if (it == specOf.end()) {
      const InputSpec *cache = cacheNamed(argument.name);
      if (cache && argument.random) {
        if (tensors.count(cache->name + ".k") || tensors.count(cache->name + ".v"))
          badInput("", "--input {}: \"{}\" is given twice", argument.text, argument.name);
        return addRandom(tensors, *cache, randomFor(argument));
      }
      if (cache)
        badInput("", "--input {}: \"{}\" is a cache: give its two tensors as {}.k and {}.v", argument.text,
                 argument.name, argument.name, argument.name);
      badInput("", "--input {}: there is no tensor \"{}\"{}", argument.text, argument.name,
               didYouMean(argument.name, names));
    }
    if (tensors.count(argument.name))
      badInput("", "--input {}: \"{}\" is given twice", argument.text, argument.name);
    if (!argument.random) {
      tensors[argument.name] = checkedInput(readFile(argument), *it->second, argument.name, argument.file);
      return;
    }
    TensorMap made;
    addRandom(made, *it->second, randomFor(argument));
    tensors[argument.name] = made.at(argument.name);
  }

  void addWeights(const std::string &path) {
    Checkpoint checkpoint(path);
    bool used = false;
    for (const std::string &name : names) {
      if (!checkpoint.contains(name))
        continue;
      used = true;
      if (!tensors.count(name))
        tensors[name] = checkedInput(checkpoint.get(name), *specOf[name], name, path);
    }
    if (!used && !names.empty()) {
      std::vector<std::string> keys = checkpoint.keys();
      badInput(path, "holds no tensor of this graph; it has {}{}",
               keys.empty() ? "none at all" : "\"" + keys[0] + "\"" + (keys.size() > 1 ? ", …" : ""),
               "; a tensor's name is its argument's, or the argument's attribute attn.name");
    }
    weights = &path;
    weightKeys = checkpoint.keys();
  }

  void fillRest(const InputArgument &argument) {
    for (const InputSpec &spec : specs) {
      bool first = tensors.count(spec.isCache() ? spec.name + ".k" : spec.name);
      bool second = !spec.isCache() || tensors.count(spec.name + ".v");
      if (first && second)
        continue;
      if (!first && isOfModel(spec.role) && weights)
        noteRandom(spec.name);
      if (!first && (!spec.isCache() || !second))
        addRandom(tensors, spec, randomFor(argument));
    }
  }

  TensorMap finish() {
    for (const std::string &name : names)
      if (!tensors.count(name)) {
        std::string nearest = weights ? nearestName(name, weightKeys) : "";
        badInput("", "the tensor \"{}\" ({}) is missing: give it with --input {}=FILE.npy{}{}", name,
                 describe(name), name,
                 weights ? fmt::format(" ({} has no \"{}\"{})", *weights, name,
                                       nearest.empty() ? "" : "; the nearest is \"" + nearest + "\"")
                         : "",
                 ", or all that are not named with --input random");
      }
    for (const InputSpec &spec : specs)
      if (spec.isCache()) {
        const Tensor &k = tensors.at(spec.name + ".k"), &v = tensors.at(spec.name + ".v");
        CacheLayout ofK(spec, k), ofV(spec, v);
        if (ofK.blocks != ofV.blocks || ofK.tokens != ofV.tokens)
          badInput("", "\"{}.k\" has the shape {}, \"{}.v\" {}: both must have the same number of {}",
                   spec.name, shapeText(k.shape), spec.name, shapeText(v.shape),
                   spec.page ? "pages" : "tokens");
      }
    return std::move(tensors);
  }

private:
  /// A misspelt name would else go unseen.
  void noteRandom(const std::string &name) const {
    std::string nearest = nearestName(name, weightKeys);
    fmt::print(stderr, "note: {} has no \"{}\"{}: it is random\n", *weights, name,
               nearest.empty() ? "" : ", the nearest is \"" + nearest + "\"");
  }
  RandomOptions randomFor(const InputArgument &argument) const {
    RandomOptions result = random;
    result.seed = argument.seed.value_or(random.seed);
    return result;
  }
  const InputSpec *cacheNamed(const std::string &name) const {
    for (const InputSpec &spec : specs)
      if (spec.isCache() && spec.name == name)
        return &spec;
    return nullptr;
  }
  std::string describe(const std::string &name) {
    const InputSpec &spec = *specOf[name];
    return spec.isCache()
               ? fmt::format("{} of {}", cacheShapeText(spec, name.ends_with(".v")), nameOf(spec.type))
               : typeText(spec.type, spec.shape);
  }

  const std::vector<InputSpec> &specs;
  const RandomOptions &random;
  std::vector<std::string> names;
  std::map<std::string, const InputSpec *> specOf;
  TensorMap tensors;
  const std::string *weights = nullptr;
  std::vector<std::string> weightKeys;
};
} // namespace

TensorMap cfc::resolveInputs(const std::vector<InputSpec> &specs, const InputOptions &options,
                             const RandomOptions &random) {
  Resolver resolver(specs, random);
  std::optional<InputArgument> rest;
  for (const std::string &text : options.inputs) {
    InputArgument argument = parseArgument(text);
    if (!argument.name.empty()) {
      resolver.add(argument);
      continue;
    }
    if (rest)
      badInput("", "--input {}: \"random\" without a name is given twice", text);
    rest = argument;
  }
  if (!options.weights.empty())
    resolver.addWeights(options.weights);
  if (options.inputs.empty() && options.weights.empty())
    rest = InputArgument();
  if (rest)
    resolver.fillRest(*rest);
  return resolver.finish();
}
