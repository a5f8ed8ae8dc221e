//===- Emit.cpp - PTX through LLVM's NVPTX backend -------------------------===//
//
// simt module -> simt-to-nvvm -> LLVM IR -> O3 -> PTX, all in this process.
// LLVM is built without assertions, so each step's result is verified, and
// what LLVM would end the process for becomes a message and exit code 4.
//
//===----------------------------------------------------------------------===//
#include "compiler/emit/Emit.h"
#include "dialects/simt/Passes.h"
#include "dialects/simt/Simt.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include <chrono>
#include <mutex>
#include <unistd.h>

using namespace mlir;

namespace cfc {
namespace {

llvm::Error fail(const llvm::Twine &what) {
  return llvm::createStringError("internal error: " + what + "; please report it with the input");
}

/// Adds the time since the last lap to the options' list.
class Laps {
public:
  explicit Laps(const EmitOptions &options) : times(options.times) {}
  void lap(const char *phase) {
    auto now = std::chrono::steady_clock::now();
    if (times)
      times->emplace_back(phase, std::chrono::duration<double, std::milli>(now - last).count());
    last = now;
  }

private:
  std::vector<std::pair<std::string, double>> *times;
  std::chrono::steady_clock::time_point last = std::chrono::steady_clock::now();
};

//===-- LLVM's ways to fail -----------------------------------------------===//

/// LLVM calls this where it cannot go on (an instruction that it cannot select). It must not return.
[[noreturn]] void reportFatal(void *, const char *reason, bool) {
  llvm::errs() << "cfc: internal error: LLVM: " << reason << "; please report it with the input\n";
  llvm::errs().flush();
  _exit(4);
}

/// Collects what LLVM's passes report; their default is to end the process.
struct CollectDiagnostics final : llvm::DiagnosticHandler {
  explicit CollectDiagnostics(std::string &errors) : errors(errors) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo &info) override {
    if (info.getSeverity() != llvm::DS_Error)
      return true;
    llvm::raw_string_ostream stream(errors);
    llvm::DiagnosticPrinterRawOStream printer(stream);
    stream << (errors.empty() ? "" : "; ");
    info.print(printer);
    return true;
  }
  std::string &errors;
};

//===-- The target --------------------------------------------------------===//

void initialiseNvptx() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    // 32-bit shared addresses: half the registers and half the address arithmetic. There is no other way to
    // say so.
    auto &options = llvm::cl::getRegisteredOptions();
    if (auto it = options.find("nvptx-short-ptr"); it != options.end())
      static_cast<llvm::cl::opt<bool> *>(it->second)->setValue(true);
  });
}

llvm::Expected<std::unique_ptr<llvm::TargetMachine>> createTargetMachine(const EmitOptions &options,
                                                                         int ptxVersion) {
  initialiseNvptx();
  llvm::Triple triple("nvptx64-nvidia-cuda");
  std::string error;
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return fail(error);
  llvm::TargetOptions targetOptions;
  // No contraction: a sum is rounded as it is written. Then mul and add are printed with `.rn`, which ptxas
  // keeps too.
  targetOptions.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  std::string features = llvm::formatv("+ptx{0}", ptxVersion);
  std::unique_ptr<llvm::TargetMachine> machine(
      target->createTargetMachine(triple, options.target, features, targetOptions, llvm::Reloc::PIC_,
                                  std::nullopt, llvm::CodeGenOptLevel::Aggressive));
  if (!machine)
    return fail("LLVM has no target " + options.target);
  return machine;
}

//===-- Steps -------------------------------------------------------------===//

/// A copy of the module in the LLVM and NVVM dialects.
llvm::Expected<OwningOpRef<ModuleOp>> lower(ModuleOp simtModule) {
  OwningOpRef<ModuleOp> lowered(simtModule.clone());
  PassManager passes(simtModule.getContext());
  if (!simtModule.getOps<simt::KernelOp>().empty())
    passes.addPass(simt::createSimtToNvvm());
  if (failed(passes.run(*lowered)) || failed(verify(*lowered)))
    return fail("simt-to-nvvm failed");
  return lowered;
}

llvm::Expected<std::unique_ptr<llvm::Module>> translate(ModuleOp lowered, llvm::LLVMContext &context,
                                                        llvm::TargetMachine &machine) {
  MLIRContext &mlirContext = *lowered.getContext();
  registerBuiltinDialectTranslation(mlirContext);
  registerLLVMDialectTranslation(mlirContext);
  registerNVVMDialectTranslation(mlirContext);
  std::unique_ptr<llvm::Module> module = translateModuleToLLVMIR(lowered, context, "cfc");
  if (!module)
    return fail("translation to LLVM IR failed");
  module->setTargetTriple(machine.getTargetTriple());
  module->setDataLayout(machine.createDataLayout());
  return module;
}

