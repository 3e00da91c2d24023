"""What the machine can do: lanes of a vector, registers to keep them in."""

from dataclasses import dataclass
from functools import cache

from llvmlite import binding


@dataclass(frozen=True)
class Target:
    """A kind of processor. Code for it is made of vectors of so many float32, and fills so many registers."""

    cpu: str
    features: str
    lanes: int
    registers: int

    def padded(self, n: int) -> int:
        """The least number of floats in whole vectors that holds n."""
        return -(-n // self.lanes) * self.lanes


@cache
def machine() -> Target:
    """The machine that this runs on."""
    has = binding.get_host_cpu_features()
    features = has.flatten()
    cpu = binding.get_host_cpu_name()
    if has.get("avx512f") and has.get("avx512vl"):
        return Target(cpu, features, lanes=16, registers=32)
    if has.get("avx2") and has.get("fma"):
        return Target(cpu, features, lanes=8, registers=16)
    if has.get("neon"):
        return Target(cpu, features, lanes=4, registers=32)
    return Target(cpu, features, lanes=4, registers=16)
