"""Runs the runtime's packing kernel without a GPU: an interpreter for the few PTX instructions that it uses.

    python3 run_ptx.py KERNEL.ptx

Packs and unpacks small weights, thread by thread, and compares with the layout's definition.
"""
import re
import sys

WORD = (1 << 64) - 1
ENTRY = "cfc_move_packed"


def signed(value):
    return value - (1 << 64) if value >> 63 else value


def parse(text):
    """Instructions as (predicate or None, wanted value, opcode's parts, operands), and labels by name."""
    body = re.sub(r"//.*", "", text[text.index("{") + 1 : text.rindex("}")])
    program, labels = [], {}
    for statement in body.split(";"):
        statement = statement.strip()
        while match := re.match(r"(\w+):\s*", statement):
            labels[match.group(1)] = len(program)
            statement = statement[match.end() :]
        if not statement or statement.startswith(".reg"):
            continue
        predicate, opcode, rest = re.fullmatch(r"(?:@(!?\w+)\s+)?([\w.]+)\s*(.*)", statement, re.S).groups()
        operands = re.findall(r"\{[^}]*\}|\[\w+\]|[-\w%.]+", rest)
        wanted = not (predicate or "").startswith("!")
        program.append(((predicate or "").lstrip("!"), wanted, opcode.split("."), operands))
    return program, labels


COMPARE = {"ge": lambda a, b: a >= b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b}
COMPUTE = {
    "mov": lambda a: a, "cvt": lambda a: a, "add": lambda a, b: a + b, "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b, "mad": lambda a, b, c: a * b + c, "div": lambda a, b: a // b,
    "shr": lambda a, b: a >> b, "shl": lambda a, b: a << b, "xor": lambda a, b: a ^ b, "and": lambda a, b: a & b,
    "selp": lambda a, b, which: a if which else b,
    "min": lambda a, b: min(signed(a), signed(b)), "max": lambda a, b: max(signed(a), signed(b)),
}


class Thread:
    def __init__(self, code, parameters, memory, special):
        self.program, self.labels = code
        self.parameters, self.memory, self.registers = parameters, memory, dict(special)

    def value(self, operand):
        return int(operand) & WORD if re.fullmatch(r"-?\d+", operand) else self.registers[operand]

    def move(self, opcode, operands):
        """A load or store of global memory: one element of 2 bytes, or four words, aligned."""
        load = opcode[0] == "ld"
        vector, size = "v4" in opcode, 16 if "v4" in opcode else 2
        registers = re.findall(r"\w+", operands[0 if load else 1])
        address = self.value(operands[1 if load else 0].strip("[]"))
        assert address % size == 0 and 0 <= address <= len(self.memory) - size, (opcode, address)
        step = 4 if vector else 2
        for index, register in enumerate(registers):
            where = slice(address + step * index, address + step * (index + 1))
            if load:
                self.registers[register] = int.from_bytes(self.memory[where], "little")
            else:
                self.memory[where] = self.registers[register].to_bytes(step, "little")

    def run(self):
        at = 0
        for _ in range(1000):
            predicate, wanted, opcode, operands = self.program[at]
            at += 1
            if predicate and self.registers[predicate] != wanted:
                continue
            name = opcode[0]
            if name == "ret":
                return
            if name == "bra":
                at = self.labels[operands[0]]
            elif name == "ld" and opcode[1] == "param":
                self.registers[operands[0]] = self.parameters[operands[1].strip("[]")]
            elif name in ("ld", "st"):
                self.move(opcode, operands)
            elif name == "setp":
                values = [self.value(operand) for operand in operands[1:]]
                result = COMPARE[opcode[1]](*values[:2])
                self.registers[operands[0]] = result and values[2] if "and" in opcode else result
            else:
                result = COMPUTE[name](*(self.value(operand) for operand in operands[1:]))
                self.registers[operands[0]] = result & WORD
        raise RuntimeError("a thread does not end")


class Weight:
    """A weight of distinct elements in memory, packed and native, with bytes around both that must not change."""

    def __init__(self, rows, columns, group, shift):
        self.rows, self.columns, self.group = rows, columns, group or columns
        self.group_blocks = -(-self.group // 64)
        self.column_blocks = -(-columns // self.group) * self.group_blocks
        self.packed_bytes = -(-rows // 64) * self.column_blocks * 8192
        self.native_at = 256 + shift
        self.packed_at = (self.native_at + 2 * rows * columns + 15) // 16 * 16 + 256
        self.memory = bytearray(b"\xcc" * (self.packed_at + self.packed_bytes + 256))
        elements = [(37 * i) % 65521 + 1 for i in range(rows * columns)]
        self.native = b"".join(element.to_bytes(2, "little") for element in elements)
        self.packed = bytearray(self.packed_bytes)
        for i in range(rows * columns):
            offset = self.offset(i // columns, i % columns)
            self.packed[offset : offset + 2] = self.native[2 * i : 2 * i + 2]

    def offset(self, row, column):
        """The definition of docs/design.md."""
        in_group = column % self.group
        block = row // 64 * self.column_blocks + column // self.group * self.group_blocks + in_group // 64
        return 8192 * block + 128 * (row % 64) + 16 * (in_group % 64 // 8 ^ row % 8) + 2 * (in_group % 8)

    def expected(self, native, packed):
        result = bytearray(b"\xcc" * len(self.memory))
        result[self.native_at : self.native_at + len(native)] = native
        result[self.packed_at : self.packed_at + len(packed)] = packed
        return result

    def launch(self, code, unpack):
        values = (self.native_at, self.packed_at, self.rows, self.columns, self.group, self.group_blocks,
                  self.column_blocks, self.packed_bytes // 16, unpack)
        names = ("native", "packed", "rows", "columns", "group", "group_blocks", "column_blocks", "chunks", "unpack")
        parameters = {f"{name}_": value for name, value in zip(names, values)}
        threads = 96  # no power of two, so that the last CTA is not full
        for cta in range(-(-self.packed_bytes // 16 // threads)):
            for thread in range(threads):
                special = {"%ctaid.x": cta, "%ntid.x": threads, "%tid.x": thread}
                Thread(code, parameters, self.memory, special).run()

    def check(self, code):
        self.memory[:] = self.expected(self.native, b"\xee" * self.packed_bytes)
        self.launch(code, 0)
        assert self.memory == self.expected(self.native, self.packed), "packing"
        self.memory[:] = self.expected(b"\xee" * len(self.native), self.packed)
        self.launch(code, 1)
        assert self.memory == self.expected(self.native, self.packed), "unpacking"


def main():
    text = open(sys.argv[1]).read()
    code = parse(text[text.index(f".entry {ENTRY}") :])
    # Rows, columns, columns of a group (0: all), bytes by which the native weight is not aligned to 16.
    for shape in ((64, 64, 0, 0), (1, 1, 0, 0), (65, 63, 0, 2), (63, 65, 0, 0), (7, 131, 0, 6), (64, 128, 64, 8),
                  (10, 160, 80, 0), (5, 12, 5, 4), (3, 100, 128, 0)):
        print("{} x {} in groups of {}, shifted by {}".format(*shape))
        Weight(*shape).check(code)


if __name__ == "__main__":
    main()
