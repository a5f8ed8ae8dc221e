if(TARGET CfcEmu AND TARGET CfcKernelLower)
  cfc_mlir_library(CfcKernelHarness SOURCES KernelHarness.cpp
    LINK CfcKernel CfcKernelLower CfcKernelManifest CfcEmu CfcRuntime CfcAttnMath Catch2::Catch2 MLIRParser MLIRTransforms)
  cfc_unit_test(ExchangeTest SOURCES ExchangeTest.cpp ExchangeMutantTest.cpp LINK CfcKernelHarness fmt::fmt)
  cfc_unit_test(KernelTest SOURCES KernelTest.cpp LINK CfcKernelHarness fmt::fmt)
  cfc_unit_test(TileMemoryTest SOURCES TileMemoryTest.cpp LINK CfcKernelHarness)
  cfc_unit_test(GridSumTest SOURCES GridSumTest.cpp LINK CfcKernelHarness fmt::fmt)
endif()
