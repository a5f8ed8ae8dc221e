cfc_unit_test(EmulatorTest SOURCES EmulatorTest.cpp EmulatorMutantTest.cpp TensorLoadTest.cpp LINK CfcEmu MLIRParser)
if(TARGET EmulatorTest)
  target_compile_definitions(EmulatorTest PRIVATE CFC_EMULATOR_TESTS="${CMAKE_SOURCE_DIR}/test/emulator")
endif()
