cfc_unit_test(ToolsTest SOURCES NpyTest.cpp SafetensorsTest.cpp InputsTest.cpp ToolsBaseTest.cpp LINK CfcToolsBase)
