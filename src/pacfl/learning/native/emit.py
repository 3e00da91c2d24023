"""A small language of vectors, in which kernels are written; what it says becomes text of LLVM.

Kernels are Python functions that write machine functions. What is known when they write (shapes, strides) are plain
Python numbers; what is known only when the machine runs (a position in a loop, a loaded vector) is a `Value`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from llvmlite import ir

from pacfl.learning.native.target import Target

FLOAT, INT, LONG, BOOL = ir.FloatType(), ir.IntType(32), ir.IntType(64), ir.IntType(1)
FLOATS, INTS, LONGS = FLOAT.as_pointer(), INT.as_pointer(), LONG.as_pointer()

Index: TypeAlias = "int | Value"  # a number of elements, known now or then


class Module:
    """Text in the making: functions for one target."""

    def __init__(self, name: str, target: Target) -> None:
        """Nothing written yet."""
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
    """A function in the making. Its arguments are attributes: arrays where pointers come, values else."""

    def __init__(self, module: Module, name: str, public: bool, arguments: dict[str, Any]) -> None:
        """Begin it."""
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
            self.arguments[key] = Array(self, given, kind.pointee) if pointer else Value(self, given)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.arguments[name]
        except KeyError:
            raise AttributeError(name) from None

    def finish(self) -> None:
        """End it."""
        self.builder.ret_void()
        self._variables.branch(self._start)

    def comment(self, text: str) -> None:
        """Say why, in the text that is made."""
        self.builder.comment(text)

    @contextmanager
    def loop(self, name: str, stop: Index, step: Index = 1) -> Iterator["Value"]:
        """Do what is written inside for 0, step, 2 step, ... below stop."""
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
    def where(self, condition: "Value") -> Iterator[None]:
        """Do what is written inside if the condition holds."""
        with self.builder.if_then(condition.ir):
            yield

    def variable(self, name: str, value: "Value") -> "Variable":
        """A name for a value that changes."""
        place = self._variables.alloca(value.ir.type, name=name)
        variable = Variable(self, place, value.ir.type)
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

    def zeros(self) -> "Value":
        """A vector of zeros."""
        return Value(self, ir.Constant(self.module.vector, None))

    def everywhere(self, x: "float | Value") -> "Value":
        """A vector with x in all lanes."""
        if isinstance(x, Value):
            return Value(self, self._splat(x.ir, self.module.vector))
        return Value(self, ir.Constant(self.module.vector, [FLOAT(x)] * self.lanes))

    def everywhere_int(self, x: Index) -> "Value":
        """A vector of int32 with x in all lanes."""
        if isinstance(x, int):
            return Value(self, ir.Constant(self.module.ints, [INT(x)] * self.lanes))
        return Value(self, self._splat(self.builder.trunc(x.ir, INT), self.module.ints))

    def counting(self, start: Index, step: int) -> "Value":
        """A vector of int32: start, start + step, ..."""
        steps = ir.Constant(self.module.ints, [INT(i * step) for i in range(self.lanes)])
        return Value(self, self.builder.add(self.everywhere_int(start).ir, steps))

    def number(self, x: float) -> "Value":
        """One float."""
        return Value(self, FLOAT(x))

    def index(self, x: Index) -> "Value":
        """An index as a value, whichever it was."""
        return Value(self, self.long(x))

    def multiply_add(self, a: "Value", b: "Value", c: "Value") -> "Value":
        """`a` b + c, in one operation where the machine has it."""
        kind = a.ir.type
        name = "llvm.fmuladd." + (f"v{self.lanes}f32" if kind == self.module.vector else "f32")
        return Value(self, self.builder.call(self.module.intrinsic(name, kind, [kind] * 3), [a.ir, b.ir, c.ir]))

    def choose(self, condition: "Value", a: "Value", b: "Value") -> "Value":
        """`a` where the condition holds, b elsewhere."""
        return Value(self, self.builder.select(condition.ir, a.ir, b.ir))

    def first_lanes(self, n: int, a: "Value", b: "Value | None" = None) -> "Value":
        """The first n lanes of a, then those of b, or zeros."""
        if n >= self.lanes:
            return a
        lanes = ir.Constant(ir.VectorType(BOOL, self.lanes), [BOOL(int(i < n)) for i in range(self.lanes)])
        return Value(self, self.builder.select(lanes, a.ir, (b or self.zeros()).ir))

    def total(self, a: "Value") -> "Value":
        """The sum of all lanes, always added up in the same tree."""
        width = self.lanes
        whole = a.ir
        while width > 1:
            width //= 2
            whole = self.builder.fadd(self._part(whole, 0, width), self._part(whole, width, width))
        return Value(self, self.builder.extract_element(whole, INT(0)))

    def largest(self, a: "Value") -> "Value":
        """The largest of all lanes; which one if some are no numbers is not said."""
        width = self.lanes
        whole = a.ir
        while width > 1:
            width //= 2
            low, high = self._part(whole, 0, width), self._part(whole, width, width)
            whole = self.builder.select(self.builder.fcmp_ordered(">", low, high), low, high)
        return Value(self, self.builder.extract_element(whole, INT(0)))

    def lanes_of(self, a: "Value", start: int, n: int) -> "Value":
        """A shorter vector: n lanes from the given one on."""
        return Value(self, self._part(a.ir, start, n))

    def lane(self, a: "Value", i: int) -> "Value":
        """One lane as a number."""
        return Value(self, self.builder.extract_element(a.ir, INT(i)))

    def shuffled(self, a: "Value", b: "Value", lanes: Sequence[int]) -> "Value":
        """The given lanes of a followed by b."""
        mask = ir.Constant(ir.VectorType(INT, len(lanes)), [INT(i) for i in lanes])
        return Value(self, self.builder.shuffle_vector(a.ir, b.ir, mask))

    def bits_to_float(self, a: "Value") -> "Value":
        """The floats that have these bits."""
        return Value(self, self.builder.bitcast(a.ir, self.module.vector))

    def bits_to_int(self, a: "Value") -> "Value":
        """The bits of floats, as int32."""
        return Value(self, self.builder.bitcast(a.ir, self.module.ints))

    def _part(self, vector: Any, start: int, n: int) -> Any:
        mask = ir.Constant(ir.VectorType(INT, n), [INT(start + i) for i in range(n)])
        return self.builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)

    def _splat(self, scalar: Any, kind: Any) -> Any:
        nothing = ir.Constant(kind, ir.Undefined)
        one = self.builder.insert_element(nothing, scalar, INT(0))
        lanes = ir.Constant(ir.VectorType(INT, self.lanes), [INT(0)] * self.lanes)
        return self.builder.shuffle_vector(one, nothing, lanes)

    def _lifted(self, x: Any, kind: Any) -> Any:
        return x.ir if isinstance(x, Value) else ir.Constant(kind, x)


class Value:
    """What is known only when the machine runs: a number, or a vector of them."""

    def __init__(self, function: Function, value: Any) -> None:
        """A value of LLVM, with the function in which it is known."""
        self.function = function
        self.ir = value

    def __add__(self, other: "Value | int | float") -> "Value":
        return self if _is(other, 0) else self._do("fadd", "add", other)

    __radd__ = __add__

    def __sub__(self, other: "Value | int | float") -> "Value":
        return self if _is(other, 0) else self._do("fsub", "sub", other)

    def __mul__(self, other: "Value | int | float") -> "Value":
        return self if _is(other, 1) else self._do("fmul", "mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: "Value | float") -> "Value":
        return self._do("fdiv", "sdiv", other)

    def __lshift__(self, bits: int) -> "Value":
        return self._do("shl", "shl", bits)

    def __rshift__(self, bits: int) -> "Value":
        return self._do("ashr", "ashr", bits)

    def above(self, other: "Value") -> "Value":
        """Whether this is greater; never for what is no number."""
        return self._compare("fcmp_ordered", ">", other)

    def is_at_most(self, other: "Value") -> "Value":
        """Whether this is not greater; never for what is no number."""
        return self._compare("fcmp_ordered", "<=", other)

    def below(self, other: "Value") -> "Value":
        """Whether this is less; never for what is no number."""
        return self._compare("fcmp_ordered", "<", other)

    def is_no_number(self) -> "Value":
        """Whether this is NaN."""
        return self._compare("fcmp_unordered", "uno", self)

    def is_zero(self) -> "Value":
        """Whether this is zero; never for what is no number."""
        return self._compare("fcmp_ordered", "==", Value(self.function, ir.Constant(self.ir.type, 0.0)))

    def either(self, other: "Value") -> "Value":
        """Whether one of two conditions holds."""
        return Value(self.function, self.function.builder.or_(self.ir, other.ir))

    def negated(self) -> "Value":
        """Whether a condition does not hold."""
        return Value(self.function, self.function.builder.not_(self.ir))

    def less(self, other: Index) -> "Value":
        """Whether an index is less than another."""
        return Value(self.function, self.function.builder.icmp_signed("<", self.ir, self.function.long(other)))

    def differs(self, other: Index) -> "Value":
        """Whether an index is another than the given."""
        return Value(self.function, self.function.builder.icmp_signed("!=", self.ir, self.function.long(other)))

    def at_most(self, other: Index) -> "Value":
        """The lesser of two indices."""
        return self.function.choose(self.less(other), self, self.function.index(other))

    def at_least(self, other: Index) -> "Value":
        """The greater of two indices."""
        return self.function.choose(self.less(other), self.function.index(other), self)

    def to_float(self) -> "Value":
        """An index as a float."""
        return Value(self.function, self.function.builder.sitofp(self.ir, FLOAT))

    def _compare(self, kind: str, operator: str, other: "Value") -> "Value":
        return Value(self.function, getattr(self.function.builder, kind)(operator, self.ir, other.ir))

    def _do(self, of_floats: str, of_integers: str, other: "Value | int | float") -> "Value":
        kind = self.ir.type
        element = kind.element if isinstance(kind, ir.VectorType) else kind
        if not isinstance(other, Value):
            constant = element(other)
            vector = isinstance(kind, ir.VectorType)
            other = Value(self.function, ir.Constant(kind, [constant] * kind.count) if vector else constant)
        operation = of_floats if element == FLOAT else of_integers
        return Value(self.function, getattr(self.function.builder, operation)(self.ir, other.ir))


class Variable:
    """A place for a value that changes; the compiler keeps it in a register."""

    def __init__(self, function: Function, place: Any, kind: Any) -> None:
        """At a place made by `Function.variable`."""
        self._function, self._place, self._kind = function, place, kind

    def get(self) -> Value:
        """What it is now."""
        return Value(self._function, self._function.builder.load(self._place, typ=self._kind))

    def set(self, value: Value) -> None:
        """What it is from now on."""
        self._function.builder.store(value.ir, self._place)

    def add_product(self, a: Value, b: Value) -> None:
        """Add a b."""
        self.set(self._function.multiply_add(a, b, self.get()))


class Array:
    """Numbers in memory, from some element on."""

    def __init__(self, function: Function, pointer: Any, element: Any) -> None:
        """From where the pointer shows."""
        self.function, self.pointer, self.element = function, pointer, element

    def at(self, index: Index) -> "Array":
        """The same array from another element on."""
        if _is(index, 0):
            return self
        b = self.function.builder
        moved = b.gep(self.pointer, [self.function.long(index)], inbounds=True, source_etype=self.element)
        return Array(self.function, moved, self.element)

    def ints(self) -> "Array":
        """The same memory as int32."""
        return Array(self.function, self.function.builder.bitcast(self.pointer, INTS), INT)

    def vector(self, index: Index) -> Value:
        """As many elements as a vector has lanes."""
        kind = self.function.module.vector if self.element == FLOAT else self.function.module.ints
        return self._load(index, kind)

    def repeated(self, index: Index) -> Value:
        """One element in all lanes."""
        return self.function.everywhere(self.number(index))

    def number(self, index: Index) -> Value:
        """One element; an integer comes as an index."""
        loaded = self._load(index, self.element)
        if self.element == INT:
            return Value(self.function, self.function.builder.sext(loaded.ir, LONG))
        return loaded

    def put(self, index: Index, value: Value, lanes: int | None = None) -> None:
        """Store a number, a vector, or its first lanes."""
        if lanes is not None and lanes < self.function.lanes:
            value = self.function.lanes_of(value, 0, lanes)
        stored = value.ir
        if self.element == INT and stored.type == LONG:
            stored = self.function.builder.trunc(stored, INT)
        place = self.function.builder.bitcast(self.at(index).pointer, stored.type.as_pointer())
        self.function.builder.store(stored, place, align=8 if self.element == LONG else 4)

    def _load(self, index: Index, kind: Any) -> Value:
        b = self.function.builder
        place = b.bitcast(self.at(index).pointer, kind.as_pointer())
        return Value(self.function, b.load(place, align=8 if self.element == LONG else 4, typ=kind))


def _is(x: object, n: int) -> bool:
    return isinstance(x, int | float) and x == n
