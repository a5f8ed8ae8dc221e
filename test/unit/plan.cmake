cfc_unit_test(PlanTest SOURCES PlanTest.cpp PlanCostTest.cpp PlanFewHeadsTest.cpp PlanPanelsTest.cpp LINK CfcAttnLower MLIRParser)
if(TARGET PlanTest)
  target_compile_definitions(PlanTest PRIVATE CFC_GRAPHS="${CMAKE_SOURCE_DIR}/templates/graphs")
endif()
