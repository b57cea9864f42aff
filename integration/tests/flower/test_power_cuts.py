"""Power cuts between any two writes: a sample of the moments here, all of them in ``stackfu-lab flower load``."""

from __future__ import annotations

import os

import pytest

from stackfu_integration.flower import keys, power_cuts
from stackfu_integration.flower.load import terms_of_the_load
from stackfu_integration.flower.power_cuts import METHODS, Disk, count_power_cuts, watched


@pytest.mark.parametrize("name", METHODS)
def test_a_power_cut_between_any_two_writes_loses_nothing_and_pays_nobody_twice(name):
    """Server and clients write to the same disk; all of them go on from what is left of it."""
    found = count_power_cuts(terms_of_the_load(**METHODS[name]), most=14)
    assert found["problems"] == []
    assert found["writes"] > 150
    assert found["moments"] > 200
    assert found["paid"] >= (2 if name == "shards" else 3)


def test_a_key_whose_name_was_not_brought_to_the_disk_is_missed(monkeypatch):
    """The tests above would notice: the ledger is signed by a key that a power cut takes away."""
    monkeypatch.setattr(keys, "sync_folder", lambda folder: None)
    monkeypatch.setattr(keys, "write_text", lambda path, text: path.write_text(text))
    found = count_power_cuts(most=60)
    assert any("key" in p["problem"] for p in found["problems"])


def test_what_a_disk_keeps(tmp_path):
    """Names without content are empty files, content without a name is nothing, and a rename counts when its folder does."""
    disk = Disk(tmp_path)

    def sync(path):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)

    with watched(disk):
        (tmp_path / "a").write_bytes(b"one")
        sync(tmp_path)
        assert disk.told_to_keep() == {"a": b""}
        sync(tmp_path / "a")
        assert disk.told_to_keep() == {"a": b"one"}
        (tmp_path / "b").write_bytes(b"two")
        sync(tmp_path / "b")
        assert disk.told_to_keep() == {"a": b"one"}
        os.replace(tmp_path / "b", tmp_path / "a")
        assert disk.told_to_keep() == {"a": b"one"}
        assert disk.written() == {"a": b"two"}
        sync(tmp_path)
        assert disk.told_to_keep() == {"a": b"two"}
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "c").write_bytes(b"three")
        sync(tmp_path / "folder" / "c")
        sync(tmp_path / "folder")
        assert disk.told_to_keep() == {"a": b"two"}  # what is in a folder is lost with its name
        sync(tmp_path)
        assert disk.told_to_keep() == {"a": b"two", "folder": None, "folder/c": b"three"}
    assert power_cuts.Moment(0, "", disk.told_to_keep()).tree["a"] == b"two"
