"""Writes x.npy, a row of zeros with a one, and y.npy, the column of a safetensors tensor's rows that it picks, in f16:

    python3 one_hot.py FILE KEY FIRST_ROW ROWS FIRST_COLUMN COLUMNS COLUMN
"""
import json
import struct
import sys


def write(path, numbers):
    header = f"{{'descr': '<f2', 'fortran_order': False, 'shape': (1, {len(numbers)}), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        file.write(struct.pack(f"<{len(numbers)}e", *numbers))


def main():
    path, key, *numbers = sys.argv[1:]
    first_row, rows, first_column, columns, column = map(int, numbers)
    data = open(path, "rb").read()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    entry = json.loads(data[8:start])[key]
    width, begin = entry["shape"][1], start + entry["data_offsets"][0]
    offsets = [begin + 2 * ((first_row + row) * width + first_column + column) for row in range(rows)]
    write("x.npy", [float(i == column) for i in range(columns)])
    write("y.npy", [struct.unpack_from("<e", data, offset)[0] for offset in offsets])


main()
