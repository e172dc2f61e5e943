import numpy as np
import pytest

from graphuq.app.label.look import MAX_LETTERS, check_pictures, differences, identity, look_at
from graphuq.app.options import Showing
from graphuq.app.question import Question, read_data


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def table(tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").write_bytes(b"\x89PNG")
    (tmp_path / "pictures" / "page.html").write_bytes(b"<script>")
    (tmp_path / "secret.png").write_bytes(b"secret")
    (tmp_path / "pictures" / "link.png").symlink_to(tmp_path / "secret.png")
    rows = ["a.png", "../secret.png", "/etc/passwd", "link.png", "page.html", "gone.png", "", "a" * 5000]
    lines = [f'{i},{i % 3},"{name}",text {i}' for i, name in enumerate(rows)]
    return written(tmp_path / "t.csv", "\n".join(["id,x,file,note", *lines]) + "\n")


def looked(table, **options):
    question = Question(table=table, label="kind", drop=("file", "note"), row_id="id")
    return look_at(read_data(question, any_labels=True), question, Showing(**options))


def test_a_table_without_the_column_has_no_labels(table):
    data = read_data(Question(table=table, label="kind", drop=("file", "note")), any_labels=True)
    assert set(data.y) == {""}
    with pytest.raises(ValueError, match="did you mean 'note'"):
        read_data(Question(table=table, label="notes", drop=("file",)), any_labels=True)


def test_all_columns_are_shown_but_names_labels_and_those_dropped(table):
    assert looked(table).cells(2) == [("x", "2")]
    assert looked(table, show=["note"]).cells(1) == [("note", "text 1")]


def test_numbers_have_the_decimal_mark_of_the_table(tmp_path):
    table = written(tmp_path / "t.csv", "x;y;kind\n1,5;a.b;\n1000000,25;3;\n")
    question = Question(table=table, label="kind", categories=("y",))
    data = read_data(question, any_labels=True)
    assert look_at(data, question, Showing()).cells(0) == [("x", "1,5"), ("y", "a.b")]
    assert data.rows.cells == [["1,5", "a.b"], ["1000000,25", "3"]]


def test_long_cells_are_cut(tmp_path):
    table = written(tmp_path / "t.csv", f"x,note,kind\n1,{'a' * (MAX_LETTERS + 5)},\n2,b,\n")
    question = Question(table=table, label="kind", drop=("note",))
    told = dict(look_at(read_data(question, any_labels=True), question, Showing(show=["note"])).cells(0))["note"]
    assert told.endswith("… (5 more letters)")


def test_only_pictures_in_the_folder_are_served(table):
    look = looked(table, pictures=table.parent / "pictures", picture_column="file")
    assert look.picture(0) == (table.parent / "pictures" / "a.png", "image/png")
    for row in range(1, 8):
        with pytest.raises(FileNotFoundError, match=r"no picture|not a picture"):
            look.picture(row)


def test_pictures_need_a_folder_and_a_column(table):
    question = Question(table=table, label="kind")
    for options, told in (
        ({"picture_column": "file"}, "go together"),
        ({"pictures": table.parent}, "go together"),
        ({"pictures": table.parent / "none", "picture_column": "file"}, "no folder"),
        ({"pictures": table.parent, "picture_column": "kind"}, "as --label and again as --picture-column"),
    ):
        with pytest.raises(ValueError, match=told):
            check_pictures(question, Showing(**options))


def test_what_changed_is_told(tmp_path):
    def known(text, **settings):
        table = read_data(Question(written(tmp_path / "t.csv", text), "kind"), any_labels=True).table
        return identity(table, settings)

    before = known("x,y,kind\n1,2,\n3,4,a\n", drop=["z"])
    assert differences(before, known("x,y,kind\r\n1,2,\r\n3,4,a\r\n", drop=["z"])) == []
    assert differences(before, known("x,y,kind\n1,2,\n3,5,a\n", drop=["z"])) == ["cells of 'y' changed"]
    assert differences(before, known("x,y,kind\n1,2,\n3,4,a\n5,6,\n", drop=["z"])) == ["it had 2 rows and has 3"]
    assert differences(before, known("x,w,kind\n1,2,\n3,4,a\n", drop=["z"])) == [
        "it is now without column 'y'",
        "it is now with the new column 'w'",
    ]
    assert differences(before, known("x,y,kind\n1,2,\n3,4,a\n", drop=[])) == ["drop was ['z'] and is not given"]


def test_digests_tell_cells_apart(tmp_path):
    one, two = (
        identity(
            read_data(Question(written(tmp_path / "t.csv", text), "k", drop=("a", "b")), any_labels=True).table, {}
        )
        for text in ("a,b,x,k\nuv,w,1,\nu,v,2,\n", "a,b,x,k\nu,vw,1,\nu,v,2,\n")
    )
    assert len(differences(one, two)) == 1
    assert np.shape(list(one["columns"])) == (4,)
