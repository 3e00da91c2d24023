"""Text of LLVM -> functions that can be called; they release the GIL."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite
from llvmlite import binding

from pacfl.learning.native import code_cache
from pacfl.learning.native.target import Target

PIPELINE = "O3, loops and vectors as written"  # names what `optimised` does, in the key of cached code


class Machine:
    """Compiled text. Its functions may be called as long as it exists."""

    def __init__(self, text: str, target: Target) -> None:
        """Compile, or load what was compiled from the same text before."""
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        machine = binding.Target.from_default_triple().create_target_machine(
            cpu=target.cpu, features=target.features, opt=3, jit=True
        )
        compiler = (llvmlite.__version__, str(binding.llvm_version_info), PIPELINE, machine.triple)
        key = code_cache.key(text, target.cpu, target.features, *compiler)
        code = code_cache.cached(key, lambda: machine.emit_object(optimised(text, machine)))
        self._engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
        self._engine.add_object_file(binding.ObjectFileRef.from_data(code))
        self._engine.finalize_object()

    def function(self, name: str, arguments: Sequence[Any]) -> Callable[..., None]:
        """A public function by name, with the given ctypes."""
        return ctypes.CFUNCTYPE(None, *arguments)(self._engine.get_function_address(name))


def optimised(text: str, machine: Any) -> Any:
    """The text as a module of LLVM, after its optimising passes."""
    module = binding.parse_assembly(text)
    module.verify()
    # Kernels are vectorised already: the remaining loops are scalar and short
    options = binding.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    passes = binding.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    return module
