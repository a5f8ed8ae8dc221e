if(TARGET CfcTools AND TARGET CfcKernelHarness)
  cfc_unit_test(BenchTest SOURCES BenchTest.cpp LINK CfcTools CfcKernelHarness)
  target_compile_definitions(BenchTest PRIVATE CFC_GRAPHS="${CMAKE_SOURCE_DIR}/templates/graphs")
endif()
