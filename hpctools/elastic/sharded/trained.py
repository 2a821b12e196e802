"""A sharded model and its optimizer: built on a mesh, taken apart into named parts, put together again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor import empty as empty_dtensor

from hpctools.elastic.layers import check_layers
from hpctools.elastic.sharded.layout import Part
from hpctools.errors import ElasticError

Build = Callable[[DeviceMesh], tuple[nn.Module, torch.optim.Optimizer]]
"""The user's function: makes the model, shards it over the mesh with `fully_shard`, makes the optimizer."""

MODEL, OPTIMIZER = "model", "optimizer"
_RANDOM = ("uniform_", "normal_", "trunc_normal_", "kaiming_", "xavier_", "orthogonal_", "sparse_")


@dataclass(frozen=True)
class Trained:
    """A model on a mesh.

    Attributes:
        parameters: by name, as they are between two steps; sharded ones are DTensors.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    mesh: DeviceMesh
    parameters: Mapping[str, nn.Parameter]


def built(build: Build, mesh: DeviceMesh, *, with_values: bool) -> Trained:
    """Call the user's function.

    Args:
        with_values: whether parameters need their first values; else they come from elsewhere, and
            `torch.nn.init` draws no random numbers for them.

    Raises:
        ElasticError: what it made is not a sharded model whose gradients we can add up.
    """
    with _drawing(with_values):
        model, optimizer = _called(build, mesh)
    check_layers(model)
    trained = Trained(model, optimizer, mesh, dict(model.named_parameters()))
    _check(trained)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            # The loss is weighted with the share of the samples, so the gradient is the sum over the ranks.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    return trained


def sharded_tensors(trained: Trained) -> dict[str, DTensor]:
    """All that is sharded: parameters, and what the optimizer keeps for each."""
    tensors = {f"{MODEL} {name}": _as_dtensor(each) for name, each in _sharded(trained)}
    for name, parameter in _sharded(trained):
        for key, value in trained.optimizer.state.get(parameter, {}).items():
            if isinstance(value, DTensor):
                tensors[f"{OPTIMIZER} {key} {name}"] = value
    return tensors


def local(tensor: DTensor) -> torch.Tensor:
    """Our part of it, sharing its memory."""
    part: torch.Tensor = tensor._local_tensor
    return part.detach()


def part_of(tensor: DTensor) -> Part:
    """Which part ours is, as torch Distributed Checkpoint sees it."""
    (chunk,) = tensor.__create_chunk_list__()  # type: ignore[no-untyped-call]
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Part(tuple(tensor.shape), dtype, tuple(chunk.offsets), tuple(chunk.sizes))


def make_room(trained: Trained, examples: Mapping[str, Part]) -> dict[str, DTensor]:
    """Tensors of a mesh for parts with these names; parameters are there, what the optimizer keeps is made.

    Args:
        examples: by name, any part of the tensor.

    Raises:
        ElasticError: a parameter is missing or of another shape.
    """
    tensors = {f"{MODEL} {name}": _as_dtensor(each) for name, each in _sharded(trained)}
    parameters = {name for name in examples if name.startswith(f"{MODEL} ")}
    if parameters != set(tensors):
        odd = sorted(parameters ^ set(tensors))[0].removeprefix(f"{MODEL} ")
        raise ElasticError(
            f"build(mesh) made another model than before: parameter {odd}",
            "build the same model at every call, on every worker",
        )
    for name, example in examples.items():
        if name.startswith(f"{MODEL} "):
            _check_shape(name, tensors[name], example)
        else:
            tensors[name] = _room_for(trained, name, example)
    return tensors


def check_kept(trained: Trained) -> bool:
    """Whether the optimizer keeps anything of the parameters by now.

    Raises:
        ElasticError: it keeps something that is not sharded, and another on each rank.
    """
    state = trained.optimizer.state
    kept = {name: each for name, each in trained.parameters.items() if each in state}
    for name, parameter in kept.items():
        _unsharded(name, parameter, state[parameter])
    return bool(kept)


def plain_state(trained: Trained) -> dict[str, Any]:
    """All that is not sharded: buffers, unsharded parameters, and the rest of the optimizer's state.

    Raises:
        ElasticError: the optimizer keeps something that is not sharded, and another on each rank.
    """
    names = {id(each): name for name, each in trained.parameters.items()}
    state = trained.optimizer.state
    return {
        "buffers": dict(trained.model.named_buffers()),
        "parameters": {n: p.data for n, p in trained.parameters.items() if not isinstance(p, DTensor)},
        "kept": {
            names[id(parameter)]: _unsharded(names[id(parameter)], parameter, kept)
            for parameter, kept in state.items()
            if id(parameter) in names
        },
        "of_all": {key: _of_all(key, value) for key, value in state.items() if id(key) not in names},
        "groups": [
            {**group, "params": [names[id(each)] for each in group["params"]]}
            for group in trained.optimizer.param_groups
        ],
        "tied": _further_names(trained.model),
    }


def put_together(
    trained: Trained,
    optimizer: torch.optim.Optimizer,
    tensors: Mapping[str, DTensor],
    plain: Mapping[str, Any],
) -> Trained:
    """Give a newly built model its unsharded state, and an optimizer its parameters and what it keeps.

    Args:
        optimizer: the one that the training (and its scheduler) knows; it goes on with the new parameters.
        tensors: what `make_room` made, filled.
        plain: what `plain_state` gave.

    Raises:
        ElasticError: the optimizer has another number of groups.
        Exception: a buffer is missing or of another shape.
    """
    groups, before = len(optimizer.param_groups), len(plain["groups"])
    if groups != before:
        raise ElasticError(
            f"build(mesh) gave the optimizer {groups} groups of parameters; before it had {before}",
            "build the same model at every call, on every worker",
        )
    with torch.no_grad():
        for name, buffer in trained.model.named_buffers():
            buffer.copy_(plain["buffers"][name])
        for name, value in plain["parameters"].items():
            trained.parameters[name].data.copy_(value)
    for group, kept in zip(optimizer.param_groups, plain["groups"], strict=True):
        group.update({key: value for key, value in kept.items() if key != "params"})
        group["params"] = [trained.parameters[name] for name in kept["params"]]
    optimizer.state.clear()
    optimizer.state.update(plain.get("of_all", {}))  # earlier releases had none
    on_device = _read_on_the_device(optimizer, trained)
    for name, kept in plain["kept"].items():
        own, counters = trained.parameters[name], name in on_device
        optimizer.state[own] = {
            key: _placed(key, value, own, counters=counters) for key, value in kept.items()
        }
    for name, tensor in tensors.items():
        kind, _, rest = name.partition(" ")
        if kind == OPTIMIZER:
            key, _, parameter = rest.partition(" ")
            optimizer.state[trained.parameters[parameter]][key] = tensor
    return Trained(trained.model, optimizer, trained.mesh, trained.parameters)


def _read_on_the_device(optimizer: torch.optim.Optimizer, trained: Trained) -> set[str]:
    """The parameters whose counters, such as that of steps, are read by a kernel on their device."""
    names = {id(each): name for name, each in trained.parameters.items()}
    groups = [group for group in optimizer.param_groups if group.get("capturable") or group.get("fused")]
    return {names[id(each)] for group in groups for each in group["params"]}


def _placed(key: str, value: Any, parameter: torch.Tensor, *, counters: bool) -> Any:
    """What an optimizer keeps, where torch's own `load_state_dict` puts it: it has come over the CPU."""
    if not isinstance(value, torch.Tensor) or (key == "step" and not counters):
        return value
    return value.to(parameter.device)


