cfc_unit_test(BundleTest SOURCES BundleTest.cpp RuntimeFixture.cpp LINK CfcBundle nlohmann_json::nlohmann_json)
cfc_unit_test(PackingTest SOURCES PackingTest.cpp LINK CfcBundle)
cfc_unit_test(RuntimeTest
  SOURCES RuntimeTest.cpp RuntimeGraphsTest.cpp RuntimeLaunchTest.cpp RuntimeVariantTest.cpp RuntimePackTest.cpp RuntimeFixture.cpp FakeDriver.cpp
          RuntimeHeaderTest.c
  LINK CfcRuntime)
cfc_unit_test(CaptureTest SOURCES CaptureTest.cpp RuntimeFixture.cpp FakeDriver.cpp LINK CfcRuntime CfcToolsBase)
if(TARGET CfcTools)
  cfc_unit_test(RuntimeBatchTest SOURCES RuntimeBatchTest.cpp RuntimeFixture.cpp FakeDriver.cpp LINK CfcRuntime CfcTools)
endif()
if(TARGET CfcPipeline AND TARGET CfcEmu)
  foreach(name RuntimeEmulatorTest GraphsTest LargeTest)
    cfc_unit_test(${name} SOURCES ${name}.cpp RuntimeFixture.cpp FakeDriver.cpp
      LINK CfcRuntime CfcRegistry CfcPipeline CfcEmu MLIRParser)
    if(TARGET ${name})
      target_compile_definitions(${name} PRIVATE CFC_GRAPHS="${CMAKE_SOURCE_DIR}/templates/graphs")
    endif()
  endforeach()
endif()
cfc_unit_test(RuntimeSharedTest SOURCES RuntimeSharedTest.cpp)
add_dependencies(RuntimeSharedTest cfc_runtime)
target_compile_definitions(RuntimeSharedTest PRIVATE CFC_SHARED_RUNTIME="$<TARGET_FILE:cfc_runtime>")
