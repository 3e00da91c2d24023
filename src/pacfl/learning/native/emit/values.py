"""Values that exist when the compiled code runs: numbers, vectors, variables and arrays."""

from typing import TYPE_CHECKING, Any, TypeAlias

from llvmlite import ir

if TYPE_CHECKING:
    from pacfl.learning.native.emit.functions import Function

FLOAT, INT, LONG, BOOL = ir.FloatType(), ir.IntType(32), ir.IntType(64), ir.IntType(1)
FLOATS, INTS, LONGS = FLOAT.as_pointer(), INT.as_pointer(), LONG.as_pointer()

Index: TypeAlias = "int | Value"  # a number of elements, constant or computed by the compiled code


class Value:
    """A number or a vector that the compiled code computes."""

    def __init__(self, function: "Function", value: Any) -> None:
        """A value of LLVM, and the function it belongs to."""
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
        """Whether this is greater; never for NaN."""
        return self._compare("fcmp_ordered", ">", other)

    def is_at_most(self, other: "Value") -> "Value":
        """Whether this is not greater; never for NaN."""
        return self._compare("fcmp_ordered", "<=", other)

    def below(self, other: "Value") -> "Value":
        """Whether this is less; never for NaN."""
        return self._compare("fcmp_ordered", "<", other)

    def is_nan(self) -> "Value":
        """Whether this is NaN."""
        return self._compare("fcmp_unordered", "uno", self)

    def is_zero(self) -> "Value":
        """Whether this is zero; never for NaN."""
        return self._compare("fcmp_ordered", "==", Value(self.function, ir.Constant(self.ir.type, 0.0)))

    def either(self, other: "Value") -> "Value":
        """Whether one of two conditions is true."""
        return Value(self.function, self.function.builder.or_(self.ir, other.ir))

    def negated(self) -> "Value":
        """Whether a condition is false."""
        return Value(self.function, self.function.builder.not_(self.ir))

    def less(self, other: Index) -> "Value":
        """Whether an index is less than another."""
        return Value(self.function, self.function.builder.icmp_signed("<", self.ir, self.function.long(other)))

    def differs(self, other: Index) -> "Value":
        """Whether two indices differ."""
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
    """A variable; the compiler puts it in a register."""

    def __init__(self, function: "Function", place: Any, kind: Any, name: str) -> None:
        """At an address allocated by `Function.variable`."""
        self._function, self._place, self._kind, self._name = function, place, kind, name

    def get(self) -> Value:
        """Its value."""
        return Value(self._function, self._function.builder.load(self._place, name=self._name, typ=self._kind))

    def set(self, value: Value) -> None:
        """Change its value."""
        self._function.builder.store(value.ir, self._place)

    def add_product(self, a: Value, b: Value) -> None:
        """Add a b."""
        self.set(self._function.multiply_add(a, b, self.get()))


class Array:
    """Numbers in memory, from some element on; loaded values have its name in the text."""

    def __init__(self, function: "Function", pointer: Any, element: Any, name: str) -> None:
        """From the address of the pointer on."""
        self.function, self.pointer, self.element, self.name = function, pointer, element, name

    def at(self, index: Index) -> "Array":
        """The same array from another element on."""
        if _is(index, 0):
            return self
        at, name = [self.function.long(index)], f"{self.name}.at"
        moved = self.function.builder.gep(self.pointer, at, inbounds=True, name=name, source_etype=self.element)
        return Array(self.function, moved, self.element, self.name)

    def ints(self) -> "Array":
        """The same memory as int32."""
        return Array(self.function, self.function.builder.bitcast(self.pointer, INTS), INT, self.name)

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
        return Value(self.function, b.load(place, name=self.name, align=8 if self.element == LONG else 4, typ=kind))


def _is(x: object, n: int) -> bool:
    return isinstance(x, int | float) and x == n
