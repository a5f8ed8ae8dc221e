//===- GraphTest.cpp - Names in a graph and the checks of a whole file -----===//
#include "dialects/attn/Attn.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include <catch2/catch.hpp>

using namespace cfc::attn;

namespace {

struct File {
  explicit File(const std::string &text) {
    context.loadDialect<AttnDialect>();
    handler.emplace(&context, [this](mlir::Diagnostic &diag) {
      std::string &list = diag.getSeverity() == mlir::DiagnosticSeverity::Warning ? warnings : errors;
      list += diag.str() + "\n";
      return mlir::success();
    });
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    INFO(errors);
    REQUIRE(module);
  }
  bool verify() { return succeeded(verifyGraphFile(*module)); }
  GraphOp graph() { return *module->getOps<GraphOp>().begin(); }

  mlir::MLIRContext context;
  std::optional<mlir::ScopedDiagnosticHandler> handler;
  std::string errors, warnings;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

void checkFails(const std::string &text, const std::string &message) {
  File file(text);
  CHECK(!file.verify());
  CHECK(file.errors == message + "\n");
}

std::string graph(const std::string &name, const std::string &results, const std::string &body) {
  return "attn.graph @" + name + "(%x: tensor<1x8xf16>) " + results + " {\n" + body + "}\n";
}

const std::string sum = "  %y = attn.add %x, %x\n  attn.return %y\n", one = "-> tensor<1x8xf16>";

} // namespace

TEST_CASE("a graph whose arguments and values are used passes without a warning") {
  File file(graph("g", one, sum));
  CHECK(file.verify());
  CHECK(file.errors + file.warnings == "");
}

TEST_CASE("a file holds exactly one graph") {
  checkFails("", "the file holds no attn.graph");
  checkFails(graph("a", one, sum) + graph("b", one, sum), "a second graph, @b; a file holds one");
}

TEST_CASE("a graph returns computed tensors, each once") {
  checkFails(graph("g", "", "  attn.return\n"), "graph @g returns nothing; return at least one value");
  checkFails(graph("g", one, "  attn.return %x\n"), "%x is an argument; only computed values are returned");
  checkFails(
      graph("g", "-> (tensor<1x8xf16>, tensor<1x8xf16>)", "  %y = attn.add %x, %x\n  attn.return %y, %y\n"),
      "%y is returned twice");
  checkFails("attn.graph @g(%x: tensor<1x8xf16>, %cache: !attn.kv_cache<heads = 1, dim = 8, f16>,\n"
             "    %slot: tensor<1xi64>) -> !attn.kv_cache<heads = 1, dim = 8, f16> {\n"
             "  %c = attn.kv_append %cache, %x, %x at %slot\n  attn.return %c\n}",
             "%c is a cache; caches are updated in place and not returned");
}

TEST_CASE("tensor names differ") {
  checkFails(graph("g", "-> (tensor<1x8xf16> {attn.name = \"x\"})", sum),
             "result 'x' has the name of another tensor");
  checkFails("attn.graph @g(%x: tensor<1x8xf16>, %z: tensor<1x8xf16> {attn.name = \"x\"}) " + one + " {\n" +
                 sum + "}",
             "argument 'x' has the name of another tensor");
}

TEST_CASE("a cache is appended to once") {
  for (std::string second : {"%cache", "%c"})
    checkFails("attn.graph @g(%x: tensor<1x8xf16>, %cache: !attn.kv_cache<heads = 1, dim = 8, f16>,\n"
               "    %slot: tensor<1xi64>) " +
                   one +
                   " {\n"
                   "  %c = attn.kv_append %cache, %x, %x at %slot\n"
                   "  %d = attn.kv_append " +
                   second + ", %x, %x at %slot\n" + sum + "}",
               "%cache is appended to twice; a graph appends to a cache once");
}

TEST_CASE("unused arguments and values are warned of") {
  File file("attn.graph @g(%x: tensor<1x8xf16>, %spare: tensor<4xf32>) " + one +
            " {\n  %n = attn.add %x, %x\n" + sum + "}");
  CHECK(file.verify());
  CHECK(file.warnings == "argument %spare is not used\n%n is not used\n");
}

TEST_CASE("values are found by the names in the source") {
  File file("attn.graph @g(%x: tensor<1x8xf16>, %w: tensor<8x8xf16> {attn.name = \"layer.weight\"})\n"
            "    -> (tensor<1x8xf16>, tensor<1x8xf16> {attn.name = \"last\"}) {\n"
            "  %r:2, %s = attn.linear %x, [%w, %w, %w]\n  %0 = attn.add %r#0, %r#1\n"
            "  %t = attn.add %0, %s\n  attn.return %0, %t\n}");
  GraphOp graph = file.graph();
  std::vector<std::string> names;
  for (mlir::Value argument : graph.getBody().getArguments())
    names.push_back(getValueName(argument));
  for (mlir::Operation &op : graph.getBody().front())
    for (mlir::Value value : op.getResults())
      names.push_back(getValueName(value));
  CHECK(names == std::vector<std::string>{"x", "layer.weight", "r#0", "r#1", "s", "0", "t"});
  CHECK(graph.getResultName(0) == "result0");
  CHECK(graph.getResultName(1) == "last");
}

TEST_CASE("misspelt names find their neighbours") {
  llvm::SmallVector<llvm::StringRef> names = {"gain", "w_q", "w_k", "x"};
  CHECK(nearestName("gian", names) == "gain");
  CHECK(nearestName("w_k ", names) == "w_k");
  CHECK(nearestName("y", names) == "");
  CHECK(nearestName("temperature", names) == "");
  CHECK(nearestName("", names) == "");
}
