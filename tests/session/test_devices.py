"""Devices (semantics 12)."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import popart_jax as popart
from popart_jax import (
    DeviceConnectionType,
    DeviceManager,
    DeviceSelectionCriterion,
    DeviceType,
    SyncPattern,
    popart_exception,
    poplar_exception,
    syncPatternFromString,
    syncPatternToString,
)

from . import nets


@pytest.fixture(scope="module", autouse=True)
def devices_of_other_files_are_gone():
    gc.collect()


@pytest.fixture(autouse=True)
def four_ipus(monkeypatch, devices_of_other_files_are_gone):
    gc.collect(1)  # what the test before left, and not all that other files made
    monkeypatch.setenv("POPART_JAX_NUM_IPUS", "4")


@pytest.fixture
def manager() -> DeviceManager:
    return DeviceManager()


def test_cpu(manager):
    device = manager.createCpuDevice()
    assert (device.type, device.numIpus, device.tilesPerIPU, device.version) == (DeviceType.Cpu, 1, 1, "<unknown-cpu>")
    assert device.attach()
    assert repr(device).startswith("Device Type:cpu Connection Type:always Id:0 Version:<unknown-cpu> NumIPUs:1")
    assert manager.createCpuDevice() is not device


def test_models(manager):
    device = manager.createIpuModelDevice({})
    assert (device.numIpus, device.tilesPerIPU, device.ipuVersion, device.version) == (1, 4, "ipu2", "ipu2")
    device = manager.createIpuModelDevice(
        {"numIPUs": 2, "tilesPerIPU": "1216", "compileIPUCode": False, "ipuVersion": "ipu1"}
    )
    assert (device.numIpus, device.tilesPerIpu, device.type) == (2, 1216, DeviceType.IpuModel)
    assert device.numWorkerContexts == 6
    assert manager.createSimDevice({"numIPUs": "2"}).type is DeviceType.Sim
    for make, kind in ((manager.createIpuModelDevice, "ipu-model"), (manager.createSimDevice, "sim")):
        text = rf"^Invalid option `foo' passed to DevicexManager::createHostDevice for device type {kind}\. .*numIPUs"
        with pytest.raises(popart_exception, match=text):
            make({"foo": 1})


def test_offline(manager):
    device = manager.createOfflineIPUDevice({"numIPUs": 2})
    assert (device.type, device.numIpus, device.version, device.driverIds) == (
        DeviceType.OfflineIpu,
        2,
        "<offline-ipu>",
        [0],
    )
    with pytest.raises(popart_exception):
        device.attach()
    with pytest.raises(popart_exception, match="Invalid option"):
        manager.createOfflineIPUDevice({"tiles": 1})
    hardware = manager.acquireAvailableDevice(2)
    assert manager.createOfflineIpuFromDeviceInfo(hardware).numIpus == 2
    assert manager.createOfflineIpuFromSystemString("POD16", 4).numIpus == 4


def test_each_device_is_used_once_until_detached(manager):
    devices = [manager.acquireAvailableDevice(2) for _ in range(2)]
    assert {i for d in devices for i in d.driverIds} == {0, 1, 2, 3}
    with pytest.raises(
        popart_exception, match=r"Failed to acquire device with 1 IPUs. Ensure that there are sufficient"
    ):
        manager.acquireAvailableDevice(1)
    assert manager.tryAcquireAvailableDevice() is None
    devices[0].detach()
    assert not devices[0].isAttached
    again = manager.acquireAvailableDevice()
    assert again.isAttached
    assert again.numIpus == 1


def test_forgotten_devices_come_back(manager):
    manager.acquireAvailableDevice(4)
    gc.collect()
    assert manager.acquireAvailableDevice(4).isAttached


def test_context_manager_detaches(manager):
    with manager.acquireAvailableDevice(1) as device:
        assert device.isAttached
    assert not device.isAttached


def test_refused_requests(manager):
    with pytest.raises(popart_exception, match="must be a power of two"):
        manager.acquireAvailableDevice(3)
    with pytest.raises(popart_exception, match="Never"):
        manager.acquireAvailableDevice(1, connectionType=DeviceConnectionType.Never)
    with pytest.raises(popart_exception, match="Failed to acquire device with 8 IPUs"):
        manager.acquireAvailableDevice(8)
    with pytest.raises(TypeError):
        manager.acquireAvailableDevice("1")


def test_by_number(manager):
    device = manager.acquireDeviceById(1)
    assert (device.id, device.driverIds) == (1, [1])
    with pytest.raises(popart_exception, match="Failed to acquire device with id '1'"):
        manager.acquireDeviceById(1)
    assert manager.tryAcquireDeviceById(1) is None
    with pytest.raises(poplar_exception, match="No such device set id: '999'"):
        manager.acquireDeviceById(999)
    pairs = manager.enumerateDevices(numIpus=2)
    assert manager.acquireDeviceById(pairs[1].id).driverIds == [2, 3]


def test_enumeration(manager):
    assert [len(manager.enumerateDevices(numIpus=n)) for n in (1, 2, 4, 8)] == [4, 2, 1, 0]
    assert manager.enumerateDevices(deviceType=DeviceType.IpuModel) == []
    ids = [d.id for n in (1, 2, 4) for d in manager.enumerateDevices(numIpus=n)]
    assert len(set(ids)) == len(ids)
    manager.acquireAvailableDevice(4)
    assert len(manager.enumerateDevices()) == 4


def test_on_demand(manager):
    device = manager.acquireAvailableDevice(4, connectionType=DeviceConnectionType.OnDemand)
    assert not device.isAttached
    assert device.version == "<unknown-ipu-unattached>"
    other = manager.acquireAvailableDevice(4)
    manager.setOnDemandAttachTimeout(0)
    assert not device.tryAttachUntilTimeout()
    other.detach()
    assert device.tryAttachUntilTimeout()
    assert device.isAttached


def test_selection_and_smaller_devices(manager):
    device = manager.acquireAvailableDevice(
        1, 216, SyncPattern.Full, DeviceConnectionType.Always, DeviceSelectionCriterion.Random
    )
    assert device.tilesPerIPU == 216


def test_texts():
    assert [str(t) for t in DeviceType] == ["ipu-model", "cpu", "ipu", "offline-ipu", "sim"]
    assert [syncPatternToString(p) for p in SyncPattern] == ["full", "singlePipeline", "replicaAndLadder"]
    assert syncPatternFromString("singlePipeline") is SyncPattern.SinglePipeline
    with pytest.raises(popart_exception):
        syncPatternFromString("Full")


@pytest.mark.parametrize("options", [{"numIPUs": 0}, {"numIPUs": -1}, {"numIPUs": "two"}, {"tilesPerIPU": 0}])
def test_models_of_no_size(manager, options):
    with pytest.raises(popart_exception, match=next(iter(options))):
        manager.createIpuModelDevice(options)


def test_acquired_devices_of_no_size(manager):
    with pytest.raises(popart_exception, match="tilesPerIpu"):
        manager.acquireAvailableDevice(1, tilesPerIpu=-1)


def test_a_detached_device_runs_nothing(manager):
    """Also a run whose step I/O was checked before; attached and loaded again, the session goes on."""
    device = manager.acquireAvailableDevice(1)
    text = "g (float[2] x) => (float[2] y) { y = Exp(x) }"
    session = popart.InferenceSession(nets.model(text), nets.flow(1, {"y": "All"}), device)
    session.prepareDevice()
    stepio = popart.PyStepIO({"x": np.zeros(2, np.float32)}, found := session.initAnchorArrays())
    session.run(stepio)
    session.run(stepio)
    device.detach()
    with pytest.raises(popart.popart_runtime_error, match="The device is not attached"):
        session.run(stepio)
    found["y"][:] = 0
    device.attach()
    session.loadEngineAndConnectStreams()
    session.run(stepio)
    np.testing.assert_array_equal(found["y"], [1, 1])
