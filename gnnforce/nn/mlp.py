"""Multilayer perceptrons: one, and many of equal shape side by side."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from gnnforce.errors import UserError
from gnnforce.nn.activations import ACTIVATIONS, SLOPES
from gnnforce.ops.mode import is_chained, is_frozen
from gnnforce.ops.perceptron import Activation, Layers, perceptron, run_layers


class MLP(nn.Sequential):
    """Linear layers with an activation between them.

    Args:
        widths: Sizes from input to output, at least two numbers.
        activation: ``"silu"``, ``"shifted_softplus"`` or ``"tanh"``.

    Example:
        >>> MLP([4, 8, 2])(torch.zeros(3, 4)).shape
        torch.Size([3, 2])
    """

    def __init__(self, widths: list[int], activation: str = "silu") -> None:
        layers: list[nn.Module] = []
        for n_in, n_out in pairwise(widths):
            layers += [Dense(n_in, n_out), Activate(activation)]
        super().__init__(*layers[:-1])
        self.activation = activation

    def layers(self) -> Layers:
        """Return weights, biases and activation as the primitives take them."""
        return layers_of([plain(m) for m in list(self)[::2]], self.activation)

    def is_plain(self) -> bool:
        """Tell whether the layers are those that were made, and no other kind."""
        kinds = {type(m).forward for m in self}
        return kinds <= {Dense.forward, nn.Linear.forward, Activate.forward}

    def forward(self, x: Tensor) -> Tensor:
        """Evaluate all layers, shape ``(..., n_out)``."""
        if is_chained():
            return perceptron(x, self.layers())
        result: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return result

    def tangent(self, x: Tensor, dx: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last layer's input and its derivative along ``dx``.

        Args:
            x: Shape ``(n_rows, n_in)``.
            dx: Derivative of ``x`` with respect to one number a row, same shape.

        Returns:
            Value and derivative, each ``(n_rows, width of the last hidden layer)``.
        """
        layers = self.layers()
        _, inputs, arguments = run_layers(x, layers)
        for weight, z in zip(layers.weights, arguments, strict=False):
            dx = layers.activation.slope(z) * (dx @ weight.T)
        return inputs[-1], dx


class Dense(nn.Linear):
    """A linear layer with Glorot-uniform weights and a zero bias."""

    def reset_parameters(self) -> None:
        """Draw new weights (Glorot and Bengio 2010)."""
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Multiply every row with the weights, shape ``(..., n_out)``."""
        if is_chained():
            return perceptron(input, layers_of([self], "silu"))
        return super().forward(input)


def layers_of(linears: list[nn.Linear], activation: str) -> Layers:
    """Gather the parameters of linear layers with an activation between them."""
    return Layers(
        Activation(ACTIVATIONS[activation], SLOPES[activation]),
        tuple(parameter(linear.weight) for linear in linears),
        tuple(
            None if linear.bias is None else parameter(linear.bias) for linear in linears
        ),
    )


def plain(module: nn.Module) -> nn.Linear:
    """Return a linear layer, whose weight is all there is to it.

    Raises:
        UserError: For another kind of layer in its place.
    """
    if type(module).forward not in (Dense.forward, nn.Linear.forward):
        raise UserError(
            f"strategy 'chain' does not know what {type(module).__name__} does in place of "
            "a linear layer; use strategy='batched'"
        )
    assert isinstance(module, nn.Linear)
    return module


def parameter(value: Tensor) -> Tensor:
    """Return a parameter, or its value where its derivative is not wanted."""
    return value.detach() if is_frozen() else value


class Activate(nn.Module):
    """An activation function by name, as a module."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.function = ACTIVATIONS[name]

    def forward(self, x: Tensor) -> Tensor:
        """Apply the function to every entry."""
        return self.function(x)


class StackedMLP(nn.Module):
    r"""Many perceptrons of one shape, evaluated together.

    .. math:: y_n = W^{(2)}_n\, a(W^{(1)}_n x + b^{(1)}_n) + b^{(2)}_n,
              \qquad n = 1 \ldots N

    The first layer of all members is one matrix product of shape
    (rows x features) times (features x N hidden); the others are batched products.
    Every member is drawn independently, so that a committee starts with a spread.

    Args:
        n_members: Number ``N`` of perceptrons.
        widths: Sizes from input to output.
        activation: Name of the activation.

    Example:
        >>> StackedMLP(5, [4, 8, 1])(torch.zeros(3, 4)).shape
        torch.Size([5, 3, 1])
    """

    def __init__(
        self, n_members: int, widths: list[int], activation: str = "silu"
    ) -> None:
        super().__init__()
        self.n_members = n_members
        self.activation = ACTIVATIONS[activation]
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for n_in, n_out in pairwise(widths):
            bound = math.sqrt(6 / (n_in + n_out))
            weight = torch.empty(n_members, n_in, n_out).uniform_(-bound, bound)
            self.weights.append(nn.Parameter(weight))
            self.biases.append(nn.Parameter(torch.zeros(n_members, 1, n_out)))

    def forward(self, x: Tensor, members: Tensor | None = None) -> Tensor:
        """Evaluate all members, or some of them, on the same rows.

        Args:
            x: Shape ``(n_rows, n_in)``, or rows of each member ``(n_members, n_rows,
                n_in)``.
            members: Indices of some of them; all when None.

        Returns:
            Shape ``(n_members, n_rows, n_out)``.
        """

        def pick(x: Tensor) -> Tensor:
            return x if members is None else x.index_select(0, members)

        weights = [pick(weight) for weight in self.weights]
        biases = [pick(bias) for bias in self.biases]
        if x.dim() == 3:
            y = torch.baddbmm(biases[0], x, weights[0])
        else:
            n_chosen, n_in, n_hidden = weights[0].shape
            first = weights[0].transpose(0, 1).reshape(n_in, n_chosen * n_hidden)
            y = (x @ first).view(-1, n_chosen, n_hidden).transpose(0, 1) + biases[0]
        for weight, bias in zip(weights[1:], biases[1:], strict=True):
            y = torch.baddbmm(bias, self.activation(y), weight)
        return y
