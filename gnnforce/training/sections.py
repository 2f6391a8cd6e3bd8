"""The sections of a training configuration: every option, its type and its default."""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from gnnforce.datasets.keys import check_writable
from gnnforce.errors import UserError

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Fraction = Annotated[float, Field(gt=0, lt=1)]


class Section(BaseModel):
    """A part of the configuration: unknown keys are refused, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_values_as_numbers(cls, value: Any, info: Any) -> Any:  # noqa: ANN401
        field = cls.model_fields[info.field_name]
        if isinstance(value, bool) and field.annotation is not bool:
            raise ValueError(f"{str(value).lower()} is not allowed here")
        return value


class LabelConfig(Section):
    """Where the labels of one head are; a missing key means the usual names are tried."""

    energy: str | None = None
    forces: str | None = None
    stress: str | None = None
    virial: str | None = None
    energy_unit: str = "eV"
    length_unit: str = "Ang"
    stress_unit: str | None = None


class DataConfig(Section):
    """Which structures and labels are read.

    Attributes:
        train: File of training frames, anything ASE reads.
        valid: File of validation frames, or the fraction of ``train`` held out, or
            null for none.
        test: File of test frames, evaluated at the end, or null.
        isolated_atoms: File of one-atom frames that give the reference energies.
        heads: Label keys of every head.
        references: ``auto``, or energies of isolated atoms in eV by element for all
            heads, or by head and element.
        forces_limit: Forces above this (eV/Å) are treated by ``on_bad``; null means
            1000 eV/Å, .inf no limit.
        on_bad: ``error`` stops at labels that cannot be used, ``drop`` leaves their
            frames out and counts them.
        allow_nan: Quantities in which nan means "not known".
        weight_key: Key of frame weights in ``atoms.info``; by default the usual ones
            are tried.
        group_key: Frames with the same value of this key in ``atoms.info`` stay on one
            side of a random split.
        allow_duplicates: Go on when frames of ``valid`` or ``test`` are also in
            ``train``.
    """

    train: str
    valid: float | str | None = 0.1
    test: str | None = None
    isolated_atoms: str | None = None
    heads: dict[str, LabelConfig] = Field(
        default_factory=lambda: {"energy": LabelConfig()}
    )
    references: Literal["auto"] | dict[str, float | dict[str, float]] = "auto"
    forces_limit: Annotated[float, Field(gt=0)] | None = None
    on_bad: Literal["error", "drop"] = "error"
    allow_nan: tuple[Literal["energy", "forces", "stress", "virial"], ...] = ()
    weight_key: str | None = None
    group_key: str | None = None
    allow_duplicates: bool = False

    @field_validator("references", mode="before")
    @classmethod
    def _elements_as_text(cls, value: Any) -> Any:  # noqa: ANN401
        """Let elements be written as numbers: ``{1: -13.6}``."""
        if not isinstance(value, dict):
            return value
        return {
            str(key): {str(z): e for z, e in item.items()}
            if isinstance(item, dict)
            else item
            for key, item in value.items()
        }

    @field_validator("valid", mode="before")
    @classmethod
    def _fraction_or_path(cls, value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, str) and re.fullmatch(r"[-+.\deE]+", value):
            value = float(value)
        if isinstance(value, int | float) and not 0 < value < 1:
            raise ValueError(f"a fraction lies between 0 and 1, but this is {value:g}")
        return value

    @field_validator("heads")
    @classmethod
    def _some_heads(cls, value: dict[str, LabelConfig]) -> dict[str, LabelConfig]:
        if not value:
            raise ValueError("name at least one head")
        return value


class HeadConfig(Section):
    """One head of the model, see ``gnnforce.Head``."""

    members: Count = 8
    kind: Literal["node_sum", "node_mean", "pooled"] = "node_sum"
    hidden: tuple[Count, ...] = (32,)


class ModelConfig(Section):
    """The network.

    Attributes:
        backbone: ``painn`` or ``schnet``, or the name of a registered class.
        n_features: Number of features of an atom.
        n_layers: Number of message-passing layers.
        cutoff: Radius of neighbors in Å.
        n_radial: Number of radial basis functions.
        heads: The heads; by default those of ``data.heads``, with 8 members each.
        repulsion: Add the ZBL repulsion of nuclei.
        elements: Symbols the model shall know beyond those of the training frames.
    """

    backbone: str = "painn"
    n_features: Count = 64
    n_layers: Count = 3
    cutoff: Annotated[float, Field(gt=0, le=100)] = 5.0
    n_radial: Count = 20
    heads: dict[str, HeadConfig] = Field(default_factory=dict)
    repulsion: bool = False
    elements: tuple[str, ...] = ()

    @field_validator("heads")
    @classmethod
    def _names_that_can_be_written(
        cls, value: dict[str, HeadConfig]
    ) -> dict[str, HeadConfig]:
        """Refuse now what could not be written once the model is trained."""
        for name in value:
            try:
                check_writable(f"{name}_energy")
            except UserError as error:
                raise ValueError(str(error)) from error
        return value


class WeightsConfig(Section):
    """Weights of the losses, whose unit is (eV/atom)², (eV/Å)² and (eV/Å³)²."""

    energy: NotNegative = 1.0
    forces: NotNegative = 1.0
    stress: NotNegative = 1.0


class StageConfig(Section):
    """Weights that are reached after a part of the run; null keeps the one before."""

    at: Fraction
    energy: NotNegative | None = None
    forces: NotNegative | None = None
    stress: NotNegative | None = None


class HuberConfig(Section):
    """Errors above these count linearly instead of quadratically (eV/atom, eV/Å, eV/Å³)."""

    energy: Positive = 0.1
    forces: Positive = 1.0
    stress: Positive = 0.1


class MultitaskConfig(Section):
    """How the losses of several heads are weighed and combined.

    An aggregator is no linear function of the gradients: with ``derivative_members: all``
    it sees those of all members, otherwise those of the members that were drawn.

    Attributes:
        weights: What multiplies the loss of a head; 1 for heads not named.
        combine: ``sum`` of the gradients on the backbone, or an aggregator of TorchJD:
            ``upgrad``, ``pcgrad`` or ``mgda`` (extra ``multitask``). Heads get the
            gradient of their own loss in any case.
    """

    weights: dict[str, Positive] = Field(default_factory=dict)
    combine: Literal["sum", "upgrad", "pcgrad", "mgda"] = "sum"


class OptimConfig(Section):
    """How the network is trained.

    Attributes:
        minutes: Wall time to train, excludes ``epochs``.
        epochs: Passes over the data, 100 when neither is given.
        batch_size: Frames a step, of all processes together.
        learning_rate: Highest learning rate.
        final_rate: Learning rate at the end, as a fraction of the highest.
        warmup_steps: Steps of rising learning rate.
        weight_decay: Decay of matrices (AdamW).
        amsgrad: Use the AMSGrad variant.
        gradient_clip: Largest norm of the gradient, null for any; or of groups of
            parameters by name or pattern, such as ``{backbone: 1.0, readouts: 0.1}``.
        multitask: How losses of several heads are weighed and combined; null sums them.
        ema_decay: Decay of the running mean of the weights that is validated and saved.
        loss: ``huber`` (robust to outliers) or ``mse``.
        huber: Where ``huber`` becomes linear.
        weights: Weights of the losses.
        weight_schedule: Changes of the weights during the run.
        bootstrap: ``poisson`` gives every member of a committee its own weights of
            frames, ``none`` gives all the same.
        derivative_members: Members whose forces are trained per frame and step, or
            ``all``; the loss is an unbiased estimate of that of all members.
        checkpointing: Keep only the inputs of layers and compute the rest again: several
            times less memory for many members or large systems, for nearly twice the time.
        early_stopping: Epochs without a better validation loss after which to stop.
        dtype: Precision of the network.
        workers: Processes that prepare batches.
        threads: Threads of torch; null leaves the setting of the process.
        devices: Number of processes, each with a device.
        accelerator: ``auto``, ``cpu`` or ``gpu``.
    """

    minutes: Positive | None = None
    epochs: Count | None = None
    batch_size: Count = 4
    learning_rate: Positive = 5e-3
    final_rate: Annotated[float, Field(gt=0, le=1)] = 0.01
    warmup_steps: Annotated[int, Field(ge=0)] = 100
    weight_decay: NotNegative = 1e-3
    amsgrad: bool = True
    gradient_clip: Positive | dict[str, Positive] | None = 0.1
    multitask: MultitaskConfig | None = None
    ema_decay: Annotated[float, Field(ge=0, lt=1)] = 0.995
    loss: Literal["huber", "mse"] = "huber"
    huber: HuberConfig = HuberConfig()
    weights: WeightsConfig = WeightsConfig()
    weight_schedule: tuple[StageConfig, ...] = (StageConfig(at=0.75, energy=10.0),)
    bootstrap: Literal["poisson", "none"] = "poisson"
    derivative_members: Count | Literal["all"] = 1
    checkpointing: bool = False
    early_stopping: Count | None = None
    dtype: Literal["float32", "float64"] = "float32"
    workers: Annotated[int, Field(ge=0)] = 0
    threads: Count | None = None
    devices: Count = 1
    accelerator: Literal["auto", "cpu", "gpu"] = "auto"

    @model_validator(mode="before")
    @classmethod
    def _some_end(cls, values: Any) -> Any:  # noqa: ANN401
        if isinstance(values, dict):
            ends = [key for key in ("minutes", "epochs") if values.get(key) is not None]
            if len(ends) > 1:
                raise ValueError(
                    "minutes and epochs exclude each other; give one of them"
                )
            if not ends:
                return values | {"epochs": 100}
        return values

    @field_validator("weight_schedule")
    @classmethod
    def _in_order(cls, value: tuple[StageConfig, ...]) -> tuple[StageConfig, ...]:
        times = [stage.at for stage in value]
        if sorted(set(times)) != times:
            raise ValueError(f"the values of 'at' must rise, but they are {times}")
        return value
