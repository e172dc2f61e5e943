import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from graphuq.app.tables import fit_encoding, read_table


def written(tmp_path, content, name="t.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_csv_columns_are_numbers_or_text(tmp_path):
    table = read_table(written(tmp_path, '\ufeffa,b, c \n1,x,"=1+1"\n2.5e1,,NA\nNaN,"<b>,y",z\n\n'))
    assert list(table.columns) == ["a", "b", "c"]
    assert np.array_equal(table.column("a"), [1, 25, np.nan], equal_nan=True)
    assert table.column("b").tolist() == ["x", "", "<b>,y"]
    assert table.column("c").tolist() == ["=1+1", "", "z"]
    assert table.text("a").tolist() == ["1", "25", ""]


def test_words_that_count_as_missing_are_remembered(tmp_path):
    table = read_table(written(tmp_path, "a,b\n1,none\nNA,x\nna,none\n,\n"))
    assert table.text("b").tolist() == ["", "x", "", ""]
    assert table.missing_words == {"a": {"NA": 1, "na": 1}, "b": {"none": 2}}


def test_tsv_and_other_separators(tmp_path):
    assert read_table(written(tmp_path, "a\tb\n1\t2\n", "t.tsv")).n_rows == 1
    assert list(read_table(written(tmp_path, "a;b\n1;2\n"), separator=";").columns) == ["a", "b"]
    with pytest.raises(ValueError, match="one character"):
        read_table(written(tmp_path, "a\n1\n"), separator="--")


def test_codes_stay_as_they_are_and_still_serve_as_numbers(tmp_path):
    path = tmp_path / "codes.csv"
    path.write_text("id,x\n00017,1.5\n1234567890123456789,007\n")
    table = read_table(path)
    assert list(table.text("id")) == ["00017", "1234567890123456789"]
    np.testing.assert_allclose(fit_encoding(table, ["x"], scale="none").encode(table), [[1.5], [7.0]])


def test_whole_numbers_keep_their_digits(tmp_path):
    """Up to 2**53 as numbers, beyond as text: a float64 would change them, and two ids might become one."""
    exact, long = 2**53 - 1, 2**53 + 1
    np.savez(tmp_path / "t.npz", id=[exact, 10**15], code=[long, -long], top=np.array([2**64 - 1, 1], np.uint64))
    content = {"id": [exact, 10**15, None], "code": [long, -long, None]}
    parquet.write_table(pa.table(content), tmp_path / "t.parquet")
    for name in ("t.npz", "t.parquet"):
        table = read_table(tmp_path / name)
        assert table.column("id").dtype == np.float64
        assert table.text("id").tolist()[:2] == ["9007199254740991", "1000000000000000"]
        assert table.text("code").tolist()[:2] == ["9007199254740993", "-9007199254740993"]
        assert table.text("id").tolist()[2:] == table.text("code").tolist()[2:] == [""] * (table.n_rows - 2)
    top = read_table(tmp_path / "t.npz")
    assert top.text("top").tolist() == ["18446744073709551615", "1"]
    assert fit_encoding(top, ["top"], scale="none").encode(top).tolist() == [[2.0**64], [1.0]]


def test_underscores_make_no_numbers(tmp_path):
    assert read_table(written(tmp_path, "a\n1_000\n")).column("a").tolist() == ["1_000"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "t.csv is empty"),
        (b"a,b\n", "has no rows"),
        (b"a,b\n1,2\n3\n", "ragged: line 3 has 1 cells, and the heading has 2"),
        (b"a,b\n1,2,3\n", "ragged: line 2 has 3 cells"),
        (b"a,a\n1,2\n", "more than one column 'a'"),
        (b"a,\n1,2\n", "Column 2 of t.csv has no name"),
        ("a\nMüller\n".encode("latin-1"), "not UTF-8 text .byte 0xfc"),
        (b'a,b\n"1,2\n', "not well-formed"),
    ],
)
def test_bad_text_files(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read_table(written(tmp_path, content))


def test_files_that_are_not_there_or_not_readable(tmp_path):
    with pytest.raises(ValueError, match="There is no file"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "f.csv").mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        read_table(tmp_path / "f.csv")
    with pytest.raises(ValueError, match="CSV, TSV, Parquet and NPZ"):
        read_table(written(tmp_path, "x", "t.xlsx"))


def test_the_nearest_column_is_suggested(tmp_path):
    table = read_table(written(tmp_path, "party,age\nx,1\n"))
    with pytest.raises(ValueError, match=r"no column 'Party': did you mean 'party'\?"):
        table.column("Party")
    with pytest.raises(ValueError, match="there are 'party', 'age'"):
        table.column("zzzz")


def test_npz(tmp_path):
    path = tmp_path / "t.npz"
    np.savez(path, X=np.ones((3, 2, 2), np.uint8), y=np.array([1, -1, 2]), name=np.array(["a", "b", "c"]))
    table = read_table(path)
    assert table.column("X").shape == (3, 2, 2)
    assert table.text("y").tolist() == ["1", "-1", "2"]
    assert table.text("name").tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="A separator is for text files"):
        read_table(path, separator=";")
    with pytest.raises(ValueError, match="where one value is needed"):
        table.text("X")


def test_npz_with_pickled_objects_is_refused_and_nothing_runs(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    path = tmp_path / "t.npz"
    np.savez(path, X=np.array([Trap(), 1], dtype=object))
    with pytest.raises(ValueError, match="pickled objects in 'X', which can run code"):
        read_table(path)
    assert not (tmp_path / "ran").exists()


def test_bad_npz(tmp_path):
    with pytest.raises(ValueError, match="not an NPZ file, or is damaged"):
        read_table(written(tmp_path, b"PK\x03\x04garbage", "t.npz"))
    np.savez(tmp_path / "u.npz", X=np.ones(3), y=np.ones(4))
    with pytest.raises(ValueError, match="differ in length: X 3, y 4"):
        read_table(tmp_path / "u.npz")
    np.savez(tmp_path / "v.npz", X=np.ones(3, complex))
    with pytest.raises(ValueError, match="neither numbers nor text"):
        read_table(tmp_path / "v.npz")


def test_parquet(tmp_path):
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"x": [1, None], "word": ["a", None], "flag": [True, False]}), path)
    table = read_table(path)
    assert np.array_equal(table.column("x"), [1, np.nan], equal_nan=True)
    assert table.column("word").tolist() == ["a", ""]
    assert table.column("flag").tolist() == [1, 0]
    with pytest.raises(ValueError, match="not a Parquet file"):
        read_table(written(tmp_path, b"no parquet here", "u.parquet"))
