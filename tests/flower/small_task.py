"""The model of the small federation as a user would bring it; its data are given by the fake grid."""

from torch import nn

from pacfl.learning.nets import mlp


def load_data(context: object) -> None:
    raise AssertionError(f"the fake grid has the data, {context} was asked")


def build_model() -> nn.Module:
    return mlp((1, 8, 8), 10, hidden=8)
