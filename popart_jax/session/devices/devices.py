"""Devices: the CPU, models of IPUs, and emulated IPUs that are acquired and given back like hardware."""

from __future__ import annotations

import random
import weakref
from collections.abc import Mapping
from typing import Any

from ..._calls import checked
from ..._process.random_state import random_state_kept
from ...enums import DeviceConnectionType, DeviceSelectionCriterion, DeviceType, SyncPattern
from ...errors import logs_errors, noted, popart_exception, poplar_exception
from .ipu_pool import IPU_COUNT_VARIABLE, POOL, Lease
from .sync_patterns import syncPatternFromString

TARGETS = {"ipu1": "mk1", "ipu2": "mk2", "ipu21": "bow"}  # PopART's architecture names and the IPU model's
_DRIVER = "emulated"
_LOOK = (
    "If you have enabled the Poplar SDK you can check device availability with the `gc-monitor` command-line utility."
)


class DeviceInfo:
    """A device that sessions run on. Made by `DeviceManager`, never directly."""

    def __init__(
        self,
        kind: DeviceType,
        *,
        connection: DeviceConnectionType = DeviceConnectionType.Always,
        number: int = 0,
        version: str = "",
        architecture: str = "",
        ipus: int = 1,
        tiles: int = 1,
        workers: int | None = 6,  # None: those of the architecture, looked up when asked for
        driver_ids: tuple[int, ...] = (),
        attached: bool = True,
        options: Mapping[str, str] | None = None,
        lease: Lease | None = None,
    ) -> None:
        self._kind, self._connection, self._number = kind, connection, number
        self._version, self._architecture = version, architecture
        self._ipus, self._tiles, self._workers = ipus, tiles, workers
        self._driver_ids, self._attached = driver_ids, attached
        self._options = dict(options or {})
        self._lease = lease
        self.last_engine: Any = None  # a weak reference to the engine of the session that used the device last
        if lease is not None:  # a forgotten device is given back when nobody refers to it any more
            weakref.finalize(self, lease.give_back)

    @property
    def type(self) -> DeviceType:
        """Kind of the device."""
        return self._kind

    @property
    def connectionType(self) -> DeviceConnectionType:
        """When the device is attached."""
        return self._connection

    @property
    def id(self) -> int:
        """Number of the device; 0 except for (emulated) hardware."""
        return self._number

    @property
    def version(self) -> str:
        """Version of the driver."""
        if self._lease is not None and not self._attached:
            return "<unknown-ipu-unattached>"
        return self._version

    @property
    def ipuVersion(self) -> str:
        """Name of the architecture, such as ``ipu2``."""
        return self._architecture

    @property
    def numIpus(self) -> int:
        """Number of IPUs."""
        return self._ipus

    @property
    def tilesPerIPU(self) -> int:
        """Tiles of one IPU."""
        return self._tiles

    @property
    def tilesPerIpu(self) -> int:
        """Tiles of one IPU."""
        return self._tiles

    @property
    def numWorkerContexts(self) -> int:
        """Worker threads of a tile."""
        return _architecture(self._version)[1] if self._workers is None else self._workers

    @property
    def driverIds(self) -> list[int]:
        """Numbers the driver gives to the IPUs."""
        return list(self._driver_ids)

    @property
    def isAttached(self) -> bool:
        """Whether the device is attached."""
        return self._attached

    @logs_errors
    def attach(self) -> bool:
        """Attach the device; False if somebody else has it.

        Raises
        ------
        popart_exception
            An offline device.
        """
        if self._kind is DeviceType.OfflineIpu:
            raise popart_exception("Cannot attach to an offline-ipu device.")
        if self._lease is not None and not self._attached:
            self._attached = self._lease.take()
        else:
            self._attached = True
        return self._attached

    def tryAttachUntilTimeout(self) -> bool:
        """Attach, waiting at most the time of `DeviceManager.setOnDemandAttachTimeout`."""
        if self._lease is None or self._attached:
            return self.attach()
        self._attached = self._lease.take(POOL.attach_timeout)
        return self._attached

    def detach(self) -> None:
        """Give the device back."""
        if self._lease is not None and self._attached:
            self._lease.give_back()
            last = None if self.last_engine is None else self.last_engine()
            if last is not None:
                last.check_runs_again()
        self._attached = self._lease is None and self._kind is not DeviceType.OfflineIpu and self._attached

    def __enter__(self) -> DeviceInfo:
        return self

    def __exit__(self, exc_type: object, exc_value: object, traceback: object, /) -> None:
        self.detach()

    def __repr__(self) -> str:
        connection = {"Always": "always", "OnDemand": "on-demand", "Never": "never"}[self._connection.name]
        ids = ", ".join(map(str, self._driver_ids or (0,)))
        return (
            f"Device Type:{self._kind} Connection Type:{connection} Id:{self._number} Version:{self.version} "
            f"NumIPUs:{self._ipus} NumTilesPerIPU:{self._tiles} DeviceIds: {{{ids}}}"
        )


