"""The processor: lanes of a vector, and number of registers."""

from dataclasses import dataclass
from functools import cache

from llvmlite import binding


@dataclass(frozen=True)
class Target:
    """A kind of processor: vectors have `lanes` float32, and there are `registers` of them."""

    cpu: str
    features: str
    lanes: int
    registers: int

    def padded(self, n: int) -> int:
        """n, rounded up to full vectors."""
        return -(-n // self.lanes) * self.lanes


@cache
def machine() -> Target:
    """The processor of this machine."""
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
