//===- cfc.cpp - The command ----------------------------------------------===//
#include "tools/lib/Commands.h"

int main(int argc, char **argv) { return cfc::runCfc(argc, argv); }
