//===- ExplainSvg.cpp - A plan as a timeline --------------------------------===//
//
// Each kernel has three lanes over one axis of time: what the producer copies,
// what consumers do, and exchanges. Bars that are wide enough carry their text;
// all have it as a title, which viewers show under the pointer.
//
//===----------------------------------------------------------------------===//
#include "compiler/plan/Explain.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>

using namespace mlir;
using namespace cfc;

namespace {
constexpr double kLeft = 90, kRight = 20, kPlot = 1000; // pixels
constexpr double kLane = 28, kBar = 22,
                 kKernel = 3 * kLane + 44; // of a lane, a bar, a kernel with its heading
constexpr double kHead = 50;               // of the title and the legend
constexpr double kLetter = 6.2;            // width of a letter, about

class Timeline {
public:
  explicit Timeline(const Explanation &explanation) : explanation(explanation), out(text) {}
  std::string draw();

private:
  double x(double us) const { return kLeft + us / longest * kPlot; }
  void head(double height);
  void axis(double top, double bottom);
  void kernel(const ExplainedKernel &kernel, size_t index, double top);
  void bar(double top, double start, double us, StringRef colour, const std::string &title,
           const std::string &shortText);
  void label(double left, double top, const std::string &words, StringRef anchor = "start",
             StringRef weight = "normal");

  const Explanation &explanation;
  double longest = 1;
  std::string text;
  llvm::raw_string_ostream out;
};
} // namespace

static std::string escaped(StringRef words) {
  std::string result;
  for (char c : words)
    result += c == '<'   ? "&lt;"
              : c == '>' ? "&gt;"
              : c == '&' ? "&amp;"
              : c == '"' ? "&quot;"
                         : std::string(1, c);
  return result;
}

static StringRef colourOf(Phase::Kind kind) {
  constexpr StringRef colours[] = {"#d0d0d0", "#f2c96d", "#7fb3e6", "#e88f7a", "#c9b6e4", "#9ccf8f"};
  return colours[kind];
}
static constexpr StringRef kCopyColour = "#3f78b5";

void Timeline::label(double left, double top, const std::string &words, StringRef anchor, StringRef weight) {
  out << llvm::formatv(
      "  <text x=\"{0:F1}\" y=\"{1:F1}\" text-anchor=\"{2}\" font-weight=\"{3}\">{4}</text>\n", left, top,
      anchor, weight, escaped(words));
}

void Timeline::bar(double top, double start, double us, StringRef colour, const std::string &title,
                   const std::string &shortText) {
  double width = std::max(us / longest * kPlot, 0.5);
  out << llvm::formatv("  <g><title>{0}</title><rect x=\"{1:F1}\" y=\"{2:F1}\" width=\"{3:F1}\" "
                       "height=\"{4:F1}\" fill=\"{5}\" stroke=\"#ffffff\" stroke-width=\"0.5\"/></g>\n",
                       escaped(title), x(start), top, width, kBar, colour);
  if (shortText.size() * kLetter < width - 6)
    label(x(start) + 4, top + kBar - 7, shortText);
}

void Timeline::head(double height) {
  double width = kLeft + kPlot + kRight;
  out << llvm::formatv("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:F0}\" height=\"{1:F0}\" "
                       "viewBox=\"0 0 {0:F0} {1:F0}\" font-family=\"sans-serif\" font-size=\"11\">\n",
                       width, height);
  out << llvm::formatv("  <rect width=\"{0:F0}\" height=\"{1:F0}\" fill=\"#ffffff\"/>\n", width, height);
  label(kLeft, 18,
        llvm::formatv(
            "@{0}, plan {1}, on {2}: {3:F1} us predicted for {4} cached tokens; {5:F1} us is what the "
            "memory needs",
            explanation.graph, explanation.planHash, explanation.machine.name, explanation.us(),
            explanation.length, explanation.floorUs()),
        "start", "bold");
  double left = kLeft;
  auto key = [&](StringRef colour, StringRef name) {
    out << llvm::formatv("  <rect x=\"{0:F1}\" y=\"28\" width=\"12\" height=\"12\" fill=\"{1}\"/>\n", left,
                         colour);
    label(left + 16, 38, name.str());
    left += 34 + name.size() * kLetter;
  };
  key(kCopyColour, "copies");
  for (Phase::Kind kind :
       {Phase::Launch, Phase::Norm, Phase::Stream, Phase::Exchange, Phase::Elements, Phase::Sum})
    key(colourOf(kind), stringify(kind));
}

/// Ticks at 1, 2 or 5 times a power of ten, at most twelve.
void Timeline::axis(double top, double bottom) {
  double step = std::pow(10, std::floor(std::log10(longest / 12)));
  for (double factor : {2.0, 2.5, 2.0})
    if (longest / step > 12)
      step *= factor;
  for (int64_t i = 0; i * step <= longest * 1.0001; ++i) {
    out << llvm::formatv(
        "  <line x1=\"{0:F1}\" y1=\"{1:F1}\" x2=\"{0:F1}\" y2=\"{2:F1}\" stroke=\"#e4e4e4\"/>\n", x(i * step),
        top, bottom);
    label(x(i * step), bottom + 14, llvm::formatv(step < 1 ? "{0:F1} us" : "{0:F0} us", i * step), "middle");
  }
}

void Timeline::kernel(const ExplainedKernel &kernel, size_t index, double top) {
  const KernelPlan &k = kernel.plan;
  label(kLeft, top + 12,
        llvm::formatv(
            "kernel {0}: {1} clusters at a time of {2} CTAs, {3} + 1 warps, {4} CTAs a SM; round 1 of {5}",
            index, kernel.cost.kernels.front().clusters, k.part, k.warps, k.ctasPerSm,
            kernel.cost.kernels.front().rounds));
  double producer = top + 20, consumers = producer + kLane, exchanges = consumers + kLane;
  label(kLeft - 8, producer + 15, "producer", "end");
  label(kLeft - 8, consumers + 15, "consumers", "end");
  label(kLeft - 8, exchanges + 15, "exchanges", "end");
  for (const Phase &phase : kernel.cost.phases) {
    std::string title = llvm::formatv("{0}: {1:F2} us", phase.what, phase.us);
    StringRef name = StringRef(phase.what).split(':').first;
    bool isExchange = phase.kind == Phase::Exchange || phase.kind == Phase::Sum;
    bar(isExchange ? exchanges : consumers, phase.start, phase.us, colourOf(phase.kind), title, name.str());
    if (phase.kind == Phase::Stream && phase.us > 0)
      bar(producer, phase.loadStart, phase.us + phase.hidden, kCopyColour,
          llvm::formatv("copies for {0}: limit {1}", phase.what, phase.limits.largest()), "");
  }
}

std::string Timeline::draw() {
  for (const ExplainedKernel &kernel : explanation.kernels)
    longest = std::max(longest, kernel.cost.us);
  double bottom = kHead + explanation.kernels.size() * kKernel;
  head(bottom + 24);
  axis(kHead, bottom);
  for (auto [i, each] : llvm::enumerate(explanation.kernels))
    kernel(each, i, kHead + i * kKernel);
  out << "</svg>\n";
  return std::move(text);
}

std::string cfc::explanationSvg(const Explanation &explanation) { return Timeline(explanation).draw(); }
