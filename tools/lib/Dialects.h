//===- Dialects.h - Every dialect and pass that the tools know ------------===//
#pragma once

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace cfc {

/// Adds cfc's dialects and those of MLIR that their files use.
void registerDialects(mlir::DialectRegistry &registry);

/// Makes every pass of cfc known by its command-line name.
void registerPasses();

} // namespace cfc
