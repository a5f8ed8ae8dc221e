"""interrupt.py CFC GRAPH: sends Ctrl-C while ptxas runs; prints what is left in the current folder."""
import os
import pathlib
import signal
import subprocess
import sys
import time

script = pathlib.Path("ptxas.sh")
script.write_text(
    "#!/bin/sh\n"
    'case "$*" in *version*) echo "Cuda compilation tools, release 13.0, V13.0.88"; exit 0 ;; esac\n'
    "echo $$ > pid.tmp && mv pid.tmp pid\nexec sleep 100\n"
)
script.chmod(0o755)
command = [sys.argv[1], "compile", sys.argv[2], f"--ptxas={script.resolve()}", "-o", "out.cfk"]
process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
for _ in range(1000):
    if os.path.exists("pid"):
        break
    time.sleep(0.01)
process.send_signal(signal.SIGINT)
code = process.wait(timeout=20)
ptxas = int(pathlib.Path("pid").read_text())
os.remove("pid")
time.sleep(0.2)
try:
    # A process that nobody has waited for yet is dead too.
    alive = pathlib.Path(f"/proc/{ptxas}/stat").read_text().split(")")[1].split()[0] != "Z"
except OSError:
    alive = False
print("exit code", code if code >= 0 else f"signal {-code}")
print("left:", sorted(os.listdir()))
print("ptxas runs:", alive)
