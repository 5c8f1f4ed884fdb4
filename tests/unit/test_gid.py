"""GIDs of devices, in a simulated sysfs tree."""

from __future__ import annotations

import pytest

from srdma.errors import DeviceError
from srdma_bench import gid


@pytest.fixture
def devices(tmp_path, monkeypatch):
    monkeypatch.setattr(gid, "DEVICES", tmp_path)
    gids = tmp_path / "rxe0" / "ports" / "1" / "gids"
    gids.mkdir(parents=True)
    (gids / "0").write_text("fe80:0000:0000:0000:0250:56ff:fe00:0001\n")
    (gids / "1").write_text("0000:0000:0000:0000:0000:ffff:0a4d:0001\n")
    (gids / "2").mkdir()  # an unused entry of the table cannot be read
    return tmp_path


def test_address_of_a_gid(devices):
    assert gid.gid_address("rxe0", 1) == "10.77.0.1"


def test_first_address(devices):
    assert gid.first_address("rxe0") == "10.77.0.1"
    (devices / "rxe0/ports/1/gids/1").unlink()
    with pytest.raises(DeviceError, match="rxe0 has no IPv4 address: assign one"):
        gid.first_address("rxe0")


@pytest.mark.parametrize("index", [0, 2, 3])
def test_another_gid(devices, index):
    with pytest.raises(
        DeviceError, match=rf"GID {index} of rxe0 is not an IPv4.*addresses are 1 \(10.77.0.1\)"
    ):
        gid.gid_address("rxe0", index)


def test_no_device(devices, monkeypatch):
    with pytest.raises(DeviceError, match="no RDMA device mlx5_0: there are rxe0"):
        gid.gid_address("mlx5_0", 1)
    monkeypatch.setattr(gid, "DEVICES", devices / "nothing")
    with pytest.raises(DeviceError, match="there are none"):
        gid.gid_address("mlx5_0", 1)
