"""The formats of model files: how each is written, and how it is loaded."""

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import ModelError, PacflError, library

if TYPE_CHECKING:  # the command line is quick, and predictions with ONNX need no torch
    from torch import nn
    from torch.export import ExportedProgram

    from pacfl.data.preprocessing import Preprocessing

FormatName = Literal["safetensors", "torch", "onnx"]
Outputs = Callable[[NDArray[Any]], NDArray[np.float32]]  # checked samples (n, ...) -> outputs of the model

TOLERANCE: Final = 1e-4  # of the largest output; rounding is a hundred times smaller
CHECKED_BATCHES: Final = (1, 3)  # numbers of samples; a file is made with two


@dataclass(frozen=True)
class Format:
    """A format of model files."""

    suffix: str
    has_graph: bool  # whether the file holds all that is computed, from samples to outputs; if not, weights alone
    written: Callable[["nn.Module", "Preprocessing"], bytes]


def write_model(module: "nn.Module", preprocessing: "Preprocessing", name: FormatName) -> bytes:
    """The file of a model. A graph that computes something else than the module is refused."""
    try:
        content = FORMATS[name].written(module, preprocessing)
    except PacflError:
        raise
    except Exception as error:  # whatever the tracer of torch meets in a user's forward
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        remedy = "export the weights alone: --format safetensors" if FORMATS[name].has_graph else "rename its weights"
        raise ModelError(f"the model cannot be exported as {name}: {reason}; {remedy}") from error
    if FORMATS[name].has_graph:
        _check_graph(content, name, module, preprocessing)
    return content


def load_graph(content: bytes, name: FormatName) -> Outputs:
    """The function that a file of a format with a graph computes."""
    return _LOADERS[name](content)


def _check_graph(content: bytes, name: FormatName, module: "nn.Module", preprocessing: "Preprocessing") -> None:
    """Compare the file with the module, for other numbers of samples than the file was made with."""
    import torch

    from pacfl.exporting.portable import examples, portable

    if name == "onnx":
        try:
            import onnxruntime  # noqa: F401 - without it the file is not checked
        except ImportError:
            return
    computed = load_graph(content, name)
    for n in CHECKED_BATCHES:
        samples = examples(preprocessing, n, seed=n)
        with torch.no_grad():
            expected = portable(module, preprocessing)(torch.from_numpy(samples)).numpy()
        found = computed(samples)
        if found.shape != expected.shape or not np.allclose(
            found, expected, rtol=0, atol=TOLERANCE * max(float(np.abs(expected).max()), 1e-30)
        ):
            raise ModelError(
                f"the model computes something else as {name} than in training; its forward may depend on values or "
                "on the number of samples. Export the weights alone: --format safetensors"
            )


def _program(module: "nn.Module", preprocessing: "Preprocessing") -> "ExportedProgram":
    """The graph, without the traces of this machine that torch puts into it."""
    import torch

    from pacfl.exporting.portable import examples, portable

    example = torch.from_numpy(np.zeros_like(examples(preprocessing, 2)))
    batch = torch.export.Dim("batch", min=1)
    with _quiet():
        program = torch.export.export(
            portable(module, preprocessing), (example,), dynamic_shapes={"samples": {0: batch}}
        )
    for node in program.graph.nodes:
        for key in ("stack_trace", "nn_module_stack", "source_fn_stack", "custom"):
            node.meta.pop(key, None)
    return program


def _written_torch(module: "nn.Module", preprocessing: "Preprocessing") -> bytes:
    import torch

    buffer = io.BytesIO()
    with _quiet():
        torch.export.save(_program(module, preprocessing), buffer)
    return buffer.getvalue()


def _written_onnx(module: "nn.Module", preprocessing: "Preprocessing") -> bytes:
    import torch

    for needed in ("onnx", "onnxscript"):
        library(needed, "export as ONNX", "onnx")
    with _quiet():
        exported = torch.onnx.export(
            _program(module, preprocessing),
            dynamo=True,
            input_names=["samples"],
            output_names=["outputs"],
            verbose=False,
        )
    assert exported is not None  # it is None for exports that go to a file at once
    proto: Any = exported.model_proto
    for part in (*proto.graph.node, *proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        del part.metadata_props[:]  # paths of this machine
    content: bytes = proto.SerializeToString()
    return content


def _written_safetensors(module: "nn.Module", preprocessing: "Preprocessing") -> bytes:  # noqa: ARG001 - one form for all
    from pacfl.learning.mixture_module import MixtureModule

    if isinstance(module, MixtureModule):
        raise ModelError(
            f"safetensors has the weights of one model, and this is a mixture of {len(module.models)}; export it as "
            "torch or onnx, which hold all that is computed"
        )
    save = library("safetensors.torch", "export as safetensors", "export").save
    # Cloned, because weights that layers share, and views, are refused otherwise
    weights = {name: value.detach().cpu().clone().contiguous() for name, value in module.state_dict().items()}
    content: bytes = save(weights, metadata={"format": "pt"})
    return content


def load_weights(content: bytes, module: "nn.Module", preprocessing: "Preprocessing") -> Outputs:
    """The function that a model computes with the weights of a safetensors file."""
    from pacfl.exporting.portable import portable

    weights = library("safetensors.torch", "reading safetensors", "export").load(content)
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        raise ModelError(f"the weights are those of another model: {' '.join(str(error).split())[:300]}") from None
    return _of_module(portable(module, preprocessing))


def _load_torch(content: bytes) -> Outputs:
    import torch

    with _quiet():
        return _of_module(torch.export.load(io.BytesIO(content)).module())


def _of_module(module: "nn.Module") -> Outputs:
    import torch

    def outputs(samples: NDArray[Any]) -> NDArray[np.float32]:
        with torch.no_grad():
            computed: NDArray[np.float32] = module(torch.from_numpy(samples)).numpy()
            return computed

    return outputs


def _load_onnx(content: bytes) -> Outputs:
    session = library("onnxruntime", "reading ONNX", "onnx").InferenceSession(
        content, providers=["CPUExecutionProvider"]
    )

    def outputs(samples: NDArray[Any]) -> NDArray[np.float32]:
        computed: NDArray[np.float32] = session.run(None, {session.get_inputs()[0].name: samples})[0]
        return computed

    return outputs


FORMATS: Final[Mapping[FormatName, Format]] = {
    "safetensors": Format(".safetensors", False, _written_safetensors),
    "torch": Format(".pt2", True, _written_torch),
    "onnx": Format(".onnx", True, _written_onnx),
}
_LOADERS: Final[Mapping[FormatName, Callable[[bytes], Outputs]]] = {"torch": _load_torch, "onnx": _load_onnx}


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's notes on its own deprecated parts, and on torchvision."""
    noisy = logging.getLogger("torch.onnx")
    level = noisy.level
    noisy.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        noisy.setLevel(level)
