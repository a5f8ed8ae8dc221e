"""round_trip.py TOOLS WORK GRAPH...: the kernels that cfc writes as text are those that cfc-opt reads.

Each graph's kernels are printed, parsed, and printed again: the same text. Behind the graphs come those of twelve seeds of
tools/property.py with their drawn plans. What cannot be compiled is no matter here."""
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))
from property_cases import draw, write_inputs

REFUSED = 3
cfc, cfc_opt = sys.argv[1:3]
work, graphs = pathlib.Path(sys.argv[3]), sys.argv[4:]


def trip(name, graph, *options):
    printed, again = work / "printed.mlir", work / "again.mlir"
    done = subprocess.run([cfc, "compile", graph, "--emit=kernel", "-o", printed, *options], capture_output=True, text=True)
    if done.returncode == REFUSED:
        return 0
    if done.returncode == 0:
        done = subprocess.run([cfc_opt, printed, "-o", again], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{name}: {done.stderr}")
    if printed.read_text() != again.read_text():
        sys.exit(f"{name}: {again} is not {printed}")
    return 1


work.mkdir(parents=True, exist_ok=True)
count = sum(trip(graph, graph) for graph in graphs)
if count != len(graphs):
    sys.exit("a graph was refused")
for seed in range(1, 13):
    case = draw(seed)
    write_inputs(case, work)
    count += trip(f"seed {seed}", work / "graph.mlir", *case.build_options())
print(f"{count} round trips")
