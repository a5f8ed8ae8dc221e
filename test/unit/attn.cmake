cfc_unit_test(ElementsTest SOURCES ElementsTest.cpp)
cfc_unit_test(ReferenceTest SOURCES ReferenceTest.cpp ReferenceRoundingsTest.cpp LINK CfcAttnReference MLIRParser)
cfc_unit_test(GraphTest SOURCES GraphTest.cpp LINK CfcAttn MLIRParser)
