import json
import re
from pathlib import Path

import pytest

from graphuq import datasets
from graphuq.app import demo


def test_the_demonstration(tmp_path, monkeypatch):
    """Without the models that compile: tables, two reports and two pictures."""
    monkeypatch.setattr(demo, "MODELS", {name: demo.MODELS[name] for name in ("probit, learned", "probit")})
    told = []
    found = demo.run(tmp_path / "demo", seed=0, tell=told.append)
    assert told == ["probit, learned ...", "probit ...", "digits ..."]
    learned, drawn = found["models"]
    assert min(learned["accuracy"], drawn["accuracy"]) > 0.8
    assert learned["r_hat"] is None
    assert drawn["r_hat"] < 1.05
    assert found["digits_accuracy"] > 0.85
    members = found["least_certain"]
    assert len(members) == 10
    assert abs(members[0]["probability"] - 0.5) <= abs(members[-1]["probability"] - 0.5)
    votes = datasets.voting_records()
    assert all(each["party"] == votes.class_names[int(votes.y[each["row"] - 1])] for each in members)
    text = demo.in_words(found)
    assert re.search(r"^probit, learned +\d\d\.\d% +0\.\d{3} +no draws ", text, re.M)
    assert f"from 5 of each known\nright: {found['digits_accuracy']:.1%}\n" in text
    files = [Path(file) for file in found["files"]]
    assert [path.name for path in files] == list(demo.MARKS)
    assert all(str(path) in text and path.stat().st_size > 10_000 for path in files)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    page = files[0].read_text(encoding="utf-8")
    first = re.search(r"<tbody><tr data-node='\d+'><td class='text row'><bdi>member (\d+)<", page)
    assert first[1] == str(members[0]["row"])
    assert "member 435" in page
    assert "member 0<" not in page
    assert f"{found['digits_accuracy']:.1%} are classified right where" in files[2].read_text("utf-8")
    demo._refuse_foreign(tmp_path / "demo")  # ours, which may be replaced


@pytest.mark.parametrize("name", demo.MARKS)
def test_what_others_wrote_is_kept(tmp_path, name):
    (tmp_path / name).write_text("<!doctype html><title>years of work</title>")
    with pytest.raises(ValueError, match=f"{name} was not written by graphuq"):
        demo.run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_file_in_the_way_is_told_before_any_work(tmp_path):
    (tmp_path / "demo").write_text("mine")
    told = []
    with pytest.raises(FileExistsError):
        demo.run(tmp_path / "demo", tell=told.append)
    assert told == []
