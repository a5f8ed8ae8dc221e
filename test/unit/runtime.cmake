cfc_unit_test(BundleTest SOURCES BundleTest.cpp RuntimeFixture.cpp LINK CfcBundle nlohmann_json::nlohmann_json)
cfc_unit_test(RuntimeTest
  SOURCES RuntimeTest.cpp RuntimeLaunchTest.cpp RuntimeFixture.cpp FakeDriver.cpp RuntimeHeaderTest.c LINK CfcRuntime)
