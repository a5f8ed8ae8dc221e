"""interrupt_launch.py CFC GRAPH: sends Ctrl-C after the first length was checked, while the emulator runs the second."""
import signal
import subprocess
import sys
import time

command = [sys.argv[1], "verify", sys.argv[2], "--device=emu", "--len=0,1000,1001,1002,1003"]
process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
for line in process.stdout:
    if line.startswith("length 0:"):
        break
time.sleep(0.5)
begin = time.monotonic()
process.send_signal(signal.SIGINT)
code = process.wait(timeout=20)
print("exit code", code if code >= 0 else f"signal {-code}")
print("at once:", time.monotonic() - begin < 2)
