// The one `main` of all unit tests: Catch2's is slow to compile.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
