//===- BenchReport.cpp - What cfc bench prints ----------------------------===//
#include "tools/lib/BenchReport.h"
#include <algorithm>
#include <nlohmann/json.hpp>

using namespace cfc;
using nlohmann::ordered_json;

/// Columns as people see them: bytes that continue a character of UTF-8 take none.
static size_t widthOf(const std::string &text) {
  return size_t(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string cfc::tableText(const std::vector<std::vector<std::string>> &rows, const std::string &indent) {
  std::vector<size_t> widths;
  for (const auto &row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      widths.resize(std::max(widths.size(), i + 1));
      widths[i] = std::max(widths[i], widthOf(row[i]));
    }
  std::string text;
  for (const auto &row : rows) {
    std::string line = indent;
    for (size_t i = 0; i < row.size(); ++i) {
      std::string space(widths[i] - widthOf(row[i]), ' ');
      line += (i ? "  " : "") + (i ? space + row[i] : row[i] + space);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string cfc::reasonOf(const Failure &failure) {
  std::string_view text = failure.what(), prefix = "error: ";
  return std::string(text.starts_with(prefix) ? text.substr(prefix.size()) : text);
}

ordered_json cfc::toJson(const Spread &spread) {
  return {{"median", spread.median}, {"min", spread.min}, {"p10", spread.p10}, {"p90", spread.p90}};
}

static std::string sizeText(double bytes) {
  return bytes >= 1e9   ? fmt::format("{:.2f} GB", bytes / 1e9)
         : bytes >= 1e6 ? fmt::format("{:.1f} MB", bytes / 1e6)
                        : fmt::format("{:.1f} KB", bytes / 1e3);
}

std::string cfc::deviceText(const BenchGpu &gpu, size_t passBytes, double bandwidth) {
  return fmt::format("GPU 0: {}, driver {}; one pass over {} reads {:.3f} TB/s\n", gpu.name(),
                     gpu.driverVersion(), sizeText(double(passBytes)), bandwidth / 1e12);
}

ordered_json cfc::deviceJson(const BenchGpu &gpu, size_t passBytes, double bandwidth) {
  return {{"name", gpu.name()},        {"driver", gpu.driverVersion()},
          {"sms", gpu.sms()},          {"l2_bytes", gpu.l2Bytes()},
          {"stream_bytes", passBytes}, {"stream_bytes_per_second", bandwidth}};
}

//===----------------------------------------------------------------------===//
// A graph
//===----------------------------------------------------------------------===//

std::string cfc::headText(const BenchReport &report) {
  std::string text = fmt::format("graph {}\n", report.graph);
  text += report.input.empty() ? "not chained: no operand has the shape and type of the first result; all "
                                 "blocks read the same input\n"
                               : fmt::format("chained: each block's {} is the block before's {}\n",
                                             report.input, report.output);
  std::string blocks = report.page           ? fmt::format("shuffled pages of {} tokens, ", report.page)
                       : report.requests > 1 ? fmt::format("of {} requests, each ", report.requests)
                                             : "";
  return text + fmt::format("caches are {}{}; {} replays; microseconds a block\n", blocks,
                            report.tokenMajor ? "[token, head, dim]" : "[head, token, dim]", report.replays);
}

static std::string us(double value) { return fmt::format("{:.2f}", value); }

static std::vector<std::string> row(const std::string &name, const Spread &spread, const BenchCase &result) {
  auto ratio = [&](double to) { return to > 0 ? fmt::format("{:.3f}x", spread.median / to) : "-"; };
  return {name,
          us(spread.median),
          us(spread.min),
          us(spread.p10),
          us(spread.p90),
          ratio(result.floorUs),
          ratio(result.stream.median),
          result.predictedUs ? ratio(*result.predictedUs) : "-"};
}

std::string cfc::caseText(const BenchCase &result) {
  std::string length = result.lengths ? result.lengths->describe(result.requests) + ", " : "";
  std::string text =
      fmt::format("\n{}plan {}: {} layers of {}: {} of weights, {} of cache, {} of activations\n", length,
                  result.plan, result.layers, sizeText(result.bytes.total()), sizeText(result.bytes.weights),
                  sizeText(result.bytes.cache), sizeText(result.bytes.activations));
  for (const BenchCase::Kernel &kernel : result.kernels)
    text +=
        fmt::format("  kernel {}: {} CTAs in clusters of {}, {} threads and {} bytes of shared memory each\n",
                    kernel.name, kernel.grid, kernel.cluster, kernel.threads, kernel.sharedBytes);
  std::vector<std::vector<std::string>> rows = {
      {"", "median", "min", "p10", "p90", "of floor", "of stream", "of predicted"}};
  rows.push_back({"floor: the bytes at the bandwidth", us(result.floorUs)});
  rows.push_back(row("stream: a kernel that only reads them", result.stream, result));
  rows.back().back() = "";
  if (result.predictedUs)
    rows.push_back({"predicted", us(*result.predictedUs)});
  rows.push_back(row("cfc", result.block, result));
  std::string problems;
  for (const BaselineResult &baseline : result.baselines) {
    if (baseline.us) {
      rows.push_back(row(baseline.name, *baseline.us, result));
      rows.back().back() = "";
    } else {
      problems += fmt::format("  {}: not timed: {}\n", baseline.name, baseline.problem);
    }
  }
  return text + tableText(rows, "  ") + problems;
}

static ordered_json caseJson(const BenchCase &result) {
  ordered_json json;
  if (result.lengths) {
    json["len"] = result.lengths->text;
    if (result.lengths->isRagged())
      json["lengths"] = result.lengths->tokens;
    else
      json["length"] = result.lengths->tokens[0];
    json["requests"] = result.requests;
  }
  json["plan"] = result.plan;
  for (const BenchCase::Kernel &kernel : result.kernels)
    json["kernels"].push_back({{"name", kernel.name},
                               {"ctas", kernel.grid},
                               {"cluster", kernel.cluster},
                               {"threads", kernel.threads},
                               {"shared_bytes", kernel.sharedBytes}});
  json.update({{"layers", result.layers},
               {"bytes",
                {{"weights", result.bytes.weights},
                 {"cache", result.bytes.cache},
                 {"activations", result.bytes.activations},
                 {"total", result.bytes.total()}}},
               {"floor_us", result.floorUs},
               {"stream_us", toJson(result.stream)},
               {"block_us", toJson(result.block)}});
  if (result.predictedUs)
    json["predicted_us"] = *result.predictedUs;
  for (const BaselineResult &baseline : result.baselines) {
    ordered_json entry = {{"name", baseline.name}};
    if (baseline.us)
      entry["us"] = toJson(*baseline.us);
    else
      entry["problem"] = baseline.problem;
    json["baselines"].push_back(entry);
  }
  return json;
}

ordered_json cfc::toJson(const BenchReport &report) {
  ordered_json json;
  json["graph"] = report.graph;
  json["chained"] = !report.input.empty();
  if (!report.input.empty())
    json["chain"] = {{"input", report.input}, {"output", report.output}};
  json["cache_order"] = report.tokenMajor ? "token" : "head";
  if (report.page)
    json["page"] = report.page;
  json["replays"] = report.replays;
  for (const BenchCase &result : report.cases)
    json["cases"].push_back(caseJson(result));
  return json;
}
