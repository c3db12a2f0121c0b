"""Running an Ir: the device, weights on both sides, and runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from numbers import Number
from typing import Any, Literal, Self

import numpy as np

from .._compat.jax import compute_in_callers_thread
from .._process.collector import without_collector
from ..enums import DeviceType
from ..errors import popart_exception
from ..execution.placement import to_host
from ..execution.stored.held import ResidentState
from ..logs import module_logger
from ..popdist.options import unlike_the_job
from ..session.feeding.checks import StreamFact
from ..session.feeding.streaming import Stream as DataStream
from ..session.options.engine_options import engine_options, wants_report
from ._building.bindings import above
from ._building.checks import check_kind
from ._building.dot import is_wanted, write
from ._internal.prepare import prepare
from ._running import io_checks as io
from ._running import weights as weights
from ._running.cache import compiled
from ._running.device_state import DeviceState
from ._running.program import Programs
from ._running.turns import in_turn
from .devices import check_device, choose_device
from .dtypes import untorched
from .ir import Ir
from .streams import DeviceToHostStream, HostToDeviceStream
from .tensor import Constant, HostScalarTensor, Tensor, Variable

d2hStreamBufferMaps = Mapping[DeviceToHostStream, np.ndarray]
h2dStreamBufferMaps = Mapping[HostToDeviceStream, HostScalarTensor]
StreamBufferMaps = h2dStreamBufferMaps | d2hStreamBufferMaps
_TRACE = 5


class Session:
    """A compiled program on a device; weights move and programs run inside ``with session:``.

    Parameters
    ----------
    ir : Ir
        The program; it can't change any more.
    device_desc : {'cpu', 'ipu_model', 'ipu_hw'} or popart.DeviceInfo
        Everything runs on JAX's default device; the IPU kinds bring the IPU model's reports.
    weights_to_host_on_exit : bool
        Leaving the context copies the weights to the host.

    Raises
    ------
    ValueError
        Unknown device, or 'cpu' for a program that needs several devices.
    RuntimeError
        The Ir has no operators.
    popart_exception
        In-place updates that are not ordered, or an operator that can't be run.
    """

    _name = "fromIr"  # what PopART calls the session of a PopXL program
    _error: Any = None
    _has_run = False

    @without_collector()
    def __init__(
        self, ir: Ir, device_desc: Literal["ipu_hw", "ipu_model", "cpu"] = "cpu", weights_to_host_on_exit: bool = True
    ) -> None:
        check_kind(Ir, ir=ir)
        compute_in_callers_thread()
        self._ir, self._turn = ir, threading.RLock()
        self._device = self._compiled_for = choose_device(ir, device_desc)
        self.weights_to_host_on_exit = weights_to_host_on_exit
        prepare(ir)
        self._read_only = any(isinstance(t._host, np.memmap) and not t._host.flags.writeable for t in self._variables())
        if self._read_only and weights_to_host_on_exit:
            self.weights_to_host_on_exit = False
        self._programs = Programs.of(ir)
        self._state = self._compile()
        facts = self._shape_facts()
        self._sources = [io.Port(s, *facts) for s in self._programs.h2d.values()]
        self._fetch = to_host
        self._sinks = [io.Port(s, *facts) for s in self._programs.d2h.values()]
        self._host_is_current = True
        ir._sessions.add(self)
        self._replica_values: dict[str, np.ndarray] = {}
        self._was_attached_stack: list[bool] = []
        self._given_device = not isinstance(device_desc, str) and device_desc.isAttached
        self._attached = False
        self._report()
        if self._given_device:
            self._attached = True
            self.weights_from_host()
        else:
            self._follow(self._device)

    @classmethod
    def _named(cls, name: str, ir: Ir, device: Any, error: Any = None) -> Self:
        """A session whose reports have that name; `error` is filled where the program does not fit the memory."""
        made = cls.__new__(cls)
        made._name, made._error = name, error
        made.__init__(ir, device)
        return made

    def _compile(self) -> DeviceState:
        executables = compiled(self._programs)
        for t in self._variables():
            module_logger("session").log(_TRACE, "Reusing TensorData for d2hWeightBuffer of tensor %s", t.id)
        if is_wanted(self._ir._options, "Final"):
            write(self._ir, "Final")
        return DeviceState(self._programs, executables)

    def _report(self) -> None:
        """Write the profile and check the memory, if the engine options ask for it."""
        if wants_report(engine_options(self._ir._options)):
            from ..session.checks.memory import check_memory  # the IPU model takes a while to import

            check_memory(self._device, self._ir._options, self._name, lambda: self._pb_session._priced(), self._error)

    def _variables(self) -> list[Variable]:
        return list(self._ir.main_graph.variables)

    @cached_property
    def _pb_session(self) -> Any:
        return above.inference_session(self._ir, self._device, self._name, self)

    # --- attachment -----------------------------------------------------------------------------------------------

    @property
    def ir(self) -> Ir:
        """The program."""
        return self._ir

    ir_ = ir

    @property
    def is_attached(self) -> bool:
        """Whether the weights are on the device."""
        return self._attached

    def __enter__(self) -> Self:
        self._was_attached_stack.append(self._attached)
        if not self._attached:
            self._attach()
        return self

    def _attach(self) -> None:
        """Attach the device and upload the weights; when that fails the session is left detached.

        Raises popart_exception where the device is of another kind than the one that the program was compiled for, or
        this job has not the processes that the replicas need; RuntimeError where somebody else has the device.
        """
        device = self._device
        try:
            check_device(self._compiled_for, device)
            if wrong := unlike_the_job(self._ir._options):
                raise popart_exception(wrong)
            if device.type is not DeviceType.OfflineIpu and not device.attach():
                raise RuntimeError(f"Could not attach to device {device.id}. Check `gc-monitor` for device usage.")
            self._attached = True
            self.weights_from_host()
        except BaseException:
            self._was_attached_stack.pop()
            self._leave()
            device.detach()
            raise

    def __exit__(self, exc_type: Any, exc_value: Any, exc_tb: Any) -> None:
        if self._was_attached_stack.pop():
            return
        try:
            if exc_type is None and self.weights_to_host_on_exit:
                self.weights_to_host()
        finally:
            self._leave()
            self._device.detach()

    def _leave(self) -> None:
        self._attached = False
        self._state.arrays = None

    def _follow(self, device: Any) -> None:
        """Detach the session too when its device is detached by hand."""
        original = device.detach

        def detach() -> None:
            self._leave()
            original()

        device.detach = detach

    def _set_device(self, device: Any) -> None:
        self._device = device
        self._follow(device)

    @in_turn
    def _need_device(self) -> None:
        if self._state.arrays is None:
            self.weights_from_host()
        elif self._state.stale:
            self._state.refresh()

    def _need_attachment(self) -> None:
        if not self._attached:
            raise ValueError(
                "Must be attached to device before calling a runtime function. Put the call inside a `Session` "
                "context, for example `with session: session.run()`."
            )

    # --- weights --------------------------------------------------------------------------------------------------

    @in_turn
    def weights_from_host(self) -> None:
        """Copy all host buffers to the device; ValueError outside the context."""
        self._need_attachment()
        self._state.upload()
        self._replica_values.clear()  # every replica has its group's value again
        self._mark(True)

    @in_turn
    def weights_to_host(self) -> None:
        """Copy all weights to their host buffers; ValueError outside the context.

        Raises
        ------
        Exception
            A variable is a read-only memory map.
        """
        if self._read_only:
            raise Exception("Writing data from device to host is not possible as the `ir` contains a read-only memmap.")
        self._need_device()
        replicas = self._programs.replicas
        values = self._state.download()
        self._own_host()
        for t in self._variables():
            if t.id not in values:
                continue
            self._replica_values[t.id] = values[t.id]
            new = weights.from_replicas(t, values[t.id], replicas)
            if isinstance(t._host, np.memmap):
                t._host[...] = new
                t._host.flush()
            else:
                t._host = np.array(new)
        self._mark(True)

    def get_tensor_data(self, tensor: Variable | Constant) -> np.ndarray:
        """Value of a variable or constant; copied from the device first when the host's copy is old.

        Raises
        ------
        TypeError
            Another kind of tensor.
        ValueError
            A tensor of another Ir.
        """
        return self.get_tensors_data([tensor])[tensor]

    @in_turn
    def get_tensors_data(self, tensors: Iterable[Variable | Constant]) -> dict[Constant | Variable, np.ndarray]:
        """As `get_tensor_data`, for several tensors with one transfer."""
        asked = list(tensors)
        for t in asked:
            if not isinstance(t, (Variable, Constant)):
                raise TypeError(
                    f"{t!r} is not of type Constant or Variable. get_tensor_data is notsupported for this type."
                )
            self._check_own(t)
        stale = not self._host_is_current and any(isinstance(t, Variable) for t in asked)
        if stale and self._attached and not self._read_only:
            self.weights_to_host()
        return {t: self._host_value(t) for t in asked}

    def _host_value(self, t: Variable | Constant) -> np.ndarray:
        if isinstance(t, Constant):
            return np.array(t._host)
        everyone = (
            t.retrieval_mode == "all_replicas" and t.replica_grouping.group_size > 1 and self._programs.replicas > 1
        )
        if everyone:
            values = self._replica_values.get(t.id)
            if values is None:
                values = weights.to_replicas(t, self._programs.replicas)
            return weights.every_replica(t, values)
        mapped = t._memmap_arr
        return np.array(t._host) if mapped is None else mapped

    def write_variable_data(self, tensor: Variable, data: np.ndarray) -> None:
        """Replace the host's copy of a variable, and the device's when attached.

        Raises
        ------
        TypeError
            No variable, or another type than the variable's.
        ValueError
            Another shape than `tensor.shape_on_host`, or a variable of another Ir.
        NotImplementedError
            A variable that is read for every replica.
        """
        self.write_variables_data({tensor: data})

    @in_turn
    def write_variables_data(self, tensors: dict[Variable, np.ndarray]) -> None:
        """As `write_variable_data`, for several variables with one transfer."""
        if not isinstance(tensors, Mapping):
            raise TypeError(f"`tensors` must be a mapping from variables to arrays, got {type(tensors).__name__}.")
        on_device = self._attached and self._state.arrays is not None and not self._read_only
        if on_device:
            if not self._host_is_current:
                self.weights_to_host()  # keeps what was trained on the device
            self._own_host()
        for t, data in tensors.items():
            checked = checked_data(t, data)
            self._check_own(t)
            self._write_host({t: checked})
        if on_device:
            self._state.changed(tensors)
        elif self._attached:
            self.weights_from_host()

    def _write_host(self, checked: Mapping[Variable, np.ndarray]) -> None:
        """Replace only the host copies, by arrays from `checked_data`."""
        for t, array in checked.items():
            if isinstance(t._host, np.memmap):
                t._host[...] = array
            else:
                t._host = array
            self._replica_values.pop(t.id, None)

    def _check_own(self, t: Tensor) -> None:
        """A session holds the tensors of its own Ir only (ValueError)."""
        if t.ir != self._ir:
            raise ValueError(f"{t!r} belongs to {t.ir!r}, but this session runs {self._ir!r}.")

    def _held(self) -> ResidentState:
        """Resident arrays, for checkpoints."""
        self._need_device()
        state = self._state
        assert state.arrays is not None
        return ResidentState(dict(state.arrays), self._programs.resident, self._put_back)

    def _put_back(self, arrays: Mapping[str, Any], _: Mapping[str, Any]) -> None:
        assert self._state.arrays is not None
        self._state.arrays.update(arrays)
        self._mark(False)

    # --- running --------------------------------------------------------------------------------------------------

    def _shape_facts(self) -> tuple[int, int]:
        return self._programs.transfers, self._ir.instance_replication_factor

    def _full_input_shape(self, shape: Iterable[int]) -> tuple[int, ...]:
        return io.full_shape(shape, *self._shape_facts())

    def expected_inputs(self) -> list[HostToDeviceStream]:
        """Streams that a run must be given."""
        return list(self._programs.h2d.values())

    def _expected_outputs(self) -> list[DeviceToHostStream]:
        return list(self._programs.d2h.values())

    def create_host_outputs(self) -> dict[DeviceToHostStream, np.ndarray]:
        """Arrays that `run_with_outputs` can fill."""
        return io.make_outputs(self._programs.d2h, *self._shape_facts())

    def _validate_run_inputs(self, inputs: Mapping[Any, Any]) -> None:
        io.check_keys(inputs, self.expected_inputs(), "input")
        for stream, data in inputs.items():
            io.check_shape(stream, np.shape(data), *self._shape_facts())

    def _validate_run_outputs(self, outputs: Mapping[Any, Any]) -> None:
        io.check_keys(outputs, self._expected_outputs(), "output")
        for stream, data in outputs.items():
            io.check_shape(stream, np.shape(data), *self._shape_facts(), "output")

    def run(
        self, inputs: h2dStreamBufferMaps | DataStream | None = None, downcast_inputs: bool = True
    ) -> d2hStreamBufferMaps:
        """Run the program once.

        Parameters
        ----------
        inputs : mapping of stream to array, or popart_jax.Stream
            For each input stream `num_host_transfers` micro-batches for each replica: shape (transfers, replicas, ...)
            without axes of length 1 in front. A `Stream` draws them from a source of data, ahead of the run.
        downcast_inputs : bool
            64-bit data become 32-bit.

        Returns
        -------
        dict of stream to ndarray
            Fresh arrays of the same form.

        Raises
        ------
        ValueError
            Outside the context; unknown or missing streams; wrong shapes.
        """
        if not self._attached or self._state.arrays is None or self._state.stale:
            self._need_device()
        if isinstance(inputs, DataStream):
            return self._step(inputs.take(*self._streamed()))
        given: Mapping[HostToDeviceStream, HostScalarTensor] = {} if inputs is None else inputs
        if not isinstance(given, Mapping):
            raise TypeError(f"`inputs` must be a mapping from streams to arrays, got {type(given).__name__}.")
        if len(given) != len(self._sources) or any(port.stream not in given for port in self._sources):
            io.check_keys(given, self.expected_inputs(), "input")
        return self._step({port.name: port.feed(given[port.stream], downcast_inputs) for port in self._sources})

    def _streamed(self) -> tuple[list[StreamFact], Callable[[str, np.ndarray], Any]]:
        """For `DataStream`: the input streams of a run in creation order, and the function that uploads their data."""
        self._need_device()
        made = list(self._ir._streams)
        facts = [port.fact for port in self._sources]
        return sorted(facts, key=lambda fact: made.index(fact.name)), self._state.put_fed

    @in_turn
    def _step(self, fed: Mapping[str, Any]) -> d2hStreamBufferMaps:
        sent = self._state.run(fed)
        self._has_run = True
        if self._host_is_current:
            self._mark(False)
        fetch = self._fetch
        return {port.stream: port.read(fetch(sent[port.name])) for port in self._sinks}

    def run_with_outputs(
        self,
        inputs: h2dStreamBufferMaps | DataStream | None = None,
        outputs: d2hStreamBufferMaps | None = None,
        downcast_inputs: bool = True,
    ) -> None:
        """As `run`, writing into the given arrays, which are checked before anything runs.

        Raises
        ------
        TypeError
            An output is no NumPy array that can be written to, or its type does not hold the stream's numbers.
        """
        outputs = outputs or {}
        self._need_device()
        self._validate_run_outputs(outputs)
        for stream, array in outputs.items():
            io.check_target(stream, array)
        for stream, array in self.run(inputs, downcast_inputs).items():
            io.fill(outputs[stream], array, self._programs.transfers)

    def _own_host(self) -> None:
        """The host's copies become this device's: other sessions of the Ir upload first what they were given."""
        for other in self._ir._sessions:
            if other is not self and other._state.arrays is not None:
                other._need_device()
                other._host_is_current = False

    def _mark(self, current: bool) -> None:
        """Record whether the host's copies are up to date."""
        self._host_is_current = current
        for t in self._variables():
            t._in_sync = current


