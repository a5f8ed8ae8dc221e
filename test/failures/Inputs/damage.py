"""Writes damaged copies of a bundle beside it."""
import pathlib
import sys

path = pathlib.Path(sys.argv[1])
good = path.read_bytes()


def write(name, content):
    (path.parent / f"{name}.cfk").write_bytes(content)


write("cut", good[: len(good) // 2])
middle = len(good) // 2
write("flipped", good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :])
write("garbled", bytes(byte ^ 0x55 for byte in good))