/// Warp-wide instructions must stay where all lanes meet them. LLVM does not know that of mma and of inline
/// PTX, and might sink one into a branch that only some lanes take.
void markConvergent(llvm::Module &module) {
  for (llvm::Function &function : module)
    for (llvm::Instruction &instruction : llvm::instructions(function)) {
      auto *call = llvm::dyn_cast<llvm::CallInst>(&instruction);
      if (!call)
        continue;
      llvm::Function *callee = call->getCalledFunction();
      if (call->isInlineAsm() || (callee && callee->getName().starts_with("llvm.nvvm.mma.")))
        call->setConvergent();
    }
}

llvm::Error verifyLlvm(const llvm::Module &module) {
  std::string message;
  llvm::raw_string_ostream stream(message);
  if (llvm::verifyModule(module, &stream))
    return fail("invalid LLVM IR: " + message);
  return llvm::Error::success();
}

void optimise(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager sccs;
  llvm::ModuleAnalysisManager modules;
  llvm::PipelineTuningOptions tuning;
  // The kernel is unrolled where its author wanted that; a CPU's vectors mean nothing here.
  tuning.LoopUnrolling = false;
  tuning.LoopVectorization = false;
  tuning.SLPVectorization = false;
  llvm::PassBuilder builder(&machine, tuning);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(sccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, sccs, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3).run(module, modules);
}

llvm::Expected<std::string> generate(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::SmallString<0> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::AssemblyFile))
    return fail("LLVM's NVPTX backend writes no PTX");
  passes.run(module);
  return std::string(text);
}

/// All steps up to optimised LLVM IR, then `finish`.
llvm::Expected<std::string>
emit(ModuleOp simtModule, const EmitOptions &options,
     llvm::function_ref<llvm::Expected<std::string>(llvm::Module &, llvm::TargetMachine &)> finish) {
  Laps laps(options);
  llvm::ScopedFatalErrorHandler fatal(reportFatal);
  auto machine = createTargetMachine(options, requiredPtxVersion(simtModule));
  if (!machine)
    return machine.takeError();
  laps.lap("LLVM target");
  auto lowered = lower(simtModule);
  if (!lowered)
    return lowered.takeError();
  laps.lap("simt-to-nvvm");
  llvm::LLVMContext context;
  std::string errors;
  context.setDiagnosticHandler(std::make_unique<CollectDiagnostics>(errors));
  auto module = translate(**lowered, context, **machine);
  if (!module)
    return module.takeError();
  markConvergent(**module);
  if (llvm::Error error = verifyLlvm(**module))
    return error;
  laps.lap("translation");
  optimise(**module, **machine);
  if (llvm::Error error = verifyLlvm(**module))
    return error;
  laps.lap("LLVM O3");
  auto text = finish(**module, **machine);
  laps.lap("LLVM codegen");
  if (text && !errors.empty())
    return fail("LLVM: " + errors);
  return text;
}

} // namespace

/// The version that knows what `op` becomes, before and after simt-to-nvvm: a fence that makes a tensor map
/// in memory visible, stores that count at an mbarrier, numbers of 8 bits (for LLVM). sm_90a itself, cluster
/// scopes on mbarriers, bulk and tensor copies all came with 8.0.
static int ptxVersionOf(Operation *op) {
  auto ptx = dyn_cast<LLVM::InlineAsmOp>(op);
  auto becomes = [&](StringRef text) { return ptx && ptx.getAsmString().contains(text); };
  if (isa<simt::TensorMapAcquireOp>(op) || becomes("fence.proxy.tensormap"))
    return 83;
  auto call = dyn_cast<LLVM::CallIntrinsicOp>(op);
  if (isa<simt::UnpackE4m3Op, simt::PackE4m3Op>(op) || (call && call.getIntrin().contains("e4m3x2")))
    return 81;
  return isa<simt::StoreAsyncOp>(op) || becomes("st.async") ? 81 : 80;
}

int requiredPtxVersion(ModuleOp module) {
  int version = 80;
  module.walk([&](Operation *op) { version = std::max(version, ptxVersionOf(op)); });
  return version;
}

llvm::Expected<std::string> emitPtx(ModuleOp simtModule, const EmitOptions &options) {
  return emit(simtModule, options, generate);
}

llvm::Expected<std::string> emitLlvm(ModuleOp simtModule, const EmitOptions &options) {
  return emit(simtModule, options,
              [](llvm::Module &module, llvm::TargetMachine &) -> llvm::Expected<std::string> {
                std::string text;
                llvm::raw_string_ostream stream(text);
                module.print(stream, nullptr);
                return text;
              });
}

} // namespace cfc
