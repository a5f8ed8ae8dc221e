cfc_unit_test(AssemblerTest SOURCES AssemblerTest.cpp LINK CfcAssembler)
