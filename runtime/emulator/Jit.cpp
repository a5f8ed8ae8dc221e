//===- Jit.cpp - Compiles simt modules for this CPU ------------------------===//
//
// simt-to-emu, translation to LLVM IR, O2 and ORC. The CPU's features are pinned
// to x86-64-v3, or v2 where the host lacks it, so that results are alike
// everywhere; helper functions of the C library's runtime that LLVM calls for
// f16 and bf16 are provided here because not every libgcc has them.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "runtime/emulator/Emulator.h"
#include "runtime/emulator/EntryPoints.h"
#include "runtime/emulator/SimtToEmu.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/TargetParser/Host.h"
#include <bit>
#include <cmath>
#include <cstring>

using namespace cfc::emu;
namespace orc = llvm::orc;

struct Program::Impl {
  std::unique_ptr<orc::LLJIT> jit;
  std::vector<Kernel> kernels;
  LocationTable locations;
};

Program::Program(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
Program::~Program() = default;

//===-- Helper functions of f16 and bf16 ----------------------------------===//
// On x86-64 both types travel in the low 16 bits of a vector register, as _Float16 does.
using Bits16 = _Float16;

static float fromBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

static uint16_t toBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value))
    return bits >> 16 | 0x40;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static float fromF16(uint16_t bits) {
  uint32_t sign = uint32_t(bits & 0x8000) << 16, rest = bits & 0x7fff;
  if (rest >= 0x7c00)
    return std::bit_cast<float>(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  float magnitude = std::ldexp(static_cast<float>(rest & 0x3ff) + (rest >= 0x400 ? 1024.0f : 0.0f),
                               std::max<int>(rest >> 10, 1) - 25);
  return sign ? -magnitude : magnitude;
}

static uint16_t toF16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint16_t sign = bits >> 16 & 0x8000;
  float magnitude = std::fabs(value);
  if (std::isnan(value))
    return sign | 0x7e00 | (bits >> 13 & 0x3ff);
  if (magnitude >= 65520.0f)
    return sign | 0x7c00;
  int exponent = std::max(magnitude > 0 ? std::ilogb(magnitude) : -14, -14);
  // In units of the last place; the sum carries into the exponent where rounding does.
  auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  return sign | (units + (exponent + 14) * 1024);
}

static Bits16 truncateToBf16(float value) { return std::bit_cast<Bits16>(toBf16(value)); }
static Bits16 truncateDoubleToBf16(double value) {
  return std::bit_cast<Bits16>(toBf16(static_cast<float>(value)));
}
static Bits16 truncateToF16(float value) { return std::bit_cast<Bits16>(toF16(value)); }
static Bits16 truncateDoubleToF16(double value) {
  return std::bit_cast<Bits16>(toF16(static_cast<float>(value)));
}
static float extendF16(Bits16 value) { return fromF16(std::bit_cast<uint16_t>(value)); }
static float extendBf16(Bits16 value) { return fromBf16(std::bit_cast<uint16_t>(value)); }

//===-- Symbols -----------------------------------------------------------===//
template <typename Function>
static void define(orc::LLJIT &jit, orc::SymbolMap &symbols, const char *name, Function *function) {
  auto flags = llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable;
  symbols[jit.mangleAndIntern(name)] = {orc::ExecutorAddr::fromPtr(function), flags};
}