def checked_data(t: Variable, data: Any) -> np.ndarray:
    """An array of the host shape and type of a variable; errors as `Session.write_variable_data`."""
    if not isinstance(t, Variable):
        shown = t.id if isinstance(t, Tensor) else t
        raise TypeError(f"Tensor {shown} is not of type Variable. write_variable_data is not supported for this type.")
    wanted = t.dtype.as_numpy()
    if isinstance(data, Number):
        if t.dtype._is_float8:
            raise TypeError(
                f"Data for variable {t.id} must be passed in as an np.array with dtype {wanted} "
                "(see popxl.fp8_utils.host_pow2scale_cast_to_fp8)"
            )
        data = np.asarray(data, wanted)
    array = np.asarray(untorched(data))
    if array.dtype != wanted:
        raise TypeError(
            f"The dtype of the input array {array.dtype} must match the equivalent type of the tensor {t.id} : {wanted}"
        )
    if array.shape != t.shape_on_host:
        raise ValueError(
            f"The shape of the input array {array.shape} must match the shape of the tensor {t.id} : {t.shape_on_host}"
        )
    if t.retrieval_mode == "all_replicas" and t.replica_grouping.group_size > 1:
        raise NotImplementedError(f'Copying to tensor {t.id} with "all_replicas" retreval mode is not yet supported.')
    return np.array(array)
