# Tests of numbers through the whole chain, graph to emulator.
if(TARGET CfcTools AND TARGET CfcKernelHarness)
  cfc_mlir_library(CfcNumericsHarness SOURCES NumericsHarness.cpp LINK CfcTools Catch2::Catch2)
  cfc_unit_test(PlansTest SOURCES PlansTest.cpp LINK CfcNumericsHarness)
  cfc_unit_test(ExtremesTest SOURCES ExtremesTest.cpp LINK CfcNumericsHarness)
  cfc_unit_test(TypesTest SOURCES TypesTest.cpp LINK CfcNumericsHarness)
  cfc_unit_test(CountersTest SOURCES CountersTest.cpp LINK CfcNumericsHarness CfcKernelHarness)
  target_compile_definitions(CountersTest PRIVATE CFC_GRAPHS="${CMAKE_SOURCE_DIR}/templates/graphs")
endif()