def _unsharded(name: str, parameter: torch.Tensor, kept: Mapping[str, Any]) -> dict[str, Any]:
    """What an optimizer keeps for a parameter that is the same on all ranks."""
    plain = {key: value for key, value in kept.items() if not isinstance(value, DTensor)}
    for key, value in plain.items():
        if isinstance(value, torch.Tensor) and _is_of_part(value, parameter):
            raise ElasticError(
                f"the optimizer keeps {key!r} of parameter {name} as a plain tensor of this worker's part, "
                "which at a resize, and from a checkpoint, would be another worker's",
                "have the optimizer keep it as the parameter is, as torch.zeros_like(parameter) makes it",
            )
    return plain


def _of_all(key: object, value: Any) -> Any:
    """What an optimizer keeps beside its parameters, as torch's own `load_state_dict` lets it."""
    if isinstance(key, torch.Tensor) or isinstance(value, DTensor):
        what = "a tensor that is no parameter of the model" if isinstance(key, torch.Tensor) else repr(key)
        raise ElasticError(
            f"the optimizer keeps state of {what}, which cannot be moved at a resize, nor saved",
            "have it keep sharded tensors by parameter of the model (self.state[parameter][...]), and values "
            "that are the same on all workers by name",
        )
    return value


def _is_of_part(value: torch.Tensor, parameter: torch.Tensor) -> bool:
    if not isinstance(parameter, DTensor) or value.numel() < 2:
        return False
    return value.shape == local(parameter).shape != parameter.shape