def _options(given: Mapping[Any, Any], defaults: Mapping[str, str | None], kind: DeviceType) -> dict[str, str]:
    """Device options as text, defaults filled in; popart_exception, which lists the valid keys, for another one."""
    for key in given:
        if str(key) not in defaults:
            raise popart_exception(
                f"Invalid option `{key}' passed to DevicexManager::createHostDevice for device type {kind}. "
                f"Valid options are [{' '.join(defaults)}]"
            )
    chosen = {str(k): str(v) for k, v in given.items()}
    return {**{k: v for k, v in defaults.items() if v is not None}, **chosen}


def _count(options: Mapping[str, str], key: str) -> int:
    try:
        count = int(options[key])
    except ValueError:
        raise popart_exception(f"Device option {key} is a number, got '{options[key]}'.") from None
    if count < 1:
        raise popart_exception(f"Device option {key} must be at least 1, got {count}.")
    return count


def _check_architecture(name: str) -> None:
    if name not in TARGETS:
        raise popart_exception(f"Unknown ipuVersion '{name}'; there are {', '.join(TARGETS)}.")


def _architecture(name: str) -> tuple[int, int]:
    """Tiles and worker threads of an architecture. Looking them up imports JAX."""
    _check_architecture(name)
    with random_state_kept():
        from ipu_model import get_target

    machine = get_target(TARGETS[name]).machine
    return machine.tiles, machine.workers


