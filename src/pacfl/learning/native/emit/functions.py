"""Functions that are being written, and the module that contains them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from pacfl.learning.native.emit.values import BOOL, FLOAT, INT, LONG, Array, Index, Value, Variable
from pacfl.learning.native.target import Target


class Module:
    """A module of LLVM that is being written: functions for one target."""

    def __init__(self, name: str, target: Target) -> None:
        """An empty module."""
        self.target = target
        self.ir = ir.Module(name)
        self.vector = ir.VectorType(FLOAT, target.lanes)
        self.ints = ir.VectorType(INT, target.lanes)

    @contextmanager
    def function(self, name: str, public: bool = False, **arguments: Any) -> Iterator["Function"]:
        """Write a function with arguments of the given types."""
        f = Function(self, name, public, arguments)
        yield f
        f.finish()

    def intrinsic(self, name: str, result: Any, arguments: Sequence[Any]) -> Any:
        """An operation of LLVM by name."""
        known = self.ir.globals.get(name)
        return known or ir.Function(self.ir, ir.FunctionType(result, arguments), name)


class Function:
    """A function that is being written. Its arguments are attributes: pointers are arrays, all others values."""

    def __init__(self, module: Module, name: str, public: bool, arguments: dict[str, Any]) -> None:
        """Begin the function."""
        self.module = module
        self.lanes = module.target.lanes
        self.ir = ir.Function(module.ir, ir.FunctionType(ir.VoidType(), list(arguments.values())), name)
        self.ir.attributes.add("nounwind")
        if not public:
            self.ir.linkage = "internal"
            self.ir.attributes.add("noinline")
        self._variables = ir.IRBuilder(self.ir.append_basic_block("variables"))
        self._start = self.ir.append_basic_block("start")
        self.builder = ir.IRBuilder(self._start)
        self.arguments: dict[str, Any] = {}
        for given, (key, kind) in zip(self.ir.args, arguments.items(), strict=True):
            given.name = key
            pointer = isinstance(kind, ir.PointerType)
            self.arguments[key] = Array(self, given, kind.pointee, key) if pointer else Value(self, given)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.arguments[name]
        except KeyError:
            raise AttributeError(name) from None

    def finish(self) -> None:
        """End the function."""
        self.builder.ret_void()
        self._variables.branch(self._start)

    @contextmanager
    def loop(self, name: str, stop: Index, step: Index = 1) -> Iterator[Value]:
        """Repeat what is written inside for 0, step, 2 step, ... below stop."""
        self.builder.comment(f"for {name} from 0 to {_text(stop)} by {_text(step)}")
        first, last = LONG(0), self.long(stop)
        position = self._variables.alloca(LONG, name=name)
        self.builder.store(first, position)
        body, after = (self.ir.append_basic_block(f"{name}.{part}") for part in ("loop", "done"))
        self.builder.cbranch(self.builder.icmp_signed("<", first, last), body, after)
        self.builder.position_at_end(body)
        yield Value(self, self.builder.load(position, name=name, typ=LONG))
        moved = self.builder.add(self.builder.load(position, typ=LONG), self.long(step), flags=("nsw",))
        self.builder.store(moved, position)
        self.builder.cbranch(self.builder.icmp_signed("<", moved, last), body, after)
        self.builder.position_at_end(after)

    @contextmanager
    def where(self, condition: Value) -> Iterator[None]:
        """Execute what is written inside if the condition is true."""
        with self.builder.if_then(condition.ir):
            yield

    def variable(self, name: str, value: Value) -> Variable:
        """A variable with an initial value."""
        place = self._variables.alloca(value.ir.type, name=name)
        variable = Variable(self, place, value.ir.type, name)
        variable.set(value)
        return variable

    def call(self, other: "Function", *arguments: Any) -> None:
        """Call a function that was written before."""
        kinds = other.ir.function_type.args
        given = [
            a.pointer if isinstance(a, Array) else self._lifted(a, kind)
            for a, kind in zip(arguments, kinds, strict=True)
        ]
        self.builder.call(other.ir, given)

    def long(self, index: Index) -> Any:
        """An index as a value of LLVM."""
        return index.ir if isinstance(index, Value) else LONG(index)

    def zeros(self) -> Value:
        """A vector of zeros."""
        return Value(self, ir.Constant(self.module.vector, None))

    def everywhere(self, x: float | Value) -> Value:
        """A vector with x in all lanes."""
        if isinstance(x, Value):
            return Value(self, self._splat(x.ir, self.module.vector))
        return Value(self, ir.Constant(self.module.vector, [FLOAT(x)] * self.lanes))

    def everywhere_int(self, x: Index) -> Value:
        """A vector of int32 with x in all lanes."""
        if isinstance(x, int):
            return Value(self, ir.Constant(self.module.ints, [INT(x)] * self.lanes))
        return Value(self, self._splat(self.builder.trunc(x.ir, INT), self.module.ints))

    def counting(self, start: Index, step: int) -> Value:
        """A vector of int32: start, start + step, ..."""
        steps = ir.Constant(self.module.ints, [INT(i * step) for i in range(self.lanes)])
        return Value(self, self.builder.add(self.everywhere_int(start).ir, steps))

    def number(self, x: float) -> Value:
        """One float."""
        return Value(self, FLOAT(x))

    def index(self, x: Index) -> Value:
        """An index as a value."""
        return Value(self, self.long(x))

    def multiply_add(self, a: Value, b: Value, c: Value) -> Value:
        """`a` b + c, in one operation where the machine has it."""
        kind = a.ir.type
        name = "llvm.fmuladd." + (f"v{self.lanes}f32" if kind == self.module.vector else "f32")
        return Value(self, self.builder.call(self.module.intrinsic(name, kind, [kind] * 3), [a.ir, b.ir, c.ir]))

    def choose(self, condition: Value, a: Value, b: Value) -> Value:
        """`a` where the condition is true, b elsewhere."""
        return Value(self, self.builder.select(condition.ir, a.ir, b.ir))

    def first_lanes(self, n: int, a: Value, b: Value | None = None) -> Value:
        """The first n lanes of a, then those of b, or zeros."""
        if n >= self.lanes:
            return a
        lanes = ir.Constant(ir.VectorType(BOOL, self.lanes), [BOOL(int(i < n)) for i in range(self.lanes)])
        return Value(self, self.builder.select(lanes, a.ir, (b or self.zeros()).ir))

    def total(self, a: Value) -> Value:
        """The sum of all lanes, always added in the same order."""
        width = self.lanes
        vector = a.ir
        while width > 1:
            width //= 2
            vector = self.builder.fadd(self._part(vector, 0, width), self._part(vector, width, width))
        return Value(self, self.builder.extract_element(vector, INT(0)))

    def largest(self, a: Value) -> Value:
        """The largest of all lanes; undefined if some are NaN."""
        width = self.lanes
        vector = a.ir
        while width > 1:
            width //= 2
            low, high = self._part(vector, 0, width), self._part(vector, width, width)
            vector = self.builder.select(self.builder.fcmp_ordered(">", low, high), low, high)
        return Value(self, self.builder.extract_element(vector, INT(0)))

    def lanes_of(self, a: Value, start: int, n: int) -> Value:
        """A shorter vector: n lanes from the given one on."""
        return Value(self, self._part(a.ir, start, n))

    def lane(self, a: Value, i: int) -> Value:
        """One lane as a number."""
        return Value(self, self.builder.extract_element(a.ir, INT(i)))

    def shuffled(self, a: Value, b: Value, lanes: Sequence[int]) -> Value:
        """The given lanes of a followed by b."""
        mask = ir.Constant(ir.VectorType(INT, len(lanes)), [INT(i) for i in lanes])
        return Value(self, self.builder.shuffle_vector(a.ir, b.ir, mask))

    def bits_to_float(self, a: Value) -> Value:
        """The floats that have these bits."""
        return Value(self, self.builder.bitcast(a.ir, self.module.vector))

    def bits_to_int(self, a: Value) -> Value:
        """The bits of floats, as int32."""
        return Value(self, self.builder.bitcast(a.ir, self.module.ints))

    def _part(self, vector: Any, start: int, n: int) -> Any:
        mask = ir.Constant(ir.VectorType(INT, n), [INT(start + i) for i in range(n)])
        return self.builder.shuffle_vector(vector, ir.Constant(vector.type, None), mask)

    def _splat(self, scalar: Any, kind: Any) -> Any:
        nothing = ir.Constant(kind, None)
        one = self.builder.insert_element(nothing, scalar, INT(0))
        return self.builder.shuffle_vector(one, nothing, ir.Constant(self.module.ints, None))

    def _lifted(self, x: Any, kind: Any) -> Any:
        return x.ir if isinstance(x, Value) else ir.Constant(kind, x)


def _text(index: Index) -> str:
    return f"%{index.ir.name}" if isinstance(index, Value) else str(index)
