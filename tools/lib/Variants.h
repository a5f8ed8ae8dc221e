//===- Variants.h - Bundles of several plans and of several graphs --------===//
#pragma once
#include "tools/lib/Build.h"

namespace CLI {
class App;
}

namespace cfc {

/// Which variants a bundle is to have, beside the one for all launches.
struct VariantOptions {
  std::vector<int64_t> lengths;      ///< tokens, ascending: the largest that a variant is meant for
  std::vector<std::string> machines; ///< smaller machines than that of --machine, in descending order
  bool any() const { return !lengths.empty() || !machines.empty(); }
};

/// Plans and compiles each graph for every machine once for each of the lengths and once for all, with the
/// longest in mind. Plans that are best for several are there once; of random:SEED each variant has a seed of
/// its own. The graphs read the weights that they share in one layout, and share the workspace. Returns the
/// content of the bundle.
std::string compileBundle(Compiler &compiler, const std::vector<const Source *> &sources,
                          const BuildOptions &options, const VariantOptions &wanted);

/// "lengths up to 1024", "all launches": when the runtime takes a variant.
std::string conditionText(const runtime::VariantCondition &when);

/// Index of the variant of that plan hash; of the first that is for all launches where it is "". Fails (2)
/// with the hashes that there are; `path` is the bundle's.
size_t variantIndex(const runtime::GraphSpec &graph, const std::string &hash, const std::string &path);

/// --variant and --graph.
void addVariantOption(CLI::App &command, BuildOptions &options);
/// --graph alone.
void addGraphOption(CLI::App &command, BuildOptions &options);

} // namespace cfc
