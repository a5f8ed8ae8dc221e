"""numbers.py NAME=VALUE:TYPE ...: writes NAME.npy, one number of the type i4 or i8."""
import struct
import sys

for argument in sys.argv[1:]:
    name, rest = argument.split("=")
    value, kind = rest.split(":")
    header = f"{{'descr': '<{kind}', 'fortran_order': False, 'shape': (1,), }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    with open(name + ".npy", "wb") as out:
        out.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        out.write(struct.pack("<i" if kind == "i4" else "<q", int(value)))
