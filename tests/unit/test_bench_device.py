"""Devices of a stand, without their workers."""

from __future__ import annotations

import pytest

from srdma.demo import rxe
from srdma.embedded import Embedded
from srdma.errors import DeviceError, LocalError
from srdma_bench import gid
from srdma_bench.device import EMBEDDED, UDP, opened


def listens(words):
    return words[words.index("--wire-listen") + 1]


@pytest.mark.parametrize("device", [EMBEDDED, UDP])
def test_devices_of_this_machine(device):
    with opened(device.name) as found:
        assert found is device


def test_workers_of_embedded_share_a_wire():
    with Embedded() as nics:
        a, b = EMBEDDED.words(nics)
        assert a == b == ["--wire-dev", f"shm:{nics.folder}/wire-0"]


def test_udp_stands_have_different_addresses():
    with Embedded() as nics:
        found = [listens(words) for _ in range(60) for words in UDP.words(nics)]
    assert len({*found}) == 120


def test_two_devices(monkeypatch):
    addresses = {"mlx5_0": "10.0.0.1", "mlx5_1": "10.0.0.2"}
    monkeypatch.setattr(gid, "first_address", addresses.get)
    with opened("mlx5_0,mlx5_1") as device, Embedded() as nics:
        assert not device.shared
        for (name, address), words in zip(addresses.items(), device.words(nics), strict=True):
            assert words == [
                "--host-dev", name, "--wire-dev", name, "--wire-listen", f"{address}:0"
            ]  # fmt: skip


def test_missing_devices(monkeypatch, tmp_path):
    monkeypatch.setattr(gid, "DEVICES", tmp_path)
    with (
        pytest.raises(DeviceError, match="no RDMA device mlx5_0"),
        opened("mlx5_0,b"),
    ):
        pass
    monkeypatch.setattr(rxe, "unavailable", lambda: "as this is a test")
    with pytest.raises(LocalError, match="--device rxe: as this is a test"), opened("rxe"):
        pass
    with (
        pytest.raises(LocalError, match="--device token-ring: give embedded, udp, rxe"),
        opened("token-ring"),
    ):
        pass
