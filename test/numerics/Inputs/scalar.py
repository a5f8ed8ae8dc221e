"""Writes a tensor of integers of one dimension: scalar.py VALUE[,VALUE…] FILE.npy [i4|i8]"""
import struct
import sys

values = [int(value) for value in sys.argv[1].split(",")]
kind = sys.argv[3] if len(sys.argv) > 3 else "i4"
header = str({"descr": "<" + kind, "fortran_order": False, "shape": (len(values),)}).ljust(117).encode() + b"\n"
with open(sys.argv[2], "wb") as file:
    file.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + struct.pack(f"<{len(values)}{'iq'[kind == 'i8']}", *values))
