"""How lit finds and runs cfc's tests.

A test is a `.mlir` or `.test` file with `RUN:` lines. On their PATH are this build's programs (`cfc`, `cfc-opt`) and
LLVM's `FileCheck`, `not` and `count`. Substitutions beside lit's own:
    %source   root of the source tree           %build    root of the build tree
    %python   the Python that runs lit          %inputs   the folder Inputs beside the test
    %ptxas    the ptxas that was found          %cc %cxx  the compilers of this build
Features for `REQUIRES:`: `ptxas` (one was found), `gpu` (an NVIDIA device answers), `numpy`, `torch`.
"""
import glob
import importlib.util
import os
import shutil

import lit.formats

config.name = "cfc"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["unit", "checkpoints", "Inputs", "CMakeLists.txt"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.cfc_build_root, "test")

if importlib.util.find_spec("psutil"):  # lit needs it (Debian: python3-psutil) to end a test that hangs
    lit_config.maxIndividualTestTime = 300

config.environment["PATH"] = os.pathsep.join(
    [config.cfc_tools_dir, config.llvm_tools_dir, os.environ.get("PATH", "/usr/bin:/bin")]
)
config.environment["LC_ALL"] = "C.UTF-8"


def find_ptxas():
    """The ptxas that tests use, looked for where cfc looks: $CFC_PTXAS, the build folder, PATH, the toolkit."""
    candidates = [os.environ.get("CFC_PTXAS"), os.path.join(config.cfc_build_root, "cuda", "bin", "ptxas")]
    candidates += [shutil.which("ptxas"), "/usr/local/cuda/bin/ptxas"]
    for path in candidates:
        if path and os.access(path, os.X_OK):
            return path
    return None


ptxas = find_ptxas()
if ptxas:
    config.available_features.add("ptxas")
    config.environment["CFC_PTXAS"] = ptxas
if os.path.exists("/dev/nvidiactl") and glob.glob("/dev/nvidia[0-9]*"):
    config.available_features.add("gpu")
for module in ("numpy", "torch"):
    if importlib.util.find_spec(module):
        config.available_features.add(module)

config.substitutions += [
    ("%source", config.cfc_source_root),
    ("%build", config.cfc_build_root),
    ("%python", config.python_executable),
    ("%inputs", "%S/Inputs"),
    ("%ptxas", ptxas or "ptxas-not-found"),
    ("%cxx", config.cxx_executable),
    ("%cc", config.c_executable),
]
