//===- Simt.h - The simt dialect: one GPU thread ---------------------------===//
#pragma once
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/simt/SimtDialect.h.inc"
#include "dialects/simt/SimtEnums.h.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/simt/SimtAttrs.h.inc"
#define GET_TYPEDEF_CLASSES
#include "dialects/simt/SimtTypes.h.inc"
#define GET_OP_CLASSES
#include "dialects/simt/SimtOps.h.inc"