class DeviceManager:
    """Finds and makes devices. All managers of a process share one pool of emulated IPUs.

    How many IPUs are emulated says the environment variable ``POPART_JAX_NUM_IPUS`` (default 16).
    """

    @checked
    def createCpuDevice(self) -> DeviceInfo:
        """A CPU device: one IPU with one tile, for reports' sake."""
        return DeviceInfo(DeviceType.Cpu, version="<unknown-cpu>", architecture="<unknown-cpu>", workers=1)

    @checked
    def createIpuModelDevice(self, e: dict[Any, Any], /) -> DeviceInfo:
        """A model of IPUs; options ``numIPUs`` (1), ``tilesPerIPU`` (4), ``compileIPUCode``, ``ipuVersion`` (ipu2).

        Raises
        ------
        popart_exception
            Unknown option or architecture.
        """
        defaults = {"numIPUs": "1", "tilesPerIPU": "4", "compileIPUCode": "true", "ipuVersion": "ipu2"}
        options = _options(e, defaults, DeviceType.IpuModel)
        _check_architecture(options["ipuVersion"])
        return self._make_device(DeviceType.IpuModel, options, options["ipuVersion"], workers=None)

    @checked
    def createSimDevice(self, e: dict[Any, Any], /) -> DeviceInfo:
        """A simulator, which here is the same as a model; options ``numIPUs`` (1), ``tilesPerIPU`` (4)."""
        options = _options(e, {"numIPUs": "1", "tilesPerIPU": "4"}, DeviceType.Sim)
        return self._make_device(DeviceType.Sim, options, "<unknown-sim>", architecture="ipu2")

    @checked
    def createOfflineIPUDevice(self, opts: dict[Any, Any]) -> DeviceInfo:
        """IPUs to compile for only; options numIPUs, tilesPerIPU, ipuVersion, syncPattern, gatewayMode.

        Raises
        ------
        popart_exception
            Unknown option, architecture or sync pattern.
        """
        defaults = {
            "numIPUs": "1",
            "tilesPerIPU": None,
            "ipuVersion": "ipu2",
            "syncPattern": "full",
            "gatewayMode": "false",
        }
        options = _options(opts, defaults, DeviceType.OfflineIpu)
        tiles, workers = _architecture(options["ipuVersion"])
        syncPatternFromString(options["syncPattern"])
        options.setdefault("tilesPerIPU", str(tiles))
        never = DeviceConnectionType.Never
        return self._make_device(
            DeviceType.OfflineIpu,
            options,
            "<offline-ipu>",
            workers=workers,
            connection=never,
            attached=False,
            driver_ids=(0,),
        )

    @checked
    def createOfflineIpuFromDeviceInfo(self, deviceInfo: DeviceInfo, /) -> DeviceInfo:
        """An offline device like an existing one.

        Raises
        ------
        popart_exception
            `deviceInfo` is no IPU.
        """
        if deviceInfo.type not in (DeviceType.Ipu, DeviceType.OfflineIpu):
            raise popart_exception(f"Cannot create an offline-ipu from a device of type {deviceInfo.type}.")
        options = {
            "numIPUs": deviceInfo.numIpus,
            "tilesPerIPU": deviceInfo.tilesPerIPU,
            "ipuVersion": deviceInfo.ipuVersion,
        }
        return self.createOfflineIPUDevice(options)

    @checked
    def createOfflineIpuFromSystemString(self, system: str, numIpus: int, /) -> DeviceInfo:
        """An offline device for a named system, such as ``ipu2`` or a POD name."""
        version = next((v for v in ("ipu21", "ipu1", "ipu2") if v in system.lower()), "ipu2")
        return self.createOfflineIPUDevice({"numIPUs": numIpus, "ipuVersion": version})

    @staticmethod
    def _make_device(
        kind: DeviceType, options: Mapping[str, str], version: str, architecture: str = "", **rest: Any
    ) -> DeviceInfo:
        return DeviceInfo(
            kind,
            version=version,
            architecture=architecture or options.get("ipuVersion", "ipu2"),
            ipus=_count(options, "numIPUs"),
            tiles=_count(options, "tilesPerIPU"),
            options=options,
            **rest,
        )

    @checked
    def acquireAvailableDevice(
        self,
        numIpus: int = 1,
        tilesPerIpu: int = 0,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        selectionCriterion: DeviceSelectionCriterion = DeviceSelectionCriterion.First,
    ) -> DeviceInfo:
        """Take a free (emulated) device with `numIpus` IPUs.

        Parameters
        ----------
        numIpus : int
            A power of two; 0 and 1 mean one.
        tilesPerIpu : int
            Tiles of each IPU; 0 means all.
        pattern : SyncPattern
            Has no effect: nothing is synchronised here.
        connectionType : DeviceConnectionType
            Always takes the device now, OnDemand when it is attached.
        selectionCriterion : DeviceSelectionCriterion
            First takes the lowest number that is free, Random any.

        Raises
        ------
        popart_exception
            `numIpus` is no power of two, the connection type is Never, or none is free.
        """
        found = self.tryAcquireAvailableDevice(numIpus, tilesPerIpu, pattern, connectionType, selectionCriterion)
        if found is None:
            raise noted(
                popart_exception(
                    f"Failed to acquire device with {numIpus} IPUs. Ensure that there are sufficient IPUs available. "
                    f"{_LOOK}"
                ),
                f"{POOL.size} IPUs are emulated, {len(POOL.taken)} in use; set {IPU_COUNT_VARIABLE} for more.",
            )
        return found

    @checked
    def tryAcquireAvailableDevice(
        self,
        numIpus: int = 1,
        tilesPerIpu: int = 0,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        selectionCriterion: DeviceSelectionCriterion = DeviceSelectionCriterion.First,
    ) -> DeviceInfo | None:
        """As `acquireAvailableDevice`, with the same parameters, but None if none is free.

        Raises
        ------
        popart_exception
            `numIpus` is no power of two, `tilesPerIpu` is negative, or the connection type is Never.
        """
        if numIpus < 0 or numIpus & (numIpus - 1):
            raise popart_exception(
                f"You have attempted to acquire {numIpus} IPUs. The number of IPUs requested must be a power of two"
            )
        if tilesPerIpu < 0:
            raise popart_exception(f"tilesPerIpu must not be negative, got {tilesPerIpu}; 0 stands for all tiles.")
        _refuse_never(connectionType)
        candidates = POOL.groups(max(numIpus, 1))
        if selectionCriterion is DeviceSelectionCriterion.Random:
            random.Random(1).shuffle(candidates)
        for number, ipus in candidates:
            device = _emulated(number, ipus, tilesPerIpu, connectionType)
            if connectionType is DeviceConnectionType.OnDemand and not POOL.taken & set(ipus):
                return device
            if connectionType is DeviceConnectionType.Always and device.attach():
                return device
        return None

    @checked
    def acquireDeviceById(
        self,
        id: int,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
    ) -> DeviceInfo:
        """Take the (emulated) device with a number.

        Parameters
        ----------
        id : int
            As `enumerateDevices` numbers them: single IPUs first, then groups of two, four, ...
        pattern : SyncPattern
            Has no effect: nothing is synchronised here.
        connectionType : DeviceConnectionType
            Always takes the device now, OnDemand when it is attached.

        Raises
        ------
        poplar_exception
            There is no such device.
        popart_exception
            It is in use.
        """
        found = self.tryAcquireDeviceById(id, pattern, connectionType)
        if found is None:
            raise popart_exception(f"Failed to acquire device with id '{id}'. Ensure it is available. {_LOOK}")
        return found

    @checked
    def tryAcquireDeviceById(
        self,
        id: int,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
    ) -> DeviceInfo | None:
        """As `acquireDeviceById`, with the same parameters, but None if the device is in use.

        Raises
        ------
        poplar_exception
            There is no such device.
        popart_exception
            The connection type is Never.
        """
        _refuse_never(connectionType)
        ipus = POOL.by_number(id)
        if ipus is None:
            raise poplar_exception(f"No such device set id: '{id}'")
        device = _emulated(id, ipus, 0, connectionType)
        if connectionType is DeviceConnectionType.OnDemand:
            return None if POOL.taken & set(ipus) else device
        return device if device.attach() else None

    @checked
    def enumerateDevices(
        self,
        pattern: SyncPattern = SyncPattern.Full,
        numIpus: int = 1,
        deviceType: DeviceType = DeviceType.Ipu,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        tilesPerIPU: int = 0,
    ) -> list[DeviceInfo]:
        """All devices with exactly `numIpus` IPUs, in use or not.

        Parameters
        ----------
        pattern, connectionType : SyncPattern, DeviceConnectionType
            The first has no effect; the second is that of each device.
        numIpus : int
            IPUs of each; nothing is found unless it is a power of two.
        deviceType : DeviceType
            Nothing is found for other types than Ipu.
        tilesPerIPU : int
            Tiles of each IPU; 0 means all.
        """
        if deviceType is not DeviceType.Ipu or numIpus & (numIpus - 1):
            return []
        return [_emulated(number, ipus, tilesPerIPU, connectionType) for number, ipus in POOL.groups(numIpus)]

    @checked
    def setOnDemandAttachTimeout(self, attachTimeout: int) -> None:
        """Longest wait for a device of connection type OnDemand [seconds]."""
        POOL.attach_timeout = attachTimeout


def _refuse_never(connection: DeviceConnectionType) -> None:
    if connection is DeviceConnectionType.Never:
        raise popart_exception("Trying to acquire a hardware device when connectionType is DeviceConnectionType::Never")


def _emulated(number: int, ipus: tuple[int, ...], tiles: int, connection: DeviceConnectionType) -> DeviceInfo:
    POOL.announce()
    all_tiles, workers = _architecture("ipu2")
    return DeviceInfo(
        DeviceType.Ipu,
        connection=connection,
        number=number,
        version=_DRIVER,
        architecture="ipu2",
        ipus=len(ipus),
        tiles=tiles or all_tiles,
        workers=workers,
        driver_ids=ipus,
        attached=False,
        lease=Lease(ipus),
    )