static void defineEmulator(orc::LLJIT &jit, orc::SymbolMap &symbols) {
#define CFC_DEFINE(name) define(jit, symbols, #name, &name)
  CFC_DEFINE(cfc_emu_load_global);
  CFC_DEFINE(cfc_emu_load_shared);
  CFC_DEFINE(cfc_emu_load_cluster);
  CFC_DEFINE(cfc_emu_store_global);
  CFC_DEFINE(cfc_emu_store_shared);
  CFC_DEFINE(cfc_emu_store_cluster);
  CFC_DEFINE(cfc_emu_map_rank);
  CFC_DEFINE(cfc_emu_atomic);
  CFC_DEFINE(cfc_emu_fence);
  CFC_DEFINE(cfc_emu_fence_proxy_async);
  CFC_DEFINE(cfc_emu_reads_done);
  CFC_DEFINE(cfc_emu_fence_mbarrier_init);
  CFC_DEFINE(cfc_emu_barrier);
  CFC_DEFINE(cfc_emu_syncwarp);
  CFC_DEFINE(cfc_emu_cluster_arrive);
  CFC_DEFINE(cfc_emu_cluster_wait);
  CFC_DEFINE(cfc_emu_grid_wait);
  CFC_DEFINE(cfc_emu_grid_barrier);
  CFC_DEFINE(cfc_emu_store_relaxed);
  CFC_DEFINE(cfc_emu_await_words);
  CFC_DEFINE(cfc_emu_global_timer);
  CFC_DEFINE(cfc_emu_mbarrier_init);
  CFC_DEFINE(cfc_emu_mbarrier_arrive);
  CFC_DEFINE(cfc_emu_mbarrier_expect);
  CFC_DEFINE(cfc_emu_mbarrier_wait);
  CFC_DEFINE(cfc_emu_bulk_load);
  CFC_DEFINE(cfc_emu_prefetch);
  CFC_DEFINE(cfc_emu_tensor_map_acquire);
  CFC_DEFINE(cfc_emu_tensor_load);
  CFC_DEFINE(cfc_emu_bulk_push);
  CFC_DEFINE(cfc_emu_store_async);
  CFC_DEFINE(cfc_emu_bulk_store);
  CFC_DEFINE(cfc_emu_bulk_commit);
  CFC_DEFINE(cfc_emu_bulk_wait);
  CFC_DEFINE(cfc_emu_shuffle);
  CFC_DEFINE(cfc_emu_ldmatrix);
  CFC_DEFINE(cfc_emu_movmatrix);
  CFC_DEFINE(cfc_emu_mma);
  CFC_DEFINE(cfc_emu_exp2);
  CFC_DEFINE(cfc_emu_log2);
  CFC_DEFINE(cfc_emu_rsqrt);
  CFC_DEFINE(cfc_emu_unpack_e4m3);
  CFC_DEFINE(cfc_emu_pack_e4m3);
  CFC_DEFINE(cfc_emu_poll);
  CFC_DEFINE(cfc_emu_trap);
#undef CFC_DEFINE
}

/// What LLVM may call for arithmetic: none of it is exported from a static program.
static void defineLibrary(orc::LLJIT &jit, orc::SymbolMap &symbols) {
  define(jit, symbols, "__truncsfbf2", &truncateToBf16);
  define(jit, symbols, "__truncdfbf2", &truncateDoubleToBf16);
  define(jit, symbols, "__truncsfhf2", &truncateToF16);
  define(jit, symbols, "__truncdfhf2", &truncateDoubleToF16);
  define(jit, symbols, "__extendhfsf2", &extendF16);
  define(jit, symbols, "__extendbfsf2", &extendBf16);
  using Unary = float(float);
  using Binary = float(float, float);
  std::pair<const char *, Unary *> unary[] = {{"expf", std::exp},
                                              {"exp2f", std::exp2},
                                              {"logf", std::log},
                                              {"log2f", std::log2},
                                              {"sqrtf", std::sqrt},
                                              {"sinf", std::sin},
                                              {"cosf", std::cos},
                                              {"tanhf", std::tanh},
                                              {"floorf", std::floor},
                                              {"ceilf", std::ceil},
                                              {"roundf", std::round},
                                              {"rintf", std::rint},
                                              {"roundevenf", std::nearbyint},
                                              {"truncf", std::trunc},
                                              {"fabsf", std::fabs},
                                              {"erff", std::erf}};
  for (auto [name, function] : unary)
    define(jit, symbols, name, function);
  std::pair<const char *, Binary *> binary[] = {{"powf", std::pow},
                                                {"fminf", std::fmin},
                                                {"fmaxf", std::fmax},
                                                {"fmodf", std::fmod},
                                                {"copysignf", std::copysign}};
  for (auto [name, function] : binary)
    define(jit, symbols, name, function);
  define(jit, symbols, "fmaf", static_cast<float (*)(float, float, float)>(std::fma));
  define(jit, symbols, "fma", static_cast<double (*)(double, double, double)>(std::fma));
  define(jit, symbols, "memcpy", &std::memcpy);
  define(jit, symbols, "memmove", &std::memmove);
  define(jit, symbols, "memset", &std::memset);
}

//===-- Compilation -------------------------------------------------------===//
static orc::JITTargetMachineBuilder targetMachine() {
  orc::JITTargetMachineBuilder builder{llvm::Triple(llvm::sys::getProcessTriple())};
#if defined(__x86_64__)
  builder.setCPU(__builtin_cpu_supports("x86-64-v3") ? "x86-64-v3" : "x86-64-v2");
#endif
  return builder;
}

