// The shared library, as an engine loads it: the C interface is there and nothing else is.
#include <catch2/catch.hpp>
#include <cfc/runtime.h>
#include <dlfcn.h>

TEST_CASE("the shared library shows the C interface only") {
  void *library = dlopen(CFC_SHARED_RUNTIME, RTLD_NOW | RTLD_LOCAL);
  INFO((library ? "" : dlerror()));
  REQUIRE(library);
  for (const char *name :
       {"cfc_runtime_version", "cfc_last_error", "cfc_status_name", "cfc_load", "cfc_unload",
        "cfc_bundle_manifest", "cfc_workspace_size", "cfc_bind", "cfc_rebind", "cfc_unbind",
        "cfc_variant_for", "cfc_kernel_count", "cfc_kernel_info_get", "cfc_workspace_init", "cfc_launch",
        "cfc_device_status_get", "cfc_packed_bytes", "cfc_pack", "cfc_unpack"}) {
    INFO(name);
    CHECK(dlsym(library, name));
  }
  CHECK_FALSE(dlsym(library, "_ZN3cfc7runtime9lastErrorEv"));
  CHECK_FALSE(dlsym(library, "_ZN3cfc7runtime6driverEv"));

  auto load = reinterpret_cast<decltype(&cfc_load)>(dlsym(library, "cfc_load"));
  auto lastError = reinterpret_cast<decltype(&cfc_last_error)>(dlsym(library, "cfc_last_error"));
  cfc_bundle *bundle = nullptr;
  CHECK(load("/nowhere.cfk", nullptr, &bundle) == CFC_FILE_ERROR);
  CHECK(std::string(lastError()) == "/nowhere.cfk: No such file or directory");
  CHECK(dlclose(library) == 0);
}
