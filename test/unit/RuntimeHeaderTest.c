/* The runtime's header is C: this file only has to compile as such, and the calls have to link. */
#include <cfc/runtime.h>

/* Returns 0 where the interface behaves as seen from C. */
int cfcHeaderTest(void) {
  cfc_bundle *bundle = NULL;
  cfc_load_options options = {.size = sizeof(options)};
  if (cfc_runtime_version() != CFC_RUNTIME_VERSION)
    return 1;
  if (cfc_load("/nowhere/at/all.cfk", &options, &bundle) != CFC_FILE_ERROR || bundle != NULL)
    return 2;
  if (CFC_EXIT_CODE(CFC_FILE_ERROR) != 2 || CFC_EXIT_CODE(CFC_NO_DEVICE) != 3 ||
      CFC_EXIT_CODE(CFC_DRIVER_ERROR) != 4)
    return 3;
  cfc_unload(NULL);
  cfc_unbind(NULL);
  return 0;
}
