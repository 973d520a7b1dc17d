"""The golden nets, from Python: every batch is real Caffe's, bit for bit."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy
import pytest
from conftest import DATA

import percolator

CASES = [case for case in json.loads((DATA / "golden" / "cases.json").read_text()) if case["shard"] is None]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_batches_are_caffes(case: dict, golden: Path) -> None:
    net = golden / "net" / f"{case['name']}.prototxt"
    data, labels = hashlib.sha256(), hashlib.sha256()
    with percolator.Feed.from_prototxt(
        net, case["phase"].lower(), root=golden, caffe_seed=case["seed"], caffe_era=case.get("era")
    ) as feed:
        batches = iter(feed)
        for _ in range(case["batches"]):
            batch = next(batches)
            data.update(numpy.asarray(batch["data"]).astype("<f4", copy=False).tobytes())
            labels.update(numpy.asarray(batch["label_f32"]).astype("<f4", copy=False).tobytes())
    assert data.hexdigest() == case["data_sha256"]
    assert labels.hexdigest() == case["label_sha256"]