def _further_names(model: nn.Module) -> dict[str, str]:
    """Where a parameter or buffer is in the model once more, as tied weights are; and its first name."""
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    first: dict[int, str] = {}
    return {name: first[id(each)] for name, each in named if first.setdefault(id(each), name) != name}


def _called(build: Build, mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
    try:
        made: object = build(mesh)
    except RuntimeError as error:  # the session would take it for a group that broke, and try again
        raise ElasticError(f"build(mesh) raised {error!r}", "the traceback above tells where") from error
    match made:
        case (nn.Module() as model, torch.optim.Optimizer() as optimizer):
            return model, optimizer
    raise ElasticError(
        f"build(mesh) returned {type(made).__name__}", "return the sharded model and its optimizer"
    )


def _sharded(trained: Trained) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, each) for name, each in trained.parameters.items() if isinstance(each, DTensor))


def _as_dtensor(parameter: nn.Parameter) -> DTensor:
    assert isinstance(parameter, DTensor)  # noqa: S101
    return parameter


def _room_for(trained: Trained, name: str, example: Part) -> DTensor:
    dtype = example.torch_dtype
    parameter = trained.parameters[name.split(" ", 2)[2]]
    assert isinstance(parameter, DTensor)  # noqa: S101
    if tuple(parameter.shape) == example.shape:
        # `torch.empty_like` would do, but DTensor thinks 10 ms about it for each new mesh.
        return DTensor.from_local(
            torch.empty_like(local(parameter), dtype=dtype),
            trained.mesh,
            parameter.placements,
            run_check=False,
            shape=parameter.shape,
            stride=parameter.stride(),
        )
    return empty_dtensor(example.shape, dtype=dtype, device_mesh=trained.mesh, placements=[Shard(0)])


def _check(trained: Trained) -> None:
    if not any(isinstance(module, FSDPModule) for module in trained.model.modules()):
        raise ElasticError(
            "build(mesh) returned a model that is not sharded",
            "call torch.distributed.fsdp.fully_shard(model, mesh=mesh) in it, or use elastic.Loader",
        )
    for name, parameter in trained.parameters.items():
        if parameter.requires_grad and not isinstance(parameter, DTensor):
            raise ElasticError(
                f"parameter {name} is trained but not sharded, so nobody would add up its gradients",
                "wrap the whole model as well: fully_shard(model, mesh=mesh), after its layers",
            )
        if isinstance(parameter, DTensor) and parameter.device_mesh != trained.mesh:
            raise ElasticError(
                f"parameter {name} is sharded over another mesh than the one that build was given",
                "pass mesh=mesh to every fully_shard; two-dimensional meshes are not supported",
            )


def _check_shape(name: str, tensor: DTensor, example: Part) -> None:
    if tuple(tensor.shape) != example.shape or str(tensor.dtype) != f"torch.{example.dtype}":
        raise ElasticError(
            f"build(mesh) made {name.replace(' ', ' ', 1)} of shape {tuple(tensor.shape)} and "
            f"{tensor.dtype}; before it had {example.shape} and torch.{example.dtype}",
            "build the same model at every call, on every worker",
        )


@contextmanager
def _drawing(wanted: bool) -> Iterator[None]:
    """Without the drawing, filling memory that is overwritten next takes most of the time of a build."""
    if wanted:
        yield
        return
    original = {name: each for name, each in vars(nn.init).items() if name.startswith(_RANDOM)}
    try:
        for name in original:
            setattr(nn.init, name, lambda tensor, *_, **__: tensor)
        yield
    finally:
        for name, each in original.items():
            setattr(nn.init, name, each)
