//===- SimtDialect.cpp - Registration, parsing and verifiers of simt ------===//
#include "dialects/simt/Simt.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace cfc::simt;

#include "dialects/simt/SimtDialect.cpp.inc"
#include "dialects/simt/SimtEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/simt/SimtAttrs.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "dialects/simt/SimtTypes.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/simt/SimtOps.cpp.inc"

void SimtDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialects/simt/SimtOps.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialects/simt/SimtTypes.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/simt/SimtAttrs.cpp.inc"
      >();
}

ParseResult KernelOp::parse(OpAsmParser &parser, OperationState &result) {
  auto build = [](Builder &b, ArrayRef<Type> args, ArrayRef<Type> results,
                  function_interface_impl::VariadicFlag,
                  std::string &) { return b.getFunctionType(args, results); };
  return function_interface_impl::parseFunctionOp(
      parser, result, /*allowVariadic=*/false, getFunctionTypeAttrName(result.name), build,
      getArgAttrsAttrName(result.name), getResAttrsAttrName(result.name));
}

void KernelOp::print(OpAsmPrinter &printer) {
  function_interface_impl::printFunctionOp(printer, *this, /*isVariadic=*/false, getFunctionTypeAttrName(),
                                           getArgAttrsAttrName(), getResAttrsAttrName());
}

LogicalResult KernelOp::verify() {
  FunctionType type = getFunctionType();
  auto isGlobal = [](Type t) { return isa<PtrType>(t) && cast<PtrType>(t).isGlobal(); };
  if (type.getNumInputs() != 2 || !llvm::all_of(type.getInputs(), isGlobal) || type.getNumResults())
    return emitOpError("must take (table, workspace), both !simt.ptr<global>, and return nothing");
  int32_t threads = getThreads(), cluster = getCluster();
  if (threads < 32 || threads > 1024 || threads % 32)
    return emitOpError("has ") << threads << " threads; a multiple of 32 from 32 to 1024 is needed";
  if (cluster < 1 || cluster > 16)
    return emitOpError("has a cluster of ") << cluster << " CTAs; 1 to 16 are possible";
  return success();
}

LogicalResult LdmatrixOp::verify() {
  unsigned n = getNumResults();
  if (n != 1 && n != 2 && n != 4)
    return emitOpError("loads 1, 2 or 4 matrices, not ") << n;
  return success();
}

LogicalResult MmaOp::verify() {
  if (getA().size() != 4 || getB().size() != 2 || getC().size() != 4)
    return emitOpError("takes 4 registers of A, 2 of B and 4 of C");
  return success();
}

LogicalResult AwaitWordsOp::verify() {
  if (getAddresses().empty() || getAddresses().size() > 16 || getNumResults() != getAddresses().size())
    return emitOpError("takes 1 to 16 addresses and gives as many values, not ")
           << getAddresses().size() << " and " << getNumResults();
  return success();
}

LogicalResult TensorLoadOp::verify() {
  if (getCoordinates().size() < 2 || getCoordinates().size() > 4)
    return emitOpError("takes 2 to 4 coordinates, not ") << getCoordinates().size();
  return success();
}