static void optimise(llvm::Module &module, llvm::TargetMachine *machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager sccs;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(sccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, sccs, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2).run(module, modules);
}

static llvm::Error internalError(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

/// Lowers a clone of `module`. Diagnostics become the text of the error.
static llvm::Expected<orc::ThreadSafeModule> translate(mlir::ModuleOp module, LocationTable &locations) {
  mlir::MLIRContext *context = module.getContext();
  mlir::DialectRegistry registry;
  mlir::registerBuiltinDialectTranslation(registry);
  mlir::registerLLVMDialectTranslation(registry);
  context->appendDialectRegistry(registry);
  context->loadDialect<mlir::LLVM::LLVMDialect, mlir::cf::ControlFlowDialect, mlir::vector::VectorDialect>();
  std::string text;
  mlir::ScopedDiagnosticHandler handler(context, [&](mlir::Diagnostic &diagnostic) {
    llvm::raw_string_ostream os(text);
    os << diagnostic.getLocation() << ": " << diagnostic << "\n";
    return mlir::success();
  });
  mlir::OwningOpRef<mlir::ModuleOp> clone(module.clone());
  if (mlir::failed(lowerSimtToEmu(*clone, locations)))
    return internalError("simt-to-emu failed: " + text);
  auto llvmContext = std::make_unique<llvm::LLVMContext>();
  std::unique_ptr<llvm::Module> translated = mlir::translateModuleToLLVMIR(*clone, *llvmContext, "cfc_emu");
  if (!translated || llvm::verifyModule(*translated, nullptr))
    return internalError("translation to LLVM IR failed: " + text);
  return orc::ThreadSafeModule(std::move(translated), std::move(llvmContext));
}

llvm::Expected<std::unique_ptr<Program>> Program::compile(mlir::ModuleOp module) {
  static const bool initialised =
      !llvm::InitializeNativeTarget() && !llvm::InitializeNativeTargetAsmPrinter();
  if (!initialised)
    return internalError("LLVM has no code generator for this CPU");
  auto impl = std::make_unique<Impl>();
  impl->kernels = describeKernels(module);
  llvm::Expected<orc::ThreadSafeModule> translated = translate(module, impl->locations);
  if (!translated)
    return translated.takeError();

  orc::JITTargetMachineBuilder builder = targetMachine();
  llvm::Expected<std::unique_ptr<llvm::TargetMachine>> machine = builder.createTargetMachine();
  if (!machine)
    return machine.takeError();
  translated->withModuleDo([&](llvm::Module &m) {
    m.setDataLayout((*machine)->createDataLayout());
    m.setTargetTriple((*machine)->getTargetTriple());
    optimise(m, machine->get());
  });
  llvm::Expected<std::unique_ptr<orc::LLJIT>> jit =
      orc::LLJITBuilder().setJITTargetMachineBuilder(std::move(builder)).create();
  if (!jit)
    return jit.takeError();
  orc::SymbolMap symbols;
  defineEmulator(**jit, symbols);
  defineLibrary(**jit, symbols);
  if (llvm::Error error = (*jit)->getMainJITDylib().define(orc::absoluteSymbols(std::move(symbols))))
    return error;
  if (llvm::Error error = (*jit)->addIRModule(std::move(*translated)))
    return error;
  for (Kernel &kernel : impl->kernels) {
    llvm::Expected<orc::ExecutorAddr> address = (*jit)->lookup(kernel.name);
    if (!address)
      return address.takeError();
    kernel.entry = address->toPtr<KernelFn>();
  }
  impl->jit = std::move(*jit);
  return std::unique_ptr<Program>(new Program(std::move(impl)));
}

//===-- Launch ------------------------------------------------------------===//
Report Program::launch(llvm::StringRef name, unsigned numClusters, void *table, void *workspace,
                       const Memory &memory, const Options &options) const {
  Report report;
  for (const Kernel &kernel : impl->kernels) {
    if (kernel.name != name)
      continue;
    try {
      if (numClusters)
        Launch(kernel, impl->locations, numClusters, table, workspace, memory, options, report).run();
    } catch (const std::bad_alloc &) {
      report.ok = false;
      report.findings.push_back(
          {FindingKind::Usage, "there is not enough memory to emulate this launch", {}});
    }
    return report;
  }
  report.ok = false;
  report.findings.push_back({FindingKind::Usage, "the program has no kernel '" + name.str() + "'", {}});
  return report;
}
