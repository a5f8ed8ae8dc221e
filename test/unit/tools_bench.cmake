cfc_unit_test(BenchTest SOURCES BenchTest.cpp LINK CfcTools CfcKernelHarness)
